"""Kernels: what the definiteness of the fibres' Schur complements says, and in which band each is to be had.

As in narrow.schur a fibre is measured in the narrowest band first, and then in wider ones until what is cut off is
within the limits; here that is one launch after the other, in which fibres that are done return at once.

What is known of a fibre stands in `facts` (numbers) and `flags` (integers), rows of one element for every fibre, whose
numbers are the names below. Limits, questions and poles come as tables (device.device_tables).
"""
# mypy: disallow-untyped-defs=False
import math

from numba import njit

from gpu_extract.decorrelate.narrow.simd_foresee import BRIGHT, LEAST
from gpu_extract.device.cuda.eliminate import WIDER, other
from gpu_extract.device.cuda.kernels import kernel

COND, THETA, GAMMA, FIRST_THETA, FIRST_GAMMA, FAR_THETA, BOUND, EXCESS, ONES, CROSS, BOTH = range(11)
FACTS = 11
ALIVE, ACTIVE, WIDTH, RUNG, STATUS, LOST, WANTED = range(7)
FLAGS = 7
COUPLING, DISTANT, TAIL, SHIFT, NOISY, BRIGHT_SHARE, DECAY, MOST_COUPLING, UNEVEN, UNEVEN_SHIFT = range(10)      # of
LIMITS = 10                                                          # the limits
QUESTIONS = 8                                                        # of a set
SETS = 3                                                             # asked at once: the first, the second, the far one
RATIO, IS_THETA, IS_GAMMA = 0.0, 1.0, 2.0                            # kinds of questions
ASKED = 5                                                            # b, c / bound, 1 - g, kind, value
CHUNK = 16                                                           # bins that one lane looks at
SUMS = 6
EPS = 2.0**-52


@kernel("f8[1] i4[1] i4[1] i8 i8 i8 i8")
def choose(i, facts, flags, depth, width, widest, deepest, lanes):
    """Which fibres are measured in band number `width`: all in the first, then those that want it, the rest in the
    widest; those with more than `deepest` fibres beyond their neighbours are given up; a lane for every fibre."""
    active = flags[ALIVE * lanes + i]
    if width > 0:
        far, wanted = max(depth[i], depth[lanes + i]), flags[WANTED * lanes + i]
        if width == 1:
            flags[LOST * lanes + i] = 1 if far > deepest else 0
            wanted = 1 if far > 0 else wanted
        active = active if wanted == width or (width == widest and wanted > width) else 0
    flags[ACTIVE * lanes + i] = active
    if active > 0:
        flags[WIDTH * lanes + i] = width
        facts[COND * lanes + i] = math.inf
        facts[THETA * lanes + i] = 1.0
        facts[GAMMA * lanes + i] = 0.0


@njit(cache=True)
def _learn_of(i, facts, flags, yes, table, ratios, questions, place, width, lanes):
    if flags[ACTIVE * lanes + i] > 0:
        asked = questions if questions < 2 else questions + flags[RUNG * lanes + i] - 1
        for q in range(QUESTIONS):
            kind, value = table[(asked * QUESTIONS + q) * ASKED + 3], table[(asked * QUESTIONS + q) * ASKED + 4]
            if yes[(place * QUESTIONS + q) * lanes + i] > 0.0:
                if kind == RATIO:
                    facts[COND * lanes + i] = min(facts[COND * lanes + i], value)
                elif kind == IS_THETA:
                    facts[THETA * lanes + i] = min(facts[THETA * lanes + i], value)
                else:
                    facts[GAMMA * lanes + i] = max(facts[GAMMA * lanes + i], value)
    cond = facts[COND * lanes + i]
    rung = -1
    for n in range(len(ratios) - 1, -1, -1):
        if ratios[n] >= cond:
            rung = n
    flags[RUNG * lanes + i] = rung
    active = flags[ALIVE * lanes + i] if flags[WIDTH * lanes + i] == width else 0
    if questions == 0 and cond < math.inf and facts[THETA * lanes + i] < 1.0 and facts[GAMMA * lanes + i] > 0.0:
        active = 0
    if questions == 1 and rung < 1:
        active = 0
    flags[ACTIVE * lanes + i] = active


@kernel("f8[1] i4[1] f8[1] f8[1] f8[1] i8 i8 i8")
def learn(i, facts, flags, yes, table, ratios, between, width, lanes):
    """The answers to the first sets of questions, of which the second counts where the first leaves something open, or
    to that `between`; the rung they tell, and which fibres are asked the next set (after the last one all that were
    measured in band number `width` are active); a lane for every fibre."""
    if between > 0:
        _learn_of(i, facts, flags, yes, table, ratios, 2, 0, width, lanes)
    else:
        _learn_of(i, facts, flags, yes, table, ratios, 0, 0, width, lanes)
        _learn_of(i, facts, flags, yes, table, ratios, 1, 1, width, lanes)


@njit(cache=True)
def product(band, sides, j, i, half, reach, nwave, lanes):
    """Row j of a band matrix, cut after `half` diagonals, times x."""
    total = band[j * (reach + 1) * lanes + i] * sides[(2 * j + 1) * lanes + i]
    for a in range(1, half + 1):
        if j + a < nwave:
            total += band[(j * (reach + 1) + a) * lanes + i] * sides[(2 * (j + a) + 1) * lanes + i]
        if j >= a:
            total += band[((j - a) * (reach + 1) + a) * lanes + i] * sides[(2 * (j - a) + 1) * lanes + i]
    return total


@kernel("f8[1] f8[1] f8[1] f8[1] f8[1] f8[1] i4[1] i8 i8 i8 i8")
def foresee(n, sums, band, taken, ux, sides, roots, flags, half, nwave, reach, lanes):
    """What a band of `half` diagonals would do to a fibre's flux, as narrow.simd_foresee.foresee, and the largest
    element of the last diagonal of U; chunk by chunk: a lane for every chunk."""
    i, c = n % lanes, n // lanes
    if flags[ACTIVE * lanes + i] == 0:
        return
    worst = bright = last = ones = cross = both = 0.0
    for j in range(c * CHUNK, min((c + 1) * CHUNK, nwave)):
        total = alternating = band[j * (reach + 1) * lanes + i]
        for a in range(1, half + 1):
            pair = band[(j * (reach + 1) + a) * lanes + i] if j + a < nwave else 0.0
            pair += band[((j - a) * (reach + 1) + a) * lanes + i] if j >= a else 0.0
            total += pair
            alternating += pair if a % 2 == 0 else -pair
        x, s = sides[(2 * j + 1) * lanes + i], product(band, sides, j, i, half, reach, nwave, lanes)
        left = product(taken, sides, j, i, half, reach, nwave, lanes) - ux[j * lanes + i]
        size = abs(total)
        worst = max(worst, left * left / max(alternating, LEAST * size))
        bright += 1.0 if s * s - BRIGHT**2 * size > 0.0 else 0.0
        ones += total if roots[j * lanes + i] > 0.0 else 0.0
        cross += s
        both += x * s
        if j + half < nwave:
            end = abs(taken[(j * (reach + 1) + half) * lanes + i])
            last = max(last, end * (roots[j * lanes + i] * roots[(j + half) * lanes + i]))
    place = c * SUMS * lanes + i
    sums[place], sums[place + lanes], sums[place + 2 * lanes] = worst, bright, last
    sums[place + 3 * lanes], sums[place + 4 * lanes], sums[place + 5 * lanes] = ones, cross, both


@njit(cache=True)
def allowed(limit, most, cond):
    """A limit, or what rounding leaves where that is more, up to `most`."""
    return max(limit, min(40.0 * EPS * cond, most)) if cond < math.inf else limit


@kernel("f8[1] i4[1] f8[1] f8[1] i8 i8 i8")
def conclude(i, facts, flags, sums, limits, width, nwave, lanes):
    """By how much a band misses the limits, which band is wanted next, and the squares of S; a lane for every fibre."""
    if flags[ACTIVE * lanes + i] == 0:
        return
    worst = bright = last = ones = cross = both = 0.0
    for c in range((nwave + CHUNK - 1) // CHUNK):
        place = c * SUMS * lanes + i
        worst, last = max(worst, sums[place]), max(last, sums[place + 2 * lanes])
        bright += sums[place + lanes]
        ones += sums[place + 3 * lanes]
        cross += sums[place + 4 * lanes]
        both += sums[place + 5 * lanes]
    gamma = facts[GAMMA * lanes + i]
    limit = limits[NOISY] if bright <= limits[BRIGHT_SHARE] * nwave else limits[SHIFT]
    if facts[COND * lanes + i] > limits[UNEVEN]:
        limit = min(limit, limits[UNEVEN_SHIFT])
    tail = 4.0 * last / max(gamma, 1e-300)
    excess = max(tail / limits[TAIL], 0.5 * math.sqrt(worst) / limit)
    facts[EXCESS * lanes + i] = excess
    steps = max(1.0, math.floor(math.log(excess) / math.log(limits[DECAY]) + 0.5)) if excess > 1.0 else 0.0
    flags[WANTED * lanes + i] = width + int(min(steps, 9.0)) if steps > 0.0 else 0
    facts[ONES * lanes + i], facts[CROSS * lanes + i], facts[BOTH * lanes + i] = ones, cross, both
    if width == 0:
        facts[FIRST_THETA * lanes + i], facts[FIRST_GAMMA * lanes + i] = facts[THETA * lanes + i], gamma


@kernel("i4[1] f8[1] f8[1] i8 i8")
def chain(m, depth, facts, limits, lanes, size):
    """How many fibres beyond the eliminated one of a pair matter to it (narrow.schur.Neighbours); a lane a pair."""
    i, j = m % lanes, other(m, lanes, 1, size)
    found = 0
    while j >= 0:
        beyond = 2 * j - i
        if beyond < 0 or beyond >= lanes or beyond // size != j // size:
            break
        if not facts[FIRST_THETA * lanes + i] * facts[FIRST_THETA * lanes + j] > 1.01 * limits[COUPLING]:
            break
        found += 1
        i, j = j, beyond
    depth[m] = found


@njit(cache=True)
def _wants_more(i, depth, flags, lanes, size):
    """Whether the narrowest band is not enough of a fibre: it, or one that is eliminated after it in a chain, asks for
    more."""
    if flags[ALIVE * lanes + i] > 0 and flags[WANTED * lanes + i] > 0:
        return True
    below, above = other(i, lanes, 1, size), other(lanes + i, lanes, 1, size)
    return (depth[i] > 0 or depth[lanes + i] > 0 or (below >= 0 and depth[lanes + below] > 0)
            or (above >= 0 and depth[above] > 0))


@kernel("i4[1] i4[1] i4[1] i8 i8 i8")
def widen(i, wider, depth, flags, nd, lanes, size):
    """wider: rows of one element a fibre: twice (as pairs lie) WIDER where more diagonals of S are needed than the
    narrowest band has, and WIDER where its inverse is for that; a lane for every fibre."""
    wider[i] = wider[lanes + i] = WIDER if _wants_more(i, depth, flags, lanes, size) else 0
    wider[2 * lanes + i] = 0
    for j in range(max(i - nd + 1, i // size * size), min(i + nd, (i // size + 1) * size)):
        if _wants_more(j, depth, flags, lanes, size):
            wider[2 * lanes + i] = WIDER
