"""CPU kernels: what eliminating one fibre does to its neighbours, four fibres at a time (the lanes of every vector).

Eliminating fibre j takes U = G A_jj^-1 G^T from the block of a fibre i that it is coupled to by G = A_ij. Of
U, `half` diagonals are wanted. They ask for the inverse's entries within 2 hw + half of its diagonal, which the
recursion of Takahashi, Fagan & Chin (1973) gives exactly, beyond the band of the factor too; nothing else is cut.

The rows of four fibres are interleaved, a tile of wavelengths at a time, so that every sum runs in four lanes
over aligned vectors, in an order that does not depend on which fibres share a vector.
"""
from functools import cache
from typing import Any

import numpy as np
from numba import njit, types

from gpu_extract.backend.cpu_banded import aligned
from gpu_extract.backend.emit import Emit, all_literal, call, literal, written_out

LANES = 4
TILE = 64
AT_ONCE = 8        # sums that are written out side by side, so that none waits for its own last product
TINY = 1e-15       # of a bin's own diagonal: smaller pivots are rounding, the bin is decoupled


@written_out
def _interleave(typingctx, out, place, array, a, b, c, d):  # type: ignore[no-untyped-def]
    """Elements a .. a + 3, b .. b + 3, ... of a flat array, interleaved, to out[place .. place + 15]."""
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        e = Emit(context, builder, LANES)
        target = e.pointer(signature.args[0], args[0], args[1])
        rows = [e.load(e.pointer(signature.args[2], args[2], index), 0) for index in args[3:]]
        for n, row in enumerate(e.transpose4(rows)):
            e.store(target, n * LANES, row)
        return context.get_dummy_value()
    return types.void(out, types.intp, array, *[types.intp] * 4), codegen


@njit(nogil=True, cache=True)
def _gather(out, icov, bases, rows, width):  # type: ignore[no-untyped-def]
    """Rows rows[0] .. rows[1] - 1 of four blocks of icov that start at `bases`, interleaved; 0 outside 0 .. rows[2]."""
    first, last = max(rows[0], 0), min(rows[1], rows[2])
    start = (first - rows[0]) * width * LANES
    out[:start] = 0.0
    count = max(last - first, 0) * width
    a, b, c, d = bases[0] + first * width, bases[1] + first * width, bases[2] + first * width, bases[3] + first * width
    whole = count // LANES * LANES
    for n in range(0, whole, LANES):
        _interleave(out, start + n * LANES, icov, a + n, b + n, c + n, d + n)
    for n in range(whole, count):
        place = start + n * LANES
        out[place], out[place + 1], out[place + 2], out[place + 3] = icov[a + n], icov[b + n], icov[c + n], icov[d + n]
    out[start + count * LANES:(rows[1] - rows[0]) * width * LANES] = 0.0


@written_out
def _factor(typingctx, low, row, block, entry, hw):  # type: ignore[no-untyped-def]
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
def _invert(typingctx, inverse, place, low, row, hw, wide):  # type: ignore[no-untyped-def]
    """Row of the inverse, z_0 .. z_wide of every lane, from the rows after it (which follow in memory)."""
    if not all_literal(hw, wide):
        return None
    h, w = literal(hw), literal(wide)
    stride = (w + 1) * LANES

    def body(e, places):  # type: ignore[no-untyped-def]
        target, given = places
        minus = [e.negative(e.load(given, b * LANES)) for b in range(h + 1)]
        first = e.divide(e.one, e.load(given, 0))
        for a in range(w, 0, -1):
            total = e.zero
            for b in range(h, 0, -1):
                total = e.fma(minus[b], e.load(target, min(a, b) * stride + abs(a - b) * LANES), total)
            e.store(target, a * LANES, total)
            if a <= h:
                first = e.fma(minus[a], total, first)
        e.store(target, 0, first)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        e = Emit(context, builder, LANES)
        places = e.pointer(inverse, args[0], args[1]), e.pointer(low, args[2], args[3])
        return call(context, builder, f"invert_{h}_{w}", places, body, LANES)
    return types.void(inverse, types.intp, low, types.intp, hw, wide), codegen


def _couple_body(h: int, w: int, up: bool) -> Any:
    """The code of `_couple`: (out, out's step between lanes, block, inverse)."""
    width, stride = 2 * h + 1, (2 * h + w + 1) * LANES

    def position(a: int, k: int) -> int:
        return (((a + k) * width + h - k) if up else (a * width + h + k)) * LANES

    def body(e, places):  # type: ignore[no-untyped-def]
        target, step, given, z = places
        g = {k: e.load(given, position(0, k)) for k in range(-h, h + 1)}
        u = [e.zero] * (-(-(w + 1) // LANES) * LANES)
        for first in range(-h, h + w + 1, AT_ONCE):
            totals = dict.fromkeys(range(first, min(first + AT_ONCE, h + w + 1)), e.zero)
            for k in range(-h, h + 1):
                for s in totals:
                    known = e.load(z, (h + min(k, s)) * stride + abs(k - s) * LANES)
                    totals[s] = e.fma(g[k], known, totals[s])
            for s, total in totals.items():
                for a in range(max(0, s - h), min(w, s + h) + 1):
                    u[a] = e.fma(total, e.load(given, position(a, s - a)), u[a])
        rows = [e.transpose4(u[n:n + LANES]) for n in range(0, len(u), LANES)]
        for lane in range(LANES):
            for n, four in enumerate(rows):
                e.store(target, n * LANES, four[lane])
            target = e.builder.gep(target, [step])
    return body


@written_out
def _couple(typingctx, out, place, step, block, row, inverse, known, hw, half, up):  # type: ignore[no-untyped-def]
    """Row p of U = G Z G^T, diagonals 0 .. half, for four fibres, each to its own place (place + lane * step).

    block[row ..]: row p of the interleaved couplings, as icov has them: G[p, p + k] is element hw + k of row p,
    or, where `up` is 1, element hw - k of row p + k; inverse[known ..]: row p - hw of Z.
    """
    if not all_literal(hw, half, up):
        return None
    h, w, turned = literal(hw), literal(half), literal(up)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        e = Emit(context, builder, LANES)
        places = (e.pointer(out, args[0], args[1]), args[2], e.pointer(block, args[3], args[4]),
                  e.pointer(inverse, args[5], args[6]))
        return call(context, builder, f"couple_{h}_{w}_{turned}", places, _couple_body(h, w, bool(turned)), LANES)
    kinds = out, types.intp, types.intp, block, types.intp, inverse, types.intp, hw, half, up
    return types.void(*kinds), codegen


def padded(half: int) -> int:
    """Elements of a row of U: half + 1, rounded up to whole vectors."""
    return -(-(half + 1) // LANES) * LANES


def coupling_work(nwave: int, hw: int, half: int, distances: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Work arrays of the kernel `coupling`."""
    row, known = (hw + 1) * LANES, (2 * hw + half + 1) * LANES
    block = (TILE + 2 * hw + half) * (2 * hw + 1) * LANES
    return aligned((hw + nwave) * row), aligned((TILE + 2 * hw) * known), aligned(distances * block)


@cache
def coupling(hw: int, half: int) -> Any:
    """The kernel for a half-band hw of icov and `half` diagonals of U.

    kernel(out, icov, fibres, distances, *coupling_work):
    fibres: (a multiple of LANES,) int64; distances: (ndistance,) int64, none of them 0
    out: (len(fibres), ndistance, nwave, padded(half)), filled: out[n, e] is the U that eliminating fibre
    j = fibres[n] takes from fibre j + distances[e]; where that fibre does not exist the values mean nothing
    """
    width, wide = 2 * hw + 1, 2 * hw + half
    row, known = (hw + 1) * LANES, (wide + 1) * LANES
    reach = TILE + 2 * hw + half

    @njit(nogil=True, cache=True)
    def kernel(out, icov, fibres, distances, low, inverse, blocks):  # type: ignore[no-untyped-def]
        nd, nwave = icov.shape[1], icov.shape[2]
        flat, target = icov.reshape(-1), out.reshape(-1)
        block = reach * width * LANES
        bases = np.empty((len(distances) + 1, LANES), dtype=np.int64)
        for n in range(0, len(fibres), LANES):
            for lane in range(LANES):
                j = fibres[n + lane]
                bases[-1, lane] = j * nd * nwave * width
                for e in range(len(distances)):
                    d = distances[e]
                    bases[e, lane] = (max(j + min(d, 0), 0) * nd + abs(d)) * nwave * width
            low[:hw * row] = 0.0
            for j in range(hw):
                low[j * row:j * row + LANES] = 1.0
            for first in range(0, nwave, TILE):
                last = min(first + TILE, nwave)
                _gather(blocks, flat, bases[-1], (first, last, nwave), width)
                for j in range(first, last):
                    _factor(low, (hw + j) * row, blocks, ((j - first) * width + hw) * LANES, hw)
            inverse[:] = 0.0
            for j in range(nwave - 1, nwave - 1 - hw, -1):
                _invert(inverse, (TILE + hw + j - nwave) * known, low, (hw + j) * row, hw, wide)
            for last in range(nwave, 0, -TILE):
                first = max(last - TILE, 0)
                for e in range(len(distances)):
                    rows = first - hw, last + hw + half, nwave
                    _gather(blocks[e * block:(e + 1) * block], flat, bases[e], rows, width)
                for p in range(last - 1, first - 1, -1):
                    z = (TILE + p - last) * known
                    _invert(inverse, z, low, p * row, hw, wide)
                    for e in range(len(distances)):
                        place = ((n * len(distances) + e) * nwave + p) * out.shape[3]
                        step = len(distances) * nwave * out.shape[3]
                        given = e * block + (p - first + hw) * width * LANES
                        if distances[e] > 0:
                            _couple(target, place, step, blocks, given, inverse, z, hw, half, 1)
                        else:
                            _couple(target, place, step, blocks, given, inverse, z, hw, half, 0)
                inverse[TILE * known:] = inverse[:2 * hw * known]
    return kernel
