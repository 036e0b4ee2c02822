"""Raw instructions: all that `simd`, `profile_vectors` and `spot_vectors` are made of, and what `emit` writes out.

Beside `emit` and the compiler's own `kernels/compile_parts.py` no other module knows LLVM.
"""
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import isfunction
from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

INDEX = ir.IntType(64)
DOUBLE, SINGLE = ir.DoubleType(), ir.FloatType()
_INT, _BYTE = ir.IntType(32), ir.IntType(8)


def lanes_of(element: Any, lanes: int) -> Any:
    """The kind of a vector of such elements."""
    return ir.VectorType(element, lanes)


def doubles(lanes: int) -> Any:
    """The kind of a vector of float64."""
    return lanes_of(DOUBLE, lanes)


def integers(kind: Any) -> Any:
    """The kind of a vector of integers as wide as the floats of the vector kind `kind`."""
    return ir.VectorType(ir.IntType(8 * _size(kind.element)), kind.count)


def _size(element: Any) -> int:
    return 4 if element == SINGLE else 8


def constant(kind: Any, value: float | Sequence[float]) -> Any:
    """`value` in all lanes of a vector kind, or a value for each lane."""
    return ir.Constant(kind, list(value) if isinstance(value, Sequence) else [value] * kind.count)


def index(value: int) -> Any:
    """`value` as an index, or a number of bytes."""
    return ir.Constant(INDEX, value)


def shuffle(builder: Any, a: Any, b: Any, lanes: Sequence[int]) -> Any:
    """Lanes of a, then b, as listed."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_INT, len(lanes)), list(lanes)))


def spread(builder: Any, value: Any, lanes: int) -> Any:
    """A float64 in all lanes."""
    undefined = ir.Constant(doubles(lanes), ir.Undefined)
    return shuffle(builder, builder.insert_element(undefined, value, ir.Constant(_INT, 0)), undefined, [0] * lanes)


def lane(builder: Any, vector: Any, n: int) -> Any:
    """The number in lane n."""
    return builder.extract_element(vector, ir.Constant(_INT, n))


def standard(builder: Any, name: str, *args: Any) -> Any:
    """LLVM's function `name` (fma, fabs, sqrt, copysign) of vectors of one kind."""
    kind = args[0].type
    known = ir.FunctionType(kind, [kind] * len(args))
    full = f"llvm.{name}.v{kind.count}f{8 * _size(kind.element)}"
    return builder.call(cgutils.get_or_insert_function(builder.module, known, full), args)


def element_place(context: Any, builder: Any, array_type: Any, array: Any, n: Any) -> Any:
    """Pointer to element n of a contiguous array."""
    data = cgutils.create_struct_proxy(array_type)(context, builder, value=array).data
    return builder.gep(data, [n])


def load(builder: Any, place: Any, kind: Any) -> Any:
    """What lies at an address in bytes: a number, or a vector, which need not be aligned."""
    element = kind.element if isinstance(kind, ir.VectorType) else kind
    return builder.load(builder.inttoptr(place, kind.as_pointer()), align=_size(element))


def store(builder: Any, value: Any, place: Any) -> None:
    """Write a number or a vector to an address in bytes."""
    element = value.type.element if isinstance(value.type, ir.VectorType) else value.type
    builder.store(value, builder.inttoptr(place, value.type.as_pointer()), align=_size(element))


def store_past(builder: Any, value: Any, place: Any) -> None:
    """Store a vector past the caches, since nobody reads it soon; the address is a multiple of its size."""
    pointer, size = builder.inttoptr(place, value.type.as_pointer()), _size(value.type.element)
    done = builder.store(value, pointer, align=size * value.type.count)
    done.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(_INT, 1)]))


def fetch(builder: Any, place: Any) -> None:
    """Ask for the cache line of an address."""
    kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), _INT, _INT, _INT])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [builder.inttoptr(place, _BYTE.as_pointer()), *(ir.Constant(_INT, v) for v in (0, 2, 1))])


def each_in_four(builder: Any, vector: Any) -> Any:
    """Each lane of a vector four times, one after the other."""
    return shuffle(builder, vector, vector, [n // 4 for n in range(4 * vector.type.count)])


def operation(write: Callable[..., Any], *takes: Any, gives: Any = None) -> Any:
    """An intrinsic whose code is write(builder, *values).

    takes: numba's kinds of its arguments, None for any; where none is given, all are of the kind of the first
    gives: kind of the result, or a function of the arguments' kinds; None: that of the first argument
    """
    @wraps(write)            # numba looks at the names of its arguments
    def typing(context: Any, *given: Any) -> Any:
        wanted = takes or given[:1] * len(given)
        kinds = [kind if want is None else want for kind, want in zip(given, wanted, strict=True)]
        result = gives(*kinds) if isfunction(gives) else gives or kinds[0]
        return result(*kinds), code

    def code(context: Any, builder: Any, kinds: Any, args: Any) -> Any:
        made = write(builder, *args)
        return context.get_dummy_value() if made is None else made

    return intrinsic(typing)
