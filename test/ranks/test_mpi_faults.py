"""One rank fails or is lost: all ranks end within 30 s, with the right code, and the old output stays."""
import subprocess
from pathlib import Path

import pytest
from rows import LOST, LOST_OF, LOST_QUICK, SLOW

from mpi_launch import LIMIT, PROGRAM, Ended, Frames, launch, wait_for_none
from ranks import datasums

DRIVER = Path(__file__).with_name("faulty.py")
RANKS = 3
OLD = b"the old frame"


def faulty(frames: Frames, tmp_path: Path, *, phase: str, kind: str, victims: str, ranks: int = RANKS) -> Ended:
    """Run with a fault over an existing output, and check what must hold for every fault."""
    output, struck = tmp_path / "frame.fits", tmp_path.with_suffix(".time")
    output.write_bytes(OLD)
    ended = launch(ranks, DRIVER, phase, kind, victims, "--", *frames.options, "-o", output, limit=8 * LIMIT,
                   FAULT_TIME=str(struck))
    assert ended.end - float(struck.read_text()) < LIMIT
    assert output.read_bytes() == OLD
    assert wait_for_none(str(tmp_path)) == []
    return ended


def check_lost(frames: Frames, tmp_path: Path, phase: str, kind: str, victim: int, ranks: int = RANKS) -> None:
    """All ranks end with code 4 and one line that names the rank and what happened."""
    ended = faulty(frames, tmp_path, phase=phase, kind=kind, victims=str(victim), ranks=ranks)
    assert ended.code == 4
    assert len(ended.errors) == 1
    words = "internal error: ValueError: planted" if kind == "exception" else \
        f"code {kind[4:]} before" if kind.startswith("exit") else "SIGKILL"
    assert (f"rank {victim}" in ended.errors[0] or phase == "start") and words in ended.errors[0]


@pytest.mark.parametrize(("phase", "kind", "victim"), LOST_QUICK)
def test_a_lost_rank_ends_all(frames: Frames, tmp_path: Path, phase: str, kind: str, victim: int) -> None:
    check_lost(frames, tmp_path, phase, kind, victim)


@pytest.mark.slow
@pytest.mark.parametrize(("phase", "kind", "victim"), LOST)
def test_a_rank_lost_anywhere_in_any_way_ends_all(frames: Frames, tmp_path: Path, phase: str, kind: str,
                                                  victim: int) -> None:
    check_lost(frames, tmp_path, phase, kind, victim)


@pytest.mark.slow
@pytest.mark.parametrize(("phase", "kind", "victim", "ranks"), LOST_OF)
def test_a_rank_lost_of_other_numbers_ends_all(frames: Frames, tmp_path: Path, phase: str, kind: str, victim: int,
                                               ranks: int) -> None:
    check_lost(frames, tmp_path, phase, kind, victim, ranks)


@pytest.mark.parametrize(("phase", "victim", "ranks"),
                         [SLOW[0], *(pytest.param(*row, marks=pytest.mark.slow) for row in SLOW[1:])])
def test_a_slow_rank_changes_nothing(frames: Frames, tmp_path: Path, phase: str, victim: int, ranks: int) -> None:
    """The others wait for it, however long, and the bits are the same."""
    output = tmp_path / "frame.fits"
    ended = launch(ranks, DRIVER, phase, "pause", victim, "--", *frames.options, "-o", output, limit=8 * LIMIT,
                   FAULT_TIME=str(tmp_path / "time"), FAULT_PAUSE="3")
    assert ended.code == 0 and ended.errors == [] and (tmp_path / "time").exists()
    assert datasums(output) == datasums(frames.frame)


@pytest.mark.parametrize(("phase", "kind", "victims", "code"), [
    ("read", "input", "0", 2), ("read", "input", "2", 2), ("extract", "input", "1,2", 2),
    ("extract", "output", "0,1,2", 3), ("gather", "input", "0", 2), ("write", "output", "0", 3),
    ("commit", "output", "1,2", 3)])
def test_an_error_of_one_rank_or_more_is_said_once(frames: Frames, tmp_path: Path, phase: str, kind: str, victims: str,
                                                   code: int) -> None:
    ended = faulty(frames, tmp_path, phase=phase, kind=kind, victims=victims)
    assert ended.code == code
    assert [line[:7] for line in ended.errors] == ["planted"]
    assert [path.name for path in tmp_path.iterdir()] == ["frame.fits"]


def test_a_disk_that_fills_up(frames: Frames, tmp_path: Path) -> None:
    ended = faulty(frames, tmp_path, phase="write", kind="full disk", victims="0")
    assert ended.code == 3
    assert len(ended.errors) == 1 and "cannot be written" in ended.errors[0]
    assert [path.name for path in tmp_path.iterdir()] == ["frame.fits"]


@pytest.mark.parametrize(("what", "code", "words"), [
    ("no input", 2, "no such file"), ("half an input", 2, "truncated"), ("no folder", 3, "does not exist"),
    ("read-only folder", 3, "not writable")])
def test_what_all_ranks_see_is_said_once(frames: Frames, tmp_path: Path, what: str, code: int, words: str) -> None:
    image, folder = tmp_path / "image.fits", tmp_path / "out"
    if what != "no input":
        whole = Path(frames.options[1]).read_bytes()
        image.write_bytes(whole[:len(whole) // 2] if what == "half an input" else whole)
    if what != "no folder":
        folder.mkdir()
    mounted = what == "read-only folder"
    if mounted:
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=4k", "tmpfs", str(folder)], capture_output=True,
                              check=False)
        if made.returncode != 0:
            pytest.skip("cannot mount a read-only file system")
    try:
        ended = launch(RANKS, PROGRAM, "-i", image, *frames.options[2:], "-o", folder / "frame.fits")
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)
    assert ended.code == code
    assert len(ended.errors) == 1 and words in ended.errors[0]
    assert [path.name for path in tmp_path.rglob("*.fits")] == ([] if what == "no input" else ["image.fits"])
