"""CPU kernels: the pole sum of one fibre whose band is wide, eight poles at a time (the lanes of every vector).

What backend.cpu_banded does row by row is done here by blocks of 4 x 4 elements: sixteen sums stay in registers while
a row of blocks is run through, so that a number is loaded for every second multiplication only. S + t I = L D L^T is
made panel by panel, its inverse within the band (Takahashi's recursion, by blocks) in its place on the way back. The
diagonal blocks of the inverse are made symmetric to the last bit: what is not symmetric in them would grow.

A panel is a block column: blocks 0 .. reach below the diagonal. Panels of zeros before the first and after the last
stand for tests at the ends. Nothing here depends on the band's width but the counts of loops: one compilation
serves all.
"""
import numpy as np
from numba import njit

from gpu_extract.backend.blocks import (
    BLOCK,
    EDGE,
    GROUP,
    GROUPS,
    NORMAL,
    TURNED,
    backward_corner,
    column_block,
    factor_corner,
    finish_block,
    forward_corner,
    invert_corner,
    mirror,
    scale_block,
    subtract_products,
    turn,
)
from gpu_extract.backend.cpu_banded import LANES, SIDES, aligned

PIVOTS = EDGE * LANES      # elements of a panel's D


@njit(nogil=True, cache=True, error_model="numpy")
def _spread(panel, y, blocks, shift, sides):  # type: ignore[no-untyped-def]
    """The panel's elements of S + t I and its right sides in all lanes; blocks: (reach + 1, 16) as in a panel."""
    for n in range(blocks.shape[0]):
        for m in range(EDGE * EDGE):
            panel[(n * EDGE * EDGE + m) * LANES:(n * EDGE * EDGE + m + 1) * LANES] = blocks[n, m]
    for c in range(EDGE):
        panel[c * (EDGE + 1) * LANES:(c * (EDGE + 1) + 1) * LANES] += shift
        for s in range(SIDES):
            y[(c * SIDES + s) * LANES:(c * SIDES + s + 1) * LANES] = sides[c, s]


@njit(nogil=True, cache=True, error_model="numpy")
def _factor(works, blocks, shift, sides):  # type: ignore[no-untyped-def]
    """L D L^T of S + t I and the forward substitution, divided by D."""
    panels, pivots, inverses, y, row, _ = works
    count, reach = blocks.shape[0], blocks.shape[1] - 1
    size = (reach + 1) * BLOCK
    panels[:reach * size] = 0.0
    panels[(reach + count) * size:] = 0.0
    pivots[:] = 1.0
    y[:] = 0.0
    for j in range(reach, reach + count):
        panel, own = panels[j * size:(j + 1) * size], j * PIVOTS
        _spread(panel, y[j * GROUP:], blocks[j - reach], shift, sides[EDGE * (j - reach):])
        for n in range(reach):
            k = j - reach + n
            scale_block(row, n * BLOCK, panels, k * size + (reach - n) * BLOCK, pivots, k * PIVOTS)
        for i in range(reach):
            first = (j - reach + i) * size + reach * BLOCK
            subtract_products(panel, i * BLOCK, panels, first, size - BLOCK, row, i * BLOCK, reach - i, NORMAL)
        factor_corner(panel, 0, pivots, own, inverses, own)
        for i in range(1, reach + 1):
            finish_block(panel, i * BLOCK, panel, 0, inverses, own)
        subtract_products(y, j * GROUP, row, 0, BLOCK, y, (j - reach) * GROUP, reach, GROUPS)
        forward_corner(y, j * GROUP, panel, 0, inverses, own)


@njit(nogil=True, cache=True, error_model="numpy")
def _invert(works, j):  # type: ignore[no-untyped-def]
    """Panel j of L becomes that of the inverse, and the right sides of its bins the solutions."""
    panels, _, inverses, y, v, z = works
    reach = len(v) // BLOCK
    size = (reach + 1) * BLOCK
    panel = panels[j * size:(j + 1) * size]
    for i in range(1, reach + 1):
        column_block(v, (i - 1) * BLOCK, panel, i * BLOCK, panel, 0)
    backward_corner(y, j * GROUP, panel, 0, panel, 0)
    subtract_products(y, j * GROUP, v, 0, BLOCK, y, (j + 1) * GROUP, reach, GROUPS)
    invert_corner(z, 0, panel, 0, inverses, j * PIVOTS)
    panel[:BLOCK] = z[:BLOCK]
    panel[BLOCK:] = 0.0
    for i in range(1, reach + 1):
        left, below = (j + 1) * size + (i - 1) * BLOCK, (j + i) * size + BLOCK
        subtract_products(panel, i * BLOCK, panels, left, size - BLOCK, v, 0, i, NORMAL)
        subtract_products(panel, i * BLOCK, panels, below, BLOCK, v, i * BLOCK, reach - i, TURNED)
        turn(z, (i - 1) * BLOCK, panel, i * BLOCK, panel, 0)
    subtract_products(panel, 0, v, 0, BLOCK, z, 0, reach, NORMAL)
    mirror(panel, 0, panel, 0, panel, 0)


@njit(nogil=True, cache=True, error_model="numpy")
def _add_up(out, panel, y, weight):  # type: ignore[no-untyped-def]
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
    """Work arrays for `count` panels: L or inverse, D, 1/D, right sides, and two of a panel each."""
    return tuple(aligned(size) for size in _sizes(count, reach))


def part_of(works: tuple[np.ndarray, ...], count: int, reach: int) -> tuple[np.ndarray, ...]:
    """The same for a smaller reach, in the same memory; what is in there does not matter."""
    return tuple(work[:size] for work, size in zip(works, _sizes(count, reach), strict=True))


def _sizes(count: int, reach: int) -> tuple[int, ...]:
    panels = count + 2 * reach
    return (panels * (reach + 1) * BLOCK, panels * PIVOTS, panels * PIVOTS, panels * GROUP, max(reach, 1) * BLOCK,
            max(reach, 1) * BLOCK)


@njit(nogil=True, cache=True, error_model="numpy")
def pole_sum(out, works, blocks, sides, shift, weight):  # type: ignore[no-untyped-def]
    """Add eight poles to `out`, (nwave, SIDES + ndiag + 1), whose columns are those of backend.cpu_banded.pole_sum.

    works: from `make_works`; blocks: (count, reach + 1, 16): S by panels, see `by_panels`, reach >= ndiag / 4
    sides: (4 count, SIDES); shift, weight: (LANES,)
    """
    panels, y = works[0], works[3]
    count, reach = blocks.shape[0], blocks.shape[1] - 1
    size = (reach + 1) * BLOCK
    _factor(works, blocks, shift, sides)
    for j in range(reach + count - 1, reach - 1, -1):
        _invert(works, j)
        first = EDGE * (j - reach)
        _add_up(out[first:first + EDGE], panels[j * size:(j + 1) * size], y[j * GROUP:], weight)


@njit(nogil=True, cache=True, error_model="numpy")
def by_panels(blocks, band):  # type: ignore[no-untyped-def]
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
