"""gpu_stress on the command line: result lines, JSON, several processes, a wrong one among them, bad input."""
import cProfile
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_extract.cli.options import build_parser as extract_parser
from gpu_extract.perf.recorder import usable_cores
from gpu_stress.cli.stress import main

ROOT = Path(__file__).resolve().parents[2]
MOST = 16 * usable_cores()         # processes at once
LINE = re.compile(r"(\d+\.\d{3}) s, (\d+\.\d) Hz, (\d+\.\d) MByte/sec copy:(True|False)"
                  r" median [\d.e+]+ (?:us|ms|s) \+-[\d.]+%, ([\d.]+) MByte both ways at [\d.]+ MByte/sec, "
                  r"(?:[\d.]+|no) GFlop/s, errors (\d+)/(\d+)")


def gpu_stress(*args, **more):
    return subprocess.run([sys.executable, str(ROOT / "bin" / "gpu_stress"), *args], text=True,
                          capture_output=True, timeout=120, **more)


@pytest.mark.parametrize(("args", "copy", "both_ways"), [
    (["fft", "-s", "100,100", "-c", "20"], "True", 20 * (4e4 + 8e4)),
    (["-m", "numpy", "fft", "-s", "100,100", "-c", "20", "--no-copy"], "False", 0),
    (["copy", "-s", "100x100", "-d", "float64", "-c", "20"], "True", 20 * 2 * 8e4),
    (["rand", "-s", "100,100", "-c", "20"], "False", 0),
    (["gemm", "-s", "100,100", "-c", "20", "--copy", "-m", "numpy"], "True", 20 * 2 * 4e4),
    (["eigh", "-s", "3,20,20", "-c", "20", "-d", "float64"], "False", 0),
    (["cholesky", "-c", "20", "--threads", "1"], "False", 0),
])
def test_the_result_line(capsys, monkeypatch, args, copy, both_ways):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        monkeypatch.setenv(name, "1")            # undoes what --threads sets as well
    assert main(args) == 0
    found = LINE.fullmatch(capsys.readouterr().out.strip())
    assert found, "the line has another form"
    assert found[4] == copy and (found[6], found[7]) == ("0", "23")
    assert float(found[5]) == pytest.approx(both_ways / 1e6, abs=0.06)


def test_the_figures_of_a_line_agree(capsys):
    assert main(["fft", "-s", "100,100", "-c", "30", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (result,) = told["processes"]
    assert result["cycles"] == 30 and result["nbytes"] == 4e4
    assert result["up"] == 30 * 4e4 and result["down"] == 30 * 8e4
    assert result["cycle"]["min"] <= result["cycle"]["p16"] <= result["cycle"]["median"] <= result["cycle"]["max"]
    assert result["seconds"] >= 30 * result["cycle"]["min"]
    assert sum(result["legs"].values()) <= 1.5 * result["cycle"]["median"]
    assert told["together"]["processes"] == 1 and told["together"]["cycles"] == 30


def test_a_wrong_result_in_one_process_of_four_is_counted_and_named():
    done = gpu_stress("fft", "-s", "60,60", "--seconds", "0.5", "--procs", "4", "--plant-fault", "2:5",
                      "--threads", "1")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert len(lines) == 5
    wrong = [int(LINE.search(line)[6]) for line in lines[:4]]
    assert wrong == [0, 0, 1, 0] and lines[2].startswith("process 2: ")
    assert re.search(r"4 processes together .* errors 1/\d+$", lines[4])
    assert re.fullmatch(r"gpu_stress: wrong: process 2 \(pid \d+, device 0, .+\): 1 of \d+ results wrong, "
                        r"first in cycle 5, worst 1 where [\d.e-]+ is allowed\n", done.stderr)


def test_four_right_processes():
    done = gpu_stress("copy", "-s", "100,100", "--seconds", "0.4", "--procs", "4", "--json", "--threads", "1")
    assert done.returncode == 0 and done.stderr == ""
    told = json.loads(done.stdout)
    starts, ends = zip(*(p["interval"] for p in told["processes"]), strict=True)
    assert told["together"]["seconds"] == pytest.approx(min(ends) - max(starts))
    assert told["together"]["errors"] == 0 and len({p["pid"] for p in told["processes"]}) == 4
    assert len({p["spec"]["seed"] for p in told["processes"]}) == 4        # each has its own content
    whole = sum(p["cycles"] / (p["interval"][1] - p["interval"][0]) for p in told["processes"])
    assert told["together"]["rate"] == pytest.approx(whole, rel=0.6)     # the rest is what they did not share


@pytest.mark.parametrize("procs", [1, 2])
def test_a_process_that_ends_without_a_result_is_named(procs):
    done = gpu_stress("copy", "-s", "10,10", "--seconds", "60", "--procs", str(procs), "--timeout", "0.6",
                      "--threads", "1")
    assert done.returncode == 4 and done.stdout == ""
    assert done.stderr.startswith("gpu_stress: error: process 0 ended without a result (timeout)")


@pytest.mark.parametrize(("args", "words"), [
    (["fft", "-d", "float8"], "dtype is 'float8', must be one of float16, float32"),
    (["fft", "-m", "torch"], "module is 'torch', must be one of numpy, cupy"),
    (["fft", "-s", "0,5"], "shape is 0,5, must be whole numbers of 1 or more"),
    (["fft", "-s", "wide"], "shape is 'wide', must be whole numbers separated by commas"),
    (["fft", "-s", "1000000,1000000"], "GiB are free: choose a smaller shape"),
    (["fft", "-s", "100000000,100000000"], "no machine holds that many elements"),
    (["fft", "--procs", "0"], "--procs is 0, must be 1 to"),
    (["fft", "--procs", "-2"], "--procs is -2, must be 1 to"),
    (["fft", "--procs", "100000"], f"--procs is 100000, must be 1 to {MOST} here (16 for each of"),
    (["fft", "--timeout", "0"], "--timeout is 0 s, must be above 0"),
    (["fft", "--timeout", "nan"], "--timeout is nan s, must be above 0"),
    (["fft", "--procs", "two"], "invalid int value: 'two'"),
    (["fft", "-c", "0"], "count is 0, must be 1 or more"),
    (["fft", "-c", "5", "--seconds", "1"], "-c and --seconds are both given"),
    (["fft", "--seconds", "-1"], "seconds is -1, must be more than 0"),
    (["fft", "-d", "int32"], "fft does not support int32: use float16"),
    (["eigh", "-s", "4,5"], "shape is 4,5, must be square matrices for eigh"),
    (["fft", "--threads", "0"], "--threads is 0, must be 1 or more"),
    (["fft", "--devices", "a"], "--devices: 'a' is not a list of device numbers; give e.g. 0,1, or all"),
    (["fft", "--wide"], "unrecognized arguments: --wide"),
    ([], "the following arguments are required: COMMAND"),
    (["sort"], "invalid choice: 'sort'"),
    (["proflog", "no-such-file"], "no-such-file: cannot be read: No such file or directory"),
    (["report", "no-such-folder"], "holds no campaign"),
    (["report", __file__], "holds no campaign"),         # and not: remove it
    (["info", "-m", "torch"], "module is 'torch', must be numpy or cupy"),
    (["campaign", "{folder}", "--procs", "1,0"], "--procs is 0, must be 1 to"),
    (["campaign", "{folder}", "--procs", f"1,{MOST + 1}"], f"--procs is {MOST + 1}, must be 1 to {MOST} here"),
    (["campaign", "{folder}", "--tests", "fft,sort"], "test is 'sort', must be one of fft, copy"),
    (["campaign", "{folder}", "--tests", "fft,gem"], "test is 'gem', must be one of fft, copy, rand, gemm, eigh, "
     "cholesky, extract; did you mean gemm?"),
    (["campaign", "{folder}", "-m", "numpy,torch"], "module is 'torch', must be one of numpy, cupy"),
    (["campaign", "{folder}", "-d", "float8"], "dtype is 'float8'"),
    (["campaign", "{folder}", "-s", "10x0"], "shape is 10,0"),
    (["campaign", "{folder}", "-s", "10x10,a"], "argument -s/--shapes: shape is 'a', must be whole numbers"),
    (["fft", "-s", "10y10"], "argument -s/--shape: shape is '10y10', must be whole numbers"),
    (["campaign", "{folder}", "--repeats", "0"], "--repeats is 0"),
])
def test_bad_input_is_one_line_and_code_2(capsys, tmp_path, args, words):
    folder = tmp_path / "out"
    assert main([a.format(folder=folder) for a in args]) == 2
    told = capsys.readouterr()
    assert told.out == "" and len(told.err.splitlines()) == 1
    assert told.err.startswith("gpu_stress: error: ") and words in told.err
    assert not (folder / "campaign.jsonl").exists()


def test_a_worker_whose_parent_is_gone_leaves():
    done = gpu_stress("copy", "-s", "10,10", "--worker", "0/1", stdin=subprocess.DEVNULL)
    assert done.returncode == 75 and done.stdout == "ready\n"


def test_help_loads_nothing_heavy():
    code = ("import sys; from gpu_stress.cli.stress import main; main(['fft', '--help']);"
            "print([m for m in ('numpy', 'scipy', 'matplotlib', 'psutil', 'mpi4py') if m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n") and "--plant-fault" not in done.stdout


@pytest.fixture
def brief(monkeypatch):
    """Bandwidths and rates of small sizes, in a hundredth of a second."""
    for name, value in (("COPY_SECONDS", 0.01), ("COPY_SHAPE", (2**18,)), ("GEMM", {"numpy": (100, 100)})):
        monkeypatch.setattr(f"gpu_stress.info.{name}", value)


def test_info_describes_the_machine(capsys, brief):
    assert main(["info", "-m", "numpy"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"copies GByte/sec pageable [\d.]+ up, [\d.]+ down; float64 [\d.]+ GFlop/s", text)
    assert "MPS: not running" in text
    assert main(["info", "--no-measure", "--json", "-m", "numpy"]) == 0
    info = json.loads(capsys.readouterr().out)
    assert info["gpus"] == [] and "measured" not in info["cpu"] and info["machine"]["cores"] >= 1


def test_the_same_report_by_gpu_extract(capsys, brief):
    """--device-info needs no other option, prints the report and ends; without a GPU it says what is missing."""
    with pytest.raises(SystemExit) as left:
        extract_parser().parse_args(["--device-info"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert re.search(r"copies GByte/sec .*; float64 [\d.]+ GFlop/s", text) and "MPS: " in text
    assert re.search(r"^GPU( \d+: .* SM, compute capability |: none usable: that needs (cupy|a CUDA))", text, re.M)


def test_one_rank_of_a_node_reports_its_devices(capsys, monkeypatch):
    for name, value in (("PMI_SIZE", "2"), ("PMI_RANK", "1"), ("MPI_LOCALRANKID", "1")):
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as left:
        extract_parser().parse_args(["--device-info"])
    assert left.value.code == 0 and capsys.readouterr().out == ""


def test_info_sees_a_running_mps(capsys, monkeypatch, tmp_path):
    with subprocess.Popen(["sleep", "60"]) as daemon:
        (tmp_path / "nvidia-cuda-mps-control.pid").write_text(f"{daemon.pid}\n")
        monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
        monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25")
        main(["info", "--no-measure", "-m", "numpy"])
        assert f"MPS: running, pid {daemon.pid}, {tmp_path}, 25 % of the threads" in capsys.readouterr().out
        daemon.kill()
    main(["info", "--no-measure", "-m", "numpy"])
    assert f"MPS: not running (no daemon in {tmp_path})" in capsys.readouterr().out


def test_proflog_prints_a_profile(capsys, tmp_path):
    profile = cProfile.Profile()
    profile.runcall(sorted, range(1000), key=lambda x: -x)
    profile.dump_stats(tmp_path / "p.bin")
    assert main(["proflog", str(tmp_path / "p.bin")]) == 0
    text = capsys.readouterr().out
    assert "Ordered by: cumulative time" in text and "1000 " in text and "<lambda>" in text
    assert main(["proflog", str(tmp_path / "p.bin"), "-n", "1"]) == 0
    assert "List reduced from" in capsys.readouterr().out
    (tmp_path / "other").write_text("not a profile")
    assert main(["proflog", str(tmp_path / "other")]) == 2
    assert "is not a profile" in capsys.readouterr().err
