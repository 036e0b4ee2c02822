"""Times for code without a recorder: stop watches, time stamps, waits.

Every clock of the project is read here or in the recorder. On one machine `now`
is the same clock in every process (CLOCK_MONOTONIC); between machines only
`epoch` can be compared, as well as their clocks are kept.
"""
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

now = time.perf_counter         # seconds of a clock that never steps; only differences are meaningful
epoch = time.time               # seconds since 1970-01-01 UTC
cpu = time.process_time         # CPU seconds of this process, all threads
thread_cpu = time.thread_time   # CPU seconds of the calling thread
sleep = time.sleep

START = 19           # of process_state: ticks from the start of the system to that of the process
INTERPRETER = "interpreter"      # the first step of a start-up


def stamp(seconds: float) -> str:
    """An epoch time as text, UTC, e.g. 2026-03-01 22:15:07."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


_birth: list[float] = []      # of the process that this one represents, if not its own


def process_age() -> float:
    """Seconds since the start of this process, or of the parent that it represents; 0 if the system does not report
    it."""
    age = _own_age()
    return max(time.clock_gettime(time.CLOCK_BOOTTIME) - _birth[0], age) if _birth else age


def children_count_as_this() -> None:
    """Let forked processes count as started with this one, because they continue the same command."""
    age = _own_age()
    if age > 0 and not _birth:
        _birth.append(time.clock_gettime(time.CLOCK_BOOTTIME) - age)


def _own_age() -> float:
    told = process_state("self")
    if not told:
        return 0.0
    return max(time.clock_gettime(time.CLOCK_BOOTTIME) - int(told[START]) / os.sysconf("SC_CLK_TCK"), 0.0)


def process_state(pid: int | str) -> list[str]:
    """Linux's fields of a process after its name (proc(5), stat): its state, .., START; empty on other systems."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


class StartUp:
    """The start-up time of a process, step by step. Make it as early as possible: the time before it counts as the
    interpreter's.

    steps: name -> (wall seconds, CPU seconds), in their order
    """

    def __init__(self) -> None:
        self.steps: dict[str, tuple[float, float]] = {INTERPRETER: (process_age(), cpu())}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Context that times a step."""
        wall, used = now(), cpu()
        try:
            yield
        finally:
            before = self.steps.get(name, (0.0, 0.0))
            self.steps[name] = before[0] + now() - wall, before[1] + cpu() - used
