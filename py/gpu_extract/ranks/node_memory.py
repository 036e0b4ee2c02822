"""Memory that all ranks of a node see: given out, taken back, given out again. Nothing here imports MPI."""
from typing import Any

import numpy as np


class NodeMemory:
    """Windows of MPI's shared memory on one node; all its ranks make the same calls in the same order.

    mpi: the module mpi4py.MPI; node: the communicator of the node's ranks
    """

    def __init__(self, mpi: Any, node: Any):
        self._mpi, self._node = mpi, node
        self._used: list[tuple[int, Any]] = []
        self._idle: list[tuple[int, Any]] = []

    def take(self, size: int) -> tuple[np.ndarray, Any]:
        """At least `size` bytes as an array of so many, and the window it lies in.

        A window that was taken back is used again where it is large enough; else those that are idle are freed first.
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
        """All that was taken may be used again: nobody looks at it any more."""
        self._idle += self._used
        self._used.clear()
