"""CPU kernels: the pole sum of one fibre whose band is wide, eight poles at a time (the lanes of every vector).

What narrow.simd_banded does row by row is done here by blocks of 4 x 4 elements: sixteen sums stay in registers along a
row of blocks, so that a number is loaded for every second multiplication only. S + t I = L D L^T is made panel by
panel, and replaced by its inverse within the band (Takahashi's recursion, by blocks) on the way back. The diagonal
blocks of the inverse are made exactly symmetric, because any asymmetry would grow.

A panel is a block column: blocks 0 .. reach below the diagonal. While one is processed, the next is prefetched. Only
the counts of loops depend on the band's width: one compilation serves all.
"""
# mypy: disallow-untyped-defs=False
from typing import Any

import numpy as np

from gpu_extract.decorrelate.narrow.simd_banded import LANES, SIDES
from gpu_extract.kernels.arena import Arena
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.blocks import (BLOCK, EDGE, GROUP, GROUPS, LINE, NORMAL, PAIRS, PIVOTS, SQUARE, TURNED,
                                        VECTOR, backward_corner, block_places, column_block, factor_corner, finished,
                                        forward_corner, invert_corner, mirror, scale_block, subtract_products,
                                        subtract_terms, write_block)
from gpu_extract.vectors.emit import Emit, written_out
from gpu_extract.vectors.simd import address, number, prefetch, vadd, vread8, vset8, vwrite


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
def subtract_both(e, targets, left, right, count, second):
    """C = - sum_n A_n B_n, over two runs of A, `count` of the first as NORMAL (see subtract_products), then as TURNED.

    targets: for C as [column][row], and as [row][column]; left, right: as in subtract_products
    second: (A, count) of the second run, whose A are contiguous
    """
    below, more = e.parts(second)
    e.call("subtract_both", [*map(e.place, e.parts(targets)), *e.columns(left), e.place(right), count, e.place(below),
                             more], _both)


@written_out(LANES)
def next_block(e, target, numbers, left, right, count, diagonal):
    """A block of L below the diagonal: S - sum_n A_n B_n (see subtract_products, NORMAL), divided by its panel's
    diagonal block.

    target: for the block; numbers: the 16 of S; diagonal: (the diagonal block's factor, its 1/D)
    """
    e.call("next_block", [e.place(target), e.place(numbers), *e.columns(left), e.place(right), count,
                          *map(e.place, e.parts(diagonal))], _next)


@njit(cache=True)
def _spread(corner, y, numbers, shift, sides):
    """The panel's diagonal block of S + t I and its right-hand sides in all lanes.

    corner, y: addresses of the block and of the group of right-hand sides; numbers, shift, sides: of their contents
    """
    for n in range(EDGE * EDGE):
        vwrite(corner + VECTOR * n, vset8(number(numbers + 8 * n)))
    for c in range(EDGE):
        place = corner + VECTOR * c * (EDGE + 1)
        vwrite(place, vadd(vread8(place), vread8(shift)))
    for n in range(GROUP // LANES):
        vwrite(y + VECTOR * n, vset8(number(sides + 8 * n)))


@njit(cache=True)
def _fetch(place):
    for n in range(0, SQUARE, 64):
        prefetch(place + n)


@njit(cache=True)
def _factor(places, blocks, shift, sides):
    """L D L^T of S + t I and the forward substitution, divided by D; places: addresses of the work arrays."""
    panels, pivots, inverses, y, row, _ = places
    count, reach, given = blocks.shape[0], blocks.shape[1] - 1, address(blocks, 0)
    step, size = reach * SQUARE, (reach + 1) * SQUARE
    for j in range(count):
        panel, own, numbers, back = panels + j * size, inverses + j * LINE, given + j * size // LANES, min(reach, j)
        _spread(panel, y + j * PAIRS, numbers, address(shift, 0), address(sides, j * EDGE * SIDES))
        for n in range(back):
            k = j - back + n
            scale_block((row + n * SQUARE, panels + k * size + (back - n) * SQUARE, pivots + k * LINE))
        subtract_products(panel, (panel - back * step, step), row, back, NORMAL)
        factor_corner((panel, pivots + j * LINE, own))
        for i in range(1, reach + 1):
            terms, place = min(reach - i, back), panel + i * SQUARE
            _fetch(place + size)
            next_block(place, numbers + i * SQUARE // LANES, (place - terms * step, step),
                       row + (back - terms) * SQUARE, terms, (panel, own))
        subtract_products(y + j * PAIRS, (row, SQUARE), y + (j - back) * PAIRS, back, GROUPS)
        forward_corner((y + j * PAIRS, panel, own))


@njit(cache=True)
def _invert(places, j, count, reach):
    """Panel j of L becomes that of the inverse, and the right-hand sides of its bins become the solutions."""
    panels, _, inverses, y, v, z = places
    size, below = (reach + 1) * SQUARE, min(reach, count - 1 - j)
    panel = panels + j * size
    for i in range(1, below + 1):
        column_block((v + (i - 1) * SQUARE, panel + i * SQUARE, panel))
    backward_corner((y + j * PAIRS, panel))
    subtract_products(y + j * PAIRS, (v, SQUARE), y + (j + 1) * PAIRS, below, GROUPS)
    invert_corner((panel, inverses + j * LINE))
    for place in range(panel + (below + 1) * SQUARE, panel + size, VECTOR):
        vwrite(place, vset8(0.0))
    for i in range(1, below + 1):
        _fetch(panel + i * SQUARE - size)
        subtract_both((panel + i * SQUARE, z + (i - 1) * SQUARE), (panel + size + (i - 1) * SQUARE, size - SQUARE), v,
                      i, (panel + i * size + SQUARE, below - i))
    subtract_products(panel, (v, SQUARE), z, below, NORMAL)
    mirror((panel,))


@njit(cache=True)
def _add_up(out, panel, y, weight):
    """Add one panel's bins into `out`, summed over the lanes."""
    for c in range(len(out)):
        for n in range(out.shape[1]):
            if n < SIDES:
                values = y[(c * SIDES + n) * LANES:]
            else:
                r = c + n - SIDES
                values = panel[(r // EDGE) * BLOCK + (c * EDGE + r % EDGE) * LANES:]
            total = 0.0
            for lane in range(LANES):
                total += weight[lane] * values[lane]
            out[c, n] += total


def make_works(count: int, reach: int) -> tuple[np.ndarray, ...]:
    """Undefined work arrays for `count` panels: L or inverse, D, 1/D, right-hand sides, and two of a panel each."""
    arena = Arena()
    return tuple(arena.take(size) for size in _sizes(count, reach))


def part_of(works: tuple[np.ndarray, ...], count: int, reach: int) -> tuple[np.ndarray, ...]:
    """The same for a smaller reach, in the same memory; their contents do not matter."""
    return tuple(work[:size] for work, size in zip(works, _sizes(count, reach), strict=True))


def _sizes(count: int, reach: int) -> tuple[int, ...]:
    return (count * (reach + 1) * BLOCK, count * PIVOTS, count * PIVOTS, count * GROUP, max(reach, 1) * BLOCK,
            max(reach, 1) * BLOCK)


@njit(cache=True)
def pole_sum(out, works, blocks, sides, shift, weight):
    """Add eight poles to `out`, (nwave, SIDES + ndiag + 1), whose columns are those of narrow.simd_banded.pole_sum.

    works: from `make_works`; blocks: (count, reach + 1, 16): S by panels, see `by_panels`, reach >= ndiag / 4
    sides: (4 count, SIDES); shift, weight: (LANES,)
    """
    (panels, pivots, inverses, y, v, z), count, reach = works, blocks.shape[0], blocks.shape[1] - 1
    places = (address(panels, 0), address(pivots, 0), address(inverses, 0), address(y, 0), address(v, 0), address(z, 0))
    size = (reach + 1) * BLOCK
    _factor(places, blocks, shift, sides)
    for j in range(count - 1, -1, -1):
        _invert(places, j, count, reach)
        first = EDGE * j
        _add_up(out[first:first + EDGE], panels[j * size:(j + 1) * size], y[j * GROUP:], weight)


@njit(cache=True)
def by_panels(blocks, band):
    """blocks (see `pole_sum`) of a band (nwave, half + 1), rows of the upper triangle; bins beyond the end are 1."""
    nwave, half = len(band), min(band.shape[1] - 1, EDGE * (blocks.shape[1] - 1))
    blocks[:] = 0.0
    for j in range(blocks.shape[0]):
        for c in range(EDGE):
            q = EDGE * j + c
            if q >= nwave:
                blocks[j, 0, c * (EDGE + 1)] = 1.0
                continue
            for a in range(min(half, nwave - 1 - q) + 1):
                r = c + a
                blocks[j, r // EDGE, c * EDGE + r % EDGE] = band[q, a]
                if r < EDGE:
                    blocks[j, 0, r * EDGE + c] = band[q, a]
