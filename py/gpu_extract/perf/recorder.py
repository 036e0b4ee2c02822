"""The recorder, with clock.py the only clock of the project.

A recorder is passed as an argument. seams.NULL accepts the same calls and does nothing, so that the mathematics does
not depend on whether it is recorded.

`record` returns plain values, ready for JSON (doc/formats.md). Times are
in seconds from the recorder's start. Spans whose name begins with `MPI` are time
spent in communication, with everything below them.
"""
import os
import platform
import resource
import sys
from threading import get_ident
from types import TracebackType
from typing import Any, Protocol

from gpu_extract import seams
from gpu_extract.perf.clock import cpu, epoch, now, process_age, thread_cpu
from gpu_extract.seams import NULL as NULL  # used by benches that run other commits (--against)

SCHEMA = 2
MPI = "mpi "                                                  # prefix of spans that are communication
COMPILE = "compile"                                           # compilation of kernels, in any stage
TO_DEVICE, TO_HOST = "h2d", "d2h"                             # directions of copies


class Device(Protocol):
    """The interface of a GPU backend for a recorder (`Recorder.watch`). All calls come from the host thread whose work
    is recorded; "now" is the present point of its current stream."""

    def push(self, name: str) -> None:
        """Open an NVTX range; called for every span, if `ranges` was requested."""

    def pop(self) -> None:
        """Close the last NVTX range opened by this thread."""

    def mark(self) -> Any:
        """An event recorded on the current stream now; does not wait."""

    def between(self, first: Any, second: Any) -> float:
        """Seconds on the device from one event to another, 0 without a clock; waits until both have happened."""

    def memory(self) -> int:
        """The most bytes of device memory that this process has held so far."""

    def facts(self) -> dict[str, Any]:
        """Plain values that describe the device: "name", "number", "memory" (bytes), and others."""


class Span(list[Any]):
    """A row of the record, [name, depth, start, seconds, CPU seconds, thread], which is a context manager while it is
    open, so that a span costs only one object."""

    __slots__ = ("marks", "recorder")
    recorder: "Recorder"
    marks: list[Any] | None

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.recorder.close(self)


class Recorder(seams.Recorder):
    """Records nested spans, counters, MPI calls, copies and device times of one process."""

    def __init__(self, rank: int = 0):
        self.rank = rank
        self.start_up = process_age()        # seconds between the start of the process and now
        self._zero = now()
        self._epoch = epoch()
        self._spans: list[Span] = []
        self._threads: dict[int, int] = {get_ident(): 0}
        self._depth = [0]                    # open spans of each thread
        self._counters: dict[str, float] = {}
        self._calls: dict[str, list[float]] = {}
        self._copies: list[tuple[str, int, Span]] = []
        self._device: Device | None = None
        self._ranges = False
        self._base: Any = None               # the event when the watch began, and the host's time of it
        self._based = 0.0
        self._timed: list[list[Any]] = []    # name, first event, second event

    def span(self, name: str) -> Span:
        """A context manager that times its body: wall and CPU seconds, on this thread."""
        ident = get_ident()
        thread = self._threads.get(ident)
        if thread is None:
            thread = self._threads[ident] = len(self._depth)
            self._depth.append(0)
        depth = self._depth[thread]
        self._depth[thread] = depth + 1
        if thread:                           # below the span in which the first thread waits for this one
            depth += self._depth[0]
        row = Span((name, depth, 0.0, 0.0, 0.0, thread))
        row.recorder, row.marks = self, None
        self._spans.append(row)
        if self._ranges and self._device is not None:
            self._device.push(name)
        row[4] = thread_cpu() if thread else cpu()
        row[2] = now() - self._zero
        return row

    def device_span(self, name: str) -> Span:
        """A span with device time; without a device, an ordinary span."""
        row = self.span(name)
        if self._device is not None:
            row.marks = [name, self._device.mark(), None]
            self._timed.append(row.marks)
        return row

    def copy(self, direction: str, nbytes: int) -> Span:
        """Record a copy. Its seconds are those on the device if there is one, else those of the host."""
        row = self.device_span(f"copy {direction}")
        self._copies.append((direction, nbytes, row))
        return row

    def count(self, name: str, value: float = 1) -> None:
        self._counters[name] = self._counters.get(name, 0) + value

    def call(self, kind: str, seconds: float, nbytes: int = 0, *, waits: bool = False) -> None:
        sums = self._calls.setdefault(kind, [0, 0.0, 0, 0.0])
        sums[0] += 1
        sums[1] += seconds
        sums[2] += nbytes
        sums[3] += seconds if waits else 0.0

    def watch(self, device: Device, *, ranges: bool = False) -> None:
        self._device, self._ranges = device, ranges
        self._base, self._based = device.mark(), self.elapsed()

    def close(self, row: Span) -> None:
        """End the span of this row; called by the context manager."""
        if row.marks is not None and self._device is not None:
            row.marks[2] = self._device.mark()
        row[3] = now() - self._zero - row[2]
        thread = row[5]
        row[4] = (thread_cpu() if thread else cpu()) - row[4]
        self._depth[thread] -= 1
        if self._ranges and self._device is not None:
            self._device.pop()

    def seconds(self, name: str) -> float:
        """Wall seconds spent under all spans called `name`."""
        return sum(s[3] for s in self._spans if s[0] == name)

    def elapsed(self) -> float:
        """Seconds since the recorder was made."""
        return now() - self._zero

    def record(self) -> dict[str, Any]:
        """Everything recorded so far; waits for the device if one is watched."""
        calls = {kind: dict(zip(("calls", "seconds", "bytes", "wait"), sums, strict=True))
                 for kind, sums in self._calls.items()}
        return {"schema": SCHEMA, "rank": self.rank, "host": platform.node(), "pid": os.getpid(),
                "epoch": self._epoch, "start_up": self.start_up, "elapsed": self.elapsed(),
                "cpu": cpu(), "cores": usable_cores(), "peak_memory": peak_memory(),
                "spans": [list(s) for s in self._spans], "counters": dict(self._counters), "calls": calls,
                "copies": self._copied(), "device": self._device_record()}

    def _copied(self) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for direction, nbytes, row in self._copies:
            sums = found.setdefault(direction, {"calls": 0, "bytes": 0, "seconds": 0.0})
            sums["calls"] += 1
            sums["bytes"] += nbytes
            _, first, second = row.marks or ("", None, None)
            on_device = self._device is not None and second is not None
            sums["seconds"] += self._device.between(first, second) if on_device and self._device else row[3]
        return found

    def _device_record(self) -> dict[str, Any] | None:
        device = self._device
        if device is None:
            return None
        spans = [[name, self._based + device.between(self._base, first), device.between(first, second)]
                 for name, first, second in self._timed if second is not None]
        return {"facts": device.facts(), "memory": device.memory(), "spans": spans}


def peak_memory() -> int:
    """Peak resident memory of this process in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(which_cores())


def which_cores() -> list[int]:
    """Their numbers, in order."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
