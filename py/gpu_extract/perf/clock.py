"""Plain times for code that has no recorder: stop watches, time stamps, waits.

Every clock of the project is read here or in the recorder. On one machine `now`
is the same clock in every process (CLOCK_MONOTONIC); between machines only
`epoch` can be compared, as well as their clocks are kept.
"""
import os
import time
from datetime import UTC, datetime

# seconds of a clock that never steps; only differences mean something. Not wrapped: it is read around microseconds
now = time.perf_counter


def epoch() -> float:
    """Seconds since 1970-01-01 UTC."""
    return time.time()


def cpu() -> float:
    """CPU seconds of this process, all threads."""
    return time.process_time()


def thread_cpu() -> float:
    """CPU seconds of the calling thread."""
    return time.thread_time()


def sleep(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


def stamp(seconds: float) -> str:
    """An epoch time as text, UTC, e.g. 2026-03-01 22:15:07."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def process_age() -> float:
    """Seconds since this process was started; 0 where the system does not tell."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"), 0.0)
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0
