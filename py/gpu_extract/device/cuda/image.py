"""Kernels: pixels as they lie in memory -> what the spots need, and whether any of them is odd.

Some columns of the CCD come up for every bundle, all rows of them, as they lie on the host: (rows, columns). The
bundle's cut-out is a part of that. It is kept as (columns, rows), rows fastest: traces run along y, and lanes that are
neighbours in wavelength then read neighbours in memory.
"""
# mypy: disallow-untyped-defs=False
import math

import numpy as np
from numba import njit

from gpu_extract.device.cuda.kernels import kernel
from gpu_extract.device.cuda.text import text_kernel

# Of what comes up of a bundle: the cut-out's first pixel, pixels of a row, first and one past the last column that is
# looked at, rows (text/image.h)
BEGIN, WIDE, FIRST, LAST, HEIGHT, PLACES = 0, 1, 2, 3, 4, 5
# What is seen of a bundle's pixels (checks.odd_pixels.may_be_odd); LOOKERS: lanes of a bundle
SEEN, LOOKERS = 3, 1024
TOP, LEFT, ROWS, COLUMNS = 0, 1, 2, 3      # of a bundle's cut-out: (bundles, 4) int64


@njit(cache=True)
def _whiten(n, pixels, cuts, places, root, light):
    """One pixel: root = sqrt(ivar), light = sqrt(ivar) pix; 0 where ivar is 0, and beyond the cut-out.

    pixels: (bundles, 2, pixels), pix and ivar; cuts: (bundles, 4); places: (bundles, PLACES)
    root, light: (bundles, columns, rows)
    """
    columns, rows = root.shape[1], root.shape[2]
    b, column, row = n // (columns * rows), n // rows % columns, n % rows
    r = value = 0.0
    if row < cuts[b, ROWS] and column < cuts[b, COLUMNS]:
        at = places[b, BEGIN] + row * places[b, WIDE] + column
        weight = np.float64(pixels[b, 1, at])
        if weight > 0.0:
            r = math.sqrt(weight)
            value = r * np.float64(pixels[b, 0, at])
    root[b, column, row] = r
    light[b, column, row] = value


# sqrt(ivar) and sqrt(ivar) pix of float32 and of float64 images; a lane for each pixel.
whiten_singles = kernel("f4[3] i8[2] i8[2] f8[3] f8[3]", name="whiten_singles", block=256)(_whiten)
whiten_doubles = kernel("f8[3] i8[2] i8[2] f8[3] f8[3]", name="whiten_doubles", block=256)(_whiten)

# What is seen of the pixels in parts, of float32 and of float64 images, and in all (text/image.h).
look_singles = text_kernel("image.look", "f8[3] f4[3] i8[2] i8 i8", block=128)
look_doubles = text_kernel("image.look", "f8[3] f8[3] i8[2] i8 i8", block=128)
see = text_kernel("image.see", "f8[2] f8[3] i8")
