"""The results of a sweep: one row for each point, with medians and spreads over its repeats."""
import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from gpu_extract.errors import InputError
from gpu_extract.perf.record import Run, read_run
from gpu_perf.metrics import EXTRACTION, Metrics, pop_metrics, windows
from gpu_perf.outcomes import Outcome, load
from gpu_perf.sweep import RECORDS, Point, point_of

METRICS = {"load balance": "load_balance", "communication eff.": "communication_efficiency",
           "parallel eff.": "parallel_efficiency", "computation scaling": "computation_scaling"}
Spread = tuple[float, float, float]      # lowest, median, highest


@dataclass(frozen=True)
class Repeat:
    """One run of a point: seconds of the command, from start to end of the ranks, and of the extraction; its record."""

    seconds: Mapping[str, float]
    run: Run


@dataclass(frozen=True)
class Row:
    """A point with its results.

    repeats: by number; efficiency: of each repeat that the base point also has; failed: what went wrong, one line each
    metrics: POP metrics of the extraction in each repeat, against the base point of the same repeat
    """

    point: Point
    repeats: Mapping[int, Repeat]
    efficiency: Mapping[int, float]
    metrics: Mapping[int, Metrics]
    failed: tuple[str, ...] = ()

    def seconds(self, time: str) -> Spread | None:
        """Lowest, median, highest of the repeats."""
        return spread(r.seconds[time] for r in self.repeats.values())

    def metric(self, name: str) -> Spread | None:
        """The same of a POP metric."""
        return spread(v for m in self.metrics.values() if (v := getattr(m, METRICS[name])) is not None)


def spread(values: Iterable[float]) -> Spread | None:
    """Lowest, median and highest; None of an empty list."""
    known = list(values)
    return (min(known), statistics.median(known), max(known)) if known else None


def read_rows(folder: Path, time: str) -> list[Row]:
    """The rows of a sweep's folder, in its order; efficiencies are of `time`: command, run or extract.

    Missing or damaged records are named in their row. Raises InputError if the folder holds no sweep.
    """
    found: dict[Point, dict[int, Repeat]] = {}
    failed: dict[Point, list[str]] = {}
    for outcome in load(folder):
        point = point_of(outcome.facts)
        repeats, said = found.setdefault(point, {}), failed.setdefault(point, [])
        try:
            repeats[outcome.repeat] = _repeat(folder, point, outcome)
        except InputError as error:
            said.append(f"{point.name} repeat {outcome.repeat}: {error}")
    if not found:
        raise InputError(f"{folder}: no point of the sweep has been run yet: start gpu_sweep run again")
    return [_row(point, found, tuple(failed[point]), time) for point in found]


def _repeat(folder: Path, point: Point, outcome: Outcome) -> Repeat:
    if outcome.status != "ok":
        raise InputError(f"{outcome.status}: {outcome.said}")
    run = read_run(folder / RECORDS / f"{point.name}.{outcome.repeat}.json")
    if len(run.ranks) != point.ranks:
        raise InputError(f"its record has {len(run.ranks)} ranks, must have {point.ranks}: the launcher does not fit "
                         "the MPI; give --launcher")
    return Repeat({"command": outcome.seconds, "run": max(w.seconds for w in windows(run)),
                   EXTRACTION: max(w.seconds for w in windows(run, EXTRACTION))}, run)


def _row(point: Point, found: Mapping[Point, Mapping[int, Repeat]], failed: tuple[str, ...], time: str) -> Row:
    """The results of a point, relative to the point of its series with results on the fewest ranks."""
    first = min([p for p in found if p.series == point.series and found[p]] or [point], key=lambda p: p.ranks)
    repeats, others = found[point], found[first]
    efficiency, metrics = {}, {}
    for number, repeat in repeats.items():
        if number not in others:
            continue
        gain = others[number].seconds[time] / repeat.seconds[time]
        efficiency[number] = gain * first.ranks / point.ranks if point.mode == "strong" else gain
        own, other = windows(repeat.run, EXTRACTION), windows(others[number].run, EXTRACTION)
        share = point.nspec / first.nspec      # weak scaling: the work grows with the ranks
        metrics[number] = pop_metrics([w.seconds for w in own], [w.useful for w in own],
                                      ([w.seconds for w in other], [share * w.useful for w in other]))
    return Row(point, repeats, efficiency, metrics, failed)


@dataclass(frozen=True)
class Curve:
    """One curve: its panel's row ("strong" or "weak"), its name, and for each number of ranks seconds, efficiency
    and POP metrics, each with its spread; published: drawn in grey"""

    mode: str
    label: str
    seconds: Mapping[int, Spread]
    efficiency: Mapping[int, Spread]
    metrics: Mapping[str, Mapping[int, Spread]] = field(default_factory=dict)
    published: bool = False


@dataclass(frozen=True)
class Published:
    """A published scaling: mode, label, seconds by number of ranks."""

    mode: str
    label: str
    seconds: Mapping[int, float]

    @property
    def efficiency(self) -> dict[int, float]:
        """Against its point with the fewest ranks."""
        first = min(self.seconds)
        return {n: self.seconds[first] / s * (first / n if self.mode == "strong" else 1)
                for n, s in self.seconds.items()}


def published() -> list[Published]:
    """The scaling measured at the hackathon of 2020 (etc/hackathon-2020.json)."""
    return [Published(s["mode"], s["label"], {int(n): float(v) for n, v in s["seconds"].items()})
            for s in _published()["series"]]


def is_published_work(row: Row) -> bool:
    """Whether a point does the published work for its mode: as many fibres, over all bins of a frame."""
    known = _published()["work"]
    done = [repeat.run.facts.get("problem") or {} for repeat in row.repeats.values()]
    fibres = known["strong"] if row.point.mode == "strong" else known["weak"] * row.point.ranks
    return bool(done) and all(d.get("fibres") == fibres and d.get("bins", 0) >= known["bins"] for d in done)


def published_source() -> str:
    """What was measured there, in words."""
    return str(_published()["source"])


def _published() -> dict[str, Any]:
    text = resources.files("gpu_extract").joinpath("etc", "hackathon-2020.json").read_text(encoding="utf-8")
    return dict(json.loads(text))
