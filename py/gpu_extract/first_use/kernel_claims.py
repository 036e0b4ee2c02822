"""Of processes that need the same kernel at once one compiles it, and the others wait for it.

A claim is a file beside where the kernel will be, made by a call that succeeds for one process only, on shared file
systems too; nothing is locked. It names its writer: that of a process which has ended is void, and one that cannot be
asked after, on another machine, is waited for no longer than PATIENCE. Whoever does not wait compiles the kernel, too,
which costs time and nothing else.
"""
import os
from contextlib import suppress
from pathlib import Path

from gpu_extract.io.whose import Writer, is_gone, this_process
from gpu_extract.kernels.kernel_cache import Turns, turns
from gpu_extract.kernels.kernel_store import Store
from gpu_extract.perf.clock import now, sleep

CLAIM = ".claim"
PATIENCE = 120.0         # seconds for a process of another machine, of which nothing is known
LIVING = 900.0           # and for one that lives
_PAUSE = 0.05            # seconds between two looks


class Claims(Turns):
    """Processes take turns by claims."""

    def __init__(self) -> None:
        self._ours: set[Path] = set()          # by any thread: no two compile at once

    def take(self, kept: Store, name: str) -> bytes | None:
        if kept.folder is None:
            return None
        path, start = claim_of(kept.folder, name), now()
        while path not in self._ours and not _claimed(path):
            content = kept.load(name)
            if content is not None:
                return content
            if _is_void(path, now() - start):
                with suppress(OSError):
                    path.unlink(missing_ok=True)
            else:
                sleep(_PAUSE)
        self._ours.add(path)
        content = kept.load(name)            # whoever had the claim may have been done just now
        if content is not None:
            self.release(kept, name)
        return content

    def release(self, kept: Store, name: str) -> None:
        if kept.folder is not None:
            self._remove(claim_of(kept.folder, name))

    def give_up(self) -> None:
        for path in [*self._ours]:
            self._remove(path)

    def _remove(self, path: Path) -> None:
        self._ours.discard(path)
        with suppress(OSError):
            path.unlink(missing_ok=True)


def claim_of(folder: Path, name: str) -> Path:
    """The file that claims a kernel."""
    return folder / f".{name}{CLAIM}"


def is_claimed(folder: Path, name: str) -> bool:
    """Whether another process is making a kernel, as far as that can be told."""
    path = claim_of(folder, name)
    return os.path.exists(path) and not _is_void(path, 0.0)


def take_turns() -> None:
    """From now on."""
    if not isinstance(turns[-1], Claims):
        turns.append(Claims())


def _claimed(path: Path) -> bool:
    """Claim a kernel; True, too, where claims cannot be made."""
    me = this_process()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        return False
    except OSError:
        return True
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(f"{me.where} {me.start} {me.pid}\n")
    return True


def _is_void(path: Path, waited: float) -> bool:
    """Whether a claim counts no longer, after so many seconds of waiting."""
    try:
        where, start, pid = path.read_text(encoding="ascii").split()
        gone = is_gone(Writer(where, int(start), int(pid)))
    except (OSError, ValueError):        # removed just now, or not yet written
        gone = None
    return gone is True or waited > (PATIENCE if gone is None else LIVING)
