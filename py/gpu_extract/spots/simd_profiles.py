"""CPU kernels: Gauss-Hermite terms integrated over pixels, for a block of four bins.

Lanes are bins, at neighbouring pixel edges. The antiderivative of He_m phi, m > 0, is -He_(m-1) phi, with phi the
normal density: integrals are its differences between a pixel's edges. The integral of phi alone also comes from both
edges: it is that of the polynomial with the value and the first N - 1 derivatives of phi there,

    int_a^(a+h) phi = sum_k w_k h^(k+1) [phi^(k)(a) + (-1)^k phi^(k)(a+h)],    k < N = NODES
    w_k = N! (2N-k-1)! / ((2N)! (k+1)! (N-k-1)!)

with error (N!)^2 / ((2N)! (2N+1)!) h^(2N+1) phi^(2N), where |phi^(2N)| <= (2N-1)!! / sqrt(2 pi) (Hermite's two-point
quadrature). The derivatives are (-1)^k He_k phi: the sum over k is h phi(u) times a polynomial of degree N - 1 in h u,
whose coefficients are polynomials in h^2, and h = 1 / sigma is the width of a pixel. Up to h = 1.5 the error is below
8e-17; sharper profiles use the error function.
"""
# mypy: disallow-untyped-defs=False
import math
from fractions import Fraction

from gpu_extract.arrays import LANE
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.profile_vectors import (polynomials, vboth, vcount, vdensity, vfirst, vhalves, vinside, vnext,
                                                 vtile)
from gpu_extract.vectors.simd import number, vadd, vdiv, vfma, vmul, vread, vset, vset8, vset16, vsub, vwrite, write

NODES = 12
SHARPEST = 2.0 / 3.0     # pixels: sigma below which phi is integrated with the error function
VECTOR = 8 * LANE        # bytes
BINS = 2 * NODES         # first of the numbers of the bins, after the coefficients, both along y and x


def hermite(order: int) -> list[int]:
    """Coefficients of He_order, from u^0 on."""
    before, he = [0], [1]
    for k in range(order):
        after = [0, *he]
        for power, value in enumerate(before):
            after[power] -= k * value
        before, he = he, after
    return he


def _left_edge() -> list[list[float]]:
    """For (h u)^power at a pixel's left edge the coefficients of 1, h^2, h^4, ...; at the right edge u is -u."""
    table: list[list[float]] = [[] for _ in range(NODES)]
    for k in range(NODES):
        weight = Fraction(math.factorial(NODES) * math.factorial(2 * NODES - k - 1),
                          math.factorial(2 * NODES) * math.factorial(k + 1) * math.factorial(NODES - k - 1))
        for power in range(k % 2, k + 1, 2):
            table[power].append(float((-1) ** k * weight * hermite(k)[power]))
    return table


_write_coefficients = polynomials(_left_edge())


@njit()
def room(terms):
    """Vectors of scratch for `profiles`; terms: (nj, ni)."""
    return BINS + 6 + max(terms[0], terms[1]) + 1


@njit()
def profiles(out, work, terms, frame, stamp, bins):
    """Pixel integrals of the Gauss-Hermite terms along y and x.

    out: addresses of (nj, rows) and (ni, columns) vectors, multiples of 4, each followed by room for two vectors, for
        which the first may use the second's; beyond its stamp a lane is exactly 0
    work: address of `room` vectors
    terms: (nj, ni); frame: (height, width) of all four stamps; stamp: (ny, nx) of one
    bins: addresses of the bins' first pixel minus centre, of sigma, and of the stamps' first pixel in the frame, along
        y; bytes from each to that along x
    """
    start, sigma, offset, step = bins
    half = vhalves(0.5 * stamp[0], 0.5 * stamp[1])
    width = vdiv(vset8(1.0), vboth(sigma, sigma + step))
    _write_coefficients(work, vmul(width, width))
    numbers = work + BINS * VECTOR
    vwrite(numbers, vadd(vboth(offset, offset + step), vsub(half, vset8(0.5))))
    vwrite(numbers + 2 * VECTOR, width)
    vwrite(numbers + 4 * VECTOR, vmul(vadd(vboth(start, start + step), vsub(half, vset8(1.0))), width))
    _axis(out[0], work, (terms[0], frame[0]), stamp[0])
    _axis(out[1], work + VECTOR, (terms[1], frame[1]), stamp[1])
    _sharpen(out[0], stamp[0], (start, sigma, offset))
    _sharpen(out[1], stamp[1], (start + step, sigma + step, offset + step))


@njit()
def _axis(out, work, terms, pixels):
    """The profiles of one axis, from the last edge to the first.

    terms: (nterm, size of the frame). Four edges are taken at a time, or eight lanes for one or two that are left over;
    what these write after a term's pixels is overwritten by the next term's first pixels.
    """
    nterm, size = terms
    n, rest = (size + 3) // 4 * 4, (size + 1) % 4
    numbers = work + BINS * VECTOR
    middle, width, first = vread(numbers), vread(numbers + 2 * VECTOR), vread(numbers + 4 * VECTOR)
    e = size + 1 - rest
    if rest == 1 or rest == 2:
        limit = vset8(0.5 * pixels)
        place = vsub(vcount(float(e), limit), vtile(middle, limit))
        _edges(out + VECTOR * e, work, (nterm, VECTOR * n), (place, vtile(width, limit), vtile(first, limit)), limit)
        if rest == 2:
            for m in range(nterm):
                vwrite(out + VECTOR * (m * n + e + 2), vset8(0.0))
    elif rest == 3:
        e += 4
    wide = vset16(0.5 * pixels)
    places = vsub(vcount(float(e), wide), vtile(middle, wide))
    wides, firsts = vtile(width, wide), vtile(first, wide)
    for at in range(VECTOR * (e - 4), -1, -4 * VECTOR):
        places = vsub(places, vset16(4.0))
        _edges(out + at, work, (nterm, VECTOR * n), (places, wides, firsts), wide)


@njit()
def _edges(out, work, terms, bins, limit):
    """The terms at some neighbouring edges, and the integrals over the pixels that begin there.

    work: see `profiles`; after the coefficients it has the terms at the following edge, at the end at the first one
    terms: (nterm, bytes from a term to the next); limit: half a stamp
    bins: edges counted from the left one of the pixel in the middle of the bins' stamps, 1 / sigma, u of that one
    """
    nterm, line = terms
    place, step, first = bins
    u = vfma(place, step, first)
    low = vdensity(u)
    x = vmul(u, step)
    square = vmul(x, x)
    even = vtile(vread(work + (BINS - 4) * VECTOR), x)
    odd = vtile(vread(work + (BINS - 2) * VECTOR), x)
    for k in range((BINS - 8) * VECTOR, -1, -4 * VECTOR):
        even = vfma(even, square, vtile(vread(work + k), x))
        odd = vfma(odd, square, vtile(vread(work + k + 2 * VECTOR), x))
    wide, odd = vmul(low, step), vmul(x, odd)
    right = vmul(wide, vsub(even, odd))
    at = work + (BINS + 6) * VECTOR
    vwrite(out, vinside(place, limit, vfma(wide, vadd(even, odd), vnext(right, vread(at)))))
    vwrite(at, vfirst(right))
    if nterm > 1:
        _put(out + line, at + VECTOR, (low, place, limit))
    before, low = low, vmul(u, low)
    if nterm > 2:
        _put(out + 2 * line, at + 2 * VECTOR, (low, place, limit))
    for order in range(3, nterm):
        before, low = low, vfma(u, low, vmul(vtile(vset(2.0 - order), low), before))
        _put(out + order * line, at + order * VECTOR, (low, place, limit))


@njit()
def _put(out, at, term):
    """Differences of a term's values at successive edges inside the stamp; see `_edges`."""
    low, place, limit = term
    vwrite(out, vinside(place, limit, vsub(low, vnext(low, vread(at)))))
    vwrite(at, vfirst(low))


@njit()
def _from_outside(u):
    """The integral of phi(sqrt(2) u) to u from the end on its side: it has all digits in wings, where a difference of
    erf is rounding. Integrals to two edges differ by that between them, less 1 if the centre is there."""
    outside = 0.5 * math.erfc(abs(u))
    return outside if u < 0.0 else -outside


@njit()
def _sharpen(out, pixels, bins):
    """The integrals of phi alone, for bins whose sigma is too small for the derivatives at the edges.

    out: see `_axis`; bins: addresses of first pixels minus centres, of sigma, and of first pixels in the frame
    """
    for lane in range(0, VECTOR, 8):
        start, sigma = number(bins[0] + lane), number(bins[1] + lane)
        if sigma < SHARPEST:
            to, scale = out + VECTOR * int(number(bins[2] + lane)) + lane, math.sqrt(0.5) / sigma
            low, left = _from_outside((start - 0.5) * scale), start - 0.5 < 0.0
            for pixel in range(pixels):
                high, within = _from_outside((start + pixel + 0.5) * scale), start + pixel + 0.5 < 0.0
                write(to + VECTOR * pixel, high - low + (1.0 if left and not within else 0.0))
                low, left = high, within
