"""LAPACK and BLAS by name: what scipy.linalg.lapack and scipy.linalg.blas have, without the rest of scipy.linalg.

`import scipy.linalg` takes longer than importing numpy: it loads numpy.f2py, numpy.testing and unittest for what is not
used here. The functions themselves are in two extension modules, which load in a few milliseconds. They are private to
scipy. So they are loaded here and nowhere else, under their own names, so that scipy.linalg, imported later, goes on
with the same modules; and where anything about them is not as expected, the public modules are used. These re-export
the same functions: no bit depends on the way.
"""
import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType

import scipy

_FOLDER = [os.path.join(path, "linalg") for path in scipy.__path__]
_NEEDED = {"_flapack": ("dpbtrf", "dpbtrs", "dpbsv", "dpotrf", "dsyevd", "dgejsv"), "_fblas": ("dsbmv", "dtrsm")}


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


lapack, blas = _modules()
__all__ = ["blas", "lapack"]
