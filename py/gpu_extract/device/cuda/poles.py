"""Kernels: Q x, Q 1 and the diagonals of Q of all fibres of a piece, a sum over (fibre, pole) lanes, and what follows.

As decorrelate.banded: Q = total - sum_k c_k t_k (S + t_k)^-1 with the poles of the fibre's rung. GROUP poles are done
at once, their parts added up in their order. Rows of `sums` hold, for every fibre, the sums for the right sides 1 and
x, then the diagonals of the inverse; `decided` is row STATUS of the flags.
"""
# mypy: disallow-untyped-defs=False
import math

from gpu_extract.decorrelate.narrow.simd_correct import HALF, LEAST, SPREAD
from gpu_extract.decorrelate.narrow.simd_finish import CANCELLED
from gpu_extract.device.cuda.decide import FAILED, GOOD
from gpu_extract.device.cuda.kernels import kernel
from gpu_extract.device.cuda.measure import BOTH, BOUND, CHUNK, CROSS, ONES, RUNG, STATUS, WIDTH, product
from gpu_extract.device.cuda.sweeps import SIDES

GROUP = 12           # at once (text/sweeps.h): 24, what most fibres need, are twice that
MOST = 64            # poles of a rung
TABLE = 2 + 2 * MOST     # of a rung: count, sum of weights, shifts, weights
SQUARES = 4


@kernel("f8[1] f8[1] f8[1] f8[1] f8[1] f8[1] i4[1] f8[1] i8 i8")
def divide(n, inverse, flux, ivar, sums, sides, facts, flags, table, kept, lanes):
    """s = Q 1, inverse = 1/s (0 where s is, or the bin has no weight), flux, ivar; `sums` becomes s, Q x, -Q: a lane a
    bin."""
    i, j = n % lanes, n // lanes
    if flags[STATUS * lanes + i] != GOOD:
        return
    total = table[flags[RUNG * lanes + i] * TABLE + 1] * math.sqrt(facts[BOUND * lanes + i])
    one, x, place = sides[2 * j * lanes + i], sides[(2 * j + 1) * lanes + i], j * kept * lanes + i
    s, y = one * total - sums[place], x * total - sums[place + lanes]
    inverse[n] = one / s if s != 0.0 else 0.0
    flux[n], ivar[n] = y * inverse[n], s * s
    sums[place], sums[place + lanes] = s, y
    sums[place + SIDES * lanes] -= total


@kernel("f8[1] f8[1] f8[1] i4[1] i8 i8 i8 i8 i8")
def square(n, squares, sums, band, flags, kept, ndiag, nwave, half, lanes):
    """Squares of Q, chunk by chunk: 1'QQ1, 1'QQx, x'QQx and the largest (QQ)_jj / S_jj - 1 of what is stored; a lane
    for every chunk."""
    i, c = n % lanes, n // lanes
    if flags[STATUS * lanes + i] != GOOD:
        return
    ones = cross = both = worst = 0.0
    for j in range(c * CHUNK, min((c + 1) * CHUNK, nwave)):
        place = j * kept * lanes + i
        s, y = sums[place], sums[place + lanes]
        ones += s * s
        cross += s * y
        both += y * y
        held = sums[place + SIDES * lanes]**2
        for a in range(1, ndiag + 1):
            if j + a < nwave:
                held += sums[place + (SIDES + a) * lanes]**2
            if j >= a:
                held += sums[place - (a * kept - SIDES - a) * lanes]**2
        diagonal = band[j * (half + 1) * lanes + i]
        worst = max(worst, held / diagonal - 1.0 if diagonal > 0.0 else math.inf)
        if s != 0.0 and s * s < CANCELLED * diagonal:
            worst = math.inf
    place = c * SQUARES * lanes + i
    squares[place], squares[place + lanes], squares[place + 2 * lanes] = ones, cross, both
    squares[place + 3 * lanes] = worst


@kernel("i4[1] f8[1] f8[1] f8 i8 i8")
def judge(i, flags, squares, facts, agreement, nwave, lanes):
    """FAILED where Q disagrees with S (narrow.simd_finish.finish); a lane for every fibre."""
    if flags[STATUS * lanes + i] != GOOD:
        return
    ones = cross = both = worst = 0.0
    for c in range((nwave + CHUNK - 1) // CHUNK):
        place = c * SQUARES * lanes + i
        ones += squares[place]
        cross += squares[place + lanes]
        both += squares[place + 2 * lanes]
        worst = max(worst, squares[place + 3 * lanes])
    s11, s1x, sxx = facts[ONES * lanes + i], facts[CROSS * lanes + i], facts[BOTH * lanes + i]
    geometric = math.sqrt(s11 * sxx)
    worst = max(worst, abs(ones - s11) / s11)
    if geometric > 0.0:
        worst = max(worst, max(abs(cross - s1x) / geometric, abs(both - sxx) / sxx))
    if not (worst <= agreement and ones + both < math.inf):
        flags[STATUS * lanes + i] = FAILED


@kernel("f8[1] f8[1] i4[1] f8[1] f8[1] f8[1] f8[1] i4[1] i4[1] i8 i8 i8 i8")
def left(n, q, left, own, sums, taken, ux, sides, flags, halves, kept, nwave, reach, lanes):
    """Q + q and E x of narrow.simd_correct: matrix and right side of the flux's correction; own: as eliminate.carry; a
    lane for every bin."""
    i, j = n % lanes, n // lanes
    if j == 0:
        own[i] = i if flags[STATUS * lanes + i] == GOOD else -1
    if flags[STATUS * lanes + i] != GOOD:
        return
    place = j * kept * lanes + i
    alternating = -sums[place + SIDES * lanes]
    for a in range(1, HALF + 1):
        pair = -sums[place + (SIDES + a) * lanes]
        pair -= sums[place - (a * kept - SIDES - a) * lanes] if j >= a else 0.0
        alternating += pair if a % 2 == 0 else -pair
        q[(j * (HALF + 1) + a) * lanes + i] = -sums[place + (SIDES + a) * lanes]
    least = max(abs(alternating), LEAST * abs(sums[place]))
    q[j * (HALF + 1) * lanes + i] = -sums[place + SIDES * lanes] + SPREAD * least
    half = halves[flags[WIDTH * lanes + i]]
    left[n] = product(taken, sides, j, i, half, reach, nwave, lanes) - ux[n]


@kernel("f8[1] f8[1] f8[1] i4[1] i8")
def correct(n, flux, left, inverse, flags, lanes):
    """The flux, corrected for what S has beyond its band: left is (Q + q)^-1 E x; a lane for every bin."""
    if flags[STATUS * lanes + n % lanes] == GOOD:
        flux[n] += left[n] * inverse[n]


@kernel("f8[2] f8[2] i1[2] f8[1] f8[1] i4[1] i8 i8")
def spectra(n, flux_out, ivar_out, status_out, flux, ivar, flags, first, lanes):
    """Flux, ivar and status of the bins that are kept; 0 where a fibre is not GOOD; a lane for every bin."""
    i, j = n // flux_out.shape[1], n % flux_out.shape[1]
    status = flags[STATUS * lanes + i]
    place = (first + j) * lanes + i
    flux_out[i, j] = flux[place] if status == GOOD else 0.0
    ivar_out[i, j] = ivar[place] if status == GOOD else 0.0
    status_out[i, j] = status


@kernel("f8[3] f8[1] f8[1] i4[1] i8 i8 i8")
def diagonals(n, resolution, sums, inverse, flags, kept, first, lanes):
    """The diagonals of R within the bins that are kept; a lane for every element."""
    _, width, nout = resolution.shape
    j, row = n % nout, n // nout
    k, i = row % width, row // width
    other = j - width // 2 + k
    value = 0.0
    if flags[STATUS * lanes + i] == GOOD and 0 <= other < nout:
        low, apart = first + min(j, other), abs(j - other)
        value = -sums[(low * kept + SIDES + apart) * lanes + i] * inverse[(first + other) * lanes + i]
    resolution[i, k, j] = value
