"""The report on one run."""
from dataclasses import dataclass, field, replace

from gpu_extract.errors import InputError
from gpu_extract.perf.clock import stamp
from gpu_extract.perf.record import Run
from gpu_perf import run_tables
from gpu_perf.metrics import EXTRACTION, metrics_of, stages, windows
from gpu_perf.tables import Table
from gpu_perf.timeline import timeline
from gpu_perf.verdict import Verdict, judge
from gpu_perf.webpage import Report
from gpu_perf.work import work_of

STYLE = """
svg.timeline { width: 100%; height: auto; } svg.timeline text { font-size: 11px; fill: currentColor; }
svg.timeline rect:hover { opacity: .7; }
p.legend span { display: inline-block; margin-right: .9rem; font-size: .85rem; }
p.legend i { display: inline-block; width: .8em; height: .8em; margin-right: .3em; }
td:first-child { white-space: pre; }
"""


@dataclass(frozen=True)
class Asked:
    """The contents of a report. focus: only this stage; ceilings: flops and bandwidth of the machine."""

    reference: Run | None = None
    focus: str | None = None
    ceilings: dict[str, float] = field(default_factory=dict)


def verdict_of(run: Run, asked: Asked) -> Verdict:
    """What bounds the run. Raises InputError if the reference did other work."""
    verdict = judge(run, asked.focus)
    if asked.reference is None:
        return verdict
    return replace(verdict, cautions=(*verdict.cautions, *unlike(run, asked.reference)))


def unlike(run: Run, reference: Run) -> list[str]:
    """Cautions on the scaling against the reference. Raises InputError if the reference did other work."""
    problems = [r.facts.get("problem") or {} for r in (run, reference)]
    sizes = [f"{p['fibres']} fibres x {p['bins']} bins" if p else "" for p in problems]
    if all(sizes) and sizes[0] != sizes[1]:
        raise InputError(f"--reference is a run of {sizes[1]}, this run has {sizes[0]}; give a record of the same "
                         "fibres and bins")
    said = [] if all(sizes) else ["whether the reference did the same work is unknown: a record lacks the size of its "
                                  "problem"]
    for key, word in (("digest", "settings"), ("commit", "another commit"), ("processor", "another processor")):
        if run.facts.get(key) != reference.facts.get(key):
            values = f"{reference.facts.get(key)}, not {run.facts.get(key)}"
            said.append(f"the reference used different {word}" if word == "settings" else
                        f"the reference used {word}: {values}")
    return said


def tables_of(run: Run, asked: Asked) -> list[Table]:
    """All non-empty tables."""
    looked_at = windows(run, asked.focus)
    columns = [("whole run" if asked.focus is None else asked.focus, metrics_of(run, asked.reference, asked.focus))]
    if asked.focus is None and all(r.top(EXTRACTION) for r in run.ranks):
        columns.append((EXTRACTION, metrics_of(run, asked.reference, EXTRACTION)))
    found = stages(looked_at)
    run_time = max(w.seconds for w in looked_at)
    outside = run_tables.outside_stages(looked_at) if asked.focus is None else []
    rows = [*outside[:1], *found, *outside[1:]]
    tables = [run_tables.pop_table(columns), run_tables.stage_table(rows, run_time),
              run_tables.rank_table(looked_at), run_tables.rate_table(found, work_of(run), asked.ceilings)]
    if asked.focus is None:     # a record has these of the whole run, not of a stage
        tables[3:3] = run_tables.call_table(run), run_tables.copy_table(run)
        tables.append(run_tables.counter_table(run))
    return [t for t in tables if t.rows]


def report_of(run: Run, asked: Asked) -> Report:
    """The report. Raises InputError as `verdict_of` does."""
    verdict = verdict_of(run, asked)
    return Report(f"Where the time went: {run.name}", verdict.lines(), tables_of(run, asked), facts(run),
                  bad=bool(verdict.dominant), pictures=("<h2>What each rank did when</h2>", timeline(run)), style=STYLE)


def facts(run: Run) -> list[str]:
    """What ran, where and when."""
    known = run.facts
    hosts = sorted({r.host for r in run.ranks if r.host})
    where = ", ".join(hosts) or "one machine"
    lines = [f"{stamp(run.ranks[0].epoch)} UTC on {where}; MPI: {known.get('mpi') or 'none'}"]
    if known.get("problem"):
        lines.append(f"{known['problem']['fibres']} fibres x {known['problem']['bins']} bins, settings "
                     f"{known.get('digest', '-')}, core {(known.get('config') or {}).get('core', '-')}")
    lines += [", ".join(f"{name} {version}" for name, version in (known.get("versions") or {}).items())]
    devices = sorted({str(r.device["facts"].get("name")) for r in run.ranks if r.device})
    return [line for line in [*lines, *([f"GPU: {', '.join(devices)}"] if devices else [])] if line]
