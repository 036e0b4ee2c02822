"""CPU kernels: what of the image a bundle sees, and how far its spots overlap."""
import math

import numpy as np
from numba import njit

from gpu_extract.data import LANE


@njit(nogil=True, cache=True)
def half_bands(y0, x0, on_ccd, stamp):  # type: ignore[no-untyped-def]
    """Largest d and largest |k| at which some spot (i, j) overlaps spot (i + d, j + k), both on the CCD.

    y0, x0: (nfibre, nwave), y monotonic along wavelength; on_ccd: same shape, bool; stamp: (ny, nx)
    A pair of fibres is only asked whether it reaches farther than those before it, up to the distance in bins at which
    all its rows are apart.
    """
    nfibre, nwave = y0.shape
    neighbours, most = 0, -1
    seen = np.array([on_ccd[i].any() for i in range(nfibre)])
    for d in range(nfibre):
        found = False
        for i in range(nfibre - d):
            if not (seen[i] and seen[i + d]):
                continue
            for side in (1, -1):
                k = most + 1 if found else 0
                while k < nwave:
                    overlapping, close = _at_distance(y0, x0, on_ccd, stamp, (i, i + d), (side, k))
                    if overlapping:
                        found, most = True, max(most, k)
                    if not close:
                        break
                    k += 1
        if found:
            neighbours = d
        elif d > 0:
            break
    return neighbours, max(most, 0)


@njit(nogil=True)
def _at_distance(y0, x0, on_ccd, stamp, pair, distance):  # type: ignore[no-untyped-def]
    """Whether spots of one fibre overlap those of another some bins on, and whether they may even farther on.

    pair: (one, other); distance: (1 or -1, bins)
    """
    one, other = pair
    side, k = distance[0], distance[0] * distance[1]
    ny, nx = stamp
    nwave = y0.shape[1]
    towards = 1 if (y0[other, nwave - 1] >= y0[other, 0]) == (side > 0) else -1
    first, last = max(0, -k), min(nwave, nwave - k)
    y, x, good = y0[one, first:last], x0[one, first:last], on_ccd[one, first:last]
    other_y, other_x, other_good = (y0[other, first + k:last + k], x0[other, first + k:last + k],
                                    on_ccd[other, first + k:last + k])
    overlapping, close = 0, 0
    for j in range(last - first):
        apart = towards * (other_y[j] - y[j])
        near = good[j] & (apart < ny)
        close += near
        overlapping += near & other_good[j] & (apart > -ny) & (abs(other_x[j] - x[j]) < nx)
    return overlapping > 0, close > 0


@njit(nogil=True, cache=True)
def frames(place, stamp):  # type: ignore[no-untyped-def]
    """The common frames of pixels of blocks of LANE bins.

    place: (2, nfibre, n) int64, first pixel (y, x) of the stamps, n a multiple of LANE; stamp: (ny, nx)
    Returns (nfibre, 2, n) float64, the stamps' first pixel in their frame, and (4, nfibre, n / LANE) int64, the frames'
    first row and column, height and width.
    """
    _, nfibre, n = place.shape
    offsets, corners = np.empty((nfibre, 2, n)), np.empty((4, nfibre, n // LANE), dtype=np.int64)
    for axis in range(2):
        for i in range(nfibre):
            for b in range(n // LANE):
                first = last = place[axis, i, b * LANE]
                for lane in range(1, LANE):
                    first = min(first, place[axis, i, b * LANE + lane])
                    last = max(last, place[axis, i, b * LANE + lane])
                corners[axis, i, b], corners[2 + axis, i, b] = first, last - first + stamp[axis]
                for lane in range(LANE):
                    offsets[i, axis, b * LANE + lane] = place[axis, i, b * LANE + lane] - first
    return offsets, corners


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
