"""Kernels compiled as one with everything that they call, as seen by Python, kernels and numba's own functions."""
import ast
import gc
import os
import re
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core import codegen, errors, event, postproc, types
from numba.core.runtime import _nrt_python, rtsys
from numba.extending import overload

import gpu_extract
from gpu_extract.kernels import compile_memory, compile_text
from gpu_extract.kernels.compile_parts import Part, Whole
from gpu_extract.kernels.compiled import TESTED, njit

PACKAGE = Path(gpu_extract.__file__).parent
CHEAPLY = pytest.mark.skipif(not numba.__version__.startswith(TESTED),
                             reason=f"numba {numba.__version__} compiles kernels by itself")


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


@CHEAPLY
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


@CHEAPLY
def test_what_numba_has_in_python_becomes_a_part_too():
    """Otherwise each would be optimised, compiled and wrapped separately."""
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
            return np.zeros((a, 3, 5, 7), dtype=np.int16).ndim     # a shape and a type that no other kernel uses
        assert kernel(2) == 4
    finally:
        event.unregister("numba:compile", listener)
    overloads = [each for each in made if each is not kernel]
    assert overloads
    assert all(type(done.library) is Part for each in overloads for done in each.overloads.values())


def text_of(kernel, *args):
    """The text of a function as a part."""
    kernel._part.compile(tuple(numba.typeof(each) for each in args))
    library, = (made.library for made in kernel._part.overloads.values())
    return str(library.modules[0])


@pytest.mark.parametrize("image", [np.arange(12.0).reshape(3, 4), np.arange(24.0).reshape(3, 8)[:, ::2],
                                   np.arange(12, dtype=np.int16).reshape(3, 4), np.arange(12.0).reshape(4, 3).T])
def test_elements_are_those_of_python(image):
    """Contiguous or not, from the end, with all kinds of integers, and set to a number of another type."""
    def work(image, rows, out):
        for n in range(len(rows)):
            out[n] = image[rows[n], -1] + image[rows[n], n] * 2
            image[-rows[n], n] = n - 1
            image[0, np.uint8(n)] += 1
    given = image.copy(order="K"), image.copy(order="K")
    rows, out = np.array([-1, 0, 2, -2], dtype=np.int32), np.zeros((2, 4))
    njit()(work)(given[0], rows, out[0])
    work(given[1], rows, out[1])
    assert out[0].tolist() == out[1].tolist()
    assert given[0].tolist() == given[1].tolist()


def test_ranges_are_those_of_python():
    def work(start, stop, out):
        n = 0
        for a in range(stop):
            for b in range(start, stop):
                for c in range(start, stop, 3):
                    for d in range(stop, start, -2):
                        for e in range(b, stop, 1 + a):
                            out[n] = a + 10 * b + 100 * c + 1000 * d + 10000 * e
                            n += 1
        return n
    kernel = njit()(work)
    for start, stop in ((0, 4), (-3, 1), (1, 4), (2, 2), (3, 1), (-5, -5), (0, 3)):
        out = np.zeros((2, 2000), dtype=np.int64)
        assert kernel(start, stop, out[0]) == work(start, stop, out[1])
        assert out[0].tolist() == out[1].tolist()


def test_references_are_counted():
    """Each array is released as often as it was taken, on every path; a new one does not stay."""
    @njit()
    def part(pair, n):
        first, second = pair
        return first[n:] if n % 2 else second

    @njit()
    def kernel(a, b, turns):
        kept, total = a, 0.0
        for n in range(turns):
            kept = part((kept, b), n) if n < 3 else np.full(4, float(n))
            total += kept[0]
        return total
    a, b = np.arange(6.0), np.arange(6.0, 12.0)
    kernel(a, b, 8)
    _nrt_python.memsys_enable_stats()
    try:
        before, counts = rtsys.get_allocation_stats(), (sys.getrefcount(a), sys.getrefcount(b))
        assert kernel(a, b, 8) == 6 + 7 + 6 + 3 + 4 + 5 + 6 + 7
        after = rtsys.get_allocation_stats()
    finally:
        _nrt_python.memsys_disable_stats()
    assert (sys.getrefcount(a), sys.getrefcount(b)) == counts
    assert after.alloc - before.alloc == after.free - before.free == 5 + 2     # new ones, and those of Python's


@CHEAPLY
def test_loops_and_elements_are_few_instructions():
    """The array is counted once; a loop divides nothing; an element needs no array around it, and no memory for one."""
    @njit()
    def part(a, out, length):
        for n in range(length):
            out[n] += a[n, 0]
    text = text_of(part, np.ones((2, 2)), np.ones(2), 2)
    assert not re.search(" = (sdiv|srem|udiv) ", text)
    assert len(re.findall("call void @\"?NRT_incref", text)) == 2
    assert "getelementptr inbounds {" not in text


@CHEAPLY
def test_types_are_found_once(monkeypatch):
    @njit()
    def first(a, b):
        return a - b * a

    @njit()
    def second(a, b):
        return b * a - a
    first(1.5, 2)
    asked = []
    ask = types.Function.get_call_type
    monkeypatch.setattr(types.Function, "get_call_type",
                        lambda self, *args: asked.append(self) or ask(self, *args))
    assert second(1.5, 2) == 1.5
    assert not asked


def test_what_is_registered_later_is_found(monkeypatch):
    loads = []
    load = compile_memory.CPUContext.load_additional_registries
    njit()(lambda a: a + 1)(1)
    monkeypatch.setattr(compile_memory.CPUContext, "load_additional_registries",
                        lambda self: loads.append(self) or load(self))
    njit()(lambda a: a + 2)(1)
    mine = [each for each in loads if isinstance(each, compile_memory._Context)]
    assert not mine

    def new(a):
        raise NotImplementedError

    @overload(new)
    def _new(a):
        return lambda a: a + 3
    assert njit()(lambda a: new(a))(1) == 4


@CHEAPLY
def test_variables_lives_are_found_once(monkeypatch):
    runs = []
    run = postproc.PostProcessor.run
    monkeypatch.setattr(postproc.PostProcessor, "run",
                        lambda self, *args, **keywords: runs.append(self) or run(self, *args, **keywords))
    njit()(lambda a, b: a + b if a > b else a - b)(1, 2)
    assert len(runs) == 2       # after numba's rewriting, and before the text is written


def test_generators_are_left_to_numba():
    @njit()
    def part(n):
        for k in range(n):
            yield k * k

    @njit()
    def kernel(n):
        total = 0
        for each in part(n):
            total += each
        return total
    assert kernel(4) == 14


@CHEAPLY
def test_an_error_while_writing_tells_the_line(monkeypatch):
    def fails(self, value, name, argidx=None):
        raise errors.NumbaError("no room")
    monkeypatch.setattr(compile_text.Lower, "storevar", fails)
    with pytest.raises(errors.NumbaError, match=r"no room[\s\S]*lowering \".* at .*test_compiled.py"):
        njit()(lambda a: a + 1)(1)


def test_all_kernels_have_this_decorator():
    """A kernel, or a part, with numba's own decorator is compiled twice or more."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "numba" and any(
                    alias.name in ("njit", "jit") for alias in node.names):
                found.append(path.name)
    assert not found


ANOTHER = """
import sys
import numba
numba.__version__ = "0.99.0"
import numpy as np
from gpu_extract.kernels import compiled
from gpu_extract.normal import simd_bins
from gpu_extract.spots import simd_series
assert compiled.njit is compiled.plain_njit and type(simd_bins.own_bits).__module__.startswith("numba.")
mask = np.zeros((1, 2), np.uint32)
simd_bins.own_bits(mask, np.array([[0.0, 1.0]]), np.zeros((1, 2)))
print(mask.tolist())
"""


def test_a_version_of_numba_that_is_not_known_compiles_kernels_by_itself(tmp_path):
    done = subprocess.run([sys.executable, "-c", ANOTHER], capture_output=True, text=True, check=False,
                          env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)})
    assert done.stdout == "[[256, 0]]\n", done.stderr


@CHEAPLY
@pytest.mark.parametrize("loops", [True, False])
def test_llvm_looks_for_loops_unless_it_is_told_that_there_are_none(loops, monkeypatch):
    """The numbers are the same: it never changes the order of floating-point operations."""
    asked, passes = [], codegen.CPUCodegen._module_pass_manager
    monkeypatch.setattr(codegen.CPUCodegen, "_module_pass_manager",
                        lambda self, **given: asked.append(given) or passes(self, **given))

    @njit(loops=loops)
    def kernel(a, b):
        for n in range(len(a)):
            a[n] = 3.0 * b[n] + 1.0

    a, b = np.zeros(37), np.arange(37.0)
    kernel(a, b)
    assert (a == 3.0 * b + 1.0).all() and ({"loop_vectorize": False} in asked) is not loops
