"""The identity of a file's writer: a process, distinguished from all others without a clock or a host name.

Also claims on outputs, so that only one run at a time makes an output: a lock on a file beside it, which ends with the
run in any case.
"""
import fcntl
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path

from gpu_extract.errors import FileName
from gpu_extract.perf.clock import START, process_state

_NO_PROC = "0" * 8
NAME_MAX = 255         # bytes of a name


@dataclass(frozen=True)
class Writer:
    """A process.

    where: 8 hex digits for the boot of a machine and the process namespace (a container has its own); zeros if the
        system does not report them
    start: ticks from the start of the system to that of the process; pid: its number
    """

    where: str
    start: int
    pid: int


def this_process() -> Writer:
    """The calling process."""
    pid = os.getpid()
    return Writer(_where(), _started(pid) or 0, pid)


def is_gone(writer: Writer) -> bool | None:
    """Whether a writer has ended; None if unknown: on another machine, in another container, or before the last
    boot."""
    if writer.where == _NO_PROC or writer.where != _where():
        return None
    try:
        os.kill(writer.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    started = _started(writer.pid)
    return False if started is None else started != writer.start


def birth(pid: int) -> str | None:
    """A text that identifies a process on all machines, together with its number; None if there is none, or the system
    does not report it."""
    started = _started(pid)
    return None if started is None else f"{_where()} {started}"


def host() -> str:
    """This machine's name, for display."""
    return socket.gethostname().split(".")[0]


@cache
def _where() -> str:
    """The boot of this machine and the process namespace, as 8 hex digits."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        seen = os.readlink("/proc/self/ns/pid")
    except OSError:
        return _NO_PROC
    return blake2b(f"{boot} {seen}".encode(), digest_size=4).hexdigest()


def _started(pid: int) -> int | None:
    """Ticks at which a process was started, -1 for one that has ended but was not waited for; None if unknown."""
    told = process_state(pid)
    if not told:
        return None
    return -1 if told[0] == "Z" else int(told[START])


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Make an empty file and hold it locked: others cannot lock it while its writer lives. The lock ends with the
    process in any case; it is omitted on a file system without locks."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool | None:
    """Whether a file is locked by another process; None if the file system has no locks, or it cannot be opened."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        locked = lock(descriptor)
        return None if locked is None else not locked
    finally:
        os.close(descriptor)


def lock(descriptor: int) -> bool | None:
    """Lock an open file until it is closed. Returns whether that succeeded; None if its file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError:
        return None


class Claim:
    """An output that only this run may make, until `release`."""

    def __init__(self, path: Path, descriptor: int | None):
        self._path, self._descriptor = path, descriptor

    def release(self) -> None:
        """Release the claim; nothing is left behind."""
        if self._descriptor is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)           # first, so that a locked file always has a name
            os.close(self._descriptor)
            self._descriptor = None


def claim(target: FileName) -> Claim | None:
    """Claim an output; None if another run has claimed it. If files cannot be made or locked, every claim succeeds."""
    path = lock_name(target)
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            return Claim(path, None)
        if lock(descriptor) is False:
            os.close(descriptor)
            return None
        if is_at(path, descriptor):
            return Claim(path, descriptor)
        os.close(descriptor)             # its holder removed it between the two calls


def remove_unclaimed(targets: Iterable[FileName]) -> None:
    """Remove lock files that are not held, left by killed runs."""
    for target in targets:
        if os.path.exists(lock_name(target)):
            left = claim(target)
            if left is not None:
                left.release()


def lock_name(target: FileName) -> Path:
    """The lock file of `target`."""
    path = Path(os.path.realpath(target))
    name = f".{path.name}.lock"
    if len(os.fsencode(name)) > NAME_MAX:
        name = f".{blake2b(os.fsencode(path.name), digest_size=16).hexdigest()}.lock"
    return path.with_name(name)


def is_at(path: Path, descriptor: int) -> bool:
    """Whether an open file is the one with this name."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError:
        return False
