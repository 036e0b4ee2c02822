"""Kernels: spots of the Gauss-Hermite PSFs, the same sums as in spots.simd_spots, lanes along wavelength.

A spot is hy^T G hx: profiles along y and x, and the small matrix G of Gauss-Hermite coefficients; each step is a kernel
of its own. What lies between them is scratch of one bundle at a time, (fibres, numbers, bins), bins fastest, and
stays in the device's second-level cache for the most part.
"""
# mypy: disallow-untyped-defs=False
import math

import numpy as np
from numba import cuda, njit

from gpu_extract.device.cuda.image import COLUMNS, LEFT, ROWS, TOP
from gpu_extract.device.cuda.kernels import kernel

# A bin's numbers: centre (y, x); of each core sigma y, sigma x, nsig; of the tail amp, core, xscale, yscale, index;
# then the coefficients of the first core, (nj, ni), and of the second
Y, X, CORES, TAIL, COEFFICIENTS = 0, 1, 2, 8, 13
_ROOT_HALF = math.sqrt(0.5)
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)


@njit(cache=True)
def _evaluate(n, numbers, series, domain, basis, first):
    """One Legendre series at one bin.

    numbers: (fibres, nseries, nwave), filled; series: (all fibres, nseries, ncoef); domain: (nseries,) which basis;
    basis: (ndomain, ncoef, nwave), the polynomials; first: number of the first fibre
    """
    nseries, nwave = numbers.shape[1], numbers.shape[2]
    f, s, j = n // (nseries * nwave), n // nwave % nseries, n % nwave
    total = 0.0
    for k in range(series.shape[2]):
        total += series[first + f, s, k] * basis[domain[s], k, j]
    numbers[f, s, j] = total


@kernel("f8[3] f8[3] i8[1] f8[3] i8", lane=_evaluate)
def evaluate(count, args):
    """All numbers of all bins: a lane for each."""
    n = cuda.grid(1)
    if n < count:
        _evaluate(n, *args)


@njit(cache=True)
def _antiderivative(order, u):
    """Integral up to u of He_order times the normal density, up to a constant."""
    if order == 0:
        return 0.5 * math.erf(u * _ROOT_HALF)
    before, he = 0.0, 1.0
    for k in range(1, order):
        before, he = he, u * he - (k - 1) * before
    return -_DENSITY * math.exp(-0.5 * u * u) * he


@njit(cache=True)
def _profile(n, profiles, numbers, y0, x0, core, ny, nx, nj, ni):
    """The integral of one Gauss-Hermite term over one pixel along y or x, of one bin.

    profiles: (fibres, nj ny + ni nx at least, nwave): hy[term, pixel], then hx; y0, x0: (fibres, nwave), first pixels
    core: 0 or 1; nj, ni: its terms along y and x
    """
    lanes, nwave = nj * ny + ni * nx, profiles.shape[2]
    f, m, j = n // (lanes * nwave), n // nwave % lanes, n % nwave
    if m < nj * ny:
        order, pixel, scale = m // ny, m % ny, 1.0 / numbers[f, CORES + 3 * core, j]
        low = (y0[f, j] - numbers[f, Y, j] + pixel - 0.5) * scale
    else:
        order, pixel, scale = (m - nj * ny) // nx, (m - nj * ny) % nx, 1.0 / numbers[f, CORES + 3 * core + 1, j]
        low = (x0[f, j] - numbers[f, X, j] + pixel - 0.5) * scale
    profiles[f, m, j] = _antiderivative(order, low + scale) - _antiderivative(order, low)


@kernel("f8[3] f8[3] i4[2] i4[2] i8 i8 i8 i8 i8", lane=_profile)
def profile(count, args):
    """Profiles of a core: a lane for each term, pixel and bin."""
    n = cuda.grid(1)
    if n < count:
        _profile(n, *args)


@njit(cache=True)
def _mix(n, mixed, numbers, profiles, first, ny, nx, nj, ni):
    """mixed[f, j nx + x, bin] = sum_i G[j, i] hx[i, x]; first: of a core's coefficients among the numbers."""
    lanes, nwave = nj * nx, mixed.shape[2]
    f, m, j = n // (lanes * nwave), n // nwave % lanes, n % nwave
    term, x = m // nx, m % nx
    total = 0.0
    for i in range(ni):
        total += numbers[f, first + term * ni + i, j] * profiles[f, nj * ny + i * nx + x, j]
    mixed[f, m, j] = total


@kernel("f8[3] f8[3] f8[3] i8 i8 i8 i8 i8", lane=_mix)
def mix(count, args):
    """G hx of a core: a lane for each term of y, column and bin."""
    n = cuda.grid(1)
    if n < count:
        _mix(n, *args)


@njit(cache=True)
def _add_core(n, raw, numbers, profiles, mixed, y0, x0, core, ny, nx, nj, cut):
    """One pixel of a core; raw: (fibres, ny nx, nwave), set by the first core, added to by the second.

    cut: whether the core is 0 where uy^2 + ux^2 >= nsig^2
    """
    lanes, nwave = ny * nx, raw.shape[2]
    f, p, j = n // (lanes * nwave), n // nwave % lanes, n % nwave
    y, x = p // nx, p % nx
    total = 0.0
    for term in range(nj):
        total += profiles[f, term * ny + y, j] * mixed[f, term * nx + x, j]
    if cut != 0:
        at = CORES + 3 * core
        uy = (y0[f, j] - numbers[f, Y, j] + y) / numbers[f, at, j]
        ux = (x0[f, j] - numbers[f, X, j] + x) / numbers[f, at + 1, j]
        if ux * ux + uy * uy >= numbers[f, at + 2, j] * numbers[f, at + 2, j]:
            total = 0.0
    raw[f, p, j] = total if core == 0 else raw[f, p, j] + total


@kernel("f8[3] f8[3] f8[3] f8[3] i4[2] i4[2] i8 i8 i8 i8 i8", lane=_add_core)
def add_core(count, args):
    """A core on its pixels: a lane for each pixel and bin."""
    n = cuda.grid(1)
    if n < count:
        _add_core(n, *args)


@njit(cache=True)
def _add_tail(n, raw, numbers, y0, x0, nx):
    """raw += amp r2 / (core^2 + r2)^(1 + index/2), one pixel."""
    lanes, nwave = raw.shape[1], raw.shape[2]
    f, p, j = n // (lanes * nwave), n // nwave % lanes, n % nwave
    core = numbers[f, TAIL + 1, j]
    dx = (x0[f, j] - numbers[f, X, j] + p % nx) * numbers[f, TAIL + 2, j]
    dy = (y0[f, j] - numbers[f, Y, j] + p // nx) * numbers[f, TAIL + 3, j]
    r2 = dx * dx + dy * dy
    power = -1.0 - 0.5 * numbers[f, TAIL + 4, j]
    raw[f, p, j] += numbers[f, TAIL, j] * r2 * math.exp(power * math.log(core * core + r2))


@kernel("f8[3] f8[3] i4[2] i4[2] i8", lane=_add_tail)
def add_tail(count, args):
    """The power-law tail: a lane for each pixel and bin."""
    n = cuda.grid(1)
    if n < count:
        _add_tail(n, *args)


@njit(cache=True)
def _finish(n, white, single, sums, root, light, y0, x0, cuts, nfibre, nx):
    """Clip a spot at 0, give it the sum 1, and look through it at the pixels.

    white: (fibres, ny nx, nwave), the raw spot on entry, then spot times sqrt(ivar); single: the same shape, float32,
    filled with the spot; sums: (2, fibres, nwave), filled with A^T W 1 and A^T W p
    root, light, cuts: of image.whiten, bundle by bundle; fibres of a bundle: nfibre
    """
    lanes, nwave = white.shape[1], white.shape[2]
    f, j = n // nwave, n % nwave
    b = f // nfibre
    total = 0.0
    for p in range(lanes):
        total += max(white[f, p, j], 0.0)
    scale = 1.0 / total if total > 0.0 else 0.0
    top, left = y0[f, j] - cuts[b, TOP], x0[f, j] - cuts[b, LEFT]
    rows, columns = cuts[b, ROWS], cuts[b, COLUMNS]
    weight = rhs = 0.0
    for p in range(lanes):
        value = max(white[f, p, j], 0.0) * scale
        row, column = top + p // nx, left + p % nx
        single[f, p, j] = np.float32(value)
        if 0 <= row < rows and 0 <= column < columns:
            value *= root[b, column, row]
            weight += value * root[b, column, row]
            rhs += value * light[b, column, row]
        else:
            value = 0.0
        white[f, p, j] = value
    sums[0, f, j] = weight
    sums[1, f, j] = rhs


@kernel("f8[3] f4[3] f8[3] f8[3] f8[3] i4[2] i4[2] i8[2] i8 i8", lane=_finish, block=64)
def finish(count, args):
    """Spots, whitened spots, weight and right side: a lane for each bin."""
    n = cuda.grid(1)
    if n < count:
        _finish(n, *args)
