"""Tiles of 24 x 24 elements and what is done with them in registers: the building stones of the wide elimination.

A tile lies in memory column by column, and tiles that follow each other are one matrix of 24 rows. All products have
the form C - A B', which a Cholesky factorisation is made of: 24 rows of A against eight rows of B, 192 sums that stay
in registers along all of their length. `e` is the code's writer (emit.Emit).
"""
from collections.abc import Callable
from typing import Any

from numba import types

from gpu_extract.backend.emit import Emit, all_literal, call, literal, written_out

EDGE = 24                      # rows and columns of a tile
TILE = EDGE * EDGE             # its elements
LANES = 8                      # rows in a vector, and columns of C that are worked on together
CORNER = LANES + LANES * LANES     # elements of a corner: 1 / l_jj, then l_jm as [m][j]
VECTORS = range(EDGE // LANES)
AT_ONCE = 4                    # terms of a sum that are written out

SUBTRACT, SOLVE = 0, 1         # what `multiply` does with C


def _solve(e: Emit, sums: dict[tuple[int, int], Any], corner: Any) -> None:
    """C becomes C times the inverse of the corner's transpose: column by column."""
    for j in range(LANES):
        for v in VECTORS:
            sums[v, j] = e.multiply(sums[v, j], e.spread(corner, j))
        for m in range(j + 1, LANES):
            weight = e.spread(corner, LANES + j * LANES + m)
            for v in VECTORS:
                sums[v, m] = e.fma(e.negative(sums[v, j]), weight, sums[v, m])


def _products(kind: int) -> Callable[[Emit, Any], None]:
    def body(e: Emit, places: Any) -> None:
        target, *runs, corner = places
        at = {(v, m): m * EDGE + v * LANES for m in range(LANES) for v in VECTORS}
        sums = dict(zip(at, e.variables(len(at)), strict=True))
        for key, place in sums.items():
            e.builder.store(e.load(target, at[key]), place)
        for a, b, count in (runs[:3], runs[3:]):
            with e.loop(count) as n:
                left, right = (e.step(p, n.index, e.index(AT_ONCE * EDGE)) for p in (a, b))
                for k in range(AT_ONCE):
                    column = [e.negative(e.load(left, k * EDGE + v * LANES)) for v in VECTORS]
                    for m in range(LANES):
                        weight = e.spread(right, k * EDGE + m)
                        for v in VECTORS:
                            e.builder.store(e.fma(column[v], weight, e.builder.load(sums[v, m])), sums[v, m])
        values = {key: e.builder.load(place) for key, place in sums.items()}
        if kind == SOLVE:
            _solve(e, values, corner)
        for key, value in values.items():
            e.store(target, at[key], value)
    return body


@written_out
def multiply(typingctx, c, c0, a, a0, b, b0, count, a1, b1, more, corner, kind):  # type: ignore[no-untyped-def]
    """C -= A B' in eight columns of a tile, over `count` columns of A and B from elements a0 and b0 on, and `more` from
    a1 and b1 on; SOLVE: and then C = C L'^-1 with the corner L.

    c0: the first of C's eight columns; b0, b1: of B, which has 24 rows as well, the first of the eight that are used
    Counts are multiples of AT_ONCE.
    """
    if not all_literal(kind):
        return None
    which = literal(kind)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        e = Emit(context, builder, LANES)

        def times(count: Any) -> Any:
            return builder.sdiv(count, e.index(AT_ONCE))
        places = [e.pointer(c, args[0], args[1]), e.pointer(a, args[2], args[3]), e.pointer(b, args[4], args[5]),
                  times(args[6]), e.pointer(a, args[2], args[7]), e.pointer(b, args[4], args[8]), times(args[9]),
                  e.pointer(corner, args[10], e.index(0))]
        return call(context, builder, f"multiply_{which}", places, _products(which), LANES)
    index = types.intp
    return types.void(c, index, a, index, b, index, index, index, index, index, corner, kind), codegen
