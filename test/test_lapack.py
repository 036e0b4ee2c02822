"""LAPACK without scipy.linalg: the same functions, however they were loaded; in one thread."""
import multiprocessing
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from gpu_extract import lapack
from gpu_extract.lapack import _at_work, one_thread

VARIABLES = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"

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


def test_all_that_is_called_is_asked_for() -> None:
    """The extension modules alone are used if they have all called functions, for any version of scipy."""
    text = "".join(path.read_text(encoding="utf-8") for path in Path(lapack.__file__).parent.rglob("*.py"))
    called = set(re.findall(r"\b((?:lapack|blas)\.d\w+)\(", text))
    assert called == {f"{library}.{name}" for library in ("lapack", "blas") for name in lapack._NEEDED[f"_f{library}"]}


DENSE = """
from hashlib import sha256
from gpu_extract import ExtractConfig, extract
from gpu_extract.simulate import SimConfig, simulate

grid = 6020.0, 6100.0, 0.85
made = simulate(SimConfig(camera="tiny", seed=3, truth_grid=grid))
frame = extract(made.image, made.psf, ExtractConfig(grid, core="dense"))
print(sha256(frame.flux.tobytes() + frame.ivar.tobytes() + frame.resolution.tobytes()).hexdigest())
"""


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="libraries start no more threads than there are cores")
def test_threads_of_the_libraries_change_no_bit() -> None:
    found = {subprocess.run([sys.executable, "-c", DENSE], env={**os.environ, **dict.fromkeys(VARIABLES, threads)},
                            capture_output=True, text=True, check=True).stdout for threads in ("1", "2")}
    assert len(found) == 1


def threads() -> list[int]:
    """The threads of each BLAS library."""
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_the_last_to_leave_puts_back_how_many_threads_there_were() -> None:
    with threadpool_limits(2, "blas"):
        before = threads()
        with one_thread():
            both = one_thread()
            both.__enter__()
            inside = threads()
        still = threads()
        both.__exit__(None, None, None)
        assert before == threads()
        assert inside == still == [1] * len(before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_process_forked_while_others_enter_can_enter() -> None:
    with _at_work.lock:
        child = multiprocessing.get_context("fork").Process(target=enter)
        child.start()
    child.join(20)
    stuck = child.is_alive()
    if stuck:
        child.kill()
    assert not stuck and child.exitcode == 0


def enter() -> None:
    """Enter and leave `one_thread`."""
    with one_thread():
        pass
