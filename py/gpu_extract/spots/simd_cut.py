"""CPU kernels: the part of the image that a bundle's spots touch, and how far these overlap."""
# mypy: disallow-untyped-defs=False
import math

import numpy as np

from gpu_extract.arrays import LANE
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import (address, prefetch, vfma, vfold, vmax, vmul, vread8, vroot, vset8, vsum, vwrite,
                                      vwrite_past)

EIGHT = 8     # float64 of the longest vector
AHEAD = 8     # rows by which an image's pixels are prefetched
STRETCH = 64  # bins whose spots are first considered together: their columns change by less than a pixel


@njit(cache=True)
def half_bands(y0, x0, stamp, shape):
    """Largest d and largest |k| at which some spot (i, j) overlaps spot (i + d, j + k), both on the CCD; and the
    largest |k| with d = 0.

    y0, x0: (nfibre, nwave), y monotonic along wavelength; stamp: (ny, nx); shape: (ny, nx) of the CCD
    A pair of fibres is tested only for larger distances in bins than those before it, up to the distance at which all
    its rows are apart, and not at all if none of its stretches meet. All distances of fibres are tested: beyond a fibre
    that is off the CCD, or elsewhere on it, there may be others close by.
    """
    nfibre, nwave = y0.shape
    on_ccd, stretches = _on_ccd(y0, x0, stamp, shape)
    neighbours, most, own = 0, -1, 0
    for d in range(nfibre):
        found = False
        for i in range(nfibre - d):
            if not _meet(stretches[i], stretches[i + d], stamp):
                continue
            for turn in range(2 if d > 0 else 1):
                k = most + 1 if found else 0
                while k < nwave:
                    overlapping, close = _at_distance(y0, x0, on_ccd, stamp, (i, i + d), (1 - 2 * turn, k))
                    if overlapping:
                        found, most = True, max(most, k)
                    if not close:
                        break
                    k += 1
        if found:
            neighbours, own = d, own if d else most
    return neighbours, max(most, 0), own


@njit()
def _on_ccd(y0, x0, stamp, shape):
    """Which spots are on the CCD, and where they are, by stretches of STRETCH bins.

    Returns (nfibre, nwave) bool, and (nfibre, 1 + stretches, 4) int64: lowest and highest y0, lowest and highest x0 of
    those on the CCD, with the highest below the lowest if there are none; first those of the whole fibre.
    """
    nfibre, nwave = y0.shape
    on_ccd = np.empty(y0.shape, dtype=np.bool_)
    stretches = np.empty((nfibre, 1 + -(-nwave // STRETCH), 4), dtype=np.int64)
    for i in range(nfibre):
        whole = stretches[i, 0]
        whole[0], whole[1], whole[2], whole[3] = shape[0], -stamp[0], shape[1], -stamp[1]
        for s in range(stretches.shape[1] - 1):
            bins = slice(s * STRETCH, min((s + 1) * STRETCH, nwave))
            y, x, seen = y0[i, bins], x0[i, bins], on_ccd[i, bins]
            bottom, top, left, right = shape[0], -stamp[0], shape[1], -stamp[1]
            for j in range(len(seen)):
                seen[j] = (-stamp[0] < y[j]) & (y[j] < shape[0]) & (-stamp[1] < x[j]) & (x[j] < shape[1])
            for j in range(len(seen)):
                bottom, top = min(bottom, y[j] if seen[j] else shape[0]), max(top, y[j] if seen[j] else -stamp[0])
                left, right = min(left, x[j] if seen[j] else shape[1]), max(right, x[j] if seen[j] else -stamp[1])
            here = stretches[i, 1 + s]
            here[0], here[1], here[2], here[3] = bottom, top, left, right
            whole[0], whole[1] = min(whole[0], bottom), max(whole[1], top)
            whole[2], whole[3] = min(whole[2], left), max(whole[3], right)
    return on_ccd, stretches


@njit()
def _meet(one, other, stamp):
    """Whether a stretch of one fibre and one of another are closer than a spot, in rows and in columns."""
    ny, nx = stamp
    for n in range(1, len(one)):
        bottom, top, left, right = one[n, 0] - ny, one[n, 1] + ny, one[n, 2] - nx, one[n, 3] + nx
        for s in range(len(other)):
            close = other[s, 0] < top and other[s, 1] > bottom and other[s, 2] < right and other[s, 3] > left
            if close and s > 0:
                return True
            if not close and s == 0:
                break
    return False


@njit()
def _at_distance(y0, x0, on_ccd, stamp, pair, distance):
    """Whether spots of one fibre overlap those of another some bins away, and whether they may even farther away.

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


@njit(cache=True)
def corners(corner, apart, centre, offset):
    """First pixel of spots along an axis, floor(centre - offset), and its distance from the centre.

    corner: (nfibre, nwave) int64; apart, centre: same shape, float64, and may be one array
    """
    for i in range(len(centre)):
        to, distance, place = corner[i], apart[i], centre[i]
        for j in range(len(place)):
            to[j] = math.floor(place[j] - offset)
        for j in range(len(place)):
            distance[j] = to[j] - place[j]


@njit(cache=True)
def frames(y0, x0, rows, columns, stamp):
    """The common frames of pixels of blocks of LANE bins.

    y0, x0: (nfibre, n) int64, first pixel of the stamps, n a multiple of LANE; stamp: (ny, nx)
    rows, columns: (lowest, highest) first pixel; a stamp that begins elsewhere is moved there
    Returns (nfibre, 2, n) float64, the stamps' first pixel (y, x) in their frame, and (4, nfibre, n / LANE) int64, the
    frames' first row and column from the lowest on, height and width.
    """
    nfibre, n = y0.shape
    offsets, corners = np.empty((nfibre, 2, n)), np.empty((4, nfibre, n // LANE), dtype=np.int64)
    for axis in range(2):
        pixels, (lowest, highest) = (y0, x0)[axis], (rows, columns)[axis]
        for i in range(nfibre):
            for b in range(n // LANE):
                first, last = highest, lowest
                for j in range(b * LANE, b * LANE + LANE):
                    place = min(max(pixels[i, j], lowest), highest)
                    first, last = min(first, place), max(last, place)
                    offsets[i, axis, j] = place
                for j in range(b * LANE, b * LANE + LANE):
                    offsets[i, axis, j] -= first
                corners[axis, i, b], corners[2 + axis, i, b] = first - lowest, last - first + stamp[axis]
    return offsets, corners


@njit(cache=True)
def in_order(corners):
    """The numbers of blocks in order of their first rows, then of their numbers; the first row of each in memory in
    that order, (nfibre, nblock); and the number of all rows. corners: of `frames`."""
    tops, heights = corners[0].ravel(), corners[2].ravel()
    count = tops.max() + 2 if len(tops) else 1
    places = np.zeros(count, dtype=np.int64)
    for top in tops:
        places[top + 1] += 1
    for row in range(1, count):
        places[row] += places[row - 1]
    order, begins, rows = np.empty(len(tops), dtype=np.int64), np.empty(len(tops), dtype=np.int64), 0
    for n in range(len(tops)):
        order[places[tops[n]]] = n
        places[tops[n]] += 1
    for block in order:
        begins[block] = rows
        rows += heights[block]
    return order, begins.reshape(corners.shape[1:]), rows


@njit(cache=True)
def whiten_pixels(root, light, ivar, pix, inside, margin):
    """root = sqrt(ivar) and light = sqrt(ivar) pix of a part of an image, 0 where ivar is 0 and in a margin around it.

    root, light: rows of whole vectors of eight, on cache lines; ivar, pix: the whole image
    inside: (first, last, start, stop), rows first .. last - 1 and columns start .. stop - 1 of it
    margin: (rows, columns) before them; the rest of root and light after them is 0 too
    The results are larger than the caches, so they are written straight to memory.
    Returns, for that part of the image, the largest ivar, the largest ivar pix^2, and 1 if a number is NaN or infinite
    or an ivar is negative, else 0; pixels of ivar 0 do not count.
    """
    first, last, start, stop = inside
    top, left = margin
    width = root.shape[1]
    root[:top] = light[:top] = 0.0
    root[top + last - first:] = light[top + last - first:] = 0.0
    row = np.zeros((2, width))
    weights, values = row[0, left:], row[1, left:]
    to_root, to_light = address(root, top * width), address(light, top * width)
    zero = most = brightest = none = vset8(0.0)
    line = 64 // ivar.itemsize
    for y in range(first, last):
        for x in range(start, stop + line, line):       # rows are too short for the hardware's own prefetching
            prefetch(address(ivar, (y + AHEAD) * ivar.shape[1] + x))
            prefetch(address(pix, (y + AHEAD) * ivar.shape[1] + x))
        weight, value = ivar[y, start:stop], pix[y, start:stop]
        for x in range(stop - start):
            weights[x] = weight[x]
            values[x] = value[x] if weight[x] > 0 else 0.0
        for x in range(0, width, EIGHT):
            w, p = vread8(address(row, x)), vread8(address(row, width + x))
            r, bright = vroot(w), vmul(vmul(w, p), p)
            vwrite_past(to_root + 8 * x, r)
            vwrite_past(to_light + 8 * x, vmul(r, p))
            most, brightest = vmax(w, most), vmax(bright, brightest)
            none = vfma(bright, zero, vfma(r, zero, none))      # also NaN if w is negative: it has no root
        to_root += 8 * width
        to_light += 8 * width
    seen = np.empty((2, EIGHT))
    for n, vector in enumerate((most, brightest)):
        vwrite(address(seen, n * EIGHT), vector)
    return seen[0].max(), seen[1].max(), 1.0 if vsum(vfold(none)) != 0.0 else 0.0
