"""The record of a run over all its ranks, which --perf writes and all reports read.

    {"schema": 2, "program", "version", "commit", "versions", "config", "digest", "problem", "work",
     "ranks": [what recorder.Recorder.record returns, one for each rank]}
"""
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

from gpu_extract.errors import InputError, about, reading
from gpu_extract.perf.recorder import COMPILE, MPI, SCHEMA

T = TypeVar("T")
FACTS = {"program": str, "version": str, "commit": str, "digest": str, "processor": str, "mpi": str, "versions": dict,
         "config": dict, "problem": dict}
_LAST = 5e10         # seconds from 1970 to an epoch, before or after, that a calendar knows
_MOST_BINS = 1e6     # fibres, bins, rows of a band
BUNDLE = "halfband", "neighbours", "iterations"       # facts of each bundle for reports


@dataclass(frozen=True)
class Span:
    """One stage of one rank: seconds from the recorder's start, wall and CPU seconds, thread; depth 0 is outermost."""

    name: str
    depth: int
    start: float
    seconds: float
    cpu: float
    thread: int = 0

    @property
    def end(self) -> float:
        """Seconds from the recorder's start."""
        return self.start + self.seconds


@dataclass(frozen=True)
class Rank:
    """The record of one rank; times in seconds, sizes in bytes.

    start_up: from the start of the process to that of the recorder; elapsed: from there to the end
    calls: MPI call kind -> calls, seconds, bytes, wait; copies: direction -> calls, bytes, seconds
    device: facts, memory and spans [name, start, seconds] of its GPU, or None
    """

    rank: int
    host: str
    epoch: float
    start_up: float
    elapsed: float
    cpu: float
    cores: int
    peak_memory: int
    spans: tuple[Span, ...]
    counters: Mapping[str, float] = field(default_factory=dict)
    calls: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    copies: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    device: Mapping[str, Any] | None = None

    def top(self, wanted: str | None = None) -> list[Span]:
        """The outermost spans of the first thread, of one name or of all."""
        return [s for s in self.spans if s.depth == 0 and s.thread == 0 and wanted in (None, s.name)]

    @property
    def before(self) -> float:
        """Seconds from the start of the process to its first stage: the interpreter, imports, MPI."""
        return self.start_up + min((s.start for s in self.top()), default=self.elapsed)

    @property
    def unaccounted(self) -> float:
        """Seconds after that in none of its stages."""
        held = self.before + sum(s.seconds for s in self.top())
        return max(self.start_up + self.elapsed - held, 0.0)


@dataclass(frozen=True)
class Run:
    """A run: its ranks, in order, and the facts about it (program, version, commit, digest, ...)."""

    ranks: tuple[Rank, ...]
    facts: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The program, its commit and its ranks in a few words."""
        commit = self.facts.get("commit")
        return (f"{self.facts.get('program', 'a program')} {self.facts.get('version', '')}"
                f"{f' ({commit[:10]})' if commit else ''}, {len(self.ranks)} rank{'s' * (len(self.ranks) > 1)}")


def whole(ranks: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> dict[str, Any]:
    """One record from the records of all ranks; facts: program, version, commit, versions, config, digest, ..."""
    return {"schema": SCHEMA, **facts, "ranks": list(ranks)}


def read_run(path: Path) -> Run:
    """The run in a file of --perf; schema 1, without ranks and calls, is also read.

    Raises InputError if the file cannot be read or is something else.
    """
    return read_json(path, parse_run, "a file written by --perf")


def read_json(path: Path, parse: Callable[[Any], T], wanted: str) -> T:
    """The result of `parse` for a JSON file; errors name the file. Raises InputError. wanted: what to give instead."""
    try:
        with reading(path):
            content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not complete JSON ({error}): give {wanted}") from error
    with about(str(path)):
        return parse(content)


def parse_run(content: Any) -> Run:
    """The run in a record. Raises InputError if it is not one."""
    try:
        schema = content["schema"]
        if schema not in (1, SCHEMA):
            raise InputError(f"a record of schema {schema!r}, must be 1 to {SCHEMA}: use a newer gpu_perf")
        single = "ranks" not in content
        ranks = [_rank(r) for r in ([content] if single else content["ranks"])]
        facts = {k: v for k, v in content.items() if k not in ("ranks", "spans")}
        _check_facts(facts)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InputError("not a record of a run: give a file written by --perf") from error
    if not ranks:
        raise InputError("a record without ranks: give a file written by --perf")
    return Run(tuple(sorted(ranks, key=lambda r: r.rank)), facts)


def _check_facts(facts: Mapping[str, Any]) -> None:
    """Raise an error if a fact that reports use has the wrong type; each may be missing, or null."""
    for name, kind in FACTS.items():
        if not isinstance(facts.get(name), (kind, NoneType)):
            raise TypeError(name)
    problem = facts.get("problem") or {}
    notes = (problem.get("bundles") or {}).values()
    numbers = [*(problem[name] for name in ("fibres", "bins") if problem), *(problem.get("stamp") or ()),
               *(problem.get("pitch") or ()), *(each.get(name, 0) for each in notes for name in BUNDLE)]
    for number in numbers:
        _finite(number, _MOST_BINS)


def _rank(values: Mapping[str, Any]) -> Rank:
    spans = tuple(Span(str(s[0]), int(_finite(s[1])), _finite(s[2]), _finite(s[3]), _finite(s[4]),
                       int(_finite(s[5])) if len(s) > 5 else 0) for s in values["spans"])
    epoch, elapsed, start_up = _finite(values["epoch"], _LAST), _finite(values["elapsed"]), \
        _finite(values.get("start_up", 0.0))
    counts = {name: {kind: {what: _finite(number) for what, number in each.items()}
                     for kind, each in values.get(name, {}).items()} for name in ("calls", "copies")}
    device = values.get("device")
    if device is not None and not isinstance(device["facts"], dict):
        raise TypeError("device")
    return Rank(int(_finite(values["rank"])), str(values.get("host", "")), epoch, start_up, elapsed,
                _finite(values.get("cpu", 0.0)), int(_finite(values.get("cores", 1))),
                int(_finite(values["peak_memory"])), spans,
                {name: _finite(number) for name, number in values["counters"].items()}, counts["calls"],
                counts["copies"], device)


def _finite(value: Any, most: float = 1e20) -> float:
    """A number of a record, up to `most` either way. Raises ValueError or TypeError if it is not one."""
    if not math.isfinite(value) or abs(value) > most:
        raise ValueError(value)
    return value


def is_communication(span: Span) -> bool:
    """Whether a span is time spent in communication."""
    return span.name.startswith(MPI)


def outside(spans: Iterable[Span]) -> Iterator[Span]:
    """The spans outside compilations and communication."""
    hidden = -1                    # depth of the excluded span that holds the current one
    for span in spans:
        if hidden < 0 or span.depth <= hidden:
            hidden = span.depth if span.name == COMPILE or is_communication(span) else -1
            yield span
