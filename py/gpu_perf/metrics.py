"""POP efficiency metrics of a run, and the times of each rank.

The formulas are those of pypop (metrics/mpi.py), for runs of one thread per rank. With U_r the useful time of rank r
(not in communication) and T the run time (the longest of the ranks'):

    parallel efficiency       mean(U) / T
    load balance              1 - (max(U) - mean(U)) / T
    communication efficiency  max(U) / T
    computation scaling       sum(U of the reference run) / sum(U)
    global efficiency         computation scaling x parallel efficiency
    speed-up                  T of the reference run / T

so that what is lost adds up: parallel efficiency = load balance + communication efficiency - 1.
"""
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gpu_extract.errors import InputError, did_you_mean
from gpu_extract.perf.record import Rank, Run, Span, is_communication, outside
from gpu_extract.perf.recorder import COMPILE

EXTRACTION = "extract"      # the stage that is the work itself
# pypop derives these from hardware counters, or from a replay on an ideal network: a record has neither
NOT_RECORDED = {
    "transfer efficiency": "needs a replay on an ideal network",
    "serialisation efficiency": "needs a replay on an ideal network",
    "instruction scaling": "needs hardware counters",
    "IPC scaling": "needs hardware counters",
    "frequency scaling": "needs hardware counters"}


@dataclass(frozen=True)
class Window:
    """The part of a rank's life to report on: seconds in all, and seconds of them in communication.

    times: (start, end) of its pieces, seconds from the recorder's start
    waiting: the part of communication spent in agreements, that is waiting for other ranks
    spans: those inside it, in order
    """

    rank: Rank
    times: tuple[tuple[float, float], ...]
    seconds: float
    communication: float
    waiting: float
    spans: tuple[Span, ...]

    @property
    def useful(self) -> float:
        """Seconds outside communication."""
        return self.seconds - self.communication

    @property
    def moving(self) -> float:
        """Seconds of communication without waiting."""
        return self.communication - self.waiting


@dataclass(frozen=True)
class Metrics:
    """The POP metrics: run_time in seconds, all others fractions; None without a reference run."""

    ranks: int
    run_time: float
    parallel_efficiency: float
    load_balance: float
    communication_efficiency: float
    computation_scaling: float | None = None
    global_efficiency: float | None = None
    speedup: float | None = None


def windows(run: Run, focus: str | None = None) -> list[Window]:
    """The window of each rank: its whole life (focus None), or its outermost spans of that name.

    Raises InputError if a rank has no such span.
    """
    found = []
    for rank in run.ranks:
        if focus is None:
            spans, seconds = rank.spans, rank.start_up + rank.elapsed
            times: tuple[tuple[float, float], ...] = ((-rank.start_up, rank.elapsed),)
        else:
            held = list(within(rank.spans, lambda span: span.name == focus))
            spans, own = tuple(span for _, span in held), [span for holder, span in held if span is holder]
            seconds, times = sum(s.seconds for s in own), tuple((s.start, s.end) for s in own)
            if not spans:
                names = sorted({s.name for s in rank.top()})
                raise InputError(f"rank {rank.rank} has no stage {focus!r}; its stages are {', '.join(names)}"
                                 + did_you_mean(focus, names))
        spent = sum(span.seconds for holder, span in within(spans, is_communication) if span is holder)
        waiting = sum(s.seconds for s in spans if s.name.endswith(" agree"))
        found.append(Window(rank, times, seconds, spent, waiting, spans))
    return found


def within(spans: Sequence[Span], wanted: Callable[[Span], bool]) -> Iterator[tuple[Span, Span]]:
    """Pairs (outermost wanted span of the first thread, a span inside it), beginning with itself."""
    holder: Span | None = None
    for span in spans:
        if span.thread == 0 and (holder is None or span.depth <= holder.depth):
            holder = span if wanted(span) else None
        if holder is not None:
            yield holder, span


def pop_metrics(seconds: Sequence[float], useful: Sequence[float],
                reference: tuple[Sequence[float], Sequence[float]] | None = None) -> Metrics:
    """The metrics from each rank's seconds in all and useful seconds; reference: the same of the run to compare with.

    Raises InputError if there is no rank or no time.
    """
    run_time = max(seconds, default=0.0)
    if run_time <= 0:
        raise InputError("no time was recorded: give the record of a run that did some work")
    mean, most = sum(useful) / len(useful), max(useful)
    efficiency = mean / run_time
    scaling = speedup = None
    if reference is not None and sum(useful) > 0:
        scaling = sum(reference[1]) / sum(useful)
        speedup = max(reference[0]) / run_time
    return Metrics(len(seconds), run_time, efficiency, 1 - (most - mean) / run_time, most / run_time, scaling,
                   None if scaling is None else scaling * efficiency, speedup)


def metrics_of(run: Run, reference: Run | None = None, focus: str | None = None) -> Metrics:
    """The metrics of a run, or of one stage of it."""
    own = windows(run, focus)
    other = None
    if reference is not None:
        first = windows(reference, focus)
        other = [w.seconds for w in first], [w.useful for w in first]
    return pop_metrics([w.seconds for w in own], [w.useful for w in own], other)


@dataclass(frozen=True)
class Stage:
    """One stage on all ranks: useful wall seconds and CPU seconds of each (communication in it left out).

    path: names from the outside in; threads: whether other threads than the first worked in it
    """

    path: tuple[str, ...]
    seconds: tuple[float, ...]
    cpu: tuple[float, ...]
    calls: int
    threads: bool = False

    @property
    def name(self) -> str:
        """The innermost name."""
        return self.path[-1]

    @property
    def mean(self) -> float:
        """Mean seconds of the ranks."""
        return sum(self.seconds) / len(self.seconds)

    @property
    def excess(self) -> float:
        """Seconds by which the busiest rank exceeds the mean."""
        return max(self.seconds) - self.mean


def stages(looked_at: Sequence[Window]) -> list[Stage]:
    """All stages in the order of their first appearance, outer ones before inner ones."""
    sums: dict[tuple[str, ...], list[list[float]]] = {}
    threaded: set[tuple[str, ...]] = set()
    for number, window in enumerate(looked_at):
        for once in _counted(window.spans):
            row = sums.setdefault(once.path, [[0.0, 0.0, 0.0] for _ in looked_at])[number]
            row[0] += once.seconds
            row[1] += once.cpu
            row[2] += 1
            if once.span.thread:
                threaded.add(once.path)
    order = sorted(sums, key=lambda path: [list(sums).index(path[:n]) for n in range(1, len(path) + 1)])
    return [Stage(path, tuple(r[0] for r in sums[path]), tuple(r[1] for r in sums[path]),
                  int(sum(r[2] for r in sums[path])), path in threaded) for path in order]


@dataclass
class _Counted:
    """One occurrence of a stage: names from the outside in, its span, and the useful and CPU seconds so far."""

    path: tuple[str, ...]
    span: Span
    seconds: float
    cpu: float


def _counted(spans: Sequence[Span]) -> list[_Counted]:
    """Every occurrence of every stage.

    Communication is subtracted, and so is compilation, which counts as an outermost stage of its own.
    """
    base = min((s.depth for s in spans), default=0)
    found: list[_Counted] = []
    holders: list[_Counted] = []        # of the current span, from the outside in
    for span in outside(spans):
        del holders[span.depth - base:]
        if is_communication(span) or span.name == COMPILE:
            for each in holders:
                each.seconds -= span.seconds
                each.cpu -= span.cpu
            if span.name == COMPILE:
                found.append(_Counted((COMPILE,), span, span.seconds, span.cpu))
            continue
        path = (*(each.span.name for each in holders), span.name)
        holders.append(_Counted(path, span, span.seconds, span.cpu))
        found.append(holders[-1])
    return found
