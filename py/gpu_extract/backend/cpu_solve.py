"""CPU kernels: conjugate gradients on the banded normal equations, one banded Cholesky per fibre as preconditioner.

Vectors are (nfibre, margin + nwave + margin) with zeros in the margins, so
that a band row needs no test at the ends. All sums run in the order written.
"""
import math

import numpy as np
from numba import njit

from gpu_extract.backend.simd import address, vfma, vread, vset, vsum, vwrite


@njit(nogil=True, cache=True)
def cholesky(factor, band):  # type: ignore[no-untyped-def]
    """Banded Cholesky factors of the fibres' diagonal blocks.

    band: (nfibre, nwave, 2 hw + 1), band[i, j, hw + k] = icov of bins j and j + k of fibre i
    factor: (nfibre, nwave, hw + 1), filled: factor[i, j, hw - k] = L[j, j - k]; the diagonal holds 1 / L[j, j]
    A pivot that is not positive decouples its bin; returns how many were.
    """
    nfibre, nwave, nband = band.shape
    hw = nband // 2
    repaired = 0
    for i in range(nfibre):
        low = factor[i]
        for j in range(nwave):
            scale = band[i, j, hw]
            for m in range(max(0, hw - j), hw):
                column = j - hw + m
                total = band[i, j, m]
                for n in range(max(0, hw - j), m):
                    total -= low[j, n] * low[column, n + hw - m]
                low[j, m] = total * low[column, hw]
            for m in range(max(0, hw - j)):
                low[j, m] = 0.0
            pivot = scale
            for m in range(hw):
                pivot -= low[j, m] * low[j, m]
            if pivot > 1e-14 * scale:
                low[j, hw] = 1.0 / math.sqrt(pivot)
            else:
                repaired += scale > 0.0
                low[j, :hw] = 0.0
                low[j, hw] = 1.0 / math.sqrt(scale) if scale > 0.0 else 1.0
    return repaired


@njit(nogil=True, cache=True)
def solve_blocks(z, r, factor, margin):  # type: ignore[no-untyped-def]
    """z = M^-1 r with the factors of `cholesky`, fibre by fibre."""
    nfibre, nwave, hw = factor.shape[0], factor.shape[1], factor.shape[2] - 1
    for i in range(nfibre):
        low = factor[i]
        for j in range(nwave):
            total = r[i, margin + j]
            for m in range(hw):
                total -= low[j, m] * z[i, margin + j - hw + m]
            z[i, margin + j] = total * low[j, hw]
        for j in range(nwave - 1, -1, -1):
            value = z[i, margin + j] * low[j, hw]
            z[i, margin + j] = value
            for m in range(max(0, hw - j), hw):
                z[i, margin + j - hw + m] -= low[j, m] * value


@njit(nogil=True, cache=True)
def multiply(y, icov, x, margin, first):  # type: ignore[no-untyped-def]
    """y = icov x, counting only couplings to fibres at distance `first` (0 or 1) and more.

    y, x: (nfibre, margin + nwave + margin), margin >= hw
    """
    nfibre, nd, nwave, nband = icov.shape
    hw, length = nband // 2, y.shape[1]
    whole = nband // 4 * 4
    y[:] = 0.0
    at_y, at_x, bands = address(y, 0), address(x, 0), address(icov, 0)
    for i in range(nfibre):
        for d in range(first, min(nd, nfibre - i)):
            near = at_x + 8 * ((i + d) * length + margin - hw)
            back_to = at_y + 8 * ((i + d) * length + margin - hw)
            row = bands + 8 * (i * nd + d) * nwave * nband
            for j in range(nwave):
                value = vset(x[i, margin + j])
                total = vset(0.0)
                for k in range(0, 8 * whole, 32):
                    coupling = vread(row + k)
                    total = vfma(coupling, vread(near + k), total)
                    if d > 0:
                        vwrite(back_to + k, vfma(coupling, value, vread(back_to + k)))
                rest = vsum(total)
                for k in range(whole, nband):
                    coupling_one = icov[i, d, j, k]
                    rest += coupling_one * x[i + d, margin + j - hw + k]
                    if d > 0:
                        y[i + d, margin + j - hw + k] += coupling_one * x[i, margin + j]
                y[i, margin + j] += rest
                row += 8 * nband
                near += 8
                back_to += 8


@njit(nogil=True, cache=True)
def dot(a, b):  # type: ignore[no-untyped-def]
    """Sum of a b over all elements, row by row."""
    total = 0.0
    for i in range(a.shape[0]):
        s0 = s1 = s2 = s3 = 0.0
        n = a.shape[1] // 4 * 4
        for j in range(0, n, 4):
            s0 += a[i, j] * b[i, j]
            s1 += a[i, j + 1] * b[i, j + 1]
            s2 += a[i, j + 2] * b[i, j + 2]
            s3 += a[i, j + 3] * b[i, j + 3]
        for j in range(n, a.shape[1]):
            s0 += a[i, j] * b[i, j]
        total += (s0 + s1) + (s2 + s3)
    return total


@njit(nogil=True, cache=True)
def conjugate_gradients(x, icov, rhs, factor, tolerance, most):  # type: ignore[no-untyped-def]
    """Solve icov x = rhs; x, rhs: (nfibre, nwave). Returns (iterations, error in sigma, relative rounding floor).

    With M the fibres' diagonal blocks, sqrt(r M^-1 r) is the size of the error of x in units of its own
    sigma, summed in squares over all bins, up to the coupling between fibres; it ends the iteration.
    M z = r lets icov z = r + E z be made from the couplings E between fibres alone.
    """
    nfibre, nwave = rhs.shape
    margin = icov.shape[3] // 2
    shape = (nfibre, nwave + 2 * margin)
    inner = slice(margin, margin + nwave)
    r, z, p = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    q, s, t = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    r[:, inner] = rhs
    solve_blocks(z, r, factor, margin)
    norm = dot(r, z)
    floor = 1e-15 * math.sqrt(norm)
    beta, best, stalled, done = 0.0, norm, 0, 0
    while done < most and math.sqrt(norm) > max(tolerance, floor) and stalled < 5:
        multiply(t, icov, z, margin, 1)
        curvature = 0.0
        for i in range(nfibre):
            for j in range(shape[1]):
                p[i, j] = z[i, j] + beta * p[i, j]
                q[i, j] = r[i, j] + t[i, j] + beta * q[i, j]
        curvature = dot(p, q)
        if not curvature > 0.0:
            break
        alpha = norm / curvature
        for i in range(nfibre):
            for j in range(shape[1]):
                s[i, j] += alpha * p[i, j]
                r[i, j] -= alpha * q[i, j]
        solve_blocks(z, r, factor, margin)
        renewed = dot(r, z)
        beta = renewed / norm
        norm = renewed
        done += 1
        stalled = 0 if norm < best else stalled + 1
        best = min(best, norm)
    x[:] = s[:, inner]
    return done, math.sqrt(norm), floor
