"""Straight-line code for lanes that run along a band: what vectors.emit is to vectors of the CPU, for one number each.

A recursion along a band keeps a triangle of numbers from row to row. Held in arrays they would travel through memory
in every row; written out, operation by operation, they are the registers of the lane. `Code` writes them: a numba
intrinsic calls its methods in ordinary Python loops. It uses only what the compilers of both CUDA and the CPU know.
"""
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_INDEX = ir.IntType(64)
_DOUBLE = ir.DoubleType()


def written_out(function: Callable[..., Any]) -> Any:
    """Make an intrinsic of a typing function."""
    return intrinsic(function)


def number(kind: Any) -> int:
    """The number that an argument of kind "n<number>" carries (see kernels.Kernel)."""
    return len(kind)


def index(value: int) -> Any:
    """`value` as an index."""
    return ir.Constant(_INDEX, value)


class Rows:
    """Rows of an array whose elements lie `lanes` apart, from one lane's first element on."""

    def __init__(self, code: "Code", first: Any, width: Any, lanes: Any):
        self._code, self._first, self._lanes = code, first, lanes
        self._row = code.builder.mul(width, lanes)

    def at(self, row: Any) -> "Place":
        """Row number `row` (an instruction's result)."""
        b = self._code.builder
        return Place(self._code, b.gep(self._first, [b.mul(row, self._row)]), self._lanes)


class Place:
    """One row of `Rows`."""

    def __init__(self, code: "Code", first: Any, lanes: Any):
        self._code, self._first, self._lanes = code, first, lanes

    def _at(self, n: int) -> Any:
        b = self._code.builder
        return b.gep(self._first, [b.mul(index(n), self._lanes)]) if n else self._first

    def __getitem__(self, n: int) -> Any:
        return self._code.builder.load(self._at(n))

    def __setitem__(self, n: int, value: Any) -> None:
        self._code.builder.store(value, self._at(n))


class Code:
    """Writes instructions on float64 at a builder's place."""

    def __init__(self, context: Any, builder: Any):
        self.context, self.builder = context, builder
        self.zero, self.one = self.constant(0.0), self.constant(1.0)

    def constant(self, value: float) -> Any:
        """A number."""
        return ir.Constant(_DOUBLE, value)

    def rows(self, kind: Any, array: Any, place: Any, width: Any, lanes: Any) -> Rows:
        """The rows, `width` elements each, of a flat array from element `place` on."""
        data = cgutils.create_struct_proxy(kind)(self.context, self.builder, value=array).data
        return Rows(self, self.builder.gep(data, [place]), width, lanes)

    def variables(self, count: int, value: float = 0.0) -> list["Variable"]:
        """Numbers that a loop changes."""
        return [Variable(self, value) for _ in range(count)]

    @contextmanager
    def loop(self, count: Any) -> Iterator[Any]:
        """What follows is done for row 0 .. count - 1."""
        with cgutils.for_range(self.builder, count) as loop:
            yield loop.index

    @contextmanager
    def loop_down(self, count: Any) -> Iterator[Any]:
        """What follows is done for row count - 1 .. 0."""
        with cgutils.for_range(self.builder, count) as loop:
            yield self.builder.sub(self.builder.sub(count, index(1)), loop.index)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """a b + c, rounded once."""
        kind = ir.FunctionType(_DOUBLE, [_DOUBLE] * 3)
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, "llvm.fma.f64"), [a, b, c])

    def negative(self, a: Any) -> Any:
        """-a."""
        return self.builder.fsub(self.constant(-0.0), a)

    def add(self, a: Any, b: Any) -> Any:
        """a + b."""
        return self.builder.fadd(a, b)

    def multiply(self, a: Any, b: Any) -> Any:
        """a b."""
        return self.builder.fmul(a, b)

    def divide(self, a: Any, b: Any) -> Any:
        """a / b."""
        return self.builder.fdiv(a, b)

    def where_positive(self, test: Any, a: Any, b: Any) -> Any:
        """a where test > 0, else b (also where test is NaN)."""
        return self.builder.select(self.builder.fcmp_ordered(">", test, self.zero), a, b)

    def larger(self, a: Any, b: Any) -> Any:
        """The larger of a and b; b where a is NaN."""
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)

    def absolute(self, a: Any) -> Any:
        """|a|."""
        return self.where_positive(a, a, self.negative(a))


class Variable:
    """A number that a loop changes."""

    def __init__(self, code: Code, value: float):
        self._builder = code.builder
        self._place = cgutils.alloca_once(code.builder, _DOUBLE)
        self.set(code.constant(value))

    def get(self) -> Any:
        """What it holds."""
        return self._builder.load(self._place)

    def set(self, value: Any) -> None:
        """Let it hold another number."""
        self._builder.store(value, self._place)


INDEX, FLOAT, NOTHING = types.intp, types.float64, types.void
