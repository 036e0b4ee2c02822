"""Whole sums of the wide band's poles in one pass: blocks (vectors.blocks) that are begun, added up and finished in
registers.
"""
# mypy: disallow-untyped-defs=False
from typing import Any

from numba import types

from gpu_extract.decorrelate.narrow.simd_banded import LANES
from gpu_extract.vectors.blocks import BLOCK, EDGE, NORMAL, TURNED, block_places, finished, subtract_terms, write_block
from gpu_extract.vectors.emit import Emit, call, written_out


def _both(e: Emit, places: Any) -> None:
    target, turned, left, step, right, count, below, more = places
    sums = e.begun(dict.fromkeys(block_places(NORMAL), e.zero))
    subtract_terms(e, sums, (left, step, right, count), NORMAL)
    further = e.step(right, count, e.index(BLOCK))
    subtract_terms(e, sums, (below, e.index(BLOCK), further, more), TURNED)
    values = e.done(sums)
    write_block(e, target, values)
    write_block(e, turned, values, by_rows=True)


def _next(e: Emit, places: Any) -> None:
    target, numbers, left, step, right, count, corner, inverses = places
    sums = e.begun({(r, m): e.spread(numbers, m * EDGE + r) for r, m in block_places(NORMAL)})
    subtract_terms(e, sums, (left, step, right, count), NORMAL)
    write_block(e, target, finished(e, e.done(sums), corner, inverses))


@written_out
def subtract_both(typingctx, targets, first, second, right):
    """C = - sum_n A_n B_n, over two runs of A, first (see subtract_products) as NORMAL, then as TURNED.

    All places are addresses. targets: where C goes as [column][row], and as [row][column]
    first: (A, bytes from one to the next, count); second: (A, count), which follow each other; right: B, which do
    """
    def codegen(context, builder, signature, args):
        e = Emit(context, builder, LANES)
        target, turned = (builder.extract_value(args[0], n) for n in range(2))
        left, step, count = (builder.extract_value(args[1], n) for n in range(3))
        below, more = (builder.extract_value(args[2], n) for n in range(2))
        places = [*map(e.place, (target, turned, left)), builder.sdiv(step, e.index(8)), e.place(args[3]), count,
                  e.place(below), more]
        return call(context, builder, "subtract_both", places, _both, LANES)
    return types.void(targets, first, second, right), codegen


@written_out
def next_block(typingctx, target, numbers, left, right, diagonal):
    """A block of L below the diagonal: S less sum_n A_n B_n (see subtract_products, NORMAL), divided by its panel's
    diagonal block.

    All places are addresses. target: where the block goes; numbers: the 16 of S; left: (A, bytes from one to the next,
    count); right: B, which follow each other; diagonal: (the diagonal block's factor, its 1/D)
    """
    def codegen(context, builder, signature, args):
        e = Emit(context, builder, LANES)
        left, step, count = (builder.extract_value(args[2], n) for n in range(3))
        corner, inverses = (builder.extract_value(args[4], n) for n in range(2))
        places = [*map(e.place, (args[0], args[1], left)), builder.sdiv(step, e.index(8)), e.place(args[3]), count,
                  e.place(corner), e.place(inverses)]
        return call(context, builder, "next_block", places, _next, LANES)
    return types.void(target, numbers, left, right, diagonal), codegen
