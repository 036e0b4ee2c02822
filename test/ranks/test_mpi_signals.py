"""A signal to any process of a run: all end in time, with the documented exit code, and nothing is left behind."""
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from select import select

import pytest
from rows import SIGNALS, SIGNALS_QUICK
from strikes import LIMIT, Job, Kill, strike, wait_until

from gpu_extract.cli.extract import main
from gpu_extract.cli.ranks import start_ranks
from gpu_extract.io.whose import is_held
from gpu_extract.ranks import segments
from mpi_launch import PROGRAM, Frames, launcher, unmapped_segments, unused_segments
from ranks import datasums, processes_with, ranks_of

OLD = b"the old frame"
PATIENCE = 2.0          # seconds for which a rank or its keeper may be stopped here
SUSPENDED = 4.0
TRIES = 3         # another worker's run may remove what is left before it is checked
# two of these, as started by srun: each rank has mapped a segment and is held, with all its threads, as by MPI,
# until all ranks have met; its keeper does not get to look up what it maps
HELD = """
import ctypes, mmap, os, sys, time
from pathlib import Path
from gpu_extract.ranks import segments
from gpu_extract.cli.ranks import run_kept
folder, rank = Path(sys.argv[1]), os.environ["SLURM_PROCID"]
segments._FOLDER, segments._SOON = folder, 600
def wait():
    (folder / "waits").touch()
    while not (folder / "go").exists():
        time.sleep(0.02)
def follow(pid, follow=segments.follow_segments):
    if sys.argv[3] == "before its guard" and rank == "1":
        wait()
    return follow(pid)
segments.follow_segments = follow
if sys.argv[3] == "before its keeper" and rank == "1":
    wait()
def run():
    with open(folder / f"mpich_shm_{rank}", "wb+") as file:
        file.truncate(4096)
        kept = mmap.mmap(file.fileno(), 4096)
    (folder / f"there-{rank}").touch()
    ctypes.PyDLL(None).sleep(int(sys.argv[2]))
    return 0
raise SystemExit(run_kept("prog", run))
"""


@pytest.fixture(autouse=True)
def hang_ups_count() -> Iterator[None]:
    """Also if the tests were started by nohup: all processes that they start inherit the ignored signal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def job(frames: Frames) -> Job:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "FAULT_PATIENCE": str(PATIENCE)}
    image, psf, grid = (frames.options[frames.options.index(option) + 1] for option in ("-i", "-p", "-w"))
    return Job(tuple(launcher(3)), environment, Path(image), Path(psf), {}, ("-w", grid))


@pytest.fixture
def folder(folder: Path) -> Path:
    (folder / "frame.fits").write_bytes(OLD)
    return folder


def dead_records() -> set[Path]:
    """Records of shared memory without an owner."""
    return {path for path in Path("/dev/shm").glob("gpu_extract.*") if is_held(path) is False}


@pytest.mark.parametrize(("who", "name", "phase", "code"), [
    *SIGNALS_QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in SIGNALS)])
def test_all_end_and_nothing_is_left(frames: Frames, job: Job, folder: Path, who: str, name: str, phase: str,
                                     code: int | None) -> None:
    """code: None if the launcher sets its own code."""
    if who == "proxy" and "hydra" not in job.launch[0]:
        pytest.skip("this launcher starts its ranks itself")
    for _ in range(TRIES):
        before = unused_segments() | dead_records()
        struck = strike(job, Kill(who, name, phase, 0, 1 if who in ("keeper", "rank") else 0), folder, SUSPENDED)
        assert struck is not None
        ended, seconds, said = struck
        assert seconds < LIMIT and (ended == code if code else ended not in (0, 4)), said
        assert (folder / "frame.fits").read_bytes() == OLD
        left = (unmapped_segments() | dead_records()) - before
        if left or "hydra" not in job.launch[0]:
            break
    assert left or "hydra" not in job.launch[0]
    assert main([*frames.options, "-o", str(folder / "frame.fits")]) == 0
    assert datasums(folder / "frame.fits") == datasums(frames.frame)
    assert [path.name for path in folder.iterdir()] == ["frame.fits"]
    assert not left & (unused_segments() | dead_records())      # one may belong to another job


@pytest.mark.parametrize("who", ["keeper", "rank"])
def test_one_that_is_stopped_alone_ends_all(job: Job, folder: Path, who: str) -> None:
    job.environment["FAULT_PAUSE"] = "600"
    struck = strike(job, Kill(who, "STOP", "extract", 0, 1), folder, SUSPENDED)
    assert struck is not None
    ended, seconds, said = struck
    assert ended == 4 and PATIENCE - 1 < seconds < LIMIT, said
    assert ("had its keeper" in said) == (who == "keeper") and said.count("gpu_extract: error: ") == 1


def test_a_keeper_that_is_stopped_when_its_rank_is_done_is_woken(frames: Frames, job: Job, folder: Path) -> None:
    job.environment["FAULT_PATIENCE"] = str(LIMIT)
    struck = strike(job, Kill("keeper", "STOP", "commit", 0, 1), folder, SUSPENDED)
    assert struck is not None and struck[0] == 0, struck
    assert datasums(folder / "frame.fits") == datasums(frames.frame)


def test_a_job_that_is_suspended_as_a_whole_goes_on(frames: Frames, job: Job, folder: Path) -> None:
    """For longer than one of its processes alone may be stopped."""
    struck = strike(job, Kill("all", "STOP", "extract", 0, 0), folder, SUSPENDED)
    assert struck is not None and struck[0] == 0, struck
    assert datasums(folder / "frame.fits") == datasums(frames.frame)


def held(folder: Path, seconds: str, place: str = "", wrapper: Sequence[str] = ()) -> list[subprocess.Popen[str]]:
    """Two processes that believe srun has started them."""
    found: list[subprocess.Popen[str]] = []
    for rank in "01":
        variables = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": rank, "SLURM_LOCALID": rank}
        found.append(subprocess.Popen(
            [*wrapper, sys.executable, "-c", HELD, str(folder), seconds, place], env={**os.environ, **variables},
            stderr=subprocess.PIPE, text=True, process_group=found[0].pid if found else 0))
    return found


@pytest.mark.parametrize(("who", "name", "codes"), [
    ("rank", "KILL", (4, 4)), ("rank", "BUS", (4, 4)), ("keeper", "KILL", (-9, 4)), ("nobody", "", (0, 0)),
    pytest.param("keeper", "TERM", (75, 4), marks=pytest.mark.slow)])
def test_under_srun_all_end_while_mpi_holds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str, name: str,
                                                 codes: tuple[int, int]) -> None:
    """srun itself ignores a lost rank, and no thread of a rank can act. The second rank's mappings are known."""
    ended = held(tmp_path, "600" if name else "1")
    try:
        assert wait_until(lambda: all((tmp_path / f"there-{rank}").exists() for rank in "01"), LIMIT)
        ranks = {parent: pid for pid, parent in processes_with(str(tmp_path)).items() if pid in ranks_of(str(tmp_path))}
        if name:
            first = ended[0].pid
            os.kill(first if who == "keeper" else ranks[first], getattr(signal, f"SIG{name}"))
        words = "".join(process.communicate(timeout=LIMIT)[1] for process in ended)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(ended[0].pid, signal.SIGKILL)
    assert tuple(process.returncode for process in ended) == codes
    assert words.count("prog: error: rank 0 was ") == (1 if name else 0)
    assert ("its keeper killed" in words) == (codes[0] == -9)
    assert ("was there room in /dev/shm?" in words) == (name == "BUS")       # as if MPI found none
    assert wait_until(lambda: not processes_with(str(tmp_path)) and not processes_with("prog: error: rank"), LIMIT)
    monkeypatch.setattr(segments, "_FOLDER", tmp_path)
    assert segments.remove_dead_segments() == ([tmp_path / "mpich_shm_1"] if name else [])
    assert not list(tmp_path.glob("gpu_extract.*"))


@pytest.mark.parametrize("who", ["rank", "keeper"])
@pytest.mark.parametrize("place", ["before its keeper", "before its guard", "wrapped"])
def test_under_srun_one_that_comes_late_ends_with_the_others(tmp_path: Path, who: str, place: str) -> None:
    """The second cannot be told yet when the first is lost, or is not a process that the launcher started: it is told
    later, nobody is killed, and one line is printed."""
    wrapper = ["sh", "-c", '"$@"; exit $?', "sh"] if place == "wrapped" else []
    ended = held(tmp_path, "600", place, wrapper)
    try:
        assert wait_until(lambda: (tmp_path / "there-0").exists()
                          and (tmp_path / ("there-1" if wrapper else "waits")).exists(), LIMIT)
        parents = processes_with(str(tmp_path))
        rank = next(pid for pid in ranks_of(str(tmp_path)) if _descends(pid, ended[0].pid, parents))
        os.kill(rank if who == "rank" else parents[rank], signal.SIGKILL)
        assert select([ended[0].stderr], [], [], LIMIT)[0]            # a line is printed
        (tmp_path / "go").touch()
        words = "".join(process.communicate(timeout=LIMIT)[1] for process in ended)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(ended[0].pid, signal.SIGKILL)
    killed = 4 if who == "rank" else 137 if wrapper else -9
    assert [process.returncode for process in ended] == [killed, 4], words
    assert words.count("prog: error: ") == 1 and "prog: error: rank 0 was lost: " in words, words
    assert wait_until(lambda: not processes_with(str(tmp_path)) and not processes_with("prog: error: rank"), LIMIT)


def test_under_srun_ranks_that_are_lost_together_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """Both keepers make all others end. Any left at the end of their patience would be killed."""
    ended = held(tmp_path, "600")
    try:
        assert wait_until(lambda: all((tmp_path / f"there-{rank}").exists() for rank in "01"), LIMIT)
        ranks = ranks_of(str(tmp_path))
        for number in signal.SIGSTOP, signal.SIGKILL:
            for pid in ranks:
                os.kill(pid, number)
        words = "".join(process.communicate(timeout=LIMIT)[1] for process in ended)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(ended[0].pid, signal.SIGKILL)
    assert [process.returncode for process in ended] == [4, 4], words
    assert wait_until(lambda: not processes_with(str(tmp_path)) and not processes_with("prog: error: rank"), LIMIT)


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    """Whether a process is the other or a descendant; parents: of each."""
    return pid == ancestor or (pid in parents and _descends(parents[pid], ancestor, parents))


def test_an_alarm_of_the_keeper_asks_the_rank_to_end() -> None:
    """One that was set before the start (`perl -e 'alarm 600; exec ...'`). The keeper uses SIGALRM itself, for ranks
    that do not end in time, and killed the rank."""
    code = ("import os, signal, sys, time; from gpu_extract.cli import ENDING\n"
            "from gpu_extract.ranks.keeper import Mark, keep, tell\n"
            "def heard(*_): tell(Mark.ENDS, 75); sys.exit(75)\n"
            "def run():\n"
            "    tell(Mark.MET); signal.signal(signal.SIGALRM, heard); os.kill(os.getppid(), signal.SIGALRM)\n"
            "    time.sleep(60)\n"
            "keep(run, ending=ENDING, lost=lambda *_: 4, end_all=lambda code: False)\n")
    assert subprocess.run([sys.executable, "-c", code], timeout=LIMIT, check=False).returncode == 75


def test_a_keeper_that_is_ended_by_another_has_the_code_of_what_it_found() -> None:
    """Ranks of a wrong MPI end one after another. The keeper of the first gives the others a head start, and then ends
    them during theirs: with 4, which srun returned in place of 2."""
    code = ("import os; from gpu_extract.cli import ENDING; from gpu_extract.ranks import keeper\n"
            "keeper.sleep = lambda _: os.kill(os.getpid(), keeper.END_NOW)\n"
            "def run(): keeper.tell(keeper.Mark.STARTS_MPI); os._exit(16)\n"
            "keeper.keep(run, ending=ENDING, lost=lambda *_: 2, end_all=lambda code: False)\n")
    assert subprocess.run([sys.executable, "-c", code], timeout=LIMIT, check=False).returncode == 2


@pytest.mark.parametrize("number", [
    signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
def test_one_process_without_a_launcher(frames: Frames, folder: Path, tmp_path: Path, number: int) -> None:
    """In the middle of writing: the temporary file is removed, and the code asks for a restart."""
    marker = tmp_path / "time"
    driver = Path(__file__).with_name("faulty.py")
    command = [sys.executable, str(driver), "write", "pause", "0", "--", *frames.options, "-o",
               str(folder / "frame.fits")]
    environment = {**os.environ, "FAULT_TIME": str(marker), "FAULT_PAUSE": "600", "PMI_RANK": "0"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        while not marker.exists():
            assert process.poll() is None
        process.send_signal(number)
        _, said = process.communicate(timeout=LIMIT)
    assert process.returncode == 75 and "interrupted; files under their final names are complete" in said
    assert [path.name for path in folder.iterdir()] == ["frame.fits"] and (folder / "frame.fits").read_bytes() == OLD


def test_handlers_are_put_back_where_the_program_is_a_function(frames: Frames, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert main([*frames.options, "-o", str(tmp_path / "frame.fits")]) == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_segments_of_the_dead_go_and_those_of_the_living_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two runs, one of them dead; a file that both recorded stays, as does one that now has another's name."""
    monkeypatch.setattr(segments, "_FOLDER", tmp_path)
    names = "ours", "shared", "foreign", "renewed"
    ours, shared, foreign, renewed = (tmp_path / f"mpich_shm_{name}" for name in names)
    for path in (ours, shared, foreign, renewed):
        path.write_text(path.name)

    def note(*paths: Path) -> None:
        monkeypatch.setattr(segments, "_mapped", lambda pid: list(paths))
        assert segments.note_segments(0) == bool(paths)

    code = ("import os, sys; from pathlib import Path; from gpu_extract.ranks import segments\n"
            "segments._FOLDER = Path(sys.argv[1])\nsegments._mapped = lambda pid: list(map(Path, sys.argv[2:]))\n"
            "segments.note_segments(0)\nos.kill(os.getpid(), 9)")
    subprocess.run([sys.executable, "-c", code, str(tmp_path), str(ours), str(shared), str(renewed)], check=False)
    note()
    note(shared)
    renewed.rename(tmp_path / "kept")
    renewed.write_text("another")
    assert segments.remove_dead_segments() == [ours]
    assert shared.exists() and foreign.exists() and renewed.exists()
    assert len(list(tmp_path.glob("gpu_extract.*"))) == 1
    segments.forget_segments()
    assert not list(tmp_path.glob("gpu_extract.*")) and segments.remove_dead_segments() == []
    assert start_ranks(False, PROGRAM.name).size == 1
