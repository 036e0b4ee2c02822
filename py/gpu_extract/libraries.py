"""The oldest versions of libraries that work. setup.cfg requires the same, but a clone that is not installed uses
whatever it finds.

Before numpy 2.0 a float64 number times a float32 array is float32, and results are off by its rounding. scipy before
1.13 was not made for that numpy, and astropy before 7.1 cannot read a packed MASK. numba's version is the one with
which all tests passed: 0.60 sometimes refused a kernel's arguments.
"""
import re
from types import ModuleType

OLDEST = {"numpy": (2, 0), "scipy": (1, 13), "numba": (0, 68), "astropy": (7, 1)}


class TooOldError(ImportError):
    """A library is too old."""


def check_version(library: ModuleType) -> None:
    """Raise TooOldError if a library is too old; a version that cannot be parsed counts as new."""
    name, version = library.__name__, str(library.__version__)
    found, oldest = re.match(r"(\d+)\.(\d+)", version), OLDEST[name]
    if found and (int(found[1]), int(found[2])) < oldest:
        raise TooOldError(f"{name} is {version}, must be {oldest[0]}.{oldest[1]} or newer: install the package "
                          "(README.md) with its dependencies, or use a Python that has it", name=name)
