"""CPU kernels: the normal equations, row of pixels by row of pixels.

An entry of icov is the sum over the pixels that two spots share. Spots start at
multiples of four columns, so that a row of the overlap is a few whole vectors.
"""
import numpy as np
from numba import njit

from gpu_extract.backend import cpu_spots
from gpu_extract.backend.simd import address, integer, prefetch, vadd, vfma, vmul, vread, vset, vsum, vsums, vwrite

BATCH = 8      # spots made at a time: a call has its price
AHEAD = 3      # rows: the spots' rows are too far apart for the processor to guess which it will need


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
    spots: (address of the fibre's stamps, low, high, mask): spot b is stamp b & mask; position: addresses of the rows
        and columns of the fibre's spots
    root: address of the row of sqrt(ivar); shape: (ny, width, frame)
    """
    stamps, low, high, mask = spots
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
            continue
        y = row - integer(position[0] + 8 * b)
        if y < 0 or y >= ny:
            continue
        column = integer(position[1] + 8 * b)
        source = stamps + 8 * ((b & mask) * ny + y) * width
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
            # the group reaches beyond the band, with zeros: move the values that count to the band's end; or all of it
            # lies there (spots beside the CCD share rows with those on it, but nothing else)
            if at <= -4 or at > 2 * hw:
                continue
            vwrite(spill + 32, four)
            shift = -at if at < 0 else 2 * hw - 3 - at
            at += shift
            four = vread(spill + 8 * (4 + shift))
        vwrite(start + 8 * at, vadd(vread(start + 8 * at), four))


@njit(nogil=True, cache=True)
def normal_tile(sums, stamps, recipe, position, cut, tile):  # type: ignore[no-untyped-def]
    """Fill bins first .. last - 1 of the normal equations of a bundle.

    sums: (icov (nfibre, ndf + 1, nwave, 2 hw + 1), rhs (nfibre, nwave), weight (nfibre, nwave)), zero on entry
    stamps: (nfibre, nspot, ny, width) the spots of bins start .. start + nspot - 1, which must reach hw bins
        beyond both ends of the tile where such bins exist; or (nfibre, 0, ny, width): they are made as they are
        needed, by `recipe`, and live in the processor's cache meanwhile; rows must then ascend along wavelength
    recipe: (numbers, cores, shape, single, offset): see cpu_spots.make_spots; a float32 copy of every spot goes to
        single (nfibre, n, ny, width), from bin `offset` on, unless n = 0
    position: (2, nfibre, nspot) row and column of the spots on the cut-out, entirely inside it
    cut: (sqrt(ivar), sqrt(ivar) pix), each (rows, columns), with a margin of ny rows of zeros
    tile: (first, last, start)

    The cut-out is walked row by row: the few spots that a row of pixels sees are whitened once, and every pair of
    them, of one fibre and of neighbouring fibres, adds its product. An entry is summed in the order of rows and
    columns whatever the tile (the zeros around a spot add nothing).
    """
    nfibre, ready, ny, width = stamps.shape
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
    made = np.full(nfibre, ready)
    if ready == 0:
        slots = 1
        while slots < most + BATCH:
            slots *= 2
        ring = np.zeros((nfibre, slots, ny, width))
        space = np.zeros(cpu_spots.space_of(cpu_spots.terms_of(recipe[1]), (ny, width)))
        space[:max(ny + 3, width) + 8] = np.arange(max(ny + 3, width) + 8)
        _walk(sums, (ring, slots - 1, made, space), recipe, position, cut, tile, (low, high, top, white, np.zeros(12)))
    else:
        _walk(sums, (stamps, -1, made, np.zeros(1)), recipe, position, cut, tile, (low, high, top, white, np.zeros(12)))
    icov = sums[0]
    hw = icov.shape[3] // 2
    for i in range(nfibre):
        for j in range(first, last):
            for k in range(1, min(hw, last - 1 - j) + 1):
                icov[i, 0, j + k, hw - k] = icov[i, 0, j, hw + k]


@njit(nogil=True)
def _make_until(end, i, made, spots, recipe):  # type: ignore[no-untyped-def]
    """Make the spots of fibre i up to bin `end`; spots: (stamps, mask, space)."""
    stamps, mask, space = spots
    numbers, cores, shape, single, offset = recipe
    nspot, size = numbers.shape[1], shape[0] * shape[1]
    for b in range(made[i], end):
        copy = address(single, (i * single.shape[1] + offset + b) * size) if single.shape[1] > 0 else 0
        cpu_spots.make_spot(address(stamps, (i * stamps.shape[1] + (b & mask)) * size), copy,
                            address(numbers, (i * nspot + b) * cpu_spots.NUMBERS),
                            (cpu_spots.core_at(cores[0], i, b), cpu_spots.core_at(cores[1], i, b)),
                            address(space, 0), shape)
    made[i] = max(made[i], end)


@njit(nogil=True)
def _walk(sums, spots, recipe, position, cut, tile, walk):  # type: ignore[no-untyped-def]
    """normal_tile, once it is known which spots a row sees.

    spots: (stamps (nfibre, slots, ny, width), mask, made (nfibre,), space): spot b is stamp b & mask, those of fibre i
        before made[i] are there
    walk: (low, high, top, white, spill): spots low[i, y] .. high[i, y] - 1 of fibre i touch row top + y of the
        cut-out; white, spill: scratch
    """
    icov, rhs, weight = sums
    stamps, mask, made, space = spots
    low, high, top, white, spill = walk
    nfibre, slots, ny, width = stamps.shape
    nspot = position.shape[2]
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
            if made[i] < hi:
                _make_until(min(hi + BATCH - 1, nspot), i, made, (stamps, mask, space), recipe)
            rows = whites + i * most * pitch
            base[i] = _whiten(rows, row, (address(stamps, i * slots * ny * width), lo, hi, mask),
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
    for i in range(nfibre):
        if made[i] < nspot:
            _make_until(nspot, i, made, (stamps, mask, space), recipe)
