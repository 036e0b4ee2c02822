"""CPU kernels: the normal equations, row of pixels by row of pixels.

An entry of icov is the sum over the pixels that two spots share. Spots start at
multiples of four columns, so that a row of the overlap is a few whole vectors.
"""
import math

import numpy as np
from numba import njit

from gpu_extract.backend.simd import address, integer, prefetch, vadd, vfma, vmul, vread, vset, vsum, vsums, vwrite

AHEAD = 3      # rows: the spots' rows are too far apart for the processor to guess which it will need


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


@njit(nogil=True)
def _rows_of_bins(low, high, rows, ny, first_row):  # type: ignore[no-untyped-def]
    """low, high: (nfibre, n) spots low .. high - 1 are all that touch row first_row + n; rows: (nfibre, nspot)."""
    nfibre, nspot = rows.shape
    n = low.shape[1]
    low[:] = nspot
    high[:] = 0
    for i in range(nfibre):
        for b in range(nspot):
            top = rows[i, b] - first_row
            for y in range(max(top, 0), min(top + ny, n)):
                low[i, y] = min(low[i, y], b)
                high[i, y] = b + 1


@njit(nogil=True)
def _whiten(out, row, spots, position, root, shape):  # type: ignore[no-untyped-def]
    """out[n] = row `row` of spot low + n times sqrt(ivar), in a common frame of columns; returns its first column.

    out: address of (n4, frame) float64, n4 the number of spots rounded up to a multiple of 4; spots that do not touch
        the row become 0
    spots: (address of the fibre's stamps, low, high); position: addresses of the rows and columns of its spots
    root: address of the row of sqrt(ivar); shape: (ny, width, frame)
    """
    stamps, low, high = spots
    ny, width, frame = shape
    base = integer(position[1] + 8 * low)
    for b in range(low + 1, high):
        base = min(base, integer(position[1] + 8 * b))
    zero = vset(0.0)
    for n in range((high - low + 3) // 4 * 4):
        target = out + 8 * n * frame
        for x in range(0, 8 * frame, 32):
            vwrite(target + x, zero)
        b = low + n
        if b >= high:
            for x in range(0, 16 * width, 64):
                prefetch(stamps + 8 * b * ny * width + x)
            continue
        y = row - integer(position[0] + 8 * b)
        if y < 0 or y >= ny:
            continue
        column = integer(position[1] + 8 * b)
        source = stamps + 8 * (b * ny + y) * width
        target += 8 * (column - base)
        for x in range(0, 8 * width, 32):
            prefetch(source + AHEAD * 8 * width + x)
            vwrite(target + x, vmul(vread(source + x), vread(root + 8 * column + x)))
    return base


def _make_products(vectors: int):  # type: ignore[no-untyped-def]
    """Products of one row with four rows, `vectors` vectors long; a literal length unrolls the loop."""
    @njit(nogil=True)
    def products(own, b0, b1, b2, b3):  # type: ignore[no-untyped-def]
        s0 = vset(0.0)
        s1 = vset(0.0)
        s2 = vset(0.0)
        s3 = vset(0.0)
        for x in range(0, 32 * vectors, 32):
            u = vread(own + x)
            s0 = vfma(u, vread(b0 + x), s0)
            s1 = vfma(u, vread(b1 + x), s1)
            s2 = vfma(u, vread(b2 + x), s2)
            s3 = vfma(u, vread(b3 + x), s3)
        return vsums(s0, s1, s2, s3)
    return products


_one, _two, _three, _four, _five, _six = (_make_products(n) for n in range(1, 7))


@njit(nogil=True)
def _products(own, b0, pitch, bytes_):  # type: ignore[no-untyped-def]
    """Products of a row with four rows that lie `pitch` bytes apart, as one vector; `bytes_` of a row count."""
    b1 = b0 + pitch
    b2 = b1 + pitch
    b3 = b2 + pitch
    if bytes_ == 32:
        return _one(own, b0, b1, b2, b3)
    if bytes_ == 64:
        return _two(own, b0, b1, b2, b3)
    if bytes_ == 96:
        return _three(own, b0, b1, b2, b3)
    if bytes_ == 128:
        return _four(own, b0, b1, b2, b3)
    if bytes_ == 160:
        return _five(own, b0, b1, b2, b3)
    if bytes_ == 192:
        return _six(own, b0, b1, b2, b3)
    s0 = vset(0.0)
    s1 = vset(0.0)
    s2 = vset(0.0)
    s3 = vset(0.0)
    for x in range(0, bytes_, 32):
        u = vread(own + x)
        s0 = vfma(u, vread(b0 + x), s0)
        s1 = vfma(u, vread(b1 + x), s1)
        s2 = vfma(u, vread(b2 + x), s2)
        s3 = vfma(u, vread(b3 + x), s3)
    return vsums(s0, s1, s2, s3)


@njit(nogil=True)
def _add_couplings(band, first, others, columns, bytes_, spill):  # type: ignore[no-untyped-def]
    """band[hw + k] += (whitened row of a spot) . (whitened row of the spot k bins on), for n spots from k = first on.

    band: (address of band[0], hw); spill: address of 12 float64, zeros but for the middle four;
    others: (address of their first rows, n, bytes from row to row)
    columns: (address of the spot's row, bytes to add to `others`); bytes_: of a row that count
    """
    place, n, pitch = others
    own, skip = columns
    start, hw = band
    for g in range(0, n, 4):
        four = _products(own, place + g * pitch + skip, pitch, bytes_)
        at = first + g + hw
        if at < 0 or at + 4 > 2 * hw + 1:
            # the group reaches beyond the band, with zeros: move the values that count to the band's end
            vwrite(spill + 32, four)
            shift = -at if at < 0 else 2 * hw - 3 - at
            at += shift
            four = vread(spill + 8 * (4 + shift))
        vwrite(start + 8 * at, vadd(vread(start + 8 * at), four))


@njit(nogil=True, cache=True)
def normal_tile(icov, rhs, weight, stamps, position, cut, tile):  # type: ignore[no-untyped-def]
    """Fill bins first .. last - 1 of the normal equations of a bundle.

    icov: (nfibre, ndf + 1, nwave, 2 hw + 1); rhs, weight: (nfibre, nwave); all zero on entry
    stamps: (nfibre, nspot, ny, width) the spots of bins start .. start + nspot - 1, which must reach hw bins
        beyond both ends of the tile where such bins exist
    position: (2, nfibre, nspot) row and column of the spots on the cut-out, entirely inside it
    cut: (sqrt(ivar), sqrt(ivar) pix), each (rows, columns), with a margin of ny rows of zeros
    tile: (first, last, start)

    The cut-out is walked row by row: the few spots that a row of pixels sees are whitened once, and every pair of
    them, of one fibre and of neighbouring fibres, adds its product. An entry is summed in the order of rows and
    columns whatever the tile (the zeros around a spot add nothing).
    """
    nfibre, nspot, ny, width = stamps.shape
    first, last, start = tile
    own = position[0, :, first - start:last - start]
    top, bottom = max(own.min(), ny), min(own.max() + ny, len(cut[0]) - ny)
    low, high = np.empty((2, nfibre, max(bottom - top, 0)), dtype=np.int64)
    _rows_of_bins(low, high, position[0], ny, top)
    most, span = 4, 0
    for i in range(nfibre):
        for y in range(low.shape[1]):
            if high[i, y] > low[i, y]:
                most = max(most, (high[i, y] - low[i, y] + 3) // 4 * 4)
                columns = position[1, i, low[i, y]:high[i, y]]
                span = max(span, columns.max() - columns.min())
    white = np.zeros((nfibre, most, width + span))
    _walk(icov, rhs, weight, stamps, position, cut, tile, (low, high, top, white, np.zeros(12)))
    hw = icov.shape[3] // 2
    for i in range(nfibre):
        for j in range(first, last):
            for k in range(1, min(hw, last - 1 - j) + 1):
                icov[i, 0, j + k, hw - k] = icov[i, 0, j, hw + k]


@njit(nogil=True)
def _walk(icov, rhs, weight, stamps, position, cut, tile, walk):  # type: ignore[no-untyped-def]
    """normal_tile, once it is known which spots a row sees.

    walk: (low, high, top, white, spill): spots low[i, y] .. high[i, y] - 1 of fibre i touch row top + y of the
        cut-out; white, spill: scratch
    """
    low, high, top, white, spill = walk
    nfibre, nspot, ny, width = stamps.shape
    _, nd, nwave, nband = icov.shape
    first, last, start = tile
    stride = cut[0].shape[1]
    hw, bands, spilled = nband // 2, address(icov, 0), address(spill, 0)
    most, frame = white.shape[1], white.shape[2]
    pitch = 8 * frame
    base = np.zeros(nfibre, dtype=np.int64)
    whites = address(white, 0)
    at_rows, at_columns = address(position, 0), address(position, nfibre * nspot)
    for y in range(low.shape[1]):
        row = top + y
        root, light = address(cut[0], row * stride), address(cut[1], row * stride)
        for i in range(nfibre - 1, -1, -1):
            lo, hi = low[i, y], high[i, y]
            if hi <= lo:
                continue
            rows = whites + i * most * pitch
            base[i] = _whiten(rows, row, (address(stamps, i * nspot * ny * width), lo, hi),
                              (at_rows + 8 * i * nspot, at_columns + 8 * i * nspot), root, (ny, width, frame))
            for b in range(max(lo, first - start), min(hi, last - start)):
                j = start + b
                column = position[1, i, b]
                u = rows + (b - lo) * pitch + 8 * (column - base[i])
                s0 = vset(0.0)
                s1 = vset(0.0)
                for x in range(0, 8 * width, 32):
                    s0 = vfma(vread(u + x), vread(root + 8 * column + x), s0)
                    s1 = vfma(vread(u + x), vread(light + 8 * column + x), s1)
                weight[i, j] += vsum(s0)
                rhs[i, j] += vsum(s1)
                for d in range(min(nd, nfibre - i)):
                    # of a fibre with itself every other product is the mirror image of one already made
                    skip = (b - lo) // 4 * 4 if d == 0 and lo >= first - start else 0
                    lo2, n = low[i + d, y] + skip, high[i + d, y] - low[i + d, y] - skip
                    left = max(column, base[i + d])
                    right = min(column + width, base[i + d] + frame)
                    if n > 0 and right > left:
                        _add_couplings((bands + 8 * (((i * nd + d) * nwave + j) * nband), hw), lo2 - b,
                                       (whites + ((i + d) * most + skip) * pitch, n, pitch),
                                       (u + 8 * (left - column), 8 * (left - base[i + d])), 8 * (right - left), spilled)
