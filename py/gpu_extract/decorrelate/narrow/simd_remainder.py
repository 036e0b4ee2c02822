"""CPU kernel: the remainder of S beyond its band, added to a fibre's spectra exactly to first order.

Let S = B + E, B the band and its windows, E the remainder. Q(S) = sum_k c_k (I - t_k (S + t_k)^-1), so to first order
in E

    Q(S) - Q(B) = sum_k c_k t_k (B + t_k)^-1 E (B + t_k)^-1.

simd_shifted solves with B + t_k, simd_beyond multiplies by E. A vector has eight lanes: eight poles for one of the
right-hand sides 1 and x, or four for both.

The effects are local: only stretches around bins are processed in which the band changes the flux by more than the
quick correction (simd_correct) can handle.
"""
# mypy: disallow-untyped-defs=False
import numpy as np

from gpu_extract.decorrelate.narrow.simd_beyond import beyond_band, beyond_windows, factors, taken_bands
from gpu_extract.decorrelate.narrow.simd_finish import largest
from gpu_extract.decorrelate.narrow.simd_shifted import (LANES, RING, VECTOR, backward, factor, factor_even, forward,
                                                         forward_even, row_starts)
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import (address, number, vfold, vless, vmul, vread, vread8, vset, vset8, vsum, vwrite)

POLES = LANES // 2      # poles in a row of `shifts` and `weights`
IVAR, FLUX = 0, 1       # what is corrected: ivar, R and the flux, or the flux alone
FAR = 3                 # distance in reaches from a window: a stretch that extends farther is cut beside the window


@njit()
def _add(total, band, sides, begin, end, poles, around, work):
    """total = L 1 and L x on bins begin .. end - 1 of one fibre.

    band: address of its rows, and elements of one; poles: shifts and weights for a spectrum in [1 / ratio, 1], and the
    factors of both; around: (neighbours, windows, hw), the fibre's own; others as in `remainder`
    """
    (shifts, weights, of_shifts, of_weights), (neighbours, windows, hw) = poles, around
    columns, count = band[1], end - begin
    margin = (max(hw, columns) + 1) * LANES
    room, starts, lanes = 2 * margin + count * LANES, np.empty(count + 1, dtype=np.int64), np.empty(LANES)
    v, w, g = address(work, margin), address(work, 2 * room + margin), address(work, 4 * room + margin)
    pad = 5 * room + LANES * columns * (columns + RING)
    ring, low = address(work, 5 * room), address(work, pad + LANES * columns**2)
    for n in range(6):       # the memory in between is written before it is read
        work[max(n * room - margin, 0):n * room + margin] = 0.0
    work[pad:pad + LANES * columns**2] = 0.0
    row_starts(starts, begin, columns, windows)
    even = columns > 3 and starts[count] == count * columns
    lows, kept = factors(neighbours, begin, count, 2 * hw + 1)
    taken = taken_bands(neighbours, begin, count, columns)
    m = 0
    while m < len(shifts):
        both = min(len(shifts) - m, 2)      # eight poles for each right-hand side in turn, or four for both
        sets = 8 * room, both
        for n in range(LANES):
            lanes[n] = of_shifts * shifts[m + n // POLES * (both - 1), n % POLES]
        for j in range(count):
            for n in range(2):
                for k in range(both):
                    vwrite(_part(v, sets, n, k) + VECTOR * j, vset(sides[begin + j, n]))
        if even:
            factor_even(low, ring, (band, begin, vread8(address(lanes, 0))), count, v, sets)
        else:
            factor(low, starts, (band, windows, begin, vread8(address(lanes, 0))), v, sets)
        for n in range(both):
            here, there = v + n * sets[0], w + n * sets[0]
            backward(low, starts, here)
            beyond_band(there, here, g, (begin, count), (address(taken, 0), columns), neighbours, lows, hw)
            beyond_windows(there, here, columns - 1, windows, begin, count)
            if even:
                forward_even(low, columns, count, there)
            else:
                forward(low, starts, there)
            backward(low, starts, there)
        for k in range(both):
            weight = vmul(vset(of_weights), vread(address(weights, (m + k) * POLES)))
            for n in range(2):
                place = _part(w, sets, n, k)
                for j in range(count):
                    total[n, j] += vsum(vmul(weight, vread(place + VECTOR * j)))
        m += both
    return len(kept) + len(taken)        # numba gives memory back after its last use


@njit()
def _part(v, sets, n, k):
    """The address of a right-hand side for the k-th four poles; sets: see `factor_even`."""
    return v + (n * sets[0] + k * VECTOR // 2 if sets[1] == 2 else n * VECTOR // 2)


@njit()
def _counts(measure, k):
    """Whether a bin counts; measure: address of (nwave,), the limit for these, and which bins are exact already."""
    return number(measure[0] + 8 * k) > measure[1] and not measure[2][k]


@njit()
def _next(measure, j, stop):
    """The first bin from j on that counts, or `stop`."""
    while j < stop:
        if j + LANES <= stop and vsum(vfold(vless(vset8(measure[1]), vread8(measure[0] + 8 * j)))) == 0.0:
            j += LANES
        elif _counts(measure, j):
            return j
        else:
            j += 1
    return stop


@njit()
def _stretch(measure, stop, j, reach):
    """The last of the bins from j on that count without a gap of more than two reaches."""
    last, k = j, j + 1
    while k < min(stop, last + 2 * reach + 1):
        if _counts(measure, k):
            last = k
        k += 1
    return last


@njit()
def _cut(last, j, reach, windows):
    """The last bin of a stretch from j on, which is cut one reach beside a window if it would extend far beyond it.

    Without a window all rows of a factor have the same length, and it is made in half the time.
    """
    for n in range(len(windows)):
        first, end = windows[n, 0] - reach, windows[n, 1] + reach
        if j < first - FAR * reach:
            last = min(last, first - 1)
        elif j <= end < last - FAR * reach:
            last = end
    return last


@njit()
def _one(flux, plain, share, spectrum, sides, band, measure, poles, around, work, limits):
    """Flux and share of one fibre; band: its address, and elements of a row; measure: see `_counts`, whose last part
    is updated; poles: for stretches with windows, and for those without; limits: (first, reach), see `remainder`."""
    (first, reach), windows, nwave = limits, around[1], len(sides)
    stop = min(first + len(flux) + reach // 2, nwave)
    j = _next(measure, max(first - reach // 2, 0), stop)
    while j < stop:
        last = _cut(_stretch(measure, stop, j, reach), j, reach, windows)
        begin, end, own = max(j - reach, 0), min(last + reach + 1, nwave), poles[1]
        for n in range(len(windows)):
            if windows[n, 0] < end and windows[n, 1] > begin:
                begin, end, own = min(begin, windows[n, 0]), max(end, windows[n, 1]), poles[0]
        total = np.zeros((2, end - begin))
        _add(total, band, sides, begin, end, own, around, work)
        for t in range(max(j - reach // 2 - first, 0), min(last + reach // 2 + 1 - first, len(flux))):
            k = first + t
            if begin <= k < end and spectrum[k, 0] != 0.0:
                flux[t] = plain[t] + (total[1, k - begin] - plain[t] * total[0, k - begin]) / spectrum[k, 0]
                share[t] = total[0, k - begin] / spectrum[k, 0]
        measure[2][max(j - reach // 2, 0):last + reach // 2 + 1] = True
        j = _next(measure, last + 1, stop)


@njit()
def _rescale(ivar, resolution, share):
    """Correct ivar and R of a fibre for the growth of s by these shares of itself, 0 in most bins."""
    count, first = len(share), 0
    while first < count:
        last = first
        while last < count and share[last] != 0.0:
            share[last] += 1.0
            ivar[last] *= share[last] * share[last]
            last += 1
        if last > first:
            _divide(resolution, share, first, last)
        first = last + 1


@njit()
def _divide(resolution, grown, first, last):
    """Divide rows `first` .. `last` - 1 of R by what s has grown to."""
    ndiag, count = len(resolution) // 2, len(grown)
    for a in range(min(ndiag, count - 1) + 1):
        above, below = resolution[ndiag - a], resolution[ndiag + a]
        for t in range(first, min(last, count - a)):
            above[t + a] /= grown[t]
        for t in range(max(first - a, 0), last - a if a > 0 else 0):
            below[t] /= grown[t + a]


@njit(cache=True, loops=False)
def remainder(result, plain, shares, spectra, sides, fibres, scales, poles, around, work, first):
    """Correct some fibres for E, in turn: the flux around bins where E counts, ivar and R around those where the tail
    does.

    result: (flux, ivar, resolution), (n, bins) and (n, 2 ndiag + 1, bins), bins `first` and following. The flux has the
        quick correction, which is kept in other bins; plain: (n, bins), the flux without any correction
    shares: (m,), filled with the largest relative change of s by E in any of these bins
    spectra: (n, nwave, some), the first of which is s = Q 1; sides: (n, nwave, SIDES), 1 and x
    fibres: (m, 14) int64: a fibre's number in all of these; IVAR, or FLUX for the flux alone; addresses of its band B,
        (nwave, half + 1), and of its edges or shifts, (nwave,), see simd_foresee; half + 1; reach; and first and end of
        its poles, of those for stretches without windows, of its neighbours, and of its windows. Half a reach around
        the bins that count becomes exact, computed on stretches that are a reach longer on both sides. Bins that the
        previous row has made exact, if it is of the same fibre, do not count again
    scales: (m, 3): the edge or shift above which bins count, and the factors of its poles' t_k and c_k t_k
    poles: (shifts, weights), (some, POLES) both: t_k and c_k t_k
    around: (neighbours, windows, hw), int64. neighbours (some, 10): address of icov's block (nwave, 2 hw + 1) of the
        fibre and fibre j; 1 if j is the first of the two, else 0; address of the band of U_j, (nwave, half + 1);
        the factor of M_j, see narrow.coupling.Couplings.factors, or 0, 0, 0 and M_j's half-band if it is not yet
        made: then the address of A_jj's diagonal in icov, the number of its elements, and the address of the band of
        the share of the fibre beyond j in j, as wide as M_j's.
        windows (some, 5): first bin, last + 1, first bin of the whole block of S, its number of bins, its address
    work: (work_size,), starts on a cache line
    """
    (flux, ivar, resolution), (shifts, weights), (neighbours, windows, hw) = result, poles, around
    share, exact = np.empty(flux.shape[1]), np.zeros(sides.shape[1], dtype=np.bool_)
    for m in range(len(fibres)):
        n, own, fewer = fibres[m, 0], slice(fibres[m, 6], fibres[m, 7]), slice(fibres[m, 8], fibres[m, 9])
        near = neighbours[fibres[m, 10]:fibres[m, 11]], windows[fibres[m, 12]:fibres[m, 13]], hw
        share[:] = 0.0
        if m > 0 and fibres[m - 1, 0] != n:
            exact[:] = False
        _one(flux[n], plain[n], share, spectra[n], sides[n], (fibres[m, 2], fibres[m, 4]),
             (fibres[m, 3], scales[m, 0], exact),
             ((shifts[own], weights[own], scales[m, 1], scales[m, 2]),
              (shifts[fewer], weights[fewer], scales[m, 1], scales[m, 2])), near, work,
             (first, fibres[m, 5]))
        shares[m] = largest(share)
        if fibres[m, 1] == IVAR:
            _rescale(ivar[n], resolution[n], share)


def work_size(nwave: int, hw: int, half: int, windows: int) -> int:
    """Elements of the work array of `remainder`; windows: bins of all windows of one fibre."""
    columns = half + 1
    return LANES * (5 * (2 * max(hw, columns) + 2 + nwave) + (nwave + 1 + 2 * columns + RING) * columns
                    + windows**2)
