"""CPU kernels: L D L^T of B + t on a stretch of bins, where B is the band of S and its windows, for eight t at once.

A vector has eight lanes, one for each t. A row of the factor holds 1 / D, l_1, l_2 .. up to the end of the band or of
the window. L D L^T preserves that profile.
"""
# mypy: disallow-untyped-defs=False
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import (number, vadd, vdiv, vhalf, vjoin, vmul, vread8, vread16, vset8, vset16, vtake,
                                      vtwice, vupper, vwrite)

LANES = 8
VECTOR = 8 * LANES      # bytes of a vector
RING = 64               # rows of D l that are made before those still needed are moved


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
def row_starts(starts, begin, columns, windows):
    """The first vectors of the factor's rows of a stretch."""
    starts[0] = 0
    for j in range(begin, begin + len(starts) - 1):
        length = columns
        for n in range(len(windows)):
            if windows[n, 0] <= j < windows[n, 1]:
                length = max(length, windows[n, 1] - j)
        starts[j - begin + 1] = starts[j - begin] + length


@njit()
def factor(low, starts, matrix, v, sets):
    """L D L^T = B + t on a stretch; right-hand sides v become L^-1 v; matrix: (band, windows, first bin, t).

    v, sets: the first right-hand side; (bytes to the next, number of them)
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
def forward(low, starts, v):
    """v becomes L^-1 v."""
    count = len(starts) - 1
    for j in range(count):
        here, place, value = low + VECTOR * starts[j], v + VECTOR * j, vread8(v + VECTOR * j)
        for m in range(1, min(starts[j + 1] - starts[j] - 1, count - 1 - j) + 1):
            there = place + VECTOR * m
            vwrite(there, vtake(vread8(here + VECTOR * m), value, vread8(there)))


@njit()
def factor_even(low, ring, matrix, count, v, sets):
    """`factor` for rows that all have `columns` elements, with the same bits: sums four columns of two rows at a time.

    ring: columns + RING rows, for D l; `columns` rows of zeros precede low and each v
    matrix: (band, first bin of the stretch, t); v, sets: as in `factor`
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

    A vector has column m of both, counted from the diagonal of row j; it is element m - 1 of row j + 1.
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
def forward_even(low, columns, count, v):
    """The same for rows that all have `columns` elements, with as many rows of zeros before the first and before v."""
    line, back = VECTOR * columns, VECTOR * (1 - columns)
    for j in range(count):
        vwrite(v + VECTOR * j, _without_earlier(low + line * j, back, columns, v + VECTOR * j))


@njit()
def _without_earlier(here, back, columns, place):
    """A row of v minus the contributions of earlier rows; here: of the factor, back: from l_k of row j - k to the next.
    """
    value = vread8(place)
    for k in range(columns - 1, 0, -1):
        value = vtake(vread8(here + back * k), vread8(place - VECTOR * k), value)
    return value


@njit()
def backward(low, starts, v):
    """v becomes (D L^T)^-1 v."""
    count, last = len(starts) - 1, vset8(0.0)       # the previous row, which is not yet in memory
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
