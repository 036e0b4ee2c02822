"""LAPACK and BLAS by name: what scipy.linalg.lapack and scipy.linalg.blas have, without the rest of scipy.linalg.

`import scipy.linalg` takes longer than importing numpy: it loads numpy.f2py, numpy.testing and unittest for what is not
used here. The functions themselves are in two extension modules, which load in a few milliseconds. They are private to
scipy. So they are loaded here and nowhere else, under their own names, so that scipy.linalg, imported later, goes on
with the same modules; and where anything about them is not as expected, the public modules are used. These re-export
the same functions: no bit depends on the way.

Bits do depend on how many threads a library divides a product or a factorisation among, and small matrices take many
times as long where threads wait for each other. So an extraction works under `one_thread`.
"""
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any

import scipy

from gpu_extract.libraries import check_version

check_version(scipy)
_FOLDER = [os.path.join(path, "linalg") for path in scipy.__path__]
_NEEDED = {"_flapack": ("dgejsv", "dgeqp3", "dgesdd", "dormqr", "dpbsv", "dpbtrf", "dpbtrs", "dpotrf", "dptsv",
                        "dsterf", "dtbtrs"), "_fblas": ("dsbmv", "dtrsm")}


def _extension(name: str) -> ModuleType | None:
    """An extension module of scipy.linalg without its package; None where it is not there, or another one."""
    full = f"scipy.linalg.{name}"
    if full in sys.modules:
        return sys.modules[full]
    spec = PathFinder.find_spec(full, _FOLDER)
    if spec is None or spec.loader is None:
        return None
    try:
        made = module_from_spec(spec)
        spec.loader.exec_module(made)
    except ImportError:
        return None
    if not all(hasattr(made, function) for function in _NEEDED[name]):
        return None
    sys.modules[full] = made
    return made


def _modules() -> tuple[ModuleType, ModuleType]:
    """LAPACK and BLAS: both from the extension modules, or both from the public ones."""
    if "scipy.linalg" not in sys.modules:
        found = [_extension(name) for name in _NEEDED]
        if found[0] is not None and found[1] is not None:
            return found[0], found[1]
    from scipy.linalg import blas as all_blas
    from scipy.linalg import lapack as all_lapack

    return all_lapack, all_blas


@cache
def _libraries() -> Any:
    """Those that numpy and scipy use: found once, for it takes 4 ms."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class _AtWork:
    """How many are at work in this process under `one_thread`, and what the first of them found."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Nobody is at work."""
        self.lock, self.count = threading.Lock(), 0
        self.found: Any = None


_at_work = _AtWork()
if hasattr(os, "register_at_fork"):      # whoever held the lock is not in a process that was split off
    os.register_at_fork(after_in_child=_at_work.begin)


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS and LAPACK, numpy's as well, work in one thread each in this process while this is open anywhere in it."""
    with _at_work.lock:
        if _at_work.count == 0:
            _at_work.found = _libraries().limit(limits=1, user_api="blas")
        _at_work.count += 1
    try:
        yield
    finally:                             # the last one puts back what the first one found
        with _at_work.lock:
            _at_work.count -= 1
            if _at_work.count == 0:
                _at_work.found.restore_original_limits()


lapack, blas = _modules()
__all__ = ["blas", "lapack", "one_thread"]
