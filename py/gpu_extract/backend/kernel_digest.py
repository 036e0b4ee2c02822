"""A digest of all that kernels are made from: sources and constants, the compiler, its settings, the processor."""
import hashlib
import os
import sys
from collections.abc import Iterator

import llvmlite
import numba
import numpy
from llvmlite import binding
from numba.core import config

FORMAT = 1             # raise it with every change of how entries are named or written
BESIDE = ("data.py", "errors.py", "simulate/counter.py", "simulate/noise.py")      # sources outside of this folder
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SETTINGS = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "CPU_NAME", "CPU_FEATURES", "ENABLE_AVX",
             "USING_SVML", "DEBUGINFO_DEFAULT", "DISABLE_INTEL_SVML")


def sources(package: str = _PACKAGE) -> Iterator[str]:
    """The files whose text decides what kernels are: all of this folder but those that keep kernels, and BESIDE."""
    folder = os.path.join(package, "backend")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".py") and not name.startswith("kernel_"):
            yield os.path.join(folder, name)
    yield from (os.path.join(package, name) for name in BESIDE)


def digest(package: str = _PACKAGE) -> str:
    """64 hex digits. Raises OSError where a source cannot be read."""
    facts = (FORMAT, sys.version, numba.__version__, llvmlite.__version__, numpy.__version__,
             binding.get_process_triple(), binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten(),
             [getattr(config, name, None) for name in _SETTINGS])
    made = hashlib.sha256(repr(facts).encode())
    for path in sources(package):
        with open(path, "rb") as file:
            text = file.read()
        made.update(f"\n{os.path.relpath(path, package)} {len(text)}\n".encode())
        made.update(text)
    return made.hexdigest()
