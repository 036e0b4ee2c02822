"""Claims on kernels: of several processes that need the same kernel, one compiles it and the others wait.

A claim (io.whose) is a lock on a file beside the kernel's file, which ends with its process on any machine. If files
cannot be locked, all processes get the claim. Waiting has a limit: a process that does not wait also compiles the
kernel, which only costs time.
"""
from pathlib import Path

from gpu_extract.io.whose import Claim, claim, is_held, lock_name
from gpu_extract.kernels.kernel_cache import turns
from gpu_extract.kernels.kernel_store import Store
from gpu_extract.perf.clock import now, sleep

PATIENCE = 900.0         # seconds to wait for another process
_PAUSE = 0.05            # seconds between two checks


class Claims:
    """What this process is making; kernel_cache asks before it compiles, and tells when it has."""

    def __init__(self) -> None:
        self._ours: dict[str, Claim] = {}           # by any thread, as no two compile at once

    def take(self, kept: Store, name: str) -> bytes | None:
        """The kernel, if another process makes it in time; None: this process has to make it."""
        if kept.folder is None:
            return None
        path, start = kept.folder / name, now()
        mine = self._ours.get(name) or claim(path)
        while mine is None and now() - start < PATIENCE:
            content = kept.load(name)
            if content is not None:
                return content
            sleep(_PAUSE)
            mine = claim(path)
        if mine is not None:
            self._ours[name] = mine
        content = kept.load(name)            # the previous holder may have just finished
        if content is not None:
            self.release(kept, name)
        return content

    def release(self, kept: Store, name: str) -> None:
        """What was to make is made, and kept if it can be."""
        if name in self._ours:              # also where it could not be kept, and nothing can be any more
            self._ours.pop(name).release()

    def give_up(self) -> None:
        """What was to make cannot be made."""
        while self._ours:
            self._ours.popitem()[1].release()


def is_claimed(folder: Path, name: str) -> bool:
    """Whether another process is making a kernel, as far as known."""
    return is_held(lock_name(folder / name)) is True


def take_turns() -> None:
    """From now on."""
    if not turns:
        turns.append(Claims())
