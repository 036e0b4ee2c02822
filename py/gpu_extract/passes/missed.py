"""Light that a model misses.

Spots in steps of a bin cannot form a line that is narrower than a bin and not at its centre. The best x misses up to a
fifth of it, with too much light in some pixels and too little in others, whatever the noise is. Beside such a line the
model may be below 0. Pixels there would have the weight of dark ones, a hundred times too much, and x would follow the
pixels that the model fits least. A pixel is therefore weighted by its own light if it lies above the model by more than
noise, and by no more than the model may be wrong. That light has noise, but hardly any compared with what the model
misses.

Pixels below the model keep the larger variance of the model. A dead pixel, weighted by its own light, would be the
heaviest of all.
"""
import numpy as np

from gpu_extract.data import Array, IntArray, read_only
from gpu_extract.normal import Cut
from gpu_extract.passes import simd_pixels
from gpu_extract.passes.outliers import WRONG, Pixels, places_of
from gpu_extract.passes.spot_shape import Shape

FAR = 5.0      # errors above the model; noise alone reaches it in one pixel of 3 million


def weigh_missed(cut: Cut, expected: np.ndarray, rows: IntArray, *, shape: Shape, error: float,
                 lit: np.ndarray) -> tuple[IntArray, Array]:
    """Pixels to be weighted by their own light: (n, 2) row and column in the cut-out; (n) factors of their roots.

    cut: weighted, without the light of other bundles (variance.weigh), outliers masked
    expected: (rows, columns) float32 light from which the weights were made; rows: see outliers.known_rows
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
