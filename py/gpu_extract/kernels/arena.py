"""Work arrays that are allocated once and reused: new memory costs more than much of the work in it."""
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from gpu_extract.arrays import Array

LINE = 8           # float64 in a cache line
BLOCK = 1 << 19    # least elements of a block: 4 MB come in huge pages
# A block is larger by 1 / SPARE than requested, so that a bundle with a slightly broader band fits as well. The unused
# part takes no memory, whereas another 70 MB of new pages would take 0.3 s on a virtual machine.
SPARE = 4


class Arena:
    """Provides undefined arrays that start on a cache line; all are given back at once."""

    def __init__(self) -> None:
        self._blocks: list[np.ndarray] = []
        self._block, self._used = 0, 0

    def take(self, *shape: int) -> Array:
        """An array of this shape with undefined content."""
        size = math.prod(shape)
        room = -(-size // LINE) * LINE
        while self._block < len(self._blocks) and self._used + room > len(self._blocks[self._block]):
            self._block, self._used = self._block + 1, 0
        if self._block == len(self._blocks):
            block = max(room + room // SPARE, BLOCK)
            fresh = np.empty(block + LINE)
            first = -(fresh.ctypes.data // 8) % LINE
            self._blocks.append(fresh[first:first + block])
        start = self._used
        self._used += room
        return self._blocks[self._block][start:start + size].reshape(shape)

    def clear(self) -> None:
        """Take everything back."""
        self._block, self._used = 0, 0

    def zeros(self, *shape: int) -> Array:
        """The same, filled with zeros."""
        array = self.take(*shape)
        array[:] = 0.0
        return array


_idle = threading.local()


@contextmanager
def borrowed() -> Iterator[Arena]:
    """Context that provides one of this thread's arenas; arrays from it must not be used afterwards."""
    if not hasattr(_idle, "arenas"):
        _idle.arenas = []
    arena = _idle.arenas.pop() if _idle.arenas else Arena()
    try:
        yield arena
    finally:
        arena.clear()
        _idle.arenas.append(arena)


def forget() -> None:
    """Give this thread's idle arenas back to the system, if the next steps need the memory."""
    _idle.arenas = []
