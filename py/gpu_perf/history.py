"""The history of a series: figures of each commit relative to a baseline commit, and their changes of level."""
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpu_extract.errors import InputError
from gpu_perf.changes import ALPHA, LEAST, Change, find_changes
from gpu_perf.measure import RUN_TIME
from gpu_perf.store import Commit, Store

SMALL = 0.02           # a stage below this share of the run time is drawn, but not judged


@dataclass(frozen=True)
class Point:
    """A component at a commit: lowest, median and highest of its repeats, and their number."""

    low: float
    median: float
    high: float
    repeats: int


@dataclass(frozen=True)
class History:
    """A series.

    commits: with results, by date; components: name -> commit hash -> point, the run time first
    baseline: the commit that 1.0 stands for; changes: component -> changes of level (places count the commits that have
    the component); failed: commit hash -> what happened
    """

    series: str
    commits: tuple[Commit, ...]
    components: Mapping[str, Mapping[str, Point]]
    baseline: Commit
    changes: Mapping[str, Sequence[Change]]
    failed: Mapping[str, str]

    def of(self, component: str) -> list[Commit]:
        """The commits that have a component, by date."""
        return [c for c in self.commits if c.hash in self.components[component]]


def history_of(store: Store, series: str, baseline: str | None = None) -> History:
    """The history of a series; baseline: a commit, by default the one chosen in the store, else the oldest.

    The probability of a false alarm is shared among the judged components.
    Raises InputError if nothing was measured, or the baseline was not.
    """
    measured = store.measured(series)
    commits = tuple(c for c in store.commits(series) if c.hash in measured)
    if not commits:
        happened = ", ".join(store.failures(series).values())
        raise InputError(f"{series}: no commit has a result: {happened or 'measure some'}")
    chosen = baseline or store.baseline(series)
    first = store.find(chosen) if chosen else commits[0]
    if first.hash not in measured:
        raise InputError(f"the baseline {first.hash[:10]} has no result in {series}: measure it, or choose another")
    names = list(dict.fromkeys(n for c in commits for n in measured[c.hash]))
    names.sort(key=lambda n: n != RUN_TIME)
    components = {n: {c.hash: _point(measured[c.hash][n]) for c in commits if n in measured[c.hash]} for n in names}
    judged = [n for n in names if _matters(components, n)]
    changes = {n: find_changes([measured[c.hash][n] for c in commits if c.hash in components[n]],
                               alpha=ALPHA / len(judged)) for n in judged}
    return History(series, commits, components, first, changes, store.failures(series))


def _point(values: Sequence[float]) -> Point:
    return Point(min(values), statistics.median(values), max(values), len(values))


def _matters(components: Mapping[str, Mapping[str, Point]], name: str) -> bool:
    """Whether a component is judged: it is positive everywhere, and not a tiny stage, whose times scatter without
    effect."""
    points = components[name]
    if any(p.low <= 0 for p in points.values()):
        return False
    if name.startswith("%"):
        return statistics.median(p.median for p in points.values()) >= 100 * SMALL
    whole = components.get(RUN_TIME, {})
    shares = [p.median / whole[c].median for c, p in points.items() if c in whole]
    return not shares or statistics.median(shares) >= SMALL


def verdict(history: History, since: Commit | None = None) -> list[str]:
    """One line for each standing regression: a component whose level now is worse than at the baseline (or `since`).

    A component that has recovered to within the least change is not mentioned.
    """
    start = since or history.baseline
    after = {c for c in history.commits if c.date > start.date}
    if start in history.commits:             # others may have its date
        after.update(history.commits[history.commits.index(start) + 1:])
    lines = []
    for name, changes in history.changes.items():
        own = history.of(name)
        later = [c for c in changes if own[c.place] in after]
        factor = 1.0
        for change in later:
            factor *= change.ratio
        worse = [c for c in later if c.ratio > 1]
        if worse and factor >= 1 + LEAST:
            last = worse[-1]
            commit = own[last.place]
            subject = f" ({commit.subject})" if commit.subject else ""
            lines.append(f"{name} is {factor:.3f} times what it was; {last.ratio:.3f} times since "
                         f"{commit.hash[:10]}{subject}, t = {last.t:.1f}, p = {last.p:.1g}")
    return lines
