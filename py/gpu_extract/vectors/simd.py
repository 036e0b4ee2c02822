"""Vectors of four, eight or sixteen float64 for numba kernels: `Vec` values that live in registers.

numba leaves it to LLVM whether a loop becomes vector code, and for the short
loops of this project (rows of 3 to 8 vectors) it often does not. These
intrinsics say it outright; LLVM maps four lanes to AVX, to half an AVX-512
register or to two NEON registers, eight to one AVX-512 register or two of AVX, sixteen to twice
as many: two independent calculations, whose latencies hide behind each other.
The order of every sum is the one written, and a lane's bits do not depend on
how many there are.

    address(array, index)          where an element lies, in bytes; vread(address) and vwrite(address, a) move four
                                   float64 there. Functions inside a hot loop take addresses: a numba array as an
                                   argument costs two atomic reference counts wherever LLVM does not inline the call. An
                                   address does not keep its array alive: take addresses of arguments only
    vfma(a, b, c)                  a b + c, rounded once
    vtake(a, b, c)                 c - a b, rounded once
    vadd(a, b), vsub, vmul, vdiv   a + b, a - b, a b, a / b
    vmax(a, b), vmin(a, b)         the larger, the smaller of both; b where one is NaN
    vless(a, b)                    1.0 where a < b, else 0.0
    vabs(a), vroot(a)              |a|, the square root of a; vsign(a, b) is |a| with the sign of b
    vset(x)                        x in all lanes
    vspread(address)               one element in all lanes
    vread8(address), vset8(x)      the same with eight lanes, vread16 and vset16 with sixteen
    vfours(a)                      four lanes, four times
    vhalf(a), vjoin(a, b)          the lower half of the lanes; a with b in place of its lower half
    vpixels(address)               four numbers, each in four lanes; vpixels8 two
    vturn1(a), vturn2, vturn3      every four lanes turned: lane m of each takes lane m + 1, + 2, + 3 modulo four
    vswap(a)                       every two lanes exchanged
    vlow(a, b), vhigh(a, b)        the lower, the upper pairs of a and b
    vpairs(a, b)                   a0, b0, a2, b2
    vpick(a, b, c, d)              lane 0 of a, 1 of b, 2 of c, 3 of d
    vfold(a)                       eight or sixteen lanes by fours: the lower half plus the upper half
    vsum(a)                        (a0 + a2) + (a1 + a3)
    vsums(a, b, c, d)              the four vectors' sums, each (x0 + x1) + (x2 + x3)
"""
# mypy: disallow-untyped-defs=False
from collections.abc import Callable
from typing import Any

from numba.core import types
from numba.extending import intrinsic, models, register_model

from gpu_extract.vectors.emit import (
    DOUBLE,
    INDEX,
    constant,
    doubles,
    element_place,
    fetch,
    index,
    lane,
    load,
    shuffle,
    singles,
    spread,
    standard,
    store,
    store_past,
)


class Vec(types.Type):
    """numba type of four, eight or sixteen float64 lanes, or of float32 (spot_vectors)."""

    def __init__(self, lanes: int, *, single: bool = False) -> None:
        super().__init__(name=f"vec{lanes}{'s' * single}")
        self.lanes, self.single = lanes, single


vec4, vec8, vec16 = Vec(4), Vec(8), Vec(16)


@register_model(Vec)
class _VecModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Vec) -> None:
        super().__init__(dmm, fe_type, (singles if fe_type.single else doubles)(fe_type.lanes))


@intrinsic
def address(typingctx, array, index):
    """Address of element `index` of a contiguous array."""
    def codegen(context, builder, signature, args):
        return builder.ptrtoint(element_place(context, builder, signature.args[0], args[0], args[1]), INDEX)
    return types.intp(array, types.intp), codegen


@intrinsic
def prefetch(typingctx, place):
    """Ask for the cache line of an address, to be read soon; any address may be given."""
    def codegen(context, builder, signature, args):
        fetch(builder, args[0])
        return context.get_dummy_value()
    return types.void(types.intp), codegen


@intrinsic
def integer(typingctx, place):
    """The int64 at an address."""
    def codegen(context, builder, signature, args):
        return load(builder, args[0], INDEX)
    return types.int64(types.intp), codegen


@intrinsic
def number(typingctx, place):
    """The float64 at an address."""
    def codegen(context, builder, signature, args):
        return load(builder, args[0], DOUBLE)
    return types.float64(types.intp), codegen


@intrinsic
def write(typingctx, place, value):
    """Write one float64 to an address."""
    def codegen(context, builder, signature, args):
        store(builder, args[1], args[0])
        return context.get_dummy_value()
    return types.void(types.intp, types.float64), codegen


@intrinsic
def vwrite_single(typingctx, place, value):
    """Write all lanes as float32 past the caches, to an address that is a multiple of the size of at most eight."""
    def codegen(context, builder, signature, args):
        lanes = min(value.lanes, 8)
        for first in range(0, value.lanes, lanes):
            part = shuffle(builder, args[1], args[1], range(first, first + lanes))
            place = builder.add(args[0], index(4 * first))
            store_past(builder, builder.fptrunc(part, singles(lanes)), place)
        return context.get_dummy_value()
    return types.void(types.intp, value), codegen


@intrinsic
def vwrite_past(typingctx, place, value):
    """Write all lanes to an address that is a multiple of their size, past the caches."""
    def codegen(context, builder, signature, args):
        store_past(builder, args[1], args[0])
        return context.get_dummy_value()
    return types.void(types.intp, value), codegen


def _reader(kind: Vec) -> Any:
    """A function of an address: the float64 there, as many as `kind` has lanes."""
    @intrinsic
    def read(typingctx, place):
        def codegen(context, builder, signature, args):
            return load(builder, args[0], doubles(kind.lanes))
        return kind(types.intp), codegen
    return read


def _setter(kind: Vec) -> Any:
    """A function of a number: that in all lanes of `kind`."""
    @intrinsic
    def fill(typingctx, x):
        def codegen(context, builder, signature, args):
            return spread(builder, args[0], kind.lanes)
        return kind(types.float64), codegen
    return fill


vread, vread8, vread16 = (_reader(kind) for kind in (vec4, vec8, vec16))
vset, vset8, vset16 = (_setter(kind) for kind in (vec4, vec8, vec16))


@intrinsic
def vwrite(typingctx, place, value):
    """Write all lanes to an address."""
    def codegen(context, builder, signature, args):
        store(builder, args[1], args[0])
        return context.get_dummy_value()
    return types.void(types.intp, value), codegen


@intrinsic
def vpixels(typingctx, place):
    """The four float64 at an address, each in four lanes."""
    def codegen(context, builder, signature, args):
        four = load(builder, args[0], doubles(4))
        return shuffle(builder, four, four, [n // 4 for n in range(16)])
    return vec16(types.intp), codegen


@intrinsic
def vpixels8(typingctx, place):
    """The two float64 at an address, each in four lanes."""
    def codegen(context, builder, signature, args):
        two = load(builder, args[0], doubles(2))
        return shuffle(builder, two, two, [n // 4 for n in range(8)])
    return vec8(types.intp), codegen


@intrinsic
def vhalf(typingctx, a):
    """The lower eight of sixteen lanes."""
    def codegen(context, builder, signature, args):
        return shuffle(builder, args[0], args[0], range(8))
    return vec8(vec16), codegen


@intrinsic
def vjoin(typingctx, a, b):
    """Sixteen lanes with other lower eight."""
    def codegen(context, builder, signature, args):
        longer = shuffle(builder, args[1], args[1], [*range(8)] * 2)
        return shuffle(builder, longer, args[0], [*range(8), *range(24, 32)])
    return vec16(vec16, vec8), codegen


@intrinsic
def vfours(typingctx, a):
    """Four lanes, four times."""
    def codegen(context, builder, signature, args):
        return shuffle(builder, args[0], args[0], [n % 4 for n in range(16)])
    return vec16(vec4), codegen


def _rotation(by: int) -> Any:
    """A function that turns every four lanes."""
    @intrinsic
    def rotate(typingctx, a):
        def codegen(context, builder, signature, args):
            lanes = [n // 4 * 4 + (n + by) % 4 for n in range(signature.args[0].lanes)]
            return shuffle(builder, args[0], args[0], lanes)
        return a(a), codegen
    return rotate


vturn1, vturn2, vturn3 = (_rotation(by) for by in (1, 2, 3))


@intrinsic
def vswap(typingctx, a):
    """Every two lanes exchanged."""
    def codegen(context, builder, signature, args):
        return shuffle(builder, args[0], args[0], [n + 1 - n % 2 * 2 for n in range(a.lanes)])
    return a(a), codegen


@intrinsic
def vpick(typingctx, a, b, c, d):
    """Lane 0 of a, 1 of b, 2 of c, 3 of d."""
    def codegen(context, builder, signature, args):
        low, high = shuffle(builder, args[0], args[1], [0, 5, 2, 3]), shuffle(builder, args[2], args[3], [0, 1, 2, 7])
        return shuffle(builder, low, high, [0, 1, 6, 7])
    return vec4(vec4, vec4, vec4, vec4), codegen


@intrinsic
def vlow(typingctx, a, b):
    """The lower pair of a, then that of b."""
    def codegen(context, builder, signature, args):
        return shuffle(builder, args[0], args[1], [0, 1, 4, 5])
    return vec4(vec4, vec4), codegen


@intrinsic
def vpairs(typingctx, a, b):
    """a0, b0, a2, b2."""
    def codegen(context, builder, signature, args):
        return shuffle(builder, args[0], args[1], [0, 4, 2, 6])
    return vec4(vec4, vec4), codegen


@intrinsic
def vhigh(typingctx, a, b):
    """The upper pair of a, then that of b."""
    def codegen(context, builder, signature, args):
        return shuffle(builder, args[0], args[1], [2, 3, 6, 7])
    return vec4(vec4, vec4), codegen


@intrinsic
def vfold(typingctx, a):
    """The lower half of eight or sixteen lanes plus the upper half, until four are left."""
    def codegen(context, builder, signature, args):
        value, lanes = args[0], signature.args[0].lanes
        while lanes > 4:
            lanes //= 2
            low, high = (shuffle(builder, value, value, range(n, n + lanes)) for n in (0, lanes))
            value = builder.fadd(low, high)
        return value
    return vec4(a), codegen


@intrinsic
def vspread(typingctx, place):
    """The float64 at an address in all lanes."""
    def codegen(context, builder, signature, args):
        return spread(builder, load(builder, args[0], DOUBLE), 4)
    return vec4(types.intp), codegen


@intrinsic
def vsum(typingctx, a):
    """(a0 + a2) + (a1 + a3)."""
    def codegen(context, builder, signature, args):
        x = [lane(builder, args[0], n) for n in range(4)]
        return builder.fadd(builder.fadd(x[0], x[2]), builder.fadd(x[1], x[3]))
    return types.float64(vec4), codegen


@intrinsic
def vsums(typingctx, a, b, c, d):
    """A vector of the sums of four vectors, each (x0 + x1) + (x2 + x3)."""
    def codegen(context, builder, signature, args):
        first, second = (builder.fadd(shuffle(builder, x, y, [0, 4, 2, 6]), shuffle(builder, x, y, [1, 5, 3, 7]))
                         for x, y in (args[:2], args[2:]))
        low, high = (shuffle(builder, first, second, lanes) for lanes in ([0, 1, 4, 5], [2, 3, 6, 7]))
        return builder.fadd(low, high)
    return vec4(vec4, vec4, vec4, vec4), codegen


def _lane_by_lane(write: Callable[..., Any], count: int) -> Any:
    """An intrinsic of `count` vectors of one kind that gives another one: write(builder, *vectors)."""
    def typed(kind):
        def codegen(context, builder, signature, args):
            return write(builder, *args)
        return kind(*[kind] * count), codegen

    def one(typingctx, a):
        return typed(a)

    def two(typingctx, a, b):
        return typed(a)

    def three(typingctx, a, b, c):
        return typed(a)
    return intrinsic((one, two, three)[count - 1])


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _smaller(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


def _less(builder: Any, a: Any, b: Any) -> Any:
    one, zero = (constant(a.type, v) for v in (1.0, 0.0))
    return builder.select(builder.fcmp_ordered("<", a, b), one, zero)


vfma = _lane_by_lane(lambda builder, a, b, c: standard(builder, "fma", a, b, c), 3)
vtake = _lane_by_lane(lambda builder, a, b, c: standard(builder, "fma", builder.fneg(a), b, c), 3)
vadd = _lane_by_lane(lambda builder, a, b: builder.fadd(a, b), 2)
vsub = _lane_by_lane(lambda builder, a, b: builder.fsub(a, b), 2)
vmul = _lane_by_lane(lambda builder, a, b: builder.fmul(a, b), 2)
vdiv = _lane_by_lane(lambda builder, a, b: builder.fdiv(a, b), 2)
vmax = _lane_by_lane(_larger, 2)
vmin = _lane_by_lane(_smaller, 2)
vless = _lane_by_lane(_less, 2)
vabs = _lane_by_lane(lambda builder, a: standard(builder, "fabs", a), 1)
vroot = _lane_by_lane(lambda builder, a: standard(builder, "sqrt", a), 1)
vsign = _lane_by_lane(lambda builder, a, b: standard(builder, "copysign", a, b), 2)
