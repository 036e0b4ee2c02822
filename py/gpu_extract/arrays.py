"""Definitions shared by kernels and `data`: types of arrays, lanes, the bits of MASK.

Kernels import nothing else from outside of their rooms, `vectors/` and `kernels/`. An edit here causes all kernels to
be compiled again.
"""
from enum import IntFlag

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.integer]

LANE = 4    # bins of a block: the lanes of the CPU's vectors


def read_only(array: np.ndarray) -> np.ndarray:
    """A read-only view of an array: kernels are compiled for these alone, since arrays that ranks share are read-only.
    """
    view = array.view()
    view.flags.writeable = False
    return view


class SpecMask(IntFlag):
    """Bits of a frame's MASK: those of desispec.maskbits.specmask that are set here, and our own from bit 24 on."""

    SOMEBADPIX = 1       # more than half of the spot's light falls on masked pixels
    ALLBADPIX = 2        # no good pixel at all
    COSMIC = 4           # a pixel of its core stood out from the model and was treated as masked (passes)
    BAD2DFIT = 128       # the model does not fit the pixels: chi2pix stands out
    NODATA = 256         # nothing extracted: ivar is 0
    BADFIBER = 512       # the fibre was dropped
    WEAKBIN = 1 << 24    # good pixels do not distinguish the bin from others, or have hardly any of its light
    ODDPIX = 1 << 25     # touches pixels that were treated as masked because their value or ivar is impossible
