"""Every test of the stressor passes right results with a margin and detects wrong ones of every kind."""
import math
import re

import numpy as np
import pytest

from gpu_extract.errors import ConfigError, InputError
from gpu_stress import machine, work
from gpu_stress.arrays import Fft
from gpu_stress.backend import Module
from gpu_stress.cycles import make_work, recorded, run_test
from gpu_stress.spec import SUPPORTED, OutOfMemory, Spec, Unsupported, parse_shape
from gpu_stress.work import unit_roundoff

SHAPES = {"fft": [(1,), (97, 3), (64, 50), (1009,)], "copy": [(1,), (3, 5), (200, 30)], "rand": [(1,), (60, 70)],
          "gemm": [(1, 1), (50, 30), (3, 20, 10)], "cholesky": [(1, 1), (60, 60), (5, 20, 20)],
          "eigh": [(1, 1), (60, 60), (5, 20, 20)]}
CASES = [(test, shape, dtype) for test, shapes in SHAPES.items() for shape in shapes for dtype in SUPPORTED[test]]


@pytest.mark.parametrize(("test", "shape", "dtype"), CASES)
def test_right_passes_with_room_and_wrong_is_counted(monkeypatch, test, shape, dtype):
    monkeypatch.setattr("gpu_stress.cycles.WARM_SECONDS", 0.0)       # no clock is read here
    for copy in (True, False):
        good = run_test(Spec(test, shape=shape, dtype=dtype, count=10, copy=copy))
        assert (good.status, good.errors, good.checked, good.cycles) == ("ok", 0, 13, 10)
        assert good.worst <= good.bound * (0.7 if test == "rand" else 0.3)      # moments: 5 sigma of 7
        bad = run_test(Spec(test, shape=shape, dtype=dtype, count=10, copy=copy, fault=6))
        assert (bad.status, bad.errors, bad.wrong) == ("wrong", 1, [6])
        assert bad.message.startswith("1 of 13 results wrong, first in cycle 6, worst ")


class Stale(Module):
    """A device whose copies stop working after the first few."""

    def __init__(self, verb):
        self._verb, self._left = verb, 3

    def _maybe(self, verb, source, target):
        if verb == self._verb:
            self._left -= 1
        if verb != self._verb or self._left >= 0:
            np.copyto(target, source)

    def upload(self, source, target):
        self._maybe("up", source, target)

    def download(self, source, target):
        self._maybe("down", source, target)


@pytest.mark.parametrize("verb", ["up", "down"])
@pytest.mark.parametrize("test", ["fft", "copy", "gemm", "cholesky", "eigh"])
def test_a_copy_that_does_nothing_is_seen(monkeypatch, test, verb):
    monkeypatch.setattr("gpu_stress.cycles.open_module", lambda *_: Stale(verb))
    result = run_test(Spec(test, shape=(40, 40), dtype="float64", count=10))
    assert result.status == "wrong" and result.errors >= 4     # at least every other one: content alternates


class Odd(Module):
    """A device with a bad random generator."""

    def __init__(self, odd):
        self._odd = odd

    def generator(self, seed):
        class Rng:
            good = np.random.default_rng(seed)

            def random(rng, shape, dtype):
                return self._odd(rng.good, shape).astype(dtype)
        return Rng()


@pytest.mark.parametrize("odd", [
    lambda rng, shape: np.roll(np.linspace(0, 1, math.prod(shape)), rng.integers(999)).reshape(shape),
    lambda rng, shape: rng.random(shape) ** 1.05,
    lambda rng, shape: np.random.default_rng(5).random(shape),
    lambda rng, shape: rng.random(shape) * 1.00001 + 1e-5,
    lambda rng, shape: 0.5 + np.where(rng.random(shape) > 0.5, 12**-0.5, -(12**-0.5)),
], ids=["in order", "skewed", "the same again", "out of range", "two values"])
def test_bad_random_numbers_are_seen(monkeypatch, odd):
    monkeypatch.setattr("gpu_stress.cycles.open_module", lambda *_: Odd(odd))
    result = run_test(Spec("rand", shape=(400, 400), dtype="float64", count=10, copy=False))
    assert result.errors >= 10


def test_wrong_columns_of_eigh_are_seen(monkeypatch):
    class Swapped(Module):
        xp = None

    module = Swapped()

    class Linalg:
        @staticmethod
        def eigh(a):
            w, v = np.linalg.eigh(a)
            return w[..., ::-1], v[..., ::-1]      # right pairs, wrong order

    class Space:
        linalg = Linalg

        def __getattr__(self, name):
            return getattr(np, name)

    module.xp = Space()
    made = make_work(Spec("eigh", shape=(30, 30), dtype="float64", copy=False), module)
    assert made.measure() == np.inf


def test_nan_is_wrong(monkeypatch):
    def spoil(self):
        self._result[3, 4] = np.nan

    monkeypatch.setattr(Fft, "spoil", spoil)
    result = run_test(Spec("fft", shape=(30, 30), dtype="float64", count=5, copy=False, fault=2))
    assert (result.errors, result.wrong, result.worst) == (1, [2], None)


def test_figures_of_the_work():
    n = 64 * 50
    fft = make_work(Spec("fft", shape=(64, 50), dtype="float32"), Module())
    assert fft.nbytes == 4 * n and fft.flop == pytest.approx(2 * 5 * n * math.log2(n))
    assert [(leg.name, leg.nbytes) for leg in fft.legs] == [("up", 4 * n), ("compute", 0), ("down", 8 * n)]
    gemm = make_work(Spec("gemm", shape=(3, 50, 30), dtype="complex64"), Module())
    assert gemm.flop == 8 * 3 * 50 * 30 * 30
    cholesky = make_work(Spec("cholesky", shape=(4, 30, 30), dtype="float64"), Module())
    assert cholesky.flop == pytest.approx(4 * 30**3 / 3)
    assert make_work(Spec("rand"), Module()).flop is None
    assert unit_roundoff("float64") == 2.0**-53 and unit_roundoff("complex64") == 2.0**-24


def test_counts_and_seconds():
    counted = run_test(Spec("copy", shape=(10, 10), count=1234, check_every=10))
    assert counted.cycles == 1234 and counted.progress[-1][0] == 1234
    assert counted.checked == 124                      # 0, 10, ... 1230
    assert (counted.up, counted.down, counted.nbytes) == (1234 * 400, 1234 * 400, 400)
    timed = run_test(Spec("copy", shape=(10, 10), count=None, seconds=0.3))
    start, end = timed.interval
    assert 0.3 <= end - start < 0.3 + 2
    assert timed.seconds < end - start                 # without the checks
    assert timed.progress[0] == (0, start) and timed.progress[-1] == (timed.cycles, end)
    done = [n for n, _ in timed.progress]
    assert done == sorted(done)


def test_what_a_test_does_not_support_is_a_result_that_says_so():
    for spec, words in ((Spec("eigh", shape=(5, 5), dtype="float16"), "eigh does not support float16: use float32"),
                        (Spec("eigh", shape=(5, 6)), "shape is 5,6, must be square matrices for eigh"),
                        (Spec("gemm", shape=(5,)), "shape is 5, must be matrices for gemm"),
                        (Spec("rand", dtype="int32"), "rand does not support int32"),
                        (Spec("extract", dtype="float64", shape=(5,)), "must be fibres,wavelengths for extract"),
                        (Spec("extract", dtype="float64", shape=(600, 100)), "must be 1 to 500 fibres"),
                        (Spec("extract", "cupy", (5, 50), "float64"), "extract does not run with cupy")):
        result = recorded(spec)
        assert result.status == "unsupported" and words in result.message
        with pytest.raises(Unsupported):
            run_test(spec)


def test_what_does_not_fit_is_a_result_that_says_so(monkeypatch):
    result = recorded(Spec("fft", shape=(10**6, 10**6), dtype="float64"))
    assert result.status == "out of memory"
    assert re.fullmatch(r"fft of 1000000,1000000 float64 needs [\d.e+]+ GiB, [\d.e+]+ GiB are free: "
                        r"choose a smaller shape or fewer processes", result.message)
    monkeypatch.setattr(work, "memory_available", lambda: 10**6)
    run_test(Spec("copy", shape=(100, 100), count=1))
    with pytest.raises(OutOfMemory, match="in 10 processes"):
        run_test(Spec("copy", shape=(100, 100), count=1, sharing=10))


def test_an_allocation_that_fails_is_a_result(monkeypatch):
    class Small(Module):
        def host(self, shape, dtype, *, pinned):
            raise MemoryError("Unable to allocate 7 TiB")

    monkeypatch.setattr("gpu_stress.cycles.open_module", lambda *_: Small())
    assert recorded(Spec("copy", shape=(10,))).status == "out of memory"


def test_memory_of_a_control_group_counts(monkeypatch, tmp_path):
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    assert machine.memory_available() == 600
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.memory_available() > 10**6


@pytest.mark.parametrize(("changes", "words"), [
    ({"test": "sort"}, "test is 'sort', must be one of fft, copy"),
    ({"module": "torch"}, "module is 'torch', must be one of numpy, cupy"),
    ({"dtype": "float8"}, "dtype is 'float8', must be one of float16"),
    ({"shape": (0, 5)}, "shape is 0,5, must be whole numbers of 1 or more"),
    ({"shape": ()}, "shape is , must be"),
    ({"shape": (2**30, 2**30)}, "no machine holds that many"),
    ({"count": 0}, "count is 0, must be 1 or more"),
    ({"count": None}, "give either a number of cycles or seconds"),
    ({"count": None, "seconds": 0.0}, "seconds is 0, must be more than 0"),
    ({"count": None, "seconds": math.nan}, "seconds is nan, must be more than 0"),
    ({"warmup": -1, "check_every": 0}, "warmup is -1, must be 0 or more; check_every is 0, must be 1 or more"),
])
def test_bad_settings_are_refused_all_at_once(changes, words):
    with pytest.raises(ConfigError) as caught:
        Spec(**{"test": "fft", **changes})
    assert words in str(caught.value)


def test_shapes_are_read_from_words():
    assert parse_shape("100,74,74") == parse_shape("100x74x74") == (100, 74, 74)
    for text in ("", "3,", "a", "1e3", "2.5"):
        with pytest.raises(InputError, match="must be whole numbers"):
            parse_shape(text)
