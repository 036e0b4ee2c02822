"""NVIDIA's own tests through stand-ins on PATH that print the output of dcgmi and nvbandwidth."""
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gpu_extract.cli.device_info import ask_vendor
from gpu_extract.perf.clock import now
from gpu_stress import vendor
from gpu_stress.cli.stress import main
from gpu_stress.vendor import ask, vendor_tools


def outcome(name: str, *results: dict[str, Any], summary: str = "Pass") -> dict[str, Any]:
    return {"name": name, "results": list(results), "test_summary": {"status": summary}}


def on(gpu: int, status: str, warning: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu, "status": status}
    if warning:
        found["warnings"] = [{"warning": warning, "error_id": 83, "error_category": 7, "error_severity": 2}]
    return found


def diag(*tests: dict[str, Any]) -> str:
    """The output of `dcgmi diag -j` of DCGM 4: entities and metadata beside the diagnostic."""
    return json.dumps({
        "entity_groups": [{"entity_group": "GPU", "entity_group_id": 1,
                           "entities": [{"device_id": "20b0", "entity_id": n} for n in (0, 1)]}],
        "metadata": {"version": "4.2.3", "Driver Version Detected": "570.86.15"},
        "DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": list(tests[:1])},
                                                {"category": "Hardware", "tests": list(tests[1:])}]}}, indent=3)


def bandwidth(*cases: dict[str, Any], **more: Any) -> str:
    """The output of `nvbandwidth -j`, version 0.8."""
    return json.dumps({"nvbandwidth": {"CUDA Runtime Version": 12080, "Driver Version": "570.86.15",
                                       "GPU Device list": ["0: NVIDIA A100-SXM4-40GB: (n1)"], "git_version": "v0.8",
                                       "version": "v0.8", "testcases": list(cases), **more}}, indent=3)


def case(name: str, *row: str, status: str = "Passed") -> dict[str, Any]:
    if status != "Passed":
        return {"name": name, "status": status}
    return {"name": name, "status": status, "bandwidth_matrix": [list(row)], "sum": 1.0,
            "bandwidth_description": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)"}


FINE = diag(outcome("software", on(0, "Pass"), on(1, "Pass")), outcome("memory", on(0, "Pass"), on(1, "Pass")),
            outcome("nvlink", on(0, "Skip"), on(1, "Skip"), summary="Skip"))
COPIES = bandwidth(case("host_to_device_memcpy_ce", "26.03", "25.94"), case("device_to_host_memcpy_ce", "27.1", "26.4"),
                   case("device_local_copy", "700.1", "N/A"))
OLD = json.dumps({"DCGM GPU Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [
    {"name": "Persistence Mode", "results": [{"gpu_ids": "0,1,2", "status": "WARN", "warnings": "it is off"}]},
    {"name": "Denylist", "results": [{"gpu_ids": "0,1,2", "status": "PASS"}]}]}]}})


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def stand_in(folder: Path, name: str, printed: str, code: int = 0, more: str = "") -> None:
    """An executable that records its arguments and prints a text."""
    file = folder / name
    file.write_text(f"#!{sys.executable} -S\nimport sys, time, signal, pathlib\n"
                    f"pathlib.Path(__file__).with_suffix('.argv').write_text(' '.join(sys.argv[1:]))\n"
                    f"{more}\nprint({printed!r})\nsys.exit({code})\n", encoding="utf-8")
    file.chmod(0o755)


def test_absence_is_said_in_one_line_each(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vendor"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "dcgmi: not installed (NVIDIA's package datacenter-gpu-manager)",
        "nvbandwidth: not installed (github.com/NVIDIA/nvbandwidth)"]


def test_good_gpus_pass_the_vendors_tests(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their JSON modes are requested; the slowest GPU counts."""
    stand_in(path, "dcgmi", "Some words\n" + FINE)
    stand_in(path, "nvbandwidth", COPIES)
    assert main(["vendor", "--level", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "dcgmi: 2 tests passed, 1 skipped",
        "nvbandwidth: GB/s 25.9 to the device, 26.4 from it, 700.1 within it (the slowest GPU)"]
    assert (path / "dcgmi.argv").read_text() == "diag -r 2 -j"
    assert (path / "nvbandwidth.argv").read_text() == ("-j -t host_to_device_memcpy_ce device_to_host_memcpy_ce "
                                                       "device_local_copy")


@pytest.mark.parametrize(("tool", "printed", "code", "status", "line"), [
    ("dcgmi", diag(outcome("software", on(0, "Pass")), outcome("memory", on(0, "Pass"), on(1, "Fail", "GPU 1 has row "
                   "remapping failures."), summary="Fail")), 226, "wrong",
     "dcgmi: FAILED: memory on GPU 1 (GPU 1 has row remapping failures.)"),
    ("dcgmi", OLD, 0, "ok", "dcgmi: 1 tests passed, warns of Persistence Mode on GPU 0,1,2 (it is off)"),
    ("dcgmi", json.dumps({"DCGM Diagnostic": {"version": "4.2.3", "runtime_error": "Error: unable to establish a "
                          "connection to the specified host: localhost"}}), 255, "no answer",
     "dcgmi: no answer: Error: unable to establish a connection to the specified host: localhost"),
    ("dcgmi", diag(outcome("software", on(0, "Skip"), summary="Skip")), 0, "no answer",
     "dcgmi: no answer: none of 1 tests was run"),
    ("dcgmi", "Error: unable to establish a connection", 255, "no answer",
     "dcgmi: no answer (exit code 255): Error: unable to establish a connection"),
    ("dcgmi", FINE, 3, "no answer", "dcgmi: no answer: exit code 3, although 2 tests passed, 1 skipped"),
    ("dcgmi", "[]{}", 0, "no answer", "dcgmi: no answer (exit code 0): []{}"),
    ("nvbandwidth", bandwidth(case("host_to_device_memcpy_ce", status="Running"),
                              case("host_to_device_memcpy_ce", status="Error"), error="Invalid value when checking"), 0,
     "wrong", "nvbandwidth: FAILED: host_to_device_memcpy_ce (Invalid value when checking)"),
    ("nvbandwidth", bandwidth(case("host_to_device_memcpy_ce", "26.03"), case("device_local_copy", status="Waived")), 0,
     "ok", "nvbandwidth: GB/s 26.0 to the device"),
    ("nvbandwidth", bandwidth(error="CUDA_ERROR_NO_DEVICE: no device"), 1, "no answer",
     "nvbandwidth: no answer: CUDA_ERROR_NO_DEVICE: no device"),
    ("nvbandwidth", bandwidth(case("device_local_copy", status="Waived")), 0, "no answer",
     "nvbandwidth: no answer: no copy was measured")])
def test_results_of_vendors_tests_are_read_from_their_json(path: Path, tool: str, printed: str, code: int, status: str,
                                                           line: str) -> None:
    """Read from their JSON, whatever the exit code: dcgmi's is 226 if a test failed."""
    stand_in(path, tool, printed, code)
    found = ask(next(t for t in vendor_tools(1) if t.name == tool))
    assert (found.status, found.line) == (status, line)


def test_a_gpu_in_doubt_ends_in_exit_code_1(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of both commands that run them; a tool without an answer does not."""
    stand_in(path, "dcgmi", diag(outcome("software", on(0, "Fail"), summary="Fail")), 226)
    assert main(["vendor"]) == 1 and ask_vendor() == 1
    assert capsys.readouterr().out.count("dcgmi: FAILED: software on GPU 0\n") == 2
    stand_in(path, "dcgmi", "no daemon", 1)
    assert ask_vendor() == 0


def test_a_tool_that_hangs_is_asked_to_end(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SIGTERM, on which dcgmi stops the test in its daemon; then SIGKILL."""
    stand_in(path, "dcgmi", FINE, more="def end(*_):\n    pathlib.Path(__file__).with_suffix('.ended').touch()\n"
                                       "    sys.exit(143)\nsignal.signal(signal.SIGTERM, end)\ntime.sleep(60)")
    start = now()
    assert main(["vendor", "--timeout", "0.7"]) == 1
    assert now() - start < 20
    assert capsys.readouterr().out.startswith("dcgmi DID NOT END within 0.7 s: ")
    assert (path / "dcgmi.ended").exists()


def test_a_tool_that_does_not_end_when_asked_is_killed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor, "GRACE", 0.3)
    stand_in(path, "dcgmi", FINE, more="signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)")
    start = now()
    assert ask(vendor_tools(1, 0.7)[0]).status == "hung"
    assert now() - start < 20


@pytest.mark.parametrize(("argv", "said"), [(["--level", "7"], "--level is 7, must be 1"),
                                            (["--timeout", "0"], "--timeout is 0 s, must be above 0")])
def test_wrong_options_are_refused(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vendor", *argv]) == 2
    assert said in capsys.readouterr().err


def test_a_tool_that_cannot_be_started(path: Path) -> None:
    (path / "dcgmi").write_text("#!/no/such/interpreter\n")
    (path / "dcgmi").chmod(0o755)
    assert ask(vendor_tools(1)[0]).line.startswith("dcgmi: cannot be started: ")
