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
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_INDEX = ir.IntType(64)
_INT = ir.IntType(32)
_DOUBLE = ir.DoubleType()


def written_out(function: Any) -> Any:
    """Make an intrinsic of a typing function, asked with the values of those arguments that are constants."""
    return intrinsic(prefer_literal=True)(function)


def literal(kind: Any) -> int:
    """The value of an intrinsic's argument that was given as a constant (a number, a closure variable or a global)."""
    return int(kind.literal_value)


def all_literal(*kinds: Any) -> bool:
    """Whether all of an intrinsic's arguments `kinds` are constants (numba first asks without, then with)."""
    return all(isinstance(kind, types.IntegerLiteral) for kind in kinds)


def call(context: Any, builder: Any, name: str, places: Sequence[Any], body: "Callable[[Emit, Any], None]",
         lanes: int) -> Any:
    """Call the function `name` of this module with addresses `places`; its code is `body`, written once.

    A function of its own, which LLVM neither copies to every caller nor rewrites for the loop around the call: it
    compiles in a fraction of the time. Different places do not overlap. `name` must tell all that the code depends on.
    """
    known = builder.module.globals
    if name not in known:
        function = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), [p.type for p in places]), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        for argument in function.args:
            if isinstance(argument.type, ir.PointerType):
                argument.add_attribute("noalias")
        inner = ir.IRBuilder(function.append_basic_block())
        body(Emit(context, inner, lanes), function.args)
        inner.ret_void()
    builder.call(known[name], places)
    return context.get_dummy_value()


class Emit:
    """Writes instructions on vectors of `lanes` float64 at a builder's place."""

    def __init__(self, context: Any, builder: Any, lanes: int):
        self.context, self.builder, self.lanes = context, builder, lanes
        self.kind = ir.VectorType(_DOUBLE, lanes)
        self.zero = self.constant(0.0)
        self.one = self.constant(1.0)

    def variables(self, count: int) -> list[Any]:
        """Places for vectors that a loop changes; LLVM keeps them in registers."""
        return [cgutils.alloca_once(self.builder, self.kind) for _ in range(count)]

    def scratch(self, count: int) -> Any:
        """Address of memory for `count` vectors, within the function that is being compiled."""
        place = cgutils.alloca_once(self.builder, self.kind, size=self.index(count))
        return self.builder.bitcast(place, _DOUBLE.as_pointer())

    def loop(self, count: Any) -> Any:
        """`with e.loop(count) as n:` what follows is done for n = 0 .. count - 1 (n.index)."""
        return cgutils.for_range(self.builder, count)

    def step(self, pointer: Any, index: Any, stride: Any) -> Any:
        """The address `index` times `stride` elements further."""
        return self.builder.gep(pointer, [self.builder.mul(index, stride)])

    def index(self, value: int) -> Any:
        """`value` as an index."""
        return ir.Constant(_INDEX, value)

    def constant(self, value: float) -> Any:
        """`value` in all lanes."""
        return ir.Constant(self.kind, [value] * self.lanes)

    def pointer(self, kind: Any, array: Any, index: Any) -> Any:
        """Address of element `index` (an instruction's result) of a contiguous array."""
        data = cgutils.create_struct_proxy(kind)(self.context, self.builder, value=array).data
        return self.builder.gep(data, [index])

    def place(self, address: Any) -> Any:
        """The float64 at an address in bytes (see simd.address)."""
        return self.builder.inttoptr(address, _DOUBLE.as_pointer())

    def at(self, pointer: Any, offset: int) -> Any:
        """The address `offset` elements further."""
        return self.builder.gep(pointer, [ir.Constant(_INDEX, offset)])

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
        scalar = self.builder.load(self.at(pointer, offset))
        undefined = ir.Constant(self.kind, ir.Undefined)
        first = self.builder.insert_element(undefined, scalar, ir.Constant(_INT, 0))
        return self.shuffle(first, undefined, [0] * self.lanes)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """a b + c, rounded once."""
        kind = ir.FunctionType(self.kind, [self.kind] * 3)
        name = f"llvm.fma.v{self.lanes}f64"
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), [a, b, c])

    def negative(self, a: Any) -> Any:
        """-a."""
        return self.builder.fneg(a)

    def add(self, a: Any, b: Any) -> Any:
        """a + b."""
        return self.builder.fadd(a, b)

    def multiply(self, a: Any, b: Any) -> Any:
        """a b."""
        return self.builder.fmul(a, b)

    def divide(self, a: Any, b: Any) -> Any:
        """a / b."""
        return self.builder.fdiv(a, b)

    def absolute(self, a: Any) -> Any:
        """|a|."""
        kind = ir.FunctionType(self.kind, [self.kind])
        name = f"llvm.fabs.v{self.lanes}f64"
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), [a])

    def larger(self, a: Any, b: Any) -> Any:
        """The larger of a and b; b where a is NaN."""
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)

    def where_positive(self, test: Any, a: Any, b: Any) -> Any:
        """a in the lanes where test > 0, b in the others (also where test is NaN)."""
        return self.builder.select(self.builder.fcmp_ordered(">", test, self.zero), a, b)

    def shuffle(self, a: Any, b: Any, lanes: Sequence[int]) -> Any:
        """Lanes of a (0 .. lanes - 1) and b (lanes ..), as listed."""
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_INT, len(lanes)), list(lanes)))

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
            parts = [self._four(row, half) for row in rows]
            pairs = [self.shuffle(parts[n], parts[n + 2], range(8)) for n in (0, 1, 4, 5)]
            even = [self.shuffle(pairs[n], pairs[n + 1], [0, 8, 2, 10, 4, 12, 6, 14]) for n in (0, 2)]
            odd = [self.shuffle(pairs[n], pairs[n + 1], [1, 9, 3, 11, 5, 13, 7, 15]) for n in (0, 2)]
            for first in ([0, 1, 4, 5, 8, 9, 12, 13], [2, 3, 6, 7, 10, 11, 14, 15]):
                columns += [self.shuffle(a, b, first) for a, b in (even, odd)]
        return columns

    def _four(self, pointer: Any, offset: int) -> Any:
        """Four elements, whatever the number of lanes."""
        kind = ir.VectorType(_DOUBLE, 4)
        return self.builder.load(self.builder.bitcast(self.at(pointer, offset), kind.as_pointer()), align=8)
