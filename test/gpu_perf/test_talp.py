"""TALP's JSON, read and written; its formulas on numbers worked out by hand."""
import json
from pathlib import Path
from typing import Any

import pytest

from gpu_extract.errors import InputError
from gpu_extract.perf.record import Run, parse_run
from gpu_perf.cli.perf import main
from gpu_perf.metrics import metrics_of
from gpu_perf.talp import Talp, parse_talp, read_talp, talp_json
from gpu_perf.talp_report import disagreements, metric_table

SECOND = 1_000_000_000


def region(elapsed: float, useful: float, mpi: float, **more: float) -> dict[str, Any]:
    """A region of TALP, on two nodes with two ranks each; times in seconds."""
    times = {"elapsedTime": elapsed, "usefulTime": useful, "mpiTime": mpi, **more}
    return {"numCpus": 4, "numMpiRanks": 4, "numNodes": 2, "numMpiCalls": 12,
            **{key: round(value * SECOND) if key.endswith(("Time", "Proc", "Node")) else value
               for key, value in times.items()}}


# 10 s on ranks of two nodes, in MPI for (1, 3) and (4, 6) s, useful else: 4 x 10 - 14 = 26
BY_HAND = {"dlbVersion": "3.6.1", "timestamp": "2026-01-02T03:04:05",
           "resources": {"numCpus": 4, "numNodes": 2, "numMpiRanks": 4},
           "Application": {"Global": region(10, 26, 14, minMpiNormdProc=1, minMpiNormdNode=2, parallelEfficiency=0.65,
                                            mpiLoadBalance=0.72),
                           "nothing": region(0, 0, 0)}}


def run(*ranks: tuple[str, list[tuple[str, int, float, float]]], **facts: Any) -> Run:
    """The record of a run of 10 s: host and spans of each rank."""
    return parse_run({"schema": 2, "program": "test", "mpi": "some", **facts, "ranks": [
        {"schema": 2, "rank": n, "host": host, "epoch": 1000.0, "start_up": 0.0, "elapsed": 10.0, "cpu": 10.0,
         "peak_memory": 1, "counters": {}, "calls": {"bcast": {"calls": 3, "seconds": 1, "bytes": 8, "wait": 0}},
         "spans": [[name, depth, start, seconds, seconds, 0] for name, depth, start, seconds in spans]}
        for n, (host, spans) in enumerate(ranks)]})


def same_by_hand() -> Run:
    """The run of BY_HAND as a record of --perf; all of its communication is in a stage of 8 s."""
    return run(*((host, [("extract", 0, 1.0, 8.0), ("mpi bcast", 1, 2.0, mpi)])
                 for host, mpi in (("a", 1.0), ("a", 3.0), ("b", 4.0), ("b", 6.0))), commit="0123abcd")


def test_formulas_by_hand() -> None:
    """mpi / n = 14 / 4 = 3.5; minimum of a rank 1, of a node (1 + 3) / 2 = 2."""
    (whole,) = parse_talp(BY_HAND).regions                      # a region without time is left out
    assert whole.metrics() == pytest.approx({
        "parallelEfficiency": 0.65, "mpiParallelEfficiency": 0.65, "mpiCommunicationEfficiency": 0.9,
        "mpiLoadBalance": 6.5 / 9, "mpiLoadBalanceIn": 8 / 9, "mpiLoadBalanceOut": 6.5 / 8,
        "ompParallelEfficiency": 1.0, "deviceOffloadEfficiency": 1.0})


def test_formulas_of_threads_and_devices_by_hand() -> None:
    """Useful 20, MPI 4, OpenMP idle 3 + 2 + 1, 4 s for threads during MPI, 10 s in the GPU's runtime."""
    content = {"Application": {"Global": region(10, 20, 4, mpiWorkerIdleTime=4, ompLoadImbalanceTime=3,
                                                ompSchedulingTime=2, ompSerializationTime=1, gpuRuntimeTime=10,
                                                minMpiNormdProc=1, minMpiNormdNode=1.5)}}
    assert parse_talp(content).regions[0].metrics() == pytest.approx({
        "parallelEfficiency": 20 / 40, "mpiParallelEfficiency": 0.8, "mpiCommunicationEfficiency": 0.9,
        "mpiLoadBalance": 8 / 9, "mpiLoadBalanceIn": 8.5 / 9, "mpiLoadBalanceOut": 8 / 8.5,
        "ompParallelEfficiency": 34 / 40, "deviceOffloadEfficiency": 26 / 36})


def test_a_record_gives_the_same(tmp_path: Path) -> None:
    """Our record, written in TALP's schema and read back: the regions of the file made by hand."""
    path = tmp_path / "talp.json"
    path.write_text(json.dumps(talp_json(same_by_hand())), encoding="utf-8")
    whole, extract = read_talp(path).regions
    (by_hand,) = parse_talp(BY_HAND).regions
    assert whole.metrics() == pytest.approx(by_hand.metrics())
    assert (whole.name, whole.ranks, whole.nodes, whole.calls) == ("Global", 4, 2, 12)
    assert (extract.name, extract.elapsed, extract.useful, extract.mpi) == ("extract", 8, 18, 14)
    assert not disagreements(Talp("", "", (whole, extract)))    # the rounded metrics in the file are those of its times
    content = json.loads(path.read_bytes())
    assert content["metadata"] == {"gitCommit": "0123abcd"} and content["dlbVersion"].startswith("3.6")
    assert [p["nodeId"] for p in content["Process"]["Global"]] == [0, 0, 1, 1]
    assert [p["mpiTime"] for p in content["Process"]["Global"]] == [SECOND, 3 * SECOND, 4 * SECOND, 6 * SECOND]


def test_ours_and_talps_where_ranks_live_as_long() -> None:
    """Parallel and communication efficiency are the same; load balance is pypop's difference, in both."""
    record = same_by_hand()
    ours = metrics_of(record)
    talps = parse_talp(talp_json(record)).regions[0].metrics()
    assert ours.parallel_efficiency == pytest.approx(talps["mpiParallelEfficiency"])
    assert ours.communication_efficiency == pytest.approx(talps["mpiCommunicationEfficiency"])
    row = next(r for r in metric_table(parse_talp(BY_HAND)).rows if r[0].startswith("load balance of pypop"))
    assert row[1] == f"{ours.load_balance:.1%}" == "75.0%"      # 1 - (9 - 6.5) / 10


def test_a_rank_without_communication_is_left_out_of_the_least() -> None:
    """As in TALP's reduction; ranks that only wait give no infinite number."""
    silent = run(("a", [("extract", 0, 0.0, 10.0)]), ("a", [("extract", 0, 0.0, 10.0), ("mpi agree", 1, 0.0, 10.0)]))
    values = parse_talp(talp_json(silent)).regions[0].metrics()
    assert values["mpiCommunicationEfficiency"] == 0 and values["mpiLoadBalance"] == 0
    assert values["parallelEfficiency"] == pytest.approx(0.5)


def test_one_process_has_no_ranks() -> None:
    """TALP reports 0 MPI ranks without MPI."""
    alone = talp_json(run(("a", [("extract", 0, 0.0, 10.0)]), mpi=None))
    assert alone["resources"]["numMpiRanks"] == 0 and alone["Application"]["Global"]["parallelEfficiency"] == 1


def test_the_command_reads_both_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of TALP with a reference; values of the file that differ are named. A record becomes TALP's file."""
    by_hand, one, wrong = (tmp_path / name for name in ("by-hand.json", "one.json", "wrong.json"))
    by_hand.write_text(json.dumps(BY_HAND), encoding="utf-8")
    one.write_text(json.dumps({"Application": {"Global": {**region(22, 20.8, 1.2), "numCpus": 1, "numMpiRanks": 0}}}))
    assert main(["talp", str(by_hand), "--reference", str(one)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "4 MPI ranks, 4 CPUs, 2 nodes" in said and "between nodes 81.2%" in said
    assert "computation scaling 80.0%" in said and "global efficiency 52.0%" in said and "speed-up 2.2" in said
    wrong.write_text(json.dumps(BY_HAND).replace("0.65", "0.35"))
    assert main(["talp", str(wrong)]) == 0
    assert "Global: the file says parallel efficiency 0.35, its times give 0.65" in capsys.readouterr().out
    assert main(["talp", str(by_hand), "-o", str(tmp_path / "again.json")]) == 2
    assert "not a record of a run" in capsys.readouterr().err and not (tmp_path / "again.json").exists()


OLD = {"dlbVersion": "3.5", "Application": {"Global": {
    "numCpus": 2, "numMpiRanks": 2, "numNodes": 1, "elapsedTime": 10 * SECOND, "usefulTime": 12 * SECOND,
    "mpiTime": 8 * SECOND, "mpiNormdApp": 4 * SECOND, "parallelEfficiency": 0.6, "mpiParallelEfficiency": 0.6,
    "mpiCommunicationEfficiency": 0.8, "mpiLoadBalance": 0.75}}}


def test_a_file_of_the_older_schema() -> None:
    """DLB 3.5 does not record the minimum times: the file's own metrics are shown."""
    rows = {r[0].strip(): r[1] for r in metric_table(parse_talp(OLD)).rows}
    assert rows["MPI load balance"] == "75.0%" and rows["load balance of pypop (a difference)"] == "80.0%"
    assert rows["within nodes"] == "-"


@pytest.mark.parametrize(("content", "said"), [
    ("[1]", "not a record of a run"), ("{", "not complete JSON"), ('{"Application": 3}', "not TALP's JSON"),
    ('{"Application": {}}', "no region of TALP took any time"),
    ('{"Application": {"Global": {"elapsedTime": 5, "usefulTime": 5}}}', "not TALP's JSON"),
    (json.dumps({"Application": {"Global": region(10, 26, -1)}}), "impossible times"),
    (json.dumps({"Application": {"Global": region(10, 26, 14, minMpiNormdProc=11, minMpiNormdNode=2)}}),
     "impossible times")])
def test_what_is_not_talps_is_refused(tmp_path: Path, content: str, said: str) -> None:
    """One line that says what it is not."""
    path = tmp_path / "some.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        read_talp(path)


@pytest.mark.parametrize(("words", "said"), [
    (["report", "RUN", "--html", "OUT"], None), (["report", "OUT", "--html", "OUT"], "--html is the same file as FILE"),
    (["nsys", "OUT", "--html", "OUT"], "--html is the same file as FILE"),
    (["talp", "OUT", "-o", "OUT"], "-o is the same file as FILE"),
    (["talp", "RUN", "--reference", "OUT", "-o", "OUT"], "-o is the same file as --reference"),
    (["report", "RUN", "--reference", "OUT", "--html", "OUT"], "--html is the same file as --reference"),
    (["report", "RUN", "--ceilings", "OUT", "--html", "OUT"], "--html is the same file as --ceilings")])
def test_no_output_takes_the_place_of_an_input(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str],
                                               said: str | None) -> None:
    for name in ("RUN", "OUT"):
        (tmp_path / name).write_text("what was there")
    assert main([str(tmp_path / word) if word.isupper() else word for word in words]) == 2
    assert (f"{said}; give it another name" if said else "is not complete JSON") in capsys.readouterr().err
    assert (tmp_path / "OUT").read_text() == "what was there"
