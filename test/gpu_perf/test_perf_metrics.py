"""POP metrics, stages and verdicts on records made by hand; files that are no records."""
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpu_extract.cli.report import summary, summary_line
from gpu_extract.errors import InputError
from gpu_extract.perf.record import Run, parse_run, read_run
from gpu_perf.metrics import metrics_of, pop_metrics, stages, windows
from gpu_perf.run_report import Asked, tables_of, verdict_of
from gpu_perf.run_tables import outside_stages, stage_table
from gpu_perf.verdict import judge

Rows = list[tuple[str, int, float, float]]      # name, depth, start, seconds


def rank(number: int, rows: Rows, elapsed: float, **more: Any) -> dict[str, Any]:
    """One rank's record, without start-up."""
    return {"schema": 2, "rank": number, "host": "n1", "epoch": 1000.0, "start_up": 0.0, "elapsed": elapsed,
            "cpu": elapsed, "cores": 1, "peak_memory": 1, "counters": {}, "calls": {}, "copies": {}, "device": None,
            "spans": [[name, depth, start, seconds, seconds, 0] for name, depth, start, seconds in rows], **more}


def run(*ranks: dict[str, Any], **facts: Any) -> Run:
    """A run of these ranks."""
    return parse_run({"schema": 2, "program": "test", "ranks": list(ranks), **facts})


def test_metrics_by_hand() -> None:
    """Three ranks, 10 s: useful 8, 6, 7. Mean 7, maximum 8."""
    m = pop_metrics([10, 10, 10], [8, 6, 7])
    assert m.ranks == 3 and m.run_time == 10
    assert m.parallel_efficiency == pytest.approx(0.7)
    assert m.load_balance == pytest.approx(0.9)              # 1 - (8 - 7) / 10
    assert m.communication_efficiency == pytest.approx(0.8)
    assert m.computation_scaling is None and m.global_efficiency is None and m.speedup is None


def test_metrics_against_a_reference_by_hand() -> None:
    """One rank needed 20 s, 18.9 of them useful: 18.9 / 21 = 0.9; global 0.9 x 0.7; twice as fast."""
    m = pop_metrics([10, 9, 10], [8, 6, 7], ([20], [18.9]))
    assert m.computation_scaling == pytest.approx(0.9)
    assert m.global_efficiency == pytest.approx(0.63)
    assert m.speedup == pytest.approx(2.0)


@pytest.mark.parametrize("useful", [[8, 6, 7], [10, 10, 10], [9.5, 0.5, 1], [3, 3, 3]])
def test_against_the_definitions_of_talp(useful: list[float]) -> None:
    """DLB's TALP: parallel efficiency is useful time over all time of the cores, communication efficiency the largest
    useful time over the elapsed time, load balance the mean useful time over the largest, so the first is the product
    of the others. pypop's load balance, which we use, is a difference, not a ratio; both lead to the same verdict."""
    elapsed = 10.0
    m = pop_metrics([elapsed] * len(useful), useful)
    parallel = sum(useful) / (elapsed * len(useful))
    communication = max(useful) / elapsed
    balance = sum(useful) / len(useful) / max(useful)
    assert m.parallel_efficiency == pytest.approx(parallel)
    assert m.communication_efficiency == pytest.approx(communication)
    assert m.parallel_efficiency / m.communication_efficiency == pytest.approx(balance)
    assert 1 - m.load_balance == pytest.approx((1 - balance) * communication)


def test_what_is_known_of_the_whole_run_is_not_said_of_a_stage() -> None:
    """Copies and calls are recorded as sums: a stage without a copy was once bound by 8 s of them."""
    sums = {"copies": {"h2d": {"seconds": 8.0, "bytes": 1e9, "calls": 3}},
            "calls": {"gather": {"calls": 1, "seconds": 0.1, "wait": 0.0, "bytes": 2e6}}, "counters": {"rounds": 3}}
    made = run(rank(0, [("read", 0, 0, 1), ("extract", 0, 1, 9)], 10, **sums), rank(1, [("read", 0, 0, 1)], 10))
    whole, stage = (judge(made, focus) for focus in (None, "read"))
    assert any(cause.name == "copies between host and device" for cause in whole.causes)
    assert not any(cause.name == "copies between host and device" for cause in stage.causes)
    assert "2.0 MB in all" in str(whole) and "2.0 MB in the whole run" in str(stage)
    titles = [{table.title for table in tables_of(made, Asked(focus=focus))} for focus in (None, "read")]
    assert titles[0] - titles[1] == {"MPI calls", "Copies between host and device", "Counters"}


def test_metrics_from_spans_by_hand() -> None:
    """Rank 0: 10 s, of which 1 + 0.5 s in communication, with an agreement within a verb counted once; rank 1: 4 s."""
    made = run(rank(0, [("extract", 0, 0, 9), ("bundle", 1, 0, 6), ("mpi agree", 2, 5, 1), ("gather", 1, 6, 3),
                        ("mpi gather", 2, 6, 0.5), ("mpi agree", 3, 6.1, 0.3), ("write", 0, 9, 1)], 10),
               rank(1, [("extract", 0, 0, 9), ("bundle", 1, 0, 5), ("gather", 1, 5, 4), ("mpi agree", 2, 5, 4)], 10))
    first, second = windows(made)
    assert (first.communication, second.communication) == pytest.approx((1.5, 4))
    assert (first.useful, second.useful) == pytest.approx((8.5, 6))
    assert (first.waiting, second.waiting) == pytest.approx((1.3, 4))
    whole = metrics_of(made)
    assert whole.parallel_efficiency == pytest.approx(0.725)
    assert whole.load_balance == pytest.approx(0.875)
    assert whole.communication_efficiency == pytest.approx(0.85)
    inner = metrics_of(made, focus="extract")               # 9 s; useful 7.5 and 5
    assert inner.run_time == 9
    assert inner.parallel_efficiency == pytest.approx(6.25 / 9)
    assert inner.communication_efficiency == pytest.approx(7.5 / 9)
    with pytest.raises(InputError, match="has no stage 'solve'; its stages are extract, write"):
        metrics_of(made, focus="solve")


def test_stages_by_hand() -> None:
    made = run(rank(0, [("extract", 0, 0, 9), ("bundle", 1, 0, 4), ("solve", 2, 0, 3), ("mpi complete", 3, 1, 1),
                        ("bundle", 1, 4, 2), ("solve", 2, 4, 1)], 10),
               rank(1, [("extract", 0, 0, 9), ("bundle", 1, 0, 2)], 10))
    found = {s.path: s for s in stages(windows(made))}
    assert list(found) == [("extract",), ("extract", "bundle"), ("extract", "bundle", "solve")]
    assert found["extract",].seconds == (8, 9)
    assert found["extract", "bundle"].seconds == (5, 2)
    assert found["extract", "bundle", "solve"].seconds == (3, 0)
    assert found["extract", "bundle"].calls == 3
    assert found["extract", "bundle"].excess == pytest.approx(1.5)


def test_reading_alone_is_not_called_imbalance() -> None:
    made = run(rank(0, [("read", 0, 0, 4), ("extract", 0, 4, 6), ("bundle", 1, 4, 6)], 10),
               rank(1, [("read", 0, 0, 4), ("mpi agree", 1, 0, 4), ("extract", 0, 4, 6), ("bundle", 1, 4, 6)], 10))
    (cause,) = judge(made).dominant
    assert cause.name == "reading and writing" and cause.cost == pytest.approx(0.4)


def test_frames_of_an_exposure_are_looked_into() -> None:
    """Two ranks, a frame each; rank 0 waits 3 s for its image, rank 1 is slow in its bundle."""
    made = run(rank(0, [("exposure", 0, 0, 10), ("frames", 1, 0, 10), ("wait for input", 2, 0, 3), ("frame", 2, 3, 4),
                        ("bundle", 3, 3, 4)], 10),
               rank(1, [("exposure", 0, 0, 10), ("frames", 1, 0, 10), ("frame", 2, 0, 10), ("bundle", 3, 0, 10)], 10))
    verdict = judge(made)
    files, imbalance = verdict.dominant
    assert files.name == "reading and writing" and files.cost == pytest.approx(0.3)
    assert imbalance.name == "load imbalance" and imbalance.cost == pytest.approx(0.15)     # 10 s, and 4 + 3 s
    assert "in bundle, rank 1" in imbalance.evidence


def test_what_a_rank_makes_up_for_is_no_imbalance() -> None:
    """Ranks do not wait between plan and bundle: 1 + 5 s equals 3 + 3 s. They do wait for assemble."""
    made = run(rank(0, [("extract", 0, 0, 9), ("plan", 1, 0, 1), ("bundle", 1, 1, 5), ("assemble", 1, 6, 3)], 9),
               rank(1, [("extract", 0, 0, 9), ("plan", 1, 0, 3), ("bundle", 1, 3, 3), ("mpi agree", 1, 6, 3)], 9))
    (cause,) = judge(made).dominant
    assert cause.name == "load imbalance" and cause.cost == pytest.approx(1.5 / 9)
    assert "in assemble, rank 0" in cause.evidence


def test_start_up_and_warm_up_are_one_cause() -> None:
    row: Rows = [("extract", 0, 0, 8), ("warm up", 1, 0, 2), ("bundle", 1, 2, 6)]
    (cause,) = judge(run({**rank(0, row, 8), "start_up": 2.0})).dominant
    assert cause.name == "start-up" and cause.cost == pytest.approx(0.4)


def test_compilation_is_no_part_of_the_stage_that_needs_it_and_costs_as_start_up() -> None:
    rows: Rows = [("read", 0, 0, 1), ("extract", 0, 1, 9), ("bundle", 1, 1, 9), ("decorrelate", 2, 2, 6),
                  ("compile", 3, 3, 4), ("deeper", 4, 3, 1), ("write", 1, 9.5, 0.5)]
    made = run(rank(0, rows, 10))
    found = {stage.path: stage.seconds[0] for stage in stages(windows(made))}
    assert found == {("read",): 1, ("extract",): 5, ("extract", "bundle"): 5, ("extract", "bundle", "decorrelate"): 2,
                     ("compile",): 4, ("extract", "write"): 0.5}
    (cause,) = (cause for cause in judge(made).dominant if cause.name == "start-up")
    assert cause.cost == pytest.approx(0.4)


def test_what_lies_before_and_between_stages_is_named() -> None:
    """3.2 s since the process began: 0.3 s passed before the recorder existed, imports of 0.5 s precede the first
    stage, and 0.4 s lie between two others. The old verdict knew of 0.3 s."""
    made = run(rank(0, [("read", 0, 0.5, 0.2), ("extract", 0, 0.7, 1.6), ("bundle", 1, 0.7, 1.6),
                        ("write", 0, 2.7, 0.2)], 2.9, start_up=0.3))
    causes = judge(made).dominant
    assert {c.name: round(c.cost, 9) for c in causes} == {
        "start-up": 0.25, "unaccounted time": 0.125, "reading and writing": 0.125}
    lines = judge(made).lines()
    assert "0.80 s passed from the start of the processes" in lines[0] and "other ranks" not in " ".join(lines)
    assert lines[-1].startswith("Computing, as a share of the whole time: bundle 50%")
    table = stage_table([*outside_stages(windows(made))[:1], *stages(windows(made)),
                         *outside_stages(windows(made))[1:]], 3.2)
    outer = {row[0]: float(row[2]) for row in table.rows if not row[0].startswith(" ")}
    assert outer == {"start-up": 0.8, "read": 0.2, "extract": 1.6, "write": 0.2, "unaccounted": 0.4}
    assert sum(outer.values()) == pytest.approx(3.2)


def test_other_ranks_wait_where_there_are_some() -> None:
    rows: Rows = [("read", 0, 0, 4), ("extract", 0, 4, 6), ("bundle", 1, 4, 6)]
    assert "other ranks" not in judge(run(rank(0, rows, 10))).lines()[0]
    both = run(rank(0, rows, 10), rank(1, [("read", 0, 0, 4), ("mpi agree", 1, 0, 4), *rows[1:]], 10))
    assert "while the other ranks wait" in judge(both).lines()[0]


def test_the_summary_adds_up() -> None:
    """Inner stages are in brackets, compilation is in no other stage, and the outer ones add up to all of the time."""
    (one,) = run(rank(0, [("mpi agree", 0, 0.5, 0.1), ("read", 0, 1, 1), ("mpi share", 1, 1.2, 0.3),
                          ("extract", 0, 2, 6), ("bundle", 1, 2, 5), ("solve", 2, 3, 1), ("compile", 3, 3, 0.75),
                          ("assemble", 1, 7, 0.5), ("write", 0, 8.5, 1)], 10, start_up=1.0)).ranks
    outer, inner = summary(one)
    assert outer == pytest.approx({"start-up": 1.5, "communication": 0.1, "read": 1, "extract": 5.25, "compile": 0.75,
                                   "write": 1, "other": 1.4})
    assert inner == {"extract": {"bundle": 4.25, "assemble": 0.5}}
    assert sum(outer.values()) == pytest.approx(11.0)
    assert summary_line(one) == ("start-up 1.500 s, communication 0.100 s, read 1.000 s, extract 5.250 s "
                                 "(bundle 4.250 s, assemble 0.500 s), "
                                 "compile 0.750 s, write 1.000 s, other 1.400 s; 11.000 s in all")


def test_a_rank_under_its_keeper_is_as_old_as_the_command() -> None:
    """The keeper forks after the interpreter has started and modules are loaded: that time is part of the start."""
    code = ("import os, time; from gpu_extract.perf import clock; time.sleep(0.3); clock.children_count_as_this()\n"
            "reader, writer = os.pipe()\n"
            "if os.fork() == 0:\n    os.write(writer, str(clock.process_age()).encode()); os._exit(0)\n"
            "os.wait(); print(os.read(reader, 99).decode())")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) > 0.3


def test_an_idle_gpu() -> None:
    device = {"facts": {"name": "g"}, "memory": 1, "spans": [["normal", 0.0, 2.0], ["solve", 1.0, 2.0]]}
    made = run(rank(0, [("extract", 0, 0, 10), ("bundle", 1, 0, 10)], 10, device=device))
    (cause,) = judge(made).dominant
    assert cause.name == "an idle GPU" and cause.cost == pytest.approx(0.7)       # busy from 0 to 3


def test_of_one_stage_the_gpus_work_in_it_counts_and_no_start() -> None:
    device = {"facts": {"name": "g"}, "memory": 1, "spans": [["load", 0.0, 4.0], ["normal", 3.0, 3.0]]}
    made = run(rank(0, [("warm up", 0, 0, 5), ("extract", 0, 5, 10)], 15, device=device, start_up=6.0))
    (cause,) = judge(made, "extract").dominant
    assert cause.name == "an idle GPU" and cause.cost == pytest.approx(0.9)       # busy from 5 to 6, of 5 to 15
    assert {c.name: c.cost for c in judge(made).causes}["an idle GPU"] == pytest.approx(9 / 21)


def test_shared_cores_are_a_caution() -> None:
    values = rank(0, [("extract", 0, 0, 10), ("bundle", 1, 0, 10)], 10)
    values["spans"][1][4] = 5.0
    assert "had its core for only 50%" in judge(run(values)).lines()[-1]


def test_records_of_older_versions_are_read(tmp_path: Path) -> None:
    old = {"schema": 1, "rank": 0, "epoch": 1.0, "elapsed": 3.0, "spans": [["read", 0, 0.0, 1.0, 1.0]],
           "counters": {}, "peak_memory": 5, "program": "gpu_extract"}
    path = tmp_path / "old.json"
    path.write_text(json.dumps(old))
    made = read_run(path)
    assert len(made.ranks) == 1 and made.ranks[0].elapsed == 3.0 and made.facts["program"] == "gpu_extract"


@pytest.mark.parametrize(("content", "words"), [
    (None, "cannot be read"), (b'{"schema": 2, "ran', "not complete JSON"), (b"\x89PNG\r\n", "not complete JSON"),
    (b"[1, 2]", "not a record"), (b"{}", "not a record"), (b'{"schema": 9, "ranks": []}', "newer gpu_perf"),
    (b'{"schema": 2, "ranks": []}', "without ranks"), (b'{"schema": 2, "ranks": [{"rank": 0}]}', "not a record")])
def test_files_that_are_no_records(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "run.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        read_run(path)
    assert "run.json" in str(caught.value) and "\n" not in str(caught.value)


def test_a_reference_of_other_work_is_refused_or_marked() -> None:
    rows: Rows = [("extract", 0, 0, 9), ("bundle", 1, 0, 9)]
    known = {"problem": {"fibres": 50, "bins": 251}, "digest": "a", "commit": "c", "processor": "p"}
    this = run(rank(0, rows, 9), **known)
    assert verdict_of(this, Asked(this)).cautions == ()
    for other in ({"fibres": 500, "bins": 251}, {"fibres": 50, "bins": 2326}):
        with pytest.raises(InputError, match=f"is a run of {other['fibres']} fibres x {other['bins']} bins, this run"):
            verdict_of(this, Asked(run(rank(0, rows, 9), **{**known, "problem": other})))
    marked = [run(rank(0, rows, 9), **{**known, key: value})
              for key, value in (("problem", None), ("digest", "b"), ("commit", "d"), ("processor", "q"))]
    said = [verdict_of(this, Asked(reference)).lines()[-1] for reference in marked]
    assert said == ["Caution: whether the reference did the same work is unknown: a record lacks the size of its "
                    "problem",
                    "Caution: the reference used different settings",
                    "Caution: the reference used another commit: d, not c",
                    "Caution: the reference used another processor: q, not p"]
