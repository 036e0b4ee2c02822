"""The results in a campaign's folder, as one row per set."""
import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpu_extract.errors import InputError
from gpu_perf.outcomes import Outcome, load, planned, severity
from gpu_perf.shapes import count, fits, number, positive, text, whole
from gpu_stress.lines import together
from gpu_stress.nvml import throttled
from gpu_stress.sampler import read_samples
from gpu_stress.spec import DTYPES

MACHINE = "machine.json"
PAUSE = 5.0           # seconds: samples further apart belong to different runs
MEASURED = "ok", "wrong"       # statuses whose processes have results
Key = tuple[str, str, str, str]


def _span(value: Any) -> bool:
    return fits(value, [number]) and len(value) == 2


def _blocks(value: Any) -> bool:
    return fits(value, [_span]) and len(value) > 1


def _modules(value: Any) -> bool:
    return isinstance(value, dict) and fits(list(value.values()), [{"module": text, "version": text, "device": text}])


_MACHINE = {"host": text, "processor": (text, None), "cores": positive, "memory": (number, None), "modules": _modules}
_FACTS = {"module": text, "test": text, "shape": [count], "elements": whole, "dtype": DTYPES.__contains__,
          "procs": count}
_RESULT = {"cycles": positive, "interval": _span, "progress": _blocks, "nbytes": number, "up": number, "down": number,
           "flop": (number, None), "cycle": {"median": number, "p16": number, "p84": number}, "errors": count,
           "checked": whole, "message": text}


@dataclass(frozen=True)
class Row:
    """One set with all its repeats: the rates of its processes together while all of them worked.

    rate: cycles per second, the median over repeats; low, high: its extremes
    one_way: bytes per second, one array a cycle; both_ways: bytes moved per second; flops: or None
    cycle: median seconds of a cycle in one process, without checks; spread: half the range from the
        16th to the 84th percentile, relative
    status, message: of the worst repeat; rates are of those that are "ok" or "wrong", None if none is
    """

    module: str
    test: str
    shape: str
    elements: int
    dtype: str
    procs: int
    status: str
    message: str
    repeats: int
    rate: float | None
    low: float | None
    high: float | None
    one_way: float | None
    both_ways: float | None
    flops: float | None
    cycle: float | None
    spread: float | None
    errors: int
    checked: int

    @property
    def key(self) -> Key:
        """The key of sets that differ only in the number of processes."""
        return self.module, self.test, self.shape, self.dtype


@dataclass(frozen=True)
class Load:
    """The state of the machine during a set: means, and extremes where these matter; None if not sampled."""

    name: str
    samples: int
    cores: float | None
    memory: float
    gpu_load: float | None = None
    gpu_memory: float | None = None
    power: float | None = None
    clock: float | None = None
    hottest: float | None = None
    throttle: tuple[str, ...] = ()


@dataclass(frozen=True)
class Campaign:
    """A folder: its machine, rows, samples.

    planned: sets of its plan, including repeats; done: those with an outcome
    """

    label: str
    machine: dict[str, Any]
    rows: tuple[Row, ...]
    samples: tuple[dict[str, Any], ...]
    planned: int
    done: int


def read_campaign(folder: Path, label: str | None = None) -> Campaign:
    """Read a folder; raises InputError if it holds no campaign of the stressor."""
    outcomes = load(folder)
    try:
        machine = json.loads((folder / MACHINE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{folder} holds no campaign of gpu_stress ({MACHINE} cannot be read): give another "
                         "folder") from error
    if not fits(machine, _MACHINE):
        raise InputError(f"{folder / MACHINE} does not describe a machine: give another folder")
    name = str(label or machine["host"])
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        results = [p.result for p in outcome.processes] if outcome.status in MEASURED else []
        if not fits(outcome.facts, _FACTS) or not fits(results, [_RESULT]):
            raise InputError(f"{folder} holds a campaign of another program, or the output of {outcome.name} is "
                             "damaged: give a folder of gpu_stress")
        groups.setdefault(outcome.name, []).append(outcome)
    rows = [_row(group) for group in groups.values()]
    tests = list(dict.fromkeys((r.module, r.test) for r in rows))
    rows.sort(key=lambda r: (tests.index((r.module, r.test)), r.elements, r.shape, DTYPES.index(r.dtype), r.procs))
    return Campaign(name, machine, tuple(rows), tuple(read_samples(folder)), planned(folder), len(outcomes))


def _row(outcomes: Sequence[Outcome]) -> Row:
    facts = outcomes[0].facts
    worst = max(outcomes, key=lambda o: severity(o.status))
    results = [[p.result or {} for p in o.processes] for o in outcomes if o.status in MEASURED]
    parts = [s for s in map(together, results) if s is not None]
    cycles = [r["cycle"] for group in results for r in group if r.get("cycle")]
    rates = [s.rate for s in parts]
    flops = [s.flops for s in parts if s.flops is not None]
    return Row(
        facts["module"], facts["test"], "x".join(map(str, facts["shape"])), facts["elements"], facts["dtype"],
        facts["procs"], worst.status, _message(worst), len(outcomes), _median(rates),
        min(rates, default=None), max(rates, default=None), _median(s.one_way for s in parts),
        _median(s.both_ways for s in parts), _median(flops), _median(c["median"] for c in cycles),
        _median((c["p84"] - c["p16"]) / 2 / c["median"] for c in cycles if c["median"]),
        sum(r.get("errors", 0) for group in results for r in group),
        sum(r.get("checked", 0) for group in results for r in group))


def _message(outcome: Outcome) -> str:
    """Why a set is not ok, with the first process that reports it."""
    for process in outcome.processes:
        if process.status == outcome.status and outcome.status != "ok":
            said = (process.result or {}).get("message") or process.said
            return f"process {process.index}: {said}" if len(outcome.processes) > 1 else said
    return ""


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    return statistics.median(known) if known else None


def gains(rows: Sequence[Row]) -> dict[tuple[Key, int], float]:
    """Rate of all processes together relative to that of one process alone, where both are known."""
    alone = {r.key: r.rate for r in rows if r.procs == 1 and r.rate}
    return {(r.key, r.procs): r.rate / alone[r.key] for r in rows if r.rate and alone.get(r.key)}


def loads(campaign: Campaign) -> list[Load]:
    """The load during each set, from the samples, in the order of the sets."""
    names = list(dict.fromkeys(s["set"] for s in campaign.samples))
    return [_load(name, [s for s in campaign.samples if s["set"] == name]) for name in names]


def _load(name: str, samples: Sequence[dict[str, Any]]) -> Load:
    busy = [rate for _, rate in cores_busy(samples)]
    gpus = [g for s in samples for g in s["gpus"]]

    def known(key: str) -> list[float]:
        return [g[key] for g in gpus if g.get(key) is not None]

    return Load(name, len(samples), statistics.fmean(busy) if busy else None,
                max(sum(p["rss"] for p in s["processes"]) for s in samples), _mean(known("load")),
                max(known("memory_used"), default=None), _mean(known("power")), _mean(known("clock_sm")),
                max(known("temperature"), default=None),
                tuple(dict.fromkeys(word for g in gpus for word in throttled(g))))


def cores_busy(samples: Sequence[dict[str, Any]]) -> list[tuple[float, float]]:
    """(epoch time, cores) that the processes of a set kept busy between successive samples of it."""
    points = []
    for before, after in pairwise(samples):
        earlier = {p["pid"]: p["cpu"] for p in before["processes"]}
        spent = [p["cpu"] - earlier[p["pid"]] for p in after["processes"] if p["pid"] in earlier]
        if spent and before["set"] == after["set"] and after["t"] > before["t"]:
            points.append((after["t"], sum(spent) / (after["t"] - before["t"])))
    return points


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def sampler_cost(campaign: Campaign) -> float | None:
    """Share of one core that sampling took: CPU seconds of the samples by the time between them."""
    gaps = [(after["t"] - before["t"], after["cost"]) for before, after in pairwise(campaign.samples)]
    running = [(gap, cost) for gap, cost in gaps if 0 < gap < PAUSE]
    return sum(cost for _, cost in running) / sum(gap for gap, _ in running) if running else None
