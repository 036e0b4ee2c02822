"""Kernels: the normal equations as bands, and which bins are given up.

A lane makes one entry: the sum over the pixels that two whitened spots share, in the order of rows and columns.
"""
# mypy: disallow-untyped-defs=False
from numba import cuda, njit

from gpu_extract.device.cuda.kernels import kernel

PARTS = 64      # partial sums and maxima of a fibre: lane c takes bins c, c + 64, ...


@njit(cache=True)
def _couple(n, icov, white, y0, x0, nfibre, nx):
    """One entry of icov; of a fibre with itself also its mirror image.

    icov: (fibres, nd, 2 hw + 1, nwave), zero on entry; white: (fibres, ny nx, nwave); y0, x0: (fibres, nwave)
    """
    nd, nband, nwave = icov.shape[1], icov.shape[2], icov.shape[3]
    hw, ny = nband // 2, white.shape[1] // nx
    lanes = hw + 1 + (nd - 1) * nband
    f, m, j = n // (lanes * nwave), n // nwave % lanes, n % nwave
    d = 0 if m <= hw else (m - hw - 1) // nband + 1
    k = m if d == 0 else (m - hw - 1) % nband - hw
    g, other = f + d, j + k
    if f % nfibre + d >= nfibre or other < 0 or other >= nwave:
        return
    down, right = y0[g, other] - y0[f, j], x0[g, other] - x0[f, j]
    total = 0.0
    for y in range(max(down, 0), min(ny, ny + down)):
        for x in range(max(right, 0), min(nx, nx + right)):
            total += white[f, y * nx + x, j] * white[g, (y - down) * nx + x - right, other]
    icov[f, d, hw + k, j] = total
    if d == 0 and k > 0:
        icov[f, 0, hw - k, other] = total


@kernel("f8[4] f8[3] i4[2] i4[2] i8 i8", lane=_couple)
def couple(count, args):
    """icov: a lane for each fibre, pair of offsets and bin; `couple_lanes` of them."""
    n = cuda.grid(1)
    if n < count:
        _couple(n, *args)


def couple_lanes(nd: int, hw: int) -> int:
    """Entries of a bin that `couple` makes."""
    return hw + 1 + (nd - 1) * (2 * hw + 1)


@njit(cache=True)
def _give_up(n, icov, rhs, given_up, sums, least, ridge):
    """The rule of normal.give_up for one bin; bins that it gives up are only told of: such a bundle is the CPU's.

    rhs: (fibres, nwave), filled: 0 where weight is; given_up: (fibres, nwave) int8, filled; sums: weight and rhs
    least: normal.FAINT_LIGHT: the CPU gives up some of these, and flags the others; ridge: see config.regularize
    """
    nwave, hw = icov.shape[3], icov.shape[2] // 2
    f, j = n // nwave, n % nwave
    weight, known = sums[0, f, j], icov[f, 0, hw, j]
    dark = not weight > 0.0
    given_up[f, j] = 1 if not dark and not known > least * weight else 0
    icov[f, 0, hw, j] = 0.0 if dark else known + ridge * ridge
    rhs[f, j] = 0.0 if dark else sums[1, f, j]


@kernel("f8[4] f8[2] i1[2] f8[3] f8 f8", lane=_give_up)
def give_up(count, args):
    """Bins of weight 0 taken out, and which others are to be: a lane for each bin."""
    n = cuda.grid(1)
    if n < count:
        _give_up(n, *args)


@njit(cache=True)
def _count_given_up(n, parts, given_up):
    """Bins that are given up among every 64th bin of a fibre."""
    f, c = n // PARTS, n % PARTS
    total = 0.0
    for j in range(c, given_up.shape[1], PARTS):
        total += given_up[f, j]
    parts[f, c] = total


@kernel("f8[2] i1[2]", lane=_count_given_up)
def count_given_up(count, args):
    """Bins that are given up: a lane for each part of a fibre."""
    n = cuda.grid(1)
    if n < count:
        _count_given_up(n, *args)
