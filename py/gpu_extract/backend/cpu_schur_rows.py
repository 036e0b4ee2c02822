"""Rows of the elimination of four fibres at once, written out: factor, inverse, solutions and products of one bin.

All work on places in arrays, given as pairs (array, first element); a vector holds one number of four fibres.
"""
from typing import Any

from numba import types

from gpu_extract.backend.emit import Emit, all_literal, call, literal, written_out

LANES = 4
TINY = 1e-15       # of a bin's own diagonal: smaller pivots are rounding, the bin is decoupled
AT_ONCE = 10       # sums that are written out side by side, so that none waits for its own last product


@written_out
def interleave(typingctx, out, place, array, a, b, c, d):  # type: ignore[no-untyped-def]
    """Elements a .. a + 3, b .. b + 3, ... of a flat array, interleaved, to out[place .. place + 15]."""
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        e = Emit(context, builder, LANES)
        target = e.pointer(signature.args[0], args[0], args[1])
        rows = [e.load(e.pointer(signature.args[2], args[2], index), 0) for index in args[3:]]
        for n, row in enumerate(e.transpose4(rows)):
            e.store(target, n * LANES, row)
        return context.get_dummy_value()
    return types.void(out, types.intp, array, *[types.intp] * 4), codegen


@written_out
def factor(typingctx, low, row, block, entry, hw):  # type: ignore[no-untyped-def]
    """Row `row` of L D L^T: D, l_1 .. l_hw of every lane; block[entry ..]: the diagonal and what is right of it."""
    if not all_literal(hw):
        return None
    h, stride = literal(hw), (literal(hw) + 1) * LANES

    def body(e, places):  # type: ignore[no-untyped-def]
        here, given = places
        c = [e.load(given, a * LANES) for a in range(h + 1)]
        c[0] = scale = e.where_positive(c[0], c[0], e.one)
        for b in range(h, 0, -1):
            factor = e.load(here, -b * stride + b * LANES)
            scaled = e.negative(e.multiply(factor, e.load(here, -b * stride)))
            for a in range(h + 1 - b):
                c[a] = e.fma(scaled, e.load(here, -b * stride + (a + b) * LANES), c[a])
        c[0] = e.where_positive(e.fma(e.constant(-TINY), scale, c[0]), c[0], scale)
        inverse = e.divide(e.one, c[0])
        e.store(here, 0, c[0])
        for a in range(1, h + 1):
            e.store(here, a * LANES, e.multiply(c[a], inverse))

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        e = Emit(context, builder, LANES)
        places = e.pointer(low, args[0], args[1]), e.pointer(block, args[2], args[3])
        return call(context, builder, f"factor_{h}", places, body, LANES)
    return types.void(low, types.intp, block, types.intp, hw), codegen


@written_out
def invert(typingctx, inverse, place, low, row, hw, wide):  # type: ignore[no-untyped-def]
    """Row of the inverse, z_0 .. z_wide of every lane, from the rows after it (which follow in memory)."""
    if not all_literal(hw, wide):
        return None
    h, w = literal(hw), literal(wide)
    stride = (w + 1) * LANES

    def body(e, places):  # type: ignore[no-untyped-def]
        target, given = places
        minus = [e.negative(e.load(given, b * LANES)) for b in range(h + 1)]
        first = e.divide(e.one, e.load(given, 0))
        for last in range(w, 0, -AT_ONCE):
            totals = dict.fromkeys(range(last, max(last - AT_ONCE, 0), -1), e.zero)
            for b in range(h, 0, -1):
                for a in totals:
                    totals[a] = e.fma(minus[b], e.load(target, min(a, b) * stride + abs(a - b) * LANES), totals[a])
            for a, total in totals.items():
                e.store(target, a * LANES, total)
                if a <= h:
                    first = e.fma(minus[a], total, first)
        e.store(target, 0, first)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        e = Emit(context, builder, LANES)
        places = e.pointer(inverse, args[0], args[1]), e.pointer(low, args[2], args[3])
        return call(context, builder, f"invert_{h}_{w}", places, body, LANES)
    return types.void(inverse, types.intp, low, types.intp, hw, wide), codegen


def _position(h: int, up: bool) -> Any:
    """Place of G[p + a, p + a + k] relative to row p of a gathered block (see `couple`), as a function of a and k."""
    width = 2 * h + 1
    if up:
        return lambda a, k: ((a + k) * width + h - k) * LANES
    return lambda a, k: (a * width + h + k) * LANES


def _product_body(h: int, w: int, first: int) -> Any:
    """Part of two rows of G Z, of the fibres below and above: (two blocks, inverse twice, products).

    The inverse is given twice so that LLVM does not keep those of its elements that are used twice: there are more than
    registers.
    """
    stride, positions = (2 * h + w + 1) * LANES, (_position(h, False), _position(h, True))
    sums = range(first, min(first + AT_ONCE, h + w + 1))

    def body(e, places):  # type: ignore[no-untyped-def]
        blocks, inverses, products = places[:2], places[2:4], places[4]
        totals = [dict.fromkeys(sums, e.zero) for _ in blocks]
        for k in range(-h, h + 1):
            g = [e.load(given, position(0, k)) for given, position in zip(blocks, positions, strict=True)]
            for s in sums:
                known = e.load(inverses[k < s], (h + min(k, s)) * stride + abs(k - s) * LANES)
                for factor, total in zip(g, totals, strict=True):
                    total[s] = e.fma(factor, known, total[s])
        for n, total in enumerate(totals):
            for s, value in total.items():
                e.store(products, (n * (2 * h + w + 1) + h + s) * LANES, value)
    return body


def _couple_body(h: int, w: int, up: int) -> Any:
    """U from a row of G Z: (out, out's step between lanes, block, products)."""
    position = _position(h, bool(up))

    def body(e, places):  # type: ignore[no-untyped-def]
        target, step, given, products = places
        u = [e.zero] * (-(-(w + 1) // LANES) * LANES)
        for s in range(-h, h + w + 1):
            total = e.load(products, (up * (2 * h + w + 1) + h + s) * LANES)
            for a in range(max(0, s - h), min(w, s + h) + 1):
                u[a] = e.fma(total, e.load(given, position(a, s - a)), u[a])
        rows = [e.transpose4(u[n:n + LANES]) for n in range(0, len(u), LANES)]
        for lane in range(LANES):
            for n, four in enumerate(rows):
                e.store(target, n * LANES, four[lane])
            target = e.builder.gep(target, [step])
    return body


@written_out
def couple(typingctx, out, place, above, step, block, row, other, inverse, known, hw, half):  # type: ignore[no-untyped-def]
    """Row p of U = G Z G^T, diagonals 0 .. half, of four fibres, with G of the fibres below and G of those above.

    out: U to place + lane * step, with the fibres above to above + lane * step
    block[row ..]: row p of the interleaved couplings, as icov has them, with the fibres below: G[p, p + k] is element
    hw + k of row p; block[other ..], with those above: element hw - k of row p + k
    inverse[known ..]: row p - hw of Z.
    """
    if not all_literal(hw, half):
        return None
    h, w = literal(hw), literal(half)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        e = Emit(context, builder, LANES)
        targets = [e.pointer(out, args[0], args[n]) for n in (1, 2)]
        blocks = [e.pointer(block, args[4], args[n]) for n in (5, 6)]
        z = e.pointer(inverse, args[7], args[8])
        products = e.scratch(2 * (2 * h + w + 1))
        for first in range(-h, h + w + 1, AT_ONCE):
            places = *blocks, z, z, products
            call(context, builder, f"product_{h}_{w}_{first + h}", places, _product_body(h, w, first), LANES)
        for up in (0, 1):
            places = targets[up], args[3], blocks[up], products
            call(context, builder, f"couple_{h}_{w}_{up}", places, _couple_body(h, w, up), LANES)
        return context.get_dummy_value()
    index = types.intp
    return types.void(out, index, index, index, block, index, index, inverse, index, hw, half), codegen


def _dot_body(h: int, up: bool) -> Any:
    """sum_k block(0, k) x_k: (out, block, x), k = -h .. h; x and out hold one vector per bin."""
    position = _position(h, up)

    def body(e, places):  # type: ignore[no-untyped-def]
        target, given, x = places
        sums = [e.zero] * 3
        for n, k in enumerate(range(-h, h + 1)):
            sums[n % 3] = e.fma(e.load(given, position(0, k)), e.load(x, k * LANES), sums[n % 3])
        e.store(target, 0, e.add(e.add(sums[0], sums[1]), sums[2]))
    return body


@written_out
def dot(typingctx, out, place, block, row, x, here, hw, up):  # type: ignore[no-untyped-def]
    """out = sum_k G[p, p + k] x[p + k] of a row p (see `couple`): four fibres."""
    if not all_literal(hw, up):
        return None
    h, turned = literal(hw), literal(up)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        e = Emit(context, builder, LANES)
        places = e.pointer(out, args[0], args[1]), e.pointer(block, args[2], args[3]), e.pointer(x, args[4], args[5])
        return call(context, builder, f"dot_{h}_{turned}", places, _dot_body(h, bool(turned)), LANES)
    return types.void(out, types.intp, block, types.intp, x, types.intp, hw, up), codegen


@written_out
def forward(typingctx, y, here, low, row, hw):  # type: ignore[no-untyped-def]
    """y[j] -= sum_b l_b[j - b] y[j - b]: forward substitution of four fibres."""
    if not all_literal(hw):
        return None
    h = literal(hw)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        e = Emit(context, builder, LANES)
        target, factor = e.pointer(y, args[0], args[1]), e.pointer(low, args[2], args[3])
        total = e.load(target, 0)
        for b in range(h, 0, -1):
            l = e.negative(e.load(factor, (b - b * (h + 1)) * LANES))
            total = e.fma(l, e.load(target, -b * LANES), total)
        e.store(target, 0, total)
        return context.get_dummy_value()
    return types.void(y, types.intp, low, types.intp, hw), codegen


@written_out
def backward(typingctx, y, here, low, row, hw):  # type: ignore[no-untyped-def]
    """y[j] = y[j] / D[j] - sum_b l_b[j] y[j + b]: back substitution of four fibres."""
    if not all_literal(hw):
        return None
    h = literal(hw)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        e = Emit(context, builder, LANES)
        target, factor = e.pointer(y, args[0], args[1]), e.pointer(low, args[2], args[3])
        total = e.divide(e.load(target, 0), e.load(factor, 0))
        for b in range(h, 0, -1):
            total = e.fma(e.negative(e.load(factor, b * LANES)), e.load(target, b * LANES), total)
        e.store(target, 0, total)
        return context.get_dummy_value()
    return types.void(y, types.intp, low, types.intp, hw), codegen
