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
    vset(x)                        x in all lanes
    vspread(address)               one element in all lanes
    vread8(address), vset8(x)      the same with eight lanes, vread16 and vset16 with sixteen
    vfours(a)                      four lanes, four times
    vhalf(a), vjoin(a, b)          the lower half of the lanes; a with b in place of its lower half
    vpixels(address)               four numbers, each in four lanes; vpixels8 two
    vtwice(address)                the first, third, fifth and seventh of eight numbers, each in two lanes
    vturn1(a), vturn2, vturn3      every four lanes turned: lane m of each takes lane m + 1, + 2, + 3 modulo four
    vlow(a, b), vhigh(a, b)        the lower, the upper pairs of a and b
    vpairs(a, b)                   a0, b0, a2, b2
    vpick(a, b, c, d)              lane 0 of a, 1 of b, 2 of c, 3 of d
    vfold(a)                       eight or sixteen lanes by fours: the lower half plus the upper half
    vsum(a)                        (a0 + a2) + (a1 + a3)
    vsums(a, b, c, d)              the four vectors' sums, each (x0 + x1) + (x2 + x3)
"""
# mypy: disallow-untyped-defs=False
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

_INT = ir.IntType(32)


class Vec(types.Type):
    """numba type of four, eight or sixteen float64 lanes, or of float32 (spot_vectors)."""

    def __init__(self, lanes: int, *, single: bool = False) -> None:
        super().__init__(name=f"vec{lanes}{'s' * single}")
        self.lanes, self.single = lanes, single


vec4, vec8, vec16 = Vec(4), Vec(8), Vec(16)


def _doubles(lanes: int) -> ir.VectorType:
    return ir.VectorType(ir.DoubleType(), lanes)


def _floats(lanes: int) -> ir.VectorType:
    return ir.VectorType(ir.FloatType(), lanes)


_VECTOR = _doubles(4)


@register_model(Vec)
class _VecModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Vec) -> None:
        super().__init__(dmm, fe_type, (_floats if fe_type.single else _doubles)(fe_type.lanes))


def _constant(like: Any, value: float) -> ir.Constant:
    """`value` in as many lanes as the vector `like` has."""
    return ir.Constant(like.type, [value] * like.type.count)


def _shuffle(builder: Any, a: Any, b: Any, lanes: Sequence[int]) -> Any:
    """Lanes of a, then b, as listed."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_INT, len(lanes)), list(lanes)))


def _spread(builder: Any, value: Any, lanes: int) -> Any:
    """A float64 in all lanes."""
    undefined = ir.Constant(_doubles(lanes), ir.Undefined)
    return _shuffle(builder, builder.insert_element(undefined, value, ir.Constant(_INT, 0)), undefined, [0] * lanes)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = cgutils.create_struct_proxy(array_type)(context, builder, value=array).data
    return builder.gep(data, [index])


def _call(builder: Any, name: str, *args: Any) -> Any:
    vector = args[0].type
    kind = ir.FunctionType(vector, [vector] * len(args))
    suffix = f"v{vector.count}f{32 if isinstance(vector.element, ir.FloatType) else 64}"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"{name}.{suffix}"), args)


@intrinsic
def address(typingctx, array, index):
    """Address of element `index` of a contiguous array."""
    def codegen(context, builder, signature, args):
        return builder.ptrtoint(_pointer(context, builder, signature.args[0], args[0], args[1]), ir.IntType(64))
    return types.intp(array, types.intp), codegen


@intrinsic
def prefetch(typingctx, place):
    """Ask for the cache line of an address, to be read soon; any address may be given."""
    def codegen(context, builder, signature, args):
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _INT, _INT, _INT])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [builder.inttoptr(args[0], byte), *(ir.Constant(_INT, v) for v in (0, 2, 1))])
        return context.get_dummy_value()
    return types.void(types.intp), codegen


@intrinsic
def integer(typingctx, place):
    """The int64 at an address."""
    def codegen(context, builder, signature, args):
        return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()))
    return types.int64(types.intp), codegen


@intrinsic
def number(typingctx, place):
    """The float64 at an address."""
    def codegen(context, builder, signature, args):
        return builder.load(builder.inttoptr(args[0], ir.DoubleType().as_pointer()))
    return types.float64(types.intp), codegen


@intrinsic
def write(typingctx, place, value):
    """Write one float64 to an address."""
    def codegen(context, builder, signature, args):
        builder.store(args[1], builder.inttoptr(args[0], ir.DoubleType().as_pointer()))
        return context.get_dummy_value()
    return types.void(types.intp, types.float64), codegen


def _store_past(builder: Any, value: Any, place: Any, size: int) -> None:
    """Store a vector whose elements have `size` bytes past the caches: nobody reads it soon."""
    pointer = builder.inttoptr(place, value.type.as_pointer())
    store = builder.store(value, pointer, align=size * value.type.count)
    store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(_INT, 1)]))


@intrinsic
def vwrite_single(typingctx, place, value):
    """Write all lanes as float32 past the caches, to an address that is a multiple of the size of at most eight."""
    def codegen(context, builder, signature, args):
        lanes = min(value.lanes, 8)
        for first in range(0, value.lanes, lanes):
            part = _shuffle(builder, args[1], args[1], range(first, first + lanes))
            place = builder.add(args[0], ir.Constant(args[0].type, 4 * first))
            _store_past(builder, builder.fptrunc(part, _floats(lanes)), place, 4)
        return context.get_dummy_value()
    return types.void(types.intp, value), codegen


@intrinsic
def vwrite_past(typingctx, place, value):
    """Write all lanes to an address that is a multiple of their size, past the caches."""
    def codegen(context, builder, signature, args):
        _store_past(builder, args[1], args[0], 8)
        return context.get_dummy_value()
    return types.void(types.intp, value), codegen


@intrinsic
def vread(typingctx, place):
    """The four float64 at an address."""
    def codegen(context, builder, signature, args):
        return builder.load(builder.inttoptr(args[0], _VECTOR.as_pointer()), align=8)
    return vec4(types.intp), codegen


@intrinsic
def vread8(typingctx, place):
    """The eight float64 at an address."""
    def codegen(context, builder, signature, args):
        return builder.load(builder.inttoptr(args[0], _doubles(8).as_pointer()), align=8)
    return vec8(types.intp), codegen


@intrinsic
def vread16(typingctx, place):
    """The sixteen float64 at an address."""
    def codegen(context, builder, signature, args):
        return builder.load(builder.inttoptr(args[0], _doubles(16).as_pointer()), align=8)
    return vec16(types.intp), codegen


@intrinsic
def vwrite(typingctx, place, value):
    """Write all lanes to an address."""
    def codegen(context, builder, signature, args):
        builder.store(args[1], builder.inttoptr(args[0], _doubles(value.lanes).as_pointer()), align=8)
        return context.get_dummy_value()
    return types.void(types.intp, value), codegen


@intrinsic
def vset(typingctx, x):
    """x in all lanes."""
    def codegen(context, builder, signature, args):
        return _spread(builder, args[0], 4)
    return vec4(types.float64), codegen


@intrinsic
def vset8(typingctx, x):
    """x in all eight lanes."""
    def codegen(context, builder, signature, args):
        return _spread(builder, args[0], 8)
    return vec8(types.float64), codegen


@intrinsic
def vset16(typingctx, x):
    """x in all sixteen lanes."""
    def codegen(context, builder, signature, args):
        return _spread(builder, args[0], 16)
    return vec16(types.float64), codegen


@intrinsic
def vpixels(typingctx, place):
    """The four float64 at an address, each in four lanes."""
    def codegen(context, builder, signature, args):
        four = builder.load(builder.inttoptr(args[0], _VECTOR.as_pointer()), align=8)
        return _shuffle(builder, four, four, [n // 4 for n in range(16)])
    return vec16(types.intp), codegen


@intrinsic
def vpixels8(typingctx, place):
    """The two float64 at an address, each in four lanes."""
    def codegen(context, builder, signature, args):
        two = builder.load(builder.inttoptr(args[0], _doubles(2).as_pointer()), align=8)
        return _shuffle(builder, two, two, [n // 4 for n in range(8)])
    return vec8(types.intp), codegen


@intrinsic
def vhalf(typingctx, a):
    """The lower eight of sixteen lanes."""
    def codegen(context, builder, signature, args):
        return _shuffle(builder, args[0], args[0], range(8))
    return vec8(vec16), codegen


@intrinsic
def vjoin(typingctx, a, b):
    """Sixteen lanes with other lower eight."""
    def codegen(context, builder, signature, args):
        longer = _shuffle(builder, args[1], args[1], [*range(8)] * 2)
        return _shuffle(builder, longer, args[0], [*range(8), *range(24, 32)])
    return vec16(vec16, vec8), codegen


@intrinsic
def vfours(typingctx, a):
    """Four lanes, four times."""
    def codegen(context, builder, signature, args):
        return _shuffle(builder, args[0], args[0], [n % 4 for n in range(16)])
    return vec16(vec4), codegen


@intrinsic
def vtwice(typingctx, place):
    """Of the eight float64 at an address the first, third, fifth and seventh, each in two lanes."""
    def codegen(context, builder, signature, args):
        eight = builder.load(builder.inttoptr(args[0], _doubles(8).as_pointer()), align=8)
        return _shuffle(builder, eight, eight, [n // 2 * 2 for n in range(8)])
    return vec8(types.intp), codegen


def _rotation(by: int) -> Any:
    """A function that turns every four lanes."""
    @intrinsic
    def rotate(typingctx, a):
        def codegen(context, builder, signature, args):
            lanes = [n // 4 * 4 + (n + by) % 4 for n in range(signature.args[0].lanes)]
            return _shuffle(builder, args[0], args[0], lanes)
        return a(a), codegen
    return rotate


vturn1, vturn2, vturn3 = (_rotation(by) for by in (1, 2, 3))


@intrinsic
def vpick(typingctx, a, b, c, d):
    """Lane 0 of a, 1 of b, 2 of c, 3 of d."""
    def codegen(context, builder, signature, args):
        low, high = _shuffle(builder, args[0], args[1], [0, 5, 2, 3]), _shuffle(builder, args[2], args[3], [0, 1, 2, 7])
        return _shuffle(builder, low, high, [0, 1, 6, 7])
    return vec4(vec4, vec4, vec4, vec4), codegen


@intrinsic
def vlow(typingctx, a, b):
    """The lower pair of a, then that of b."""
    def codegen(context, builder, signature, args):
        return _shuffle(builder, args[0], args[1], [0, 1, 4, 5])
    return vec4(vec4, vec4), codegen


@intrinsic
def vpairs(typingctx, a, b):
    """a0, b0, a2, b2."""
    def codegen(context, builder, signature, args):
        return _shuffle(builder, args[0], args[1], [0, 4, 2, 6])
    return vec4(vec4, vec4), codegen


@intrinsic
def vhigh(typingctx, a, b):
    """The upper pair of a, then that of b."""
    def codegen(context, builder, signature, args):
        return _shuffle(builder, args[0], args[1], [2, 3, 6, 7])
    return vec4(vec4, vec4), codegen


@intrinsic
def vfold(typingctx, a):
    """The lower half of eight or sixteen lanes plus the upper half, until four are left."""
    def codegen(context, builder, signature, args):
        value, lanes = args[0], signature.args[0].lanes
        while lanes > 4:
            lanes //= 2
            low, high = (_shuffle(builder, value, value, range(n, n + lanes)) for n in (0, lanes))
            value = builder.fadd(low, high)
        return value
    return vec4(a), codegen


@intrinsic
def vspread(typingctx, place):
    """The float64 at an address in all lanes."""
    def codegen(context, builder, signature, args):
        return _spread(builder, builder.load(builder.inttoptr(args[0], ir.DoubleType().as_pointer())), 4)
    return vec4(types.intp), codegen


@intrinsic
def vsum(typingctx, a):
    """(a0 + a2) + (a1 + a3)."""
    def codegen(context, builder, signature, args):
        lane = [builder.extract_element(args[0], ir.Constant(_INT, k)) for k in range(4)]
        return builder.fadd(builder.fadd(lane[0], lane[2]), builder.fadd(lane[1], lane[3]))
    return types.float64(vec4), codegen


@intrinsic
def vsums(typingctx, a, b, c, d):
    """A vector of the sums of four vectors, each (x0 + x1) + (x2 + x3)."""
    def codegen(context, builder, signature, args):
        def shuffle(x: Any, y: Any, lanes: list[int]) -> Any:
            return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(_INT, 4), lanes))

        first, second = (builder.fadd(shuffle(x, y, [0, 4, 2, 6]), shuffle(x, y, [1, 5, 3, 7]))
                         for x, y in (args[:2], args[2:]))
        return builder.fadd(shuffle(first, second, [0, 1, 4, 5]), shuffle(first, second, [2, 3, 6, 7]))
    return vec4(vec4, vec4, vec4, vec4), codegen


@intrinsic
def vfma(typingctx, a, b, c):
    """a b + c, rounded once."""
    def codegen(context, builder, signature, args):
        return _call(builder, "llvm.fma", *args)
    return a(a, a, a), codegen


@intrinsic
def vtake(typingctx, a, b, c):
    """c - a b, rounded once."""
    def codegen(context, builder, signature, args):
        return _call(builder, "llvm.fma", builder.fneg(args[0]), *args[1:])
    return a(a, a, a), codegen


@intrinsic
def vadd(typingctx, a, b):
    """a + b."""
    def codegen(context, builder, signature, args):
        return builder.fadd(*args)
    return a(a, a), codegen


@intrinsic
def vsub(typingctx, a, b):
    """a - b."""
    def codegen(context, builder, signature, args):
        return builder.fsub(*args)
    return a(a, a), codegen


@intrinsic
def vmul(typingctx, a, b):
    """a b."""
    def codegen(context, builder, signature, args):
        return builder.fmul(*args)
    return a(a, a), codegen


@intrinsic
def vdiv(typingctx, a, b):
    """a / b."""
    def codegen(context, builder, signature, args):
        return builder.fdiv(*args)
    return a(a, a), codegen


@intrinsic
def vmax(typingctx, a, b):
    """The larger of a and b, lane by lane."""
    def codegen(context, builder, signature, args):
        return builder.select(builder.fcmp_ordered(">", args[0], args[1]), args[0], args[1])
    return a(a, a), codegen


@intrinsic
def vmin(typingctx, a, b):
    """The smaller of a and b, lane by lane."""
    def codegen(context, builder, signature, args):
        return builder.select(builder.fcmp_ordered("<", args[0], args[1]), args[0], args[1])
    return a(a, a), codegen


@intrinsic
def vless(typingctx, a, b):
    """1.0 where a < b, else 0.0."""
    def codegen(context, builder, signature, args):
        one, zero = (_constant(args[0], v) for v in (1.0, 0.0))
        return builder.select(builder.fcmp_ordered("<", args[0], args[1]), one, zero)
    return a(a, a), codegen


@intrinsic
def vabs(typingctx, a):
    """|a|."""
    def codegen(context, builder, signature, args):
        return _call(builder, "llvm.fabs", args[0])
    return a(a), codegen


@intrinsic
def vroot(typingctx, a):
    """The square root of a."""
    def codegen(context, builder, signature, args):
        return _call(builder, "llvm.sqrt", *args)
    return a(a), codegen


@intrinsic
def vsign(typingctx, a, b):
    """|a| with the sign of b."""
    def codegen(context, builder, signature, args):
        return _call(builder, "llvm.copysign", *args)
    return a(a, a), codegen
