"""Kernels: whether the narrow band holds a fibre, from what was measured (narrow.schur.Neighbours.complement)."""
# mypy: disallow-untyped-defs=False
import math

from numba import njit

from gpu_extract.device.cuda.eliminate import counts
from gpu_extract.device.cuda.kernels import kernel
from gpu_extract.device.cuda.measure import (
    ACTIVE,
    ALIVE,
    COND,
    COUPLING,
    DISTANT,
    EXCESS,
    FAR_THETA,
    FIRST_GAMMA,
    FIRST_THETA,
    GAMMA,
    LOST,
    MOST_COUPLING,
    QUESTIONS,
    RUNG,
    SETS,
    STATUS,
    THETA,
    allowed,
)

GOOD, EMPTY, FAILED = 0, 1, 5      # data.Status
TOLD = 1e8                         # decorrelate.weak.TOLD
WORST = 1e-5                       # a spectrum of the scaled S that is not expected to be worse (narrow.schur)


@kernel("i4[1] f8[1] f8[1] i8 i8 i8")
def look_far(i, flags, sizes, limits, nd, lanes, size):
    """Which fibres have others eliminated that are farther than the next; a lane for every fibre."""
    found = 0
    for d in range(2, nd):
        for side in range(2):
            if counts(side * lanes + i, lanes, d, size, sizes, limits[DISTANT]) >= 0:
                found = 1
    flags[ACTIVE * lanes + i] = found * flags[ALIVE * lanes + i]


@kernel("f8[1] i4[1] f8[1] f8[1] i8 i8")
def learn_far(i, facts, flags, yes, table, beyond, lanes):
    """The coupling to those, squared; a lane for every fibre."""
    theta = 1.0
    if flags[ACTIVE * lanes + i] > 0:
        for q in range(QUESTIONS):
            if yes[((SETS - 1) * QUESTIONS + q) * lanes + i] > 0.0:
                theta = min(theta, table[(beyond * QUESTIONS + q) * 5 + 4])
    facts[FAR_THETA * lanes + i] = theta


@njit(cache=True)
def _farthest(i, sizes, nd, lanes, size):
    top = 0.0
    for d in range(2, nd):
        if i + d < lanes and (i + d) // size == i // size:
            top = max(top, sizes[d * lanes + i])
        if i >= d and (i - d) // size == i // size:
            top = max(top, sizes[d * lanes + i - d])
    return top


@njit(cache=True)
def _far(i, d, gamma, facts, sizes, limits, lanes):
    """A bound on the coupling (not squared) of fibre i with i + d, in the norm of S."""
    value = sizes[abs(d) * lanes + min(i, i + d)]
    if value > limits[DISTANT]:
        return min(math.sqrt(facts[FAR_THETA * lanes + i]), 1.0)
    least = min(gamma, min(facts[FIRST_GAMMA * lanes + i], facts[FIRST_GAMMA * lanes + i + d]))
    return min(value / max(least, 1e-300), 1.0)


@njit(cache=True)
def _higher_orders(i, facts, sizes, limits, nd, lanes, size):
    low, high = max(i - 1, i // size * size), min(i + 1, i // size * size + size - 1)
    theta, longest = 0.0, 0.0
    for near in range(low, high + 1):
        theta = max(theta, facts[FIRST_THETA * lanes + near])
        longest = max(longest, _farthest(near, sizes, nd, lanes, size))
    theta = math.sqrt(facts[THETA * lanes + i] * theta)
    longest /= WORST
    if 6.0 * theta * longest + longest**2 <= 0.1 * limits[COUPLING]:
        return 6.0 * theta * longest + longest**2
    gamma, second, largest = facts[GAMMA * lanes + i], 0.0, 0.0
    for near in range(low, high + 1):
        for d in range(2, nd):
            for signed in (-d, d):
                if 0 <= near + signed < lanes and (near + signed) // size == i // size:
                    value = _far(near, signed, gamma, facts, sizes, limits, lanes)
                    largest = max(largest, value)
                    if near == i and sizes[d * lanes + min(i, i + signed)] <= limits[DISTANT]:
                        second += value**2
    return second + 6.0 * theta * largest


@njit(cache=True)
def _may_be_weak(cond, theta, gamma):
    """narrow.definite.Facts.may_be_weak."""
    return theta >= 1.0 or (gamma == 0.0 and cond > TOLD)


@kernel("f8[1] i4[1] f8[1] f8[1] i8 i8 i8")
def decide(i, facts, flags, sizes, limits, nd, lanes, size):
    """GOOD where the narrow band holds, else EMPTY or FAILED; a lane for every fibre."""
    status = FAILED
    if flags[ALIVE * lanes + i] == 0:
        status = EMPTY
    elif (flags[RUNG * lanes + i] >= 0 and flags[LOST * lanes + i] == 0 and facts[EXCESS * lanes + i] <= 1.0
          and not _may_be_weak(facts[COND * lanes + i], facts[THETA * lanes + i], facts[GAMMA * lanes + i])):
        error = _higher_orders(i, facts, sizes, limits, nd, lanes, size)
        if error <= allowed(limits[COUPLING], limits[MOST_COUPLING], facts[COND * lanes + i]):
            status = GOOD
    flags[STATUS * lanes + i] = status


@kernel("i4[1] f8[2]")
def give_up(i, flags, weight):
    """FAILED for all fibres that have any weight, the others EMPTY; a lane for every fibre."""
    lanes, nwave = weight.shape
    status = EMPTY
    for j in range(nwave):
        if weight[i, j] > 0.0:
            status = FAILED
    flags[STATUS * lanes + i] = status
