"""Converts a record to the trace format of Chrome, which ui.perfetto.dev and chrome://tracing open."""
from collections.abc import Iterator
from typing import Any

from gpu_extract.perf.record import Rank, Run, is_communication

_MICRO = 1e6
_DEVICE_LANE = 1000        # the "thread" of the device


def trace_of(run: Run) -> dict[str, Any]:
    """The trace: one process for each rank, one lane for each thread and one for the device; times in us.

    Ranks are aligned by the clocks of their machines.
    """
    zero = min(r.epoch - r.start_up for r in run.ranks)
    events = [event for rank in run.ranks for event in _events(rank, zero)]
    return {"traceEvents": events, "displayTimeUnit": "ms",
            "otherData": {k: str(v) for k, v in run.facts.items() if isinstance(v, (str, int, float))}}


def _events(rank: Rank, zero: float) -> Iterator[dict[str, Any]]:
    pid, begin = rank.rank, rank.epoch - zero
    yield _meta("process_name", pid, 0, f"rank {rank.rank} on {rank.host or 'this machine'}")
    yield {"name": "process_sort_index", "ph": "M", "pid": pid, "tid": 0, "args": {"sort_index": rank.rank}}
    for thread in sorted({s.thread for s in rank.spans} | {0}):
        yield _meta("thread_name", pid, thread, "main" if thread == 0 else f"thread {thread}")
    if rank.start_up:
        yield _complete("start up", "start", pid, 0, begin - rank.start_up, rank.start_up)
    for span in rank.spans:
        kind = "communication" if is_communication(span) else "stage"
        yield {**_complete(span.name, kind, pid, span.thread, begin + span.start, span.seconds),
               "args": {"CPU seconds": span.cpu}}
    if rank.device:
        yield _meta("thread_name", pid, _DEVICE_LANE, str(rank.device["facts"].get("name", "device")))
        for name, start, seconds in rank.device["spans"]:
            yield _complete(name, "device", pid, _DEVICE_LANE, begin + start, seconds)


def _complete(name: str, kind: str, pid: int, tid: int, start: float, seconds: float) -> dict[str, Any]:
    return {"name": name, "cat": kind, "ph": "X", "pid": pid, "tid": tid,
            "ts": round(_MICRO * max(start, 0.0), 3), "dur": round(_MICRO * seconds, 3)}


def _meta(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
