"""A group of ranks, and its reader and writer: threads of its first rank that work while the group computes.

Kernels and most of what reading and writing consist of let other threads run,
and nothing has to be copied between them; bench/exposure.py measures what they
cost, and what a process would (doc/exposures.md).
"""
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any

from gpu_extract.data import Frame
from gpu_extract.exposure.frames import Loaded, Outcome, State, Work, as_error
from gpu_extract.perf.recorder import Recorder
from gpu_extract.seams import Comm, Numbers

_LOOK = 0.1            # seconds between two checks of the stop flag


@dataclass(frozen=True)
class Group:
    """A group of ranks at work.

    number: of the group; comm: its ranks; stop: the stop flag
    numbers: assigns frames (to the first rank of a group)
    recorder: of this rank; detail: whether it keeps every stage of every bundle
    tell: called with every outcome at once, by any thread
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
        """Keep an outcome, and report it."""
        outcome = replace(outcome, group=self.number)
        self.outcomes.append(outcome)
        self.tell(outcome)


class _Helper:
    """A thread that does one thing at a time. An error that is not a frame's failure stops the run, and is raised by
    `close`."""

    def __init__(self, name: str, work: Work, group: Group):
        self._work, self._group = work, group
        self._pool = ThreadPoolExecutor(1, name)
        self._last: Future[Any] | None = None

    def _begin(self, task: Callable[..., Any], *args: Any) -> None:
        self._last = self._pool.submit(self._guarded, task, *args)

    def _guarded(self, task: Callable[..., Any], *args: Any) -> Any:
        try:
            return task(*args)
        except Exception:
            self._group.stop.set()
            raise

    def close(self) -> None:
        """Wait for the current task; no further one is started."""
        self._pool.shutdown()
        error = self._last and self._last.exception()
        if isinstance(error, Exception):
            raise as_error(error) from error


class Reader(_Helper):
    """Reads the next frame while one is extracted.

    If no frame is left and the group is idle, it takes over a frame that another group has read but not started.
    """

    def __init__(self, work: Work, group: Group):
        super().__init__("reader", work, group)
        self._numbers = group.numbers
        self._begin(self._read, self._numbers.hold)

    def next(self) -> tuple[int, Loaded] | None:
        """The next frame that could be read, None if there are no more or the run has to stop."""
        while True:
            found = self._awaited()
            if found is None and not self._group.stop.is_set():
                self._begin(self._read, self._numbers.borrow)
                found = self._awaited()
            if found is None:
                return None
            self._begin(self._read, self._numbers.hold)
            if self._numbers.begin(found[0]) and self._claim(found[0]):
                return found

    def _awaited(self) -> tuple[int, Loaded] | None:
        """The frame being read, once it is complete; None if there is none, or the run has to stop."""
        while not self._group.stop.is_set():
            if self._last is not None and wait([self._last], _LOOK).done and not self._group.stop.is_set():
                return self._last.result()
        return None

    def _claim(self, number: int) -> bool:
        """Whether a started frame is claimed by this run; otherwise its outcome is noted."""
        try:
            state = self._work.claim(number)
        except Exception as error:
            self._group.note(failed(number, error))
            return False
        if state is not None:
            self._group.note(Outcome(number, state))
        return state is None

    def _read(self, take: Callable[[], int | None]) -> tuple[int, Loaded] | None:
        """The first assigned frame that has to be made and can be read; None if there is none."""
        while not self._group.stop.is_set() and (number := take()) is not None:
            loaded = self._load(number)
            if loaded is not None:
                return number, loaded
        return None

    def _load(self, number: int) -> Loaded | None:
        """A frame's input; None if there is nothing to do or it cannot be read."""
        try:
            with self._group.recorder.span("look"):
                done = self._work.is_done(number)
            if not done:
                with self._group.recorder.span("read"):
                    return self._work.read(number)
            outcome = Outcome(number, State.SKIPPED)
        except Exception as error:
            outcome = failed(number, error)
        if self._numbers.begin(number):           # unless another group has taken it
            self._group.note(outcome)
        return None


class Writer(_Helper):
    """Writes one frame while the next is extracted."""

    def __init__(self, work: Work, group: Group):
        super().__init__("writer", work, group)

    def put(self, outcome: Outcome, loaded: Loaded, frame: Frame) -> None:
        """Let a frame be written; waits for the previous one."""
        if self._last is None or self._last.exception() is None:
            self._begin(self._write, outcome, loaded, frame)

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
