"""Registration: the shift of a camera and of a bundle against the starting PSF, to a pixel.

A single bundle may match the light of the next fibres, a pitch away; only the gaps between bundles tell. Therefore the
whole camera is shifted first, then each bundle by less than half a pitch.
"""
import numpy as np

from gpu_extract.data import Array
from gpu_psf.data import Pixels

BRIGHT = float(np.arcsinh(10.0))         # of clear light: 20 standard deviations
SPAN = 2.0          # standard deviations from which on light is compressed logarithmically


def clear_light(pixels: Pixels) -> Array:
    """Light in standard deviations of the read noise, no pixel brighter than its
    brightest neighbour (single odd ones are not), compressed: bright lines count as
    often as faint ones. (nexposure, ny, nx)"""
    light = pixels.value / np.sqrt(pixels.read_variance)
    around = np.zeros(light.shape)
    for axis in (1, 2):
        for by in (-1, 1):
            np.maximum(around, np.roll(light, by, axis), out=around)
    return np.arcsinh(np.clip(light, 0.0, around) / SPAN)


def scores(pixels: Pixels, x: Array, y: Array, reach: tuple[int, int]) -> Array:
    """Sum of the clear light on all spots for every shift by whole pixels: (2 reach y + 1, 2 reach x + 1).

    x, y: (n,) places of the spots on the CCD; reach: (x, y)
    """
    nx = pixels.value.shape[2]
    column, row = np.rint(x).astype(np.int64) - pixels.x0, np.rint(y).astype(np.int64) - pixels.y0
    along, across = (np.arange(-n - 1, n + 2) for n in (reach[1], reach[0]))
    rows = pixels.stored[np.clip(row[:, np.newaxis] + along, 0, len(pixels.stored) - 1)]
    columns = np.clip(column[:, np.newaxis] + across, 0, nx - 1)
    total = np.zeros((2 * reach[1] + 1, 2 * reach[0] + 1))
    for value, variance in zip(pixels.value, pixels.read_variance, strict=True):
        at = rows[:, :, np.newaxis], columns[:, np.newaxis]
        light = value[at] / np.sqrt(variance[at])
        around = np.maximum(np.maximum(light[:, :-2, 1:-1], light[:, 2:, 1:-1]),
                            np.maximum(light[:, 1:-1, :-2], light[:, 1:-1, 2:]))
        total += np.arcsinh(np.maximum(np.minimum(light[:, 1:-1, 1:-1], around), 0.0) / SPAN).sum(axis=0)
    return total


def best_shift(table: Array) -> tuple[int, int]:
    """The shift (x, y) of the highest score."""
    j, i = np.unravel_index(int(table.argmax()), table.shape)
    return int(i) - table.shape[1] // 2, int(j) - table.shape[0] // 2


def explained(light: Array, lit: np.ndarray) -> float:
    """Share of the bright light (of `clear_light`) that lies where `lit` is true, both (nexposure, ny, nx); 0 where
    nothing is bright."""
    bright = light > BRIGHT
    total = float(light[bright].sum())
    return float(light[bright & lit].sum()) / total if total > 0 else 0.0
