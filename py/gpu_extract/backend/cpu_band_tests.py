"""CPU kernels: assembling a fibre's Schur complement, and what its definiteness says about it.

A matrix is positive definite exactly when all pivots of its L D L^T are positive. Eight matrices
S + b U - c I - g diag(S) are factorised at once (the lanes of a vector), where S is the Schur complement and U
what the neighbours took from it. b = g = 0 tells whether the spectrum lies above c; c = g = 0 and b = 1 - 1/theta
whether U < theta (S + U), the size of the coupling in the fibre's own norm; b = c = 0 whether S > g diag(S).
"""
from functools import cache
from typing import Any

import numpy as np
from numba import njit, types

from gpu_extract.backend.cpu_banded import finish_row, subtract_before
from gpu_extract.backend.emit import Emit, all_literal, call, literal, written_out
from gpu_extract.backend.simd import (
    address,
    number,
    prefetch,
    vabs,
    vadd,
    vmax,
    vread,
    vread8,
    vset,
    vsub,
    vwrite,
    write,
)

LANES = 8
BLOCK = 56         # rows of the ring of factors
AHEAD = 2048       # bytes that rows are asked for in advance, and twice that of icov's


@njit(nogil=True, error_model="numpy")
def _four(places, a, known):  # type: ignore[no-untyped-def]
    """Four elements of a row of `assemble`, from byte a of the row on; known: whether icov has them."""
    left, right, given, u, s, tops, sums = places
    both = vadd(vread(left + a), vread(right + a))
    rest = vsub(vread(given + a) if known else vset(0.0), both)
    size = vabs(rest)
    vwrite(u + a, both)
    vwrite(s + a, rest)
    vwrite(tops + a, vmax(size, vread(tops + a)))
    vwrite(sums + a, vadd(size, vread(sums + a)))


@njit(nogil=True, error_model="numpy")
def _single(places, a, known):  # type: ignore[no-untyped-def]
    """One element, as in `_four`."""
    left, right, given, u, s, tops, sums = places
    both = number(left + a) + number(right + a)
    rest = (number(given + a) if known else 0.0) - both
    write(u + a, both)
    write(s + a, rest)
    write(tops + a, abs(rest) if abs(rest) > number(tops + a) else number(tops + a))
    write(sums + a, number(sums + a) + abs(rest))


@njit(nogil=True, error_model="numpy")
def _ask(places, last):  # type: ignore[no-untyped-def]
    """Ask for what `assemble` will touch in some rows; last: bytes from the first element of a row to its last."""
    left, right, given, _, s, _, _ = places
    for place in (left + AHEAD, right + AHEAD, given + 2 * AHEAD, s + AHEAD):
        prefetch(place)
        prefetch(place + last)


@njit(nogil=True, cache=True, error_model="numpy")
def assemble(bands, icov, fibre, left, right):  # type: ignore[no-untyped-def]
    """S and U of one fibre; returns a bound on the largest eigenvalue of S, infinite where S is not finite.

    bands: (band, taken, rest), filled. band, taken: (nwave, half + 1), [j, a] = S[j, j + a], U[j, j + a]; rest:
        (nwave,), -U x
    icov: as in data.Normal
    left, right: what fibres on both sides take: (nwave, half + 1 or more), of which U is the sum, and (nwave,), U x
    A bin of weight 0 is decoupled: its diagonal is the bound.
    """
    (band, taken, rest), (left, moved), (right, also_moved) = bands, left, right
    nwave, width, count, dark = icov.shape[2], icov.shape[3], band.shape[1], 0
    known = min(width - width // 2, count)          # elements of a row that icov has
    vectors = known // 4 * 4
    mixed = count if known == count else min(count, -(-known // 4) * 4)
    whole = mixed + (count - mixed) // 4 * 4
    top, total = np.zeros(count), np.zeros(count)
    for j in range(nwave):
        given = address(icov, (fibre * icov.shape[1] * nwave + j) * width + width // 2)
        places = (address(left, j * left.shape[1]), address(right, j * right.shape[1]), given,
                  address(taken, j * count), address(band, j * count), address(top, 0), address(total, 0))
        _ask(places, 8 * (count - 1))
        for a in range(0, vectors, 4):
            _four(places, 8 * a, True)
        for a in range(vectors, mixed):
            _single(places, 8 * a, a < known)
        for a in range(mixed, whole, 4):
            _four(places, 8 * a, False)
        for a in range(whole, count):
            _single(places, 8 * a, False)
        rest[j] = -(moved[j] + also_moved[j])
        dark += 1 if number(given) == 0.0 else 0
    bound = 2.0 * np.sum(top) - top[0] if np.sum(total) < np.inf else np.inf
    if dark > 0:
        for j in range(nwave):
            if icov[fibre, 0, j, width // 2] == 0.0:
                band[j, 0] = bound
    return bound


def _pivots(h: int, rows: int) -> Any:
    """The code of `_pivot`: (ring, band, taken, values), all at the first row."""
    stride = (h + 1) * LANES

    def body(e, places):  # type: ignore[no-untyped-def]
        here, s, u, given = places
        scale, flags = e.load(given, 0), e.load(given, 3 * LANES)
        c = [[e.fma(scale, e.spread(u, n * (h + 1) + a), e.spread(s, n * (h + 1) + a)) for a in range(1, h + 1)]
             for n in range(rows)]
        for n, row in enumerate(c):
            rest = e.fma(scale, e.spread(u, n * (h + 1)), e.negative(e.load(given, LANES)))
            row.insert(0, e.fma(e.load(given, 2 * LANES), e.spread(s, n * (h + 1)), rest))
        for b in range(h, 0, -1):
            subtract_before(e, here, -b * stride, b, c)
        for n in range(rows):
            for a, value in enumerate(finish_row(e, n, c)):
                e.store(here, n * stride + a * LANES, value)
            flags = e.where_positive(c[n][0], flags, e.zero)
        e.store(given, 3 * LANES, flags)
    return body


@written_out
def _pivot(typingctx, ring, row, band, entry, taken, values, half, rows):  # type: ignore[no-untyped-def]
    """`rows` rows from `row` on of the eight factorisations; values: b, c, 1 - g, flags (1.0 while pivots are > 0)."""
    if not all_literal(half, rows):
        return None
    h, count = literal(half), literal(rows)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        e = Emit(context, builder, LANES)
        start = context.get_constant(types.intp, 0)
        places = (e.pointer(ring, args[0], args[1]), e.pointer(band, args[2], args[3]),
                  e.pointer(taken, args[4], args[3]), e.pointer(values, args[5], start))
        return call(context, builder, f"pivot_{h}_{count}", places, _pivots(h, count), LANES)
    return types.void(ring, types.intp, band, types.intp, taken, values, half, rows), codegen


@cache
def definite(half: int) -> Any:
    """The kernel kernel(questions, bound, work, band, taken) for a half-band.

    questions: (3 LANES,) b, c in units of `bound`, and 1 - g; work: (work_size(half),), it starts on a cache line
    Returned is a number whose n-th bit from the lowest on tells whether the n-th matrix is positive definite.
    """
    @njit(nogil=True, cache=True, error_model="numpy")
    def kernel(questions, bound, work, band, taken):  # type: ignore[no-untyped-def]
        values, ring, stride = work[:4 * LANES], work[4 * LANES:], (half + 1) * LANES
        values[:3 * LANES] = questions
        values[LANES:2 * LANES] *= bound
        values[3 * LANES:] = 1.0
        ring[:half * stride] = 0.0
        for first in range(0, len(band), BLOCK):
            last = min(first + BLOCK, len(band))
            for j in range(first, last - 1, 2):
                _pivot(ring, (half + j - first) * stride, band, j * (half + 1), taken, values, half, 2)
            if (last - first) % 2 == 1:
                _pivot(ring, (half + last - 1 - first) * stride, band, (last - 1) * (half + 1), taken, values, half, 1)
            start, end = address(ring, 0), address(ring, (last - first) * stride)
            for n in range(0, 8 * half * stride, 8 * LANES):
                vwrite(start + n, vread8(end + n))
        answers = 0
        for n in range(LANES):
            answers |= int(values[3 * LANES + n] > 0.0) << n
        return answers
    return kernel


def work_size(half: int) -> int:
    """Elements of the work array of `definite`."""
    return 4 * LANES + (half + BLOCK) * (half + 1) * LANES
