"""Kernels: the Schur complements of the fibres of a piece, from what the others take.

S = A - U and U are rows of `half + 1` elements, half the widest that is tried; a narrower band is their beginning.
"""
# mypy: disallow-untyped-defs=False
import math

from numba import cuda, njit

from gpu_extract.device.cuda.eliminate import STRETCHES, stretch_of
from gpu_extract.device.cuda.kernels import kernel
from gpu_extract.device.cuda.measure import ALIVE, BOUND, FIRST_GAMMA, FIRST_THETA, LOST, WIDTH


@njit(cache=True)
def _schur(n, band, taken, blocks, shares, far, farther, nwave, hw, half, lanes):
    i, row = n % lanes, n // lanes
    a, p = row % (half + 1), row // (half + 1)
    given = blocks[(p * (2 * hw + 1) + hw + a) * lanes + i] if a <= hw else 0.0
    u = shares[n] + shares[nwave * (half + 1) * lanes + n]
    if farther > 0:
        u += far[n]
    taken[n] = u
    band[n] = given - u


@kernel("f8[1] f8[1] f8[1] f8[1] f8[1] i8 i8 i8 i8 i8", lane=_schur)
def schur(count, args):
    """U and S = A - U from the shares of both sides, and of farther fibres where there are any; a lane an element."""
    n = cuda.grid(1)
    if n < count:
        _schur(n, *args)


@njit(cache=True)
def _gather(n, far, shares, first, nwave, half, lanes):
    both = shares[n] + shares[nwave * (half + 1) * lanes + n]
    far[n] = both if first > 0 else far[n] + both


@kernel("f8[1] f8[1] i8 i8 i8 i8", lane=_gather)
def gather(count, args):
    """far: the shares of fibres farther than the next, added up distance by distance; a lane for every element."""
    n = cuda.grid(1)
    if n < count:
        _gather(n, *args)


@njit(cache=True)
def _tops(n, tops, band, sides, nwave, half, lanes):
    m, part = n % ((half + 2) * lanes), n // ((half + 2) * lanes)
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


@kernel("f8[1] f8[1] f8[1] i8 i8 i8", lane=_tops)
def tops(count, args):
    """The largest element of every diagonal of S, infinite where one is not finite, and behind them 1 where a bin has
    weight: rows of half + 2 for every stretch, a lane for every element."""
    n = cuda.grid(1)
    if n < count:
        _tops(n, *args)


@njit(cache=True)
def _of_all(tops, a, i, half, lanes):
    top = 0.0
    for part in range(STRETCHES):
        top = max(top, tops[(part * (half + 2) + a) * lanes + i])
    return top


@njit(cache=True)
def _bound(i, facts, flags, tops, first, half, lanes):
    total = _of_all(tops, 0, i, half, lanes)
    for a in range(1, half + 1):
        total += 2.0 * _of_all(tops, a, i, half, lanes)
    facts[BOUND * lanes + i] = total
    if first > 0:
        flags[ALIVE * lanes + i] = int(_of_all(tops, half + 1, i, half, lanes) > 0.0)
        flags[WIDTH * lanes + i] = flags[LOST * lanes + i] = 0
        facts[FIRST_THETA * lanes + i], facts[FIRST_GAMMA * lanes + i] = 0.0, 1.0     # of who is not alive for good


@kernel("f8[1] i4[1] f8[1] i8 i8 i8", lane=_bound)
def bound(count, args):
    """A bound on the largest eigenvalue of S; at first also which fibres have any bin of weight; a lane a fibre."""
    n = cuda.grid(1)
    if n < count:
        _bound(n, *args)


@njit(cache=True)
def _decouple(n, band, facts, roots, half, lanes):
    i, p = n % lanes, n // lanes
    if roots[n] == 0.0:
        band[p * (half + 1) * lanes + i] = facts[BOUND * lanes + i]


@kernel("f8[1] f8[1] f8[1] i8 i8", lane=_decouple)
def decouple(count, args):
    """Bins of weight 0 get the bound on the diagonal of S; a lane for every bin."""
    n = cuda.grid(1)
    if n < count:
        _decouple(n, *args)
