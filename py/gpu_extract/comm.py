"""Ranks: one process or many behind the same verbs."""
from collections.abc import Sequence

import numpy as np


class SerialComm:
    """One process."""

    rank = 0
    size = 1

    def split(self, color: int) -> "SerialComm":
        """The ranks of the same colour."""
        return self

    def complete(self, array: np.ndarray, axis: int, bounds: Sequence[int]) -> None:
        """Fill in what the other ranks made: rank r has written bounds[r] .. bounds[r + 1] - 1 along `axis`."""

    def to_root(self, parts: Sequence[np.ndarray]) -> list[list[np.ndarray]] | None:
        """The arrays of all ranks, rank by rank, on rank 0; None elsewhere."""
        return [list(parts)]


SERIAL = SerialComm()
