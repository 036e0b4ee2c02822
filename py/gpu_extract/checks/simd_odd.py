"""CPU kernel: in which rows of an image is there a value or an inverse variance to be looked at."""
# mypy: disallow-untyped-defs=False
import numpy as np

from gpu_extract.kernels.compiled import njit


@njit(cache=True)
def look(rows, ivar, pix, columns, limits):
    """rows: (ny,) bool, whether ivar < 0, ivar > limits[0], ivar pix^2 > limits[1] or any of it is NaN in a row.

    ivar, pix: whole images; columns: (first, last) of those looked at
    In float64 whatever the image is: a float32 may be 3e38, and its square is not one.
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
