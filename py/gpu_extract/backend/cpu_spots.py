"""CPU kernels: spots of the Gauss-Hermite PSFs, one bin after another.

Every bin is computed by the same instructions from its own numbers, so that a
spot does not depend on the tile it is made in. The profiles along y and x are
separable; a spot is hy^T G hx with the small matrix G of Gauss-Hermite
coefficients, four columns at a time, four rows at a time.
"""
import math

import numpy as np
from numba import njit

from gpu_extract.backend.simd import (
    polynomial,
    vabs,
    vadd,
    vdiv,
    vexp,
    vfma,
    vless,
    vload,
    vmax,
    vmul,
    vset,
    vsign,
    vspread,
    vstore,
    vsub,
    vsum,
)

# erfc(z) exp(z^2) = sum_n c_n s^n with s = 6 / (3 + z) - 1: Chebyshev interpolation of that function
# of s made with 50 digits, absolute error below 1.4e-15 for z >= 0.
_erfcx = polynomial([
    0.17900115118139026, 0.32623356004303644, 0.24560380171225352, 0.15011593650084654, 0.07166583720110131,
    0.024392499316826917, 0.00426913628355844, -0.0007077464161369134, -0.0005970615485219845,
    -4.5255455972329074e-05, 6.405465303733037e-05, 1.286116774232076e-05, -7.972456164964205e-06,
    -2.1218568423294364e-06, 1.2415210714305528e-06, 2.972782959631279e-07, -2.208102995112378e-07,
    -3.238389487720839e-08, 3.574382596423714e-08, 1.7224392307220836e-09, -3.4812520966333774e-09,
    8.365905097263794e-11])

_ROOT_HALF = math.sqrt(0.5)
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)


@njit(nogil=True, inline="never")
def _profiles(out, edges, lattice, nterm, first, step):  # type: ignore[no-untyped-def]
    """Pixel integrals of the Gauss-Hermite terms 0 .. nterm - 1 along one axis.

    out: flat (nterm, stride), stride a multiple of 4; pixel n lies between edges n and n + 1
    edges: flat scratch (nterm, stride + 4): antiderivatives at the edges; lattice: 0, 1, 2, ...
    first, step: edge e lies at u = first + e step, in units of sigma
    """
    stride = len(out) // nterm
    nedge = stride + 4
    one = vset(1.0)
    for e in range(0, nedge, 4):
        u = vfma(vload(lattice, e), vset(step), vset(first))
        g = vexp(vmul(vset(-0.5), vmul(u, u)))
        s = vsub(vdiv(vset(6.0), vfma(vabs(u), vset(_ROOT_HALF), vset(3.0))), one)
        vstore(edges, e, vmul(vset(0.5), vsign(vsub(one, vmul(g, _erfcx(s))), u)))
        g = vmul(g, vset(-_DENSITY))
        he0 = vset(0.0)
        he1 = one
        for n in range(1, nterm):
            vstore(edges, n * nedge + e, vmul(he1, g))
            he2 = vsub(vmul(u, he1), vmul(vset(n - 1.0), he0))
            he0 = he1
            he1 = he2
    for n in range(nterm):
        for e in range(0, stride, 4):
            at = n * nedge + e
            vstore(out, n * stride + e, vsub(vload(edges, at + 1), vload(edges, at)))


@njit(nogil=True)
def _coefficients(out, series, at, basis, row):  # type: ignore[no-untyped-def]
    """out[p] = sum_k basis[row, k] series[at + k npar + p], for the npar = len(out) coefficients of a core."""
    npar = len(out)
    for p in range(0, npar, 4):
        total = vset(0.0)
        for k in range(basis.shape[1]):
            total = vfma(vspread(basis, row * basis.shape[1] + k), vload(series, at + k * npar + p), total)
        vstore(out, p, total)


@njit(nogil=True, inline="never")
def _add_core(stamp, coeff, hx, hy, work, terms):  # type: ignore[no-untyped-def]
    """stamp[y, x] += sum_ji coeff[i, j] hy[j, y] hx[i, x].

    stamp: flat (rows, width), both multiples of 4; coeff: flat (ni, nj4), nj4 a multiple of 4; hx: flat (ni, width);
    hy: flat (nj, rows); work: nj4 vectors; terms: (nj, ni)
    """
    nj, ni = terms
    nj4 = len(work) // 4
    width, rows = len(hx) // ni, len(hy) // nj
    for x in range(0, width, 4):
        for j in range(0, nj4, 4):
            a0 = vset(0.0)
            a1 = vset(0.0)
            a2 = vset(0.0)
            a3 = vset(0.0)
            for i in range(ni):
                h = vload(hx, i * width + x)
                at = i * nj4 + j
                a0 = vfma(vspread(coeff, at), h, a0)
                a1 = vfma(vspread(coeff, at + 1), h, a1)
                a2 = vfma(vspread(coeff, at + 2), h, a2)
                a3 = vfma(vspread(coeff, at + 3), h, a3)
            vstore(work, 4 * j, a0)
            vstore(work, 4 * j + 4, a1)
            vstore(work, 4 * j + 8, a2)
            vstore(work, 4 * j + 12, a3)
        for y in range(0, rows, 4):
            at = y * width + x
            a0 = vload(stamp, at)
            a1 = vload(stamp, at + width)
            a2 = vload(stamp, at + 2 * width)
            a3 = vload(stamp, at + 3 * width)
            for j in range(nj):
                w = vload(work, 4 * j)
                h0 = j * rows + y
                a0 = vfma(vspread(hy, h0), w, a0)
                a1 = vfma(vspread(hy, h0 + 1), w, a1)
                a2 = vfma(vspread(hy, h0 + 2), w, a2)
                a3 = vfma(vspread(hy, h0 + 3), w, a3)
            vstore(stamp, at, a0)
            vstore(stamp, at + width, a1)
            vstore(stamp, at + 2 * width, a2)
            vstore(stamp, at + 3 * width, a3)


@njit(nogil=True)
def _cut_core(stamp, lattice, width, line, limit):  # type: ignore[no-untyped-def]
    """stamp = 0 where uy^2 + ux^2 >= limit; line: (uy, ux) of pixel (0, 0) and their steps."""
    for y in range(len(stamp) // width):
        uy = line[0] + y * line[2]
        for x in range(0, width, 4):
            ux = vfma(vload(lattice, x), vset(line[3]), vset(line[1]))
            keep = vless(vfma(ux, ux, vset(uy * uy)), vset(limit))
            vstore(stamp, y * width + x, vmul(keep, vload(stamp, y * width + x)))


@njit(nogil=True)
def _add_tail(stamp, width, first, tail):  # type: ignore[no-untyped-def]
    """stamp += amp r2 / (core^2 + r2)^(1 + index/2); first: (dy, dx) of pixel (0, 0); tail: amp core xscale yscale index."""
    amp, core2, power = tail[0], tail[1] * tail[1], -1.0 - 0.5 * tail[4]
    for y in range(len(stamp) // width):
        dy = (first[0] + y) * tail[3]
        for x in range(width):
            dx = (first[1] + x) * tail[2]
            r2 = dx * dx + dy * dy
            stamp[y * width + x] += amp * r2 * math.exp(power * math.log(core2 + r2))


@njit(nogil=True)
def _finish(stamp, lattice, shape, first, last):  # type: ignore[no-untyped-def]
    """Zero the columns before `first` and from `last` on, clip negative values; returns the sum of what is left.

    shape: (pixels of the stamp, width); rows beyond are scratch
    """
    zero = vset(0.0)
    total = zero
    for x in range(0, shape[1], 4):
        column = vload(lattice, x)
        inside = vmul(vless(vset(first - 0.5), column), vless(column, vset(last - 0.5)))
        for at in range(x, shape[0], shape[1]):
            value = vmul(inside, vmax(vload(stamp, at), zero))
            vstore(stamp, at, value)
            total = vadd(total, value)
    return vsum(total)


@njit(nogil=True)
def _scratch(core, rows, width):  # type: ignore[no-untyped-def]
    """Work space of a core: (coeff, work, hy, hx, edges y, edges x)."""
    series, terms = core[1], core[4]
    nj, ni = max(terms[0], 1), max(terms[1], 1)
    return (np.zeros(series.shape[2]), np.zeros(4 * (series.shape[2] // ni)), np.zeros(nj * rows), np.zeros(ni * width),
            np.zeros(nj * (rows + 4)), np.zeros(ni * (width + 4)))


@njit(nogil=True, inline="never")
def _core(stamp, core, space, lattice, bin_, from_centre):  # type: ignore[no-untyped-def]
    """Add a core to the stamp of bin (i, j); from_centre: first pixel minus centre, y then x."""
    sigma, series, basis, nsig, terms = core
    coeff, work, hy, hx, edges_y, edges_x = space
    i, j = bin_
    step_y, step_x = 1.0 / sigma[0, i, j], 1.0 / sigma[1, i, j]
    uy, ux = from_centre[0] * step_y, from_centre[1] * step_x
    _profiles(hy, edges_y, lattice, terms[0], uy - 0.5 * step_y, step_y)
    _profiles(hx, edges_x, lattice, terms[1], ux - 0.5 * step_x, step_x)
    _coefficients(coeff, series.ravel(), i * len(coeff) * series.shape[1], basis, j)
    _add_core(stamp, coeff, hx, hy, work, terms)
    if nsig.shape[0] > 0:
        _cut_core(stamp, lattice, len(hx) // terms[1], (uy, ux, step_y, step_x), nsig[i, j] * nsig[i, j])


@njit(nogil=True, cache=True)
def make_spots(out, single, offset, place, cores, tail, nx):  # type: ignore[no-untyped-def]
    """Make all spots, each with sum 1 (or 0 where it has no light).

    out: (nfibre, nwave, ny, width) float64; single: (nfibre, n, ny, width) float32, filled from bin `offset` on
        (n = 0: not wanted)
    place: (corner, shift, centre): (2, nfibre, nwave) first pixel, y then x (aligned); (nfibre, nwave) columns before
        the spot; (2, nfibre, nwave) centre
    cores: two of (sigma, series, basis, nsig, terms); the second's terms are (0, 0) where there is none.
        sigma: (2, nfibre, nwave), y then x; series: (nfibre, ncoef, ni nj4); basis: (nwave, ncoef);
        nsig: (nfibre, nwave), or (0, 0): not cut; terms: (nj, ni). The first is added before the second.
    tail: (5, nfibre, nwave) amp, core, xscale, yscale, index, or (5, 0, 0): none
    nx: columns of the spot
    """
    corner, shift, centre = place
    nfibre, nwave, ny, width = out.shape
    rows, size = (ny + 3) // 4 * 4, ny * width
    flat, flat_single = out.ravel(), single.ravel()
    lattice = np.arange(max(width, rows) + 8).astype(np.float64)
    stamp = np.zeros(rows * width)
    first_space, second_space = _scratch(cores[0], rows, width), _scratch(cores[1], rows, width)
    for i in range(nfibre):
        for j in range(nwave):
            dy, dx = corner[0, i, j] - centre[0, i, j], corner[1, i, j] - centre[1, i, j]
            stamp[:] = 0.0
            _core(stamp, cores[0], first_space, lattice, (i, j), (dy, dx))
            if cores[1][4][0] > 0:
                _core(stamp, cores[1], second_space, lattice, (i, j), (dy, dx))
            if tail.shape[1] > 0:
                _add_tail(stamp, width, (dy, dx), tail[:, i, j])
            light = _finish(stamp, lattice, (size, width), shift[i, j], shift[i, j] + nx)
            scale = vset(1.0 / light if light > 0.0 else 0.0)
            at = (i * nwave + j) * size
            for n in range(0, size, 4):
                vstore(flat, at + n, vmul(scale, vload(stamp, n)))
            if single.shape[1] > 0:
                copy = (i * single.shape[1] + offset + j) * size
                for n in range(0, size, 4):
                    vstore(flat_single, copy + n, vload(flat, at + n))
