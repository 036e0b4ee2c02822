"""Kernels compiled as one with all that they call: what Python, kernels and numba's own functions get."""
import ast
import gc
import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core import event

import gpu_extract
from gpu_extract.kernels.compile_parts import Part, Whole
from gpu_extract.kernels.compiled import njit

PACKAGE = Path(gpu_extract.__file__).parent


def make():
    """A kernel, and the part that it calls twice, with two types."""
    @njit(nogil=True)
    def part(a, b):
        return a / b

    @njit(nogil=True)
    def kernel(out, b):
        room = np.zeros(len(out))
        for n in range(len(out)):
            room[n] = part(out[n], b) + part(n, 2)
        for n in range(len(out)):
            out[n] = room[n]
    return kernel, part


def test_a_kernel_is_one_library_and_its_parts_are_not_compiled_on_their_own():
    kernel, part = make()
    out = np.array([1.0, 2.0, 3.0])
    kernel(out, 4.0)
    assert out.tolist() == [0.25, 1.0, 1.75]
    assert [type(made.library) for made in kernel.overloads.values()] == [Whole]
    assert not part.overloads
    made = [each.library for each in part._part.overloads.values()]
    assert [type(library) for library in made] == [Part, Part]
    assert all(library._compiled_object is None for library in made)


def test_python_can_call_a_part_before_and_after():
    kernel, part = make()
    assert part(3.0, 4.0) == 0.75
    kernel(np.ones(2), 1.0)
    assert part(3.0, 4.0) == 0.75
    assert part(3, 4) == 0.75


def test_a_division_by_zero_is_no_error():
    _, part = make()
    assert part(1.0, 0.0) == np.inf


def test_functions_that_numba_compiles_may_call_kernels():
    kernel, _ = make()

    @numba.njit
    def outside(out):
        kernel(out, 2.0)
        return np.zeros(3).sum() + out[0]

    assert outside(np.array([1.0])) == 0.5


def test_an_error_of_numba_within_a_part_reaches_python():
    @njit(nogil=True)
    def part(n):
        return np.empty(n)

    @njit(nogil=True)
    def kernel(n):
        return len(part(n))

    assert kernel(3) == 3
    with pytest.raises(ValueError, match="negative dimensions"):
        kernel(-1)


@pytest.mark.parametrize("on", [True, False])
def test_garbage_is_looked_for_as_before(on):
    was = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        kernel, _ = make()
        kernel(np.ones(2), 1.0)
        with pytest.raises(numba.TypingError):
            kernel("text", 1.0)
        assert gc.isenabled() == on
    finally:
        (gc.enable if was else gc.disable)()


PROGRAM = """
import sys, numpy as np
sys.path.insert(0, sys.argv[1])
from numba.core import event
compiled = []
class Listener(event.Listener):
    def on_start(self, event): compiled.append(event)
    def on_end(self, event): pass
event.register("numba:compile", Listener())
from kept import kernel
out = np.array([1.0, 2.0, 3.0])
kernel(out, 4.0)
print(len(compiled), out.tolist())
"""
KEPT = """
import numpy as np
from gpu_extract.kernels.compiled import njit
@njit(nogil=True)
def part(n):
    return np.empty(n)
@njit(nogil=True, cache=True)
def kernel(out, b):
    room = part(len(out))
    room[:] = out
    for n in range(len(out)):
        out[n] = room[n] / b
"""


def test_a_kernel_is_kept_with_its_parts(tmp_path):
    (tmp_path / "kept.py").write_text(KEPT)
    surroundings = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    said = [subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], env=surroundings, check=True,
                           capture_output=True, text=True).stdout.split(" ", 1) for _ in range(2)]
    assert [int(count) > 0 for count, _ in said] == [True, False]
    assert said[0][1] == said[1][1] == "[0.25, 0.5, 0.75]\n"


def test_what_numba_has_in_python_becomes_a_part_too():
    """Each would be optimised, made machine code of and wrapped for its own."""
    made = []

    class Listener(event.Listener):
        def on_start(self, event):
            made.append(event.data["dispatcher"])

        def on_end(self, event):
            pass

    listener = Listener()
    event.register("numba:compile", listener)
    try:
        @njit(nogil=True)
        def kernel(a):
            return np.zeros((a, 3, 5, 7), dtype=np.int16).ndim     # a shape and a type that no other kernel asks for
        assert kernel(2) == 4
    finally:
        event.unregister("numba:compile", listener)
    overloads = [each for each in made if each is not kernel]
    assert overloads
    assert all(type(done.library) is Part for each in overloads for done in each.overloads.values())


def test_all_kernels_have_this_decorator():
    """A kernel, or a part, of numba's own decorator is compiled twice and more."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        if "device" in path.parts:              # numba-cuda's
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "numba" and any(
                    alias.name in ("njit", "jit") for alias in node.names):
                found.append(path.name)
    assert not found
