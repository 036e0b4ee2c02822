"""CPU kernels: a dense block tridiagonal matrix, fibre by fibre, of some hundred bins: its blocks, and the elimination
of one from the next.

    out -= G P^-1 G^T:   P = L L^T,   H = G L^-T,   out -= H H^T

is one Cholesky factorisation that stops after P's columns. BLAS and LAPACK need four calls for it, and do not use that
G couples near bins only, so that half of H is zero and each part costs a third of a product of full blocks. Matrices
are stored by tiles (vectors.tiles), and given as (address, columns); their sizes are whole tiles. All sums run from the
first to the last column in turn.
"""
# mypy: disallow-untyped-defs=False
import math

import numpy as np
from numba.extending import register_jitable

from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import address, number, write
from gpu_extract.vectors.tiles import CORNER, EDGE, LANES, SOLVE, SUBTRACT, multiply

COLUMN = 8 * EDGE              # bytes of a tile's column
NONE = (0, 0, 0)


@register_jitable
def whole_tiles(size):
    """`size` rounded up to whole tiles."""
    return (size + EDGE - 1) // EDGE * EDGE


@njit()
def _at(matrix, row, column):
    """The address of an element of a matrix."""
    return matrix[0] + ((row // EDGE * matrix[1] + column) * EDGE + row % EDGE) * 8


@njit()
def _next(row, columns):
    """The bytes from an element to the one in the next row; columns: of the matrix."""
    return 8 if (row + 1) % EDGE else 8 + (columns - 1) * COLUMN


@njit()
def _block(out, icov, rows, columns):
    """Fill the matrix `out` with icov of fibres `rows` (first, last) against `columns` on all bins, fibre by fibre.

    out: (elements,); each fibre has whole tiles of bins, those from nwave on are empty
    Of diagonal blocks (rows = columns) only the lower triangle is made; empty rows get 1 on the diagonal.
    """
    nd, nwave, width = icov.shape[1:]
    hw, step, diagonal = width // 2, whole_tiles(nwave), rows[0] == columns[0]
    matrix, given = (address(out, 0), (columns[1] - columns[0]) * step), address(icov, 0)
    out[:] = 0.0
    for n in range(columns[1] - columns[0]):
        for m in range(n if diagonal else 0, rows[1] - rows[0]):
            d = columns[0] + n - rows[0] - m
            if abs(d) >= nd:
                continue
            own = (min(rows[0] + m, columns[0] + n) * nd + abs(d)) * nwave
            stride = 8 * (width - 1) if d >= 0 else 8
            for q in range(nwave):
                low = max(q if diagonal and m == n else 0, q - hw)
                start = (own + low) * width + hw + q - low if d >= 0 else (own + q) * width + hw + low - q
                source = given + 8 * start
                place = _at(matrix, m * step + low, n * step + q)
                for r in range(low, min(q + hw + 1, nwave)):
                    write(place, number(source))
                    source += stride
                    place += _next(r, matrix[1])
    for n in range(matrix[1] if diagonal else 0):
        place = _at(matrix, n, n)
        if number(place) == 0.0:
            write(place, 1.0)


@njit()
def _factor_corner(corner, place):
    """The Cholesky factor (see tiles.CORNER) of the 8 x 8 elements from `place` on; False if they are not definite."""
    for c in range(LANES):
        column, root = corner + 8 * (LANES + c * LANES), 0.0
        for r in range(c, LANES):
            total = number(place + c * COLUMN + 8 * r)
            for m in range(c):
                before = corner + 8 * (LANES + m * LANES)
                total -= number(before + 8 * r) * number(before + 8 * c)
            if r == c:
                if not 0.0 < total < np.inf:
                    return False
                root = math.sqrt(total)
                write(corner + 8 * c, 1.0 / root)
            write(column + 8 * r, total / root)
    return True


@njit()
def _eight_columns(pivot, coupling, first, wide, reach, corner):
    """Columns first .. first + 7 of L and of H; False if the pivot is not definite. wide: rows of G; corner: address"""
    known, own = _at(pivot, first, 0), first // EDGE * EDGE
    place = _at(pivot, own, first)
    multiply(place, (_at(pivot, own, 0), known, first), NONE, corner, SUBTRACT)
    if not _factor_corner(corner, _at(pivot, first, first)):
        return False
    multiply(place, NONE, NONE, corner, SOLVE)
    for r in range(own + EDGE, pivot[1], EDGE):
        multiply(_at(pivot, r, first), (_at(pivot, r, 0), known, first), NONE, corner, SOLVE)
    for r in range(0, min(wide, first + LANES + reach), EDGE):
        start = min(max(r - reach, 0) // LANES * LANES, first)
        multiply(_at(coupling, r, first), (_at(coupling, r, start), known + start * COLUMN, first - start), NONE,
                 corner, SOLVE)
    return True


@njit()
def eliminate(out, coupling, pivot, rows, reach):
    """out -= G P^-1 G^T; False, with undefined results, if P is not definite.

    All are (address, columns) of matrices in tiles; only the lower triangles of out and P are used.
    out: (rows, rows); coupling: (rows, n), G, overwritten, 0 where its column is more than `reach` before its row
    pivot: (n, n), P, overwritten
    """
    corner = np.empty(CORNER)
    for first in range(0, pivot[1], LANES):
        if not _eight_columns(pivot, coupling, first, rows, reach, address(corner, 0)):
            return False
    for first in range(0, rows, LANES):
        for r in range(first // EDGE * EDGE, rows, EDGE):
            start = min(max(r - reach, 0) // LANES * LANES, pivot[1])
            multiply(_at(out, r, first), (_at(coupling, r, start), _at(coupling, first, start), pivot[1] - start), NONE,
                     address(corner, 0), SUBTRACT)
    return True


@njit()
def _join(out, forward, backward, own, size):
    """out = forward + backward - own, both triangles, from the lower triangles of the others, given by their addresses.

    out: (n, n), made of blocks of `size` rows and columns; in the others blocks have whole tiles
    """
    step, n = whole_tiles(size), len(out)
    for c in range(n):
        column = c // size * step + c % size
        for m in range(c // size, n // size):
            low = max(c - m * size, 0)
            offset = _at((0, n // size * step), m * step + low, column)
            for q in range(low, size):
                value = number(forward + offset) + number(backward + offset) - number(own + offset)
                out[c, m * size + q] = out[m * size + q, c] = value
                offset += _next(q, n // size * step)


@njit(cache=True)
def complements(out, kept, places, icov, groups):
    """The complements of groups of fibres; False if icov is not definite.

    out: (count, (joint nwave)^2), the beginning for each group is filled, (n, n)
    kept: (count, (joint step)^2), places: (3, (joint step)^2), scratch memory; step: nwave in whole tiles
    groups: (fibres in each, or fewer in the last one; first and last of the requested groups)
    All groups before one are eliminated from it, one after the other, and so are all after it.
    """
    joint, first, last = groups
    nfibre, nd, nwave, width = icov.shape
    step, end = whole_tiles(nwave), (nfibre + joint - 1) // joint
    for back in range(2):
        before, size = (0, 0), 0
        for n in range(end - first if back else last):
            g = end - 1 - n if back else n
            fibres, known = (g * joint, min((g + 1) * joint, nfibre)), size
            size = (fibres[1] - fibres[0]) * step
            own, coupling = places[n % 2, :size * size], places[2, :size * known]
            _block(own, icov, fibres, fibres)
            if n > 0:
                _block(coupling, icov, fibres, before)
                if not eliminate((address(own, 0), size), (address(coupling, 0), known),
                                 (address(places, (n + 1) % 2 * places.shape[1]), known), size,
                                 width // 2 if nd <= 2 else size):
                    return False
            before = fibres
            if not first <= g < last:
                continue
            if back:
                block, whole = places[2, :size * size], (fibres[1] - fibres[0]) * nwave
                _block(block, icov, fibres, fibres)
                _join(out[g - first, :whole**2].reshape((whole, whole)), address(kept[g - first], 0),
                      address(own, 0), address(block, 0), nwave)
            else:
                kept[g - first, :size * size] = own
    return True
