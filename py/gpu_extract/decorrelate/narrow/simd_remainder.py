"""CPU kernel: what S has beyond its band, added to a fibre's spectra exactly to first order.

Let S = B + E, B the band and its windows, E the rest. Q(S) = sum_k c_k (I - t_k (S + t_k)^-1), so to first order in E

    Q(S) - Q(B) = sum_k c_k t_k (B + t_k)^-1 E (B + t_k)^-1.

E is known by what it does to a vector: outside of windows it is - sum_j (U_j less its band), U_j = A_ij M_j^-1 A_ji
what eliminating fibre j takes (M_j: A_jj less what the fibre beyond it takes from it); in windows it is what S has
there outside of the window and of the band. A vector has eight lanes: eight poles for one of the right sides 1 and x,
or four for both.

All of it is local: only stretches around bins are looked at where what the band does to the flux is more than a quicker
correction (simd_correct) can do. A row of the factor of B + t holds 1 / D, l_1, l_2 .. up to the end of the band or of
the window. L D L^T keeps that profile.
"""
# mypy: disallow-untyped-defs=False
import numpy as np

from gpu_extract.decorrelate.narrow.simd_eliminate import factor, factor_row
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import (address, number, vadd, vdiv, vfma, vhalf, vjoin, vmul, vread, vread8, vread16,
                                      vset, vset8, vset16, vsub, vsum, vtake, vtwice, vupper, vwrite, write)

LANES = 8
VECTOR = 8 * LANES      # bytes of one
POLES = LANES // 2      # that are asked for at a time
RING = 64               # rows of D l that are made before those still asked for are moved
FAR = 3                 # reaches from a window from which on a stretch is one of its own


@njit()
def _row(here, length, j, band, windows):
    """Row j of B in all lanes; band: address of its rows, and elements of one."""
    at, columns = band
    given = at + 8 * j * columns
    for a in range(min(length, columns)):
        vwrite(here + VECTOR * a, vset8(number(given + 8 * a)))
    for a in range(columns, length):
        vwrite(here + VECTOR * a, vset8(0.0))
    for n in range(len(windows)):
        first, last, start, size, exact = windows[n, 0], windows[n, 1], windows[n, 2], windows[n, 3], windows[n, 4]
        for k in range(j if first <= j else last, last):
            vwrite(here + VECTOR * (k - j), vset8(number(exact + 8 * ((j - start) * size + k - start))))


@njit()
def _factor(low, starts, matrix, v, sets):
    """L D L^T = B + t on a stretch, and right sides v become L^-1 v; matrix: (band, windows, first bin, t).

    v, sets: the first right side, bytes to the next, and how many there are
    """
    (band, windows, begin, shift), count, made = matrix, len(starts) - 1, 0
    for j in range(count):
        here = low + VECTOR * starts[j]
        reach = min(starts[j + 1] - starts[j] - 1, count - 1 - j)
        while made <= j + reach:
            _row(low + VECTOR * starts[made], starts[made + 1] - starts[made], begin + made, band, windows)
            made += 1
        inverse = vdiv(vset8(1.0), vadd(vread8(here), shift))
        vwrite(here, inverse)
        for m in range(1, reach + 1):
            weight = vmul(vread8(here + VECTOR * m), inverse)
            there = low + VECTOR * (starts[j + m] - m)
            for a in range(m, reach + 1):
                vwrite(there + VECTOR * a, vtake(weight, vread8(here + VECTOR * a), vread8(there + VECTOR * a)))
            vwrite(here + VECTOR * m, weight)
            for n in range(sets[1]):
                place = v + n * sets[0] + VECTOR * j
                vwrite(place + VECTOR * m, vtake(weight, vread8(place), vread8(place + VECTOR * m)))


@njit()
def _forward(low, starts, v):
    """v becomes L^-1 v."""
    count = len(starts) - 1
    for j in range(count):
        here, place, value = low + VECTOR * starts[j], v + VECTOR * j, vread8(v + VECTOR * j)
        for m in range(1, min(starts[j + 1] - starts[j] - 1, count - 1 - j) + 1):
            there = place + VECTOR * m
            vwrite(there, vtake(vread8(here + VECTOR * m), value, vread8(there)))


@njit()
def _forward_even(low, columns, count, v):
    """The same where all rows have `columns` elements, with as many rows of zeros before the first and before v."""
    line, back = VECTOR * columns, VECTOR * (1 - columns)
    for j in range(count):
        vwrite(v + VECTOR * j, _without_earlier(low + line * j, back, columns, v + VECTOR * j))


@njit()
def _without_earlier(here, back, columns, place):
    """A row of v less what its earlier rows take; here: of the factor, back: from l_k of row j - k to the next one."""
    value = vread8(place)
    for k in range(columns - 1, 0, -1):
        value = vtake(vread8(here + back * k), vread8(place - VECTOR * k), value)
    return value


@njit()
def _factor_even(low, ring, matrix, count, v, sets):
    """_factor where all rows have `columns` elements, to the same bits: four columns of two rows are summed at a time.

    ring: columns + RING rows, for D l; before low and each v are as many rows of zeros as there are columns
    matrix: (band, first bin of the stretch, t); v, sets: as in `_factor`
    """
    (at, columns), begin, shift = matrix
    line, back = VECTOR * columns, VECTOR * (1 - columns)
    for n in range(0, columns * line, VECTOR):
        vwrite(ring + n, vset8(0.0))
    for first in range(0, count, RING):
        for j in range(first, min(first + RING, count), 2):
            here, given = low + line * j, at + 8 * (begin + j) * columns
            follows = j + 1 < count
            _two_rows((here, ring + line * (columns + j - first), given, given + 8 * columns if follows else given),
                      columns, shift)
            for n in range(sets[1]):
                place = v + n * sets[0] + VECTOR * j
                vwrite(place, _without_earlier(here, back, columns, place))
                if follows:
                    vwrite(place + VECTOR, _without_earlier(here + line, back, columns, place + VECTOR))
        for n in range(0, columns * line, VECTOR):
            vwrite(ring + n, vread8(ring + RING * line + n))


@njit()
def _two_rows(places, columns, shift):
    """Rows j and j + 1 of L D L^T; places: of row j of the factor and of D l, of both rows of the matrix.

    A vector has column m of both, counted from the diagonal of row j: of row j + 1 it is element m - 1.
    """
    (here, made, given, following), line, back = places, VECTOR * columns, VECTOR * (1 - columns)
    inverse = other = across = vset8(1.0)
    for m in range(0, columns + 1, 4):
        # from the farthest row that reaches them, to the last one before both
        t0, t1 = _given(given, following, m), _given(given, following, m + 1)
        t2, t3 = _given(given, following, m + 2), _given(given, following, m + 3)
        row = made + VECTOR * m
        for k in range(columns - 1 - m, 0, -1):
            near, weight, left = row + back * k, vread16(here + back * k), columns - 1 - m - k
            t0 = vtake(weight, vtwice(vread8(near)), t0)
            if left > 0:
                t1 = vtake(weight, vtwice(vread8(near + VECTOR)), t1)
            if left > 1:
                t2 = vtake(weight, vtwice(vread8(near + 2 * VECTOR)), t2)
            if left > 2:
                t3 = vtake(weight, vtwice(vread8(near + 3 * VECTOR)), t3)
        if m == 0:
            inverse = vdiv(inverse, vadd(vhalf(t0), shift))
            across = vmul(vhalf(t1), inverse)
            other = vdiv(other, vadd(vtake(across, vhalf(t1), vupper(t1)), shift))
            vwrite(here, inverse)
            vwrite(here + line, other)
        else:
            _finish(here, made, (m, columns), t0, (inverse, across, other))
        _finish(here, made, (m + 1, columns), t1, (inverse, across, other))
        _finish(here, made, (m + 2, columns), t2, (inverse, across, other))
        _finish(here, made, (m + 3, columns), t3, (inverse, across, other))


@njit()
def _given(given, following, m):
    """Column m of two rows of the matrix."""
    return vjoin(vset16(number(following + 8 * (m - 1))), vset8(number(given + 8 * m)))


@njit()
def _finish(here, made, place, value, known):
    """Column m of both rows of the factor, and of D l; known: 1 / D of the first, its l_1, 1 / D of the second."""
    (m, columns), (inverse, across, other), one = place, known, vhalf(value)
    if m < columns:
        vwrite(made + VECTOR * m, one)
        vwrite(here + VECTOR * m, vmul(one, inverse))
        another = vtake(across, one, vupper(value))
    else:
        another = vupper(value)
    if 1 < m <= columns:
        vwrite(made + VECTOR * (columns + m - 1), another)
        vwrite(here + VECTOR * (columns + m - 1), vmul(another, other))


@njit()
def _backward(low, starts, v):
    """v becomes (D L^T)^-1 v."""
    count, last = len(starts) - 1, vset8(0.0)       # the row before, which is not yet in memory
    for j in range(count - 1, -1, -1):
        here, place = low + VECTOR * starts[j], v + VECTOR * j
        value = vmul(vread8(place), vread8(here))
        reach = min(starts[j + 1] - starts[j] - 1, count - 1 - j)
        for m in range(reach, 1, -1):
            value = vtake(vread8(here + VECTOR * m), vread8(place + VECTOR * m), value)
        if reach > 0:
            value = vtake(vread8(here + VECTOR), last, value)
        vwrite(place, value)
        last = value


@njit()
def _factors(neighbours, begin, count, width):
    """L D L^T of the M_j on a stretch, each as (address of 1 / D, bytes on, bytes left, half-band); and memory of them.

    neighbours: see `remainder`; width: icov's, of all diagonals
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
    """v becomes M^-1 v; place: of its factor, see `_factors`."""
    at, row, left, half, last = place[0], place[1], place[2], place[3], vset8(0.0)
    for j in range(count):
        here, value = v + VECTOR * j, vread8(v + VECTOR * j)
        for k in range(min(half, j), 1, -1):
            value = vtake(vset8(number(at - k * left)), vread8(here - VECTOR * k), value)
        if half > 0 and j > 0:
            value = vtake(vset8(number(at - left)), last, value)
        vwrite(here, value)
        last = value
        at += row
    for j in range(count - 1, -1, -1):
        at -= row
        here = v + VECTOR * j
        value = vmul(vset8(number(at)), vread8(here))
        for k in range(min(half, count - 1 - j), 1, -1):
            value = vtake(vset8(number(at + k * (row - left))), vread8(here + VECTOR * k), value)
        if half > 0 and j < count - 1:
            value = vtake(vset8(number(at + row - left)), last, value)
        vwrite(here, value)
        last = value


@njit()
def _coupled(block, hw, turned, v, p, count):
    """Rows p and p + 1 of a block of icov, [q, hw + k] = A[q, q + k], or of its transpose, times v.

    block: address of the stretch's first row; v: between hw + 1 rows of zeros, each of its rows is read once for both
    """
    width, one, other = 2 * hw + 1, vset8(0.0), vset8(0.0)
    if turned:
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

    v lies between `columns` rows of zeros; rows of the band before the stretch are not read.
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
def _taken(neighbours, begin, count, columns):
    """The bands of all U_j on a stretch, added up: rows of the upper triangle."""
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
def _beyond(w, v, g, bins, taken, neighbours, lows, hw):
    """w = sum_j (what of U_j is in the band - U_j) v on bins (first, count), two at least.

    v and g: between rows of zeros; taken: address of `_taken`, and elements of its rows; lows: places of `_factors`
    """
    begin, count = bins
    for p in range(0, count, 2):
        first = min(p, count - 2)       # of an odd number of rows the last but one is made twice
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
def _of_windows(w, v, half, windows, begin, count):
    """w = E v in windows, those that lie in the stretch."""
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


@njit()
def _starts(starts, begin, columns, windows):
    """Where the factor's rows of a stretch begin, in vectors."""
    starts[0] = 0
    for j in range(begin, begin + len(starts) - 1):
        length = columns
        for n in range(len(windows)):
            if windows[n, 0] <= j < windows[n, 1]:
                length = max(length, windows[n, 1] - j)
        starts[j - begin + 1] = starts[j - begin] + length


@njit()
def _add(total, band, sides, begin, end, poles, around, work):
    """total = L 1 and L x on bins begin .. end - 1 of one fibre.

    band: address of its rows, and elements of one; poles: shifts and weights of a spectrum in [1 / ratio, 1], and by
    what both are multiplied; around: (neighbours, windows, hw), the fibre's own; others as in `remainder`
    """
    (shifts, weights, of_shifts, of_weights), (neighbours, windows, hw) = poles, around
    columns, count = band[1], end - begin
    margin = (max(hw, columns) + 1) * LANES
    room, starts, lanes = 2 * margin + count * LANES, np.empty(count + 1, dtype=np.int64), np.empty(LANES)
    v, w, g = address(work, margin), address(work, 2 * room + margin), address(work, 4 * room + margin)
    pad = 5 * room + LANES * columns * (columns + RING)
    ring, low = address(work, 5 * room), address(work, pad + LANES * columns**2)
    for n in range(6):       # what is between is written before it is read
        work[max(n * room - margin, 0):n * room + margin] = 0.0
    work[pad:pad + LANES * columns**2] = 0.0
    _starts(starts, begin, columns, windows)
    even = columns > 3 and starts[count] == count * columns
    lows, kept = _factors(neighbours, begin, count, 2 * hw + 1)
    taken = _taken(neighbours, begin, count, columns)
    m = 0
    while m < len(shifts):
        both = min(len(shifts) - m, 2)      # eight poles for one right side after the other, or four for both
        sets = 8 * room, both
        for n in range(LANES):
            lanes[n] = of_shifts * shifts[m + n // POLES * (both - 1), n % POLES]
        for j in range(count):
            for n in range(2):
                for k in range(both):
                    vwrite(_part(v, sets, n, k) + VECTOR * j, vset(sides[begin + j, n]))
        if even:
            _factor_even(low, ring, (band, begin, vread8(address(lanes, 0))), count, v, sets)
        else:
            _factor(low, starts, (band, windows, begin, vread8(address(lanes, 0))), v, sets)
        for n in range(both):
            here, there = v + n * sets[0], w + n * sets[0]
            _backward(low, starts, here)
            _beyond(there, here, g, (begin, count), (address(taken, 0), columns), neighbours, lows, hw)
            _of_windows(there, here, columns - 1, windows, begin, count)
            if even:
                _forward_even(low, columns, count, there)
            else:
                _forward(low, starts, there)
            _backward(low, starts, there)
        for k in range(both):
            weight = vmul(vset(of_weights), vread(address(weights, (m + k) * POLES)))
            for n in range(2):
                place = _part(w, sets, n, k)
                for j in range(count):
                    total[n, j] += vsum(vmul(weight, vread(place + VECTOR * j)))
        m += both
    return len(kept) + len(taken)        # numba gives memory back after its last use


@njit()
def _part(v, sets, n, k):
    """Where a right side is for four poles, the k-th four of them; sets: see `_factor_even`."""
    return v + (n * sets[0] + k * VECTOR // 2 if sets[1] == 2 else n * VECTOR // 2)


@njit()
def _stretch(shifts, nwave, least, j, reach):
    """The last of the bins from j on that are above `least` without a gap of more than two reaches."""
    last, k = j, j + 1
    while k < min(nwave, last + 2 * reach + 1):
        if number(shifts + 8 * k) > least:
            last = k
        k += 1
    return last


@njit()
def _cut(last, j, reach, windows):
    """The last bin of a stretch from j on, which is cut a reach beside a window that it would go far beyond.

    Where there is no window, all rows of a factor have the same length, and it is made in half of the time.
    """
    for n in range(len(windows)):
        first, end = windows[n, 0] - reach, windows[n, 1] + reach
        if j < first - FAR * reach:
            last = min(last, first - 1)
        elif j <= end < last - FAR * reach:
            last = end
    return last


@njit()
def _one(flux, plain, share, spectrum, sides, places, poles, around, work, limits):
    """Flux and share of one fibre; places: addresses of its band and of its shifts, elements of a row of the band;
    poles: for stretches with windows, and for those without; limits: (first, least, reach), see `remainder`."""
    (band, shifts, columns), (first, least, reach), windows = places, limits, around[1]
    nwave, j = len(sides), 0
    while j < nwave:
        if not number(shifts + 8 * j) > least:
            j += 1
            continue
        last = _cut(_stretch(shifts, nwave, least, j, reach), j, reach, windows)
        begin, end, own = max(j - reach, 0), min(last + reach + 1, nwave), poles[1]
        for n in range(len(windows)):
            if windows[n, 0] < end and windows[n, 1] > begin:
                begin, end, own = min(begin, windows[n, 0]), max(end, windows[n, 1]), poles[0]
        total = np.zeros((2, end - begin))
        _add(total, (band, columns), sides, begin, end, own, around, work)
        for t in range(max(j - reach // 2 - first, 0), min(last + reach // 2 + 1 - first, len(flux))):
            k = first + t
            if begin <= k < end and spectrum[k, 0] != 0.0:
                flux[t] = plain[t] + (total[1, k - begin] - plain[t] * total[0, k - begin]) / spectrum[k, 0]
                share[t] = total[0, k - begin] / spectrum[k, 0]
        j = last + 1


@njit()
def _rescale(ivar, resolution, share):
    """ivar and R of a fibre where s grows by these shares of itself."""
    ndiag, count = len(resolution) // 2, len(share)
    for t in range(count):
        share[t] += 1.0
        ivar[t] *= share[t] * share[t]
    for a in range(min(ndiag, count - 1) + 1):
        above, below = resolution[ndiag - a], resolution[ndiag + a]
        for t in range(count - a):
            above[t + a] /= share[t]
        for t in range(count - a if a > 0 else 0):
            below[t] /= share[t + a]


@njit(cache=True, loops=False)
def remainder(result, plain, shares, spectra, sides, fibres, scales, poles, around, work, first):
    """flux = plain and what E adds to it, around the bins where that counts, and, where all bins do, ivar and R with
    what E adds to s; of some fibres, in turn.

    result: (flux, ivar, resolution), (n, bins) and (n, 2 ndiag + 1, bins), bins `first` and following: the flux has the
        quick correction, which stays elsewhere; plain: (n, bins), flux without any
    shares: (m,), filled: the largest share of s that E adds to that of one of a fibre's bins
    spectra: (n, nwave, some), the first of which is s = Q 1; sides: (n, nwave, SIDES), 1 and x
    fibres: (m, 13) int64: a fibre's number in all of these; addresses of its band B, (nwave, half + 1), and of its
        shifts, (nwave,), see simd_foresee; half + 1; reach; and from where to where its poles, those for stretches
        without windows, its neighbours and windows are. Half a reach around its bins that count is made exact, on
        stretches a reach longer on both sides
    scales: (m, 3): above which of its shifts bins count, below 0 where all do, of light or not, and by what its poles'
        t_k and c_k t_k are multiplied
    poles: (shifts, weights), (some, POLES) both: t_k and c_k t_k
    around: (neighbours, windows, hw), int64. neighbours (some, 10): address of icov's block (nwave, 2 hw + 1) of the
        fibre and fibre j; 1 where j is the first of the two, else 0; address of the band of U_j, (nwave, half + 1);
        the factor of M_j, see narrow.coupling.Couplings.factors, or 0, 0, 0 and M_j's half-band where it is yet
        to be made: then address of A_jj's diagonal in icov, how many of its elements count, and address of the band of
        what the fibre beyond j takes from j, as wide as M_j's.
        windows (some, 5): first bin, last + 1, first bin of all of S, number of those, its address
    work: (work_size,), starts on a cache line
    """
    (flux, ivar, resolution), (shifts, weights), (neighbours, windows, hw) = result, poles, around
    share = np.empty(flux.shape[1])
    for m in range(len(fibres)):
        n, own, fewer = fibres[m, 0], slice(fibres[m, 5], fibres[m, 6]), slice(fibres[m, 7], fibres[m, 8])
        near = neighbours[fibres[m, 9]:fibres[m, 10]], windows[fibres[m, 11]:fibres[m, 12]], hw
        share[:] = 0.0
        _one(flux[n], plain[n], share, spectra[n], sides[n], (fibres[m, 1], fibres[m, 2], fibres[m, 3]),
             ((shifts[own], weights[own], scales[m, 1], scales[m, 2]),
              (shifts[fewer], weights[fewer], scales[m, 1], scales[m, 2])), near, work,
             (first, scales[m, 0], fibres[m, 4]))
        shares[m] = max(share.max(), -share.min())
        if scales[m, 0] < 0.0:
            _rescale(ivar[n], resolution[n], share)


def work_size(nwave: int, hw: int, half: int, windows: int) -> int:
    """Elements of the work array of `remainder`; windows: bins of all of one fibre's."""
    columns = half + 1
    return LANES * (5 * (2 * max(hw, columns) + 2 + nwave) + (nwave + 1 + 2 * columns + RING) * columns
                    + windows**2)
