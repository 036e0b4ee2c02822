"""Kernels as machine code, without a GPU: compiled, disassembled, and walked by one warp with a scoreboard.

Needs NVRTC (of the extra `test`) and nvdisasm (pip install nvidia-cuda-nvdisasm, or CUDA's own on the PATH).
"""
import ctypes
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gpu_extract.device.cuda.text import OPTIONS, TextKernel, source

LABEL = re.compile(r"^\s*(\.L_x_\d+|\.L_\d+|\.text[^:]*):")
WORD = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;\s*/\*\s*(0x[0-9a-f]+)\s*\*/")
SECOND = re.compile(r"^\s*/\*\s*(0x[0-9a-f]+)\s*\*/")
BRANCH = re.compile(r"BRA(?:\.\S+)?\s+(?:!?U?P\d+,\s*)?`\((\.L_x_\d+|\.L_\d+)\)")
LATENCY = {"LDL": 38, "MUFU": 40, "LDC": 30, "ULDC": 30}      # cycles; other waits: 20, or memory's own
MEMORY = "LDG", "STG", "LD", "ST"
READ = 15                                                     # cycles until a store's registers are free again
# 13, 29: the widest of teams of 16, of 32; 48: of all; 22, 43: the widest of which 16, 12 warps fit on a multiprocessor
_ICOV, _BANDS = [(9,), (5,)], [(9,), (13,), (29,), (48,)]
_INVERTED = [*_BANDS, (22,), (43,)]
SAMPLES: dict[str, list[tuple[int, ...]]] = {                 # numbers that kernels are looked at with
    "normal.couple": [(9, 11, 16, 1), (17, 11, 16, 0), (17, 11, 16, 1)], "spots.evaluate": [(8,)],
    "spots.make": [(7, 7, 0, 0, 0, 0, 0, 6), (7, 7, 0, 3, 5, 1, 1, 3), (3, 5, 1, 0, 0, 0, 0, 6)],
    "assembly.find_middles": [(16,)],
    **{f"sweeps.{name}": [(9,)] for name in ("precondition_down", "precondition_up")},
    **{f"eliminate.{name}": _ICOV for name in ("product", "share")}, "eliminate.extend": [(9, 4), (5, 4), (48, 1)],
    "remainder.carry": _ICOV, "remainder.take": _ICOV,
    "remainder.substitute": [(9, 0, 2), (9, 1, 2), (5, 0, 1), (5, 1, 1)],
    "remainder.pole_again": [(9, 0), (9, 1), (13, 0), (13, 1)],
    **{f"sweeps.{name}": _BANDS for name in ("settle", "poles_down")},
    "sweeps.factor": [*_BANDS, (5,)], "sweeps.invert": _INVERTED,
    "sweeps.ask": [(9, 2), (13, 2), (14, 1), (29, 1), (48, 1)], "sweeps.poles_together": [(9, 5), (9, 9)],
    "sweeps.poles_up": [(half, 5) for (half,) in _INVERTED]}


@dataclass(frozen=True)
class Instruction:
    """One instruction with its control code: cycles until the next, barriers that it sets and waits for."""

    text: str
    stall: int
    sets: int
    reads: int
    waits: int

    @cached_property
    def word(self) -> str:
        """Its name without predicate and suffixes."""
        return re.sub(r"^@!?U?P\d+\s+", "", self.text).split()[0].split(".")[0]


@dataclass(frozen=True)
class Loop:
    """Instructions first .. last that are repeated; name: "1.0" is the first loop within the second."""

    name: str
    first: int
    last: int


@dataclass(frozen=True)
class Code:
    """A kernel for one architecture."""

    registers: int
    stack: int
    spills: int
    instructions: tuple[Instruction, ...]
    loops: tuple[Loop, ...]
    targets: dict[int, int]


@cache
def tool(name: str, *places: str) -> Path | None:
    """A program of CUDA: of a wheel, else on the PATH."""
    for place in places:
        spec = find_spec(place.split("/")[0])
        for root in (spec.submodule_search_locations or []) if spec else []:
            path = Path(root, *place.split("/")[1:], "bin", name)
            if path.exists():
                return path
    found = shutil.which(name)
    return Path(found) if found else None


def nvdisasm() -> Path | None:
    """The disassembler."""
    return tool("nvdisasm", "nvidia/cu13", "nvidia/cuda_nvdisasm")


@cache
def compiled(kernel: TextKernel, capability: tuple[int, int]) -> Code:
    """A kernel that is declared, for a compute capability."""
    with TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        code = make_cubin((kernel,), capability, cubin)[kernel]
        lines = subprocess.run([str(nvdisasm()), "-c", "-hex", cubin], capture_output=True, text=True,
                               check=True).stdout.splitlines()
    found, labels = _read(lines)
    targets = {n: labels[match[1]] for n, one in enumerate(found)
               if (match := BRANCH.search(one.text)) and match[1] in labels and not _is_behind_barrier(found, n)}
    return replace(code, instructions=tuple(found), loops=_loops(targets), targets=targets)


@cache
def compiled_together(kernels: tuple[TextKernel, ...], capability: tuple[int, int]) -> dict[TextKernel, Code]:
    """Kernels without their instructions, by one compilation: most of the time goes into the headers."""
    with TemporaryDirectory() as folder:
        return make_cubin(kernels, capability, Path(folder) / "kernels.cubin")


def make_cubin(kernels: tuple[TextKernel, ...], capability: tuple[int, int], cubin: Path) -> dict[TextKernel, Code]:
    """Write the machine code of kernels, made by NVRTC; returns what the assembler says of each."""
    library = nvrtc()
    if library is None:
        raise RuntimeError("no NVRTC here: pip install nvidia-cuda-nvrtc-cu12")
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = [*OPTIONS, f"-arch=sm_{capability[0]}{capability[1]}", "--ptxas-options=-v"]
    library.nvrtcCreateProgram(ctypes.byref(program), source(*kernels).encode(), b"kernel.cu", 0, None, None)
    code = library.nvrtcCompileProgram(program, len(options),
                                       (ctypes.c_char_p * len(options))(*(o.encode() for o in options)))
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    if code != 0:
        raise RuntimeError(log.value.decode())
    library.nvrtcGetCUBINSize(program, ctypes.byref(size))
    made = ctypes.create_string_buffer(size.value)
    library.nvrtcGetCUBIN(program, made)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    cubin.write_bytes(made.raw)
    _, *parts = re.split(r"Compiling entry function '(\w+)'", log.value.decode())
    said = dict(zip(parts[::2], parts[1::2], strict=True))
    return {kernel: _told(said[kernel.entry]) for kernel in kernels}


def _told(said: str) -> Code:
    """The numbers of a kernel in what the assembler says of it."""
    patterns = r"Used (\d+) registers", r"(\d+) bytes stack frame", r"(\d+) bytes spill stores"
    return Code(*(int(re.findall(pattern, said)[0]) for pattern in patterns), (), (), {})


@cache
def nvrtc() -> ctypes.CDLL | None:
    """NVRTC of a wheel, CUDA 12's if there is one: it knows the V100."""
    spec = find_spec("nvidia")
    found = sorted(path for root in (spec.submodule_search_locations or []) if spec
                   for path in Path(root).glob("*/lib/libnvrtc.so.1?")) if spec else []
    return ctypes.CDLL(str(found[0])) if found else None


def _read(lines: list[str]) -> tuple[list[Instruction], dict[str, int]]:
    """Instructions and labels of a disassembly."""
    words: list[list[Any]] = []
    labels: dict[str, int] = {}
    for line in lines:
        if match := LABEL.match(line):
            labels[match[1]] = len(words)
        elif match := WORD.match(line):
            words.append([match[2], 0])
        elif words and (match := SECOND.match(line)):
            words[-1][1] = int(match[1], 16) >> 41
    return [Instruction(text, control & 15, control >> 5 & 7, control >> 8 & 7, control >> 11 & 63)
            for text, control in words], labels


def _is_behind_barrier(found: list[Instruction], n: int) -> bool:
    """Whether a branch leads back from where threads wait that do not come together: it is none of a loop."""
    return any(one.word == "ENDCOLLECTIVE" for one in found[max(n - 3, 0):n])


def _loops(targets: dict[int, int]) -> tuple[Loop, ...]:
    """Branches backwards; the branch to itself behind the end is none."""
    ends: dict[int, int] = {}
    for n, target in targets.items():
        if target < n:
            ends[target] = max(ends.get(target, 0), n)
    found: list[Loop] = []
    for first, last in sorted(ends.items(), key=lambda ends: (ends[0], -ends[1])):
        around = [loop for loop in found if loop.first <= first and last <= loop.last]
        outer = around[-1].name + "." if around else ""
        number = sum(loop.name.startswith(outer) and loop.name.count(".") == outer.count(".") for loop in found)
        found.append(Loop(f"{outer}{number}", first, last))
    return tuple(found)


def walk(code: Code, times: dict[str, float], latency: float) -> tuple[float, float, float, float]:
    """Cycles of one warp that is alone on its scheduler, its instructions, those on float64 and on memory.

    times: how often each loop is run each time it is come to; loops that are not named are not entered. Half of the
    instructions outside of loops are taken to be run. latency: cycles that a load waits for memory.
    """
    inside = [loop for loop in code.loops if "." not in loop.name]
    straight = [n for n in range(len(code.instructions)) if not any(o.first <= n <= o.last for o in inside)]
    stalls = sum(max(code.instructions[n].stall, 1) for n in straight)
    sums = [0.5 * part for part in (stalls, *_counts(code, straight))]
    for loop in inside:
        if loop.name in times:
            trace = _trace(code, loop, times)
            turn = _cycles(code, trace, latency), *_counts(code, trace)
            sums = [total + times[loop.name] * value for total, value in zip(sums, turn, strict=True)]
    return sums[0], sums[1], sums[2], sums[3]


def _counts(code: Code, trace: list[int]) -> tuple[int, int, int]:
    """Instructions, those on float64, those on memory."""
    return len(trace), sum(_is_double(code.instructions[n]) for n in trace), sum(
        code.instructions[n].word in MEMORY for n in trace)


def _trace(code: Code, loop: Loop, times: dict[str, float]) -> list[int]:
    """Instructions of one turn: branches over a call (the slow way of a division) are taken."""
    inner = {one.first: one for one in code.loops
             if one.name.startswith(loop.name + ".") and one.name.count(".") == loop.name.count(".") + 1}
    trace, n = [], loop.first
    while n <= loop.last:
        if n in inner:
            trace += _trace(code, inner[n], times) * round(times.get(inner[n].name, 0))
            n = inner[n].last + 1
            continue
        trace.append(n)
        target = code.targets.get(n, 0)
        over_call = n < target <= loop.last and target - n < 25 and any(
            code.instructions[k].word == "CALL" for k in range(n, target))
        n = target if over_call else n + 1
    return trace


def _is_double(one: Instruction) -> bool:
    return one.word in ("DFMA", "DADD", "DMUL", "DSETP")


def _cycles(code: Code, trace: list[int], latency: float, turns: int = 6) -> float:
    """Cycles of one turn, once the first two are over."""
    now = memory = unit = 0.0
    barriers, marks = [0.0] * 8, []
    for _ in range(turns):
        for n in trace:
            one = code.instructions[n]
            for b in range(6):
                if one.waits >> b & 1:
                    now = max(now, barriers[b])
            wait: float = LATENCY.get(one.word, 20)
            if _is_double(one):
                now = max(now, unit)
                unit = now + 2
            elif one.word in MEMORY:
                now = max(now, memory)
                memory, wait = now + 1, latency
            if one.sets < 6:
                barriers[one.sets] = max(barriers[one.sets], now + wait)
            if one.reads < 6:
                barriers[one.reads] = max(barriers[one.reads], now + READ)
            now += max(one.stall, 1)
        marks.append(now)
    return (marks[-1] - marks[1]) / (turns - 2)
