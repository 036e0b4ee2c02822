"""CPU kernels: the pole sum of one fibre whose band is wide, eight poles at a time (the lanes of every vector).

What narrow.simd_banded does row by row is done here by blocks of 4 x 4 elements: sixteen sums stay in registers while
a row of blocks is run through, so that a number is loaded for every second multiplication only. S + t I = L D L^T is
made panel by panel, its inverse within the band (Takahashi's recursion, by blocks) in its place on the way back. The
diagonal blocks of the inverse are made symmetric to the last bit: what is not symmetric in them would grow.

A panel is a block column: blocks 0 .. reach below the diagonal. While one is worked on, the next is asked for from
memory. Nothing here depends on the band's width but the counts of loops: one compilation serves all.
"""
# mypy: disallow-untyped-defs=False
from typing import Any

import numpy as np

from gpu_extract.decorrelate.narrow.simd_banded import LANES, SIDES
from gpu_extract.kernels.arena import Arena
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.blocks import (BLOCK, EDGE, GROUP, GROUPS, NORMAL, TURNED, backward_corner, block_places,
                                        column_block, factor_corner, finished, forward_corner, invert_corner, mirror,
                                        scale_block, subtract_products, subtract_terms, write_block)
from gpu_extract.vectors.emit import Emit, written_out
from gpu_extract.vectors.simd import address, number, prefetch, vadd, vread8, vset8, vwrite

PIVOTS = EDGE * LANES      # elements of a panel's D


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


@njit(cache=True)
def _spread(corner, y, numbers, shift, sides):
    """The panel's diagonal block of S + t I and its right sides in all lanes.

    corner, y, numbers, shift, sides: addresses of the block, of the group of right sides, and of what goes there
    """
    for n in range(EDGE * EDGE):
        vwrite(corner + 8 * LANES * n, vset8(number(numbers + 8 * n)))
    for c in range(EDGE):
        place = corner + 8 * LANES * c * (EDGE + 1)
        vwrite(place, vadd(vread8(place), vread8(shift)))
    for n in range(GROUP // LANES):
        vwrite(y + 8 * LANES * n, vset8(number(sides + 8 * n)))


@njit(cache=True)
def _fetch(place):
    for n in range(0, 8 * BLOCK, 64):
        prefetch(place + n)


@njit(cache=True)
def _factor(works, blocks, shift, sides):
    """L D L^T of S + t I and the forward substitution, divided by D."""
    panels, pivots, inverses, y, row, _ = works
    count, reach = blocks.shape[0], blocks.shape[1] - 1
    size, numbers = (reach + 1) * BLOCK, (reach + 1) * EDGE**2
    for j in range(count):
        first, own, back = j * size, j * PIVOTS, min(reach, j)
        _spread(address(panels, first), address(y, j * GROUP), address(blocks, j * numbers), address(shift, 0),
                address(sides, j * EDGE * SIDES))
        for n in range(back):
            k = j - back + n
            scale_block(row, n * BLOCK, panels, k * size + (back - n) * BLOCK, pivots, k * PIVOTS)
        subtract_products(panels, first, panels, (j - back) * size + back * BLOCK, size - BLOCK, row, 0, back, NORMAL)
        factor_corner(panels, first, pivots, own, inverses, own)
        panel, step = address(panels, first), 8 * (size - BLOCK)
        for i in range(1, reach + 1):
            terms, place = min(reach - i, back), panel + 8 * i * BLOCK
            _fetch(place + 8 * size)
            next_block(place, address(blocks, j * numbers + i * EDGE**2), (place - terms * step, step, terms),
                       address(row, (back - terms) * BLOCK), (panel, address(inverses, own)))
        subtract_products(y, j * GROUP, row, 0, BLOCK, y, (j - back) * GROUP, back, GROUPS)
        forward_corner(y, j * GROUP, panels, first, inverses, own)


@njit(cache=True)
def _invert(works, j, count):
    """Panel j of L becomes that of the inverse, and the right sides of its bins the solutions."""
    panels, _, inverses, y, v, z = works
    reach = len(v) // BLOCK
    size = (reach + 1) * BLOCK
    first, below = j * size, min(reach, count - 1 - j)
    for i in range(1, below + 1):
        column_block(v, (i - 1) * BLOCK, panels, first + i * BLOCK, panels, first)
    backward_corner(y, j * GROUP, panels, first, panels, first)
    subtract_products(y, j * GROUP, v, 0, BLOCK, y, (j + 1) * GROUP, below, GROUPS)
    invert_corner(z, 0, panels, first, inverses, j * PIVOTS)
    panels[first:first + BLOCK] = z[:BLOCK]
    panels[first + (below + 1) * BLOCK:first + size] = 0.0
    panel = address(panels, first)
    for i in range(1, below + 1):
        _fetch(panel + 8 * (i * BLOCK - size))
        subtract_both((panel + 8 * i * BLOCK, address(z, (i - 1) * BLOCK)),
                      (panel + 8 * (size + (i - 1) * BLOCK), 8 * (size - BLOCK), i),
                      (panel + 8 * (i * size + BLOCK), below - i), address(v, 0))
    subtract_products(panels, first, v, 0, BLOCK, z, 0, below, NORMAL)
    mirror(panels, first, panels, first, panels, first)


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
    """Work arrays for `count` panels, holding anything: L or inverse, D, 1/D, right sides, and two of a panel each."""
    arena = Arena()
    return tuple(arena.take(size) for size in _sizes(count, reach))


def part_of(works: tuple[np.ndarray, ...], count: int, reach: int) -> tuple[np.ndarray, ...]:
    """The same for a smaller reach, in the same memory; what is in there does not matter."""
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
    panels, y = works[0], works[3]
    count, reach = blocks.shape[0], blocks.shape[1] - 1
    size = (reach + 1) * BLOCK
    _factor(works, blocks, shift, sides)
    for j in range(count - 1, -1, -1):
        _invert(works, j, count)
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
