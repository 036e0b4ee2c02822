"""Scaling sweeps: points, commands, real runs under a real launcher, failures, and the report by hand."""
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from gpu_extract.errors import InputError
from gpu_perf.campaign import Command, run
from gpu_perf.cli.sweep import main
from gpu_perf.sweep import POINT, RECORDS, Launch, Point, Space, commands, point_of
from gpu_perf.sweep_report import curves, scaling_table, write_report
from gpu_perf.sweep_results import published, read_rows
from mpi_launch import launcher


def test_points_are_all_combinations() -> None:
    points = Space(ranks=(2, 1), cores=("banded", "dense"), nspec=100, bundle=25).points()
    assert len(points) == 8 and len({p.name for p in points}) == 8
    assert {(p.mode, p.ranks, p.nspec) for p in points} == {
        ("strong", 1, 100), ("strong", 2, 100), ("weak", 1, 25), ("weak", 2, 50)}
    on_gpus = Space(("strong",), (4,), per_gpu=(0, 2), mps=("off", "on")).points()
    assert [(p.per_gpu, p.mps, p.gpus) for p in on_gpus] == [(0, False, 0), (2, False, 2), (2, True, 2)]


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(InputError) as caught:
        Space(("up",), (0,), ("fast",), (3,), mps=("of",), nspec=0)
    assert all(word in str(caught.value) for word in ("'up'", "ranks 0", "'fast'", "tiles of 3", "'of'", "nspec is 0"))


@pytest.mark.parametrize(("program", "expected"), [
    ("mpiexec", "env CUDA_VISIBLE_DEVICES=0,1 mpiexec -n 4 wrap gpu_extract"),
    ("srun", "srun -n 4 --gpus-per-node=2 wrap gpu_extract"),
    ("sbatch", "sbatch --ntasks=4 --gpus-per-node=2 --wrap=srun -n 4 wrap gpu_extract")])
def test_commands_of_the_launchers(program: str, expected: str) -> None:
    point = Point("strong", 4, 500, "auto", per_gpu=2, mps=True)
    (made,) = commands([point], Path("f"), Launch(program, (program,), ("wrap",)), ["gpu_extract"], options=("-r", "0"))
    words = " ".join(made.argv[7 if program == "sbatch" else 0:])
    assert words.startswith(expected) and "--gpu " in words and "-r 0" in words
    assert f"{RECORDS}/{point.name}.{{repeat}}.json" in words


def test_what_cannot_be_launched_is_said() -> None:
    with pytest.raises(InputError, match="need a launcher"):
        Launch("none").command(Point("weak", 2, 50, "auto"), ["x"], Path("f"))
    with pytest.raises(InputError, match="needs mps_wrapper"):
        Launch("mpiexec", ("mpiexec",)).command(Point("weak", 2, 50, "auto", per_gpu=1, mps=True), ["x"],
                                            Path("f"))


def stand_ins(folder: Path, sbatch: str) -> None:
    """Programs in place of Slurm's: sbatch runs a script, scancel lists what it was asked to cancel."""
    for name, script in (("sbatch", f'for word in "$@"; do case $word in --output=*) out=${{word#*=}};; esac; done\n'
                                    f"{sbatch}"), ("scancel", f'echo "$@" >> {folder / "cancelled"}')):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)


@pytest.mark.parametrize(("sbatch", "timeout", "status", "said"), [
    ("echo 'gpu_extract: error: no' > $out; echo 'srun: error: task 0' >> $out; exit 2", None, "failed",
     "gpu_extract: error: no"),
    ("echo 'sbatch: error: no such partition' >&2; exit 1", None, "failed", "sbatch: error: no such partition"),
    ("touch $out; echo {} > %s", None, "ok", None),
    ("touch $out", None, "failed", "the job ended without a record: it was cancelled, or its node failed"),
    ("sleep 60", 0.5, "timeout", None)])
def test_jobs_say_what_they_said_and_end_with_their_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sbatch: str,
                                                          timeout: float | None, status: str, said: str | None) -> None:
    """The message of a job was lost, and a job went on, beside the next one, when its sweep was stopped or its point
    timed out. A job left by a killed sweep is cancelled first."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / RECORDS).mkdir()
    points = [Point("weak", 2, 50, "auto")]
    record = tmp_path / RECORDS / f"{points[0].name}.0.json"
    record.write_text("{} of an earlier job")
    stand_ins(tmp_path, sbatch.replace("%s", str(record)))
    (outcome,) = run(commands(points, tmp_path, Launch("sbatch", ("sbatch",)), ["x"], timeout=timeout), tmp_path)
    assert outcome.status == status and (said is None or outcome.said == said)
    cancelled = (tmp_path / "cancelled").read_text().splitlines()
    assert len(cancelled) == (2 if timeout else 1) and len(set(cancelled)) == 1
    assert re.fullmatch(f"--name=gpu_sweep-[0-9a-f]{{16}}-{points[0].name}", cancelled[0])
    assert list((tmp_path / RECORDS).iterdir()) == [record] * (status == "ok")


@pytest.mark.slow
def test_a_real_sweep_goes_on_after_a_point_that_fails(small_frame, tmp_path: Path, capsys) -> None:
    """Weak scaling on 1, 2 and 3 ranks, with a bundle of five fibres each: the frame has only ten fibres."""
    launcher(1)
    words = ["run", str(tmp_path), "--modes", "weak", "--ranks", "1,2,3", "--bundle", "5", "--repeats", "1",
             "--no-warm-up", "--markdown", str(tmp_path / "table.md"), "--", *small_frame]
    assert main(words) == 1
    said = capsys.readouterr()
    assert "weak-auto-r3 repeat 0: failed: gpu_extract: error: " in said.err
    assert "FAILED: weak-auto-r3 repeat 0" in said.out
    rows = {r.point.ranks: r for r in read_rows(tmp_path, "extract")}
    assert len(rows[2].repeats[0].run.ranks) == 2 and rows[2].efficiency[0] > 0 and rows[3].repeats == {}
    assert rows[1].efficiency[0] == 1.0
    assert (tmp_path / "scaling.png").stat().st_size > 10_000
    assert "| weak, auto | 2 | 10 |" in (tmp_path / "table.md").read_text()
    assert main(words) == 1
    assert "3 of 3 sets exist already" in capsys.readouterr().err


def test_a_frame_of_too_few_fibres_is_refused_before_anything_is_measured(small_frame, tmp_path: Path, capsys) -> None:
    """Each point once failed with its own message, after the warm-up had."""
    words = ["run", str(tmp_path), "--ranks", "1", "--launcher", "none", "--no-plots", "--", *small_frame]
    assert main(words) == 2
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "error: " in line)
    assert line.startswith("gpu_sweep: error: the warm-up with 500 fibres is refused (fibres 0 to 499 were requested, ")
    assert not (tmp_path / "campaign.jsonl").exists()


def test_stopped_by_the_batch_system_it_goes_on_later(small_frame, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "gpu_perf.cli.sweep", "run", str(tmp_path), "--modes", "weak", "--ranks", "1",
             "--bundle", "5", "--repeats", "1", "--no-warm-up", "--launcher", "none", "--no-plots", "--", *small_frame]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sweep:
        journal = tmp_path / "campaign.jsonl"
        while sweep.poll() is None and not (journal.is_file() and '"start"' in journal.read_text()):
            time.sleep(0.02)
        sweep.send_signal(signal.SIGTERM)
        _, said = sweep.communicate(timeout=60)
    assert sweep.returncode == 75 and "start again" in said.splitlines()[-1]
    started = next(line for line in map(json.loads, journal.read_text().splitlines()) if line["kind"] == "start")
    assert not Path(f"/proc/{started['pids'][0][0]}").exists()
    assert main(words[3:]) == 0


def sweep_by_hand(folder: Path, seconds: dict[tuple[str, int], list[float]]) -> None:
    """A folder as left by a sweep: extractions of so many seconds for mode, ranks and repeat."""
    sets = []
    (folder / RECORDS).mkdir(parents=True)
    for (mode, ranks), times in seconds.items():
        point = Point(mode, ranks, 100 if mode == "strong" else 25 * ranks, "auto")
        sets.append(Command(point.name, ("true",), facts={"point": asdict(point)}))
        for repeat, value in enumerate(times):
            each = [{"rank": r, "epoch": 0.0, "start_up": 0.5, "elapsed": value + 1, "peak_memory": 1, "counters": {},
                     "spans": [["extract", 0, 0.0, value, value, 0], ["mpi agree", 1, 0.0, 0.1 * value, 0.0, 0]]}
                    for r in range(ranks)]
            (folder / RECORDS / f"{point.name}.{repeat}.json").write_text(json.dumps({"schema": 2, "ranks": each}))
    run(sets, folder, repeats=max(len(t) for t in seconds.values()))


def test_efficiencies_by_hand(tmp_path: Path) -> None:
    """Strong: 8 s on one rank, 5 s on two: 80 %. Weak: 4 s and 5 s: 80 %. Each repeat against its own base."""
    sweep_by_hand(tmp_path, {("strong", 1): [8.0, 16.0, 8.0], ("strong", 2): [5.0, 10.0, 4.0],
                             ("weak", 1): [4.0, 4.0, 4.0], ("weak", 2): [5.0, 5.0, 8.0]})
    rows = {(r.point.mode, r.point.ranks): r for r in read_rows(tmp_path, "extract")}
    assert rows["strong", 2].efficiency == pytest.approx({0: 0.8, 1: 0.8, 2: 1.0})
    assert rows["weak", 2].efficiency == pytest.approx({0: 0.8, 1: 0.8, 2: 0.5})
    assert rows["strong", 2].seconds("extract") == (4.0, 5.0, 10.0)
    metrics = rows["strong", 2].metrics[0]       # useful 0.9 of all: 7.2 s against 2 x 4.5 s
    assert metrics.parallel_efficiency == pytest.approx(0.9) and metrics.computation_scaling == pytest.approx(0.8)
    assert rows["weak", 2].metrics[0].computation_scaling == pytest.approx(0.8)       # per fibre
    assert "80.0% (80.0% to 100.0%)" in scaling_table(list(rows.values()), "extract").text()
    by_run = {(r.point.mode, r.point.ranks): r for r in read_rows(tmp_path, "run")}
    assert by_run["strong", 2].efficiency[0] == pytest.approx(9.5 / 6.5 / 2)


def test_a_damaged_record_is_named_and_the_rest_reported(tmp_path: Path) -> None:
    sweep_by_hand(tmp_path, {("strong", 1): [8.0, 8.0], ("strong", 2): [5.0, 5.0]})
    (tmp_path / RECORDS / "strong-auto-r2.1.json").write_text('{"schema": 2, "ran')
    text = write_report(tmp_path, plots=False)
    assert "FAILED: strong-auto-r2 repeat 1" in text and "not complete JSON" in text and "80.0%" in text


def test_folders_that_hold_no_sweep(tmp_path: Path, capsys) -> None:
    assert main(["report", str(tmp_path)]) == 2
    run([Command("other", ("true",))], tmp_path / "campaign")
    assert main(["report", str(tmp_path / "campaign")]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "holds no campaign" in first and "is not a sweep" in second


@pytest.mark.parametrize("name", ["campaign.jsonl", "report.html", "scaling.json", "scaling.png"])
def test_the_table_does_not_take_the_place_of_what_the_sweep_keeps(tmp_path: Path, capsys, name: str) -> None:
    sweep_by_hand(tmp_path, {("strong", 1): [8.0], ("strong", 2): [5.0]})
    before = (tmp_path / "campaign.jsonl").read_text()
    assert main(["report", str(tmp_path), "--no-plots", "--markdown", str(tmp_path / name)]) == 2
    assert f"--markdown is the same file as {name} of the sweep; give it another name" in capsys.readouterr().err
    assert (tmp_path / "campaign.jsonl").read_text() == before
    assert main(["report", str(tmp_path), "--no-plots", "--markdown", str(tmp_path / "scaling.md")]) == 0


def test_published_figures_are_those_of_the_method() -> None:
    found = {(p.mode, p.label): p for p in published()}
    shared = found["strong", "2020: 1 V100, MPS"]
    assert shared.seconds == {1: 244, 3: 132, 4: 115, 5: 113, 6: 111.5}
    assert shared.efficiency[3] == pytest.approx(244 / 132 / 3)
    assert found["weak", "2020: 1 V100"].efficiency[6] == pytest.approx(19.5 / 66.7)


def test_the_page_in_a_browser(browser, tmp_path: Path) -> None:
    planted_sweep(tmp_path, {("strong", 1): [8.0, 8.0], ("strong", 2): [5.0, 5.0]}, fibres=500, bins=2326)
    write_report(tmp_path)
    browser.open(tmp_path / "report.html")
    (picture,) = browser.all("#scaling img")
    assert int(picture.get_property("naturalWidth")) > 1000
    assert "80.0% (80.0% to 80.0%) efficient on 2 ranks" in browser.text("ul.summary")
    assert "Grey: GPU hackathon 2020" in browser.text("body")
    assert browser.requests() == [] and browser.complaints() == []


def planted_sweep(folder: Path, seconds: dict[tuple[str, int], list[float]], *, fibres: int = 100, bins: int = 251,
                  **more: object) -> Path:
    """The same with facts about work, versions and machine; more: keys of every rank's record."""
    sweep_by_hand(folder, seconds)
    for path in (folder / RECORDS).glob("*.json"):
        record = json.loads(path.read_text())
        ranks = len(record["ranks"])
        record |= {"program": "gpu_extract", "version": "1.2", "commit": "f" * 40, "processor": "Some CPU",
                   "mpi": "MPICH", "versions": {"numpy": "2.0"},
                   "problem": {"fibres": fibres if "strong" in path.name else 25 * ranks, "bins": bins}}
        record["ranks"] = [{"host": "ada", "cores": 8, **each, **more} for each in record["ranks"]]
        path.write_text(json.dumps(record))
    return folder


EVEN = {("strong", 1): [8.0, 8.1], ("strong", 2): [4.1, 4.2]}


def test_published_figures_are_drawn_over_the_same_work_only(tmp_path: Path) -> None:
    """2020 is whole frames of 500 fibres: not a frame of 50 fibres or 251 bins, nor one of unknown size."""
    for name, fibres, bins, drawn in (("small", 50, 251, False), ("narrow", 500, 251, False), ("few", 50, 2326, False),
                                      ("whole", 500, 2326, True)):
        rows = read_rows(planted_sweep(tmp_path / name, EVEN, fibres=fibres, bins=bins), "extract")
        assert any(c.published for c in curves(rows, "extract", reference=True)) == drawn, name
    sweep_by_hand(tmp_path / "unknown", EVEN)
    assert not any(c.published for c in curves(read_rows(tmp_path / "unknown", "extract"), "extract", reference=True))


def test_the_page_says_machine_date_versions_and_work(tmp_path: Path) -> None:
    text = write_report(planted_sweep(tmp_path, EVEN, epoch=1.7e9), plots=False)
    page = (tmp_path / "report.html").read_text()
    for line in ("measured: 2023-11-14 22:13:20 to 2023-11-14 22:13:20 UTC", "machine: ada, Some CPU, 8 cores",
                 "versions: gpu_extract 1.2 (ffffffffff), numpy 2.0, MPI MPICH", "work: 100 fibres x 251 bins"):
        assert line in text and line in page
    assert "Verdict: fit: at least 80% efficient up to 2 ranks: use them." in text and 'summary bad' not in page


@pytest.mark.parametrize(("seconds", "more", "words"), [
    (EVEN, {"cores": 1, "spans": [["extract", 0, 0.0, 8.0, 8.0, 0], ["bundle", 1, 0.0, 8.0, 4.0, 0]]},
     "rank 0 had its core for only 50%"),
    ({("strong", 1): [8.0], ("strong", 4): [2.0]}, {"cores": 2}, "strong, auto on 4 ranks: 4 ranks shared 2 cores"),
    ({**EVEN, ("strong", 2): [4.0, 6.0]}, {}, "the slowest repeat took 1.50 times the fastest")])
def test_a_sweep_on_a_machine_that_was_not_quiet_is_not_green(tmp_path: Path, seconds, more, words: str) -> None:
    text = write_report(planted_sweep(tmp_path, seconds, **more), plots=False)
    assert "NOT QUIET: " in text and words in text
    assert "Verdict: not fit for conclusions: run it again" in text
    assert 'class="summary bad"' in (tmp_path / "report.html").read_text()


def test_versions_that_differ_within_a_sweep_are_named(tmp_path: Path) -> None:
    planted_sweep(tmp_path, EVEN)
    path = tmp_path / RECORDS / "strong-auto-r2.1.json"
    path.write_text(path.read_text().replace('"version": "1.2"', '"version": "1.3"'))
    text = write_report(tmp_path, plots=False)
    assert "versions: MIXED: gpu_extract 1.2" in text and "Verdict: not fit for conclusions" in text


def test_the_last_sentence_says_what_to_do(tmp_path: Path) -> None:
    text = write_report(planted_sweep(tmp_path, {("strong", 1): [8.0], ("strong", 2): [8.0]}), plots=False)
    assert "Verdict: not fit on 2 ranks: strong, auto is 50% efficient; ranks compete for cores, memory" in text


@pytest.mark.parametrize(("name", "value"), [("ranks", "2"), ("nspec", 0), ("tile", []), ("core", None), ("mps", 0)])
def test_points_of_another_kind_are_refused(name: str, value: object) -> None:
    facts = {POINT: {**asdict(Point("strong", 2, 50, "auto")), name: value}}
    with pytest.raises(InputError, match="this campaign is not a sweep"):
        point_of(facts)
