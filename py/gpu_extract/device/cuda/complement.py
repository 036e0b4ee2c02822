"""Kernels: the Schur complements of the fibres of a piece, from what the others take.

S = A - U and U are rows of `reach + 1` elements, `reach` the widest half-band that is tried; a narrower one, `half`, is
their beginning. Fibres take part where `gate` is `wanted`, all where that is 0.
"""
# mypy: disallow-untyped-defs=False
import math

from numba import njit

from gpu_extract.device.cuda.eliminate import STRETCHES, passes, share_at, stretch_of
from gpu_extract.device.cuda.kernels import kernel
from gpu_extract.device.cuda.measure import ALIVE, BOUND, FIRST_GAMMA, FIRST_THETA, LOST, WIDTH


@kernel("f8[1] f8[1] f8[1] f8[1] f8[1] i4[1] i8 i8 i8 i8 i8 i8 i8")
def schur(n, band, taken, blocks, shares, far, gate, wanted, farther, nwave, hw, half, reach, lanes):
    """U and S = A - U from the shares of both sides, and of farther fibres where there are any; a lane a bin."""
    i, p = n % lanes, n // lanes
    if not passes(gate, i, wanted):
        return
    for a in range(half + 1):
        u = shares[share_at(a, 0, p, i, nwave, lanes)] + shares[share_at(a, 1, p, i, nwave, lanes)]
        place = (p * (reach + 1) + a) * lanes + i
        if farther > 0:
            u += far[place]
        taken[place] = u
        band[place] = (blocks[(p * (2 * hw + 1) + hw + a) * lanes + i] if a <= hw else 0.0) - u


@kernel("f8[1] f8[1] i4[1] i8 i8 i8 i8 i8 i8")
def gather(n, far, shares, gate, wanted, first, nwave, half, reach, lanes):
    """far: the shares of fibres farther than the next, added up distance by distance; a lane for every bin."""
    i, p = n % lanes, n // lanes
    if not passes(gate, i, wanted):
        return
    for a in range(half + 1):
        both = shares[share_at(a, 0, p, i, nwave, lanes)] + shares[share_at(a, 1, p, i, nwave, lanes)]
        place = (p * (reach + 1) + a) * lanes + i
        far[place] = both if first > 0 else far[place] + both


@kernel("f8[1] f8[1] f8[1] i4[1] i8 i8 i8 i8 i8")
def tops(n, tops, band, sides, gate, wanted, nwave, half, reach, lanes):
    """The largest element of every diagonal of S, infinite where one is not finite, and behind them 1 where a bin has
    weight: rows of half + 2 for every stretch, a lane for every element."""
    m, part = n % ((half + 2) * lanes), n // ((half + 2) * lanes)
    if not passes(gate, m % lanes, wanted):
        return
    first, last = stretch_of(part, nwave)
    top = 0.0
    if m < (half + 1) * lanes:
        for j in range(first, last):
            value = abs(band[j * (reach + 1) * lanes + m])
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


@kernel("f8[1] i4[1] f8[1] i4[1] i8 i8 i8")
def bound(i, facts, flags, tops, gate, wanted, half, lanes):
    """A bound on the largest eigenvalue of S; of all fibres also which have any bin of weight; a lane a fibre."""
    if not passes(gate, i, wanted):
        return
    total = _of_all(tops, 0, i, half, lanes)
    for a in range(1, half + 1):
        total += 2.0 * _of_all(tops, a, i, half, lanes)
    facts[BOUND * lanes + i] = total
    if wanted == 0:
        flags[ALIVE * lanes + i] = int(_of_all(tops, half + 1, i, half, lanes) > 0.0)
        flags[WIDTH * lanes + i] = flags[LOST * lanes + i] = 0
        facts[FIRST_THETA * lanes + i], facts[FIRST_GAMMA * lanes + i] = 0.0, 1.0     # of who is not alive for good


@kernel("f8[1] f8[1] f8[1] i8 i8")
def decouple(n, band, facts, roots, reach, lanes):
    """Bins of weight 0 get the bound on the diagonal of S; a lane for every bin."""
    i, p = n % lanes, n // lanes
    if roots[n] == 0.0:
        band[p * (reach + 1) * lanes + i] = facts[BOUND * lanes + i]
