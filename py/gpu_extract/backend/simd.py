"""Vectors of four float64 for numba kernels: `Vec4` values that live in registers.

numba leaves it to LLVM whether a loop becomes vector code, and for the short
loops of this project (rows of 3 to 8 vectors) it often does not. These
intrinsics say it outright; LLVM maps four lanes to AVX, to half an AVX-512
register or to two NEON registers. The order of every sum is the one written.

    a = vload(array, index)        four consecutive elements, unaligned, of a float64 array (flat index)
    vstore(array, index, a)
    vfma(a, b, c)                  a b + c, rounded once
    vset(x)                        x in all lanes
    vsum(a)                        (a0 + a2) + (a1 + a3)
"""
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

_VECTOR = ir.VectorType(ir.DoubleType(), 4)
_FLOATS = ir.VectorType(ir.FloatType(), 4)
_INT = ir.IntType(32)


class Vec4(types.Type):
    """numba type of four float64 lanes."""

    def __init__(self) -> None:
        super().__init__(name="vec4")


vec4 = Vec4()


@register_model(Vec4)
class _Vec4Model(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: types.Type) -> None:
        super().__init__(dmm, fe_type, _VECTOR)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = cgutils.create_struct_proxy(array_type)(context, builder, value=array).data
    return builder.gep(data, [index])


def _call(builder: Any, name: str, *args: Any) -> Any:
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * len(args))
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"{name}.v4f64"), args)


@intrinsic
def vload(typingctx, array, index):  # type: ignore[no-untyped-def]
    """Elements index .. index + 3 of a contiguous float64 or float32 array, widened to float64."""
    single = array.dtype == types.float32

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        kind = _FLOATS if single else _VECTOR
        value = builder.load(builder.bitcast(pointer, kind.as_pointer()), align=4 if single else 8)
        return builder.fpext(value, _VECTOR) if single else value
    return vec4(array, types.intp), codegen


@intrinsic
def vstore(typingctx, array, index, value):  # type: ignore[no-untyped-def]
    """Write the four lanes to elements index .. index + 3 (rounded where the array is float32)."""
    single = array.dtype == types.float32

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        kind = _FLOATS if single else _VECTOR
        lanes = builder.fptrunc(args[2], _FLOATS) if single else args[2]
        builder.store(lanes, builder.bitcast(pointer, kind.as_pointer()), align=4 if single else 8)
        return context.get_dummy_value()
    return types.void(array, types.intp, vec4), codegen


@intrinsic
def vset(typingctx, x):  # type: ignore[no-untyped-def]
    """x in all lanes."""
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        undefined = ir.Constant(_VECTOR, ir.Undefined)
        first = builder.insert_element(undefined, args[0], ir.Constant(_INT, 0))
        return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_INT, 4), [0] * 4))
    return vec4(types.float64), codegen


@intrinsic
def vsum(typingctx, a):  # type: ignore[no-untyped-def]
    """(a0 + a2) + (a1 + a3)."""
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        lane = [builder.extract_element(args[0], ir.Constant(_INT, k)) for k in range(4)]
        return builder.fadd(builder.fadd(lane[0], lane[2]), builder.fadd(lane[1], lane[3]))
    return types.float64(vec4), codegen


@intrinsic
def vfma(typingctx, a, b, c):  # type: ignore[no-untyped-def]
    """a b + c, rounded once."""
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return _call(builder, "llvm.fma", *args)
    return vec4(vec4, vec4, vec4), codegen


@intrinsic
def vadd(typingctx, a, b):  # type: ignore[no-untyped-def]
    """a + b."""
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.fadd(*args)
    return vec4(vec4, vec4), codegen


@intrinsic
def vsub(typingctx, a, b):  # type: ignore[no-untyped-def]
    """a - b."""
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.fsub(*args)
    return vec4(vec4, vec4), codegen


@intrinsic
def vmul(typingctx, a, b):  # type: ignore[no-untyped-def]
    """a b."""
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.fmul(*args)
    return vec4(vec4, vec4), codegen


@intrinsic
def vdiv(typingctx, a, b):  # type: ignore[no-untyped-def]
    """a / b."""
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.fdiv(*args)
    return vec4(vec4, vec4), codegen


@intrinsic
def vmax(typingctx, a, b):  # type: ignore[no-untyped-def]
    """The larger of a and b, lane by lane."""
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.select(builder.fcmp_ordered(">", args[0], args[1]), args[0], args[1])
    return vec4(vec4, vec4), codegen


@intrinsic
def vless(typingctx, a, b):  # type: ignore[no-untyped-def]
    """1.0 where a < b, else 0.0."""
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        one, zero = (ir.Constant(_VECTOR, [v] * 4) for v in (1.0, 0.0))
        return builder.select(builder.fcmp_ordered("<", args[0], args[1]), one, zero)
    return vec4(vec4, vec4), codegen


@intrinsic
def vabs(typingctx, a):  # type: ignore[no-untyped-def]
    """|a|."""
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return _call(builder, "llvm.fabs", args[0])
    return vec4(vec4), codegen


@intrinsic
def vsign(typingctx, a, b):  # type: ignore[no-untyped-def]
    """|a| with the sign of b."""
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return _call(builder, "llvm.copysign", *args)
    return vec4(vec4, vec4), codegen
