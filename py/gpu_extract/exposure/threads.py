"""The reader and the writer of a group: threads of its first rank, at work while the group computes.

Kernels and most of what reading and writing consist of let other threads run,
and nothing has to be copied between them; bench/exposure.py measures what they
cost, and what a process would (doc/exposures.md).
"""
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from gpu_extract.data import Frame
from gpu_extract.exposure.frames import Loaded, Outcome, State, Work, as_error
from gpu_extract.seams import Numbers, Recorder

AHEAD = 1              # frames read ahead of the one in work
_LOOK = 0.1            # seconds between two looks at the wish to stop
Tell = Callable[[Outcome], None]


@dataclass(frozen=True)
class Tools:
    """What both threads use: the frames, the recorder, the wish to stop, and whom to tell of a frame's end."""

    work: Work
    recorder: Recorder
    stop: threading.Event
    tell: Tell


class _Helper:
    """A thread whose errors are not lost: what is not a frame's failure stops the run, and is raised by `close`."""

    def __init__(self, name: str, tools: Tools):
        self._tools = tools
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
            self._tools.stop.set()

    def _join(self) -> None:
        self._thread.join()
        if self._broken is not None:
            raise as_error(self._broken) from self._broken


class Reader(_Helper):
    """Reads the next frame while one is in work; holds AHEAD frames at most beside that one.

    Where no frame is left and the group has nothing to do, it borrows what another has read and not begun.
    """

    def __init__(self, tools: Tools, numbers: Numbers):
        self._numbers = numbers
        self._closed = False
        self._room = threading.Semaphore(AHEAD + 1)
        self._ready: queue.Queue[tuple[int, Loaded] | None] = queue.Queue()
        super().__init__("reader", tools)

    def next(self) -> tuple[int, Loaded] | None:
        """The next frame that could be read, None where there is no more or the run is to stop."""
        while not self._tools.stop.is_set():
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
            state = self._tools.work.claim(number)
        except Exception as error:
            self._tools.tell(failed(number, error))
            return False
        if state is not None:
            self._tools.tell(Outcome(number, state))
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
        while not self._tools.stop.is_set():
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
        tools = self._tools
        try:
            with tools.recorder.span("look"):
                done = tools.work.is_done(number)
            if done:
                self._tell(Outcome(number, State.SKIPPED))
                return None
            with tools.recorder.span("read"):
                return tools.work.read(number)
        except Exception as error:
            self._tell(failed(number, error))
            return None

    def _tell(self, outcome: Outcome) -> None:
        """Tell of a frame that is not worked on, if it is not another group's by now."""
        if self._numbers.begin(outcome.number):
            self._tools.tell(outcome)


class Writer(_Helper):
    """Writes one frame while the next is in work."""

    def __init__(self, tools: Tools):
        self._room = threading.Semaphore(1)
        self._ready: queue.Queue[tuple[Outcome, Loaded, Frame] | None] = queue.Queue()
        super().__init__("writer", tools)

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
        tools = self._tools
        try:
            with tools.recorder.span("write"):
                tools.work.write(outcome.number, loaded, frame)
        except Exception as error:
            outcome = failed(outcome.number, error)
        tools.work.release(outcome.number)
        tools.tell(outcome)


def failed(number: int, error: Exception) -> Outcome:
    """The outcome of a frame that fails with this error."""
    ours = as_error(error)
    return Outcome(number, State.FAILED, words=str(ours), code=int(ours.code))
