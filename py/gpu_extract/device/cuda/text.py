"""Kernels in CUDA C++: the text in text/*.h, as Python launches it.

The headers hold plain functions, "what lane n does", templates on the half-band or on the real type. One that begins
with BLOCK or TEAMS is a kernel; `source` is the headers and one line that makes an entry of it. NVRTC compiles
that for a GPU (device.cuda.real), an ordinary C++ compiler for tests: the same text. Products and sums are contracted
nowhere but where the text says fma, so that both round alike.

What both languages must know is written once: arguments and sizes in the headers, what files hold in gpu_extract.data.
"""
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from gpu_extract.data import SpecMask, Status

FOLDER = Path(__file__).with_name("text")
HEADERS = ("lanes", "image", "recursions", "teams", "sweeps", "normal", "spots", "gradients", "quality", "eliminate",
           "remainder", "measure", "poles", "assembly", "passes", "smooth", "shared", "tails")
TWICE = "passes", "smooth", "shared", "tails"      # what frames of one pass do not take
OPTIONS = "-std=c++17", "--fmad=false"            # of NVRTC
WARP, TEAMS = 32, (16, 32, 64)                        # threads of a block of teams, and of a team
AT_ONCE = 8       # such blocks on a multiprocessor: compilers that are not told spill one register for the sake of more
SCHEDULERS, REGISTERS = 4, 512    # of a multiprocessor; of a scheduler, for each thread of a warp (V100 and since)
_TYPES = {"f8": "double", "f4": "float", "i8": "index", "i4": "int", "u4": "unsigned", "i1": "signed char"}
_KINDS = {name: kind for kind, name in _TYPES.items()}


@dataclass(frozen=True)
class TextKernel:
    """A kernel whose text is CUDA C++.

    function: its name in the header `module`.h, a template where there are numbers
    arguments: their names, behind the lane's number
    kinds: of these, "f8" a number, "f8[]" a C-contiguous array; then "n", the template's numbers, which do not travel
    block: threads in a block; real: kind of what a template calls Real; wide: half-band from which on a lane is a team
    of threads, 0: it is always one; beside: registers that such a thread gets along with beside 2 for each diagonal of
    the band, 0: it has as many as the compiler likes
    """

    function: str
    module: str
    arguments: tuple[str, ...]
    kinds: tuple[str, ...]
    block: int
    real: str = ""
    wide: int = 0
    beside: int = 0

    @property
    def name(self) -> str:
        """Module and name, for messages and profiles."""
        return f"{self.module}.{self.function}"

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """The numbers it is compiled for."""
        return tuple(int(kind[1:]) for kind in self.kinds if kind[0] == "n")

    @property
    def threads(self) -> int:
        """Threads of a lane: as many as hold the columns of its numbers and the right sides, or one."""
        if not 0 < self.wide <= self.numbers[0]:
            return 1
        return next((team for team in TEAMS if max(self.numbers) < team - number("SIDES")), 1)

    @property
    def at_once(self) -> int:
        """Warps on a multiprocessor: as many as have the registers for it, at least AT_ONCE."""
        if self.threads == 1 or not self.beside:
            return AT_ONCE
        return max(REGISTERS // (2 * self.numbers[0] + self.beside) * SCHEDULERS, AT_ONCE)

    def grid(self, lanes: int) -> int:
        """Blocks for so many lanes."""
        return -(-lanes * self.threads // self.block)

    @cached_property
    def travelling(self) -> tuple[str, ...]:
        """Kinds of the arguments that a launch gives."""
        return tuple(kind for kind in self.kinds if kind[0] != "n")

    def bound(self, own: Mapping[str, Any], known: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments of a launch by their names in the header: its own, a string for what is known by that name; of
        all others what is known by theirs. Raises TypeError where it is given what it does not take."""
        if not own.keys() <= self._names:
            raise TypeError(f"{self.name} takes {', '.join(self.arguments)}, was given {', '.join(own)}")
        return tuple([known[value] if isinstance(value := own.get(name, name), str) else value
                      for name in self.arguments])

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.arguments)

    @property
    def entry(self) -> str:
        """Its name in the compiled text, where the function has its own."""
        return "_".join(("all", self.function, *self.real.split(), *map(str, self.numbers)))

    @property
    def unit(self) -> tuple["TextKernel", ...]:
        """What is compiled with it: of kernels without numbers all that every frame takes, or those of two passes."""
        return (self,) if self.numbers else tuple(one for one in all_kernels() if "n" not in one.kinds and
                                                  (one.module in TWICE) == (self.module in TWICE))

    def sized(self, *numbers: int) -> "TextKernel":
        """The kernel with these numbers for the kinds "n", in their order."""
        return _sized(self, numbers)


@cache      # launches ask for it
def _sized(kernel: TextKernel, numbers: tuple[int, ...]) -> TextKernel:
    left = iter(numbers)
    made = replace(kernel, kinds=tuple(f"n{next(left)}" if kind == "n" else kind for kind in kernel.kinds))
    return replace(made, block=number("TEAMED") if made.threads > 1 else made.block)


class Header:
    """A header: its kernels, and numbers of the headers, as attributes. A kernel that is a template on the real type is
    two, by the bytes of a number."""

    def __init__(self, module: str):
        self.module = module

    def __getattr__(self, name: str) -> Any:
        made = vars(self)[name] = number(name) if name.isupper() else self._kernel(name)      # asked for once
        return made

    def _kernel(self, name: str) -> TextKernel | dict[int, TextKernel]:
        found = {kernel.real: kernel for kernel in kernels_of(self.module) if kernel.function == name}
        if not found:
            raise AttributeError(f"text/{self.module}.h has no kernel {name}")
        return found.get("") or {int(real[1:]): kernel for real, kernel in found.items()}


@cache
def kernels_of(module: str) -> list[TextKernel]:
    """The kernels of a header, without numbers."""
    found = re.findall(r"(?:template <(.*)>\n)?(BLOCK|TEAMS)\((\d+)(?:, (\d+))?\) void (\w+)\(index \w+, ([^)]*)\)",
                       _header(module))
    return [TextKernel(function, module, tuple(re.findall(r"(\w+)(?:,|$)", arguments)),
                       _kinds_of(arguments, template, real), *(
                (int(size), real) if mark == "BLOCK" else (WARP, real, int(size), int(beside or 0))))
            for template, mark, size, beside, function, arguments in found
            for real in (("f4", "f8") if "Real" in template else ("",))]


def _kinds_of(arguments: str, template: str, real: str) -> tuple[str, ...]:
    types = [re.sub(r"\w+$", "", " ".join(one.replace("const ", "").split())) for one in arguments.split(",")]
    kinds = [(_KINDS | {"Real": real})[one.rstrip("* ")] + ("[]" if "*" in one else "") for one in types]
    return *kinds, *("n" for one in template.split(",") if one.strip().startswith("int ") and one != " int T")


def all_kernels() -> list[TextKernel]:
    """All there are, without numbers."""
    return [kernel for module in HEADERS for kernel in kernels_of(module)]


def source(*kernels: TextKernel) -> str:
    """What files hold, the headers that the kernels need, and their entries: each calls its function for every lane."""
    held = [f"enum {kind.__name__} {{ {', '.join(f'{one.name} = {one.value}' for one in kind)} }};"
            for kind in (SpecMask, Status)]
    needed = frozenset[str]().union(*(_needed(kernel.module) for kernel in kernels))
    return "\n".join([*held, _headers(needed), *(_entry(kernel) for kernel in kernels)])


def _entry(kernel: TextKernel) -> str:
    names: list[str] = []
    declared: list[str] = []
    for kind in kernel.travelling:
        names.append(f"a{len(names)}")
        declared.append(_TYPES[kind[:2]] + (" *__restrict__ " if kind[2:] else " ") + names[-1])
    told = *kernel.numbers, *((kernel.threads,) if kernel.wide else ())
    numbers = f"<{', '.join(map(str, told))}>" if told else ""
    lanes = "LANES(" if kernel.threads == 1 else f"LANES_OF_TEAMS({kernel.threads}, "
    told_blocks = kernel.threads > 1 or (numbers and kernel.block == WARP)
    blocks = f", {kernel.at_once * WARP // kernel.block}" if told_blocks else ""
    return (f"KERNEL({kernel.block}{blocks}) {kernel.entry}(long long count, {', '.join(declared)})\n"
            f"{{\n    {lanes}n, count) {kernel.function}{numbers}(n, {', '.join(names)});\n}}\n")


@cache
def number(name: str) -> int:
    """A number that a header has, or the place of a name in an enum of one, which Python needs as well."""
    found = re.findall(rf"constexpr \w+ [^;]*\b{name} = (-?\d+)", _headers())
    listed = [names(enum).index(name) for enum in re.findall(r"enum (\w+)", _headers()) if name in names(enum)]
    if len(found) + len(listed) != 1:
        raise AttributeError(f"the headers have {len(found) + len(listed)} numbers {name}")
    return int(found[0]) if found else listed[0]


@cache
def names(enum: str) -> tuple[str, ...]:
    """The names of an enum of a header, numbered in their order."""
    return tuple(re.findall(r"\w+", re.findall(rf"enum {enum} {{(.*?)}}", _headers(), re.DOTALL)[0]))


@cache
def _needed(module: str) -> frozenset[str]:
    """The modules whose headers one needs: itself, and what it includes."""
    included = re.findall(r'^#include "(\w+)\.h"$', _header(module), flags=re.MULTILINE)
    return frozenset({module}).union(*map(_needed, included))


@cache
def _headers(needed: frozenset[str] = frozenset(HEADERS)) -> str:
    """Those that are needed as one text; what they include of each other is there already."""
    texts = "\n".join(_header(module) for module in HEADERS if module in needed)
    return re.sub(r'^#(pragma once|include ".*")\n', "", texts, flags=re.MULTILINE)


@cache
def _header(module: str) -> str:
    return (FOLDER / f"{module}.h").read_text(encoding="utf-8")


(assembly, eliminate, gradients, image, measure, normal, passes, poles, quality, remainder, shared, smooth, spots,
 sweeps, tails) = map(Header, ("assembly", "eliminate", "gradients", "image", "measure", "normal", "passes", "poles",
                               "quality", "remainder", "shared", "smooth", "spots", "sweeps", "tails"))
