"""Kernels in CUDA C++: sweeps along wavelength, declared as text/sweeps.h has them, and how fibres are cut for them.

A fibre is cut into tiles, one lane each: a lane begins a halo before its tile, as long as its matrix needs to forget
where it began (doc/method-banded.md). How long a tile is, is a matter of speed alone; the bits depend on it, and on
nothing else.
"""
from gpu_extract.device.cuda.normal import PARTS
from gpu_extract.device.cuda.text import text_kernel

TILE = 192          # bins of a tile: a lane of 2456 bins is ten times shorter, with its halos
ELEMENTS = 8        # of a row of sums, that one lane of add_up makes
SIDES = 2           # right sides of a pole: ones and x (text/recursions.h)


def tile_of(nwave: int, poles: bool = False) -> int:
    """Bins of a tile: at most TILE, as even as can be, or more, so that there are no more tiles than partial sums of a
    fibre (normal.PARTS). poles: twice that, since so many poles are lanes enough, and halos count less then."""
    return -(-nwave // min(-(-nwave // (2 * TILE if poles else TILE)), PARTS))


def tiles_of(nwave: int, poles: bool = False) -> int:
    """How many tiles a fibre has."""
    return -(-nwave // tile_of(nwave, poles))


_MATRIX = " ".join(["i8"] * 8)      # open, place, between, row, element, nwave, tile, lanes
_PAIRS = " ".join(["i8"] * 4)       # nwave, tile, pairs, lanes
_POLES = " ".join(["i8"] * 7)       # good, group, width, columns, nwave, tile, then (reach and) lanes

settle = text_kernel("sweeps.settle", f"i4[1] i4[1] f8[1] {_MATRIX} n", samples=((9,),))
factor = text_kernel("sweeps.factor", f"f8[1] i4[1] i4[1] f8[1] {_MATRIX} n", samples=((9,), (5,), (21,)))
invert = text_kernel("sweeps.invert", "f8[1] f8[1] i4[1] i4[1] i8 i8 i8 i8 i8 n", samples=((9,), (21,)))
substitute = text_kernel("sweeps.substitute", f"f8[1] f8[1] f8[1] i4[1] i4[1] {_PAIRS} n", samples=((9,), (5,)))
resubstitute = text_kernel("sweeps.resubstitute", f"f8[1] f8[1] f8[1] i4[1] i4[1] {_PAIRS} n", samples=((9,), (5,)))
precondition_down = text_kernel("sweeps.precondition_down", "f8[1] f8[1] f8[1] i4[1] f8[2] i8 i8 i8 i8 i8 n",
                                samples=((9,),))
precondition_up = text_kernel("sweeps.precondition_up",
                              "f8[1] f8[2] f8[1] f8[1] f8[1] i4[1] f8[2] i8 i8 i8 i8 i8 i8 n", samples=((9,),))
ask = text_kernel("sweeps.ask", "f8[1] f8[1] f8[1] f8[1] f8[1] i4[1] i4[1] f8[1] i8 i8 i8 i8 i8 n",
                  samples=((9,), (21,)))
settle_pole = text_kernel("sweeps.settle_pole", "i4[1] i4[1] i4[1] f8[1] i8 i8 i8 i8 i8 i8 n", samples=((9,),))
poles_down = text_kernel("sweeps.poles_down",
                         f"f8[1] f8[1] f8[1] i4[1] f8[1] i4[1] i4[1] i4[1] f8[1] {_POLES} i8 n",
                         samples=((9,), (13,), (21,)))
poles_up = text_kernel("sweeps.poles_up", f"f8[1] f8[1] i4[1] f8[1] i4[1] i4[1] i4[1] f8[1] {_POLES} n n",
                       samples=((9, 5), (13, 5), (21, 5)))
add_up = text_kernel("sweeps.add_up", "f8[1] f8[1] f8[1] i4[1] i4[1] f8[1] i8 i8 i8 i8", block=128)
