"""The oldest versions of libraries that work. setup.cfg asks for the same; a clone that is not installed takes what is
there.

Before numpy 2.0 a float64 number times a float32 array is float32, and results are off by its rounding. scipy before
1.13 was not made for that numpy, and astropy before 7.1 reads no packed MASK. numba's is the one that all tests have
passed with: 0.60 sometimes refused a kernel's arguments.
"""
import re
from types import ModuleType

OLDEST = {"numpy": (2, 0), "scipy": (1, 13), "numba": (0, 68), "astropy": (7, 1)}


class TooOldError(ImportError):
    """A library is older than what works."""


def check_version(library: ModuleType) -> None:
    """Raise TooOldError where a library is older than it may be; a version that cannot be read is taken as new."""
    name, version = library.__name__, str(library.__version__)
    found, oldest = re.match(r"(\d+)\.(\d+)", version), OLDEST[name]
    if found and (int(found[1]), int(found[2])) < oldest:
        raise TooOldError(f"{name} is {version}, must be {oldest[0]}.{oldest[1]} or newer: install the package "
                          "(README.md) with its dependencies, or use a Python that has it", name=name)
