"""Threads of the host: they do the work that a device leaves to the CPU, and fill pinned memory for it."""
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Condition
from typing import TypeVar

T = TypeVar("T")
Work = Callable[[], None]


class Crew:
    """Does jobs on up to `threads` threads; if that is one, at once in the caller's thread.

    The threads start when there is work for them. They and their work space stay until `close`. After an error no job
    is started until `finish` has raised it.
    """

    def __init__(self, threads: int):
        self.threads = threads
        self._pool = self._new_pool()
        self._todo: deque[Work] = deque()
        self._running = 0       # changed by these threads alone, which no signal interrupts
        self._error: BaseException | None = None
        self._change = Condition()

    @property
    def share(self) -> int:
        """The threads that each job may use if all unfinished jobs use equally many."""
        return max(self.threads // max(self._running + len(self._todo), 1), 1)

    def add(self, works: Sequence[Work], *, first: bool = False) -> None:
        """Queue jobs; they may add others.

        first: put them before all that have not started, so that what is in progress is finished, and its memory freed,
            before anything new begins
        """
        if self.threads == 1:
            for work in works:
                work()
            return
        with self._change:
            if self._error is not None:
                return
            if first:
                self._todo.extendleft(reversed(works))
            else:
                self._todo.extend(works)
            for _ in works:
                self._pool.submit(self._next)

    def _next(self) -> None:
        """Do the next job, if it was not dropped."""
        with self._change:
            if not self._todo:
                return
            work = self._todo.popleft()
            self._running += 1
        try:
            work()
        except BaseException as error:      # `finish` raises it in the caller's thread
            with self._change:
                self._error = self._error or error
                self._todo.clear()
        with self._change:
            self._running -= 1
            self._change.notify_all()

    def _wait(self) -> None:
        self._change.wait_for(lambda: not self._running and not self._todo)

    def finish(self) -> None:
        """Wait until all jobs have ended; then raises the first error, if there was any."""
        with self._change:
            self._wait()
            error, self._error = self._error, None
        if error is not None:
            raise error

    @contextmanager
    def nothing_left(self) -> Iterator[None]:
        """Context after which no job runs, however it ends: after an error, jobs that have not started are dropped."""
        try:
            yield
            self.finish()
        except BaseException:
            with self._change:
                self._todo.clear()
                self._wait()
                self._error = None
            raise

    def each(self, function: Callable[[T], None], items: Sequence[T], most: int) -> None:
        """Call `function` for every item, on up to `most` threads, and wait; no other jobs may be in progress."""
        count = min(most, self.threads, len(items))
        with self.nothing_left():
            self.add([partial(_all, function, items[n::count]) for n in range(count)])

    def _new_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.threads, "left to the CPU")

    def close(self) -> None:
        """End the threads; they start again when needed."""
        self._pool.shutdown()
        self._pool = self._new_pool()


def _all(function: Callable[[T], None], items: Sequence[T]) -> None:
    for item in items:
        function(item)
