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
    address,
    number,
    polynomial,
    vabs,
    vadd,
    vdiv,
    vexp,
    vfma,
    vless,
    vmax,
    vmul,
    vread,
    vset,
    vsign,
    vspread,
    vsub,
    vsum,
    vwrite,
    vwrite_single,
    write,
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


@njit(nogil=True)
def _profiles(out, edges, lattice, shape, first, step):  # type: ignore[no-untyped-def]
    """Pixel integrals of the Gauss-Hermite terms along one axis.

    out: address of (nterm, stride), stride a multiple of 4; pixel n lies between edges n and n + 1
    edges: address of scratch (nterm, stride + 4): antiderivatives at the edges; lattice: address of 0, 1, 2, ...
    shape: (nterm, stride); first, step: edge e lies at u = first + e step, in units of sigma
    """
    nterm, stride = shape
    pitch = 8 * (stride + 4)
    one = vset(1.0)
    for e in range(0, pitch, 32):
        u = vfma(vread(lattice + e), vset(step), vset(first))
        g = vexp(vmul(vset(-0.5), vmul(u, u)))
        s = vsub(vdiv(vset(6.0), vfma(vabs(u), vset(_ROOT_HALF), vset(3.0))), one)
        vwrite(edges + e, vmul(vset(0.5), vsign(vsub(one, vmul(g, _erfcx(s))), u)))
        g = vmul(g, vset(-_DENSITY))
        he0 = vset(0.0)
        he1 = one
        order = he0
        for n in range(1, nterm):
            vwrite(edges + n * pitch + e, vmul(he1, g))
            he2 = vsub(vmul(u, he1), vmul(order, he0))
            order = vadd(order, one)
            he0 = he1
            he1 = he2
    for n in range(nterm):
        for e in range(0, 8 * stride, 32):
            at = edges + n * pitch + e
            vwrite(out + 8 * n * stride + e, vsub(vread(at + 8), vread(at)))


@njit(nogil=True)
def _coefficients(out, series, basis, npar, ncoef):  # type: ignore[no-untyped-def]
    """out[p] = sum_k basis[k] series[k, p]: addresses of (npar,), (ncoef, npar), (ncoef,); npar a multiple of 4."""
    for p in range(0, 8 * npar, 32):
        total = vset(0.0)
        for k in range(ncoef):
            total = vfma(vspread(basis + 8 * k), vread(series + 8 * k * npar + p), total)
        vwrite(out + p, total)


@njit(nogil=True)
def _add_core(stamp, coeff, profiles, work, shape, terms):  # type: ignore[no-untyped-def]
    """stamp[y, x] += sum_ji coeff[i, j] hy[j, y] hx[i, x]; addresses of flat arrays.

    stamp: (rows, width), both multiples of 4; coeff: (ni, nj4); profiles: (hy (nj, rows), hx (ni, width)); work: nj4
    vectors; shape: (rows, width); terms: (nj, ni, nj4), nj4 a multiple of 4
    """
    hy, hx = profiles
    rows, width = shape
    nj, ni, nj4 = terms
    line = 8 * width
    for x in range(0, line, 32):
        for j in range(0, nj4, 4):
            a0 = vset(0.0)
            a1 = vset(0.0)
            a2 = vset(0.0)
            a3 = vset(0.0)
            at = coeff + 8 * j
            for i in range(ni):
                h = vread(hx + i * line + x)
                a0 = vfma(vspread(at), h, a0)
                a1 = vfma(vspread(at + 8), h, a1)
                a2 = vfma(vspread(at + 16), h, a2)
                a3 = vfma(vspread(at + 24), h, a3)
                at += 8 * nj4
            to = work + 32 * j
            vwrite(to, a0)
            vwrite(to + 32, a1)
            vwrite(to + 64, a2)
            vwrite(to + 96, a3)
        for y in range(0, rows, 4):
            to = stamp + y * line + x
            a0 = vread(to)
            a1 = vread(to + line)
            a2 = vread(to + 2 * line)
            a3 = vread(to + 3 * line)
            at = hy + 8 * y
            for j in range(nj):
                w = vread(work + 32 * j)
                a0 = vfma(vspread(at), w, a0)
                a1 = vfma(vspread(at + 8), w, a1)
                a2 = vfma(vspread(at + 16), w, a2)
                a3 = vfma(vspread(at + 24), w, a3)
                at += 8 * rows
            vwrite(to, a0)
            vwrite(to + line, a1)
            vwrite(to + 2 * line, a2)
            vwrite(to + 3 * line, a3)


@njit(nogil=True)
def _cut_core(stamp, lattice, shape, line, limit):  # type: ignore[no-untyped-def]
    """stamp = 0 where uy^2 + ux^2 >= limit; line: (uy, ux) of pixel (0, 0) and their steps; shape: (rows, width)."""
    for y in range(shape[0]):
        uy = line[0] + y * line[2]
        for x in range(0, 8 * shape[1], 32):
            ux = vfma(vread(lattice + x), vset(line[3]), vset(line[1]))
            keep = vless(vfma(ux, ux, vset(uy * uy)), vset(limit))
            at = stamp + 8 * y * shape[1] + x
            vwrite(at, vmul(keep, vread(at)))


@njit(nogil=True)
def _add_tail(stamp, shape, first, tail):  # type: ignore[no-untyped-def]
    """stamp += amp r2 / (core^2 + r2)^(1 + index/2).

    stamp: address; shape: (ny, width); first: (dy, dx) of pixel (0, 0)
    tail: address of amp, core, xscale, yscale, index
    """
    amp, core, power = number(tail), number(tail + 8), -1.0 - 0.5 * number(tail + 32)
    at = stamp
    for y in range(shape[0]):
        dy = (first[0] + y) * number(tail + 24)
        for x in range(shape[1]):
            dx = (first[1] + x) * number(tail + 16)
            r2 = dx * dx + dy * dy
            write(at, number(at) + amp * r2 * math.exp(power * math.log(core * core + r2)))
            at += 8


@njit(nogil=True)
def _finish(stamp, lattice, shape, first, last):  # type: ignore[no-untyped-def]
    """Zero the columns before `first` and from `last` on, clip negative values; returns the sum of what is left.

    stamp, lattice: addresses; shape: (ny, width)
    """
    zero = vset(0.0)
    total = zero
    line = 8 * shape[1]
    for x in range(0, line, 32):
        column = vread(lattice + x)
        inside = vmul(vless(vset(first - 0.5), column), vless(column, vset(last - 0.5)))
        for at in range(stamp + x, stamp + shape[0] * line, line):
            value = vmul(inside, vmax(vread(at), zero))
            vwrite(at, value)
            total = vadd(total, value)
    return vsum(total)


# A bin's numbers, one row of float64 per bin: first pixel minus centre (y, x), columns before the spot, then sigma y,
# sigma x and nsig of the first core, of the second core, then the tail's amp, core, xscale, yscale, index.
FIRST, SHIFT, CORES, TAIL, NUMBERS = 0, 2, 3, 9, 14


@njit(nogil=True)
def space_of(terms, shape):  # type: ignore[no-untyped-def]
    """float64 numbers that a spot is made in: stamp, lattice, and a core's coefficients, work, profiles and edges.

    terms: (nj, ni, npar) large enough for both cores; shape: (ny, width)
    """
    nj, ni, npar = terms
    rows, width = (shape[0] + 3) // 4 * 4, shape[1]
    profiles = nj * rows + ni * width + nj * (rows + 4) + ni * (width + 4)
    return rows * width + max(rows, width) + 8 + 5 * npar + profiles


@njit(nogil=True)
def _core(stamp, space, core, lattice, shape, place):  # type: ignore[no-untyped-def]
    """Add a core to a stamp.

    stamp, lattice, space: addresses; core: (series, basis, npar, ncoef, nj, ni), the first two addresses of the fibre's
    series and the bin's basis; shape: (rows, width); place: (dy, dx, address of sigma y, sigma x, nsig)
    """
    series, basis, npar, ncoef, nj, ni = core
    coeff = space
    work = coeff + 8 * npar
    hy = work + 32 * (npar // ni)
    hx = hy + 8 * nj * shape[0]
    edges_y = hx + 8 * ni * shape[1]
    edges_x = edges_y + 8 * nj * (shape[0] + 4)
    step_y, step_x, nsig = 1.0 / number(place[2]), 1.0 / number(place[2] + 8), number(place[2] + 16)
    uy, ux = place[0] * step_y, place[1] * step_x
    _profiles(hy, edges_y, lattice, (nj, shape[0]), uy - 0.5 * step_y, step_y)
    _profiles(hx, edges_x, lattice, (ni, shape[1]), ux - 0.5 * step_x, step_x)
    _coefficients(coeff, series, basis, npar, ncoef)
    _add_core(stamp, coeff, (hy, hx), work, shape, (nj, ni, npar // ni))
    if nsig < math.inf:
        _cut_core(stamp, lattice, shape, (uy, ux, step_y, step_x), nsig * nsig)


@njit(nogil=True)
def make_spot(out, single, numbers, cores, space, shape):  # type: ignore[no-untyped-def]
    """Make one spot with sum 1 (or 0 where it has no light).

    out, single: addresses for (ny, width) float64 and, unless 0, float32; numbers: address of the bin's numbers
    cores: two of (series, basis, npar, ncoef, nj, ni), see `_core`; npar = 0 where there is no second
    space: address of `space_of` numbers, the lattice 0, 1, 2, ... at its beginning
    shape: (ny, width, nx, whether there is a tail)
    """
    ny, width, nx, has_tail = shape
    rows = (ny + 3) // 4 * 4
    lattice = space
    stamp = lattice + 8 * (max(rows, width) + 8)
    work = stamp + 8 * rows * width
    first = number(numbers), number(numbers + 8)
    for n in range(0, 8 * rows * width, 32):
        vwrite(stamp + n, vset(0.0))
    _core(stamp, work, cores[0], lattice, (rows, width), (first[0], first[1], numbers + 8 * CORES))
    if cores[1][2] > 0:
        _core(stamp, work, cores[1], lattice, (rows, width), (first[0], first[1], numbers + 8 * (CORES + 3)))
    if has_tail:
        _add_tail(stamp, (ny, width), first, numbers + 8 * TAIL)
    shift = number(numbers + 8 * SHIFT)
    light = _finish(stamp, lattice, (ny, width), shift, shift + nx)
    scale = vset(1.0 / light if light > 0.0 else 0.0)
    for n in range(0, 8 * ny * width, 32):
        vwrite(out + n, vmul(scale, vread(stamp + n)))
    if single != 0:
        for n in range(0, 4 * ny * width, 16):
            vwrite_single(single + n, vread(out + 2 * n))


@njit(nogil=True)
def core_at(core, i, j):  # type: ignore[no-untyped-def]
    """A core of fibre i at bin j as `make_spot` wants it; core: see `make_spots`."""
    series, basis, terms = core
    _, ncoef, npar = series.shape
    return address(series, i * ncoef * npar), address(basis, j * ncoef), npar, ncoef, terms[0], terms[1]


@njit(nogil=True)
def terms_of(cores):  # type: ignore[no-untyped-def]
    """(nj, ni, npar) of the larger of both cores."""
    return (max(cores[0][2][0], cores[1][2][0]), max(cores[0][2][1], cores[1][2][1]),
            max(cores[0][0].shape[2], cores[1][0].shape[2]))


@njit(nogil=True, cache=True)
def make_spots(out, numbers, cores, shape):  # type: ignore[no-untyped-def]
    """Make all spots.

    out: (nfibre, nwave, ny, width) float64; numbers: (nfibre, nwave, NUMBERS)
    cores: two of (series (nfibre, ncoef, ni nj4), basis (nwave, ncoef), terms (nj, ni)); the first is added before the
        second, whose arrays are empty where there is none
    shape: (ny, width, nx, whether there is a tail)
    """
    space = np.zeros(space_of(terms_of(cores), shape[:2]))
    space[:max(shape[0] + 3, shape[1]) + 8] = np.arange(max(shape[0] + 3, shape[1]) + 8)
    _make_spots(out, numbers, cores, shape, space)


@njit(nogil=True)
def _make_spots(out, numbers, cores, shape, space):  # type: ignore[no-untyped-def]
    """make_spots with its scratch as an argument: an array lives as long as the call it is an argument of."""
    nfibre, nwave = out.shape[0], out.shape[1]
    size = shape[0] * shape[1]
    for i in range(nfibre):
        for j in range(nwave):
            bin_ = i * nwave + j
            make_spot(address(out, bin_ * size), 0, address(numbers, bin_ * NUMBERS),
                      (core_at(cores[0], i, j), core_at(cores[1], i, j)), address(space, 0), shape)
