"""CPU kernel: a fibre's flux, ivar and resolution from its pole sum, and a check of these against S."""
# mypy: disallow-untyped-defs=False
import math

import numpy as np

from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.blocks import SIDES
from gpu_extract.vectors.simd import address, vabs, vmax, vread8, vset8, vwrite
from gpu_extract.vectors.transpose import LANES, padded, turn

CANCELLED = 0.1       # poles leave 1e-10 of a row of Q, |Q_j|^2 = S_jj, and up to ten times that over s_j in R: 3e-9
WEAKER = 0.1          # of the largest row sum of Q around: others differ less, and so does q
AROUND = 16           # bins on both sides: E connects those at half a dozen and more


@njit(cache=True)
def work_size(nwave, ndiag):
    """Elements of the work array."""
    return (SIDES + ndiag + 3) * padded(nwave)


@njit()
def work_columns(work, nwave, ndiag):
    """What `finish` leaves in the work array, (rows, padded nwave): -s, -Q x, -Q's diagonals; last but one: -1 / s."""
    count = SIDES + ndiag + 3
    return work[:count * padded(nwave)].reshape((count, padded(nwave)))


@njit()
def _product(out, a, b):
    for j in range(len(out)):
        out[j] = a[j] * b[j]


@njit()
def _add_square(out, a):
    for j in range(len(out)):
        out[j] += a[j] * a[j]


@njit()
def _spectrum(columns, inverse, out, sides, total):
    """From the pole sum -Q: the columns -s = -Q 1 and -Q x and Q's diagonal; inverse: -1 / s; out: as in `finish`."""
    for j in range(len(out)):
        one, x = sides[j, 0], sides[j, 1]
        s = columns[0, j] - one * total
        columns[0, j] = s
        columns[1, j] -= x * total
        columns[SIDES, j] -= total
        inverse[j] = one / s if s != 0.0 else 0.0
        out[j, 0] = -s
        out[j, SIDES] -= total


@njit()
def _diagonals(resolution, columns, inverse, held, first):
    """R's diagonals at bins `first` and following, and the squares of Q's diagonals summed in `held`.

    columns: -Q's diagonals after the right-hand sides; inverse: -1 / s
    """
    nwave, ndiag, count = len(held), len(resolution) // 2, resolution.shape[1]
    for a in range(min(ndiag, nwave - 1) + 1):
        q, above, below = columns[SIDES + a], resolution[ndiag - a], resolution[ndiag + a]
        edge, stop = max(a - first, 0), max(min(count, nwave - a - first), 0)
        above[:edge], below[stop:] = 0.0, 0.0
        _product(above[edge:], q[first + edge - a:], inverse[first + edge - a:])
        _product(below[:stop], q[first:], inverse[first + a:])
        _add_square(held[:nwave - a], q)
        if a > 0:
            _add_square(held[a:], q)
    for a in range(nwave, ndiag + 1):
        resolution[ndiag - a], resolution[ndiag + a] = 0.0, 0.0


@njit(cache=True)
def finish(result, out, work, sides, diagonal, squares, scale):
    """Flux, ivar and resolution of one fibre from the pole sum; returns how much Q disagrees with S.

    result: (flux, ivar, resolution) of one fibre, filled as in data.Decorrelated at bins `first` and following
    out: from `simd_banded.pole_sum` with weights c_k t_k, whose sum is Z; its first column is replaced by s, and Z's
    diagonal by that of -Q = Z - total; work: (work_size,)
    sides: as there; scale: (total, first), total: sum_k c_k, so that Q = total - Z.
    Bins whose right-hand side is 0 instead of 1 are left out: they get 0 everywhere.
    diagonal, squares: S_jj, and 1'S1, 1'Sx and x'Sx over the other bins
    Returns the largest of: |1'QQ1 - 1'S1| / 1'S1; the same with x for 1 on both sides and on one; (QQ)_jj / S_jj - 1
    with the stored diagonals of Q, to which the others could only add. Returns NaN if a square is not finite, and
    infinity if a bin's s^2 is below CANCELLED S_jj: the error of the poles is then too large beside the row's sum.
    """
    flux, ivar, resolution = result
    (total, first), nwave, rows = scale, len(out), SIDES + len(resolution) // 2 + 1
    columns = work_columns(work, nwave, len(resolution) // 2)
    inverse, held = columns[rows], columns[rows + 1][:nwave]
    turn(address(work, 0), 8 * columns.shape[1], address(out, 0), 8 * out.shape[1], nwave, rows)
    _spectrum(columns, inverse, out, sides, total)
    s, y = columns[0], columns[1]
    _product(flux, y[first:], inverse[first:])
    _product(ivar, s[first:], s[first:])
    ones = cross = both = 0.0
    for j in range(nwave):
        ones += s[j] * s[j]
        cross += s[j] * y[j]
        both += y[j] * y[j]
    held[:] = 0.0
    _diagonals(resolution, columns, inverse, held, first)
    worst = 0.0
    for j in range(nwave):
        worst = max(worst, held[j] / diagonal[j] - 1.0) if diagonal[j] > 0.0 else np.inf
        if s[j] != 0.0 and s[j] * s[j] < CANCELLED * diagonal[j]:
            worst = np.inf
    geometric = math.sqrt(squares[0] * squares[2])
    worst = max(worst, abs(ones - squares[0]) / squares[0])
    if geometric > 0.0:
        worst = max(worst, abs(cross - squares[1]) / geometric, abs(both - squares[2]) / squares[2])
    return worst if ones + both < np.inf else np.nan


@njit()
def largest(a):
    """The largest size of some numbers."""
    top, whole, lanes = vset8(0.0), len(a) // LANES * LANES, np.zeros(LANES)
    for j in range(0, whole, LANES):
        top = vmax(top, vabs(vread8(address(a, j))))
    vwrite(address(lanes, 0), top)
    for j in range(whole, len(a)):
        lanes[j - whole] = max(lanes[j - whole], abs(a[j]))
    return lanes.max()


@njit()
def weaken(made, s, inverse):
    """E x of one fibre, in the second column of `made`, in its weak bins, for the quick correction (simd_correct).

    s: (nwave,), Q 1, or -Q 1; inverse: (nwave,), 1 / s, 0 where s is 0
    E connects bins j and k that are far apart, so that e_j is E_jk x_k / (q_j + q_k). The quick correction knows one q,
    that of the bin itself, and divides by 2 q_j. Where q_j is far below q_k, as in a bin beside a mask or at the edge
    of the CCD, this is up to q_k / 2 q_j times too much. q is taken to be as s.
    """
    if WEAKER * largest(s) * largest(inverse) < 0.999:      # none is weak, whatever rounding does to this
        return
    nwave, most = len(s), np.abs(s)
    step = 1
    while step < AROUND:        # the largest of the next 16
        for j in range(nwave - step):
            most[j] = max(most[j], most[j + step])
        step *= 2
    step = 1
    while step < AROUND:        # of the 16 before as well
        for j in range(nwave - 1, step - 1, -1):
            most[j] = max(most[j], most[j - step])
        step *= 2
    for j in range(nwave):
        if 0.0 < abs(s[j]) < WEAKER * most[j]:
            share = abs(s[j]) / most[j]
            made[j, 1] *= 2.0 * share / (1.0 + share)


@njit(cache=True, loops=False)
def finish_narrow(result, made, sides, schur, scales, places):
    """`finish` for fibres of the narrow band whose pole sums are done; returns its result for each.

    result: (flux, ivar, resolution) of all fibres; made: (nfibre, nwave, out_width), from `simd_banded.pole_sum`,
    whose second column becomes E x, less in weak bins
    schur: (diagonals, rests), (n, nwave or more) both: of S, and E x
    scales: (m, 4): total, 1'S1, 1'Sx and x'Sx; places: (work, fibres, first)
    fibres: (m, 2 or more): number of a fibre, and of its S; work and first as there
    """
    flux, ivar, resolution = result
    (diagonals, rests), (work, fibres, first), disagreement = schur, places, np.empty(len(scales))
    nwave = made.shape[1]
    columns = work_columns(work, nwave, resolution.shape[1] // 2)
    for m in range(len(fibres)):
        n, place = fibres[m, 0], fibres[m, 1]
        one = flux[n], ivar[n], resolution[n]
        disagreement[m] = finish(one, made[n], work, sides[n], diagonals[place], scales[m, 1:], (scales[m, 0], first))
        for j in range(nwave):
            made[n, j, 1] = rests[place, j]
        weaken(made[n], columns[0, :nwave], columns[-2, :nwave])
    return disagreement
