"""What bounds a run, in plain words: each cause with its cost, the evidence, and the remedy.

The cost of a cause is the largest share of the run's time that removing it could save. A cause is dominant if it costs
`DOMINANT` of the run or more.
"""
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpu_extract.perf.record import Run
from gpu_extract.perf.recorder import COMPILE
from gpu_perf.metrics import Stage, Window, stages, windows

DOMINANT = 0.10
SHARED_CORES = 0.85          # CPU seconds / wall seconds of computing below which other work had the cores
FILES = ("read", "write", "wait for input", "wait for output")      # stages in which the ranks wait for files
HOLDERS = ("extract", "exposure", "frames", "frame")                 # stages whose inner stages are reported
ALONE = "assemble"           # done by rank 0 while the others wait
PREPARATION = "warm up"      # kernels are loaded or compiled, by rank 0 for all


@dataclass(frozen=True)
class Cause:
    """name; cost: share of the run time; evidence, remedy: a sentence each"""

    name: str
    cost: float
    evidence: str
    remedy: str


@dataclass(frozen=True)
class Verdict:
    """causes: all that were checked, the most costly first; cautions: reasons to doubt the figures"""

    causes: tuple[Cause, ...]
    cautions: tuple[str, ...]
    computing: str

    @property
    def dominant(self) -> tuple[Cause, ...]:
        """The dominant causes."""
        return tuple(c for c in self.causes if c.cost >= DOMINANT)

    def lines(self) -> list[str]:
        """The verdict as sentences."""
        said = [f"{c.name[0].upper()}{c.name[1:]} costs {c.cost:.0%} of the time (dominant from {DOMINANT:.0%} on): "
                f"{c.evidence}. {c.remedy}." for c in self.dominant]
        if not said:
            most = self.causes[0] if self.causes else None
            rest = f"; the most costly, {most.name}, takes {most.cost:.1%} ({most.evidence})" if most else ""
            said = [f"No dominant cause: none of the causes that are checked costs {DOMINANT:.0%} of the time{rest}."]
        if self.computing:
            said.append(self.computing)
        return said + [f"Caution: {c}" for c in self.cautions]


def judge(run: Run, focus: str | None = None) -> Verdict:
    """The verdict on a run, or on one stage of it. Raises InputError if a rank has no such stage."""
    looked_at = windows(run, focus)
    whole = max(w.seconds for w in looked_at)
    found = stages(looked_at)
    parts = _parts(found, focus)
    causes = [c for c in (_start_up(looked_at, parts, whole, focus), _files(parts, whole, len(looked_at)),
                          _unaccounted(looked_at, whole, focus),
                          _imbalance(looked_at, parts, whole), _communication(looked_at, whole, focus),
                          _copies(looked_at, whole, focus), _idle(looked_at, whole, focus)) if c is not None]
    return Verdict(tuple(sorted(causes, key=lambda c: -c.cost)), tuple(cautions(looked_at)), _computing(parts, whole))


def _parts(found: Sequence[Stage], focus: str | None) -> list[Stage]:
    """Stages of the first thread that divide the time without overlap."""
    level = 1 if focus is None else 2
    outer = [s for s in found if len(s.path) == level] or [s for s in found if len(s.path) == 1]
    outer += [s for s in found if s.path == (COMPILE,) and s not in outer]
    return [part for stage in outer if not stage.threads for part in _opened(stage, found)]


def _opened(stage: Stage, found: Sequence[Stage]) -> list[Stage]:
    """The stage or, if it is one of HOLDERS, its inner stages and the rest."""
    inner = [s for s in found if s.path[:-1] == stage.path and not s.threads]
    if not inner or stage.name not in HOLDERS:
        return [stage]
    rest = tuple(a - sum(s.seconds[i] for s in inner) for i, a in enumerate(stage.seconds))
    return [*(part for s in inner for part in _opened(s, found)),
            Stage((*stage.path, f"{stage.name}, between its stages"), rest, rest, 0)]


def _start_up(looked_at: Sequence[Window], parts: Sequence[Stage], whole: float, focus: str | None) -> Cause:
    starting = max(w.rank.before for w in looked_at) if focus is None else 0.0
    warming = sum(max(s.seconds) for s in parts if s.name in (PREPARATION, COMPILE))
    cost = (starting + warming) / whole
    return Cause("start-up", cost, f"of {whole:.2f} s, {starting:.2f} s passed from the start of the processes to "
                                   "their first stage (interpreter, imports, MPI), and loading or compiling kernels "
                                   f"took {warming:.2f} s",
                 "Extract more frames or fibres with each start; keep the kernels' cache on a fast disk")


def _unaccounted(looked_at: Sequence[Window], whole: float, focus: str | None) -> Cause | None:
    if focus is not None:
        return None
    most = max(looked_at, key=lambda w: w.rank.unaccounted).rank
    return Cause("unaccounted time", most.unaccounted / whole, f"rank {most.rank} spent {most.unaccounted:.2f} s of "
                 f"{whole:.2f} s in none of its stages",
                 "The record does not show what it did: profile it (python -m cProfile -o FILE, gpu_perf proflog FILE)")


def _files(parts: Sequence[Stage], whole: float, ranks: int) -> Cause | None:
    chosen = [s for s in parts if s.name in FILES]
    if not chosen:
        return None
    seconds = {name: sum(max(s.seconds) for s in chosen if s.name == name) for name in FILES}
    cost = sum(seconds.values())
    said = " and ".join(f"{name} {value:.2f} s" for name, value in seconds.items() if value > 0)
    return Cause("reading and writing", cost / whole, f"{said} of {whole:.2f} s"
                 + ", while the other ranks wait" * (ranks > 1),
                 "Overlap it with the extraction of other frames; use a faster file system, or uncompressed images")


def _imbalance(looked_at: Sequence[Window], parts: Sequence[Stage], whole: float) -> Cause | None:
    if len(looked_at) < 2:
        return None
    chosen = [s for s in parts if s.name not in (*FILES, PREPARATION, COMPILE)]
    if not chosen:
        return None
    worst = max(chosen, key=lambda s: s.excess)
    excess = _excess([s for s in chosen if s.name != ALONE]) + _excess([s for s in chosen if s.name == ALONE])
    slow = looked_at[worst.seconds.index(max(worst.seconds))].rank
    evidence = (f"in {worst.name}, rank {slow.rank}{f' on {slow.host}' if slow.host else ''} computes "
                f"{max(worst.seconds):.2f} s where the ranks' mean is {worst.mean:.2f} s")
    return Cause("load imbalance", excess / whole, evidence,
                 f"Find out what slows rank {slow.rank} down (its node, its cores, its bundles); choose a number of "
                 "ranks that divides the number of bundles")


def _excess(chosen: Sequence[Stage]) -> float:
    """Seconds by which the busiest rank exceeds the mean, over all of these stages together, as no rank waits in
    between."""
    totals = [sum(seconds) for seconds in zip(*(s.seconds for s in chosen), strict=True)]
    return max(totals) - sum(totals) / len(totals) if totals else 0.0


def _communication(looked_at: Sequence[Window], whole: float, focus: str | None) -> Cause | None:
    if len(looked_at) < 2:
        return None
    most = max(looked_at, key=lambda w: w.moving)
    verbs: dict[str, float] = {}
    for span in most.spans:
        if span.name.startswith("mpi ") and not span.name.endswith(" agree"):
            verbs[span.name[4:]] = verbs.get(span.name[4:], 0.0) + span.seconds
    worst = max(verbs, key=lambda v: verbs[v], default="")
    moved = sum(c.get("bytes", 0) for c in most.rank.calls.values())
    where = f", most of it in {worst} ({verbs[worst]:.2f} s)" if worst else ""
    evidence = f"rank {most.rank.rank} spends {most.moving:.2f} s moving data{where}, {moved / 1e6:.1f} MB "
    evidence += "in all" if focus is None else "in the whole run"
    return Cause("communication", most.moving / whole, evidence,
                 "Use fewer ranks per frame and more frames at once; check the network and the placement of ranks")


def _copies(looked_at: Sequence[Window], whole: float, focus: str | None) -> Cause | None:
    if focus is not None:       # a record has those of the whole run, not of a stage
        return None
    sums = {direction: [sum(w.rank.copies.get(direction, {}).get(key, 0.0) for w in looked_at) / len(looked_at)
                        for key in ("seconds", "bytes", "calls")]
            for direction in dict.fromkeys(d for w in looked_at for d in w.rank.copies)}
    if not sums:
        return None
    said = ", ".join(f"{name} {row[0]:.2f} s for {row[1] / 1e6:.0f} MB in {row[2]:.0f} calls"
                     for name, row in sums.items())
    return Cause("copies between host and device", sum(row[0] for row in sums.values()) / whole,
                 f"per rank {said}, of {whole:.2f} s",
                 "Keep data on the device between stages; copy page-locked memory, in fewer and larger pieces")


def _idle(looked_at: Sequence[Window], whole: float, focus: str | None) -> Cause | None:
    with_device = [w for w in looked_at if w.rank.device and w.rank.device["spans"]]
    if not with_device:
        return None
    busy = [busy_seconds(w) for w in with_device]
    starting = [w.rank.start_up if focus is None else 0.0 for w in with_device]
    free = [max(w.useful - s - b, 0.0) for w, s, b in zip(with_device, starting, busy, strict=True)]
    return Cause("an idle GPU", sum(free) / len(free) / whole,
                 f"while a rank computes, its GPU is idle for {sum(free) / len(free):.2f} s of {whole:.2f} s",
                 "Give the GPU more at once: more ranks per GPU under MPS, larger batches, less work on the host")


def busy_seconds(window: Window) -> float:
    """Seconds of a window in which the rank's GPU had work, by the union of its device spans."""
    spans = window.rank.device["spans"] if window.rank.device else ()
    times = joined((start, start + seconds) for _, start, seconds in spans)
    return sum(max(min(end, last) - max(start, first), 0.0) for start, end in times for first, last in window.times)


def joined(times: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Times (start, end) in order, with touching ones merged."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(times):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def length(times: Iterable[tuple[float, float]]) -> float:
    """Seconds of joined times."""
    return sum(end - start for start, end in times)


def cautions(looked_at: Sequence[Window]) -> list[str]:
    """Reasons to doubt the times of ranks: they shared their cores."""
    said = []
    for window in looked_at:
        outer = [s for s in window.spans if s.thread == 0 and s.name == "bundle"]
        wall = sum(s.seconds for s in outer)
        cpu = sum(s.cpu for s in outer)
        waits = sum(s.seconds - s.cpu for s in window.spans if s.name.startswith("mpi ") and s.name.endswith(" agree")
                    and any(o.start <= s.start < o.end for o in outer))
        if wall > waits and not window.rank.device and cpu < SHARED_CORES * (wall - waits):
            said.append(f"rank {window.rank.rank} had its core for only {cpu / (wall - waits):.0%} of the time it "
                        "computed: other work shares the machine, or ranks share a core, so times are too long")
    return said


def disturbances(run: Run) -> Iterator[str]:
    """Reasons to doubt the times of a run: more ranks than cores, or other work on the cores."""
    hosts = [rank.host for rank in run.ranks]
    for host in dict.fromkeys(hosts):
        cores = max(rank.cores for rank in run.ranks if rank.host == host)
        if 1 < cores < hosts.count(host):              # a rank that is bound to one core sees no other
            yield f"{hosts.count(host)} ranks shared {cores} cores"
    yield from cautions(windows(run))


def _computing(parts: Sequence[Stage], whole: float) -> str:
    chosen = sorted((s for s in parts if s.name not in (*FILES, PREPARATION, COMPILE) and s.mean > 0),
                    key=lambda s: -s.mean)[:3]
    if not chosen:
        return ""
    said = ", ".join(f"{s.name} {s.mean / whole:.0%}" for s in chosen)
    return f"Computing, as a share of the whole time: {said}; faster kernels or more ranks would help there."
