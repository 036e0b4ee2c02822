"""CPU kernels: a fibre's Schur complement in a band, and the facts about it, for many fibres in one call."""
# mypy: disallow-untyped-defs=False
from functools import cache
from typing import Any

import numpy as np

from gpu_extract.decorrelate.narrow.simd_band_tests import positive
from gpu_extract.decorrelate.narrow.simd_foresee import foresee
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import address, number, prefetch, vabs, vadd, vmax, vread, vset, vsub, vwrite, write
from gpu_extract.vectors.transpose import padded

AHEAD = 2048       # bytes by which rows are prefetched ahead of their use; twice as many for rows of icov


@njit()
def _four(places, a, known):
    """Four elements of a row of `_assemble`, from byte a of the row on; known: whether icov has them."""
    left, right, given, u, s, tops, sums = places
    both = vadd(vread(left + a), vread(right + a))
    rest = vsub(vread(given + a) if known else vset(0.0), both)
    size = vabs(rest)
    vwrite(u + a, both)
    vwrite(s + a, rest)
    vwrite(tops + a, vmax(size, vread(tops + a)))
    vwrite(sums + a, vadd(size, vread(sums + a)))


@njit()
def _single(places, a, known):
    """One element, as in `_four`."""
    left, right, given, u, s, tops, sums = places
    both = number(left + a) + number(right + a)
    rest = (number(given + a) if known else 0.0) - both
    write(u + a, both)
    write(s + a, rest)
    write(tops + a, abs(rest) if abs(rest) > number(tops + a) else number(tops + a))
    write(sums + a, number(sums + a) + abs(rest))


@njit()
def _ask(places, last):
    """Prefetch what `_assemble` will need some rows later; last: bytes from the first element of a row to its last."""
    left, right, given, _, s, _, _ = places
    for place in (left + AHEAD, right + AHEAD, given + 2 * AHEAD, s + AHEAD):
        prefetch(place)
        prefetch(place + last)


@njit()
def _assemble(schur, icov, fibre, left, right):
    """S and U of one fibre; returns a bound on the largest eigenvalue of S, infinite if S is not finite.

    schur: (band, taken, rest), filled. band, taken: (nwave, half + 1), [j, a] = S[j, j + a], U[j, j + a]; rest:
        (nwave,), -U x
    left, right: addresses of the shares of fibres on both sides: (nwave, half + 1), the parts of U, and (nwave,), of
        U x
    A bin of weight 0 is decoupled: its diagonal is the bound.
    """
    (band, taken, rest), nwave, width, dark = schur, icov.shape[2], icov.shape[3], 0
    count = band.shape[1]
    known = min(width - width // 2, count)          # elements of a row that icov has
    vectors = known // 4 * 4
    mixed = count if known == count else min(count, -(-known // 4) * 4)
    whole = mixed + (count - mixed) // 4 * 4
    top, total = np.zeros(count), np.zeros(count)
    for j in range(nwave):
        given = address(icov, (fibre * icov.shape[1] * nwave + j) * width + width // 2)
        places = (left[0] + 8 * j * count, right[0] + 8 * j * count, given,
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
        rest[j] = -(number(left[1] + 8 * j) + number(right[1] + 8 * j))
        dark += 1 if number(given) == 0.0 else 0
    bound = 2.0 * np.sum(top) - top[0] if np.sum(total) < np.inf else np.inf
    if dark > 0:
        for j in range(nwave):
            if icov[fibre, 0, j, width // 2] == 0.0:
                band[j, 0] = bound
    return bound


@njit()
def _next(answers, kinds, n, last):
    """The number of the set of questions that is asked n-th; -1 if nothing is left to ask. See `measure`."""
    if n == 0:
        return 0
    if n == 1:
        return 1 if (answers[0] & kinds[0] == 0).any() else -1
    if n == 3:
        known, told = answers[0] & kinds[0, 1], answers[1] & kinds[1, 1]
        return -1 if known or told & -kinds[1, 1] & kinds[1, 1] else last - 1 if told else last
    # the ratios' bits are the lowest of both sets, and those of the second set follow those of the first
    ratios, rung = answers[0] & kinds[0, 0] | (answers[1] & kinds[1, 0]) * (kinds[0, 0] + 1), 0
    while ratios > 0 and ratios & 1 << rung == 0:
        rung += 1
    return 1 + rung if rung > 0 else -1


@cache
def measure(half: int) -> Any:
    """The kernel kernel(found, schur, icov, places, beside, questions, work, steps) for a half-band; n fibres in turn.

    found: (sums, bounds, answers), filled: (n, 6), see simd_foresee; (n,), on the largest eigenvalue of S, infinite
        where S is not finite; (n, 4) int64, answers to four sets of questions, 0 where they were not asked
    schur: (bands, rests, diagonals, shifts, edges, taken): (count, rows, half + 1), (count, nwave or more) each, see
        bands.py; (nwave, half + 1) after padded(half) rows of zeros and before 8, for U of one fibre after the other
    icov: as in data.Normal; places: (n, 9) int64: numbers of a fibre and of its band, addresses of `taken` and `moved`
        of both narrow.coupling.Share subtracted from it, how many sets of questions are asked about its S at most, and
        the near bins
    beside: (spread, roots), see narrow.coupling.Couplings
    questions: (sets, kinds): (m, 3 LANES), see `positive`; (2, 3) int64, the bits of the ratios, thetas and gammas
        among the answers to the first set and to the second, which is asked if one of the kinds got no yes from the
        first. Of the other sets, the last two are for the coupling: the first of them if only the largest of the second
        set's thetas is known to be above it, the other if none is. The others are for the second rung of poles and
        those after it: the one for the found rung is asked
    work: see `positive`; steps: (whether S is made, whether it is measured)
    """
    before = padded(half)

    @njit(cache=True, loops=False)
    def kernel(found, schur, icov, places, beside, questions, work, steps):
        (sums, bounds, answers), (bands, rests, diagonals, shifts, edges, taken), (spread, roots) = found, schur, beside
        nwave = icov.shape[2]
        margin = (spread.shape[1] - nwave) // 2
        for n in range(len(places)):
            fibre, place = places[n, 0], places[n, 1]
            band, rest = bands[place, before:before + nwave], rests[place, :nwave]
            if steps[0]:
                bounds[n] = _assemble((band, taken, rest), icov, fibre, places[n, 2:4], places[n, 4:6])
            if steps[1]:
                foresee(sums[n], diagonals[place], rest, (shifts[place], edges[place]), band, taken,
                        spread[fibre, margin:], roots[fibre, margin:], (places[n, 7], places[n, 8]))
                answers[n] = 0
                for m in range(places[n, 6] if bounds[n] != 0.0 and bounds[n] < np.inf else 0):
                    asked = _next(answers[n], questions[1], m, len(questions[0]) - 1)
                    if asked >= 0:
                        answers[n, m] = positive(questions[0][asked], bounds[n], work, band, taken, half)
    return kernel
