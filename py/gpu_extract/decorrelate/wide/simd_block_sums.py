"""Whole sums of the wide band's poles in one pass: blocks (vectors.blocks) that are begun, added up and finished in
registers.
"""
# mypy: disallow-untyped-defs=False
from typing import Any

from gpu_extract.decorrelate.narrow.simd_banded import LANES
from gpu_extract.vectors.blocks import BLOCK, EDGE, NORMAL, TURNED, block_places, finished, subtract_terms, write_block
from gpu_extract.vectors.emit import Emit, written_out


def _both(e: Emit, target: Any, turned: Any, left: Any, step: Any, right: Any, count: Any, below: Any,
          more: Any) -> None:
    sums = e.begun(dict.fromkeys(block_places(NORMAL), e.zero))
    subtract_terms(e, sums, (left, step, right, count), NORMAL)
    further = e.step(right, count, e.index(BLOCK))
    subtract_terms(e, sums, (below, e.index(BLOCK), further, more), TURNED)
    values = e.done(sums)
    write_block(e, target, values)
    write_block(e, turned, values, by_rows=True)


def _next(e: Emit, target: Any, numbers: Any, left: Any, step: Any, right: Any, count: Any, corner: Any,
          inverses: Any) -> None:
    sums = e.begun({(r, m): e.spread(numbers, m * EDGE + r) for r, m in block_places(NORMAL)})
    subtract_terms(e, sums, (left, step, right, count), NORMAL)
    write_block(e, target, finished(e, e.done(sums), corner, inverses))


@written_out(LANES)
def subtract_both(e, targets, first, second, right):
    """C = - sum_n A_n B_n, over two runs of A, first (see subtract_products) as NORMAL, then as TURNED.

    All places are addresses. targets: where C goes as [column][row], and as [row][column]
    first: (A, bytes from one to the next, count); second: (A, count), which follow each other; right: B, which do
    """
    (left, step, count), (below, more) = e.parts(first), e.parts(second)
    e.call("subtract_both", [*map(e.place, (*e.parts(targets), left)), e.builder.sdiv(step, e.index(8)),
                             e.place(right), count, e.place(below), more], _both)


@written_out(LANES)
def next_block(e, target, numbers, left, right, diagonal):
    """A block of L below the diagonal: S less sum_n A_n B_n (see subtract_products, NORMAL), divided by its panel's
    diagonal block.

    All places are addresses. target: where the block goes; numbers: the 16 of S; left: (A, bytes from one to the next,
    count); right: B, which follow each other; diagonal: (the diagonal block's factor, its 1/D)
    """
    first, step, count = e.parts(left)
    e.call("next_block", [*map(e.place, (target, numbers, first)), e.builder.sdiv(step, e.index(8)), e.place(right),
                          count, *map(e.place, e.parts(diagonal))], _next)
