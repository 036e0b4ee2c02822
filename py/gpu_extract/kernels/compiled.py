"""The decorator of all kernels.

It is numba's njit, made cheap to compile (compile_cheaply) for the versions of numba with which this was tested,
because it relies on internals of numba. With any other version it is numba's own, which gives the same numbers and
takes two to three times as long to compile.
"""
from collections.abc import Callable
from typing import Any

import numba

TESTED = ("0.68.",)      # versions of numba, by their beginnings


def plain_njit(*, cache: bool = False, loops: bool = True, **options: Any) -> Callable[[Any], Any]:
    """numba.njit with the defaults of `njit`. loops: has no effect here."""
    given = {"nogil": True, "error_model": "numpy", "cache": cache, **options}
    return numba.njit(**given)


if numba.__version__.startswith(TESTED):
    from gpu_extract.kernels.compile_cheaply import njit
else:
    njit = plain_njit
__all__ = ["njit", "plain_njit"]
