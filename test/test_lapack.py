"""LAPACK without scipy.linalg: the same functions, whichever way they were loaded."""
import subprocess
import sys

import pytest

LIGHT = """
from gpu_extract.lapack import blas, lapack
assert "scipy.linalg" not in sys.modules
import scipy.linalg
assert scipy.linalg.lapack.dpbtrf is lapack.dpbtrf and scipy.linalg.blas.dsbmv is blas.dsbmv
"""
WHOLE = """
from gpu_extract.lapack import blas, lapack
import scipy.linalg
assert lapack is scipy.linalg.lapack and blas is scipy.linalg.blas
"""
REFUSED = """
import importlib.util
def refuse(spec):
    raise ImportError
importlib.util.module_from_spec = refuse
"""


@pytest.mark.parametrize("code", [LIGHT, f"import scipy.linalg\n{WHOLE}", f"{REFUSED}{WHOLE}"],
                         ids=["before scipy.linalg", "after it", "not to be loaded alone"])
def test_the_functions_are_those_of_scipy(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"import sys\n{code}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
