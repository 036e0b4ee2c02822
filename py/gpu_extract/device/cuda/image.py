"""Kernels: pixels as they lie in the file -> what the spots need.

A bundle's pixels are a cut-out of the CCD. It comes up as it lies on the host, (rows, columns), and is kept as
(columns, rows), rows fastest: traces run along y, and lanes that are neighbours in wavelength then read neighbours
in memory.
"""
# mypy: disallow-untyped-defs=False
import math

import numpy as np
from numba import cuda, njit

from gpu_extract.device.cuda.kernels import kernel

TOP, LEFT, ROWS, COLUMNS = 0, 1, 2, 3      # of a bundle's cut-out: (bundles, 4) int64


@njit(cache=True)
def _swap_words(n, words):
    """Four bytes the other way round."""
    w = words[n]
    words[n] = np.uint32(((w & 0xFF) << 24) | ((w & 0xFF00) << 8) | ((w >> 8) & 0xFF00) | (w >> 24))


@kernel("u4[1]", lane=_swap_words, block=256)
def swap_words(count, args):
    """Byte order of 4-byte numbers, in place."""
    n = cuda.grid(1)
    if n < count:
        _swap_words(n, *args)


@njit(cache=True)
def _swap_pairs(n, words):
    """Eight bytes, seen as two words, the other way round."""
    low, high = words[2 * n], words[2 * n + 1]
    words[2 * n], words[2 * n + 1] = high, low
    _swap_words(2 * n, words)
    _swap_words(2 * n + 1, words)


@kernel("u4[1]", lane=_swap_pairs, block=256)
def swap_pairs(count, args):
    """Byte order of 8-byte numbers, in place."""
    n = cuda.grid(1)
    if n < count:
        _swap_pairs(n, *args)


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


@kernel("f4[3] i8[2] f8[3] f8[3]", lane=_whiten, block=256)
def whiten_singles(count, args):
    """sqrt(ivar) and sqrt(ivar) pix of float32 images; a lane for each pixel."""
    n = cuda.grid(1)
    if n < count:
        _whiten(n, *args)


@kernel("f8[3] i8[2] f8[3] f8[3]", lane=_whiten, block=256)
def whiten_doubles(count, args):
    """The same of float64 images."""
    n = cuda.grid(1)
    if n < count:
        _whiten(n, *args)
