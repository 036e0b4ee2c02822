"""Removes shared memory of MPI that killed ranks of this program left in /dev/shm, at the next run.

A rank's keeper records which of MPI's files the rank has mapped, in a locked file beside them. A record that can be
locked has no rank any more, in any container. A file that only such records name is unused.
"""
import fcntl
import os
import re
import signal
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gpu_extract.perf.clock import sleep

_SOON, _LATER = 0.02, 1.0          # seconds between two checks of a rank's mapped files, at its start and later
_LOOKS = 1500                      # checks of each kind; after them the rank counts as using none
_FOLDER = Path("/dev/shm")
_RECORD = "gpu_extract.segments."
_NAMES = "mpich_shm_", "mpich_shar_", "sm_segment.", "osc_sm."      # of MPICH, of Open MPI
_held: list[tuple[Path, int]] = []


def follow_segments(pid: int) -> Callable[[bool], object]:
    """From now on, in a thread, look for what a rank maps; returns what is to be told of its end, whether it is good:
    where it is not, before it, if that can be.

    The rank cannot do it itself: MPI blocks it until all ranks have met, and it may be killed meanwhile.
    """
    with suppress(RuntimeError):                # the system allows no thread: nothing is recorded
        threading.Thread(target=_follow, args=(pid,), name="segments", daemon=True).start()
    return lambda well: forget_segments() if well else note_segments(pid)


def _follow(pid: int) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())       # they are the main thread's
    for number in range(2 * _LOOKS):
        sleep(_SOON if number < _LOOKS else _LATER)
        if note_segments(pid):
            sleep(_LATER)                # MPI may add files while ranks meet
            note_segments(pid)
            return


def note_segments(pid: int) -> bool:
    """Write down which of MPI's files a process has mapped, until `forget_segments` or the end of this one; whether
    there are any."""
    mapped = sorted({path for path in _mapped(pid) if path.name.startswith(_NAMES)})
    found = []
    for path in mapped:
        with suppress(OSError):
            found.append(f"{path.stat().st_ino} {path.name}\n")
    with suppress(OSError):                 # no space: then nothing is recorded
        if found and not _held:
            record = _FOLDER / f"{_RECORD}{uuid.uuid4().hex}"
            _held.append((record, os.open(record, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)))
            fcntl.flock(_held[0][1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        if found:
            os.pwrite(_held[0][1], "".join(found).encode(), 0)
    return bool(found)


def forget_segments() -> None:
    """Remove the record, because the end of MPI will remove its files."""
    for record, descriptor in _held:
        with suppress(OSError):
            record.unlink(missing_ok=True)
        os.close(descriptor)
    _held.clear()


def remove_dead_segments() -> list[Path]:
    """Remove files left on this node by ranks of this user that are all gone; returns the removed files."""
    dead: dict[str, list[Path]] = {}
    alive: set[str] = set()
    descriptors = []
    for record in _FOLDER.glob(f"{_RECORD}*") if _FOLDER.is_dir() else ():
        with suppress(OSError):
            if record.stat().st_uid != os.geteuid():
                continue
            descriptor = os.open(record, os.O_RDWR | os.O_CLOEXEC)
            descriptors.append(descriptor)
            lines = os.read(descriptor, 1 << 20).decode("ascii", "replace").splitlines()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                alive.update(lines)
                continue
            for line in lines or [""]:
                dead.setdefault(line, []).append(record)
    removed = [path for line in dead if line not in alive and (path := _unlinked(line))]
    for record in {record for records in dead.values() for record in records}:
        with suppress(OSError):
            record.unlink()
    for descriptor in descriptors:
        os.close(descriptor)
    return removed


def _unlinked(line: str) -> Path | None:
    """Remove the file in a line of a record, if it is still the same file."""
    match = re.fullmatch(r"(\d+) ([\w.-]+)", line)
    if match is None or not match[2].startswith(_NAMES):
        return None
    path = _FOLDER / match[2]
    with suppress(OSError):
        status = path.stat()
        if status.st_uid == os.geteuid() and status.st_ino == int(match[1]):
            path.unlink()
            return path
    return None


def _mapped(pid: int) -> list[Path]:
    """Files of shared memory that a process has mapped."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return []
    names = [line.split(maxsplit=5)[5] for line in lines if str(_FOLDER) in line]
    return [Path(name) for name in names if not name.endswith(" (deleted)")]
