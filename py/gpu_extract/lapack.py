"""LAPACK and BLAS by name: the functions of scipy.linalg.lapack and scipy.linalg.blas, without the rest of
scipy.linalg.

`import scipy.linalg` takes longer than importing numpy: it loads numpy.f2py, numpy.testing and unittest, which are not
needed here. The functions themselves are in two extension modules, which load in a few milliseconds but are private to
scipy. Therefore they are loaded only here, under their own names, so that a later scipy.linalg uses the same modules.
If anything about them is not as expected, the public modules are used. These re-export the same functions, so that no
bit depends on the way.

Bits do depend on the number of threads among which a library divides a product or a factorisation, and small matrices
take many times as long if threads wait for each other. Therefore an extraction runs under `one_thread`.
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

from gpu_extract.libraries import check_room_of_lapack, check_version

check_version(scipy)
_FOLDER = [os.path.join(path, "linalg") for path in scipy.__path__]
_NEEDED = {"_flapack": ("dgejsv", "dgeqp3", "dgesdd", "dormqr", "dpbsv", "dpbtrf", "dpbtrs", "dpotrf", "dptsv",
                        "dsterf", "dtbtrs"), "_fblas": ("dsbmv", "dtrsm")}


def _extension(name: str) -> ModuleType | None:
    """An extension module of scipy.linalg without its package; None if it is missing or unexpected."""
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
        check_room_of_lapack()
        found = [_extension(name) for name in _NEEDED]
        if found[0] is not None and found[1] is not None:
            return found[0], found[1]
    from scipy.linalg import blas as all_blas
    from scipy.linalg import lapack as all_lapack

    return all_lapack, all_blas


@cache
def _libraries() -> Any:
    """The libraries of numpy and scipy, found only once, as it takes 4 ms."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class _AtWork:
    """The number of users of `one_thread` in this process, and the setting found by the first."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start without users."""
        self.lock, self.count = threading.Lock(), 0
        self.found: Any = None


_at_work = _AtWork()
if hasattr(os, "register_at_fork"):      # the holder of the lock does not exist in a forked process
    os.register_at_fork(after_in_child=_at_work.begin)


@contextmanager
def one_thread() -> Iterator[None]:
    """Context in which BLAS and LAPACK, including numpy's, use one thread each; it holds for the whole process."""
    with _at_work.lock:
        if _at_work.count == 0:
            _at_work.found = _libraries().limit(limits=1, user_api="blas")
        _at_work.count += 1
    try:
        yield
    finally:                             # the last one restores the setting found by the first
        with _at_work.lock:
            _at_work.count -= 1
            if _at_work.count == 0:
                _at_work.found.restore_original_limits()


lapack, blas = _modules()
__all__ = ["blas", "lapack", "one_thread"]
