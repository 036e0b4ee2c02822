"""CPU kernels: the pole sum of one fibre whose band is wide, eight poles at a time (the lanes of every vector).

What backend.cpu_banded does row by row is done here by blocks of 4 x 4 elements: sixteen sums stay in registers while
a row of blocks is run through, so that a number is loaded for every second multiplication only. S + t I = L D L^T is
made panel by panel, its inverse within the band (Takahashi's recursion, by blocks) in its place on the way back.

A panel is a block column: blocks 0 .. reach below the diagonal, each 16 vectors, column by column: [block][c][r][lane].
Panels of zeros before the first and after the last stand for tests at the ends. Nothing here depends on the band's
width but the counts of loops: one compilation serves all.
"""
import numpy as np
from numba import njit, types

from gpu_extract.backend.cpu_banded import LANES, SIDES
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
def _finish_panel(panel, pivots):  # type: ignore[no-untyped-def]
    """Unit lower L in place, D to pivots ([c][lane]), of a panel from which all earlier ones were subtracted."""
    rows = len(panel) // (EDGE * LANES)
    for c in range(EDGE):
        for m in range(c):
            for r in range(c, rows):
                place, other = (r // EDGE) * BLOCK + (r % EDGE) * LANES, (m * EDGE + c) * LANES
                for lane in range(LANES):
                    product = panel[place + m * EDGE * LANES + lane] * panel[other + lane] * pivots[m * LANES + lane]
                    panel[place + c * EDGE * LANES + lane] -= product
        for lane in range(LANES):
            pivots[c * LANES + lane] = panel[c * (EDGE + 1) * LANES + lane]
        for r in range(c + 1, rows):
            place = (r // EDGE) * BLOCK + (c * EDGE + r % EDGE) * LANES
            for lane in range(LANES):
                panel[place + lane] /= pivots[c * LANES + lane]
    for c in range(EDGE):
        for r in range(c + 1):
            for lane in range(LANES):
                panel[(c * EDGE + r) * LANES + lane] = 1.0 if r == c else 0.0


@njit(nogil=True, cache=True)
def _forward(y, row, low, first, sides):  # type: ignore[no-untyped-def]
    """Forward substitution of one panel's bins; y: [bin][side][lane] from `first` on, divided by D already before it.

    row: the panel's blocks of L D left of the diagonal; low: its diagonal block of L; sides: (4, SIDES) right sides
    """
    reach = len(row) // BLOCK
    size = SIDES * LANES
    for c in range(EDGE):
        target = first + c * size
        for s in range(SIDES):
            for lane in range(LANES):
                y[target + s * LANES + lane] = sides[c, s]
        for k in range(reach * EDGE):
            source, factor = first + (k - reach * EDGE) * size, (k // EDGE) * BLOCK + ((k % EDGE) * EDGE + c) * LANES
            for s in range(SIDES):
                for lane in range(LANES):
                    y[target + s * LANES + lane] -= row[factor + lane] * y[source + s * LANES + lane]
        for m in range(c):
            for s in range(SIDES):
                for lane in range(LANES):
                    product = low[(m * EDGE + c) * LANES + lane] * y[first + m * size + s * LANES + lane]
                    y[target + s * LANES + lane] -= product


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
def _factor(panels, pivots, y, row, blocks, shift, sides):  # type: ignore[no-untyped-def]
    """L D L^T of S + t I and the forward substitution, divided by D."""
    count, reach = blocks.shape[0], blocks.shape[1] - 1
    size, width = (reach + 1) * BLOCK, EDGE * SIDES * LANES
    panels[:reach * size] = 0.0
    panels[(reach + count) * size:] = 0.0
    pivots[:reach * EDGE * LANES] = 1.0
    y[:] = 0.0
    for j in range(count):
        panel = panels[(reach + j) * size:(reach + j + 1) * size]
        own = pivots[(reach + j) * EDGE * LANES:]
        _spread(panel, blocks[j], shift)
        _scaled_row(row, panels, pivots, j, reach)
        for i in range(reach):
            first = (i + j) * size + reach * BLOCK
            _subtract_products(panel, i * BLOCK, panels, first, size - BLOCK, row, i * BLOCK, reach - i, 0)
        _finish_panel(panel, own)
        _forward(y, row, panel, (reach + j) * width, sides[EDGE * j:])
        for c in range(EDGE):
            for s in range(SIDES):
                for lane in range(LANES):
                    y[(reach + j) * width + (c * SIDES + s) * LANES + lane] /= own[c * LANES + lane]


@njit(nogil=True, cache=True)
def _columns(v, panel):  # type: ignore[no-untyped-def]
    """The blocks below the diagonal times the inverse of the diagonal block, L_KJ L_JJ^-1, as [K][row][column]."""
    for n in range(1, len(panel) // BLOCK):
        for r in range(EDGE):
            for c in range(EDGE - 1, -1, -1):
                target = (n - 1) * BLOCK + (r * EDGE + c) * LANES
                for lane in range(LANES):
                    v[target + lane] = panel[n * BLOCK + (c * EDGE + r) * LANES + lane]
                for m in range(c + 1, EDGE):
                    for lane in range(LANES):
                        product = v[target + (m - c) * LANES + lane] * panel[(c * EDGE + m) * LANES + lane]
                        v[target + lane] -= product


@njit(nogil=True, cache=True)
def _invert_corner(corner, low, pivots):  # type: ignore[no-untyped-def]
    """(L D L^T)^-1 of one 4 x 4 block, [c][r]; low: unit lower L, [c][r]."""
    inverse = np.zeros((EDGE, EDGE))
    for lane in range(LANES):
        for c in range(EDGE):
            inverse[c, c] = 1.0
            for r in range(c + 1, EDGE):
                total = 0.0
                for m in range(c, r):
                    total -= low[(m * EDGE + r) * LANES + lane] * inverse[m, c]
                inverse[r, c] = total
        for c in range(EDGE):
            for r in range(EDGE):
                total = 0.0
                for m in range(max(r, c), EDGE):
                    total += inverse[m, r] * inverse[m, c] / pivots[m * LANES + lane]
                corner[(c * EDGE + r) * LANES + lane] = total


@njit(nogil=True, cache=True)
def _backward(y, v, low, first):  # type: ignore[no-untyped-def]
    """Back substitution of one panel's bins: y (divided by D) becomes the solution, from `first` on."""
    size, count = SIDES * LANES, len(v) // (EDGE * LANES)
    for c in range(EDGE - 1, -1, -1):
        for m in range(c + 1, EDGE):
            for s in range(SIDES):
                for lane in range(LANES):
                    product = low[(c * EDGE + m) * LANES + lane] * y[first + m * size + s * LANES + lane]
                    y[first + c * size + s * LANES + lane] -= product
    for c in range(EDGE):
        for k in range(count):
            source, factor = first + (EDGE + k) * size, (k * EDGE + c) * LANES
            for s in range(SIDES):
                for lane in range(LANES):
                    y[first + c * size + s * LANES + lane] -= v[factor + lane] * y[source + s * LANES + lane]


@njit(nogil=True, cache=True)
def _invert_panel(panels, j, v, z, pivots):  # type: ignore[no-untyped-def]
    """Panel j of L becomes that of the inverse; v: see `_columns`; z: work, as large."""
    reach = len(v) // BLOCK
    size = (reach + 1) * BLOCK
    panel = panels[j * size:(j + 1) * size]
    corner = z[:BLOCK]
    _invert_corner(corner, panel, pivots)
    panel[:BLOCK] = corner
    panel[BLOCK:] = 0.0
    for i in range(1, reach + 1):
        left, below = (j + 1) * size + (i - 1) * BLOCK, (j + i) * size + BLOCK
        _subtract_products(panel, i * BLOCK, panels, left, size - BLOCK, v, 0, i, 0)
        _subtract_products(panel, i * BLOCK, panels, below, BLOCK, v, i * BLOCK, reach - i, 1)
        for c in range(EDGE):
            for r in range(EDGE):
                for lane in range(LANES):
                    z[(i - 1) * BLOCK + (r * EDGE + c) * LANES + lane] = panel[i * BLOCK + (c * EDGE + r) * LANES + lane]
    _subtract_products(panel, 0, v, 0, BLOCK, z, 0, reach, 0)


@njit(nogil=True, cache=True)
def _add_up(out, panel, y, weight, ndiag):  # type: ignore[no-untyped-def]
    """Add one panel's bins into `out`, summed over the lanes."""
    for c in range(len(out)):
        for s in range(SIDES):
            for lane in range(LANES):
                out[c, s] += weight[lane] * y[(c * SIDES + s) * LANES + lane]
        for a in range(ndiag + 1):
            place = ((c + a) // EDGE) * BLOCK + (c * EDGE + (c + a) % EDGE) * LANES
            for lane in range(LANES):
                out[c, SIDES + a] += weight[lane] * panel[place + lane]


def work_sizes(count: int, reach: int) -> tuple[int, int, int]:
    """Elements of panels, pivots and solutions for `count` panels."""
    return ((count + 2 * reach) * (reach + 1) * BLOCK, (count + reach) * EDGE * LANES,
            (count + 2 * reach) * EDGE * SIDES * LANES)


@njit(nogil=True, cache=True)
def pole_sum(out, works, blocks, sides, shift, weight):  # type: ignore[no-untyped-def]
    """Add eight poles to `out`, whose columns are those of backend.cpu_banded.pole_sum.

    works: (panels, pivots, solutions, row, v, z): see `work_sizes`, and 3 times reach blocks
    blocks: (count, reach + 1, 16): S by panels, [c][r] each; bins beyond the end decoupled; sides: (4 count, SIDES)
    shift, weight: (LANES,)
    """
    panels, pivots, y, row, v, z = works
    count, reach = blocks.shape[0], blocks.shape[1] - 1
    size, width = (reach + 1) * BLOCK, EDGE * SIDES * LANES
    _factor(panels, pivots, y, row, blocks, shift, sides)
    for j in range(count - 1, -1, -1):
        panel = panels[(reach + j) * size:(reach + j + 1) * size]
        _columns(v, panel)
        _backward(y, v, panel, (reach + j) * width)
        _invert_panel(panels, reach + j, v, z, pivots[(reach + j) * EDGE * LANES:])
        _add_up(out[EDGE * j:EDGE * (j + 1)], panel, y[(reach + j) * width:], weight, out.shape[1] - SIDES - 1)


@njit(nogil=True, cache=True)
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
