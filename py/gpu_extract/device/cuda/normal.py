"""Kernels: the normal equations as bands (text/normal.h), and which bins are given up."""
# mypy: disallow-untyped-defs=False
from numba import njit

from gpu_extract.device.cuda.kernels import kernel
from gpu_extract.device.cuda.text import text_kernel

PARTS = 64      # partial sums and maxima of a fibre: lane c takes bins c, c + 64, ...
STRETCH, SIDE_BY_SIDE = 16, 4      # bins that a lane of `couple` goes along, and lanes in a section (text/normal.h)
MOST = 9                           # bins of a fibre at once, so that all sums stay in registers

couple = text_kernel("normal.couple", "f8[4] f8[3] i4[2] i4[2] i8 i8 i8 i8 i8 i8 i8 i8 n", samples=((9,), (5,)),
                     block=64)


def places_of(nwave: int) -> int:
    """Room for a fibre's bins in the order of text/normal.h: whole sections."""
    section = STRETCH * SIDE_BY_SIDE
    return -(-nwave // section) * section


@njit(cache=True)
def bin_at(place):
    """The bin at a place; there are more places than bins."""
    section = STRETCH * SIDE_BY_SIDE
    return place // section * section + place % SIDE_BY_SIDE * STRETCH + place % section // SIDE_BY_SIDE


def together(hw: int) -> tuple[int, int]:
    """Bins of a fibre that a lane of `couple` works on at once, and every how many-th of them: of all that touch a row
    there are at most hw + 1."""
    apart = -(-(hw + 1) // MOST)
    return -(-(hw + 1) // apart), apart


def couple_lanes(nwave: int, nd: int, hw: int) -> int:
    """Lanes of `couple` for a fibre."""
    return -(-nwave // STRETCH) * nd * together(hw)[1]**2


@kernel("f8[4] f8[2] i1[2] f8[3] f8 f8")
def give_up(n, icov, rhs, given_up, sums, least, ridge):
    """Bins of weight 0 taken out, and which others normal.give_up would, told of alone: such a bundle is the CPU's. A
    lane for each bin.

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


@kernel("f8[2] i1[2] i8")
def count(n, parts, marks, wanted):
    """Bins that have a mark, among every 64th bin of a fibre: a lane for each part of a fibre."""
    f, c = n // PARTS, n % PARTS
    total = 0.0
    for j in range(c, marks.shape[1], PARTS):
        if marks[f, j] == wanted:
            total += 1.0
    parts[f, c] = total
