"""Straight-line vector code for kernels whose inner loops have literal lengths.

The banded kernels are short recurrences over a band of 8 to 30 diagonals, done
for several lanes (poles, fibres) at once. Written as loops over arrays they
spend their time on addresses; written out, operation by operation, they run at
the speed of the multipliers. `Emit` writes them out: a numba intrinsic calls
its methods in ordinary Python loops, and every call becomes one instruction on
`lanes` float64. The order of every sum is the order of the calls, and products
are added by a fused multiply-add, so that results are the same on every
machine that has one.

The functions before it are the raw instructions: all that `simd`, `profile_vectors` and `spot_vectors` are made of.
Beside the compiler's own `kernels/compile_parts.py` no other module knows LLVM.
"""
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import isfunction, signature
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

INDEX = ir.IntType(64)
DOUBLE, SINGLE = ir.DoubleType(), ir.FloatType()
_INT, _BYTE = ir.IntType(32), ir.IntType(8)


# ---- raw instructions ----------------------------------------------------------------------------------------------

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


# ---- functions written out -----------------------------------------------------------------------------------------

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


def written_out(lanes: int, *constants: str) -> Callable[[Callable[..., None]], Any]:
    """The decorator of a function write(e, ...) that makes an intrinsic of it, with `e` an Emit for so many lanes.

    constants: names of arguments that must be constants where it is called (numbers, closure variables or globals):
    they come as int; of an array come its kind and itself, see Emit.pointer; of all else comes the value
    """
    def decorate(write: Callable[..., None]) -> Any:
        names = list(signature(write).parameters)[1:]

        @wraps(write)
        def typing(context: Any, *given: Any) -> Any:
            constant = [isinstance(kind, types.IntegerLiteral) for kind in given]
            if not all(known for known, name in zip(constant, names, strict=True) if name in constants):
                return None          # numba first asks without the values of constants, then with them
            return types.void(*(types.intp if known and name not in constants else kind
                                for kind, known, name in zip(given, constant, names, strict=True))), code

        def code(context: Any, builder: Any, kinds: Any, args: Any) -> Any:
            write(Emit(context, builder, lanes), *(
                int(kind.literal_value) if name in constants else (kind, value) if isinstance(kind, types.Array)
                else value for kind, value, name in zip(kinds.args, args, names, strict=True)))
            return context.get_dummy_value()

        return intrinsic(prefer_literal=True)(typing)

    return decorate


class Emit:
    """Writes instructions on vectors of `lanes` float64 at a builder's place.

    add(a, b), multiply, divide, negative(a): a + b, a b, a / b, -a
    """

    def __init__(self, context: Any, builder: Any, lanes: int):
        self.context, self.builder, self.lanes = context, builder, lanes
        self.kind = doubles(lanes)
        self.zero = self.constant(0.0)
        self.one = self.constant(1.0)
        self.add, self.multiply, self.divide, self.negative = builder.fadd, builder.fmul, builder.fdiv, builder.fneg

    def call(self, name: str, places: Sequence[Any], body: Callable[..., None], *sizes: Any) -> None:
        """Call a function of this module with addresses `places`; its code is body(e, *places, *sizes), written once.

        A function of its own, which LLVM neither copies to every caller nor rewrites for the loop around the call: it
        compiles in a fraction of the time. Different places do not overlap. The name and the sizes must tell all that
        the code depends on.
        """
        module, name = self.builder.module, "_".join(map(str, (name, *sizes)))
        if name not in module.globals:
            function = ir.Function(module, ir.FunctionType(ir.VoidType(), [p.type for p in places]), name)
            function.linkage = "internal"
            function.attributes.add("noinline")
            for argument in function.args:
                if isinstance(argument.type, ir.PointerType):
                    argument.add_attribute("noalias")
            inner = ir.IRBuilder(function.append_basic_block())
            body(Emit(self.context, inner, self.lanes), *function.args, *sizes)
            inner.ret_void()
        self.builder.call(module.globals[name], places)

    def variables(self, count: int) -> list[Any]:
        """Places for vectors that a loop changes; LLVM keeps them in registers."""
        return [cgutils.alloca_once(self.builder, self.kind) for _ in range(count)]

    def begun(self, values: dict[Any, Any]) -> dict[Any, Any]:
        """The same, with these values to begin with."""
        places = dict(zip(values, self.variables(len(values)), strict=True))
        for key, place in places.items():
            self.builder.store(values[key], place)
        return places

    def done(self, places: dict[Any, Any]) -> dict[Any, Any]:
        """What variables have come to."""
        return {key: self.builder.load(place) for key, place in places.items()}

    def scratch(self, count: int) -> Any:
        """Address of memory for `count` vectors, within the function that is being compiled."""
        place = cgutils.alloca_once(self.builder, self.kind, size=self.index(count))
        return self.builder.bitcast(place, DOUBLE.as_pointer())

    def loop(self, count: Any) -> Any:
        """`with e.loop(count) as n:` what follows is done for n = 0 .. count - 1 (n.index)."""
        return cgutils.for_range(self.builder, count)

    def step(self, pointer: Any, index: Any, stride: Any) -> Any:
        """The address `index` times `stride` elements further."""
        return self.builder.gep(pointer, [self.builder.mul(index, stride)])

    def index(self, value: int) -> Any:
        """`value` as an index."""
        return index(value)

    def constant(self, value: float) -> Any:
        """`value` in all lanes."""
        return constant(self.kind, value)

    def pointer(self, array: tuple[Any, Any], index: Any) -> Any:
        """Address of element `index` (an instruction's result) of a contiguous array, given with its kind."""
        return element_place(self.context, self.builder, *array, index)

    def addresses(self, array: tuple[Any, Any]) -> Any:
        """Pointer to the first of the addresses in bytes that a contiguous array holds."""
        return self.builder.bitcast(self.pointer(array, self.index(0)), INDEX.as_pointer())

    def parts(self, several: Any) -> list[Any]:
        """What a tuple holds."""
        return list(cgutils.unpack_tuple(self.builder, several))

    def columns(self, pair: Any) -> tuple[Any, Any]:
        """Columns of float64 in memory, given as (address, bytes from one to the next): pointer, elements."""
        first, step = self.parts(pair)
        return self.place(first), self.builder.ashr(step, self.index(3))

    def place(self, address: Any) -> Any:
        """The float64 at an address in bytes (see simd.address)."""
        return self.builder.inttoptr(address, DOUBLE.as_pointer())

    def at(self, pointer: Any, offset: int) -> Any:
        """The address `offset` elements further."""
        return self.builder.gep(pointer, [self.index(offset)])

    def load(self, pointer: Any, offset: int) -> Any:
        """The vector that starts at element `offset`."""
        place = self.builder.bitcast(self.at(pointer, offset), self.kind.as_pointer())
        return self.builder.load(place, align=8)

    def store(self, pointer: Any, offset: int, value: Any) -> None:
        """Write a vector to element `offset` and the following."""
        place = self.builder.bitcast(self.at(pointer, offset), value.type.as_pointer())
        self.builder.store(value, place, align=8)

    def spread(self, pointer: Any, offset: int) -> Any:
        """Element `offset` in all lanes."""
        return spread(self.builder, self.builder.load(self.at(pointer, offset)), self.lanes)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """a b + c, rounded once."""
        return standard(self.builder, "fma", a, b, c)

    def take(self, a: Any, b: Any, c: Any) -> Any:
        """c - a b, rounded once."""
        return self.fma(self.negative(a), b, c)

    def absolute(self, a: Any) -> Any:
        """|a|."""
        return standard(self.builder, "fabs", a)

    def larger(self, a: Any, b: Any) -> Any:
        """The larger of a and b; b where a is NaN."""
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)

    def where_positive(self, test: Any, a: Any, b: Any) -> Any:
        """a in the lanes where test > 0, b in the others (also where test is NaN)."""
        return self.builder.select(self.builder.fcmp_ordered(">", test, self.zero), a, b)

    def shuffle(self, a: Any, b: Any, lanes: Sequence[int]) -> Any:
        """Lanes of a (0 .. lanes - 1) and b (lanes ..), as listed."""
        return shuffle(self.builder, a, b, lanes)

    def sums(self, vectors: Sequence[Any]) -> Any:
        """One vector of the sums over the lanes of as many vectors as there are lanes, pairwise in a fixed order."""
        rest, span = list(vectors), 1
        while len(rest) > 1:
            blocks = range(0, self.lanes, 2 * span)
            low = [i + o for i in blocks for o in (*range(span), *range(self.lanes, self.lanes + span))]
            high = [i + span for i in low]
            rest = [self.add(self.shuffle(a, b, low), self.shuffle(a, b, high))
                    for a, b in zip(rest[::2], rest[1::2], strict=True)]
            span *= 2
        return rest[0]

    def transposed(self, rows: Sequence[Any]) -> list[Any]:
        """As many vectors as there are lanes (a power of two), transposed."""
        span = 1
        while span < self.lanes:
            lanes, turned = range(self.lanes), list(rows)
            low = [n + self.lanes - span if n & span else n for n in lanes]
            high = [n + self.lanes if n & span else n + span for n in lanes]
            for n in lanes:
                if not n & span:
                    pair = rows[n], rows[n + span]
                    turned[n], turned[n + span] = self.shuffle(*pair, low), self.shuffle(*pair, high)
            rows, span = turned, 2 * span
        return list(rows)

    def interleaved(self, rows: Sequence[Any], offset: int) -> list[Any]:
        """Elements offset .. offset + 7 of what eight addresses point to: a vector of eight lanes for each of them.

        Halves are put together while they are loaded, so that two shuffles are left for each vector.
        """
        columns = []
        for half in (offset, offset + 4):
            parts = [self.four(row, half) for row in rows]
            pairs = [self.shuffle(parts[n], parts[n + 2], range(8)) for n in (0, 1, 4, 5)]
            even = [self.shuffle(pairs[n], pairs[n + 1], [0, 8, 2, 10, 4, 12, 6, 14]) for n in (0, 2)]
            odd = [self.shuffle(pairs[n], pairs[n + 1], [1, 9, 3, 11, 5, 13, 7, 15]) for n in (0, 2)]
            for first in ([0, 1, 4, 5, 8, 9, 12, 13], [2, 3, 6, 7, 10, 11, 14, 15]):
                columns += [self.shuffle(a, b, first) for a, b in (even, odd)]
        return columns

    def four(self, pointer: Any, offset: int) -> Any:
        """Four elements, whatever the number of lanes."""
        return self.builder.load(self.builder.bitcast(self.at(pointer, offset), doubles(4).as_pointer()), align=8)
