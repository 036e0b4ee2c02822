"""Real ranks with planted faults: what the verdict names, and the communication in the records."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_extract.config import ExtractConfig
from gpu_extract.perf.clock import now
from gpu_extract.perf.record import Run, read_run
from gpu_extract.run import extract
from gpu_extract.simulate import SimConfig, simulate
from gpu_perf.metrics import metrics_of, windows
from gpu_perf.verdict import judge
from mpi_launch import ROOT, launch

PROGRAM = Path(__file__).with_name("planted.py")
DOMINANT = {"none": (), "slow rank": ("load imbalance",), "gather": ("communication",),
            "copies": ("copies between host and device",), "slow rank, gather": ("load imbalance", "communication"),
            "gather, slow rank": ("communication", "load imbalance")}
TWO = tuple(case for case in DOMINANT if "," in case)
ONE = tuple(case for case in DOMINANT if case not in TWO)


def planted(folder: Path, *cases: str) -> dict[str, Run]:
    """Records of runs with these faults."""
    made = simulate(SimConfig(camera="tiny", seed=11))
    extract(made.image, made.psf, ExtractConfig((6012.0, 6098.0, 0.85)))      # kernels are compiled outside the limit
    ended = launch(2, PROGRAM, folder, *cases)
    assert ended.code == 0, ended.err
    return {name: read_run(folder / f"{name}.json") for name in cases}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    return planted(tmp_path_factory.mktemp("planted"), *ONE)


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    return planted(tmp_path_factory.mktemp("planted"), *TWO)


@pytest.mark.parametrize("case", ONE)
def test_the_verdict_names_what_was_planted(runs: dict[str, Run], case: str) -> None:
    check_verdict(runs[case], case)


@pytest.mark.slow
@pytest.mark.parametrize("case", TWO)
def test_the_verdict_names_both_in_their_order(of_two: dict[str, Run], case: str) -> None:
    check_verdict(of_two[case], case)


def check_verdict(run: Run, case: str) -> None:
    verdict = judge(run)
    assert tuple(c.name for c in verdict.dominant) == DOMINANT[case], verdict.lines()
    if not DOMINANT[case]:
        assert verdict.lines()[0].startswith("No dominant cause")


def test_evidence_and_threshold_stand_in_the_verdict(runs: dict[str, Run]) -> None:
    line = judge(runs["slow rank"]).lines()[0]
    assert "dominant from 10% on" in line and "in bundle, rank 1" in line
    assert "most of it in gather" in judge(runs["gather"]).lines()[0]


def test_metrics_of_real_ranks(runs: dict[str, Run]) -> None:
    even, slow, gather = (metrics_of(runs[case]) for case in ("none", "slow rank", "gather"))
    assert even.parallel_efficiency > 0.85
    assert slow.load_balance < even.load_balance - 0.1
    assert gather.communication_efficiency < even.communication_efficiency - 0.1
    for run in runs.values():
        m = metrics_of(run)
        assert m.parallel_efficiency == pytest.approx(m.load_balance + m.communication_efficiency - 1)


def test_calls_are_counted_on_both_ends(runs: dict[str, Run]) -> None:
    first, second = runs["none"].ranks
    assert first.calls["Recv"]["bytes"] == second.calls["Send"]["bytes"] > 10_000
    assert first.calls["Recv"]["calls"] == second.calls["Send"]["calls"]
    for rank in (first, second):
        assert rank.calls["Iallreduce"]["wait"] == rank.calls["Iallreduce"]["seconds"] > 0
    waiting = runs["slow rank"].ranks[0].calls["Iallreduce"]["wait"]
    assert 0.5 < waiting < 1.0                # rank 0 waits for the 0.6 s by which rank 1 is slower


def test_calls_are_inside_the_spans_of_communication(runs: dict[str, Run]) -> None:
    for case, run in runs.items():
        for window in windows(run):
            calls = sum(c["seconds"] for c in window.rank.calls.values())
            assert calls <= window.communication + 0.001
            if "gather" not in case:                    # there the sleep is shown beside the calls
                assert calls > 0.8 * window.communication - 0.02


@pytest.mark.slow
def test_what_comes_before_the_programs_first_line_is_start_up(tmp_path: Path) -> None:
    """An interpreter that takes 0.7 s more to start: by an external clock, all of the command is in the record."""
    (tmp_path / "sitecustomize.py").write_text("import time\ntime.sleep(0.7)\n")
    found = {}
    for name, path in (("plain", str(ROOT / "py")), ("slow", f"{tmp_path}:{ROOT / 'py'}")):
        record = tmp_path / f"{name}.json"
        begun = now()
        subprocess.run([sys.executable, str(ROOT / "bin" / "gpu_extract"), "--no-gpu", "-n", "2", "-w", "6030,6050,0.8",
                        "-o", str(tmp_path / f"{name}.fits"), "--perf", str(record), "--loglevel", "error"], check=True,
                       env={**os.environ, "PYTHONPATH": path})
        found[name] = (now() - begun, read_run(record).ranks[0])
    for wall, rank in found.values():
        whole = rank.start_up + rank.elapsed
        assert 0.75 * wall < whole <= wall                  # the interpreter's end belongs to nobody
        assert rank.before + sum(s.seconds for s in rank.top()) + rank.unaccounted == pytest.approx(whole)
    assert found["slow"][1].before - found["plain"][1].before > 0.4
