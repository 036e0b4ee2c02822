"""How a kernel is declared, and the list of all that are.

A kernel is a grid of lanes that know nothing of each other: lane n computes its own part from the arguments alone.
What a lane does is a plain function of n and the arguments, so that it can be compiled for a GPU, run by numba's CUDA
simulator, or compiled for the CPU:

    @kernel("f8[1] f8[1]")
    def add(n, a, b):
        a[n] += b[n]

The function around it, which finds out n, is the same few lines for all kernels. Each has a copy with the name, file
and line of its lane: numba keeps compiled code on disk only for functions that it finds again by these, and a hundred
kernels are not compiled anew in every process.

No lane adds to what another lane adds to: there are no atomics, and sums have a fixed order.
"""
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import FunctionType
from typing import Any

from numba import cuda, njit, types

BLOCK = 128      # lanes in a block, where a kernel does not say otherwise
# of this package, those that declare kernels
MODULES: tuple[str, ...] = ()
_DTYPES = {"f8": types.float64, "f4": types.float32, "i8": types.int64, "i4": types.int32, "i1": types.int8,
           "u1": types.uint8, "u4": types.uint32, "u8": types.uint64}


@dataclass(frozen=True)
class Kernel:
    """A kernel as it is declared.

    function: function(count, args), plain Python that uses numba.cuda; lane: lane(n, *args), an njit function that
        does the work of lane n
    kinds: of the elements of args: "f8" a number, "f8[2]" an array of two axes, C-contiguous
    block: lanes in a block
    """

    function: Callable[..., None]
    lane: Callable[..., None]
    kinds: tuple[str, ...]
    block: int

    @property
    def name(self) -> str:
        """Module and name, for messages and profiles."""
        return f"{self.function.__module__.rsplit('.', 1)[-1]}.{self.function.__name__}"

    def signature(self) -> Any:
        """The type that numba compiles it for."""
        return types.void(types.int64, types.Tuple([_type(kind) for kind in self.kinds]))


DECLARED: list[Kernel] = []


def kernel(kinds: str, *, name: str | None = None, block: int = BLOCK) -> Callable[[Any], Kernel]:
    """Declare a kernel by its lane: see Kernel; kinds are separated by blanks.

    name: None: that of the lane, which several kernels may share as an njit function
    """
    def declare(lane: Any) -> Kernel:
        if not hasattr(lane, "py_func"):
            lane = njit(cache=True)(lane)
        declared = Kernel(_around(lane, name or lane.py_func.__name__), lane, tuple(kinds.split()), block)
        DECLARED.append(declared)
        return declared
    return declare


lane: Any = None      # in a copy of `_grid`: its own


def _grid(count: int, args: tuple[Any, ...]) -> None:
    n = cuda.grid(1)
    if n < count:
        lane(n, *args)


def _around(own: Any, name: str) -> Callable[..., None]:
    """A copy of `_grid` for a lane."""
    there = own.py_func.__code__
    code = _grid.__code__.replace(co_name=name, co_qualname=name, co_filename=there.co_filename,
                                  co_firstlineno=there.co_firstlineno)
    return FunctionType(code, {"cuda": cuda, "lane": own, "__name__": own.py_func.__module__}, name)


def declared() -> list[Kernel]:
    """All kernels of the project."""
    for module in MODULES:
        import_module(f"{__package__}.{module}")
    return DECLARED


def argument(kind: str, value: Any) -> Any:
    """A number as a kernel takes it."""
    return float(value) if kind[0] == "f" else int(value)


def _type(kind: str) -> Any:
    name, _, axes = kind.rstrip("]").partition("[")
    return types.Array(_DTYPES[name], int(axes), "C") if axes else _DTYPES[name]
