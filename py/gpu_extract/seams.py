"""The seams of the walk, as types: who shares the work, and who watches it (what does it: backend.py).

Whoever has these verbs will do; nothing here is imported at run time but by those who want the names.
"""
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")


class Recorder(Protocol):
    """Takes down where the time goes: perf.recorder.Recorder, or NULL there, which does nothing."""

    @property
    def rank(self) -> int:
        """The rank that is watched."""

    def span(self, name: str) -> AbstractContextManager[object]:
        """Times what runs under it; spans nest."""

    def device_span(self, name: str) -> AbstractContextManager[object]:
        """The same, on the device too."""

    def copy(self, direction: str, nbytes: int) -> AbstractContextManager[object]:
        """The same for a copy to or from a device."""

    def count(self, name: str, value: float = 1) -> None:
        """Add `value` to a named counter."""

    def call(self, kind: str, seconds: float, nbytes: int = 0, *, waits: bool = False) -> None:
        """Add an MPI call."""

    def watch(self, device: Any, *, ranges: bool = False) -> None:
        """Have a device watched as well."""

    def warn(self, sentence: str) -> None:
        """Tell whoever waits something before the work, not after it."""


class Numbers(Protocol):
    """Numbers of pieces of work, each for whoever asks first: ranks.hand_out.Numbers, which says what the verbs do."""

    def take(self) -> int | None:
        """The next number, None where there is no more."""

    def hold(self) -> int | None:
        """The same, to be begun later."""

    def borrow(self) -> int | None:
        """A number that another holds and has not begun."""

    def begin(self, number: int) -> bool:
        """Whether a held number is still ours to begin."""

    def tell(self, number: int, state: int) -> None:
        """What came of a number, for rank 0."""

    def stop(self) -> None:
        """Give out no more."""

    def close(self) -> None:
        """To be called by all ranks, at the end."""


class Comm(Protocol):
    """The ranks that share some work: ranks.comm.SerialComm or ranks.mpi_ranks.MpiComm, which say what the verbs do."""

    @property
    def rank(self) -> int:
        """This rank's number, from 0."""

    @property
    def size(self) -> int:
        """How many ranks there are."""

    @property
    def library(self) -> str:
        """The MPI library's name; empty without MPI."""

    @property
    def one_copy(self) -> bool:
        """Whether what is shared lies once in a node's memory."""

    def watch(self, recorder: Recorder) -> None:
        """Have the recorder told of all communication."""

    def split(self, color: int) -> "Comm":
        """The ranks of the same colour."""

    def together(self) -> AbstractContextManager[None]:
        """What one rank raises under this, all ranks raise."""

    def on_node(self) -> tuple[int, int]:
        """This rank's number among those on its node, and how many they are."""

    def barrier(self) -> None:
        """Wait for all ranks."""

    def complete(self, array: "np.ndarray", axis: int, bounds: Sequence[int]) -> None:
        """Fill in what the other ranks made."""

    def gather(self, items: Sequence[tuple[int, T]]) -> list[T] | None:
        """Numbered values of all ranks, in order, on rank 0."""

    def share(self, make: Callable[[], T]) -> T:
        """What `make` returns on rank 0, on all ranks."""

    def release(self) -> None:
        """Take back what was shared and split off."""

    def hand_out(self, count: int, told: Callable[[int, int], None] = ..., *, takes: bool = True) -> Numbers:
        """The numbers 0 .. count - 1, each given once to whoever asks."""

    def asked(self, question: Callable[[], bool]) -> bool:
        """Whether the answer is yes on some node."""

    def by_node(self, work: Callable[[], object]) -> None:
        """Do something on all ranks of one node after the other."""

    def first(self, work: Callable[[], object]) -> None:
        """Do something on one rank of each node before the others go on."""
