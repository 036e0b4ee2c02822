"""The report on a profile of Nsight Systems: kernels under their stages, copies, and when the GPU was idle."""
from collections.abc import Sequence
from html import escape
from itertools import pairwise

from gpu_perf.nsys import Activity, Profile
from gpu_perf.run_tables import GIGA, MEGA
from gpu_perf.tables import NONE, Table, number
from gpu_perf.verdict import Cause, Verdict
from gpu_perf.webpage import document, summary_html, table_html

GAPS = 12                  # the longest that are listed
SIZES = (4e3, 64e3, 1e6, 16e6, 256e6)


def busy(activities: Sequence[Activity]) -> list[tuple[float, float]]:
    """The times in which a GPU did anything, as (start, end), joined."""
    joined: list[tuple[float, float]] = []
    for a in sorted(activities, key=lambda a: a.start):
        if joined and a.start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], a.end)
        else:
            joined.append((a.start, a.end))
    return joined


def length(joined: Sequence[tuple[float, float]]) -> float:
    """Seconds of joined times."""
    return sum(end - start for start, end in joined)


def gaps(profile: Profile, device: int) -> list[tuple[float, float]]:
    """The times between the first and the last work of a GPU in which it had none, the longest first."""
    joined = busy([a for a in profile.activities if a.device == device])
    between = [(first[1], second[0]) for first, second in pairwise(joined)]
    return sorted(between, key=lambda g: g[0] - g[1])


def devices(profile: Profile) -> list[int]:
    """Numbers of the GPUs that did anything."""
    return sorted({a.device for a in profile.activities})


def verdict_of(profile: Profile) -> Verdict:
    """What bounds the GPU between its first and last work."""
    numbers = devices(profile)
    span = kernels = copying = free = 0.0
    for device in numbers:
        own = [a for a in profile.activities if a.device == device]
        joined = busy(own)
        span += joined[-1][1] - joined[0][0]
        free += joined[-1][1] - joined[0][0] - length(joined)
        kernels += length(busy([a for a in own if a.kind == "kernel"]))
        copying += length(busy([a for a in own if a.nbytes]))
    if span <= 0:
        return Verdict((), tuple(profile.missing), "The export shows no work of a GPU.")
    per = len(numbers)
    causes = [Cause("an idle GPU", free / span, f"it has nothing to do for {free / per:.3f} s of {span / per:.3f} s",
                    "Give it more at once: more ranks per GPU under MPS, larger batches, less work on the host"),
              Cause("copies", copying / span, f"they take {copying / per:.3f} s of {span / per:.3f} s",
                    "Keep data on the device between stages, copy page-locked memory, fewer but larger pieces")]
    return Verdict(tuple(sorted(causes, key=lambda c: -c.cost)), tuple(profile.missing),
                   f"Kernels take {kernels / span:.0%} of the time; faster ones are what would help.")


def kernel_table(profile: Profile) -> Table:
    """Kernels by time under each stage."""
    sums: dict[tuple[str, str], list[float]] = {}
    for a in profile.activities:
        if a.kind == "kernel":
            row = sums.setdefault((" > ".join(a.stage), a.name), [0, 0.0, 0.0])
            row[0] += 1
            row[1] += a.seconds
            row[2] = max(row[2], a.seconds)
    total = sum(r[1] for r in sums.values())
    by_stage: dict[str, float] = {}
    for (stage, _), row in sums.items():
        by_stage[stage] = by_stage.get(stage, 0.0) + row[1]
    order = sorted(sums, key=lambda key: (-by_stage[key[0]], key[0], -sums[key][1]))
    rows = [(stage, name, str(int(calls)), f"{1e3 * seconds:.3f}", f"{seconds / total:.1%}",
             f"{1e6 * seconds / calls:.1f}", f"{1e6 * most:.1f}")
            for (stage, name), (calls, seconds, most) in ((key, sums[key]) for key in order)]
    return Table("Kernels under their stages", ("stage", "kernel", "calls", "ms", "share", "mean us", "most us"),
                 tuple(rows), "Stages are NVTX ranges, from the outside in; that with most kernel time first.", left=2)


def copy_table(profile: Profile) -> Table:
    """Copies by direction and size."""
    sums: dict[tuple[str, int], list[float]] = {}
    for a in profile.activities:
        if a.kind not in ("kernel", "memset"):
            size = sum(a.nbytes >= s for s in SIZES)
            row = sums.setdefault((a.kind, size), [0, 0.0, 0.0])
            row[0] += 1
            row[1] += a.nbytes
            row[2] += a.seconds
    rows = [(kind, _size(size), str(int(row[0])), number(row[1] / MEGA), f"{1e3 * row[2]:.3f}",
             number(row[1] / row[2] / GIGA) if row[2] > 0 else NONE) for (kind, size), row in sorted(sums.items())]
    return Table("Copies", ("direction", "size", "calls", "MB", "ms", "GB/s"), tuple(rows),
                 "h2d: to the device, d2h: to the host.", left=2)


def copy_stage_table(profile: Profile) -> Table:
    """Copies under their stages."""
    sums: dict[tuple[str, str], list[float]] = {}
    for a in profile.activities:
        if a.nbytes:
            row = sums.setdefault((" > ".join(a.stage), a.kind), [0, 0.0, 0.0])
            row[0] += 1
            row[1] += a.nbytes
            row[2] += a.seconds
    rows = [(stage, kind, str(int(row[0])), number(row[1] / MEGA), f"{1e3 * row[2]:.3f}")
            for (stage, kind), row in sorted(sums.items(), key=lambda kv: -kv[1][2])]
    return Table("Copies under their stages", ("stage", "direction", "calls", "MB", "ms"), tuple(rows), left=2)


def gap_table(profile: Profile) -> Table:
    """The longest gaps of each GPU, with what the host was in."""
    rows = []
    for device in devices(profile):
        for start, end in gaps(profile, device)[:GAPS]:
            inside = [r for r in profile.ranges if r.start <= start < r.end]
            name = min(inside, key=lambda r: r.end - r.start).name if inside else NONE
            rows.append((str(device), f"{start:.6f}", f"{1e3 * (end - start):.3f}", name))
    return Table("Longest gaps of an idle GPU", ("GPU", "from s", "ms", "the host was in"), tuple(rows),
                 f"Between a GPU's first and last work, the {GAPS} longest. The host: its innermost NVTX range.")


def use_table(profile: Profile) -> Table:
    """How each GPU spent its time between its first and last work."""
    rows = []
    for device in devices(profile):
        own = [a for a in profile.activities if a.device == device]
        joined = busy(own)
        span = joined[-1][1] - joined[0][0]
        parts = (length(busy([a for a in own if a.kind == "kernel"])), length(busy([a for a in own if a.nbytes])),
                 span - length(joined))
        rows.append((str(device), f"{span:.4f}", *(f"{p:.4f} ({p / span:.1%})" if span else NONE for p in parts),
                     str(len(joined) - 1)))
    return Table("Use of the GPUs", ("GPU", "seconds", "kernels", "copies", "idle", "gaps"), tuple(rows),
                 "Kernels and copies may overlap.")


def _size(number_: int) -> str:
    edges = ("4 kB", "64 kB", "1 MB", "16 MB", "256 MB")
    if number_ == 0:
        return "below 4 kB"
    return f"from {edges[number_ - 1]}" + (f" to {edges[number_]}" if number_ < len(edges) else "")


def tables_of(profile: Profile) -> list[Table]:
    """All tables that have something to show."""
    tables = [use_table(profile), kernel_table(profile), copy_table(profile), copy_stage_table(profile),
              gap_table(profile)]
    return [t for t in tables if t.rows]


def text_report(profile: Profile) -> str:
    """The report as text."""
    title = f"What the GPU did: {profile.name}"
    return "\n".join([title, "=" * len(title), *_lines(profile), "", *(t.text() for t in tables_of(profile))])


def html_report(profile: Profile) -> str:
    """The report as a page."""
    title = f"What the GPU did: {profile.name}"
    parts = [f"<h1>{escape(title)}</h1>", summary_html(_lines(profile), bad=bool(verdict_of(profile).dominant))]
    return document(title, [*parts, *(table_html(t) for t in tables_of(profile))])


def _lines(profile: Profile) -> list[str]:
    return [line.replace("Caution: ", "Not in this export: ") for line in verdict_of(profile).lines()]
