"""CPU kernels: products of vectors of eight lanes with E, the remainder of S beyond its band and windows.

Outside of windows E = - sum_j (U_j - its band), where U_j = A_ij M_j^-1 A_ji is the share of fibre j (M_j: A_jj minus
the share of the fibre beyond it). In windows E are the elements of S there outside of the window and of the band.
"""
# mypy: disallow-untyped-defs=False
import numpy as np

from gpu_extract.decorrelate.narrow.simd_eliminate import factor, factor_row
from gpu_extract.decorrelate.narrow.simd_shifted import VECTOR
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import address, number, vadd, vfma, vmul, vread8, vset8, vsub, vtake, vwrite, write


@njit()
def factors(neighbours, begin, count, width):
    """L D L^T of the M_j on a stretch, each as (address of 1 / D, bytes to the next row, bytes to the element on the
    left, half-band); and their memory.

    neighbours: see simd_remainder.remainder; width: icov's, of all diagonals
    """
    columns, places = 0, np.empty((len(neighbours), 4), dtype=np.int64)
    for n in range(len(neighbours)):
        columns = max(columns, factor_row(neighbours[n, 6] + 1) if neighbours[n, 3] == 0 else 0)
    made = np.empty((len(neighbours), count if columns > 0 else 0, columns))
    for n in range(len(neighbours)):
        row = neighbours[n]
        places[n, 0], places[n, 1], places[n, 2], places[n, 3] = row[3] + begin * row[4], row[4], row[5], row[6]
        if row[3] != 0:
            continue
        diagonal, known, taken, pitch, band = row[7], row[8], row[9], row[6] + 1, made[n]
        band[:] = 0.0
        for j in range(count):
            for a in range(min(known, row[6] + 1, count - j)):
                band[j, a] = number(diagonal + 8 * ((begin + j) * width + a))
            for a in range(min(row[6] + 1, count - j)):
                band[j, a] -= number(taken + 8 * ((begin + j) * pitch + a))
        factor(band, row[6] + 1)
        for j in range(count):
            band[j, 0] = 1.0 / band[j, 0]
        # element k of row j - k is L[j, j - k]
        places[n, 0], places[n, 1], places[n, 2] = address(band, 0), 8 * columns, 8 * (columns - 1)
    return places, made


@njit()
def _solve_neighbour(place, v, count):
    """v becomes M^-1 v; place: of its factor, see `factors`."""
    at, row, left, half = place[0], place[1], place[2], place[3]
    end = count - 1
    _sweep((at, row, -left), (v, -VECTOR), (count, half), False)
    _sweep((at + row * end, -row, row - left), (v + VECTOR * end, VECTOR), (count, half), True)


@njit()
def _sweep(factor, place, shape, scaled):
    """Rows of v, in turn, minus the contributions of the `half` rows before each; scaled: times 1 / D before that.

    factor: address of the first row's 1 / D, bytes to the next row's, and from there to the element of the row before,
    of that before it and so on; place: address of the first row of v, and bytes to the row before; shape: (count, half)
    """
    (at, row, step), (here, back), (count, half), n = factor, place, shape, 0
    last = before = vset8(0.0)          # the two previous rows, which are not yet in memory
    while n < count:
        one = vmul(vset8(number(at)), vread8(here)) if scaled else vread8(here)
        if n < half or half < 3 or n + 1 == count:
            for k in range(min(half, n), 1, -1):
                one = vtake(vset8(number(at + k * step)), vread8(here + k * back), one)
            if min(half, n) > 0:
                one = vtake(vset8(number(at + step)), last, one)
            vwrite(here, one)
            at, here, before, last, n = at + row, here - back, last, one, n + 1
            continue
        after, there = at + row, here - back        # two rows, whose sums read the others once
        other = vmul(vset8(number(after)), vread8(there)) if scaled else vread8(there)
        one = vtake(vset8(number(at + half * step)), vread8(here + half * back), one)
        for k in range(half - 1, 2, -1):
            value = vread8(here + k * back)
            one = vtake(vset8(number(at + k * step)), value, one)
            other = vtake(vset8(number(after + (k + 1) * step)), value, other)
        one = vtake(vset8(number(at + step)), last, vtake(vset8(number(at + 2 * step)), before, one))
        other = vtake(vset8(number(after + 2 * step)), last, vtake(vset8(number(after + 3 * step)), before, other))
        other = vtake(vset8(number(after + step)), one, other)
        vwrite(here, one)
        vwrite(there, other)
        at, here, before, last, n = after + row, there - back, one, other, n + 2


@njit(forceinline=True)
def _coupled(block, hw, turned, v, p, count):
    """Rows p and p + 1 of a block of icov, [q, hw + k] = A[q, q + k], or of its transpose, times v.

    block: address of the stretch's first row; v: between hw + 1 rows of zeros; each of its rows is read once for both
    """
    width, one, other = 2 * hw + 1, vset8(0.0), vset8(0.0)
    if turned and hw <= p < count - hw - 1:
        given, near, step = block + 8 * ((p + hw + 1) * width - 1), v + VECTOR * (p + hw + 1), 8 * (width - 1)
        other = vfma(vset8(number(given + 8)), vread8(near), other)
        for k in range(1, width):
            value = vread8(near - VECTOR * k)
            one = vfma(vset8(number(given - step * k)), value, one)
            other = vfma(vset8(number(given - step * k + 8)), value, other)
        one = vfma(vset8(number(given - step * width)), vread8(near - VECTOR * width), one)
    elif turned:
        for q in range(min(p + hw + 1, count - 1), max(p - hw, 0) - 1, -1):
            given, value = block + 8 * (q * width + hw + p - q), vread8(v + VECTOR * q)
            if q <= p + hw:
                one = vfma(vset8(number(given)), value, one)
            if q > p - hw:
                other = vfma(vset8(number(given + 8)), value, other)
    else:
        given, near = block + 8 * p * width, v + VECTOR * (p - hw)
        one = vmul(vset8(number(given)), vread8(near))
        for k in range(1, width):
            value = vread8(near + VECTOR * k)
            one = vfma(vset8(number(given + 8 * k)), value, one)
            other = vfma(vset8(number(given + 8 * (width + k - 1))), value, other)
        other = vfma(vset8(number(given + 8 * (2 * width - 1))), vread8(near + VECTOR * width), other)
    return one, other


@njit()
def _banded(taken, columns, v, p):
    """Rows p and p + 1 of a band, given by rows of its upper triangle, times v, whose rows are read once for both.

    v is between `columns` rows of zeros; rows of the band before the stretch are not read.
    """
    line = 8 * columns
    row, near, value = taken + line * p, v + VECTOR * p, vread8(v + VECTOR * p)
    one, other = vmul(vset8(number(row)), value), vmul(vset8(number(row + 8)), value)
    for a in range(1, columns):
        value = vread8(near + VECTOR * a)
        one, other = (vfma(vset8(number(row + 8 * a)), value, one),
                      vfma(vset8(number(row + line + 8 * (a - 1))), value, other))
    other = vfma(vset8(number(row + line + 8 * (columns - 1))), vread8(near + VECTOR * columns), other)
    for a in range(1, min(columns - 1, p + 1)):
        value, before = vread8(near - VECTOR * a), row - (line - 8) * a
        one, other = vfma(vset8(number(before)), value, one), vfma(vset8(number(before + 8)), value, other)
    a = columns - 1
    if p >= a:
        one = vfma(vset8(number(row - (line - 8) * a)), vread8(near - VECTOR * a), one)
    return one, other


@njit()
def taken_bands(neighbours, begin, count, columns):
    """The sum of the bands of all U_j on a stretch: rows of the upper triangle."""
    total, line = np.empty((count, columns)), 8 * columns
    if len(neighbours) == 0:
        total[:] = 0.0
    for n in range(len(neighbours)):
        given, to, end = neighbours[n, 2] + begin * line, address(total, 0), count * line
        whole = end // VECTOR * VECTOR
        for place in range(0, whole, VECTOR):
            value = vread8(given + place)
            vwrite(to + place, vadd(vread8(to + place), value) if n > 0 else value)
        for place in range(whole, end, 8):
            write(to + place, (number(to + place) if n > 0 else 0.0) + number(given + place))
    return total


@njit()
def beyond_band(w, v, g, bins, taken, neighbours, lows, hw):
    """w = sum_j (band of U_j - U_j) v on bins (first, count), at least two.

    v and g: between rows of zeros; taken: address of `taken_bands`, and elements of its rows; lows: places of `factors`
    """
    begin, count = bins
    for p in range(0, count, 2):
        first = min(p, count - 2)       # if the number of rows is odd, the last but one is made twice
        one, other = _banded(taken[0], taken[1], v, first)
        vwrite(w + VECTOR * first, one)
        vwrite(w + VECTOR * (first + 1), other)
    for n in range(len(neighbours)):
        block, turned = neighbours[n, 0] + 8 * begin * (2 * hw + 1), neighbours[n, 1]
        for p in range(0, count, 2):
            p = min(p, count - 2)
            one, other = _coupled(block, hw, 1 - turned, v, p, count)
            vwrite(g + VECTOR * p, one)
            vwrite(g + VECTOR * (p + 1), other)
        _solve_neighbour(lows[n], g, count)
        for p in range(0, count, 2):
            first = min(p, count - 2)
            one, other = _coupled(block, hw, turned, g, first, count)
            here = w + VECTOR * first
            if first == p:
                vwrite(here, vsub(vread8(here), one))
            vwrite(here + VECTOR, vsub(vread8(here + VECTOR), other))


@njit()
def beyond_windows(w, v, half, windows, begin, count):
    """w = E v in the windows that are in the stretch."""
    for n in range(len(windows)):
        first, last, start, size, exact = windows[n, 0], windows[n, 1], windows[n, 2], windows[n, 3], windows[n, 4]
        if first < begin or last > begin + count:
            continue
        near, end = v - VECTOR * begin, min(start + size, begin + count)
        for j in range(first, last):
            row, total = exact + 8 * ((j - start) * size - start), vset8(0.0)
            for k in range(max(start, begin), min(first, j - half)):
                total = vfma(vset8(number(row + 8 * k)), vread8(near + VECTOR * k), total)
            for k in range(max(last, j + half + 1), end):
                total = vfma(vset8(number(row + 8 * k)), vread8(near + VECTOR * k), total)
            vwrite(w + VECTOR * (j - begin), total)
