"""Any number of ranks and groups gives the same bits; whatever is lost, nothing broken is left; a rerun continues."""
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from astropy.io import fits

from gpu_extract.cli.exposure import main
from gpu_extract.simulate.config import Defects
from mpi_launch import LIMIT, launch, launcher, no_segments_left, wait_for_none  # noqa: F401     a fixture
from nights import GRID, PROGRAM, Night, assert_all_there, datasums, errors, make_night, run
from ranks import ENVIRONMENT, ranks_of

DRIVER = Path(__file__).with_name("faulty.py")


@pytest.mark.parametrize(("ranks", "groups"), [
    (2, 2), *(pytest.param(*numbers, marks=pytest.mark.slow) for numbers in ((2, 1), (3, 1), (7, 3)))])
def test_ranks_and_groups_change_no_bit(night: Night, folder: Path, ranks: int, groups: int) -> None:
    ended = run(ranks, *night.options, "-o", folder, "--groups", groups)
    assert (ended.code, errors(ended)) == (0, [])
    assert f"5 frames on {ranks} ranks in {groups} groups" in ended.err and "frame 5 of 5" in ended.err
    assert_all_there(night, folder)


def test_seven_ranks_on_three_frames(night: Night, folder: Path) -> None:
    ended = run(7, "-i", *night.images[:3], *night.options[len(night.images) + 1:], "-o", folder)
    assert (ended.code, errors(ended)) == (0, [])
    assert_all_there(night, folder, [0, 1, 2])


@pytest.mark.slow
def test_thirty_three_ranks_on_twenty_bundles(tmp_path: Path) -> None:
    options = ["--simulate", "2", "--camera", "r", "-w", "6000,6060,0.8", "--groups", "1", "-o"]
    assert run(0, *options, tmp_path / "one", limit=600).code == 0
    (tmp_path / "many").mkdir()
    (tmp_path / "many" / "simulated").symlink_to(tmp_path / "one" / "simulated")
    ended = run(33, *options, tmp_path / "many", limit=900)
    assert (ended.code, errors(ended)) == (0, [])
    for path in (tmp_path / "one").glob("*.fits"):
        assert datasums(path) == datasums(tmp_path / "many" / path.name)


def test_an_exception_costs_one_frame(night: Night, folder: Path) -> None:
    """On one of two ranks that share a group, in the second frame."""
    ended = launch(2, DRIVER, "crash", 1, "--", *night.options, "-o", folder, "--groups", 1)
    assert ended.code == 4
    assert "error: frame-r1-00000001.fits: internal error: ZeroDivisionError: planted" in ended.err
    assert errors(ended) == ["1 of 5 frames failed: frame-r1-00000001.fits; the reasons are above"]
    assert_all_there(night, folder, [0, 2, 3, 4])


def test_where_one_thread_may_use_mpi_shares_are_fixed(night: Night, folder: Path) -> None:
    ended = launch(2, DRIVER, "funneled", 0, "--", *night.options, "-o", folder, "--groups", 2)
    assert (ended.code, errors(ended)) == (0, [])
    groups = [line.split()[2] for line in ended.err.splitlines() if line.startswith("done ")]
    assert groups == ["0", "1", "0", "1", "0"]
    assert_all_there(night, folder)


@pytest.mark.slow
def test_no_group_waits_while_another_holds_a_frame(night: Night, folder: Path) -> None:
    """A slow group begins one frame; the one that it had read ahead goes to the other group."""
    ended = launch(2, DRIVER, "lame", 1, "--", *night.options, "-o", folder, "--groups", 2)
    assert (ended.code, errors(ended)) == (0, [])
    groups = [line.split()[2] for line in ended.err.splitlines() if line.startswith("done ")]
    assert sorted(groups) == ["0", "0", "0", "0", "1"]


def start(night: Night, folder: Path, ranks: int, *words: str) -> subprocess.Popen[str]:
    """The program, running, with slow bundles."""
    command = [*launcher(ranks), sys.executable, str(DRIVER), "slow", "0", "--", *night.options, "-o", str(folder),
               *words]
    return subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait_for(condition: object, limit: float = 60.0) -> None:
    """Wait until the condition is true."""
    end = time.monotonic() + limit
    while not condition():         # type: ignore[operator]
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def assert_nothing_broken(night: Night, folder: Path) -> None:
    """Every file with a final name is complete and right."""
    for path, number in ((folder / frame.name, n) for n, frame in enumerate(night.frames)):
        if path.exists():
            assert datasums(path) == datasums(night.frames[number])


@pytest.mark.parametrize("seed", range(3))
def test_a_rank_killed_at_any_moment(night: Night, folder: Path, seed: int) -> None:
    """Two ranks, in one group or two; the rerun has one process, which costs less and must give the same."""
    chance = random.Random(seed)
    process = start(night, folder, 2, "--groups", str(1 + seed % 2), "--recompute")
    wait_for(lambda: len(ranks_of(str(folder))) == 2)
    if seed:                                                   # otherwise during start-up
        wait_for(lambda: any(folder.iterdir()))
        time.sleep(chance.uniform(0.0, 0.5))
    os.kill(chance.choice(ranks_of(str(folder))), signal.SIGKILL)
    struck = time.monotonic()
    _, err = process.communicate(timeout=4 * LIMIT)
    assert process.returncode not in (0, 75) and time.monotonic() - struck < LIMIT, err
    assert wait_for_none(str(folder)) == []
    assert_nothing_broken(night, folder)
    assert main([*night.options, "-o", str(folder)]) == 0
    assert_all_there(night, folder)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_a_killed_run_of_two_passes_is_resumed_on_other_ranks(tmp_path: Path, folder: Path, ranks: int) -> None:
    """Unmasked cosmics, and tails on the other bundle's pixels: what was killed on three ranks is resumed here."""
    night = make_night(tmp_path, "--passes", "2", tails=0.004, variance="data", defects=Defects(hidden_cosmics=True))
    assert sum(fits.getheader(path)["NREJECT"] for path in night.frames) > 0
    process = start(night, folder, 3, "--groups", "2")
    wait_for(lambda: any(frame.name in os.listdir(folder) for frame in night.frames))
    os.kill(ranks_of(str(folder))[-1], signal.SIGKILL)
    _, err = process.communicate(timeout=4 * LIMIT)
    assert process.returncode not in (0, 75), err
    assert wait_for_none(str(folder)) == []
    assert_nothing_broken(night, folder)
    ended = run(0 if ranks == 1 else ranks, *night.options, "-o", folder)
    assert ended.code == 0 and " skipped" in ended.err, ended.err
    assert_all_there(night, folder)


@pytest.mark.parametrize(("number", "groups"), [(signal.SIGTERM, 1), (signal.SIGUSR1, 2)])
def test_signals_stop_it_cleanly(night: Night, folder: Path, number: signal.Signals, groups: int) -> None:
    """One rank gets the signal, in the middle: Slurm sends it to all."""
    process = start(night, folder, 2, "--groups", str(groups))
    wait_for(lambda: any(frame.name in os.listdir(folder) for frame in night.frames))
    asked = time.monotonic()
    rank = ranks_of(str(folder))[-1]
    while process.poll() is None and time.monotonic() - asked < 10:       # repeatedly: also while it ends
        with suppress(ProcessLookupError):
            os.kill(rank, number)
        time.sleep(0.01)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75 and time.monotonic() - asked < 10, err
    assert "stopped on request; 5 frames: " in err and "start again to continue" in err
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    assert len(list(folder.iterdir())) < 5, err
    assert_nothing_broken(night, folder)
    assert main([*night.options, "-o", str(folder)]) == 0
    assert_all_there(night, folder)


def test_what_hangs_is_dropped_in_time(night: Night, folder: Path) -> None:
    """The rank that gets the signal cannot end: its writing hangs."""
    command = [*launcher(2), sys.executable, str(DRIVER), "hang", "1", "--", *night.options, "-o", str(folder),
               "--groups", "2"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: any(path.name.startswith(".") for path in folder.iterdir()))
        asked = time.monotonic()
        for pid in ranks_of(str(folder)):
            os.kill(pid, signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 75 and time.monotonic() - asked < 10, err
    assert not [path for path in folder.iterdir() if path.read_bytes() == b"half"]
    assert_nothing_broken(night, folder)
    assert wait_for_none(str(folder)) == []


def peak_of(pid: int) -> float:
    """The peak memory so far, in MB."""
    return next(int(line.split()[1]) / 1e3 for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                if line.startswith("VmHWM"))


def test_memory_does_not_grow_with_the_frames(night: Night, folder: Path, tmp_path: Path) -> None:
    """Two ranks that share their frames: their peaks after six frames equal those after thirty."""
    (tmp_path / "list").write_text("".join(f"{night.images[n % 5]} {night.psf} {folder}/frame-{n}.fits\n"
                                           for n in range(30)))
    command = [*launcher(2), sys.executable, str(PROGRAM), str(tmp_path / "list"), "-w", GRID, "-o", str(folder),
               "--groups", "1", "--loglevel", "warning"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        wait_for((folder / "frame-5.fits").exists)
        early = [peak_of(pid) for pid in ranks_of(str(folder))]
        wait_for((folder / "frame-28.fits").exists)
        late = [peak_of(pid) for pid in ranks_of(str(folder))]
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert len(early) == len(late) == 2 and all(b < a + 10 for a, b in zip(early, late, strict=True)), (early, late)
