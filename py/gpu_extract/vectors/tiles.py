"""Operations on tiles of 24 x 24 elements in registers, for the wide elimination and for stretches of bins.

A tile is stored column by column, and contiguous tiles are one matrix of 24 rows. All products have the form C - A B',
of which a Cholesky factorisation consists: 24 rows of A times eight rows of B, 192 sums that stay in registers over
their full length. `e` writes the code (emit.Emit).
"""
# mypy: disallow-untyped-defs=False
from typing import Any

from gpu_extract.vectors.emit import Emit, written_out

EDGE = 24                      # rows and columns of a tile
TILE = EDGE * EDGE             # its elements
LANES = 8                      # rows in a vector, and columns of C that are processed together
CORNER = LANES + LANES * LANES     # elements of a corner: 1 / l_jj, then l_jm as [m][j]
VECTORS = range(EDGE // LANES)
AT_ONCE = 4                    # terms of a sum that are unrolled

SUBTRACT, SOLVE = 0, 1         # operation of `multiply` on C


def _solve(e: Emit, sums: dict[tuple[int, int], Any], corner: Any) -> None:
    """C becomes C times the inverse of the corner's transpose: column by column."""
    for j in range(LANES):
        for v in VECTORS:
            sums[v, j] = e.multiply(sums[v, j], e.spread(corner, j))
        for m in range(j + 1, LANES):
            weight = e.spread(corner, LANES + j * LANES + m)
            for v in VECTORS:
                sums[v, m] = e.take(sums[v, j], weight, sums[v, m])


def _products(e: Emit, target: Any, corner: Any, *given: Any) -> None:
    """given: A, B and the number of terms of both runs; then the operation on C."""
    *runs, kind = given
    at = {(v, m): m * EDGE + v * LANES for m in range(LANES) for v in VECTORS}
    sums = e.begun({key: e.load(target, offset) for key, offset in at.items()})
    for a, b, count in (runs[:3], runs[3:]):
        with e.loop(count) as n:
            left, right = (e.step(p, n.index, e.index(AT_ONCE * EDGE)) for p in (a, b))
            for k in range(AT_ONCE):
                column = [e.negative(e.load(left, k * EDGE + v * LANES)) for v in VECTORS]
                for m in range(LANES):
                    weight = e.spread(right, k * EDGE + m)
                    for v in VECTORS:
                        e.builder.store(e.fma(column[v], weight, e.builder.load(sums[v, m])), sums[v, m])
    values = e.done(sums)
    if kind == SOLVE:
        _solve(e, values, corner)
    for key, value in values.items():
        e.store(target, at[key], value)


@written_out(LANES, "kind")
def multiply(e, c, first, second, corner, kind):
    """C -= A B' in eight columns of a tile, summed over two runs of columns of A and B; SOLVE: then C = C L'^-1.

    c: address of the first of the eight columns
    first, second: (A, B, columns), addresses of the runs' first columns, of B, which has 24 rows as well, of the first
        of the eight rows that are used; numbers of columns, multiples of AT_ONCE
    corner: address of L, see CORNER
    """
    places = [e.place(c), e.place(corner)]
    for a, b, count in map(e.parts, (first, second)):
        places += [e.place(a), e.place(b), e.builder.sdiv(count, e.index(AT_ONCE))]
    e.call("multiply", places, _products, kind)
