"""Kernels: the Schur complements of the fibres of a piece, from what the others take.

S = A - U and U are rows of `half + 1` elements, half the widest that is tried; a narrower band is their beginning.
"""
# mypy: disallow-untyped-defs=False
import math

from numba import njit

from gpu_extract.device.cuda.eliminate import STRETCHES, stands, stretch_of
from gpu_extract.device.cuda.kernels import kernel
from gpu_extract.device.cuda.measure import ALIVE, BOUND, FIRST_GAMMA, FIRST_THETA, LOST, WIDTH


@kernel("f8[1] f8[1] f8[1] f8[1] f8[1] i4[1] i8 i8 i8 i8 i8 i8")
def schur(n, band, taken, blocks, shares, far, depth, first, farther, nwave, hw, half, lanes):
    """U and S = A - U from the shares of both sides, and of farther fibres where there are any; a lane an element."""
    i, row = n % lanes, n // lanes
    if stands(i, depth, first, lanes):
        return
    a, p = row % (half + 1), row // (half + 1)
    given = blocks[(p * (2 * hw + 1) + hw + a) * lanes + i] if a <= hw else 0.0
    u = shares[n] + shares[nwave * (half + 1) * lanes + n]
    if farther > 0:
        u += far[n]
    taken[n] = u
    band[n] = given - u


@kernel("f8[1] f8[1] i8 i8 i8 i8")
def gather(n, far, shares, first, nwave, half, lanes):
    """far: the shares of fibres farther than the next, added up distance by distance; a lane for every element."""
    both = shares[n] + shares[nwave * (half + 1) * lanes + n]
    far[n] = both if first > 0 else far[n] + both


@kernel("f8[1] f8[1] f8[1] i4[1] i8 i8 i8 i8")
def tops(n, tops, band, sides, depth, begin, nwave, half, lanes):
    """The largest element of every diagonal of S, infinite where one is not finite, and behind them 1 where a bin has
    weight: rows of half + 2 for every stretch, a lane for every element."""
    m, part = n % ((half + 2) * lanes), n // ((half + 2) * lanes)
    if stands(m % lanes, depth, begin, lanes):
        return
    first, last = stretch_of(part, nwave)
    top = 0.0
    if m < (half + 1) * lanes:
        for j in range(first, last):
            value = abs(band[j * (half + 1) * lanes + m])
            if not value < math.inf:
                top = math.inf
            top = max(top, value)
    else:
        for j in range(first, last):
            top = max(top, sides[2 * j * lanes + m % lanes])
    tops[n] = top


@njit(cache=True)
def _of_all(tops, a, i, half, lanes):
    top = 0.0
    for part in range(STRETCHES):
        top = max(top, tops[(part * (half + 2) + a) * lanes + i])
    return top


@kernel("f8[1] i4[1] f8[1] i8 i8 i8")
def bound(i, facts, flags, tops, first, half, lanes):
    """A bound on the largest eigenvalue of S; at first also which fibres have any bin of weight; a lane a fibre."""
    total = _of_all(tops, 0, i, half, lanes)
    for a in range(1, half + 1):
        total += 2.0 * _of_all(tops, a, i, half, lanes)
    facts[BOUND * lanes + i] = total
    if first > 0:
        flags[ALIVE * lanes + i] = int(_of_all(tops, half + 1, i, half, lanes) > 0.0)
        flags[WIDTH * lanes + i] = flags[LOST * lanes + i] = 0
        facts[FIRST_THETA * lanes + i], facts[FIRST_GAMMA * lanes + i] = 0.0, 1.0     # of who is not alive for good


@kernel("f8[1] f8[1] f8[1] i8 i8")
def decouple(n, band, facts, roots, half, lanes):
    """Bins of weight 0 get the bound on the diagonal of S; a lane for every bin."""
    i, p = n % lanes, n // lanes
    if roots[n] == 0.0:
        band[p * (half + 1) * lanes + i] = facts[BOUND * lanes + i]
