"""Transposition in memory, between kernels that work bin by bin and those that work on many bins at once."""
# mypy: disallow-untyped-defs=False
from numba.extending import register_jitable

from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.emit import written_out
from gpu_extract.vectors.simd import number, write

LANES = 8


@register_jitable
def padded(size):
    """`size` rounded up to whole vectors."""
    return (size + LANES - 1) // LANES * LANES


def _columns(e, target, wide, source, step, blocks):
    """Eight columns of `blocks` blocks of eight rows; wide, step: bytes from row to row of target and source."""
    with e.loop(blocks) as block:
        place = e.builder.add(source, e.builder.mul(block.index, e.builder.mul(step, e.index(LANES))))
        there = e.builder.add(target, e.builder.mul(block.index, e.index(8 * LANES)))
        rows = [e.load(e.place(e.builder.add(place, e.builder.mul(step, e.index(n)))), 0) for n in range(LANES)]
        for n, column in enumerate(e.transposed(rows)):
            e.store(e.place(e.builder.add(there, e.builder.mul(wide, e.index(n)))), 0, column)


@written_out(LANES)
def _turn_columns(e, target, wide, source, step, blocks):
    e.call("turn_columns", (target, wide, source, step, blocks), _columns)


@njit()
def turn(target, wide, source, step, rows, columns):
    """Column c of `rows` rows becomes row c, for c < columns.

    target, source: addresses; wide, step: bytes from one row to the next of both
    """
    for c in range(0, columns, LANES):
        done = rows // LANES * LANES if columns - c >= LANES else 0
        _turn_columns(target + c * wide, wide, source + 8 * c, step, done // LANES)
        for a in range(c, min(c + LANES, columns)):
            for n in range(done, rows):
                write(target + a * wide + 8 * n, number(source + n * step + 8 * a))
