"""Of processes that need the same kernel at once one compiles it, and the others wait for it.

A claim (io.whose) is a lock on a file beside where the kernel will be, which ends with its process on any machine.
Where files cannot be locked all have it, and one that takes too long is not waited for: whoever does not wait compiles
the kernel, too, which costs time and nothing else.
"""
from pathlib import Path

from gpu_extract.io.whose import Claim, claim, is_held, lock_name
from gpu_extract.kernels.kernel_cache import Turns, turns
from gpu_extract.kernels.kernel_store import Store
from gpu_extract.perf.clock import now, sleep

PATIENCE = 900.0         # seconds for another process
_PAUSE = 0.05            # seconds between two looks


class Claims(Turns):
    """Processes take turns by claims."""

    def __init__(self) -> None:
        self._ours: dict[str, Claim] = {}           # by any thread: no two compile at once

    def take(self, kept: Store, name: str) -> bytes | None:
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
        content = kept.load(name)            # whoever had the claim may have been done just now
        if content is not None:
            self.release(kept, name)
        return content

    def release(self, kept: Store, name: str) -> None:
        if name in self._ours:              # also where it could not be kept, and nothing can be any more
            self._ours.pop(name).release()

    def give_up(self) -> None:
        while self._ours:
            self._ours.popitem()[1].release()


def is_claimed(folder: Path, name: str) -> bool:
    """Whether another process is making a kernel, as far as that can be told."""
    return is_held(lock_name(folder / name)) is True


def take_turns() -> None:
    """From now on."""
    if not isinstance(turns[-1], Claims):
        turns.append(Claims())
