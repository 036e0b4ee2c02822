"""Measures commits: each in a temporary copy of the project, with repeats interleaved over the commits of a batch."""
import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gpu_extract.errors import InputError, InternalError
from gpu_extract.perf.clock import now
from gpu_extract.perf.record import Run, is_communication, parse_run
from gpu_perf.campaign import Command, end_left_over, run
from gpu_perf.metrics import EXTRACTION, stages, windows
from gpu_perf.outcomes import Outcome
from gpu_perf.problems import Problem
from gpu_perf.repository import git, places_of, worktrees
from gpu_perf.store import Commit, Result, Store

RUN_TIME, COMMAND, CPU, MPI, COPIES = "run time", "command", "CPU", "% MPI", "% copies"
COMPILE = 4              # times the limit, for the first run of a commit
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Bench:
    """The setting in which commits are measured.

    repository: a clone of the project; launcher: the words before "-n RANKS" for several ranks; machine: its name
    """

    store: Store
    problem: Problem
    repository: Path
    launcher: tuple[str, ...]
    machine: str
    repeats: int
    tell: Tell

    @property
    def series(self) -> str:
        """The name of the series: the problem on this machine."""
        return f"{self.problem.name} on {self.machine}"

    @property
    def inputs(self) -> tuple[Path, Path]:
        """Image and PSF, the same for all commits, beside the store."""
        folder = self.store.path.parent / f"{self.store.path.stem}-inputs"
        stem = f"{self.problem.name}-{self.problem.input_digest}"
        return folder / f"{stem}.fits", folder / f"{stem}-psf.fits"


def measure(bench: Bench, commits: Sequence[Commit], *, together: int = 4) -> int:
    """Measure the commits that have too few good repeats, `together` at a time; returns the number of failures.

    Each result is stored at once. A commit that does not build or run is stored as failed, and reported.
    """
    bench.store.add_commits(commits)
    bench.store.set_places(places_of(bench.repository, commits))
    clear_left_over(bench)
    wanted = {c: bench.repeats - bench.store.good(bench.series, c.hash) for c in commits}
    missing = [c for c in commits if wanted[c] > 0]
    if len(missing) < len(commits):
        bench.tell(f"{len(commits) - len(missing)} of {len(commits)} commits exist already")
    make_inputs(bench)
    failed, done, begun = 0, 0, now()
    for batch in _batches(missing, wanted, together):
        failed += _batch(bench, batch, wanted[batch[0]])
        done += len(batch)
        left = (now() - begun) / done * (len(missing) - done)
        bench.tell(f"{done} of {len(missing)} commits" + (f", about {left / 60:.0f} min left" if left else ""))
    return failed


def _batches(missing: Sequence[Commit], wanted: Mapping[Commit, int], together: int) -> Iterator[Sequence[Commit]]:
    """Batches of at most `together` commits that lack the same number of repeats: an interrupted one lacks fewer."""
    for count in sorted(set(wanted.values()), reverse=True):
        alike = [c for c in missing if wanted[c] == count]
        yield from (alike[start:start + together] for start in range(0, len(alike), together))


def clear_left_over(bench: Bench) -> None:
    """End processes of a killed run, and remove its copies of the project. Its measurements are stored already."""
    for folder in _work(bench).glob("*"):
        states = [path.parent for path in (folder / "campaign.jsonl", folder / "warm" / "campaign.jsonl")
                  if path.is_file()]
        if all(end_left_over(state) for state in states):
            shutil.rmtree(folder, ignore_errors=True)
            git(bench.repository, "worktree", "prune")


def _work(bench: Bench) -> Path:
    return bench.store.path.parent / f"{bench.store.path.stem}-work"


def make_inputs(bench: Bench) -> None:
    """Simulate the common input of all commits, once. Raises InternalError if the simulator fails."""
    image, psf = bench.inputs
    if image.is_file() and psf.is_file():
        return
    bench.tell(f"simulating the input of {bench.problem.name}, once")
    argv = (sys.executable, "-m", "gpu_extract.cli.simulate", *bench.problem.simulate, "-o", str(image), "--psf-out",
            str(psf), "--truth-out", "none")
    image.parent.mkdir(parents=True, exist_ok=True)
    with _folder(bench, "input") as folder:
        (outcome,) = run([Command("simulate", argv, timeout=bench.problem.limit)], folder)
    if outcome.status != "ok" or not image.is_file():
        raise InternalError(f"the input of {bench.problem.name} cannot be simulated: {outcome.said}")


@contextmanager
def _folder(bench: Bench, name: str) -> Iterator[Path]:
    """A folder for a campaign, removed after success, else by the next run."""
    whole = _work(bench)
    yield whole / name
    shutil.rmtree(whole / name, ignore_errors=True)
    if whole.is_dir() and not any(whole.iterdir()):
        whole.rmdir()


def _batch(bench: Bench, commits: Sequence[Commit], repeats: int) -> int:
    key = hashlib.sha256("".join([bench.series, *(c.hash for c in commits)]).encode()).hexdigest()[:12]
    with _folder(bench, key) as folder, worktrees(bench.repository, commits, folder / "trees") as trees:
        bench.tell(f"first runs of {len(commits)} commits, to compile their kernels")
        warm = [_command(bench, c, trees[c.hash], folder / "warm", "warm") for c in commits]
        first = run([replace(w, timeout=COMPILE * bench.problem.limit) for w in warm], folder / "warm",
                    tell=bench.tell, retry=True)
        good = [c for c, o in zip(commits, first, strict=True) if o.status == "ok"]
        for commit, outcome in zip(commits, first, strict=True):
            if outcome.status != "ok":
                bench.tell(f"{commit.hash[:10]} ({commit.subject}) does not run: {outcome.said}")
                failure = Result(bench.series, commit.hash, 0, bench.machine, outcome.status, outcome.said)
                bench.store.add_result(failure, outcome.started)
        failed = len(commits) - len(good)
        if not good:
            return failed
        sets = [_command(bench, c, trees[c.hash], folder, "{repeat}") for c in good]
        hashes = {s.name: c for s, c in zip(sets, good, strict=True)}

        def keep(outcome: Outcome) -> Result:
            record = folder / f"{outcome.name}.{outcome.repeat}.json"
            result = _result(bench, hashes[outcome.name], outcome, record)
            bench.store.add_result(result, outcome.started)
            if result.status != "ok":
                bench.tell(f"{result.hash[:10]} repeat {outcome.repeat}: {result.status}: {result.message}")
            return result

        results: list[Result] = []
        run(sets, folder, repeats=repeats, tell=bench.tell, done=lambda outcome: results.append(keep(outcome)))
    return failed + sum(result.status != "ok" for result in results)


def _command(bench: Bench, commit: Commit, tree: Path, folder: Path, repeat: str) -> Command:
    """The command that runs the problem in a commit's copy of the project."""
    image, psf = bench.inputs
    name = commit.hash[:16]
    output = folder / f"{name}.fits"
    words = (sys.executable, str(tree / "bin" / "gpu_extract"), "-i", str(image.resolve()), "-p", str(psf.resolve()),
             *bench.problem.extract, "-o", str(output.resolve()), "--perf",
             str((folder / f"{name}.{repeat}.json").resolve()))
    ranks = (*bench.launcher, "-n", str(bench.problem.ranks)) if bench.problem.ranks > 1 else ()
    folder.mkdir(parents=True, exist_ok=True)
    return Command(name, ("env", f"PYTHONPATH={tree / 'py'}", "OMP_NUM_THREADS=1", *ranks, *words),
                   timeout=bench.problem.limit)


def _result(bench: Bench, commit: Commit, outcome: Outcome, path: Path) -> Result:
    """The result to store of one run."""
    if outcome.status != "ok":
        return Result(bench.series, commit.hash, outcome.repeat, bench.machine, outcome.status, outcome.said)
    try:
        record = json.loads(path.read_bytes())
        found = measures_of(parse_run(record), outcome.seconds)
    except (OSError, ValueError, InputError) as error:
        return Result(bench.series, commit.hash, outcome.repeat, bench.machine, "failed", f"no usable record: {error}")
    return Result(bench.series, commit.hash, outcome.repeat, bench.machine, measures=found, record=record)


def measures_of(run_: Run, command: float) -> dict[str, float]:
    """The figures of a run: seconds of the extraction, its stages (means of the ranks) and the command; shares."""
    looked_at = windows(run_, EXTRACTION)
    run_time = max(w.seconds for w in looked_at)
    found: dict[str, float] = {RUN_TIME: run_time, COMMAND: command, CPU: sum(r.cpu for r in run_.ranks)}
    if any(is_communication(s) for w in looked_at for s in w.spans):
        found[MPI] = 100 * sum(w.communication for w in looked_at) / sum(w.seconds for w in looked_at)
    copied = sum(c["seconds"] for r in run_.ranks for c in r.copies.values())
    if copied:
        found[COPIES] = 100 * copied / sum(w.seconds for w in looked_at)
    for stage in stages(looked_at):
        if len(stage.path) > 1:
            found[stage.name] = found.get(stage.name, 0.0) + stage.mean
    return {name: value for name, value in found.items() if name == COMMAND or value > 0}
