"""Light that a model misses.

A line that is narrower than a bin, and not at its centre, is none that spots in steps of a bin can make: the best x
misses up to a fifth of it, here too much, there too little, whatever the noise is. The model may be below 0 beside such
a line. Its pixels then have the weight of dark ones, a hundred times too much, and x is that of the pixels that the
model fits least. A pixel that lies above the model by more than noise does, and not by more than the model may be
wrong, is therefore weighed by its own light. That has noise, but hardly any beside what the model misses.

Pixels below the model keep the larger variance of the model: where it is the pixel that is wrong, as a dead one is, its
own light would make it the heaviest of all.
"""
import numpy as np

from gpu_extract.data import Array, IntArray, read_only
from gpu_extract.normal import Cut
from gpu_extract.passes import simd_pixels
from gpu_extract.passes.outliers import WRONG, Pixels, Shape, places_of

FAR = 5.0      # errors above the model: one pixel in 3 million of noise


def weigh_missed(cut: Cut, expected: np.ndarray, rows: IntArray, *, shape: Shape, error: float,
                 lit: np.ndarray) -> tuple[IntArray, Array]:
    """Pixels that are weighed by their own light: (n, 2) row and column in the cut-out; what their roots are times.

    cut: weighed, the others' light and outliers taken away (variance.weigh)
    expected: (rows, columns) float32 the light that the weights are made of; rows: see outliers.known_rows
    shape: of the spots; error: of the PSF; lit: the light of all bundles in the variance, see outliers.Pixels
    """
    found = np.empty(cut.root.shape, dtype=bool)
    if not simd_pixels.look(found, cut.root, cut.light, read_only(expected), FAR):
        return np.zeros((0, 2), dtype=np.int64), np.zeros(0)
    places = places_of(found)
    places = places[Pixels(cut, expected, rows, 0.0, lit).height(places) > FAR]
    places = places[Pixels(cut, expected, rows, WRONG * error + shape.between, lit).height(places) <= FAR]   # no hits
    y, x = places.T
    root = cut.root[y, x]
    more = np.maximum(cut.light[y, x] / root, 0.0) - np.maximum(expected[y, x].astype(float), 0.0)
    return places, 1.0 / np.sqrt(1.0 + more * root * root)
