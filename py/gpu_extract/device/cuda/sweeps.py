"""Kernels in CUDA C++: sweeps along wavelength, declared as text/sweeps.h has them, and how fibres are cut for them.

A fibre is cut into tiles, one lane each: a lane begins a halo before its tile, as long as its matrix needs to forget
where it began (doc/method-banded.md). How long a tile is, is a matter of speed alone; the bits depend on it, and on
nothing else.
"""
from gpu_extract.device.cuda.normal import PARTS
from gpu_extract.device.cuda.text import number, text_kernel

TILE = 192          # bins of a tile: a lane of 2456 bins is ten times shorter, with its halos
ELEMENTS, SIDES = number("ELEMENTS"), number("SIDES")      # of a row, by one lane of add_up; right sides of a pole


def tile_of(nwave: int, poles: bool = False) -> int:
    """Bins of a tile: at most TILE, as even as can be, or more, so that there are no more tiles than partial sums of a
    fibre (normal.PARTS). poles: twice that, since so many poles are lanes enough, and halos count less then."""
    return -(-nwave // min(-(-nwave // (2 * TILE if poles else TILE)), PARTS))


def tiles_of(nwave: int, poles: bool = False) -> int:
    """How many tiles a fibre has."""
    return -(-nwave // tile_of(nwave, poles))


settle = text_kernel("sweeps.settle", samples=((9,),))
factor = text_kernel("sweeps.factor", samples=((9,), (5,), (21,)))
invert = text_kernel("sweeps.invert", samples=((9,), (21,)))
substitute = text_kernel("sweeps.substitute", samples=((9,), (5,)))
resubstitute = text_kernel("sweeps.resubstitute", samples=((9,), (5,)))
precondition_down = text_kernel("sweeps.precondition_down", samples=((9,),))
precondition_up = text_kernel("sweeps.precondition_up", samples=((9,),))
ask = text_kernel("sweeps.ask", samples=((9,), (21,)))
settle_pole = text_kernel("sweeps.settle_pole", samples=((9,),))
poles_down = text_kernel("sweeps.poles_down", samples=((9,), (13,), (21,)))
poles_up = text_kernel("sweeps.poles_up", samples=((9, 5), (13, 5), (21, 5)))
add_up = text_kernel("sweeps.add_up", block=128)
