"""Interfaces of an extraction to its recorder and its ranks (backend.py has the interface to its backend).

The recorder here does nothing; perf/ derives the recording one from it. Numbers and Comm are for one process; ranks/
derives those for several from them.
"""
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")
Told = Callable[[int, int], None]


class Recorder:
    """Records how the time is spent: perf.recorder.Recorder does so, this one (NULL) does nothing.

    rank: the rank that is recorded
    """

    rank = 0

    def span(self, name: str) -> AbstractContextManager[object]:
        """Context that times its body; spans nest."""
        return _NOTHING

    def device_span(self, name: str) -> AbstractContextManager[object]:
        """The same, plus the time of the device's current stream for the work queued in it, by events."""
        return _NOTHING

    def copy(self, direction: str, nbytes: int) -> AbstractContextManager[object]:
        """The same for a copy to or from a device (perf.recorder.TO_DEVICE, TO_HOST), with its bytes."""
        return _NOTHING

    def count(self, name: str, value: float = 1) -> None:
        """Add `value` to a named counter."""

    def call(self, kind: str, seconds: float, nbytes: int = 0, *, waits: bool = False) -> None:
        """Add an MPI call of this kind. waits: whether it moves no data, so that all its time is waiting for other
        ranks."""

    def watch(self, device: Any, *, ranges: bool = False) -> None:
        """Record a device from now on. ranges: also make an NVTX range of every span."""

    def warn(self, sentence: str) -> None:
        """Report a warning to the user at once, not after the work."""


_NOTHING = nullcontext()
NULL = Recorder()


class Numbers:
    """The numbers 0 .. count - 1 of pieces of work, each assigned once, to the next rank that asks, from any thread.

    A rank that prepares a piece before it begins it holds its number. When no numbers are left, another rank may borrow
    a held number that is not begun; the rank that begins it first has it.
    numbers: 0 .. count - 1, or a rank's own share of them, if no other rank can be asked
    told: called with (number, state) for each call of `tell`, on rank 0, by any of its threads
    """

    def __init__(self, numbers: range, told: Told = lambda number, state: None):
        self._left = iter(numbers)
        self._told = told
        self._lock = threading.Lock()
        self._stopped = False
        self._held: dict[int, int] = {}        # number -> rank that holds it; without lent or begun ones
        self._begun: set[int] = set()

    def take(self) -> int | None:
        """The next number, None if there are no more."""
        with self._lock:
            return None if self._stopped else next(self._left, None)

    def hold(self, rank: int = 0) -> int | None:
        """The next number, to be prepared and begun later by a rank; None if there are no more."""
        number = self.take()
        if number is not None:
            with self._lock:
                self._held[number] = rank
        return number

    def borrow(self, rank: int = 0) -> int | None:
        """A number that another rank holds and has not begun, None if there is none; each is lent once."""
        with self._lock:
            # the last one held: its holder has just begun another piece, and will reach it last
            others = [number for number, holder in self._held.items() if holder != rank and not self._stopped]
            if not others:
                return None
            del self._held[others[-1]]
            return others[-1]

    def begin(self, number: int) -> bool:
        """Whether this rank has to do a held or borrowed number: False if another rank has begun it."""
        with self._lock:
            self._held.pop(number, None)
            fresh = number not in self._begun
            self._begun.add(number)
            return fresh

    def tell(self, number: int, state: int) -> None:
        """Report the state of a number."""
        with self._lock:
            self._told(number, state)

    def stop(self) -> None:
        """Assign no more numbers to any rank."""
        self._stopped = True

    def close(self) -> None:
        """Every rank calls this once, when it makes no more calls of take, tell or stop."""


class Comm:
    """The ranks that share some work: here one process (ranks.comm.SERIAL); of several: ranks.mpi_ranks.MpiComm.

    A verb is called by all ranks, including those without work.
    rank: this one's number, from 0; size: number of ranks
    library: the MPI library's name, empty without MPI
    one_copy: whether shared data exist once in a node's memory
    """

    rank = 0
    size = 1
    library = ""
    one_copy = True

    def watch(self, recorder: Recorder) -> None:
        """Report all communication to the recorder from now on, including that of split-off communicators."""

    def split(self, color: int) -> "Comm":
        """The ranks of the same colour."""
        return self

    @contextmanager
    def together(self) -> Iterator[None]:
        """Context in which an error of one rank is raised on all ranks; an error that is not of this package ends all
        ranks at once."""
        yield

    def on_node(self) -> tuple[int, int]:
        """This rank's number among those on its node, and their number."""
        return 0, 1

    def barrier(self) -> None:
        """Wait for all ranks."""

    def complete(self, array: "np.ndarray", axis: int, bounds: Sequence[int]) -> None:
        """Fill in the parts of the other ranks: rank r has written bounds[r] .. bounds[r + 1] - 1 along `axis`."""

    def gather(self, items: Sequence[tuple[int, T]]) -> list[T] | None:
        """Numbered values of all ranks, in the order of their numbers, on rank 0; None elsewhere.

        Each number comes from one rank; packing.pack describes possible values.
        """
        from gpu_extract.packing import repack  # loads numpy

        return [repack(value) for _, value in sorted(items, key=lambda item: item[0])]

    def share(self, make: Callable[[], T]) -> T:
        """The result of `make` on rank 0 (no other rank calls it), on all ranks; packing.pack describes possible
        values.

        With several ranks the arrays in it are read-only, and one copy on each node serves all its ranks.
        """
        return make()

    def release(self) -> None:
        """Release the shared memory and the split-off groups, which must not be used any more."""

    def hand_out(self, count: int, told: Told = lambda number, state: None, *, takes: bool = True) -> Numbers:
        """The numbers 0 .. count - 1, each assigned once to the next rank that asks, from any of its threads.

        All ranks call this, those too that will take none (takes=False), and `close` what they get when they are
        done. `told` is called on rank 0, by one of its threads, with what any rank tells of a number.
        Needs get_comm(..., threads=True); where MPI does not let several threads use it, every rank that takes gets a
        fixed share, and hears of its own numbers only.
        """
        return Numbers(range(count), told)

    def asked(self, question: Callable[[], bool]) -> bool:
        """Whether the answer is yes on some node, asked on one rank of each."""
        return question()

    def by_node(self, work: Callable[[], object]) -> None:
        """Call `work` on all ranks of rank 0's node, then on those of all other nodes, while the rest sleep."""
        work()
