"""Temporary files of dead runs are removed, those of live ones stay, whatever clocks and host names say."""
import fcntl
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_extract.cli.extract import main
from gpu_extract.io import whose
from gpu_extract.io.atomic import atomic, temporary_name
from gpu_extract.io.leftovers import remove_leftovers
from gpu_extract.io.whose import Writer, claim, host, is_gone, lock_name, remove_unclaimed, this_process

OLD = 3600.0
WRITE = ("import sys, time\nfrom gpu_extract.io.atomic import atomic\nwith atomic(sys.argv[1]) as t:\n"
         "    t.write_bytes(b'half')\n    print('half', flush=True)\n    time.sleep(600)\n")


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is writing frame.fits."""
    with subprocess.Popen([sys.executable, "-c", WRITE, str(tmp_path / "frame.fits")], stdout=subprocess.PIPE,
                          text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "half\n"
        yield process
        process.kill()


def leave(path: Path, age: float = 0.0) -> Path:
    """A file that was last written so many seconds ago."""
    path.write_bytes(b"half")
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_a_living_writer_keeps_its_file_and_a_dead_one_does_not(tmp_path: Path, writer: subprocess.Popen[str]) -> None:
    (temporary,) = tmp_path.iterdir()
    os.utime(temporary, (0, 0))                                # the clock was wrong by decades
    assert remove_leftovers([tmp_path / "frame.fits"]) == []
    writer.kill()
    writer.wait()
    assert remove_leftovers([tmp_path / "other.fits"]) == [temporary]        # other things that are made in this folder


def test_whoever_writes_next_removes_them(tmp_path: Path, writer: subprocess.Popen[str]) -> None:
    """All programs write in this way; gpu_compare, gpu_simulate and gpu_psf left such files for ever."""
    (temporary,) = tmp_path.iterdir()
    with atomic(tmp_path / "picture.png"):
        assert temporary.exists()
    writer.kill()
    writer.wait()
    subprocess.run([sys.executable, "-c", "import sys; from gpu_extract.io.atomic import write_text; "
                    "write_text(sys.argv[1], '')", str(tmp_path / "picture.png")], check=True)
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]


def test_a_zombie_writes_no_more(tmp_path: Path, writer: subprocess.Popen[str]) -> None:
    (temporary,) = tmp_path.iterdir()
    writer.kill()
    while "Z" not in Path(f"/proc/{writer.pid}/stat").read_text().rpartition(")")[2].split()[0]:
        time.sleep(0.01)
    assert remove_leftovers([tmp_path / "frame.fits"]) == [temporary]


def test_another_process_of_the_same_number_is_not_the_writer(tmp_path: Path) -> None:
    me = this_process()
    assert is_gone(me) is False
    assert is_gone(Writer(me.where, me.start + 1, me.pid)) is True
    name = temporary_name(tmp_path / "frame.fits").name
    earlier = leave(tmp_path / name.replace(f"-{me.start}-{me.pid}-", f"-{me.start - 1}-{me.pid}-"))
    assert remove_leftovers([tmp_path / "frame.fits"]) == [earlier]


def test_what_cannot_be_asked_must_be_old_unlocked_and_ours_to_replace(tmp_path: Path) -> None:
    """Containers that share a host name, and other nodes: the process number tells nothing."""
    me = this_process()
    stem, tail = f"frame.tmp-{host()}", "01234567.fits"
    other = "00000001" if me.where != "00000001" else "00000002"
    assert is_gone(Writer(other, me.start, me.pid)) is None and is_gone(Writer("00000000", 0, me.pid)) is None
    go = [leave(tmp_path / f".{stem}-{other}-5-1-{tail}", OLD), leave(tmp_path / f".{stem}-4194999-{tail}", OLD)]
    stay = [leave(tmp_path / f".{stem}-{other}-6-1-{tail}"), leave(tmp_path / f".{stem}-4194998-{tail}"),
            leave(tmp_path / f".second.tmp-{host()}-{other}-5-1-{tail}", OLD),
            leave(tmp_path / ".frame.tmp-x.fits", OLD)]
    locked = leave(tmp_path / f".{stem}-{other}-7-1-{tail}", OLD)
    with open(locked, "rb+") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert sorted(remove_leftovers([tmp_path / "frame.fits"])) == sorted(go)
    assert all(path.exists() for path in (*stay, locked))


def test_without_locks_nothing_of_others_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = leave(tmp_path / f".frame.tmp-{host()}-00000001-5-1-01234567.fits", OLD)

    def unsupported(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(whose.fcntl, "flock", unsupported)
    assert remove_leftovers([tmp_path / "frame.fits"]) == [] and path.exists()
    with atomic(tmp_path / "frame.fits") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "frame.fits").read_text() == "new"


def test_own_files_are_removed_before_an_end_and_no_others(tmp_path: Path, writer: subprocess.Popen[str]) -> None:
    (theirs,) = tmp_path.iterdir()
    own = leave(temporary_name(tmp_path / "frame.fits"))
    assert remove_leftovers([tmp_path / "frame.fits"], own=True) == [own] and theirs.exists()


def test_a_long_name_is_cut_and_found(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 248 + ".fits")
    temporary = temporary_name(long)
    assert len(os.fsencode(temporary.name)) == 255
    me = this_process()
    name = re.sub(rf"-{me.where}-{me.start}-", f"-00000001-{me.start}-", temporary.name)
    left = leave(tmp_path / name, OLD)
    assert remove_leftovers([long]) == [left]


def test_the_file_in_work_is_locked(tmp_path: Path) -> None:
    with atomic(tmp_path / "frame.fits") as temporary:
        assert whose.is_held(temporary) is True
        temporary.write_text("new")
    assert whose.is_held(tmp_path / "frame.fits") is False


def test_gpu_extract_removes_what_a_killed_run_left(tmp_path: Path, writer: subprocess.Popen[str],
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    """Reported in a line; also if the run then fails, as here without an input."""
    (temporary,) = tmp_path.iterdir()
    command = ["-i", str(tmp_path / "no.fits"), "-p", str(tmp_path / "no.fits"), "-o", str(tmp_path / "frame.fits")]
    assert main(command) == 2 and temporary.exists()
    writer.kill()
    writer.wait()
    capsys.readouterr()
    assert main(command) == 2 and not temporary.exists()
    assert f"{temporary}: left behind by a run that was killed; removed" in capsys.readouterr().err


def test_an_output_is_claimed_once(tmp_path: Path) -> None:
    target = tmp_path / "frame.fits"
    mine = claim(target)
    assert mine is not None and lock_name(target).exists()
    assert claim(target) is None and claim(tmp_path / "other.fits") is not None
    remove_unclaimed([target])
    assert lock_name(target).exists()
    mine.release()
    assert not lock_name(target).exists()
    again = claim(target)
    assert again is not None
    again.release()
    lock_name(target).touch()                                  # of a killed run
    remove_unclaimed([target])
    assert not lock_name(target).exists()
    assert len(os.fsencode(lock_name(tmp_path / ("x" * 250 + ".fits")).name)) <= 255
