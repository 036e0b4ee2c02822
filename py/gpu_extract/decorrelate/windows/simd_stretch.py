"""CPU kernels: a dense block tridiagonal matrix, fibre by fibre, of some hundred bins: its blocks, and the elimination
of one from the next.

    out -= G P^-1 G^T:   P = L L^T,   H = G L^-T,   out -= H H^T

is one Cholesky factorisation that stops after P's columns. BLAS and LAPACK need four calls for it, and do not use that
G couples near bins only, so that half of H is zero and each part costs a third of a product of full blocks. Matrices
are stored column by column, their sizes are whole vectors. All sums are products of tiles of 24 rows and 8 columns,
which stay in registers, from the first to the last column in turn.
"""
# mypy: disallow-untyped-defs=False
import math
from typing import Any

import numpy as np

from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.emit import written_out
from gpu_extract.vectors.simd import address, number, write
from gpu_extract.vectors.transpose import LANES, padded, turn

GROUPS = 3         # vectors of rows in a tile


@njit()
def _block(out, icov, rows, columns):
    """Fill `out` with icov of fibres `rows` (first, last) against `columns` on all bins, fibre by fibre.

    out: (rows step, columns step), column by column in memory; bins from nwave on are empty
    Of diagonal blocks (rows = columns) only the lower triangle is made; empty rows get 1 on the diagonal.
    """
    nd, nwave, width = icov.shape[1:]
    high, wide, hw, size = rows[1] - rows[0], columns[1] - columns[0], width // 2, out.shape[0]
    step, diagonal = size // high, rows[0] == columns[0]
    base, given = address(out, 0), address(icov, 0)
    out.T[:] = 0.0          # in the order of memory
    for n in range(wide):
        for m in range(n if diagonal else 0, high):
            d = columns[0] + n - rows[0] - m
            if abs(d) >= nd:
                continue
            own = (min(rows[0] + m, columns[0] + n) * nd + abs(d)) * nwave
            stride = width - 1 if d >= 0 else 1
            for q in range(nwave):
                low = max(q if diagonal and m == n else 0, q - hw)
                place = base + 8 * ((n * step + q) * size + m * step + low)
                start = (own + low) * width + hw + q - low if d >= 0 else (own + q) * width + hw + low - q
                source = given + 8 * start
                for _ in range(low, min(q + hw + 1, nwave)):
                    write(place, number(source))
                    place += 8
                    source += 8 * stride
    for n in range(len(out) if diagonal else 0):
        if out[n, n] == 0.0:
            out[n, n] = 1.0


def _product(e, target, step, left, left_step, right, right_step, count, high):
    at = {(n, c): (e.builder.gep(target, [e.builder.mul(step, e.index(c))]), n * LANES)
          for c in range(LANES) for n in range(high)}
    sums = e.begun({key: e.load(*place) for key, place in at.items()})
    with e.loop(count) as k:
        rows, columns = e.step(left, k.index, left_step), e.step(right, k.index, right_step)
        given = [e.negative(e.load(rows, n * LANES)) for n in range(high)]
        for c in range(LANES):
            factor = e.spread(columns, c)
            for n in range(high):
                place = sums[n, c]
                e.builder.store(e.fma(given[n], factor, e.builder.load(place)), place)
    for key, value in e.done(sums).items():
        e.store(*at[key], value)


@written_out(LANES, "groups")
def _subtract(e, target, left, right, count, groups):
    """A tile of `groups` vectors of rows and eight columns, target -= sum_k left[:, k] right[:, k]^T, k < count.

    target, left, right: (address, bytes from one column to the next)
    """
    e.call("subtract_tile", [*e.columns(target), *e.columns(left), *e.columns(right), count], _product, groups)


def _quotient(e, target, step, corner, corner_step, inverses):
    done: list[Any] = []
    for c in range(LANES):
        here = e.builder.gep(target, [e.builder.mul(step, e.index(c))])
        total = e.load(here, 0)
        for m, value in enumerate(done):
            low = e.builder.gep(corner, [e.builder.mul(corner_step, e.index(m))])
            total = e.take(value, e.spread(low, c), total)
        done.append(e.multiply(total, e.spread(inverses, c)))
        e.store(here, 0, done[c])


@written_out(LANES)
def _divide(e, target, corner, inverses):
    """Eight rows and columns X of `target` become X L^-T, L is a corner on the diagonal; inverses: of L's diagonal.

    target, corner: as in `_subtract`; inverses: an address
    """
    e.call("divide_tile", [*e.columns(target), *e.columns(corner), e.place(inverses)], _quotient)


@njit()
def _tiles(target, left, right, count, rows):
    """`_subtract` for `rows` vectors of rows, at most GROUPS of them."""
    if rows >= GROUPS:
        _subtract(target, left, right, count, 3)
    elif rows == 2:
        _subtract(target, left, right, count, 2)
    else:
        _subtract(target, left, right, count, 1)


@njit()
def _corner(place, step, inverses):
    """The Cholesky factor of eight rows and columns on the diagonal; returns whether they are definite."""
    for c in range(LANES):
        column = place + c * step
        for m in range(c):
            factor = number(place + m * step + 8 * c)
            for r in range(8 * c, 8 * LANES, 8):
                write(column + r, number(column + r) - number(place + m * step + r) * factor)
        pivot = number(column + 8 * c)
        if not 0.0 < pivot < np.inf:
            return False
        root = math.sqrt(pivot)
        write(inverses + 8 * c, 1.0 / root)
        write(column + 8 * c, root)
        for r in range(8 * c + 8, 8 * LANES, 8):
            write(column + r, number(column + r) / root)
    return True


@njit()
def _panel(pivot, coupling, first, reach, inverses):
    """Columns first .. first + 7 of L and of H; pivot, coupling: (address, bytes of a column, rows)."""
    own, step, size = pivot[0], pivot[1], pivot[2]
    other, height, wide = coupling[0], coupling[1], coupling[2]
    start = own + first * step
    for r in range(first, size, GROUPS * LANES):
        _tiles((start + 8 * r, step), (own + 8 * r, step), (own + 8 * first, step), first, (size - r) // LANES)
    if not _corner(start + 8 * first, step, inverses):
        return False
    for r in range(first + LANES, size, LANES):
        _divide((start + 8 * r, step), (start + 8 * first, step), inverses)
    last = min(wide, (first + LANES + reach + LANES - 1) // LANES * LANES)
    start = other + first * height
    for r in range(0, last, GROUPS * LANES):
        k = max(r - reach, 0) // LANES * LANES
        if k < first:
            _tiles((start + 8 * r, height), (other + k * height + 8 * r, height), (own + k * step + 8 * first, step),
                   first - k, (last - r) // LANES)
    for r in range(0, last, LANES):
        _divide((start + 8 * r, height), (own + first * step + 8 * first, step), inverses)
    return True


@njit()
def eliminate(out, coupling, pivot, reach):
    """out -= G P^-1 G^T; False, with undefined results, if P is not definite.

    All are in Fortran order, m and n are multiples of LANES, and only the lower triangles of out and P are used.
    out: (m, m); coupling: (m, n), G, overwritten, 0 where its column is more than `reach` before its row
    pivot: (n, n), P, overwritten
    """
    (m, n), inverses = coupling.shape, np.empty(LANES)
    own, other = (address(pivot, 0), 8 * n, n), (address(coupling, 0), 8 * m, m)
    for first in range(0, n, LANES):
        if not _panel(own, other, first, reach, address(inverses, 0)):
            return False
    for first in range(0, m, LANES):
        for r in range(first, m, GROUPS * LANES):
            k = max(r - reach, 0) // LANES * LANES
            if k < n:
                _tiles((address(out, 0) + 8 * (first * m + r), 8 * m), (other[0] + 8 * (k * m + r), 8 * m),
                       (other[0] + 8 * (k * m + first), 8 * m), n - k, (m - r) // LANES)
    return True


@njit()
def _join(out, forward, backward, own, size):
    """out = forward + backward - own, both triangles, from the lower triangles of the others.

    out: (n, n), made of blocks of `size` rows and columns; in the others blocks are padded to whole vectors
    """
    more, n = padded(size) - size, len(out)
    for c in range(n):
        column, end = c + c // size * more, min(c // LANES * LANES + LANES, n)
        for m in range(c // size, n // size):
            shift = m * more
            for r in range(max(c, m * size), (m + 1) * size):
                row = r + shift
                out[c, r] = forward[row, column] + backward[row, column] - own[row, column]
        for r in range(c, end):
            out[r, c] = out[c, r]
        if c + 1 == end and end < n:        # the rest of eight rows is transposed to columns
            corner = address(out, (end - LANES) * n + end), address(out, end * n + end - LANES)
            turn(corner[1], 8 * n, corner[0], 8 * n, LANES, n - end)


@njit()
def _matrix(room, rows, columns):
    """A matrix, column by column, at the beginning of `room`."""
    return room[:rows * columns].reshape((columns, rows)).T


@njit(cache=True)
def complements(out, kept, places, icov, groups):
    """The complements of groups of fibres; False if icov is not definite.

    out: (count, (joint nwave)^2), the beginning for each group is filled, (n, n)
    kept: (count, (joint step)^2), places: (3, (joint step)^2), scratch memory; step: nwave in whole vectors
    groups: (fibres in each, or fewer in the last one; first and last of the requested groups)
    All groups before one are eliminated from it, one after the other, and so are all after it.
    """
    joint, first, last = groups
    nfibre, nd, nwave, width = icov.shape
    step, end = padded(nwave), (nfibre + joint - 1) // joint
    for back in range(2):
        before, size = (0, 0), 0
        for n in range(end - first if back else last):
            g = end - 1 - n if back else n
            fibres, known = (g * joint, min((g + 1) * joint, nfibre)), size
            size = (fibres[1] - fibres[0]) * step
            own = _matrix(places[n % 2], size, size)
            _block(own, icov, fibres, fibres)
            if n > 0:
                coupling = _matrix(places[2], size, known)
                _block(coupling, icov, fibres, before)
                if not eliminate(own, coupling, _matrix(places[(n + 1) % 2], known, known),
                                 width // 2 if nd <= 2 else size):
                    return False
            before = fibres
            if not first <= g < last:
                continue
            forward = _matrix(kept[g - first], size, size)
            if back:
                _block(_matrix(places[2], size, size), icov, fibres, fibres)
                whole = (fibres[1] - fibres[0]) * nwave
                _join(out[g - first, :whole**2].reshape((whole, whole)), forward, own,
                      _matrix(places[2], size, size), nwave)
            else:
                forward.T[:] = own.T
    return True
