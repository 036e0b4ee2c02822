"""Reads an export of Nsight Systems (nsys export --type sqlite) into plain lists.

Tables differ between versions, and are absent if they would have no rows, so they are looked up first. Times are
seconds from the first event. A kernel or copy belongs to the NVTX ranges that enclose, on the same thread, the runtime
call with its correlation number.
"""
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_extract.errors import InputError, check_local

KERNELS, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
COPIES, SETS = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
RANGES, STRINGS = "NVTX_EVENTS", "StringIds"
DIRECTIONS = {1: "h2d", 2: "d2h", 8: "d2d", 10: "peer"}
NO_RANGE = "(no NVTX range)"
_PUSH_POP, _START_END = 59, 60         # eventType of ranges
_NANO = 1e-9
_PROCESS = 24               # lowest bits of a globalTid or globalPid; the other bits are the process
_NEEDED = {KERNELS: ("start", "end"), COPIES: ("start", "end", "bytes", "copyKind"),
           RUNTIME: ("start", "globalTid", "correlationId"), RANGES: ("start", "end", "globalTid"),
           STRINGS: ("id", "value"), SETS: ("start", "end")}
_WHAT = {KERNELS: "kernels", COPIES: "copies", RUNTIME: "runtime calls (so kernels cannot be assigned to stages)",
         RANGES: "NVTX ranges (run with --nvtx to have stages)"}


@dataclass(frozen=True)
class Activity:
    """A kernel, copy or memset on a GPU: seconds; stage: names of its NVTX ranges from the outside in.

    kind: "kernel", a direction of DIRECTIONS, or "memset"; nbytes: of copies
    """

    kind: str
    name: str
    device: int
    stream: int
    start: float
    end: float
    stage: tuple[str, ...]
    nbytes: int = 0

    @property
    def seconds(self) -> float:
        """Its duration."""
        return self.end - self.start


@dataclass(frozen=True)
class Range:
    """An NVTX range of a host thread, in seconds."""

    name: str
    thread: int
    start: float
    end: float


@dataclass(frozen=True)
class Profile:
    """The content of an export; missing: what it lacks, in words."""

    name: str
    activities: tuple[Activity, ...]
    ranges: tuple[Range, ...]
    missing: tuple[str, ...]


def read_profile(path: Path) -> Profile:
    """Read an export. Raises InputError if the file is not an export, is damaged, or has no GPU tables."""
    if not path.is_file():
        check_local(str(path))
        raise InputError(f"{path} cannot be read: no such file")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as base:
            return _read(base, path.name)
    except sqlite3.DatabaseError as error:
        raise InputError(f"{path} is not a complete SQLite file ({error}): make one with nsys export --type sqlite") \
            from error


def _read(base: sqlite3.Connection, name: str) -> Profile:
    usable = {table for table, needed in _NEEDED.items()
              if set(needed) <= {row[1] for row in base.execute(f'PRAGMA table_info("{table}")')}}
    if not usable & {KERNELS, COPIES, RANGES}:
        raise InputError(f"{name} is not an export of Nsight Systems: it has none of the tables {KERNELS}, {COPIES}, "
                         f"{RANGES} with their columns")
    missing = [f"{what}: the table {t} is absent or has other columns" for t, what in _WHAT.items() if t not in usable]
    base.row_factory = sqlite3.Row
    rows = {t: [dict(row) for row in base.execute(f'SELECT * FROM "{t}"')] for t in usable}
    words = {int(r["id"]): str(r["value"]) for r in rows.get(STRINGS, [])}
    starts = [r["start"] for t in (KERNELS, COPIES, RANGES, SETS) for r in rows.get(t, [])]
    zero = min(starts, default=0)
    ranges = _ranges(rows.get(RANGES, []), words, zero)
    stages = _stages(rows.get(RUNTIME, []), ranges, zero)
    found = [_activity(r, "kernel", _word(r, words), stages, zero) for r in rows.get(KERNELS, [])]
    found += [_activity(r, DIRECTIONS.get(int(r["copyKind"]), f"copy kind {r['copyKind']}"), "copy", stages, zero)
              for r in rows.get(COPIES, [])]
    found += [_activity(r, "memset", "memset", stages, zero) for r in rows.get(SETS, [])]
    return Profile(name, tuple(sorted(found, key=lambda a: a.start)), tuple(ranges), tuple(missing))


def _word(row: Mapping[str, Any], words: Mapping[int, str]) -> str:
    """A kernel's name: numbers into StringIds, or the text itself."""
    for key in ("shortName", "demangledName", "mangledName"):
        value = row.get(key)
        if value is not None:
            return words.get(value, f"kernel {value}") if isinstance(value, int) else str(value)
    return "kernel"


def _ranges(rows: Sequence[Mapping[str, Any]], words: Mapping[int, str], zero: int) -> list[Range]:
    found = []
    for row in rows:
        if row["end"] is None or row["globalTid"] is None or row.get("eventType", _PUSH_POP) not in (
                _PUSH_POP, _START_END):
            continue
        name = row.get("text") or words.get(row.get("textId") or -1) or "(no name)"
        found.append(Range(name, int(row["globalTid"]), _NANO * (row["start"] - zero), _NANO * (row["end"] - zero)))
    return sorted(found, key=lambda r: (r.thread, r.start, -r.end))


def _stages(calls: Sequence[Mapping[str, Any]], ranges: Sequence[Range],
            zero: int) -> dict[tuple[int, int], tuple[str, ...]]:
    """(process, correlation number) -> names of the ranges that enclose the runtime call, from the outside in."""
    by_thread: dict[int, list[Range]] = {}
    for r in ranges:
        by_thread.setdefault(r.thread, []).append(r)
    found: dict[tuple[int, int], tuple[str, ...]] = {}
    last: dict[int, tuple[int, list[Range]]] = {}
    for call in sorted(calls, key=lambda c: c["start"]):
        thread, at = int(call["globalTid"]), _NANO * (call["start"] - zero)
        own = by_thread.get(thread, [])
        place, held = last.get(thread, (0, []))
        while place < len(own) and own[place].start <= at:
            held.append(own[place])
            place += 1
        held = [r for r in held if r.end >= at]
        last[thread] = place, held
        found[thread >> _PROCESS, int(call["correlationId"])] = tuple(r.name for r in held)
    return found


def _activity(row: Mapping[str, Any], kind: str, name: str, stages: Mapping[tuple[int, int], tuple[str, ...]],
              zero: int) -> Activity:
    number = row.get("correlationId")
    stage: tuple[str, ...] | None = None
    if number is not None and row.get("globalPid") is not None:
        stage = stages.get((int(row["globalPid"]) >> _PROCESS, int(number)))
    elif number is not None:
        processes = {p for p, _ in stages}
        stage = stages.get((next(iter(processes)), int(number))) if len(processes) == 1 else None
    return Activity(kind, name, int(row.get("deviceId") or 0), int(row.get("streamId") or 0),
                    _NANO * (row["start"] - zero), _NANO * (row["end"] - zero), stage or (NO_RANGE,),
                    int(row.get("bytes") or 0))
