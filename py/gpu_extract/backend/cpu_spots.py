"""CPU kernels: spots of the Gauss-Hermite PSFs, one bin after another.

Every bin is computed by the same instructions from its own numbers, so that a
spot does not depend on the tile it is made in.

The profiles along x and y need exp(-u^2/2) at the pixel edges u_e = u_m + (e - m) h,
a lattice; neighbouring values differ by a factor that itself changes by a
constant factor: three exponentials and two products per edge instead of one
exponential per edge (relative error below 100 eps for 24 edges).
"""
import math

import numpy as np
from numba import njit

from gpu_extract.backend.simd import (
    vabs,
    vadd,
    vdiv,
    vfma,
    vless,
    vload,
    vmax,
    vmul,
    vset,
    vsign,
    vstore,
    vsub,
    vsum,
)

# erfc(z) exp(z^2) = sum_n _ERFCX[n] s^n with s = 6 / (3 + z) - 1: Chebyshev interpolation of that function
# of s made with 50 digits, absolute error below 1.4e-15 for z >= 0.
_ERFCX = np.array([
    0.17900115118139026, 0.32623356004303644, 0.24560380171225352, 0.15011593650084654, 0.07166583720110131,
    0.024392499316826917, 0.00426913628355844, -0.0007077464161369134, -0.0005970615485219845,
    -4.5255455972329074e-05, 6.405465303733037e-05, 1.286116774232076e-05, -7.972456164964205e-06,
    -2.1218568423294364e-06, 1.2415210714305528e-06, 2.972782959631279e-07, -2.208102995112378e-07,
    -3.238389487720839e-08, 3.574382596423714e-08, 1.7224392307220836e-09, -3.4812520966333774e-09,
    8.365905097263794e-11])

_ROOT_HALF = math.sqrt(0.5)
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)


@njit(nogil=True, cache=True)
def _gaussian_lattice(gauss, nedge, u_first, step):  # type: ignore[no-untyped-def]
    """gauss[e] = exp(-u_e^2 / 2) for u_e = u_first + e step, e < nedge, from the edge nearest to 0 outwards."""
    middle = min(max(int(round(-u_first / step)), 0), nedge - 1)
    u = u_first + middle * step
    half = 0.5 * step * step
    change = math.exp(-step * step)
    value = math.exp(-0.5 * u * u)
    gauss[middle] = value
    ratio = math.exp(-u * step - half)
    up = value
    for e in range(middle + 1, nedge):
        up *= ratio
        ratio *= change
        gauss[e] = up
    ratio = math.exp(u * step - half)
    down = value
    for e in range(middle - 1, -1, -1):
        down *= ratio
        ratio *= change
        gauss[e] = down


@njit(nogil=True, cache=True)
def _profiles(out, edges, gauss, lattice, degree, first, npixel):  # type: ignore[no-untyped-def]
    """Pixel integrals of the Gauss-Hermite terms 0 .. degree along one axis.

    out: flat (degree + 1, stride) with stride = len(gauss) - 4; pixel n lies between edges n and n + 1
    edges: flat scratch (degree + 1, len(gauss)): antiderivatives at the edges
    lattice: flat scratch, 0, 1, 2, ... (len(gauss))
    first: (u of edge 0, step in u)
    """
    nedge = len(gauss)
    stride = nedge - 4
    _gaussian_lattice(gauss, npixel + 1, first[0], first[1])
    one = vset(1.0)
    for e in range(0, nedge, 4):
        u = vfma(vload(lattice, e), vset(first[1]), vset(first[0]))
        g = vload(gauss, e)
        s = vsub(vdiv(vset(6.0), vfma(vabs(u), vset(_ROOT_HALF), vset(3.0))), one)
        tail = vset(_ERFCX[21])
        for n in range(20, -1, -1):
            tail = vfma(tail, s, vset(_ERFCX[n]))
        vstore(edges, e, vmul(vset(0.5), vsign(vsub(one, vmul(g, tail)), u)))
        g = vmul(g, vset(-_DENSITY))
        he0 = vset(0.0)
        he1 = one
        for n in range(1, degree + 1):
            vstore(edges, n * nedge + e, vmul(he1, g))
            he2 = vsub(vmul(u, he1), vmul(vset(n - 1.0), he0))
            he0 = he1
            he1 = he2
    for n in range(degree + 1):
        for e in range(0, stride, 4):
            at = n * nedge + e
            vstore(out, n * stride + e, vsub(vload(edges, at + 1), vload(edges, at)))


@njit(nogil=True, cache=True)
def _coefficients(out, series, basis, npar):  # type: ignore[no-untyped-def]
    """out[p] = sum_k basis[k] series[k, p]; npar is a multiple of 4."""
    ncoef = len(basis)
    for p in range(0, npar, 4):
        total = vset(0.0)
        for k in range(ncoef):
            total = vfma(vset(basis[k]), vload(series, k * npar + p), total)
        vstore(out, p, total)


@njit(nogil=True, cache=True)
def _add_core(stamp, coeff, hx, hy, work, shape):  # type: ignore[no-untyped-def]
    """stamp[y, x] += sum_ji coeff[j, i] hy[j, y] hx[i, x]; shape: (ny, width, stride y, degy + 1, degx + 1)."""
    ny, width, stride_y, nj, ni = shape
    for x in range(0, width, 4):
        for j in range(nj):
            total = vset(0.0)
            for i in range(ni):
                total = vfma(vset(coeff[j * ni + i]), vload(hx, i * width + x), total)
            vstore(work, 4 * j, total)
        for y in range(ny):
            total = vload(stamp, y * width + x)
            for j in range(nj):
                total = vfma(vset(hy[j * stride_y + y]), vload(work, 4 * j), total)
            vstore(stamp, y * width + x, total)


@njit(nogil=True, cache=True)
def add_core(stamps, corner, centre, sigma, series, basis, nsig, degree):  # type: ignore[no-untyped-def]
    """Add a Gauss-Hermite core to every stamp.

    stamps: (nfibre, nwave, ny, width); corner, centre: (2, nfibre, nwave), y then x
    sigma: (2, nfibre, nwave), y then x; series: (nfibre, ncoef, npar) with npar a multiple of 4
    basis: (nwave, ncoef); nsig: (nfibre, nwave), infinite where the core is not cut
    degree: (degy, degx)
    """
    nfibre, nwave, ny, width = stamps.shape
    npar = series.shape[2]
    nj, ni = degree[0] + 1, degree[1] + 1
    edges_x, edges_y = width + 4, (ny + 1 + 3) // 4 * 4 + 4
    lattice = np.arange(max(edges_x, edges_y)).astype(np.float64)
    gauss_x, gauss_y = np.zeros(edges_x), np.zeros(edges_y)
    scratch = np.zeros(max(nj, ni) * max(edges_x, edges_y))
    hx, hy = np.zeros(ni * width), np.zeros(nj * (edges_y - 4))
    coeff, work, stamp = np.zeros(npar), np.zeros(4 * nj), np.zeros(ny * width)
    for i in range(nfibre):
        for j in range(nwave):
            sy, sx = sigma[0, i, j], sigma[1, i, j]
            uy = (corner[0, i, j] - 0.5 - centre[0, i, j]) / sy
            ux = (corner[1, i, j] - 0.5 - centre[1, i, j]) / sx
            _profiles(hx, scratch, gauss_x, lattice, degree[1], (ux, 1.0 / sx), width)
            _profiles(hy, scratch, gauss_y, lattice, degree[0], (uy, 1.0 / sy), edges_y - 4)
            _coefficients(coeff, series[i].ravel(), basis[j], npar)
            stamp[:] = 0.0
            _add_core(stamp, coeff, hx, hy, work, (ny, width, edges_y - 4, nj, ni))
            target = stamps[i, j].ravel()
            limit = nsig[i, j] * nsig[i, j]
            for y in range(ny):
                dy = (corner[0, i, j] + y - centre[0, i, j]) / sy
                for x in range(0, width, 4):
                    dx = vfma(vload(lattice, x), vset(1.0 / sx), vset((corner[1, i, j] - centre[1, i, j]) / sx))
                    keep = vless(vfma(dx, dx, vset(dy * dy)), vset(limit))
                    at = y * width + x
                    vstore(target, at, vfma(keep, vload(stamp, at), vload(target, at)))


@njit(nogil=True, cache=True)
def add_tail(stamps, corner, centre, tail):  # type: ignore[no-untyped-def]
    """Add amp r2 / (core^2 + r2)^(1 + index/2) to every stamp; tail: (5, nfibre, nwave), amp core xscale yscale index."""
    nfibre, nwave, ny, width = stamps.shape
    for i in range(nfibre):
        for j in range(nwave):
            amp, core2 = tail[0, i, j], tail[1, i, j] ** 2
            power = 1.0 + 0.5 * tail[4, i, j]
            for y in range(ny):
                dy2 = ((corner[0, i, j] + y - centre[0, i, j]) * tail[3, i, j]) ** 2
                for x in range(width):
                    r2 = ((corner[1, i, j] + x - centre[1, i, j]) * tail[2, i, j]) ** 2 + dy2
                    stamps[i, j, y, x] += amp * r2 / (core2 + r2) ** power


@njit(nogil=True, cache=True)
def finish(stamps, shift, nx):  # type: ignore[no-untyped-def]
    """Zero the columns outside the spot, clip negative values, and normalise each stamp to sum 1.

    shift: (nfibre, nwave) columns before the spot; nx: columns of the spot
    A stamp without light stays 0.
    """
    nfibre, nwave, ny, width = stamps.shape
    lattice = np.arange(width).astype(np.float64)
    zero = vset(0.0)
    for i in range(nfibre):
        for j in range(nwave):
            stamp = stamps[i, j].ravel()
            first, last = vset(shift[i, j] - 0.5), vset(shift[i, j] + nx - 0.5)
            total = zero
            for x in range(0, width, 4):
                column = vload(lattice, x)
                inside = vmul(vless(first, column), vless(column, last))
                for y in range(ny):
                    value = vmul(inside, vmax(vload(stamp, y * width + x), zero))
                    vstore(stamp, y * width + x, value)
                    total = vadd(total, value)
            light = vsum(total)
            scale = vset(1.0 / light if light > 0.0 else 0.0)
            for at in range(0, ny * width, 4):
                vstore(stamp, at, vmul(scale, vload(stamp, at)))
