"""Which kernels have been compiled before: marks beside the files that numba keeps them in.

numba can tell only by loading them whether kernels are there, and ranks that compile the same ones at once waste
minutes. A mark is an empty file named by all that decides which kernels a problem needs; it goes when the cache goes.
"""
import hashlib
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import llvmlite
import numba
from llvmlite import binding

from gpu_extract.backend.cpu_normal import normal_tile


def mark_of(*problem: object) -> Path:
    """The mark of a problem, described by values with a repr that names them."""
    name = hashlib.sha256(repr((_surroundings(Path(__file__).parent), problem)).encode()).hexdigest()[:16]
    return Path(normal_tile.stats.cache_path) / f"compiled-{name}.mark"


@cache
def _surroundings(folder: Path) -> str:
    """A digest of the kernels in a folder as they are when first asked for, of their compiler and the processor."""
    sources = [(path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(folder.glob("*.py"))]
    facts = (sys.version, numba.__version__, llvmlite.__version__, binding.get_host_cpu_name(),
             binding.get_host_cpu_features().flatten(), sources)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def leave(mark: Path) -> None:
    """Make a mark; where the cache cannot be written to there is none, and kernels are asked for in turn again."""
    with suppress(OSError):
        if not mark.exists():      # every frame comes here, and a file system that many share is slow to write to
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
