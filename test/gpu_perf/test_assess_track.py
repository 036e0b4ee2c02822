"""The history: commits measured in temporary copies, stored, judged, exported; series from elsewhere."""
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest
from assess_project import git
from outside import largest_file

from gpu_extract.errors import InputError, OutputError
from gpu_extract.perf import source
from gpu_perf.cli.track import main
from gpu_perf.history import history_of, verdict
from gpu_perf.measure import Bench, measure
from gpu_perf.problems import find_problem
from gpu_perf.repository import all_commits, commits_of, worktrees
from gpu_perf.site import build
from gpu_perf.store import APPLICATION, Commit, Result, Store


def filled(path: Path, slower: float = 1.2, commits: int = 16) -> Path:
    """A store with a history of so many commits a day apart, slower from the tenth on."""
    with Store(path) as store:
        store.add_commits(Commit(f"{n:040x}", 1.7e9 + 86400 * n, f"Change {n}") for n in range(1, commits + 1))
        for n in range(1, commits + 1):
            for repeat in range(3):
                noise = 1 + 0.01 * ((7 * n + 3 * repeat) % 5 - 2)
                time = 2.0 * noise * (slower if n >= 10 else 1.0)
                store.add_result(Result("p on m", f"{n:040x}", repeat, "m",
                                        measures={"run time": time, "solve": 0.5 * noise, "% MPI": 8.0 * noise}), n)
    return path


def test_a_range_of_commits_is_measured_and_the_bad_one_named(project, tmp_path: Path, capsys) -> None:
    folder, store = project(0.05, None, 0.05, 0.10), tmp_path / "s" / "track.sqlite"
    before = git(folder, "status", "--porcelain"), git(folder, "worktree", "list")
    words = ["run", "main~3..main", "--problem", "tiny", "--repeats", "2", "--store", str(store), "--repository",
             str(folder), "--machine", "m"]
    assert main(words) == 1                                             # one of them could not be measured
    said = capsys.readouterr().err
    assert "(Change 2) does not run" in said and "SyntaxError" in said
    with Store(store) as base:
        series = base.series()[0]
        assert series == "tiny on m"
        assert [c.subject for c in base.commits(series)] == ["Change 2", "Change 3", "Change 4"]
        measured = list(base.measured(series).values())
        assert len(base.failures(series)) == 1
        assert 0.05 < measured[0]["bundle"][0] < measured[1]["bundle"][1] < 1.0
        assert len(measured[0]["run time"]) == 2 and 5 < measured[0]["% MPI"][0] < 40
    assert before == (git(folder, "status", "--porcelain"), git(folder, "worktree", "list"))
    assert not (store.parent / "track-work").exists()
    assert main([*words, "--every", "1"]) == 1                          # the good ones are there, the bad one is tried
    assert "2 of 3 commits exist already" in capsys.readouterr().err


def test_the_repository_is_that_of_the_folder(project, tmp_path: Path, monkeypatch) -> None:
    """git sets GIT_DIR for hooks: commits of another repository were measured, and frames lost their commit."""
    folder, other, known = project(0.05), tmp_path / "other", source.version()
    git(tmp_path, "init", "-q", str(other))
    for name, value in (("GIT_DIR", other / ".git"), ("GIT_WORK_TREE", other), ("GIT_INDEX_FILE", other / "index")):
        monkeypatch.setenv(name, str(value))
    source.commit.cache_clear()
    assert [commit.subject for commit in commits_of(folder, "main")] == ["Change 1"]
    assert source.version() == known


def test_worktrees_of_others_stay(project, tmp_path: Path) -> None:
    """Also one whose folder is missing for the moment, as on a disk that is not mounted, and after a killed run."""
    folder, place, elsewhere = project(0.05, 0.05), tmp_path / "work", tmp_path / "elsewhere"
    git(folder, "worktree", "add", "-q", "--detach", str(tmp_path / "theirs"))
    (tmp_path / "theirs").rename(elsewhere)
    before = git(folder, "worktree", "list", "--porcelain")
    commits = commits_of(folder, "main~1..main")
    git(folder, "worktree", "add", "-q", "--detach", str(place / commits[0].hash[:16]))
    shutil.rmtree(place)
    with worktrees(folder, commits, place) as made:
        assert [(path / "bin" / "gpu_extract").exists() for path in made.values()] == [True]
    assert git(folder, "worktree", "list", "--porcelain") == before and not list(place.iterdir())


def test_a_shallow_clone_is_called_so(project, tmp_path: Path) -> None:
    folder = project(0.05, 0.05, 0.05)
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{folder}", str(tmp_path / "clone"))
    with pytest.raises(InputError, match=r"HEAD~2..HEAD.*; the clone is shallow: git -C .*clone fetch --unshallow"):
        commits_of(tmp_path / "clone", "HEAD~2..HEAD")
    with pytest.raises(InputError, match=r"bad revision .v9..HEAD.$"):
        commits_of(folder, "v9..HEAD")


def test_commits_of_one_second_are_in_the_order_of_the_history(project, tmp_path: Path, monkeypatch) -> None:
    """As after a rebase: in the order in which they were first measured, another commit had made it slower."""
    folder = project(*[0.01] * 6)
    date = {"GIT_COMMITTER_DATE": "2026-02-01T12:00:00+0000"}
    git(folder, "-c", "user.name=n", "-c", "user.email=e", "rebase", "-q", "--force-rebase", "HEAD~5", **date)
    monkeypatch.setattr("gpu_perf.measure.make_inputs", lambda bench: None)
    monkeypatch.setattr("gpu_perf.measure._batch", lambda bench, batch, repeats: 0)
    with Store(tmp_path / "track.sqlite") as store:
        bench = Bench(store, find_problem("tiny"), folder, (), "m", 1, print)
        for wanted, every in (("HEAD", 1), ("HEAD~5..HEAD", 2), ("HEAD~5..HEAD", 1)):
            measure(bench, commits_of(folder, wanted, every=every))
        assert [c.subject for c in store.commits()] == [f"Change {n}" for n in range(2, 7)]
        assert len({c.date for c in store.commits()}) == 1


def test_a_change_in_the_second_of_the_baseline_is_seen(tmp_path: Path) -> None:
    hashes = [f"{n:02}" * 20 for n in range(20)]
    with Store(tmp_path / "track.sqlite") as store:
        store.add_commits(Commit(each, 1e9) for each in hashes)
        for n, repeat in product(range(20), range(3)):
            store.add_result(Result("s", hashes[n], repeat, "m", measures={"run time": 1 + (n > 9) + 0.01 * repeat}))
        line, = verdict(history_of(store, "s"))
        assert "times since 1010101010," in line
        assert verdict(history_of(store, "s"), store.find(hashes[10])) == []


def test_a_range_that_a_shallow_clone_cuts_off_is_refused(project, tmp_path: Path) -> None:
    """The clone has both ends of the range, and not what is between: the range was measured without it."""
    folder, clone = project(0.05, 0.05, 0.05, 0.05, 0.05), tmp_path / "clone"
    git(folder, "tag", "v1", "HEAD~4")
    git(tmp_path, "clone", "-q", "--depth", "2", f"file://{folder}", str(clone))
    git(clone, "fetch", "-q", "--depth", "1", "origin", "tag", "v1")
    cut = git(clone, "rev-parse", "HEAD~1")[:10]
    with pytest.raises(InputError, match=f"v1..HEAD: commits before {cut} are missing; the clone is shallow"):
        commits_of(clone, "v1..HEAD")
    assert len(commits_of(clone, "v1..HEAD", most=2)) == 2 and len(commits_of(clone, "HEAD~1..HEAD")) == 1
    git(clone, "fetch", "-q", "--unshallow")
    assert len(commits_of(clone, "v1..HEAD")) == 4


def test_killed_in_the_middle_it_goes_on(project, tmp_path: Path) -> None:
    folder, store = project(0.2, 0.2, 0.2), tmp_path / "s" / "track.sqlite"
    words = ["run", "main~2..main", "--problem", "tiny", "--repeats", "3", "--store", str(store), "--repository",
             str(folder), "--machine", "m"]
    with subprocess.Popen([sys.executable, "-m", "gpu_perf.cli.track", *words], stderr=subprocess.DEVNULL) as run:
        while run.poll() is None and not done(store.parent):
            time.sleep(0.02)
        run.kill()
    assert run.returncode == -9
    before = done(store.parent)
    assert 0 < before < 6
    assert main(words) == 0
    with Store(store) as base:
        assert [len(m["run time"]) for m in base.measured("tiny on m").values()] == [3, 3]
    assert len(git(folder, "worktree", "list").splitlines()) == 1
    assert not (store.parent / "track-work").exists()


def done(folder: Path) -> int:
    """The number of measured runs that a batch has finished."""
    return sum(path.read_text().count('"outcome"') for path in folder.glob("track-work/*/campaign.jsonl")
               if path.parent.name != "input")


def test_check_finds_the_commit(tmp_path: Path, capsys) -> None:
    store = filled(tmp_path / "track.sqlite")
    assert main(["check", "--store", str(store)]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("p on m: run time is 1.") and f"since {10:040x}"[:16] in line and "(Change 10)" in line
    assert main(["check", "--store", str(store), "--since", f"{12:040x}"]) == 0
    assert main(["baseline", f"{12:040x}", "--store", str(store)]) == 0
    assert main(["check", "--store", str(store)]) == 0
    assert "nothing is slower" in capsys.readouterr().out
    assert main(["check", "--store", str(filled(tmp_path / "flat.sqlite", slower=1.0))]) == 0
    assert main(["check", "--store", str(filled(tmp_path / "short.sqlite", commits=4))]) == 0
    assert "not judged: 4 commits, 6 are needed" in capsys.readouterr().out


def test_history_is_relative_to_the_baseline(tmp_path: Path) -> None:
    with Store(filled(tmp_path / "track.sqlite")) as store:
        history = history_of(store, "p on m", f"{3:040x}")
        points = history.components["run time"]
        assert history.baseline.hash == f"{3:040x}"
        assert points[f"{15:040x}"].median / points[f"{3:040x}"].median == pytest.approx(1.2, rel=0.03)
        assert next(iter(history.components)) == "run time"
        with pytest.raises(InputError, match="several commits"):
            history_of(store, "p on m", "000")
        with pytest.raises(InputError, match="no commit of the store"):
            history_of(store, "p on m", "fff")


def test_lists_and_tables_from_elsewhere(tmp_path: Path, capsys) -> None:
    store = ["--store", str(tmp_path / "track.sqlite"), "--repository", str(tmp_path)]
    (tmp_path / "log.txt").write_text("3f87ff9|1767225600\n9c18f6d|1767312000\n")
    (tmp_path / "old.csv").write_text("commit,run time,% MPI\n3f87ff9,2.0,7\n3f87ff9,2.1,\n9c18f6d,3.0,8\n")
    assert main(["import", str(tmp_path / "log.txt"), *store]) == 0
    assert main(["import", str(tmp_path / "old.csv"), *store, "--series", "old code"]) == 0
    (tmp_path / "daily.csv").write_text("date,run time\n2026-01-03,2.0\n2026-01-04T06:00,2.5\n")
    assert main(["import", str(tmp_path / "daily.csv"), *store]) == 0
    assert main(["import", str(tmp_path / "daily.csv"), *store]) == 0           # a second time adds nothing
    said = capsys.readouterr().out
    assert "2 of 2 commits are new" in said and "2 of 2 lines are new in daily\n0 of 2 lines are new in daily" in said
    (tmp_path / "daily.csv").write_bytes(b"\xef\xbb\xbfdate,run time\r\n2026-01-03,2.0\r\n2026-01-04T06:00,2.7\r\n")
    assert main(["import", str(tmp_path / "daily.csv"), *store]) == 2           # nor does a changed figure
    assert "the figures of 2026-01-04 differ from those that daily has already" in capsys.readouterr().err
    with Store(tmp_path / "track.sqlite") as base:
        assert base.measured("old code") == {"3f87ff9": {"run time": [2.0, 2.1], "% MPI": [7.0]},
                                             "9c18f6d": {"run time": [3.0], "% MPI": [8.0]}}
        assert [c.date for c in base.commits("old code")] == [1767225600, 1767312000]
        assert [c.date for c in base.commits("daily")] == [1767398400, 1767506400]
        assert all(len(m["run time"]) == 1 for m in base.measured("daily").values())


def test_a_subject_may_hold_what_ends_lines(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    subjects = ["one", "two \u2028 \x0c \x85 lines\tof it", "three"]
    for subject in subjects:
        git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--allow-empty", "-m", subject)
    assert [commit.subject for commit in commits_of(tmp_path, "HEAD~2..HEAD")] == subjects[1:]
    assert [commit.subject for commit in all_commits(tmp_path)] == subjects[::-1]


@pytest.mark.parametrize(("name", "content", "words"), [
    ("a.csv", "commit,run time\nabc1234,2.0\n", "line 2: abc1234 has no date"),
    ("a.csv", "date,run time\n2026-01-03,fast\n", "line 2, run time: 'fast' is not a number"),
    ("a.csv", "date,run time\n2026-01-03,inf\n", "not a finite number"),
    ("a.csv", "date,run time\nyesterday,2\n", "'yesterday' is not a date"),
    ("a.csv", "date,run time\nnan,2\n", "'nan' is not a date"),
    ("a.csv", "date,run time\n1e12,2\n", "'1e12' is not a date"),
    ("a.csv", "commit,date,run time\nabc1234,inf,2\n", "'inf' is not a date"),
    ("a.csv", f"date,run time\n2026-01-03,{'1' * 200000}\n", "is not a table (field larger than"),
    ("a.csv", "date,run time\n2026-01-03\n", "must have as many cells"),
    ("a.csv", "run time\n2.0\n", "commit or date"), ("a.csv", "date,run time\n", "no rows"),
    ("a.csv", "\x00\x01", "commit or date"), ("a.csv", b"\xff\xfe\x00", "not a text file"),
    ("log.txt", "3f87ff9|1767225600\nnonsense\n", "line 2, must be HASH|SECONDS"), ("log.txt", "", "has no lines"),
    ("log.txt", None, "cannot be read")])
def test_bad_imports_are_one_line_and_change_nothing(tmp_path: Path, capsys, name, content, words) -> None:
    store = filled(tmp_path / "track.sqlite")
    before = list(dump(store))
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(["import", str(path), "--store", str(store), "--repository", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert list(dump(store)) == before


def dump(path: Path) -> list[str]:
    """Everything in a store."""
    with closing(sqlite3.connect(path)) as base:
        return list(base.iterdump())


@pytest.mark.parametrize(("kind", "words"), [("text", "not a store of gpu_track"),
                                             ("foreign", "not a store of gpu_track"),
                                             ("cut", "damaged"), ("missing", "no such store")])
def test_files_that_are_no_stores(tmp_path: Path, capsys, kind: str, words: str) -> None:
    path = tmp_path / "other.sqlite"
    if kind == "text":
        path.write_text("not a database " * 100)
    elif kind == "foreign":
        with closing(sqlite3.connect(path)) as base, base:
            base.execute("CREATE TABLE birds (name TEXT)")
    elif kind == "cut":
        whole = filled(tmp_path / "whole.sqlite").read_bytes()
        path.write_bytes(whole[:len(whole) // 2])
    content = path.read_bytes() if path.exists() else b""
    assert main(["check", "--store", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert (path.read_bytes() if path.exists() else b"") == content


@pytest.mark.parametrize("words", [["run", "--problem", "none"], ["run", "main~9..main"], ["import", "bad.csv"]])
def test_an_error_of_the_input_leaves_no_store(tmp_path: Path, monkeypatch, capsys, words: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.csv").write_text("figure\n1\n")
    assert main([*words, "--store", "new/track.sqlite", "--repository", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1 and os.listdir(tmp_path) == ["bad.csv"]


@pytest.mark.parametrize("change", ["DROP TABLE measures", "UPDATE measures SET value = 'fast'",
                                    "UPDATE commits SET date = 'yesterday'"])
def test_stores_that_were_tampered_with(tmp_path: Path, capsys, change: str) -> None:
    path = filled(tmp_path / "whole.sqlite")
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(change)
    for command in ("check", "list"):
        assert main([command, "--store", str(path)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "is damaged: restore it from a copy" in line


def test_a_store_that_was_begun_is_made(tmp_path: Path) -> None:
    """A killed program may have left a store without tables."""
    path = tmp_path / "track.sqlite"
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(f"PRAGMA application_id = {APPLICATION}")
    with Store(path) as store:
        assert store.add_commits([Commit("abcd123", 1.0)]) == 1


@pytest.mark.parametrize("before", [True, False])
def test_a_store_that_another_program_makes_meanwhile(tmp_path: Path, monkeypatch, before: bool) -> None:
    """Just before, or just after this one has found that there are no tables."""
    path, honest = tmp_path / "track.sqlite", Store._tables

    def meanwhile(store: Store) -> set[str]:
        monkeypatch.setattr(Store, "_tables", honest)
        found = set() if before else honest(store)
        with Store(path) as other:
            assert other.add_commits([Commit("abcd123", 1.0)]) == 1
        return honest(store) if before else found

    path.touch()
    monkeypatch.setattr(Store, "_tables", meanwhile)
    with Store(path) as store:
        assert store.add_commits([Commit("abcd123", 1.0)]) == 0


def test_a_series_without_a_result_does_not_hide_the_others(tmp_path: Path, capsys) -> None:
    path = filled(tmp_path / "track.sqlite")
    assert main(["check", "--store", str(path)]) in (0, 1)
    others = capsys.readouterr().out
    with Store(path) as store:
        store.add_result(Result("empty", store.commits()[0].hash, 0, "m", "failed", "no"))
    assert main(["check", "--store", str(path)]) in (0, 1)
    assert capsys.readouterr().out == f"empty: not judged: no commit has a result\n{others}"


def test_a_failed_addition_leaves_what_was_there(tmp_path: Path) -> None:
    path = filled(tmp_path / "track.sqlite")
    before = dump(path)
    with Store(path) as store, pytest.raises(OutputError, match="its previous content is safe"):
        store.add_result(Result("p on m", "unknown commit", 0, "m", measures={"run time": 1.0}))
    assert dump(path) == before


def test_a_full_disk_leaves_no_store(tmp_path: Path) -> None:
    path = tmp_path / "track.sqlite"
    with largest_file(0), Store(path) as store, pytest.raises(OutputError, match="cannot be opened"):
        store.add_commits([Commit("abcd123", 1.0)])
    assert os.listdir(tmp_path) == []


def test_asv_publishes_the_export(project, tmp_path: Path, capsys) -> None:
    if find_spec("asv") is None:
        pytest.skip("no asv: pip install asv")
    folder, path, out = project(0.1, 0.1, 0.1), tmp_path / "track.sqlite", tmp_path / "asv"
    hashes = git(folder, "log", "--reverse", "--format=%H %ct").split()
    with Store(path) as store:
        store.add_commits(Commit(h, float(t)) for h, t in zip(hashes[::2], hashes[1::2], strict=True))
        for n, commit in enumerate(hashes[::2]):
            for repeat in range(3):
                store.add_result(Result("p on m", commit, repeat, "m", measures={"run time": 2.0 + n, "% MPI": 7.0}),
                                 n + 0.1 * repeat)
    assert main(["asv", "--store", str(path), "-o", str(out), "--repository", str(folder)]) == 0
    assert "3 files of results" in capsys.readouterr().out
    done = subprocess.run([sys.executable, "-m", "asv", "publish", "--no-pull"], cwd=out, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (out / "html" / "index.html").is_file()
    (graph,) = [p for p in (out / "html" / "graphs").rglob("p.time_run_time.json") if "summary" not in str(p)]
    assert [value for _, value in json.loads(graph.read_text())] == [2.0, 3.0, 4.0]


def test_results_are_stored_as_they_come_with_progress(project, tmp_path: Path) -> None:
    """Ended within a batch: earlier results are in the store, and the next run does the rest."""
    class Ended(Exception):
        pass

    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        if line.startswith("3/4 ") and "repeat" in line:
            raise Ended

    folder, path = project(0.05, 0.05), tmp_path / "track.sqlite"
    problem = replace(find_problem("tiny"), ranks=1)
    with Store(path) as store:
        bench = Bench(store, problem, folder, (), "m", 2, tell)
        for made in bench.inputs:                            # the project's program does not read them
            made.parent.mkdir(parents=True, exist_ok=True)
            made.touch()
        commits = commits_of(folder, "main~1..main") + commits_of(folder, "main~1")
        with pytest.raises(Ended):
            measure(bench, commits)
        assert sum(store.good("tiny on m", c.hash) for c in commits) == 3
        assert [line.split(":")[0] for line in told if "repeat" not in line][1:] == [
            f"{n}/2 {c.hash[:16]}" for n, c in enumerate(commits, 1)]
        bench = replace(bench, tell=told.append)
        assert measure(bench, commits) == 0
        assert [store.good("tiny on m", c.hash) for c in commits] == [2, 2]
        assert told[-1] == "1 of 1 commits"


def test_how_far_a_range_is(project, tmp_path: Path, monkeypatch) -> None:
    """Four commits, two at a time: after the first two the remaining time equals the elapsed one."""
    told: list[str] = []
    clock = iter([0.0, 600.0, 1200.0])
    monkeypatch.setattr("gpu_perf.measure.now", lambda: next(clock))
    monkeypatch.setattr("gpu_perf.measure._batch", lambda *_: 0)
    monkeypatch.setattr("gpu_perf.measure.make_inputs", lambda *_: None)
    commits = [Commit(f"{n:040x}", float(n)) for n in range(4)]
    with Store(tmp_path / "track.sqlite") as store:
        measure(Bench(store, find_problem("tiny"), tmp_path, (), "m", 2, told.append), commits, together=2)
    assert told == ["2 of 4 commits, about 10 min left", "4 of 4 commits"]


def test_asv_publishes_an_export_made_outside_git(tmp_path: Path, capsys) -> None:
    """The folder is no clone: asv needs a repository and gets one of the commits' dates and subjects."""
    if find_spec("asv") is None:
        pytest.skip("no asv: pip install asv")
    path, out = filled(tmp_path / "track.sqlite", commits=4), tmp_path / "asv"
    (tmp_path / "plain").mkdir()
    for _ in range(2):
        assert main(["asv", "--store", str(path), "-o", str(out), "--repository", str(tmp_path / "plain")]) == 0
    assert "4 files of results" in capsys.readouterr().out
    made = git(out / "commits.git", "log", "--reverse", "--format=%ct %s", "main").splitlines()
    assert made == [f"{1_700_000_000 + 86400 * n} Change {n}" for n in range(1, 5)]
    done = subprocess.run([sys.executable, "-m", "asv", "publish", "--no-pull"], cwd=out, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (graph,) = [p for p in (out / "html" / "graphs").rglob("p.time_run_time.json") if "summary" not in str(p)]
    assert len(json.loads(graph.read_text())) == 4


@pytest.mark.parametrize(("slower", "cpu", "words", "bad"), [
    (1.0, 2.0, "Verdict: fit: no component is slower", False),
    (1.2, 2.0, "Verdict: slower: look at the commits named above", True),
    (1.0, 1.0, "Verdict: not fit for conclusions: measure these commits again", True)])
def test_the_page_ends_in_a_sentence(tmp_path: Path, slower: float, cpu: float, words: str, bad: bool) -> None:
    """Also if the newest commit's ranks had their cores for only half of the time."""
    with Store(filled(tmp_path / "track.sqlite", slower)) as store:
        rank = {"rank": 0, "epoch": 1.0, "start_up": 0.0, "elapsed": 2.0, "peak_memory": 1, "counters": {}, "cores": 1,
                "spans": [["extract", 0, 0.0, 2.0, cpu, 0], ["bundle", 1, 0.0, 2.0, cpu, 0]]}
        store.add_result(Result("p on m", f"{16:040x}", 9, "m", measures={"run time": 2.0 * slower},
                                record={"schema": 2, "ranks": [rank]}), 99.0)
        lines = build(store, tmp_path / "site")
    page = (tmp_path / "site" / "index.html").read_text()
    assert lines[-1].startswith(words) and words in page and ('class="summary bad"' in page) == bad
    doubt = "NOT QUIET: p on m: 1 runs were disturbed, the last at 0000000000: rank 0 had its core for only 50%"
    assert (doubt in page) == (cpu < 2)
