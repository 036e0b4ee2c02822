"""How a kernel is declared, and the list of all that are.

A kernel is a grid of lanes that know nothing of each other: lane n computes its own part from the arguments alone.
What a lane does is a plain `njit` function of n and the arguments, so that it can be compiled for a GPU, run by
numba's CUDA simulator, or compiled for the CPU; the kernel around it is three lines:

    @njit(cache=True)
    def _add(n, a, b):
        a[n] += b[n]

    @kernel("f8[1] f8[1]", lane=_add)
    def add(count, args):
        n = cuda.grid(1)
        if n < count:
            _add(n, *args)

It is written out for each, and not made by the decorator: numba keeps compiled code on disk only for functions that it
finds again by their name in a file, and a hundred kernels are not compiled anew in every process.

No lane adds to what another lane adds to: there are no atomics, and sums have a fixed order.

An argument of kind "n" is a number that must be known when the kernel is compiled, such as the half-band of code that
is written out: `add.sized(9)` is the kernel for 9. It travels as a tuple of so many zeros, since the type of a tuple
tells its length, and a kernel's file on disk is found again by the types of its arguments.
"""
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from numba import types

BLOCK = 128      # lanes in a block, where a kernel does not say otherwise
# of this package, those that declare kernels
MODULES = ("image", "spots", "normal", "gradients", "quality", "eliminate", "complement", "measure", "decide", "poles",
           "patches", "matrices", "assembly")
_DTYPES = {"f8": types.float64, "f4": types.float32, "i8": types.int64, "i4": types.int32, "i1": types.int8,
           "u1": types.uint8, "u4": types.uint32, "u8": types.uint64}


@dataclass(frozen=True)
class Kernel:
    """A kernel as it is declared.

    function: function(count, args), plain Python that uses numba.cuda; lane: lane(n, *args), an njit function that
        does the work of lane n, or None where lanes work together
    kinds: of the elements of args: "f8" a number, "f8[2]" an array of two axes, C-contiguous, "n9" the number 9
    block: lanes in a block; samples: numbers for the kinds "n" that tests compile it for
    """

    function: Callable[..., None]
    lane: Callable[..., None] | None
    kinds: tuple[str, ...]
    block: int
    samples: tuple[tuple[int, ...], ...] = ()

    @property
    def name(self) -> str:
        """Module and name, for messages and profiles."""
        return f"{self.function.__module__.rsplit('.', 1)[-1]}.{self.function.__name__}"

    def signature(self) -> Any:
        """The type that numba compiles it for."""
        return types.void(types.int64, types.Tuple([_type(kind) for kind in self.kinds]))

    def sized(self, *numbers: int) -> "Kernel":
        """The kernel with these numbers for the kinds "n", in their order."""
        left = iter(numbers)
        return replace(self, kinds=tuple(f"n{next(left)}" if kind == "n" else kind for kind in self.kinds), samples=())


DECLARED: list[Kernel] = []


def kernel(kinds: str, *, lane: Callable[..., None] | None = None,
           block: int = BLOCK,
           samples: tuple[tuple[int, ...], ...] = ()) -> Callable[[Callable[..., None]], Kernel]:
    """Declare a kernel: see Kernel; kinds are separated by blanks."""
    def declare(function: Callable[..., None]) -> Kernel:
        declared = Kernel(function, lane, tuple(kinds.split()), block, samples)
        DECLARED.append(declared)
        return declared
    return declare


def declared() -> list[Kernel]:
    """All kernels of the project; those with kinds "n" in the sizes of their samples."""
    for module in MODULES:
        import_module(f"{__package__}.{module}")
    return [sized for kernel in DECLARED
            for sized in ([kernel.sized(*sample) for sample in kernel.samples] or [kernel])]


def argument(kind: str, value: Any) -> Any:
    """A number as a kernel takes it."""
    if kind[0] == "n":
        return (0,) * int(kind[1:])
    return float(value) if kind[0] == "f" else int(value)


def _type(kind: str) -> Any:
    if kind[0] == "n":
        return types.UniTuple(types.int8, int(kind[1:]))
    name, _, axes = kind.rstrip("]").partition("[")
    return types.Array(_DTYPES[name], int(axes), "C") if axes else _DTYPES[name]
