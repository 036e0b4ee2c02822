"""Kernels: the normal equations as bands, and which bins are given up: text/normal.h."""
from gpu_extract.device.cuda.text import number, text_kernel

PARTS, STRETCH, SIDE_BY_SIDE = number("PARTS"), number("STRETCH"), number("SIDE_BY_SIDE")
MOST = 9      # bins of a fibre at once, so that all sums stay in registers

couple = text_kernel("normal.couple", samples=((9,), (5,)), block=64)
give_up = text_kernel("normal.give_up", block=128)
count_marks = text_kernel("normal.count_marks", block=128)


def places_of(nwave: int) -> int:
    """Room for a fibre's bins in the order of text/normal.h: whole sections."""
    section = STRETCH * SIDE_BY_SIDE
    return -(-nwave // section) * section


def together(hw: int) -> tuple[int, int]:
    """Bins of a fibre that a lane of `couple` works on at once, and every how many-th of them: of all that touch a row
    there are at most hw + 1."""
    apart = -(-(hw + 1) // MOST)
    return -(-(hw + 1) // apart), apart


def couple_lanes(nwave: int, nd: int, hw: int) -> int:
    """Lanes of `couple` for a fibre."""
    return -(-nwave // STRETCH) * nd * together(hw)[1]**2
