"""Kernels: pixels as they lie in the file -> what the spots need.

A bundle's pixels are a cut-out of the CCD. It comes up as it lies on the host, (rows, columns), and is kept as
(columns, rows), rows fastest: traces run along y, and lanes that are neighbours in wavelength then read neighbours
in memory.
"""
# mypy: disallow-untyped-defs=False
import math

import numpy as np
from numba import njit

from gpu_extract.device.cuda.kernels import kernel

TOP, LEFT, ROWS, COLUMNS = 0, 1, 2, 3      # of a bundle's cut-out: (bundles, 4) int64


@njit(cache=True)
def _swap_words(n, words):
    """Four bytes the other way round."""
    w = words[n]
    words[n] = np.uint32(((w & 0xFF) << 24) | ((w & 0xFF00) << 8) | ((w >> 8) & 0xFF00) | (w >> 24))


# Byte order of 4-byte numbers, in place.
swap_words = kernel("u4[1]", name="swap_words", block=256)(_swap_words)


@kernel("u4[1]", block=256)
def swap_pairs(n, words):
    """Byte order of 8-byte numbers, in place.

    Eight bytes, seen as two words, the other way round.
    """
    low, high = words[2 * n], words[2 * n + 1]
    words[2 * n], words[2 * n + 1] = high, low
    _swap_words(2 * n, words)
    _swap_words(2 * n + 1, words)


@njit(cache=True)
def _whiten(n, pixels, cuts, root, light):
    """One pixel: root = sqrt(ivar), light = sqrt(ivar) pix; 0 where ivar is 0, and beyond the cut-out.

    pixels: (bundles, 2, rows columns), pix and ivar; cuts: (bundles, 4); root, light: (bundles, columns, rows)
    """
    columns, rows = root.shape[1], root.shape[2]
    b, column, row = n // (columns * rows), n // rows % columns, n % rows
    r = value = 0.0
    if row < cuts[b, ROWS] and column < cuts[b, COLUMNS]:
        at = row * cuts[b, COLUMNS] + column
        weight = np.float64(pixels[b, 1, at])
        if weight > 0.0:
            r = math.sqrt(weight)
            value = r * np.float64(pixels[b, 0, at])
    root[b, column, row] = r
    light[b, column, row] = value


# sqrt(ivar) and sqrt(ivar) pix of float32 images; a lane for each pixel.
whiten_singles = kernel("f4[3] i8[2] f8[3] f8[3]", name="whiten_singles", block=256)(_whiten)


# The same of float64 images.
whiten_doubles = kernel("f8[3] i8[2] f8[3] f8[3]", name="whiten_doubles", block=256)(_whiten)
