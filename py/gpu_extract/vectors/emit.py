"""Straight-line vector code for kernels whose inner loops have literal lengths.

The banded kernels are short recurrences over a band of 8 to 30 diagonals, done
for several lanes (poles, fibres) at once. Written as loops over arrays they
spend their time on addresses; written out, operation by operation, they run at
the speed of the multipliers. `Emit` writes them out: a numba intrinsic calls
its methods in ordinary Python loops, and every call becomes one instruction on
`lanes` float64. The order of every sum is the order of the calls, and products
are added by a fused multiply-add, so that results are the same on every
machine that has one.
"""
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from gpu_extract.vectors import raw
from gpu_extract.vectors.raw import DOUBLE, INDEX, doubles


def written_out(lanes: int, *constants: str) -> Callable[[Callable[..., None]], Any]:
    """A decorator that makes an intrinsic from a function write(e, ...), where `e` is an Emit for `lanes` lanes.

    constants: names of arguments that must be constants in every call (numbers, closure variables or globals). The
    function gets them as int, an array as its kind and itself, see Emit.pointer, and anything else as its value
    """
    def decorate(write: Callable[..., None]) -> Any:
        names = list(signature(write).parameters)[1:]

        @wraps(write)
        def typing(context: Any, *given: Any) -> Any:
            constant = [isinstance(kind, types.IntegerLiteral) for kind in given]
            if not all(known for known, name in zip(constant, names, strict=True) if name in constants):
                return None          # numba first tries without the values of constants, then with them
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
    """Writes instructions on vectors of `lanes` float64 at a builder's position.

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

        LLVM neither copies a separate function to every caller nor rewrites it for the loop around the call, so it
        compiles in a fraction of the time. Different places do not overlap. The name and the sizes must determine the
        code.
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
        """Variables for vectors that a loop changes; LLVM keeps them in registers."""
        return [cgutils.alloca_once(self.builder, self.kind) for _ in range(count)]

    def begun(self, values: dict[Any, Any]) -> dict[Any, Any]:
        """The same, with initial values."""
        places = dict(zip(values, self.variables(len(values)), strict=True))
        for key, place in places.items():
            self.builder.store(values[key], place)
        return places

    def done(self, places: dict[Any, Any]) -> dict[Any, Any]:
        """The final values of variables."""
        return {key: self.builder.load(place) for key, place in places.items()}

    def scratch(self, count: int) -> Any:
        """Address of memory for `count` vectors, within the function that is being compiled."""
        place = cgutils.alloca_once(self.builder, self.kind, size=self.index(count))
        return self.builder.bitcast(place, DOUBLE.as_pointer())

    def loop(self, count: Any) -> Any:
        """`with e.loop(count) as n:` the block is executed for n = 0 .. count - 1 (n.index)."""
        return cgutils.for_range(self.builder, count)

    def step(self, pointer: Any, index: Any, stride: Any) -> Any:
        """The address `index` times `stride` elements further."""
        return self.builder.gep(pointer, [self.builder.mul(index, stride)])

    def index(self, value: int) -> Any:
        """`value` as an index."""
        return raw.index(value)

    def constant(self, value: float) -> Any:
        """`value` in all lanes."""
        return raw.constant(self.kind, value)

    def pointer(self, array: tuple[Any, Any], index: Any) -> Any:
        """Address of element `index` (an instruction's result) of a contiguous array, given with its kind."""
        return raw.element_place(self.context, self.builder, *array, index)

    def addresses(self, array: tuple[Any, Any]) -> Any:
        """Pointer to the first of the addresses in bytes that a contiguous array holds."""
        return self.builder.bitcast(self.pointer(array, self.index(0)), INDEX.as_pointer())

    def parts(self, several: Any) -> list[Any]:
        """The elements of a tuple."""
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
        return raw.spread(self.builder, self.builder.load(self.at(pointer, offset)), self.lanes)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """a b + c, rounded once."""
        return raw.standard(self.builder, "fma", a, b, c)

    def take(self, a: Any, b: Any, c: Any) -> Any:
        """c - a b, rounded once."""
        return self.fma(self.negative(a), b, c)

    def absolute(self, a: Any) -> Any:
        """|a|."""
        return raw.standard(self.builder, "fabs", a)

    def larger(self, a: Any, b: Any) -> Any:
        """The larger of a and b; b if a is NaN."""
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)

    def where_positive(self, test: Any, a: Any, b: Any) -> Any:
        """a in the lanes where test > 0, b in the others (also where test is NaN)."""
        return self.builder.select(self.builder.fcmp_ordered(">", test, self.zero), a, b)

    def shuffle(self, a: Any, b: Any, lanes: Sequence[int]) -> Any:
        """Lanes of a (0 .. lanes - 1) and b (lanes ..), as listed."""
        return raw.shuffle(self.builder, a, b, lanes)

    def sums(self, vectors: Sequence[Any]) -> Any:
        """One vector with the sums over the lanes of as many vectors as there are lanes, pairwise in a fixed order."""
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
        """Elements offset .. offset + 7 at eight addresses: a vector of eight lanes for each element.

        Halves are combined when they are loaded, so that each vector needs two shuffles.
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
