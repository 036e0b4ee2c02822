"""CPU kernels: assembling a fibre's Schur complement, and what its definiteness says about it.

A matrix is positive definite exactly when all pivots of its L D L^T are positive. Eight matrices
S + b U - c I - g diag(S) are factorised at once (the lanes of a vector), where S is the Schur complement and U
what the neighbours took from it. b = g = 0 tells whether the spectrum lies above c; c = g = 0 and b = 1 - 1/theta
whether U < theta (S + U), the size of the coupling in the fibre's own norm; b = c = 0 whether S > g diag(S).
"""
import math
from functools import cache
from typing import Any

import numpy as np
from numba import njit, types

from gpu_extract.backend.emit import Emit, all_literal, call, literal, written_out

LANES = 8
BLOCK = 56         # rows of the ring of factors


@njit(nogil=True, cache=True, error_model="numpy")
def assemble(band, taken, icov, fibre, left, right):  # type: ignore[no-untyped-def]
    """S and U of one fibre; returns a bound on the largest eigenvalue of S, infinite where S is not finite.

    band, taken: (nwave, half + 1), filled: [j, a] = S[j, j + a], U[j, j + a]
    icov: as in data.Normal; left, right: (nwave, half + 1 or more), what fibres on both sides take: U is their sum
    A bin of weight 0 is decoupled: its diagonal is the bound.
    """
    nwave, width = icov.shape[2], icov.shape[3]
    hw, half = width // 2, band.shape[1] - 1
    inner = min(hw, half)
    top, everything = np.zeros(half + 1), 0.0
    for j in range(nwave):
        given, first, second, u, s = icov[fibre, 0, j, hw:], left[j], right[j], taken[j], band[j]
        for a in range(half + 1):
            u[a] = first[a] + second[a]
            s[a] = -u[a]
        for a in range(inner + 1):
            s[a] = given[a] - u[a]
        for a in range(half + 1):
            value = abs(s[a])
            top[a] = value if value > top[a] else top[a]
            everything += value
    bound = 2.0 * np.sum(top) - top[0] if everything < np.inf else np.inf
    for j in range(nwave):
        if icov[fibre, 0, j, hw] == 0.0:
            band[j, 0] = bound
    return bound


@written_out
def _pivot(typingctx, ring, row, band, entry, taken, values, half):  # type: ignore[no-untyped-def]
    """Row `row` of the eight factorisations; values: b, c, 1 - g, flags (1.0 while pivots are positive)."""
    if not all_literal(half):
        return None
    h, stride = literal(half), (literal(half) + 1) * LANES

    def body(e, places):  # type: ignore[no-untyped-def]
        here, s, u, given = places
        b, flags = e.load(given, 0), e.load(given, 3 * LANES)
        c = [e.fma(b, e.spread(u, a), e.spread(s, a)) for a in range(1, h + 1)]
        rest = e.fma(b, e.spread(u, 0), e.negative(e.load(given, LANES)))
        c.insert(0, e.fma(e.load(given, 2 * LANES), e.spread(s, 0), rest))
        for n in range(h, 0, -1):
            factor = e.load(here, -n * stride + n * LANES)
            scaled = e.negative(e.multiply(factor, e.load(here, -n * stride)))
            for a in range(h + 1 - n):
                c[a] = e.fma(scaled, e.load(here, -n * stride + (a + n) * LANES), c[a])
        inverse = e.divide(e.one, c[0])
        e.store(here, 0, c[0])
        for a in range(1, h + 1):
            e.store(here, a * LANES, e.multiply(c[a], inverse))
        e.store(given, 3 * LANES, e.where_positive(c[0], flags, e.zero))

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        e = Emit(context, builder, LANES)
        start = context.get_constant(types.intp, 0)
        places = (e.pointer(ring, args[0], args[1]), e.pointer(band, args[2], args[3]),
                  e.pointer(taken, args[4], args[3]), e.pointer(values, args[5], start))
        return call(context, builder, f"pivot_{h}", places, body, LANES)
    return types.void(ring, types.intp, band, types.intp, taken, values, half), codegen


@cache
def definite(half: int) -> Any:
    """The kernel kernel(values, ring, band, taken) for a half-band.

    values: (4 LANES,) b, c, 1 - g and flags; a flag becomes 1 where the matrix is positive definite, else 0
    ring: (ring_size(half),); like values it starts on a cache line
    """
    @njit(nogil=True, cache=True, error_model="numpy")
    def kernel(values, ring, band, taken):  # type: ignore[no-untyped-def]
        stride = (half + 1) * LANES
        ring[:half * stride] = 0.0
        values[3 * LANES:] = 1.0
        for first in range(0, len(band), BLOCK):
            last = min(first + BLOCK, len(band))
            for j in range(first, last):
                _pivot(ring, (half + j - first) * stride, band, j * (half + 1), taken, values, half)
            for n in range(half * stride):
                ring[n] = ring[(last - first) * stride + n]
    return kernel


def ring_size(half: int) -> int:
    """Elements of the work array of `definite`."""
    return (half + BLOCK) * (half + 1) * LANES


@njit(nogil=True, cache=True, error_model="numpy")
def largest_coupling(icov, fibre, distance, roots):  # type: ignore[no-untyped-def]
    """A bound on the row sums of |A_ij| / sqrt(A_ii A_jj), j = fibre + distance: width times the largest element.

    roots: (nfibre, nwave + 2 hw), 1 / sqrt of the diagonals, with hw zeros at both ends (0 where the diagonal is)
    """
    nwave, width = icov.shape[2], icov.shape[3]
    hw = width // 2
    top = np.zeros(width)
    own, other = roots[fibre, hw:], roots[fibre + distance]
    for j in range(nwave):
        row, near, scale = icov[fibre, distance, j], other[j:j + width], own[j]
        for k in range(width):
            value = abs(row[k]) * (near[k] * scale)
            top[k] = value if value > top[k] else top[k]
    return width * top.max()


@njit(nogil=True, cache=True, error_model="numpy")
def last_diagonal(taken, roots):  # type: ignore[no-untyped-def]
    """Largest |U[j, j + half]| in units of the diagonals of icov; roots: as in largest_coupling, of the fibre."""
    nwave, half = len(taken), taken.shape[1] - 1
    hw = (len(roots) - nwave) // 2
    top = 0.0
    for j in range(nwave - half):
        value = abs(taken[j, half]) * (roots[hw + j] * roots[hw + j + half])
        top = value if value > top else top
    return top


@njit(nogil=True, cache=True, error_model="numpy")
def inverse_roots(roots, icov):  # type: ignore[no-untyped-def]
    """roots[i, hw + j] = 1 / sqrt of the diagonal of icov, 0 where that is 0 and in hw bins at both ends."""
    nwave, hw = icov.shape[2], icov.shape[3] // 2
    roots[:] = 0.0
    for i in range(icov.shape[0]):
        for j in range(nwave):
            value = icov[i, 0, j, hw]
            roots[i, hw + j] = 1.0 / math.sqrt(value) if value > 0.0 else 0.0


@njit(nogil=True, cache=True, error_model="numpy")
def foresee(rest, band, taken, x, bright):  # type: ignore[no-untyped-def]
    """What a fibre's flux will be off by, in sigma, for what its band cuts off, and how much of it is signal.

    rest: (nwave,), -U x, becomes E x, E = S - band; band, taken: the bands of S and U; x: (nwave,)
    Returns the largest |E x| / (2 q), where q^2 are the rows of S summed with alternating signs, its smallest
    eigenvalues; and the share of bins whose S x is above `bright` times the root of the row's sum.
    """
    nwave, half = len(band), band.shape[1] - 1
    alternating, total, product = np.zeros(nwave + half), np.zeros(nwave + half), np.zeros(nwave + half)
    moved = np.zeros(nwave + half)
    padded = np.zeros(nwave + half)
    padded[:nwave] = x
    for j in range(nwave):
        row, cut, near, value = band[j], taken[j], padded[j:], x[j]
        plus = minus = given = own = 0.0
        for a in range(0, half + 1, 2):
            plus += row[a]
        for a in range(1, half + 1, 2):
            minus += row[a]
        for a in range(1, half + 1):
            given += row[a] * near[a]
            own += cut[a] * near[a]
            total[j + a] += row[a]
            product[j + a] += row[a] * value
            moved[j + a] += cut[a] * value
        for a in range(1, half + 1, 2):
            alternating[j + a] -= row[a]
        for a in range(2, half + 1, 2):
            alternating[j + a] += row[a]
        alternating[j] += plus - minus
        total[j] += plus + minus
        product[j] += row[0] * value + given
        moved[j] += cut[0] * value + own
    shift, signal = 0.0, 0
    for j in range(nwave):
        rest[j] += moved[j]
        least = max(alternating[j], 4e-4 * abs(total[j]))
        shift = max(shift, rest[j] * rest[j] / least if least > 0.0 else 0.0)
        signal += product[j] * product[j] > bright * bright * abs(total[j])
    return 0.5 * math.sqrt(shift), signal / nwave
