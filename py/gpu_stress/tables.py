"""The tables of a report, as data to print or to put on a page."""
from collections.abc import Callable, Sequence

from gpu_perf.outcomes import SEVERITY
from gpu_perf.tables import NONE, Table, number
from gpu_stress.lines import GIGA, MB, duration
from gpu_stress.machine import GIB
from gpu_stress.rows import Campaign, Row, gains, loads, sampler_cost


def summary(campaign: Campaign) -> list[str]:
    """A few lines: the machine, the amount of work, the errors."""
    m = campaign.machine
    statuses = [r.status for r in campaign.rows]
    counts = {status: statuses.count(status) for status in SEVERITY if status in statuses}
    libraries = "; ".join(f"{d['module']} {d['version']} on {d['device']}" for d in m["modules"].values())
    cost = sampler_cost(campaign)
    errors, checked = sum(r.errors for r in campaign.rows), sum(r.checked for r in campaign.rows)
    memory = "memory unknown" if m["memory"] is None else f"{m['memory'] / GIB:.1f} GiB"
    wrong = [f"{r.module} {r.test} {r.shape} {r.dtype} with {r.procs} processes" for r in campaign.rows if r.errors]
    return [
        f"{m['host']}: {m['processor']}, {m['cores']} cores, {memory}; {libraries}",
        f"{campaign.done} of {campaign.planned} sets done: "
        + ", ".join(f"{n} {status}" for status, n in counts.items()),
        (f"results: all {checked} checked results are right" if not errors else
         f"results: {errors} of {checked} WRONG, in {', '.join(wrong)}"),
        "sampler: " + (f"{len(campaign.samples)} samples, {100 * cost:.2f} % of one core"
                       if cost is not None else "no samples")]


def rate_table(campaign: Campaign) -> Table:
    """The rates of one process alone."""
    rows = [(r.module, r.test, r.shape, r.dtype, number(r.rate), number(r.one_way, unit=MB),
             number(r.both_ways, unit=MB), number(r.flops, unit=GIGA), NONE if r.cycle is None else duration(r.cycle),
             NONE if r.spread is None else f"{100 * r.spread:.1f}%", f"{r.errors}/{r.checked}")
            for r in campaign.rows if r.procs == 1 and r.rate is not None]
    return Table("One process", ("module", "test", "shape", "dtype", "Hz", "MByte/sec", "both ways", "GFlop/s",
                                 "median", "+-", "errors"), tuple(rows),
                 "Hz, MByte/sec (one array one way) and both ways refer to wall-clock time, including checks. median "
                 "and +- refer to one cycle, without checks.", left=4)


def sharing_table(campaign: Campaign) -> Table:
    """The rates of many processes, relative to one."""
    counts = sorted({r.procs for r in campaign.rows})
    gain = gains(campaign.rows)
    keys = list(dict.fromkeys(r.key for r in campaign.rows))
    status = {(r.key, r.procs): r.status if r.rate or r.status != "ok" else "no overlap" for r in campaign.rows}
    rows = []
    for key in keys:
        cells = [f"{gain[key, n]:.2f} ({100 * gain[key, n] / n:.0f}%)" if (key, n) in gain
                 else status.get((key, n), NONE) for n in counts]
        rows.append((*key, *cells))
    header = ("module", "test", "shape", "dtype", *(f"{n} process{'es' * (n > 1)}" for n in counts))
    return Table("Sharing", header, tuple(rows),
                 "Work done by all processes together while all of them work, relative to one alone. In brackets: the "
                 "share of its speed alone that each one keeps. no overlap: too short, the processes never worked at "
                 "the same time.", left=4)


def trouble_table(campaign: Campaign) -> Table:
    """Sets that are not ok."""
    rows = tuple((r.module, r.test, r.shape, r.dtype, str(r.procs), r.status, r.message)
                 for r in campaign.rows if r.status != "ok")
    header = ("module", "test", "shape", "dtype", "processes", "status", "why")
    return Table("Sets that are not ok", header, rows, left=7)


def load_table(campaign: Campaign) -> Table:
    """The machine during each set."""
    found = loads(campaign)
    gpu = any(x.gpu_load is not None for x in found)
    header = ("set", "samples", "cores busy", "memory GiB")
    rows = []
    for x in found:
        line = [x.name, str(x.samples), number(x.cores, 3), number(x.memory / GIB, 3)]
        if gpu:
            line += [number(x.gpu_load, 3), number(x.gpu_memory, 3, GIB), number(x.power, 3),
                     number(x.clock), number(x.hottest, 3), ", ".join(x.throttle) or NONE]
        rows.append(tuple(line))
    extra = ("GPU %", "GPU GiB", "W", "MHz", "max C", "throttled by") if gpu else ()
    return Table("State of the machine", (*header, *extra), tuple(rows),
                 "Means over a set, except memory and temperature: maxima." + ("" if gpu else " No GPU was sampled."))


def ratio_table(title: str, pairs: Sequence[tuple[Row, Row]], names: tuple[str, str],
                label: Callable[[Row], tuple[str, ...]], header: tuple[str, ...]) -> Table:
    """Two rates and their ratio, second to first."""
    rows = tuple((*label(a), number(a.rate), number(b.rate), number((b.rate or 0) / (a.rate or 1), 3))
                 for a, b in pairs)
    return Table(title, (*header, f"{names[0]} Hz", f"{names[1]} Hz", "ratio"), rows, left=len(header))


def module_pairs(campaign: Campaign) -> list[tuple[Row, Row]]:
    """(numpy, cupy) rows of the same set."""
    return _pairs([r for r in campaign.rows if r.module == "numpy"],
                  [r for r in campaign.rows if r.module == "cupy"],
                  lambda r: (r.test, r.shape, r.dtype, r.procs))


def machine_pairs(first: Campaign, second: Campaign) -> list[tuple[Row, Row]]:
    """Rows of the same set on two machines."""
    return _pairs(first.rows, second.rows, lambda r: (*r.key, r.procs))


def _pairs(first: Sequence[Row], second: Sequence[Row],
           key: Callable[[Row], tuple[object, ...]]) -> list[tuple[Row, Row]]:
    others = {key(r): r for r in second if r.rate}
    return [(r, others[key(r)]) for r in first if r.rate and key(r) in others]


def campaign_tables(campaign: Campaign, first: Campaign) -> list[Table]:
    """All tables of one campaign; first: the campaign it is compared with, if it is another one."""
    modules = ratio_table("cupy against numpy", module_pairs(campaign), ("numpy", "cupy"),
                          lambda r: (r.test, r.shape, r.dtype, str(r.procs)), ("test", "shape", "dtype", "processes"))
    tables = [rate_table(campaign), sharing_table(campaign), modules, trouble_table(campaign), load_table(campaign)]
    if campaign is not first:
        tables.append(ratio_table(f"{campaign.label} against {first.label}", machine_pairs(first, campaign),
                                  (first.label, campaign.label), lambda r: (*r.key, str(r.procs)),
                                  ("module", "test", "shape", "dtype", "processes")))
    return [t for t in tables if t.rows]
