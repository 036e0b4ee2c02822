"""Kernels: the normal equations as bands (text/normal.h), and which bins are given up."""
# mypy: disallow-untyped-defs=False
from gpu_extract.device.cuda.kernels import kernel
from gpu_extract.device.cuda.text import text_kernel

PARTS = 64      # partial sums and maxima of a fibre: lane c takes bins c, c + 64, ...
OWN, OTHERS = 4, 4      # bins of a fibre, and of another, whose couplings one lane makes (text/normal.h)

couple = text_kernel("normal.couple", "f8[4] f8[3] i4[2] i4[2] i8 i8 i8 i8 i8 i8", block=64)


def couple_lanes(nwave: int, nd: int, hw: int) -> int:
    """Lanes of `couple` for a fibre."""
    return -(-nwave // OWN) * nd * (-(-(2 * hw + OWN) // OTHERS))


@kernel("f8[4] f8[2] i1[2] f8[3] f8 f8")
def give_up(n, icov, rhs, given_up, sums, least, ridge):
    """Bins of weight 0 taken out, and which others are to be: a lane for each bin.

    The rule of normal.give_up for one bin; bins that it gives up are only told of: such a bundle is the CPU's.

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


@kernel("f8[2] i1[2]")
def count_given_up(n, parts, given_up):
    """Bins that are given up: a lane for each part of a fibre.

    Bins that are given up among every 64th bin of a fibre.
    """
    f, c = n // PARTS, n % PARTS
    total = 0.0
    for j in range(c, given_up.shape[1], PARTS):
        total += given_up[f, j]
    parts[f, c] = total
