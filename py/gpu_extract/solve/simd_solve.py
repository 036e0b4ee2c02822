"""CPU kernels: conjugate gradients on the banded normal equations, odd fibres eliminated from even ones.

With couplings B between next neighbours alone and D the fibres' own blocks, icov is [[D1, B], [B', D2]], even fibres
first. D2 consists of single fibres, and the equation for the even ones is (D1 - B D2^-1 B') x1 = b1 - B D2^-1 b2,
preconditioned by D1: it needs half the steps of D for the whole (Reid 1972, SIAM J. Numer. Anal. 9, 325). Couplings F
from farther away, if they matter, enter the products alone; the preconditioner of the whole is then

    P = [[1, B D2^-1], [0, 1]] [[D1, 0], [0, D2]] [[1, 0], [D2^-1 B', 1]]

and with F = 0 its steps are those of the first form. Vectors: see solve.simd_factor. All sums have the written order.
"""
# mypy: disallow-untyped-defs=False
import math

from gpu_extract.arrays import LANE
from gpu_extract.kernels.compiled import njit
from gpu_extract.solve.simd_couple import couple, masks_of
from gpu_extract.solve.simd_factor import VECTOR, row_of
from gpu_extract.solve.simd_substitute import backward, forward, work_of
from gpu_extract.vectors.simd import address, vadd, vfma, vread, vset, vsum, vwrite

PATIENCE = 5       # steps without getting closer


@njit()
def _add(out, y, factor, x, i):
    """out = y + factor x in row i; out may be one of them."""
    length, f = y.shape[1], vset(factor)
    to, one, other = address(out, i * length), address(y, i * length), address(x, i * length)
    for k in range(0, 8 * length, VECTOR):
        vwrite(to + k, vfma(f, vread(other + k), vread(one + k)))


@njit()
def _turn(p, q, z, r, t, beta, i):
    """p = z + beta p, q = r + t + beta q and then t = 0 in row i; returns p q."""
    length, b = p.shape[1], vset(beta)
    at_p, at_q, at_z = address(p, i * length), address(q, i * length), address(z, i * length)
    at_r, at_t = address(r, i * length), address(t, i * length)
    total, zero = vset(0.0), vset(0.0)
    for k in range(0, 8 * length, VECTOR):
        new = vfma(b, vread(at_p + k), vread(at_z + k))
        image = vfma(b, vread(at_q + k), vadd(vread(at_r + k), vread(at_t + k)))
        vwrite(at_p + k, new)
        vwrite(at_q + k, image)
        vwrite(at_t + k, zero)
        total = vfma(new, image, total)
    return vsum(total)


@njit()
def _next_ones(icov, g):
    """lo, hi: the blocks of fibres lo .. hi - 1 with the next couple the odd fibres of group g."""
    nfibre, nd = icov.shape[0], icov.shape[1]
    lo = 2 * (LANE * g - row_of(1, nfibre))
    return lo, min(lo + 2 * LANE, nfibre - 1) if nd > 1 else lo


@njit()
def _odd(z, r, t, icov, factor, margin, spaces):
    """z2 = D2^-1 (r2 - t2), then t2 = 0 and B z2 added to t1; returns (r2 - t2) z2.

    spaces: masks, room for the solves, whether B' z1 is added to t2 first
    The couplings of one group's fibres are read twice, the second time from the cache, if it has room for them.
    """
    masks, work, first = spaces
    norm, whole = 0.0, (0, icov.shape[2])
    for g in range(row_of(1, len(icov)) // LANE, len(factor)):
        lo, hi = _next_ones(icov, g)
        for back in range(0 if first else 1, 2):
            if back:
                norm += forward(work, r, t, factor, margin, g)
                backward(z, work, factor, margin, g)
                t[LANE * g:LANE * g + LANE] = 0.0
            for n in range(hi - lo):
                i = hi - 1 - n if back else lo + n
                couple(t, z, icov, masks, margin, (i, 1), (i % 2 != back, i % 2 == back), whole)
    return norm


@njit()
def _even(z, r, t, factor, margin, groups):
    """z1 = D1^-1 (r1 - t1); returns (r1 - t1) z1. groups: their number, and room for the solves."""
    count, work = groups
    norm = 0.0
    for g in range(count):
        norm += forward(work, r, t, factor, margin, g)
        backward(z, work, factor, margin, g)
    return norm


@njit(cache=True, loops=False)
def conjugate_gradients(vectors, icov, factor, near, control, steps):
    """Add to x what solves icov x = r with couplings of fibres up to `near` apart; returns (iterations, tolerance).

    vectors: (6, rows, length): x, r and four for the work, see `room_of`; r is undefined afterwards
    control: (tolerance in sigma, the same relative to r's size in sigma, most iterations); the larger tolerance counts
    steps: (2, most iterations), filled: the length of each step, and the part of the previous direction in the next
    sqrt(r P^-1 r) is the size of the error of x in its own sigma, the root of the sum of squares over all bins, up to
    the part of icov that P lacks; it ends the iteration. With z = P^-1 r, icov z needs couplings alone: with t1 = B
    D2^-1 r2 it is r1 - t1 + B z2 for the even fibres and r2 for the odd ones, plus F z. If F = 0, the odd fibres are
    solved exactly at the beginning; r2 stays 0, and so does icov p for them.
    """
    nfibre, hw = icov.shape[0], icov.shape[3] // 2
    margin = (hw + LANE - 1) // LANE * LANE
    x, r, z, p, q, t = vectors[0], vectors[1], vectors[2], vectors[3], vectors[4], vectors[5]
    vectors[2:] = 0.0
    masks, work, whole = masks_of(icov.shape[3]), work_of(factor), (0, icov.shape[2])
    far, odd, rows = near > 1, row_of(1, nfibre), len(x)
    moving = rows if far else odd
    norm, best, tolerance, stalled, done = 1.0, math.inf, 0.0, 0, 0
    while True:
        other = _odd(z, r, t, icov, factor, margin, (masks, work, False)) if far or done == 0 else 0.0
        renewed = _even(z, r, t, factor, margin, (odd // LANE, work))
        if done == 0:
            tolerance = max(control[0], control[1] * math.sqrt(renewed + other))
        if far:
            renewed += other
            for i in range(odd):
                _add(t, t, -2.0, t, i)
        elif done == 0:
            for i in range(odd, rows):
                _add(x, x, 1.0, z, i)
            for i in range(odd):
                _add(r, r, -1.0, t, i)
            r[odd:] = 0.0
            t[:odd] = 0.0
        beta = renewed / norm if done > 0 else 0.0
        norm = renewed
        stalled = 0 if norm < best else stalled + 1
        best = min(best, norm)
        if not math.sqrt(norm) > tolerance or stalled >= PATIENCE or done >= control[2]:
            return done, tolerance
        _odd(z, r, t, icov, factor, margin, (masks, work, True))
        for i in range(nfibre):
            for d in range(2, min(near + 1, nfibre - i)):
                couple(t, z, icov, masks, margin, (i, d), (True, True), whole)
        curvature = 0.0
        for i in range(moving):
            curvature += _turn(p, q, z, r, t, beta, i)
        for i in range(moving, rows):
            _add(p, z, beta, p, i)
        if not curvature > 0.0:
            return done, tolerance
        for i in range(rows):
            _add(x, x, norm / curvature, p, i)
        for i in range(moving):
            _add(r, r, -norm / curvature, q, i)
        steps[0, done], steps[1, done] = norm / curvature, beta
        done += 1
