"""Transport between MPI's ranks: texts, packed values, and memory shared by a node's ranks.

The functions receive mpi4py's communicators as arguments; nothing here imports MPI.
"""
import os
import sys
from typing import Any

import numpy as np

from gpu_extract.packing import as_bytes, layout, pack, unpack

_CHUNK = 1 << 30              # bytes moved in one call
_SHARED_MEMORY = "/dev/shm"   # location of windows of both MPI families on Linux
_MARGIN = 64 << 20            # bytes of it left to other programs


def broadcast_text(comm: Any, text: str, root: int = 0) -> str:
    """The text of rank `root`, on all ranks."""
    length, content = _encode(text)
    comm.Bcast(length, root)
    if comm.Get_rank() != root:
        content = np.empty(int(length[0]), dtype=np.uint8)
    comm.Bcast(content, root)
    return content.tobytes().decode()


def send(comm: Any, value: Any, target: int) -> None:
    """Send a value: length of its text, text, arrays one by one. packing.pack describes what can be sent."""
    text, arrays = pack(value)
    for array in (*_encode(text), *arrays):
        comm.Send(as_bytes(array), target)


def receive(comm: Any, source: int) -> Any:
    """The next value that rank `source` sends."""
    length = np.empty(1, dtype=np.int64)
    comm.Recv(as_bytes(length), source)
    content = np.empty(int(length[0]), dtype=np.uint8)
    comm.Recv(content, source)
    text = content.tobytes().decode()
    arrays = [np.empty(shape, dtype) for dtype, shape in layout(text)]
    for array in arrays:
        comm.Recv(as_bytes(array), source)
    return unpack(text, arrays)


def owners(comm: Any, numbers: list[int], kind: Any) -> list[int]:
    """The rank of each number, in the order of all ranks' numbers; kind: MPI's type of an int64."""
    counts = np.empty(comm.Get_size(), dtype=np.int64)
    comm.Allgather(np.array([len(numbers)], dtype=np.int64), counts)
    everyone = np.empty(int(counts.sum()), dtype=np.int64)
    comm.Allgatherv(np.array(numbers, dtype=np.int64), [everyone, counts, np.cumsum(counts) - counts, kind])
    ranks = np.repeat(np.arange(len(counts)), counts)
    return [int(rank) for rank in ranks[np.argsort(everyone, kind="stable")]]


def broadcast_bytes(comm: Any, memory: np.ndarray) -> None:
    """Rank 0's bytes, on all ranks, in place."""
    for start in range(0, len(memory), _CHUNK):
        comm.Bcast(memory[start:start + _CHUNK], 0)


def enough_room(size: int) -> bool:
    """Whether this node has this many free bytes of shared memory.

    Taking more than exists would not fail, but kill the rank that writes to it.
    """
    try:
        found = os.statvfs(_SHARED_MEMORY)
    except OSError:
        return sys.platform != "linux"
    return found.f_bavail * found.f_frsize > size + _MARGIN


class NodeMemory:
    """Windows of MPI's shared memory on one node; all its ranks make the same calls in the same order.

    mpi: the module mpi4py.MPI; node: the communicator of the node's ranks
    """

    def __init__(self, mpi: Any, node: Any):
        self._mpi, self._node = mpi, node
        self._used: list[tuple[int, Any]] = []
        self._idle: list[tuple[int, Any]] = []

    def take(self, size: int) -> tuple[np.ndarray, Any]:
        """An array of `size` bytes, and its window.

        A returned window is reused if it is large enough; otherwise idle windows are freed first.
        """
        fitting = [(room, n) for n, (room, _) in enumerate(self._idle) if room >= size]
        if fitting:
            held = self._idle.pop(min(fitting)[1])
        else:
            for _, window in self._idle:
                window.Free()
            self._idle.clear()
            own = size if self._node.Get_rank() == 0 else 0
            held = size, self._mpi.Win.Allocate_shared(own, 1, comm=self._node)
        self._used.append(held)
        memory, _ = held[1].Shared_query(0)
        return np.frombuffer(memory, dtype=np.uint8)[:size], held[1]

    def take_back(self) -> None:
        """Mark all taken windows as reusable, because they are not used any more."""
        self._idle += self._used
        self._used.clear()


def _encode(text: str) -> tuple[np.ndarray, np.ndarray]:
    content = np.frombuffer(text.encode(), dtype=np.uint8)
    return np.array([len(content)], dtype=np.int64), content
