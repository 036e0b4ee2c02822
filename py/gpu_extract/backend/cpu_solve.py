"""CPU kernels: conjugate gradients on the banded normal equations, one banded L D L^T per fibre as preconditioner.

Vectors are (nfibre, margin + nwave + margin) with zeros in the margins, so that a band row needs no test at the ends;
fibres and bins are rounded up to multiples of 4 (`room_of`). Factors belong to four fibres each, which are the lanes.
All sums run in the order written.
"""
import math

import numpy as np
from numba import njit

from gpu_extract.backend.simd import (
    address,
    number,
    vadd,
    vdiv,
    vfma,
    vless,
    vmul,
    vread,
    vset,
    vsub,
    vsum,
    vwrite,
    write,
)
from gpu_extract.data import LANE

VECTOR = 8 * LANE


@njit(nogil=True)
def room_of(nfibre, nwave, hw):  # type: ignore[no-untyped-def]
    """(rows, margin, length) of vectors for nfibre x nwave bins with a half-band hw."""
    margin = (hw + LANE - 1) // LANE * LANE
    return (nfibre + LANE - 1) // LANE * LANE, margin, 2 * margin + (nwave + LANE - 1) // LANE * LANE


@njit(nogil=True, cache=True)
def factorise(factor, band):  # type: ignore[no-untyped-def]
    """Banded L D L^T of the fibres' diagonal blocks, four fibres at a time.

    band: (nfibre, nwave, 2 hw + 1), band[i, j, hw + k] = icov of bins j and j + k of fibre i
    factor: (ngroup, nwave + hw or more, hw + 1, 4), filled: factor[g, j, hw - k, lane] = L[j, j - k], and 1 / D[j] at
        k = 0. A pivot that is not positive decouples its bin; rows without a bin are those of the unit matrix.
    """
    nfibre, nwave, nband = band.shape
    ngroup, rows, size, _ = factor.shape
    hw = nband // 2
    row = VECTOR * size
    one, tiny = vset(1.0), vset(1e-14)
    for g in range(ngroup):
        start = address(factor, g * rows * size * LANE)
        for j in range(rows):
            at = start + j * row
            for m in range(size):
                for lane in range(LANE):
                    i = LANE * g + lane
                    write(at + VECTOR * m + 8 * lane, band[i, j, m] if j < nwave and i < nfibre else 0.0)
            diagonal = vread(at + VECTOR * hw)
            pivot = diagonal
            low = max(0, hw - j)
            for m in range(low):
                vwrite(at + VECTOR * m, vset(0.0))
            for m in range(low, hw):
                total = vread(at + VECTOR * m)
                column = at - (hw - m) * row + VECTOR * (hw - m)
                for n in range(VECTOR * low, VECTOR * m, VECTOR):
                    total = vsub(total, vmul(vread(at + n), vread(column + n)))
                vwrite(at + VECTOR * m, total)
            for m in range(low, hw):
                total = vread(at + VECTOR * m)
                scaled = vmul(total, vread(at - (hw - m) * row + VECTOR * hw))
                pivot = vsub(pivot, vmul(total, scaled))
                vwrite(at + VECTOR * m, scaled)
            good = vless(vmul(tiny, diagonal), pivot)
            alive = vless(vset(0.0), diagonal)
            instead = vadd(vmul(alive, diagonal), vsub(one, alive))
            vwrite(at + VECTOR * hw, vdiv(one, vadd(vmul(good, pivot), vmul(vsub(one, good), instead))))
            for m in range(VECTOR * low, VECTOR * hw, VECTOR):
                vwrite(at + m, vmul(good, vread(at + m)))


@njit(nogil=True)
def _solve_group(z, r, factor, work, margin, g):  # type: ignore[no-untyped-def]
    """z = M^-1 r for the fibres of group g; work: (hw + rows, 4) with zeros in its first hw rows."""
    _, rows, size, _ = factor.shape
    hw = size - 1
    nbin = rows - hw
    length = z.shape[1]
    row = VECTOR * size
    own = address(work, hw * LANE)
    near = own - VECTOR * hw
    at = address(factor, g * rows * size * LANE)
    source = address(r, g * LANE * length + margin)
    for j in range(nbin):
        for lane in range(LANE):
            write(own + VECTOR * j + 8 * lane, number(source + 8 * (lane * length + j)))
        total = vread(own + VECTOR * j)
        for m in range(0, VECTOR * hw, VECTOR):
            total = vsub(total, vmul(vread(at + m), vread(near + m)))
        vwrite(own + VECTOR * j, total)
        at += row
        near += VECTOR
    target = address(z, g * LANE * length + margin)
    for m in range(hw):
        vwrite(own + VECTOR * (nbin + m), vset(0.0))
    for j in range(nbin - 1, -1, -1):
        at -= row
        total = vmul(vread(own + VECTOR * j), vread(at + VECTOR * hw))
        below = at + row + VECTOR * (hw - 1)
        for m in range(hw, 0, -1):
            total = vsub(total, vmul(vread(below + (m - 1) * (row - VECTOR)), vread(own + VECTOR * (j + m))))
        vwrite(own + VECTOR * j, total)
        for lane in range(LANE):
            write(target + 8 * (lane * length + j), number(own + VECTOR * j + 8 * lane))


@njit(nogil=True, cache=True)
def solve_blocks(z, r, factor, margin):  # type: ignore[no-untyped-def]
    """z = M^-1 r with the factors of `factorise`, fibre by fibre."""
    work = np.zeros((factor.shape[1] + factor.shape[2], LANE))
    for g in range(len(factor)):
        _solve_group(z, r, factor, work, margin, g)


@njit(nogil=True)
def _couple(y, x, icov, margin, i, d):  # type: ignore[no-untyped-def]
    """Add the products of icov's block of fibres i and i + d, and of its mirror image, to y."""
    _, nd, nwave, nband = icov.shape
    hw, length = nband // 2, y.shape[1]
    whole = nband // LANE * LANE
    near = address(x, (i + d) * length + margin - hw)
    back_to = address(y, (i + d) * length + margin - hw)
    own, to = address(x, i * length + margin), address(y, i * length + margin)
    row = address(icov, (i * nd + d) * nwave * nband)
    for _ in range(nwave):
        value = vset(number(own))
        total = vset(0.0)
        for k in range(0, 8 * whole, VECTOR):
            coupling = vread(row + k)
            total = vfma(coupling, vread(near + k), total)
            if d > 0:
                vwrite(back_to + k, vfma(coupling, value, vread(back_to + k)))
        rest = vsum(total)
        for k in range(8 * whole, 8 * nband, 8):
            rest += number(row + k) * number(near + k)
            if d > 0:
                write(back_to + k, number(back_to + k) + number(row + k) * number(own))
        write(to, number(to) + rest)
        row += 8 * nband
        near += 8
        back_to += 8
        own += 8
        to += 8


@njit(nogil=True, cache=True)
def multiply(y, icov, x, margin, distances):  # type: ignore[no-untyped-def]
    """y = icov x, counting only couplings of fibres at distances first .. last - 1; y, x: as in `room_of`."""
    nfibre, nd = icov.shape[0], icov.shape[1]
    y[:] = 0.0
    for i in range(nfibre):
        for d in range(distances[0], min(nd, nfibre - i, distances[1])):
            _couple(y, x, icov, margin, i, d)


@njit(nogil=True, cache=True)
def dot(a, b, i):  # type: ignore[no-untyped-def]
    """Sum of a b over row i, in four lanes."""
    length = a.shape[1]
    near, far = address(a, i * length), address(b, i * length)
    total = vset(0.0)
    for k in range(0, 8 * length, VECTOR):
        total = vfma(vread(near + k), vread(far + k), total)
    return vsum(total)


@njit(nogil=True)
def _precondition(z, r, factor, work, margin):  # type: ignore[no-untyped-def]
    """z = M^-1 r; returns r z."""
    total = 0.0
    for g in range(len(factor)):
        _solve_group(z, r, factor, work, margin, g)
        for i in range(LANE * g, LANE * g + LANE):
            total += dot(r, z, i)
    return total


@njit(nogil=True)
def _advance(y, x, factor, i):  # type: ignore[no-untyped-def]
    """y = y + factor x in row i."""
    length, f = y.shape[1], vset(factor)
    to, at = address(y, i * length), address(x, i * length)
    for k in range(0, 8 * length, VECTOR):
        vwrite(to + k, vfma(f, vread(at + k), vread(to + k)))


@njit(nogil=True)
def _turn(p, q, z, r, t, beta, i):  # type: ignore[no-untyped-def]
    """p = z + beta p and q = r + t + beta q in row i; returns p q."""
    length, b = p.shape[1], vset(beta)
    at_p, at_q, at_z = address(p, i * length), address(q, i * length), address(z, i * length)
    at_r, at_t = address(r, i * length), address(t, i * length)
    total = vset(0.0)
    for k in range(0, 8 * length, VECTOR):
        new = vfma(b, vread(at_p + k), vread(at_z + k))
        image = vfma(b, vread(at_q + k), vadd(vread(at_r + k), vread(at_t + k)))
        vwrite(at_p + k, new)
        vwrite(at_q + k, image)
        total = vfma(new, image, total)
    return vsum(total)


@njit(nogil=True, cache=True)
def conjugate_gradients(vectors, icov, factor, near, control):  # type: ignore[no-untyped-def]
    """Add to x what solves icov x = r with couplings of fibres up to `near` apart; returns (iterations, tolerance).

    vectors: (6, rows, length): x, r and four for the work, see `room_of`; r becomes what is left
    control: (tolerance in sigma, the same relative to r's size in sigma, most iterations); the larger one counts
    With M the fibres' diagonal blocks, sqrt(r M^-1 r) is the size of the error of x in units of its own
    sigma, summed in squares over all bins, up to the coupling between fibres; it ends the iteration.
    M z = r lets icov z be made from the couplings E between fibres alone: r + E z.
    """
    nfibre, hw = icov.shape[0], icov.shape[3] // 2
    margin = (hw + LANE - 1) // LANE * LANE
    work = np.zeros((factor.shape[1] + factor.shape[2], LANE))
    x, r, z = vectors[0], vectors[1], vectors[2]
    p, q, t = vectors[3], vectors[4], vectors[5]
    vectors[2:5] = 0.0
    norm = _precondition(z, r, factor, work, margin)
    beta, best, stalled, done = 0.0, norm, 0, 0
    tolerance = max(control[0], control[1] * math.sqrt(norm))
    while done < control[2] and math.sqrt(norm) > tolerance and stalled < 5:
        t[:] = 0.0
        curvature = 0.0
        for i in range(nfibre):
            for d in range(1, min(near + 1, nfibre - i)):
                _couple(t, z, icov, margin, i, d)
            curvature += _turn(p, q, z, r, t, beta, i)
        if not curvature > 0.0:
            break
        alpha = norm / curvature
        for i in range(nfibre):
            _advance(x, p, alpha, i)
            _advance(r, q, -alpha, i)
        renewed = _precondition(z, r, factor, work, margin)
        beta = renewed / norm
        norm = renewed
        done += 1
        stalled = 0 if norm < best else stalled + 1
        best = min(best, norm)
    return done, tolerance


@njit(nogil=True, cache=True)
def residual(r, x, icov, rhs, margin):  # type: ignore[no-untyped-def]
    """r = rhs - icov x; rhs: (nfibre, nwave)."""
    nfibre, nwave = rhs.shape
    multiply(r, icov, x, margin, (0, icov.shape[1]))
    for i in range(nfibre):
        for j in range(nwave):
            r[i, margin + j] = rhs[i, j] - r[i, margin + j]
        r[i, :margin] = 0.0
        r[i, margin + nwave:] = 0.0


@njit(nogil=True, cache=True)
def left(r, factor, margin):  # type: ignore[no-untyped-def]
    """sqrt(r M^-1 r): the error in sigma that a residual stands for."""
    z = np.zeros(r.shape)
    return math.sqrt(_precondition(z, r, factor, np.zeros((factor.shape[1] + factor.shape[2], LANE)), margin))
