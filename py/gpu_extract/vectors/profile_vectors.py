"""Vector operations for the profiles of spots (see simd_profiles): the normal density, and operations on pixel edges.

    vdensity(u)                    exp(-u^2 / 2) / sqrt(2 pi), exact to 4e-17
    vboth(lower, upper)            four float64 at one address and four at another
    vhalves(a, b)                  a, a, a, a, b, b, b, b
    vtile(a, b)                    the four lanes of a, repeated to the length of b
    vcount(x, b)                   x, x + 1, ..., each in four lanes, to the length of b
    vnext(a, b)                    lanes 4, 5, ... of a, then the four of b
    vfirst(a)                      the first four lanes
    vinside(x, limit, a)           a where |x| < limit, else 0
    polynomials(table)             a function of an address and a vector s that writes sum_n table[k][n] s^n for all k,
                                   as contiguous vectors
"""
# mypy: disallow-untyped-defs=False
import math
from collections.abc import Sequence
from typing import Any

from numba.core import types

from gpu_extract.vectors import raw
from gpu_extract.vectors.simd import vec4, vec8

# exp(-x / 2) / sqrt(2 pi) for |x| <= ln 2: Chebyshev interpolation with 60 digits, relative error below 7e-17
_DENSITY = [
    0.3989422804014327, -0.19947114020071635, 0.04986778505017927, -0.008311297508363187, 0.0010389121885409451,
    -0.00010389121885436856, 8.657601610748002e-06, -6.184001137496625e-07, 3.8649848342433606e-08,
    -2.1472165104745017e-09, 1.0765457296060633e-10, -4.891335773208991e-12]
_MAGIC = 6755399441055744.0     # 1.5 2^52: adding it leaves the rounded integer in the lowest bits
_STEP = math.log(4.0)
_FAINTEST = 1400.0              # u^2 beyond which the density stays constant, at 1e-305


def _even_odd(builder: Any, s: Any, coefficients: Sequence[float]) -> Any:
    """sum_n coefficients[n] s^n as two Horner chains that run at the same time."""
    square = builder.fmul(s, s)
    halves = [_horner(builder, square, coefficients[parity::2]) for parity in (0, 1)]
    return raw.standard(builder, "fma", halves[1], s, halves[0])


def _horner(builder: Any, s: Any, coefficients: Sequence[float]) -> Any:
    ladder = [raw.constant(s.type, c) for c in coefficients]
    total = ladder.pop()
    while ladder:
        total = raw.standard(builder, "fma", total, s, ladder.pop())
    return total


def _density(builder, u):
    """2^n exp(-x / 2) / sqrt(2 pi) with n = round(-u^2 / ln 4), x = u^2 + n ln 4."""
    kind, whole = u.type, raw.integers(u.type)
    faintest, magic, step, rate = (raw.constant(kind, v) for v in (_FAINTEST, _MAGIC, _STEP, -1.0 / _STEP))
    square = builder.fmul(u, u)
    square = builder.select(builder.fcmp_ordered("<", square, faintest), square, faintest)
    shifted = raw.standard(builder, "fma", square, rate, magic)
    x = raw.standard(builder, "fma", builder.fsub(shifted, magic), step, square)
    bits = builder.shl(builder.bitcast(shifted, whole), raw.constant(whole, 52))
    value = builder.bitcast(_even_odd(builder, x, _DENSITY), whole)
    return builder.bitcast(builder.add(bits, value), kind)


def _both(builder, lower, upper):
    low, high = (raw.load(builder, place, raw.doubles(4)) for place in (lower, upper))
    return raw.shuffle(builder, low, high, range(8))


def _halves(builder, a, b):
    low, high = (raw.spread(builder, value, 4) for value in (a, b))
    return raw.shuffle(builder, low, high, range(8))


def _tile(builder, a, b):
    return raw.shuffle(builder, a, a, [n % 4 for n in range(b.type.count)])


def _count(builder, x, b):
    lanes = b.type.count
    return builder.fadd(raw.spread(builder, x, lanes), raw.constant(b.type, [float(n // 4) for n in range(lanes)]))


def _next(builder, a, b):
    return raw.shuffle(builder, a, _tile(builder, b, a), range(4, a.type.count + 4))


def _inside(builder, x, limit, a):
    near = builder.fcmp_ordered("<", raw.standard(builder, "fabs", x), limit)
    return builder.select(near, a, raw.constant(a.type, 0.0))


vdensity = raw.operation(_density)
vboth = raw.operation(_both, types.intp, types.intp, gives=vec8)
vhalves = raw.operation(_halves, types.float64, types.float64, gives=vec8)
vtile = raw.operation(_tile, vec4, None, gives=lambda a, b: b)
vcount = raw.operation(_count, types.float64, None, gives=lambda x, b: b)
vnext = raw.operation(_next, None, vec4)
vfirst = raw.operation(lambda builder, a: raw.shuffle(builder, a, a, range(4)), None, gives=vec4)
vinside = raw.operation(_inside)


def polynomials(table: Sequence[Sequence[float]]) -> Any:
    """A function of an address and a vector s that writes sum_n table[k][n] s^n for all k, as contiguous vectors."""
    def write(builder, place, s):
        for k, coefficients in enumerate(table):
            raw.store(builder, _horner(builder, s, coefficients), builder.add(place, raw.index(8 * s.type.count * k)))
    return raw.operation(write, types.intp, None, gives=types.void)
