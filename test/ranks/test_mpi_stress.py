"""gpu_stress under a real mpiexec: each rank is one process, and rank 0 reports for all."""
import json
import re

from mpi_launch import ROOT, launch

PROGRAM = ROOT / "bin" / "gpu_stress"
START = "gpu_stress: error: "


def errors(err: str) -> list[str]:
    """The program's error lines."""
    return [line.removeprefix(START) for line in err.splitlines() if line.startswith(START)]


def test_ranks_are_processes_that_start_together() -> None:
    ended = launch(3, PROGRAM, "fft", "-s", "60,60", "--seconds", "0.4", "--json")
    assert (ended.code, ended.err) == (0, "")
    told = json.loads(ended.out)
    assert [p["spec"]["seed"] for p in told["processes"]] == [1, 2, 3]
    assert [p["spec"]["sharing"] for p in told["processes"]] == [3, 3, 3]
    starts, ends = zip(*(p["interval"] for p in told["processes"]), strict=True)
    assert told["together"]["seconds"] == min(ends) - max(starts) > 0
    assert told["together"]["errors"] == 0 and told["together"]["processes"] == 3


def test_a_wrong_result_on_one_rank_is_counted_and_named() -> None:
    ended = launch(4, PROGRAM, "gemm", "-s", "40,40", "--seconds", "0.3", "--plant-fault", "2:1")
    assert ended.code == 1
    (line,) = [line for line in ended.err.splitlines() if line.startswith("gpu_stress: wrong: ")]
    assert re.match(r"gpu_stress: wrong: process 2 \(\S+, pid \d+, device 0, .*\): 1 of \d+ results wrong", line)
    assert re.search(r"4 processes together .* errors 1/\d+$", ended.out.strip())
    assert ended.out.count("process ") == 4


def test_what_is_wrong_with_all_ranks_is_said_once() -> None:
    for words, said in ((["eigh", "-d", "float16"], "eigh does not support float16"),
                        (["fft", "-s", "1000000,1000000"], "choose a smaller shape or fewer processes"),
                        (["fft", "--procs", "2"], "--procs cannot be combined with ranks of mpiexec or srun"),
                        (["fft", "--timeout", "5"], "--timeout applies only to processes that gpu_stress starts"),
                        (["info"], "info runs as a single process: start it without mpiexec")):
        ended = launch(2, PROGRAM, *words)
        assert ended.code == 2 and len(errors(ended.err)) == 1 and said in errors(ended.err)[0]
