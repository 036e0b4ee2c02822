"""Kernels: the normal equations as bands, and specter's rule for weak bins.

A lane makes one entry: the sum over the pixels that two whitened spots share, in the order of rows and columns.
"""
from numba import cuda, njit

from gpu_extract.backend.cuda.kernels import kernel

PARTS = 64      # partial sums and maxima of a fibre: lane c takes bins c, c + 64, ...


@njit(cache=True)
def _couple(n, icov, white, y0, x0, nfibre, nx):  # type: ignore[no-untyped-def]
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
def couple(count, args):  # type: ignore[no-untyped-def]
    """icov: a lane for each fibre, pair of offsets and bin; `couple_lanes` of them."""
    n = cuda.grid(1)
    if n < count:
        _couple(n, *args)


def couple_lanes(nd: int, hw: int) -> int:
    """Entries of a bin that `couple` makes."""
    return hw + 1 + (nd - 1) * (2 * hw + 1)


@njit(cache=True)
def _heaviest(n, parts, sums, first, last):  # type: ignore[no-untyped-def]
    """Largest weight of every 64th bin of a fibre; parts: (fibres, PARTS), sums[0]: weights."""
    f, c = n // PARTS, n % PARTS
    most = 0.0
    for j in range(first + c, last, PARTS):
        most = max(most, sums[0, f, j])
    parts[f, c] = most


@kernel("f8[2] f8[3] i8 i8", lane=_heaviest)
def heaviest(count, args):  # type: ignore[no-untyped-def]
    """Largest weights among bins first .. last - 1: a lane for each part of a fibre."""
    n = cuda.grid(1)
    if n < count:
        _heaviest(n, *args)


@njit(cache=True)
def _greatest(n, whole, parts):  # type: ignore[no-untyped-def]
    """whole[f] = the largest of the parts of a fibre."""
    most = 0.0
    for c in range(parts.shape[1]):
        most = max(most, parts[n, c])
    whole[n] = most


@kernel("f8[1] f8[2]", lane=_greatest, block=32)
def greatest(count, args):  # type: ignore[no-untyped-def]
    """Maxima of fibres: a lane for each."""
    n = cuda.grid(1)
    if n < count:
        _greatest(n, *args)


@njit(cache=True)
def _regularise(n, icov, rhs, weak, sums, most, nfibre, minimum, ridge):  # type: ignore[no-untyped-def]
    """The rule of normal.regularise for one bin.

    rhs: (fibres, nwave), filled: 0 where weight is; weak: (fibres, nwave) int8, filled: whether the rule added
    most: (fibres,) of `greatest`; minimum: of the bundle's largest weight; ridge: see config.regularize
    """
    nwave = icov.shape[3]
    f, j = n // nwave, n % nwave
    hw, start = icov.shape[2] // 2, f // nfibre * nfibre
    largest = 0.0
    for i in range(start, start + nfibre):
        largest = max(largest, most[i])
    threshold, weight = minimum * largest, sums[0, f, j]
    if weight == 0.0:
        icov[f, 0, hw, j] = 0.0
        rhs[f, j] = 0.0
        weak[f, j] = 0
        return
    rhs[f, j] = sums[1, f, j]
    if weight < threshold:
        icov[f, 0, hw, j] += (threshold - weight) * (threshold - weight)
    else:
        icov[f, 0, hw, j] += ridge * ridge
    weak[f, j] = 1 if weight < threshold or ridge > 0.0 else 0


@kernel("f8[4] f8[2] i1[2] f8[3] f8[1] i8 f8 f8", lane=_regularise)
def regularise(count, args):  # type: ignore[no-untyped-def]
    """Specter's rule on the diagonal, and bins of weight 0 taken out: a lane for each bin."""
    n = cuda.grid(1)
    if n < count:
        _regularise(n, *args)


@njit(cache=True)
def _count_weak(n, parts, weak, first, last):  # type: ignore[no-untyped-def]
    """Regularised bins among every 64th bin of a fibre."""
    f, c = n // PARTS, n % PARTS
    total = 0.0
    for j in range(first + c, last, PARTS):
        total += weak[f, j]
    parts[f, c] = total


@kernel("f8[2] i1[2] i8 i8", lane=_count_weak)
def count_weak(count, args):  # type: ignore[no-untyped-def]
    """Regularised bins among first .. last - 1: a lane for each part of a fibre."""
    n = cuda.grid(1)
    if n < count:
        _count_weak(n, *args)
