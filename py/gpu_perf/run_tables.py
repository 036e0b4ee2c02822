"""The tables of a report on one run."""
from collections.abc import Sequence

from gpu_extract.perf.record import Run
from gpu_perf.metrics import NOT_RECORDED, Metrics, Stage, Window
from gpu_perf.tables import NONE, Table, number, percent
from gpu_perf.verdict import busy_seconds
from gpu_perf.work import Work

MEGA, GIGA = 1e6, 1e9
# metrics with their depth in POP's tree
METRICS = ((0, "global efficiency"), (1, "parallel efficiency"), (2, "load balance"), (2, "communication efficiency"),
           (3, "transfer efficiency"), (3, "serialisation efficiency"), (1, "computation scaling"),
           (2, "instruction scaling"), (2, "IPC scaling"), (2, "frequency scaling"), (0, "speed-up"), (0, "run time"))
PLAIN = ("speed-up", "run time")
SHOWN_RANKS = 16        # more ranks than this are summarised, not listed


def pop_table(columns: Sequence[tuple[str, Metrics]]) -> Table:
    """The POP metrics of the whole run, and of stages."""
    rows = []
    for depth, name in METRICS:
        title = "  " * depth + name
        if name in NOT_RECORDED:
            rows.append((title, *("n/a" for _ in columns), NOT_RECORDED[name]))
            continue
        values = [getattr(m, name.replace(" ", "_").replace("-", "")) for _, m in columns]
        cells = map(number if name in PLAIN else percent, values)
        rows.append((title, *cells, "" if any(v is not None for v in values) else "needs a reference run: --reference"))
    return Table("POP metrics", ("metric", *(name for name, _ in columns), ""), tuple(rows),
                 "Useful time is time outside communication. Load balance: 1 - (max - mean) / run time of the ranks' "
                 "useful time; communication efficiency: max / run time; parallel efficiency: their sum minus 1; "
                 "computation scaling: useful time of the reference run over that of this run.")


def outside_stages(looked_at: Sequence[Window]) -> list[Stage]:
    """Time outside all stages, as rows: before the first one, and between them."""
    each = {"start-up": [w.rank.before for w in looked_at], "unaccounted": [w.rank.unaccounted for w in looked_at]}
    nothing = tuple(0.0 for _ in looked_at)
    return [Stage((name,), tuple(seconds), nothing, 0) for name, seconds in each.items()]


def stage_table(found: Sequence[Stage], run_time: float) -> Table:
    """Each stage: its time on the ranks, its share, and its imbalance."""
    count = len(found[0].seconds) if found else 0
    each = count > 1 and count <= SHOWN_RANKS
    header = ("stage", "calls", "mean s", "share", "max - mean", "CPU / wall",
              *([f"rank {n}" for n in range(count)] if each else []))
    rows = []
    for stage in found:
        wall = sum(stage.seconds)
        rows.append(("  " * (len(stage.path) - 1) + stage.name, str(stage.calls), f"{stage.mean:.3f}",
                     f"{stage.mean / run_time:.1%}", f"{stage.excess:.3f}",
                     f"{sum(stage.cpu) / wall:.2f}" if wall > 0.005 and stage.calls else NONE,
                     *([f"{s:.3f}" for s in stage.seconds] if each else [])))
    note = ("Wall-clock seconds without communication. Inner stages are part of the outer ones. Outer stages, "
            "start-up, unaccounted and communication add up to the whole run.")
    if any(s.threads for s in found):
        note += " Stages that used several threads show the sum over the threads."
    return Table("Stages", header, tuple(rows), note)


def rank_table(looked_at: Sequence[Window]) -> Table:
    """Each rank: how it spent its time, and its memory."""
    rows = []
    for w in looked_at:
        device = w.rank.device
        rows.append((str(w.rank.rank), w.rank.host or NONE, f"{w.seconds:.3f}", f"{w.rank.before:.3f}",
                     f"{w.useful:.3f}", f"{w.communication:.3f}", f"{w.waiting:.3f}", f"{w.rank.cpu:.3f}",
                     f"{w.rank.peak_memory / GIGA:.3f}", f"{device['memory'] / GIGA:.3f}" if device else NONE,
                     f"{busy_seconds(w):.3f}" if device else NONE))
    return Table("Ranks", ("rank", "host", "seconds", "start-up", "useful", "communication", "thereof waiting", "CPU",
                           "memory GB", "GPU memory GB", "GPU busy"), tuple(rows),
                 "Start-up: from the start of the process to its first stage. Memory: the peak.",
                 left=2)


def call_table(run: Run) -> Table:
    """MPI calls by kind, over all ranks."""
    kinds = {kind: [r.calls[kind] for r in run.ranks if kind in r.calls]
             for kind in sorted({k for r in run.ranks for k in r.calls})}
    rows = []
    for kind, each in sorted(kinds.items(), key=lambda item: -sum(c["seconds"] for c in item[1])):
        seconds = [c["seconds"] for c in each]
        rows.append((kind, str(int(sum(c["calls"] for c in each))), f"{sum(seconds):.4f}", f"{max(seconds):.4f}",
                     f"{sum(c['wait'] for c in each):.4f}", number(sum(c["bytes"] for c in each) / MEGA)))
    return Table("MPI calls", ("kind", "calls", "seconds", "most on a rank", "waiting", "MB"), tuple(rows),
                 "Sums over all ranks. Iallreduce: agreements of a few bytes; their time is spent waiting for the last "
                 "rank.")


def copy_table(run: Run) -> Table:
    """Copies by direction, over all ranks."""
    rows = []
    for direction in sorted({d for r in run.ranks for d in r.copies}):
        each = [r.copies[direction] for r in run.ranks if direction in r.copies]
        seconds, nbytes = sum(c["seconds"] for c in each), sum(c["bytes"] for c in each)
        rows.append((direction, str(int(sum(c["calls"] for c in each))), number(nbytes / MEGA), f"{seconds:.4f}",
                     number(nbytes / seconds / GIGA) if seconds > 0 else NONE))
    return Table("Copies between host and device", ("direction", "calls", "MB", "seconds", "GB/s"), tuple(rows),
                 "h2d: to the device, d2h: to the host. Sums over all ranks.")


def rate_table(found: Sequence[Stage], work: dict[str, Work], ceilings: dict[str, float]) -> Table:
    """Rates of the stages with known work, against the ceilings of the machine."""
    rows = []
    for name, counted in work.items():
        seconds = sum(sum(s.seconds) for s in found if s.name == name)
        if seconds <= 0:
            continue
        flops = None if counted.flop is None else counted.flop / seconds
        band = None if counted.nbytes is None else counted.nbytes / seconds
        rows.append((name, number(counted.flop, unit=GIGA), number(flops, unit=GIGA),
                     _share(flops, ceilings.get("flops")), number(band, unit=GIGA),
                     _share(band, ceilings.get("bandwidth"))))
    known = "; ".join(f"{word} {ceilings[key] / GIGA:.1f} {unit}" for key, word, unit in (
        ("flops", "matrix product", "GFlop/s"), ("bandwidth", "copy in memory", "GB/s")) if key in ceilings)
    return Table("Rates", ("stage", "GFlop", "GFlop/s per core", "of the ceiling", "GB/s", "of the ceiling"),
                 tuple(rows), "Operations counted on paper (doc/performance-tools.md) over the seconds of all ranks. "
                 + (f"Measured ceilings: {known}." if known else
                    "No ceilings: give --ceilings here, or the file of gpu_stress info --json."))


def counter_table(run: Run) -> Table:
    """Counters, over all ranks."""
    names = sorted({n for r in run.ranks for n in r.counters})
    rows = tuple((n, number(sum(r.counters.get(n, 0) for r in run.ranks))) for n in names)
    return Table("Counters", ("name", "sum"), rows)


def _share(value: float | None, ceiling: float | None) -> str:
    return percent(value / ceiling if value is not None and ceiling else None)
