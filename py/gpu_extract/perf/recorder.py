"""The recorder: the only clock of the project.

A recorder is handed down as an argument. `span` times a stage, spans nest;
`count` adds to a named counter. The record is one JSON-ready dict:

    {"schema": 1, "rank": 0, "spans": [[name, depth, start, seconds, cpu_seconds], ...],
     "counters": {name: value}, "peak_memory": bytes}

Times are in seconds from the recorder's start. `NULL` takes the same calls and
does nothing, so that the mathematics never asks whether it is being watched.
"""
import resource
import sys
import time
from types import TracebackType
from typing import Any

SCHEMA = 1


class _Span:
    __slots__ = ("_recorder", "_index")

    def __init__(self, recorder: "Recorder", index: int):
        self._recorder = recorder
        self._index = index

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._recorder.close(self._index)


class Recorder:
    """Records nested spans and counters of one process."""

    def __init__(self, rank: int = 0):
        self.rank = rank
        self._zero = time.perf_counter()
        self._epoch = time.time()
        self._spans: list[list[Any]] = []
        self._depth = 0
        self._counters: dict[str, float] = {}

    def span(self, name: str) -> _Span:
        """A context manager that times what runs under it."""
        self._spans.append([name, self._depth, time.perf_counter() - self._zero, 0.0, time.process_time()])
        self._depth += 1
        return _Span(self, len(self._spans) - 1)

    def close(self, index: int) -> None:
        """End span number `index`; called by the context manager."""
        span = self._spans[index]
        span[3] = time.perf_counter() - self._zero - span[2]
        span[4] = time.process_time() - span[4]
        self._depth -= 1

    def count(self, name: str, value: float = 1) -> None:
        """Add `value` to counter `name`."""
        self._counters[name] = self._counters.get(name, 0) + value

    def seconds(self, name: str) -> float:
        """Wall seconds spent under all spans called `name`."""
        return sum(s[3] for s in self._spans if s[0] == name)

    def elapsed(self) -> float:
        """Seconds since the recorder was made."""
        return time.perf_counter() - self._zero

    def record(self) -> dict[str, Any]:
        """Everything recorded so far."""
        return {"schema": SCHEMA, "rank": self.rank, "epoch": self._epoch, "elapsed": self.elapsed(),
                "spans": [list(s) for s in self._spans], "counters": dict(self._counters),
                "peak_memory": peak_memory()}


class NullRecorder:
    """Takes a recorder's calls and does nothing."""

    rank = 0

    def span(self, name: str) -> "NullRecorder":
        """A context manager that does nothing."""
        return self

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    def count(self, name: str, value: float = 1) -> None:
        """Nothing."""


NULL = NullRecorder()


def peak_memory() -> int:
    """Peak resident memory of this process in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
