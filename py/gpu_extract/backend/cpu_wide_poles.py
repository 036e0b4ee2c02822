"""CPU kernels: the pole sum of one fibre whose band is wide, eight poles at a time (the lanes of every vector).

What backend.cpu_banded does row by row is done here by blocks of 4 x 4 elements: sixteen sums stay in registers while
a row of blocks is run through, so that a number is loaded for every second multiplication only. S + t I = L D L^T is
made panel by panel, its inverse within the band (Takahashi's recursion, by blocks) in its place on the way back.

A panel is a block column: blocks 0 .. reach below the diagonal, each 16 vectors, column by column: [block][c][r][lane].
Panels of zeros before the first and after the last stand for tests at the ends. Nothing here depends on the band's
width but the counts of loops: one compilation serves all.
"""
from typing import Any

from numba import njit, types

from gpu_extract.backend.cpu_banded import LANES, SIDES, out_width
from gpu_extract.backend.emit import Emit, all_literal, call, literal, written_out

EDGE = 4                       # of a block
BLOCK = EDGE * EDGE * LANES    # elements of a block
_PLACES = [(r, c) for c in range(EDGE) for r in range(EDGE)]


@written_out
def _subtract_products(typingctx, c, c0, a, a0, a_step, b, b0, count, turned):  # type: ignore[no-untyped-def]
    """C -= sum_n A_n B_n over `count` blocks. C is [column][row], A too (or [row][column] where turned is 1), B [row][column].

    c0, a0, b0: first elements; A_n are a_step elements apart, B_n follow each other.
    """
    if not all_literal(turned):
        return None
    transposed = bool(literal(turned))

    def body(e, places):  # type: ignore[no-untyped-def]
        target, left0, step, right0, blocks = places
        sums = dict(zip(_PLACES, e.variables(EDGE * EDGE), strict=True))
        for n, place in enumerate(sums.values()):
            e.builder.store(e.load(target, n * LANES), place)
        with e.loop(blocks) as n:
            left, right = e.step(left0, n.index, step), e.step(right0, n.index, e.context.get_constant(types.intp, BLOCK))
            for k in range(EDGE):
                column = [e.load(left, (r * EDGE + k if transposed else k * EDGE + r) * LANES) for r in range(EDGE)]
                row = [e.negative(e.load(right, (k * EDGE + m) * LANES)) for m in range(EDGE)]
                for (r, m), place in sums.items():
                    e.builder.store(e.fma(column[r], row[m], e.builder.load(place)), place)
        for n, place in enumerate(sums.values()):
            e.store(target, n * LANES, e.builder.load(place))

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        e = Emit(context, builder, LANES)
        places = e.pointer(c, args[0], args[1]), e.pointer(a, args[2], args[3]), args[4], e.pointer(b, args[5], args[6])
        return call(context, builder, f"subtract_products_{int(transposed)}", [*places, args[7]], body, LANES)
    index = types.intp
    return types.void(c, index, a, index, index, b, index, index, turned), codegen


@njit(nogil=True, cache=True)
def _spread(panel, blocks, shift):  # type: ignore[no-untyped-def]
    """The panel's elements of S in all lanes, and the shifts on the diagonal; blocks: (reach + 1, 16) as in a panel."""
    for n in range(blocks.shape[0]):
        for m in range(EDGE * EDGE):
            place = n * BLOCK + m * LANES
            for lane in range(LANES):
                panel[place + lane] = blocks[n, m]
    for c in range(EDGE):
        for lane in range(LANES):
            panel[c * (EDGE + 1) * LANES + lane] += shift[lane]


@njit(nogil=True, cache=True)
def _finish_panel(panel, pivots, reach):  # type: ignore[no-untyped-def]
    """Unit lower L and D (to pivots: [c][lane]) of a panel from which all earlier ones were subtracted."""
    for c in range(EDGE):
        for m in range(c):
            for r in range(c if c > 0 else 0, (reach + 1) * EDGE):
                place, other = (r // EDGE) * BLOCK + (r % EDGE) * LANES, (m * EDGE + c) * LANES
                for lane in range(LANES):
                    panel[place + c * EDGE * LANES + lane] -= (
                        panel[place + m * EDGE * LANES + lane] * pivots[m * LANES + lane] * panel[other + lane])
        diagonal = c * (EDGE + 1) * LANES
        for lane in range(LANES):
            pivots[c * LANES + lane] = panel[diagonal + lane]
        for r in range(c + 1, (reach + 1) * EDGE):
            place = (r // EDGE) * BLOCK + (c * EDGE + r % EDGE) * LANES
            for lane in range(LANES):
                panel[place + lane] /= pivots[c * LANES + lane]
    for c in range(EDGE):
        for r in range(c + 1):
            for lane in range(LANES):
                panel[(c * EDGE + r) * LANES + lane] = 1.0 if r == c else 0.0


@njit(nogil=True, cache=True)
def _scaled_row(row, panels, pivots, j, reach):  # type: ignore[no-untyped-def]
    """Blocks L_jK D_K of K = j - reach .. j - 1, as [K][row][column] = [K][k][c], into `row`."""
    size = (reach + 1) * BLOCK
    for n in range(reach):
        source = (n + j) * size + (reach - n) * BLOCK
        for k in range(EDGE):
            pivot = (n + j) * EDGE * LANES + k * LANES
            for c in range(EDGE):
                place = (k * EDGE + c) * LANES
                for lane in range(LANES):
                    row[n * BLOCK + place + lane] = panels[source + place + lane] * pivots[pivot + lane]


@njit(nogil=True, cache=True)
def factor(panels, pivots, row, blocks, shift):  # type: ignore[no-untyped-def]
    """L D L^T of S + t I: panels and pivots are filled; blocks: (count, reach + 1, 16), the panels of S."""
    count, reach = blocks.shape[0], blocks.shape[1] - 1
    size = (reach + 1) * BLOCK
    panels[:reach * size] = 0.0
    panels[(reach + count) * size:] = 0.0
    pivots[:reach * EDGE * LANES] = 1.0
    for j in range(count):
        panel = panels[(reach + j) * size:(reach + j + 1) * size]
        _spread(panel, blocks[j], shift)
        _scaled_row(row, panels, pivots, j, reach)
        for i in range(reach):
            first = (i + j) * size + reach * BLOCK
            _subtract_products(panel, i * BLOCK, panels, first, size - BLOCK, row, i * BLOCK, reach - i, 0)
        _finish_panel(panel, pivots[(reach + j) * EDGE * LANES:], reach)
