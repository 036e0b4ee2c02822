"""Vectors for the profiles of spots (see simd_profiles): the normal density, and what lies between pixel edges.

    vdensity(u)                    exp(-u^2 / 2) / sqrt(2 pi)
    vboth(lower, upper)            four float64 at one address and four at another
    vhalves(a, b)                  a, a, a, a, b, b, b, b
    vtile(a, b)                    four lanes, as often as b has fours
    vcount(x, b)                   x, x + 1, ..., each in four lanes, as many as b has
    vnext(a, b)                    lanes 4, 5, ... of a, then the four of b
    vfirst(a)                      the first four lanes
    vinside(x, limit, a)           a where |x| < limit, else 0
    polynomials(table)             a function that evaluates several polynomials of one vector
"""
# mypy: disallow-untyped-defs=False
import math
from collections.abc import Sequence
from typing import Any

from numba.core import types
from numba.extending import intrinsic

from gpu_extract.vectors.emit import constant, doubles, index, integers, load, shuffle, spread, standard, store
from gpu_extract.vectors.simd import vec4, vec8

# exp(-x / 2) / sqrt(2 pi) for |x| <= ln 2: Chebyshev interpolation with 60 digits, relative error below 7e-17
_DENSITY = [
    0.3989422804014327, -0.19947114020071635, 0.04986778505017927, -0.008311297508363187, 0.0010389121885409451,
    -0.00010389121885436856, 8.657601610748002e-06, -6.184001137496625e-07, 3.8649848342433606e-08,
    -2.1472165104745017e-09, 1.0765457296060633e-10, -4.891335773208991e-12]
_MAGIC = 6755399441055744.0     # 1.5 2^52: adding it leaves the rounded integer in the lowest bits
_STEP = math.log(4.0)
_FAINTEST = 1400.0              # u^2 beyond which the density stays what it is there, 1e-305


def _even_odd(builder: Any, s: Any, coefficients: Sequence[float]) -> Any:
    """sum_n coefficients[n] s^n as two Horner chains that run at the same time."""
    square = builder.fmul(s, s)
    halves = [_horner(builder, square, coefficients[parity::2]) for parity in (0, 1)]
    return standard(builder, "fma", halves[1], s, halves[0])


def _horner(builder: Any, s: Any, coefficients: Sequence[float]) -> Any:
    ladder = [constant(s.type, c) for c in coefficients]
    total = ladder.pop()
    while ladder:
        total = standard(builder, "fma", total, s, ladder.pop())
    return total


@intrinsic
def vdensity(typingctx, u):
    """exp(-u^2 / 2) / sqrt(2 pi), right to 4e-17: 2^n exp(-x / 2) with n = round(-u^2 / ln 4), x = u^2 + n ln 4."""
    def codegen(context, builder, signature, args):
        kind = args[0].type
        whole = integers(kind)
        faintest, magic, step, rate = (constant(kind, v) for v in (_FAINTEST, _MAGIC, _STEP, -1.0 / _STEP))
        square = builder.fmul(*args, *args)
        square = builder.select(builder.fcmp_ordered("<", square, faintest), square, faintest)
        shifted = standard(builder, "fma", square, rate, magic)
        x = standard(builder, "fma", builder.fsub(shifted, magic), step, square)
        bits = builder.shl(builder.bitcast(shifted, whole), constant(whole, 52))
        value = builder.bitcast(_even_odd(builder, x, _DENSITY), whole)
        return builder.bitcast(builder.add(bits, value), kind)
    return u(u), codegen


@intrinsic
def vboth(typingctx, lower, upper):
    """The four float64 at one address and the four at another."""
    def codegen(context, builder, signature, args):
        low, high = (load(builder, place, doubles(4)) for place in args)
        return shuffle(builder, low, high, range(8))
    return vec8(types.intp, types.intp), codegen


@intrinsic
def vhalves(typingctx, a, b):
    """One number in four lanes, another in the next four."""
    def codegen(context, builder, signature, args):
        low, high = (spread(builder, value, 4) for value in args)
        return shuffle(builder, low, high, range(8))
    return vec8(types.float64, types.float64), codegen


@intrinsic
def vcount(typingctx, x, b):
    """x, x + 1, ..., each in four lanes, as many as b has."""
    def codegen(context, builder, signature, args):
        steps = constant(args[1].type, [float(n // 4) for n in range(b.lanes)])
        return builder.fadd(spread(builder, args[0], b.lanes), steps)
    return b(types.float64, b), codegen


@intrinsic
def vtile(typingctx, a, b):
    """Four lanes, as often as b has fours."""
    def codegen(context, builder, signature, args):
        return shuffle(builder, args[0], args[0], [n % 4 for n in range(b.lanes)])
    return b(vec4, b), codegen


@intrinsic
def vnext(typingctx, a, b):
    """Lanes 4, 5, ... of a, then the four of b."""
    def codegen(context, builder, signature, args):
        wide = shuffle(builder, args[1], args[1], [n % 4 for n in range(a.lanes)])
        return shuffle(builder, args[0], wide, range(4, a.lanes + 4))
    return a(a, vec4), codegen


@intrinsic
def vfirst(typingctx, a):
    """The first four lanes."""
    def codegen(context, builder, signature, args):
        return shuffle(builder, args[0], args[0], range(4))
    return vec4(a), codegen


@intrinsic
def vinside(typingctx, x, limit, a):
    """a where |x| < limit, else 0."""
    def codegen(context, builder, signature, args):
        near = builder.fcmp_ordered("<", standard(builder, "fabs", args[0]), args[1])
        return builder.select(near, args[2], constant(args[2].type, 0.0))
    return a(x, x, a), codegen


def polynomials(table: Sequence[Sequence[float]]) -> Any:
    """A function of an address and a vector s: writes sum_n table[k][n] s^n of every k, one vector behind the other."""
    @intrinsic
    def evaluate(typingctx, place, s):
        def codegen(context, builder, signature, args):
            for k, coefficients in enumerate(table):
                at = builder.add(args[0], index(8 * s.lanes * k))
                store(builder, _horner(builder, args[1], coefficients), at)
            return context.get_dummy_value()
        return types.void(types.intp, s), codegen
    return evaluate
