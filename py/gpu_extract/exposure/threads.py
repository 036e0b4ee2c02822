"""A group of ranks, and its reader and writer: threads of its first rank, at work while the group computes.

Kernels and most of what reading and writing consist of let other threads run,
and nothing has to be copied between them; bench/exposure.py measures what they
cost, and what a process would (doc/exposures.md).
"""
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from gpu_extract.data import Frame
from gpu_extract.exposure.frames import Loaded, Outcome, State, Work, as_error
from gpu_extract.perf.recorder import Recorder
from gpu_extract.seams import Comm, Numbers

AHEAD = 1              # frames read ahead of the one in work
_LOOK = 0.1            # seconds between two looks at the wish to stop


@dataclass(frozen=True)
class Group:
    """A group of ranks at work.

    number: which; comm: its ranks; stop: the wish to stop, once it is set
    numbers: hands out frames (the first rank of a group takes them)
    recorder: of this rank; detail: have it keep every stage of every bundle
    tell: called with every outcome as it comes, by any thread
    """

    number: int
    comm: Comm
    numbers: Numbers
    stop: threading.Event
    recorder: Recorder
    detail: bool = False
    tell: Callable[[Outcome], None] = lambda outcome: None
    outcomes: list[Outcome] = field(default_factory=list)

    def note(self, outcome: Outcome) -> None:
        """Keep an outcome, and tell it."""
        outcome = replace(outcome, group=self.number)
        self.outcomes.append(outcome)
        self.tell(outcome)


class _Helper:
    """A thread whose errors are not lost: what is not a frame's failure stops the run, and is raised by `close`."""

    def __init__(self, name: str, work: Work, group: Group):
        self._work, self._group = work, group
        self._broken: Exception | None = None
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """What the thread does."""

    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as error:
            self._broken = error
            self._group.stop.set()

    def _join(self) -> None:
        self._thread.join()
        if self._broken is not None:
            raise as_error(self._broken) from self._broken


class Reader(_Helper):
    """Reads the next frame while one is in work; holds AHEAD frames at most beside that one.

    Where no frame is left and the group has nothing to do, it borrows what another has read and not begun.
    """

    def __init__(self, work: Work, group: Group):
        self._numbers = group.numbers
        self._closed = False
        self._room = threading.Semaphore(AHEAD + 1)
        self._ready: queue.Queue[tuple[int, Loaded] | None] = queue.Queue()
        super().__init__("reader", work, group)

    def next(self) -> tuple[int, Loaded] | None:
        """The next frame that could be read, None where there is no more or the run is to stop."""
        while not self._group.stop.is_set():
            try:
                found = self._ready.get(timeout=_LOOK)
            except queue.Empty:
                continue
            if found is None:
                return None
            if self._numbers.begin(found[0]) and self._claim(found[0]):
                return found
            self.done()
        return None

    def _claim(self, number: int) -> bool:
        """Whether a frame that was begun is this run's to make; of another's is told."""
        try:
            state = self._work.claim(number)
        except Exception as error:
            self._group.note(failed(number, error))
            return False
        if state is not None:
            self._group.note(Outcome(number, state))
        return state is None

    def done(self) -> None:
        """The frame that `next` gave is not needed any more: there is room for another."""
        self._room.release()

    def close(self) -> None:
        """Take no more, and wait for the end of what is being read."""
        self._closed = True
        self._room.release(AHEAD + 1)
        self._join()

    def _run(self) -> None:
        while not self._group.stop.is_set():
            self._room.acquire()
            number = self._take()
            if number is None:
                self._ready.put(None)
                return
            loaded = self._load(number)
            if loaded is None:
                self._room.release()
            else:
                self._ready.put((number, loaded))
            del loaded

    def _take(self) -> int | None:
        """The next number; where there is none, one of another group, once there is nothing to do here."""
        number = None if self._closed else self._numbers.hold()
        if number is None:
            for _ in range(AHEAD):
                self._room.acquire()
            number = None if self._closed else self._numbers.borrow()
            self._room.release(AHEAD)
        return number

    def _load(self, number: int) -> Loaded | None:
        """A frame's input; None where there is nothing to do or it cannot be read."""
        try:
            with self._group.recorder.span("look"):
                done = self._work.is_done(number)
            if done:
                self._tell(Outcome(number, State.SKIPPED))
                return None
            with self._group.recorder.span("read"):
                return self._work.read(number)
        except Exception as error:
            self._tell(failed(number, error))
            return None

    def _tell(self, outcome: Outcome) -> None:
        """Tell of a frame that is not worked on, if it is not another group's by now."""
        if self._numbers.begin(outcome.number):
            self._group.note(outcome)


class Writer(_Helper):
    """Writes one frame while the next is in work."""

    def __init__(self, work: Work, group: Group):
        self._room = threading.Semaphore(1)
        self._ready: queue.Queue[tuple[Outcome, Loaded, Frame] | None] = queue.Queue()
        super().__init__("writer", work, group)

    def put(self, outcome: Outcome, loaded: Loaded, frame: Frame) -> None:
        """Have a frame written; waits for the one before."""
        while not self._room.acquire(timeout=_LOOK):
            if self._broken is not None:
                return
        self._ready.put((outcome, loaded, frame))

    def close(self) -> None:
        """Wait until everything is written."""
        self._ready.put(None)
        self._join()

    def _run(self) -> None:
        while True:
            item = self._ready.get()
            if item is None:
                return
            self._write(*item)
            del item
            self._room.release()

    def _write(self, outcome: Outcome, loaded: Loaded, frame: Frame) -> None:
        try:
            with self._group.recorder.span("write"):
                self._work.write(outcome.number, loaded, frame)
        except Exception as error:
            outcome = failed(outcome.number, error)
        self._work.release(outcome.number)
        self._group.note(outcome)


def failed(number: int, error: Exception) -> Outcome:
    """The outcome of a frame that fails with this error."""
    ours = as_error(error)
    return Outcome(number, State.FAILED, words=str(ours), code=int(ours.code))
