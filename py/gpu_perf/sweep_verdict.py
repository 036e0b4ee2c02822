"""The circumstances of a sweep, whether it can be trusted, and the conclusion."""
from collections.abc import Sequence
from statistics import median

from gpu_extract.perf.clock import stamp
from gpu_extract.perf.record import Run
from gpu_perf.sweep_results import Row
from gpu_perf.verdict import disturbances

WELL = 0.8            # least efficiency of a good point
ALIKE = 1.1           # the slowest repeat over the fastest, beyond which a machine was not quiet
_REMEDIES = {"load balance": "choose ranks that divide the bundles, and look for a slow node",
             "communication eff.": "use fewer ranks per frame, and more frames at once (gpu_extract_exposure)",
             "computation scaling": "ranks compete for cores, memory or clock: leave cores free, bind ranks"}


def circumstances(rows: Sequence[Row]) -> list[str]:
    """Machine, date, versions and work, a line each; differences between runs are named."""
    runs = [repeat.run for row in rows for repeat in row.repeats.values()]
    if not runs:
        return []
    begin, end = min(r.ranks[0].epoch for r in runs), max(r.ranks[0].epoch for r in runs)
    each = {"machine": (f"{host}, {run.facts.get('processor') or 'a processor that is not named'}, {rank.cores} cores"
                        for run in runs for rank in run.ranks for host in [rank.host or "a host that is not named"]),
            "versions": (_versions(run) for run in runs),
            "work": (_work(run) for run in runs)}
    lines = [f"measured: {stamp(begin)} to {stamp(end)} UTC"]
    for name, values in each.items():
        found = list(dict.fromkeys(values))
        mixed = len(found) > 1 and name == "versions"
        lines.append(f"{name}: " + ("MIXED: " if mixed else "") + "; ".join(found))
    return lines


def _versions(run: Run) -> str:
    known = {str(run.facts.get("program", "gpu_extract")): f"{run.facts.get('version', '?')}"
             f"{' (' + str(run.facts['commit'])[:10] + ')' if run.facts.get('commit') else ''}",
             **(run.facts.get("versions") or {})}
    return ", ".join(f"{name} {version}" for name, version in known.items()) + f", MPI {run.facts.get('mpi') or 'none'}"


def _work(run: Run) -> str:
    problem = run.facts.get("problem")
    return f"{problem['fibres']} fibres x {problem['bins']} bins" if problem else "not named in the record"


def doubts(rows: Sequence[Row], time: str) -> list[str]:
    """Reasons to doubt the figures: other work on the machine, ranks that shared cores."""
    lines = []
    for row in rows:
        name = f"{row.point.label} on {row.point.ranks} ranks"
        said = [c for repeat in row.repeats.values() for c in disturbances(repeat.run)]
        if said:
            lines.append(f"NOT QUIET: {name}: {said[0]}")
        values = row.seconds(time)
        if values and values[2] > ALIKE * values[0]:
            lines.append(f"NOT QUIET: {name}: the slowest repeat took {values[2] / values[0]:.2f} times the fastest")
    return lines


def judgement(rows: Sequence[Row], doubtful: bool) -> str:
    """The last sentence: fit or not, and what to do."""
    if doubtful:
        return ("Verdict: not fit for conclusions: run it again (in a new folder) with nothing else on the machine, "
                "and with no more ranks than cores.")
    last = {r.point.label: r for r in sorted(rows, key=lambda r: r.point.ranks) if r.efficiency}
    several = [r for r in last.values() if any(o.point.label == r.point.label and o is not r for o in rows)]
    if not several:
        return "Verdict: nothing to judge: give more than one number of ranks (--ranks 1,2,4)."
    poor = [r for r in several if _efficiency(r) < WELL]
    if not poor:
        most = max(r.point.ranks for r in several)
        return f"Verdict: fit: at least {WELL:.0%} efficient up to {most} ranks: use them."
    worst = min(poor, key=_efficiency)
    known = {name: values[1] for name in _REMEDIES if (values := worst.metric(name))}
    advice = _REMEDIES[min(known, key=lambda n: known[n])] if known else "use fewer ranks"
    return (f"Verdict: not fit on {worst.point.ranks} ranks: {worst.point.label} is "
            f"{_efficiency(worst):.0%} efficient; {advice}.")


def _efficiency(row: Row) -> float:
    return median(row.efficiency.values())
