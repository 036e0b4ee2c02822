"""Vectors of four, eight or sixteen float64 for numba kernels: `Vec` values that stay in registers.

numba lets LLVM decide whether a loop becomes vector code, and for the short loops of this project (rows of 3 to 8
vectors) it often does not. These intrinsics request it. LLVM maps four lanes to AVX, to half an AVX-512 register or to
two NEON registers, eight to one AVX-512 register or two of AVX, sixteen to twice as many: two independent calculations,
which hide each other's latencies. The order of every sum is the one written, and a lane's bits do not depend on the
number of lanes.

    address(array, index)          address of an element in bytes; vread(address) reads four float64 there, and
                                   vwrite(address, a) writes them. Functions in a hot loop take addresses: an array as
                                   an argument costs two atomic reference counts unless LLVM inlines the call. An
                                   address does not keep its array alive: take addresses of arguments only
    prefetch(address)              prefetches its cache line; any address is allowed
    integer, number, write         read one int64 or float64 there, write one float64
    vwrite_past(address, a)        past the caches, to an address that is a multiple of the vector's size
    vwrite_single(address, a)      the same as float32, to a multiple of the size of at most eight
    vfma(a, b, c)                  a b + c, rounded once
    vtake(a, b, c)                 c - a b, rounded once
    vadd(a, b), vsub, vmul, vdiv   a + b, a - b, a b, a / b
    vmax(a, b)                     the larger of both; b if one is NaN
    vless(a, b)                    1.0 where a < b, else 0.0
    vabs(a), vroot(a)              |a|, the square root of a; vsign(a, b) is |a| with the sign of b
    vset(x)                        x in all lanes
    vspread(address)               one element in all lanes
    vread8(address), vset8(x)      the same with eight lanes, vread16 and vset16 with sixteen
    vfours(a)                      four lanes, four times
    vhalf(a), vupper(a)            the lower half of the lanes, and the upper one
    vwrite4(address, step, a, ..)  four vectors, `step` bytes apart
    vjoin(a, b), vtwice(a)         a with b in place of its lower half; eight lanes, twice
    vpixels(address)               four numbers, each in four lanes; vpixels8 two
    vturn1(a), vturn2, vturn3      every four lanes rotated: lane m of each gets lane m + 1, + 2, + 3 modulo four
    vswap(a)                       every two lanes exchanged
    vlow(a, b), vhigh(a, b)        the lower, the upper pairs of a and b
    vpairs(a, b)                   a0, b0, a2, b2
    vpick(a, b, c, d)              lane 0 of a, 1 of b, 2 of c, 3 of d
    vfold(a)                       eight or sixteen lanes by fours: the lower half plus the upper half
    vsum(a)                        (a0 + a2) + (a1 + a3)
    vsums(a, b, c, d)              the four vectors' sums, each (x0 + x1) + (x2 + x3)
"""
# mypy: disallow-untyped-defs=False
from typing import Any

from numba.core import types
from numba.extending import intrinsic, models, register_model

from gpu_extract.vectors import raw


class Vec(types.Type):
    """numba type of four, eight or sixteen float64 lanes, or of float32 (spot_vectors)."""

    def __init__(self, lanes: int, *, single: bool = False) -> None:
        super().__init__(name=f"vec{lanes}{'s' * single}")
        self.lanes, self.single = lanes, single


vec4, vec8, vec16 = Vec(4), Vec(8), Vec(16)


@register_model(Vec)
class _VecModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Vec) -> None:
        super().__init__(dmm, fe_type, raw.lanes_of(raw.SINGLE if fe_type.single else raw.DOUBLE, fe_type.lanes))


@intrinsic
def address(typingctx, array, index):
    """Address of element `index` of a contiguous array."""
    def codegen(context, builder, signature, args):
        return builder.ptrtoint(raw.element_place(context, builder, signature.args[0], args[0], args[1]), raw.INDEX)
    return types.intp(array, types.intp), codegen


def _reader(kind: Any, element: Any) -> Any:
    """A function of an address: what lies there."""
    return raw.operation(lambda builder, place: raw.load(builder, place, element), types.intp, gives=kind)


def _writer(kind: Any, write: Any) -> Any:
    """A function of an address and a value of a kind, which is written there."""
    return raw.operation(lambda builder, place, value: write(builder, value, place), types.intp, kind,
                         gives=types.void)


def _setter(kind: Vec) -> Any:
    """A function of a number: that in all lanes of `kind`."""
    return raw.operation(lambda builder, x: raw.spread(builder, x, kind.lanes), types.float64, gives=kind)


def _store_four(builder, place, step, a, b, c, d):
    for n, value in enumerate((a, b, c, d)):
        raw.store(builder, value, builder.add(place, builder.mul(step, raw.index(n))))


def _store_single(builder, value, place):
    lanes = min(value.type.count, 8)
    for first in range(0, value.type.count, lanes):
        part = raw.shuffle(builder, value, value, range(first, first + lanes))
        part = builder.fptrunc(part, raw.lanes_of(raw.SINGLE, lanes))
        raw.store_past(builder, part, builder.add(place, raw.index(4 * first)))


prefetch = raw.operation(raw.fetch, types.intp, gives=types.void)
integer, number = _reader(types.int64, raw.INDEX), _reader(types.float64, raw.DOUBLE)
write, vwrite = (_writer(kind, raw.store) for kind in (types.float64, None))
vwrite_single, vwrite_past = (_writer(None, write) for write in (_store_single, raw.store_past))
vwrite4 = raw.operation(_store_four, types.intp, types.intp, *[None] * 4, gives=types.void)
vread, vread8, vread16 = (_reader(kind, raw.doubles(kind.lanes)) for kind in (vec4, vec8, vec16))
vset, vset8, vset16 = (_setter(kind) for kind in (vec4, vec8, vec16))
vspread = raw.operation(lambda builder, place: raw.spread(builder, raw.load(builder, place, raw.DOUBLE), 4),
                        types.intp, gives=vec4)


def _pixels(kind: Vec) -> Any:
    """A function of an address: the float64 there, each in four lanes of `kind`."""
    part = raw.doubles(kind.lanes // 4)
    return raw.operation(lambda builder, place: raw.each_in_four(builder, raw.load(builder, place, part)),
                         types.intp, gives=kind)


def _join(builder, a, b):
    longer = raw.shuffle(builder, b, b, [*range(8)] * 2)
    return raw.shuffle(builder, longer, a, [*range(8), *range(24, 32)])


def _half(which: int) -> Any:
    """A function that returns a half of the lanes."""
    def take(builder, a):
        size = a.type.count // 2
        return raw.shuffle(builder, a, a, range(which * size, which * size + size))
    return raw.operation(take, None, gives=lambda a: Vec(a.lanes // 2))


def _rotation(by: int) -> Any:
    """A function that rotates every four lanes."""
    def turn(builder, a):
        return raw.shuffle(builder, a, a, [n // 4 * 4 + (n + by) % 4 for n in range(a.type.count)])
    return raw.operation(turn)


def _pick(builder, a, b, c, d):
    low, high = raw.shuffle(builder, a, b, [0, 5, 2, 3]), raw.shuffle(builder, c, d, [0, 1, 2, 7])
    return raw.shuffle(builder, low, high, [0, 1, 6, 7])


def fold(builder, a):
    """The code of vfold."""
    lanes = a.type.count
    while lanes > 4:
        lanes //= 2
        a = builder.fadd(*(raw.shuffle(builder, a, a, range(n, n + lanes)) for n in (0, lanes)))
    return a


def _sum(builder, a):
    x = [raw.lane(builder, a, n) for n in range(4)]
    return builder.fadd(builder.fadd(x[0], x[2]), builder.fadd(x[1], x[3]))


def _sums(builder, a, b, c, d):
    first, second = (builder.fadd(raw.shuffle(builder, x, y, [0, 4, 2, 6]), raw.shuffle(builder, x, y, [1, 5, 3, 7]))
                     for x, y in ((a, b), (c, d)))
    low, high = (raw.shuffle(builder, first, second, lanes) for lanes in ([0, 1, 4, 5], [2, 3, 6, 7]))
    return builder.fadd(low, high)


vpixels, vpixels8 = _pixels(vec16), _pixels(vec8)
vhalf, vupper = _half(0), _half(1)
vjoin = raw.operation(_join, vec16, vec8)
vtwice = raw.operation(lambda builder, a: raw.shuffle(builder, a, a, [*range(8)] * 2), vec8, gives=vec16)
vfours = raw.operation(lambda builder, a: raw.shuffle(builder, a, a, [n % 4 for n in range(16)]), vec4, gives=vec16)
vturn1, vturn2, vturn3 = (_rotation(by) for by in (1, 2, 3))
vswap = raw.operation(lambda builder, a: raw.shuffle(builder, a, a, [n + 1 - n % 2 * 2 for n in range(a.type.count)]))
vpick = raw.operation(_pick, vec4, vec4, vec4, vec4)
vlow = raw.operation(lambda builder, a, b: raw.shuffle(builder, a, b, [0, 1, 4, 5]), vec4, vec4)
vhigh = raw.operation(lambda builder, a, b: raw.shuffle(builder, a, b, [2, 3, 6, 7]), vec4, vec4)
vpairs = raw.operation(lambda builder, a, b: raw.shuffle(builder, a, b, [0, 4, 2, 6]), vec4, vec4)
vfold = raw.operation(fold, None, gives=vec4)
vsum = raw.operation(_sum, vec4, gives=types.float64)
vsums = raw.operation(_sums, vec4, vec4, vec4, vec4)


def _less(builder: Any, a: Any, b: Any) -> Any:
    one, zero = (raw.constant(a.type, v) for v in (1.0, 0.0))
    return builder.select(builder.fcmp_ordered("<", a, b), one, zero)


vfma = raw.operation(lambda builder, a, b, c: raw.standard(builder, "fma", a, b, c))
vtake = raw.operation(lambda builder, a, b, c: raw.standard(builder, "fma", builder.fneg(a), b, c))
vadd = raw.operation(lambda builder, a, b: builder.fadd(a, b))
vsub = raw.operation(lambda builder, a, b: builder.fsub(a, b))
vmul = raw.operation(lambda builder, a, b: builder.fmul(a, b))
vdiv = raw.operation(lambda builder, a, b: builder.fdiv(a, b))
vmax = raw.operation(lambda builder, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))
vless = raw.operation(_less)
vabs = raw.operation(lambda builder, a: raw.standard(builder, "fabs", a))
vroot = raw.operation(lambda builder, a: raw.standard(builder, "sqrt", a))
vsign = raw.operation(lambda builder, a, b: raw.standard(builder, "copysign", a, b))
