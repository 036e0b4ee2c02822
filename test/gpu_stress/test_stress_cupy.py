"""The cupy module behind the same interface, on a stand-in for cupy (which see for its strictness)."""
import sys
import time

import numpy as np
import pytest
import standin_cupy

from gpu_extract.errors import InputError
from gpu_stress.backend import CupyModule, open_module, version_text
from gpu_stress.cli.stress import main
from gpu_stress.cycles import recorded
from gpu_stress.info import device_info, info_lines
from gpu_stress.spec import Spec

CASES = [("fft", (30, 40), d) for d in ("float16", "float32", "float64", "complex64", "complex128")] + [
    ("copy", (30, 40), d) for d in ("float16", "float64", "int32")] + [
    ("rand", (30, 40), d) for d in ("float16", "float32", "float64")] + [
    ("gemm", (30, 40), d) for d in ("float16", "float32", "float64", "complex128")] + [
    ("gemm", (3, 30, 40), "float64")] + [
    (test, shape, d) for test in ("cholesky", "eigh") for shape in ((40, 40), (4, 20, 20))
    for d in ("float32", "float64", "complex128")]


@pytest.mark.parametrize("copy", [True, False], ids=["copy", "no-copy"])
@pytest.mark.parametrize(("test", "shape", "dtype"), CASES)
def test_right_results_pass_and_a_wrong_one_is_seen(monkeypatch, test, shape, dtype, copy):
    standin_cupy.install(monkeypatch)
    monkeypatch.setattr("gpu_stress.cycles.WARM_SECONDS", 0.0)       # no clock is read here
    spec = {"test": test, "module": "cupy", "shape": shape, "dtype": dtype, "count": 7, "copy": copy}
    good = recorded(Spec(**spec))
    assert (good.status, good.errors, good.checked, good.message) == ("ok", 0, 10, "")
    assert good.device["device"] == "Stand-in" and good.device["compute_capability"] == "9.0"
    bad = recorded(Spec(**spec, fault=4))
    assert (bad.status, bad.errors, bad.wrong) == ("wrong", 1, [4])


def test_pinned_buffers_are_used_only_when_asked_for(monkeypatch):
    cupy = standin_cupy.install(monkeypatch)
    recorded(Spec("copy", module="cupy", shape=(10, 10), count=1, pinned=False))
    assert cupy.pinned == 0
    recorded(Spec("copy", module="cupy", shape=(10, 10), count=1, pinned=True))
    assert cupy.pinned == 3                      # two sources and the destination of results


@pytest.mark.parametrize("options", [{"limit": 1000}, {"pinned_limit": 1000}], ids=["device", "pinned"])
def test_out_of_memory_is_a_result(monkeypatch, options):
    standin_cupy.install(monkeypatch, **options)
    result = recorded(Spec("fft", module="cupy", shape=(100, 100), count=1))
    assert result.status == "out of memory"
    assert "does not fit" in result.message and "choose a smaller shape" in result.message


def test_other_errors_are_not_taken_for_it(monkeypatch):
    cupy = standin_cupy.install(monkeypatch)

    def broken(*_):
        raise standin_cupy.CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")

    cupy.fft.fftn = broken
    with pytest.raises(RuntimeError, match="IllegalAddress"):
        recorded(Spec("fft", module="cupy", shape=(10, 10), count=1))


def test_a_library_that_runs_out_in_its_own_words(monkeypatch):
    standin_cupy.install(monkeypatch)
    module = CupyModule()
    assert module.ran_out(RuntimeError("CUSOLVER_STATUS_ALLOC_FAILED"))
    assert module.ran_out(RuntimeError("CUFFT_ALLOC_FAILED"))
    assert not module.ran_out(RuntimeError("CUFFT_INVALID_SIZE"))


def test_no_device_and_no_such_device(monkeypatch):
    standin_cupy.install(monkeypatch, devices=0)
    with pytest.raises(InputError, match=r"needs a CUDA device, but none was found .*use -m numpy"):
        open_module("cupy")
    standin_cupy.install(monkeypatch, devices=2)
    with pytest.raises(InputError, match="device is 2, must be 0 to 1: there are 2 CUDA devices"):
        open_module("cupy", 2)


def test_a_missing_cupy_is_one_line_that_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert main(["fft", "-m", "cupy"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and "install gpu_extract[cuda12] or [cuda13], or use -m numpy" in lines[0]


def test_no_device_on_the_command_line(monkeypatch, capsys):
    standin_cupy.install(monkeypatch, devices=0)
    assert main(["-m", "cupy", "copy", "--procs", "3"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    standin_cupy.install(monkeypatch, devices=2)
    assert main(["copy", "-m", "cupy", "--devices", "0,2"]) == 2
    assert capsys.readouterr().err == (
        "gpu_stress: error: --devices has 2, must be 0 to 1: there are 2 CUDA devices\n")


def test_events_give_the_seconds_between_marks(monkeypatch):
    standin_cupy.install(monkeypatch)
    timeline = CupyModule().timeline()
    for _ in range(2):                           # events are reused
        timeline.mark()
        time.sleep(0.03)
        timeline.mark()
        timeline.mark()
        slept, nothing = timeline.seconds()
        assert 0.03 <= slept < 2 and 0 <= nothing < slept
    assert timeline.seconds() == []


def test_the_stand_in_is_strict():
    cupy, _ = standin_cupy.make()
    on_device, host = cupy.asarray(np.arange(3.0)), np.arange(3.0)
    for wrong in (lambda: on_device + host, lambda: np.stack([on_device]), lambda: cupy.maximum(on_device, host)):
        with pytest.raises(TypeError):
            wrong()
    stream = cupy.cuda.Stream()
    target = np.zeros(3)
    on_device.get(out=target, stream=stream, blocking=False)
    assert target.tolist() == [0, 0, 0]          # nobody waited yet
    stream.synchronize()
    assert target.tolist() == [0, 1, 2]


def test_info_with_a_device(monkeypatch):
    standin_cupy.install(monkeypatch, devices=2)
    monkeypatch.setattr("gpu_stress.info.COPY_SHAPE", (1000,))
    monkeypatch.setattr("gpu_stress.info.COPY_SECONDS", 0.01)
    monkeypatch.setattr("gpu_stress.info.GEMM", {"numpy": (50, 50), "cupy": (50, 50)})
    info = device_info()
    assert [g["number"] for g in info["gpus"]] == [0, 1]
    gpu = info["gpus"][0]["measured"]
    assert gpu["errors"] == 0 and min(*gpu["pinned"].values(), *gpu["pageable"].values(), gpu["float64"]) > 0
    (line,) = [x for x in info_lines(info) if x.startswith("GPU 1")]
    assert "4 SM, compute capability 9.0; CUDA 12.4, driver for 13.0" in line and "pinned" in line


def test_version_text():
    assert [version_text(n) for n in (12040, 11080, 13000)] == ["12.4", "11.8", "13.0"]
