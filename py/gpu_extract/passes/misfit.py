"""What a model misses of the light, as an error of the pixels around.

A line that is narrower than a bin, and not at its centre, is none that spots in steps of a bin can make: the best x
misses some per cent of it in a pixel, here too much, there too little, whatever the noise is. What is left of the
pixels, r, is then no noise, and it depends on the weights how much of the line x has. The fit makes A^T W r = 0, and a
sum of spots is flat, A c = 1: where W is the same for all pixels of a line, r adds up to 0, and x has all of its light.
Where W goes as one over the light of a model that misses it, wings count a hundred times as much as the top, pixels in
which the model is below 0 as much as dark ones, and x is that of the wings.

So a misfit is an error. Pixels that lie off the model by more than noise tell how large it is, up to what the model may
be wrong by, and all pixels that a spot may share with them have it (`misfits`). It is the same for a whole line, and
larger than the noise where there is any: weights are flat there, and the errors of x have the misfit in them. Where the
model fits, nothing changes.
"""
import numpy as np

from gpu_extract.data import Array, IntArray, read_only
from gpu_extract.normal import Cut
from gpu_extract.passes import simd_pixels
from gpu_extract.passes.outliers import AROUND, WRONG, Shape, places_of

FAR = 4.0            # errors off the model, above or below: one pixel in 16 000 of noise
SHARED = 0.01        # of the brightest variance around is in dim pixels of a model that was weighed by read noise


def misfits(cut: Cut, expected: np.ndarray, rows: IntArray, *, shape: Shape, error: float) -> tuple[IntArray, Array]:
    """Pixels that have a misfit's error: (n, 2) row and column in the cut-out, and what their roots are to be times.

    cut: weighed, the others' light and outliers taken away (variance.weigh)
    expected: (rows, columns) float32 the light that the weights are made of
    rows: (2, columns) the first and the end of those in each column whose light the model has (outliers.known_rows)
    shape: of the spots; error: of the PSF
    """
    missed, wrong = np.zeros(cut.root.shape, np.float32), float(WRONG * error + shape.between)
    if not simd_pixels.miss(missed, cut.root, cut.light, read_only(expected), rows, (FAR, SHARED, wrong, AROUND),
                            reach(shape)):
        return np.zeros((0, 2), dtype=np.int64), np.zeros(0)
    places = places_of(missed > 0.0)
    y, x = places.T
    return places, 1.0 / np.sqrt(1.0 + np.square(missed[y, x] * cut.root[y, x]))


def reach(shape: Shape) -> tuple[int, int]:
    """Pixels above and below, left and right of a misfit that have its error.

    From end to end of a spot's core along the dispersion. Across half of its half is enough, and spares the next fibre.
    """
    high, wide = shape.core
    return 2 * high, (wide + 1) // 2
