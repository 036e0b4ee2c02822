"""CPU kernels: what of the image a bundle sees, and how far its spots overlap."""
import math

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def half_bands(reach, y0, x0, on_ccd, stamp):  # type: ignore[no-untyped-def]
    """reach[d] = largest |k| at which spot (i, j) overlaps spot (i + d, j + k), -1 where none does.

    y0, x0: (nfibre, nwave), y monotonic along wavelength; on_ccd: same shape, bool; stamp: (ny, nx)
    reach: (nfibre,) int64, filled here. For every fibre pair two ends move along with j: the last bins whose rows
    still meet those of bin j.
    """
    nfibre, nwave = y0.shape
    ny, nx = stamp
    reach[:] = -1
    for d in range(nfibre):
        for i in range(nfibre - d):
            other = i + d
            up = y0[other, nwave - 1] >= y0[other, 0]
            low = high = 0
            for j in range(nwave):
                if up:
                    while high < nwave and y0[other, high] < y0[i, j] + ny:
                        high += 1
                    while low < nwave and y0[other, low] <= y0[i, j] - ny:
                        low += 1
                else:
                    while high < nwave and y0[other, high] > y0[i, j] - ny:
                        high += 1
                    while low < nwave and y0[other, low] >= y0[i, j] + ny:
                        low += 1
                if not on_ccd[i, j]:
                    continue
                for k in (low, high - 1):
                    if low <= k < high and on_ccd[other, k] and abs(x0[other, k] - x0[i, j]) < nx:
                        reach[d] = max(reach[d], abs(k - j))
        if d > 0 and reach[d] < 0:
            break


@njit(nogil=True, cache=True)
def whiten_pixels(root, light, ivar, pix, corner):  # type: ignore[no-untyped-def]
    """root = sqrt(ivar) and light = sqrt(ivar) pix of an image, from element `corner` on; 0 where ivar is 0."""
    rows, columns = ivar.shape
    top, left = corner
    for y in range(rows):
        for x in range(columns):
            weight = np.float64(ivar[y, x])
            r = math.sqrt(weight)
            root[top + y, left + x] = r
            light[top + y, left + x] = r * pix[y, x] if weight > 0.0 else 0.0
