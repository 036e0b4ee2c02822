"""The data of an extraction: frozen dataclasses, no arithmetic.

Axis order is always spectrum (fibre), wavelength, y, x. Ranges are half open. Pixel centres are integers counted from
0. Shapes are checked on construction, so that functions can trust values of these types.

Types that kernels also use are defined in `arrays.py`, and imported here, so that an edit of this package recompiles no
kernel.
"""
import numpy as np

from gpu_extract.arrays import LANE, Array, IntArray, SpecMask, read_only
from gpu_extract.data.frame import OUTPUTS, Frame, Rows
from gpu_extract.data.image import Card, FiberMap, Image, as_cards
from gpu_extract.data.passes import Draft, Light
from gpu_extract.data.psf import MOST_SIDE, Core, Legendre, PsfModel, Tail, with_series
from gpu_extract.data.stages import (
    FACTS,
    NOT_MEASURED,
    NOTHING,
    Blocks,
    Decorrelated,
    Normal,
    Recipe,
    Spots,
    Status,
    Strengths,
)
from gpu_extract.libraries import check_version

check_version(np)
