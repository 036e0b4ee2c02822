"""gpu_extract --device-check: the ladder on the simulated device, and on one that is broken at each step."""
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host_text import compiler
from simulated_device import SimulatedDevice

from gpu_extract.cli.device_check import STEPS, check_device
from gpu_extract.cli.extract import main
from gpu_extract.errors import ExitCode

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler: apt-get install g++")


def climb(device: SimulatedDevice) -> tuple[ExitCode, list[str]]:
    said: list[str] = []
    return check_device(lambda: device, said.append), said


@needs_compiler
def test_a_device_that_does_what_it_has_to() -> None:
    code, said = climb(SimulatedDevice())
    assert code == ExitCode.DONE
    assert [line[:2] for line in said[:-1]] == [f"{n} " for n in range(1, len(STEPS) + 1)]
    assert said[-1] == "simulated device passes all checks"


class Broken(SimulatedDevice):
    """A device with a fault; after: kernels whose results are wrong, "copies", or "compiler"."""

    def __init__(self, fault: str):
        super().__init__()
        self.fault = fault

    def download(self, source: Any, target: np.ndarray, stream: Any) -> None:
        super().download(source, target, stream)
        if self.fault == "copies":
            stream.queue.append(lambda: target.reshape(-1).view(np.uint8).__setitem__(5, 1))

    def launch(self, kernel: Any, count: int, args: tuple[Any, ...], stream: Any) -> None:
        if self.fault == "compiler" and kernel.name.startswith("sweeps."):
            raise RuntimeError("nvrtc: error: failed to open libnvrtc-builtins.so.12.9.\n  on the second line")
        super().launch(kernel, count, args, stream)
        if kernel.name == self.fault:
            out = args[0].data.reshape(-1)
            stream.queue.append(lambda: out.__imul__(1.0 + 1e-6))


@needs_compiler
@pytest.mark.parametrize(("fault", "number", "why"), [
    ("copies", 2, r"1 of 1048576 numbers changed on the way: use --no-gpu"),
    ("compiler", 3, r"RuntimeError: nvrtc: error: failed to open libnvrtc-builtins\.so\.12\.9\. on the second line: "
                    r"install gpu_extract\[cuda12\]"),
    ("sweeps.factor", 3, r"row 0 of a factor is wrong by 1\.0e-06: install"),
    ("poles.divide", 4, r"flux [\d.e+-]+ sigma, ivar .*: use --no-gpu, and report"),
])
def test_a_step_that_fails_is_named_in_one_line(fault: str, number: int, why: str) -> None:
    code, said = climb(Broken(fault))
    assert code == ExitCode.CHECK_FAILED and len(said) == number
    assert said[-1].startswith(f"{number} {STEPS[number - 1].name} FAILED: ") and "\n" not in said[-1]
    assert re.search(why, said[-1])


def test_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, and the exit code for wrong input."""
    try:
        import cupy  # noqa: F401
    except ImportError:
        pass
    else:
        pytest.skip("cupy is installed here")
    assert main(["--device-check"]) == ExitCode.INPUT
    told = capsys.readouterr()
    assert told.out == ""
    assert re.fullmatch(r"gpu_extract: error: --device-check: a GPU needs cupy \(.*\): install .*\n",
                        told.err)


def test_nvidias_own_tests_come_last(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                     tmp_path: Path) -> None:
    """If they are installed, and only after the ladder: a fault that they find decides the exit code."""
    monkeypatch.setattr("gpu_extract.cli.device_check.first_device", SimulatedDevice)
    monkeypatch.setattr("gpu_extract.cli.device_check.STEPS", STEPS[:2])        # saves the compiler's time
    dcgmi = tmp_path / "dcgmi"
    dcgmi.write_text('#!/bin/sh\necho \'{"DCGM Diagnostic": {"test_categories": [{"tests": [{"name": "pcie", '
                     '"results": [{"entity_id": 3, "status": "Fail"}]}]}]}}\'\nexit 226\n')
    dcgmi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--device-check"]) == ExitCode.CHECK_FAILED
    last = capsys.readouterr().out.splitlines()[-3:]
    assert last == ["simulated device passes all checks", "dcgmi: FAILED: pcie on GPU 3",
                    "nvbandwidth: not installed (github.com/NVIDIA/nvbandwidth)"]
