"""The seams of the walk: who watches the work, and who shares it (what does it: backend.py).

The recorder here does nothing; perf/ derives the one that records from it. Numbers and Comm are those of one process;
ranks/ derives those of several from them.
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
    """Takes down where the time goes: perf.recorder.Recorder does, this one (NULL) does nothing.

    rank: the rank that is watched
    """

    rank = 0

    def span(self, name: str) -> AbstractContextManager[object]:
        """Times what runs under it; spans nest."""
        return _NOTHING

    def device_span(self, name: str) -> AbstractContextManager[object]:
        """The same, and the time that the device's current stream takes for what is queued under it, by events."""
        return _NOTHING

    def copy(self, direction: str, nbytes: int) -> AbstractContextManager[object]:
        """The same for a copy to or from a device (perf.recorder.TO_DEVICE, TO_HOST), and how many bytes."""
        return _NOTHING

    def count(self, name: str, value: float = 1) -> None:
        """Add `value` to a named counter."""

    def call(self, kind: str, seconds: float, nbytes: int = 0, *, waits: bool = False) -> None:
        """Add an MPI call of this kind. waits: it moves nothing, all its seconds are spent waiting for other ranks."""

    def watch(self, device: Any, *, ranges: bool = False) -> None:
        """Watch a device from now on. ranges: also make an NVTX range of every span."""

    def warn(self, sentence: str) -> None:
        """Tell whoever waits something before the work, not after it."""


_NOTHING = nullcontext()
NULL = Recorder()


class Numbers:
    """The numbers 0 .. count - 1 of pieces of work, each given out once, to whichever rank asks next, from any thread.

    Who prepares a piece before it begins it takes its number as held. Where nothing is left, another rank may borrow
    what is held and not yet begun; whoever begins it first has it.
    numbers: 0 .. count - 1, or a rank's own share of them, where no other can be asked
    told: called with (number, state) for what `tell` is told, on rank 0, by any of its threads
    """

    def __init__(self, numbers: range, told: Told = lambda number, state: None):
        self._left = iter(numbers)
        self._told = told
        self._lock = threading.Lock()
        self._stopped = False
        self._held: dict[int, int] = {}        # number -> rank that holds it; not what was lent or begun
        self._begun: set[int] = set()

    def take(self) -> int | None:
        """The next number, None where there is no more."""
        with self._lock:
            return None if self._stopped else next(self._left, None)

    def hold(self, rank: int = 0) -> int | None:
        """The next number, to be prepared and begun later by a rank; None where there is no more."""
        number = self.take()
        if number is not None:
            with self._lock:
                self._held[number] = rank
        return number

    def borrow(self, rank: int = 0) -> int | None:
        """A number that another rank holds and has not begun, None where there is none; each is lent once."""
        with self._lock:
            # the one held last: its holder has begun another piece just then, and will be the last to come to it
            others = [number for number, holder in self._held.items() if holder != rank and not self._stopped]
            if not others:
                return None
            del self._held[others[-1]]
            return others[-1]

    def begin(self, number: int) -> bool:
        """Whether a number that was held or borrowed is this rank's to do: false where another has begun it."""
        with self._lock:
            self._held.pop(number, None)
            fresh = number not in self._begun
            self._begun.add(number)
            return fresh

    def tell(self, number: int, state: int) -> None:
        """Say what came of a number."""
        with self._lock:
            self._told(number, state)

    def stop(self) -> None:
        """Give out no more, to nobody."""
        self._stopped = True

    def close(self) -> None:
        """Every rank calls this once, when it will not take, tell or stop any more."""


class Comm:
    """The ranks that share some work: here one process (ranks.comm.SERIAL); of several: ranks.mpi_ranks.MpiComm.

    A verb is called by all ranks, also by those that have no work.
    rank: this one's number, from 0; size: how many there are
    library: the MPI library's name, empty without MPI
    one_copy: whether what is shared lies once in a node's memory
    """

    rank = 0
    size = 1
    library = ""
    one_copy = True

    def watch(self, recorder: Recorder) -> None:
        """Have the recorder told of all communication from now on, here and in what is split off."""

    def split(self, color: int) -> "Comm":
        """The ranks of the same colour."""
        return self

    @contextmanager
    def together(self) -> Iterator[None]:
        """What one rank raises under this, all ranks raise; what is not one of our errors ends all ranks at once."""
        yield

    def on_node(self) -> tuple[int, int]:
        """This rank's number among those on its node, and how many they are."""
        return 0, 1

    def barrier(self) -> None:
        """Wait for all ranks."""

    def complete(self, array: "np.ndarray", axis: int, bounds: Sequence[int]) -> None:
        """Fill in what the other ranks made: rank r has written bounds[r] .. bounds[r + 1] - 1 along `axis`."""

    def gather(self, items: Sequence[tuple[int, T]]) -> list[T] | None:
        """Numbered values of all ranks, in the order of their numbers, on rank 0; None elsewhere.

        Each number is given by one rank; for what a value can be see packing.pack.
        """
        raise NotImplementedError

    def share(self, make: Callable[[], T]) -> T:
        """What `make` returns on rank 0 (no other rank calls it), on all ranks; for what it can be see packing.pack.

        With several ranks the arrays in it are read-only, and one copy on each node serves all its ranks.
        """
        return make()

    def release(self) -> None:
        """Take back the memory that was shared and the groups that were split off: nobody uses them any more."""

    def hand_out(self, count: int, told: Told = lambda number, state: None, *, takes: bool = True) -> Numbers:
        """The numbers 0 .. count - 1, each given once to whoever asks: any rank, from any thread of it.

        All ranks call this, those too that will take none (takes=False), and `close` what they get when they are
        done. `told` is called on rank 0, by one of its threads, with what any rank tells of a number.
        Needs get_comm(..., threads=True); where MPI does not let several threads use it, every rank that takes gets a
        fixed share, and hears of its own numbers only.
        """
        return Numbers(range(count), told)

    def asked(self, question: Callable[[], bool]) -> bool:
        """Whether the answer is yes on some node; it is asked on one rank of each."""
        return question()

    def by_node(self, work: Callable[[], object]) -> None:
        """Do something on all ranks of rank 0's node, then on those of all others, while the rest wait asleep."""
        work()
