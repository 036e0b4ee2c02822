"""Kernels in CUDA C++ on a host: the same text, compiled by an ordinary C++ compiler, for the simulated device.

The compiled libraries lie in the user's cache, named by their text, compiler and flags.
"""
import ctypes
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from gpu_extract.device.cuda.text import TextKernel, kernels_of, source
from gpu_extract.errors import InputError
from gpu_extract.user_cache import cache_folder

COMPILERS = "g++", "clang++", "c++"
FLAGS = "-std=c++17", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-x", "c++"       # -O2 runs no faster
FAST_FMA = {"x86_64": ("-mavx2", "-mfma")}       # without it, fma is a call of the C library
SANITIZED = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wall", "-Wextra", "-Werror")
MORE_FLAGS: tuple[str, ...] = ()                 # of what is compiled from now on: tests set SANITIZED


def compiler() -> str | None:
    """The path of a C++ compiler, None where there is none."""
    return next((found for name in COMPILERS if (found := shutil.which(name))), None)


def run_lanes(kernel: TextKernel, count: int, step: int, args: Sequence[Any]) -> None:
    """All lanes of a kernel, each `step` behind the one before modulo count; args: numpy arrays and numbers."""
    run_at(kernel, count, step, [_argument(kind, value) for kind, value in zip(kernel.travelling, args, strict=True)])


def run_at(kernel: TextKernel, count: int, step: int, values: Sequence[Any]) -> None:
    """The same; values: numbers, and where arrays lie."""
    set_step, entry = _loaded(kernel, MORE_FLAGS)
    set_step(step)
    entry(count, *values)


def _argument(kind: str, value: Any) -> Any:
    if kind[2:]:
        return value.ctypes.data if isinstance(value, np.ndarray) else None if value is None else int(value)
    return float(value) if kind[0] == "f" else int(value)


@cache
def _loaded(kernel: TextKernel, flags: tuple[str, ...]) -> tuple[Callable[[int], None], Callable[..., None]]:
    library = ctypes.CDLL(str(build(_together(kernel), flags)))
    entry = getattr(library, kernel.entry)
    library.set_lane_step.argtypes = ctypes.c_longlong,
    entry.argtypes = ctypes.c_longlong, *(
        ctypes.c_void_p if kind[2:] else ctypes.c_double if kind[0] == "f" else ctypes.c_longlong
        for kind in kernel.travelling)
    return library.set_lane_step, entry


def _together(kernel: TextKernel) -> tuple[TextKernel, ...]:
    """What is compiled with a kernel: those of its header with the same half-band. They are usually asked for too, and
    take little longer than it alone."""
    if len(kernel.numbers) != 1:
        return kernel.unit
    return tuple(one.sized(*kernel.numbers) for one in kernels_of(kernel.module) if one.kinds.count("n") == 1)


def build(kernels: tuple[TextKernel, ...], flags: tuple[str, ...] = ()) -> Path:
    """The library of some kernels, made unless it is there; flags: added to the usual ones.

    Raises InputError where there is no compiler.
    """
    found = compiler()
    if found is None:
        raise InputError("the kernels in CUDA C++ need a C++ compiler on a machine without a GPU, one of "
                         f"{', '.join(COMPILERS)} on the PATH: install one (Debian: apt-get install g++)")
    text, every = source(*kernels), (*FLAGS, *FAST_FMA.get(platform.machine(), ()), *flags)
    digest = sha256("\n".join((found, _version(found), *every, text)).encode()).hexdigest()[:24]
    folder = cache_folder() or Path(tempfile.gettempdir())
    target = folder / "device-text" / f"{kernels[0].entry}-{digest}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as made:
            done = subprocess.run([found, *every, "-", "-o", f"{made}/library.so"], input=text, capture_output=True,
                                  text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"{found} did not compile {kernels[0].entry}:\n{done.stderr}")
            Path(made, "library.so").replace(target)
    return target


@cache
def _version(found: str) -> str:
    return subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
