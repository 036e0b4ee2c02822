"""CPU kernel: rows of an image with a suspect value or inverse variance."""
# mypy: disallow-untyped-defs=False
import numpy as np

from gpu_extract.kernels.compiled import njit


@njit(cache=True)
def look(rows, ivar, pix, columns, limits):
    """Fill rows, (ny,) bool: whether ivar < 0, ivar > limits[0], ivar pix^2 > limits[1], or a NaN occurs in a row.

    ivar, pix: whole images; columns: (first, last) of the searched ones
    Computed in float64 for every image, because the square of a float32 may overflow it.
    """
    most, highest = limits
    first, last = columns
    for y in range(len(rows)):
        weights, values = ivar[y, first:last], pix[y, first:last]
        suspect = False
        for x in range(len(weights)):
            w, p = np.float64(weights[x]), np.float64(values[x])
            suspect |= not (((w * p) * p <= highest) & (w <= most) & (w >= 0.0))
        rows[y] = suspect
