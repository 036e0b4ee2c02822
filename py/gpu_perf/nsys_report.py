"""The report on a profile of Nsight Systems: kernels by stage, copies, and idle times of the GPU."""
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from gpu_perf.nsys import Activity, Profile
from gpu_perf.run_tables import GIGA, MEGA
from gpu_perf.tables import NONE, Table, number
from gpu_perf.verdict import Cause, Verdict, joined, length
from gpu_perf.webpage import Report

GAPS = 12                  # number of longest gaps to list
SIZES = {4e3: "4 kB", 64e3: "64 kB", 1e6: "1 MB", 16e6: "16 MB", 256e6: "256 MB"}    # edges
Key = TypeVar("Key", bound=Hashable)


def busy(activities: Sequence[Activity]) -> list[tuple[float, float]]:
    """The times (start, end) in which a GPU was busy, joined."""
    return joined((a.start, a.end) for a in activities)


@dataclass(frozen=True)
class Use:
    """The use of a GPU between its first and its last work.

    seconds: in all, in kernels, in copies and idle, where kernels and copies may overlap; gaps: (start, end) of the
    idle times, the longest first
    """

    device: int
    seconds: float
    kernels: float
    copies: float
    idle: float
    gaps: tuple[tuple[float, float], ...]


def uses(profile: Profile) -> list[Use]:
    """The use of each GPU that worked."""
    found = []
    for device in sorted({a.device for a in profile.activities}):
        own = [a for a in profile.activities if a.device == device]
        times = busy(own)
        seconds = times[-1][1] - times[0][0]
        between = sorted(((first[1], second[0]) for first, second in pairwise(times)), key=lambda g: g[0] - g[1])
        found.append(Use(device, seconds, length(busy([a for a in own if a.kind == "kernel"])),
                         length(busy([a for a in own if a.nbytes])), seconds - length(times), tuple(between)))
    return found


def verdict_of(profile: Profile) -> Verdict:
    """What bounds the GPUs between their first and last work."""
    each = uses(profile)
    span, kernels, copying, free = (sum(getattr(use, name) for use in each)
                                    for name in ("seconds", "kernels", "copies", "idle"))
    if span <= 0:
        return Verdict((), tuple(profile.missing), "The export contains no GPU work.")
    per = len(each)
    causes = [Cause("an idle GPU", free / span, f"it is idle for {free / per:.3f} s of {span / per:.3f} s",
                    "Give it more at once: more ranks per GPU under MPS, larger batches, less work on the host"),
              Cause("copies", copying / span, f"they take {copying / per:.3f} s of {span / per:.3f} s",
                    "Keep data on the device between stages, copy page-locked memory, fewer but larger pieces")]
    return Verdict(tuple(sorted(causes, key=lambda c: -c.cost)), tuple(profile.missing),
                   f"Kernels take {kernels / span:.0%} of the time; faster ones would help.")


def _sums(activities: Iterable[Activity], key: Callable[[Activity], Key]) -> dict[Key, tuple[int, int, float, float]]:
    """Calls, bytes, seconds, and seconds of the longest, of activities with the same key."""
    groups: dict[Key, list[Activity]] = {}
    for a in activities:
        groups.setdefault(key(a), []).append(a)
    return {name: (len(own), sum(a.nbytes for a in own), sum(a.seconds for a in own), max(a.seconds for a in own))
            for name, own in groups.items()}


def kernel_table(profile: Profile) -> Table:
    """Kernels by time under each stage."""
    kernels = [a for a in profile.activities if a.kind == "kernel"]
    sums = _sums(kernels, lambda a: (_stage(a), a.name))
    by_stage = _sums(kernels, _stage)
    total = sum(a.seconds for a in kernels)
    order = sorted(sums, key=lambda key: (-by_stage[key[0]][2], key[0], -sums[key][2]))
    rows = [(stage, name, str(calls), f"{1e3 * seconds:.3f}", f"{seconds / total:.1%}",
             f"{1e6 * seconds / calls:.1f}", f"{1e6 * most:.1f}")
            for (stage, name), (calls, _, seconds, most) in ((key, sums[key]) for key in order)]
    return Table("Kernels by stage", ("stage", "kernel", "calls", "ms", "share", "mean us", "most us"),
                 tuple(rows), "Stages are NVTX ranges, named from the outermost to the innermost; sorted by kernel "
                              "time.", left=2)


def _stage(activity: Activity) -> str:
    return " > ".join(activity.stage)


def copy_table(profile: Profile) -> Table:
    """Copies by direction and size."""
    sums = _sums((a for a in profile.activities if a.kind not in ("kernel", "memset")),
                 lambda a: (a.kind, sum(a.nbytes >= s for s in SIZES)))
    rows = [(kind, _size(size), str(calls), number(nbytes / MEGA), f"{1e3 * seconds:.3f}",
             number(nbytes / seconds / GIGA) if seconds > 0 else NONE)
            for (kind, size), (calls, nbytes, seconds, _) in sorted(sums.items())]
    return Table("Copies", ("direction", "size", "calls", "MB", "ms", "GB/s"), tuple(rows),
                 "h2d: to the device, d2h: to the host.", left=2)


def copy_stage_table(profile: Profile) -> Table:
    """Copies by stage."""
    sums = _sums((a for a in profile.activities if a.nbytes), lambda a: (_stage(a), a.kind))
    rows = [(stage, kind, str(calls), number(nbytes / MEGA), f"{1e3 * seconds:.3f}")
            for (stage, kind), (calls, nbytes, seconds, _) in sorted(sums.items(), key=lambda kv: -kv[1][2])]
    return Table("Copies by stage", ("stage", "direction", "calls", "MB", "ms"), tuple(rows), left=2)


def gap_table(profile: Profile) -> Table:
    """The longest gaps of each GPU, with what the host was in."""
    rows = []
    for use in uses(profile):
        for start, end in use.gaps[:GAPS]:
            inside = [r for r in profile.ranges if r.start <= start < r.end]
            name = min(inside, key=lambda r: r.end - r.start).name if inside else NONE
            rows.append((str(use.device), f"{start:.6f}", f"{1e3 * (end - start):.3f}", name))
    return Table("Longest gaps in the work of a GPU", ("GPU", "from s", "ms", "the host was in"), tuple(rows),
                 f"The {GAPS} longest, between the first and the last work of a GPU. For the host: its innermost NVTX "
                 "range.")


def use_table(profile: Profile) -> Table:
    """How each GPU spent its time between its first and last work."""
    rows = [(str(u.device), f"{u.seconds:.4f}", *(f"{part:.4f} ({part / u.seconds:.1%})" if u.seconds else NONE
                                                  for part in (u.kernels, u.copies, u.idle)), str(len(u.gaps)))
            for u in uses(profile)]
    return Table("Use of the GPUs", ("GPU", "seconds", "kernels", "copies", "idle", "gaps"), tuple(rows),
                 "Kernels and copies may overlap.")


def _size(number_: int) -> str:
    edges = list(SIZES.values())
    if number_ == 0:
        return "below 4 kB"
    return f"from {edges[number_ - 1]}" + (f" to {edges[number_]}" if number_ < len(edges) else "")


def report_of(profile: Profile) -> Report:
    """The report, with all non-empty tables."""
    tables = [use_table(profile), kernel_table(profile), copy_table(profile), copy_stage_table(profile),
              gap_table(profile)]
    verdict = verdict_of(profile)
    lines = [line.replace("Caution: ", "Not in this export: ") for line in verdict.lines()]
    return Report(f"What the GPU did: {profile.name}", lines, [t for t in tables if t.rows],
                  bad=bool(verdict.dominant))
