"""A digest of everything that kernels are made from: sources and constants, the compiler, its settings, the
processor."""
import hashlib
import os
import sys
from collections.abc import Iterator

import numba
import numpy
from numba.core import config
from numba.core.codegen import ll as binding  # numba's source of the processor's name

FORMAT = 1             # raise it with every change in the names or the layout of entries
# folders and files that kernels are made from, in addition to each room's own kernels in files that begin with "simd_"
MADE_FROM = ("vectors", "kernels/arena.py", "kernels/compile", "arrays.py",
             "simulate/counter.py", "simulate/noise.py")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SETTINGS = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "CPU_NAME", "CPU_FEATURES", "ENABLE_AVX",
             "USING_SVML", "DEBUGINFO_DEFAULT", "DISABLE_INTEL_SVML")


def sources(package: str = _PACKAGE) -> Iterator[str]:
    """The files whose text determines kernels: MADE_FROM, and all that begin with "simd_"."""
    for folder, below, names in os.walk(package):
        below[:] = sorted(name for name in below if name != "__pycache__")
        for name in sorted(names):
            path = os.path.join(folder, name)
            inside = os.path.relpath(path, package).replace(os.sep, "/")
            if name.endswith(".py") and (name.startswith("simd_") or inside.startswith(MADE_FROM)):
                yield path


def digest(package: str = _PACKAGE) -> str:
    """64 hex digits. Raises OSError if a source cannot be read."""
    facts = (FORMAT, sys.version, numba.__version__, sys.modules["llvmlite"].__version__, numpy.__version__,
             binding.get_process_triple(), binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten(),
             [getattr(config, name, None) for name in _SETTINGS])
    made = hashlib.sha256(repr(facts).encode())
    for path in sources(package):
        with open(path, "rb") as file:
            text = file.read()
        made.update(f"\n{os.path.relpath(path, package)} {len(text)}\n".encode())
        made.update(text)
    return made.hexdigest()
