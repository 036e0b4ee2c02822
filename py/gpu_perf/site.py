"""The site of the history: a page with the chart, and a page with the full report for each commit."""
import json
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from gpu_extract.errors import InputError
from gpu_extract.io.atomic import write_text
from gpu_extract.perf.clock import stamp
from gpu_extract.perf.record import parse_run
from gpu_perf.changes import ALPHA, FEWEST, LEAST
from gpu_perf.history import History, history_of, verdict
from gpu_perf.measure import RUN_TIME
from gpu_perf.run_report import Asked, report_of
from gpu_perf.store import Store
from gpu_perf.tables import Table
from gpu_perf.verdict import disturbances
from gpu_perf.webpage import document, summary_html, table_html

TITLE = "The history of run times"
METHOD = ("Changes of level are marked. They are found by binary segmentation: at every place, a two-sample t test of "
          "the commits' Hodges-Lehmann means of log time, with the noise from differences of neighbouring commits. A "
          f"change is one whose probability times the number of places is below {ALPHA} (shared by the components that "
          f"are judged) and that is larger than {LEAST:.0%}.")
STYLE = """
#chart { width: 100%; height: auto; } #chart text { font-size: 12px; fill: currentColor; }
#chart .grid { stroke: #8883; } #chart .one { stroke: #888; stroke-width: 1.5; } #chart .tick { stroke: #888; }
#chart .point { cursor: pointer; } #chart .ring { fill: none; stroke: currentColor; stroke-width: 2; }
#chart .slower { fill: #d73027; } #chart .faster { fill: #1a9850; }
#legend button { font: inherit; font-size: .85rem; margin: .15rem .3rem .15rem 0; border: 1px solid #8886;
  border-radius: .3rem; background: none; color: inherit; cursor: pointer; }
#legend button.alone { border-color: currentColor; font-weight: 600; }
#legend button.small { opacity: .55; }
#legend i { display: inline-block; width: .8em; height: .8em; margin-right: .35em; }
#detail:not(:empty) { border-left: 4px solid #2166ac; padding: .2rem 1rem; background: #2166ac14; }
"""


def build(store: Store, folder: Path, series: Sequence[str] = (), baseline: str | None = None) -> list[str]:
    """Write index.html and commits/*.html; returns lines with the findings.

    series: by default all that have results; baseline: a commit for all of them
    Raises InputError if there is nothing to show.
    """
    histories, lines = [], []
    for name in series or store.series():
        try:
            histories.append(history_of(store, name, baseline))
        except InputError as error:
            lines.append(f"left out: {error}")
    if not histories:
        raise InputError("; ".join(lines) or f"{store.path} is empty: measure or import something first")
    links = [_reports(store, folder, n, history) for n, history in enumerate(histories)]
    found = [f"{h.series}: {line}" for h in histories for line in verdict(h)]
    content = {"series": [_plain(h, known) for h, known in zip(histories, links, strict=True)]}
    doubtful = [line for h in histories for line in _doubts(store, h)]
    write_text(folder / "index.html", _page(content, histories, found, doubtful))
    return [*lines, *found, *doubtful, _judgement(histories, found, doubtful)]


def _doubts(store: Store, history: History) -> list[str]:
    """Warnings about runs whose ranks had to share their cores."""
    said = [(commit, words) for commit in history.commits for record in store.records(history.series, commit.hash)
            for words in list(disturbances(parse_run(record)))[:1]]
    if not said:
        return []
    commit, words = said[-1]
    return [f"NOT QUIET: {history.series}: {len(said)} runs were disturbed, the last at {commit.hash[:10]}: {words}"]


def _judgement(histories: Sequence[History], found: Sequence[str], doubtful: Sequence[str]) -> str:
    """The last sentence: fit or not, and what to do."""
    if doubtful:
        return "Verdict: not fit for conclusions: measure these commits again, with nothing else on the machine."
    if found:
        return ("Verdict: slower: look at the commits named above; if the change is intended, choose a new baseline "
                "(gpu_track baseline).")
    if all(len(h.commits) < FEWEST for h in histories):
        return f"Verdict: nothing to judge yet: measure at least {FEWEST} commits (gpu_track run A..B)."
    return "Verdict: fit: no component is slower than at the baseline, beyond noise; nothing to do."


def _page(content: dict[str, Any], histories: Sequence[History], found: Sequence[str],
          doubtful: Sequence[str]) -> str:
    data = json.dumps(content).replace("<", "\\u003c")
    script = resources.files("gpu_extract").joinpath("etc", "pages", "track.js").read_text(encoding="utf-8")
    few = [f"{h.series}: not judged yet, {len(h.commits)} commits of at least {FEWEST}" for h in histories
           if len(h.commits) < FEWEST]
    said = [*(found or few or ["No component is slower than at the baseline, beyond noise."]), *doubtful,
            _judgement(histories, found, doubtful)]
    parts = [f"<h1>{TITLE}</h1>", summary_html(said, bad=bool(found or doubtful)),
             '<p><select id="series"></select></p><div id="legend"></div>',
             '<svg id="chart" role="img" aria-label="run time of each component against commit date"></svg>',
             '<p class="note" id="baseline"></p>', '<div id="detail"></div>',
             *(table_html(t) for h in histories for t in (_changes(h), _failures(h)) if t.rows),
             f'<p class="note">{escape(METHOD)} Click a point for the details of its commit, or a component to see it '
             "alone. Components below 2 % of the run time are shown only then. Bars span the lowest to the highest "
             "repeat.</p>",
             f'<script type="application/json" id="data">{data}</script>']
    return document(TITLE, parts, style=STYLE, script=script)


def _changes(history: History) -> Table:
    rows = [(name, commit.hash[:12], stamp(commit.date)[:10], commit.subject[:60], f"{c.ratio:.3f}", f"{c.t:.1f}",
             f"{c.p:.1g}") for name, each in history.changes.items() for c in each
            for commit in [history.of(name)[c.place]]]
    return Table(f"Changes: {history.series}", ("component", "commit", "date", "subject", "times", "t", "p"),
                 tuple(rows), left=4)


def _failures(history: History) -> Table:
    return Table(f"Commits without a result: {history.series}", ("commit", "what happened"),
                 tuple((c[:12], what) for c, what in history.failed.items()), left=2)


def _plain(history: History, links: dict[str, str]) -> dict[str, Any]:
    """The data for the script."""
    number = {c.hash: n for n, c in enumerate(history.commits)}
    components = []
    for name, points in history.components.items():
        base = points.get(history.baseline.hash)
        scale = 1 / base.median if base and base.median > 0 else None
        own = history.of(name)
        components.append({
            "name": name, "main": name == RUN_TIME, "small": name not in history.changes, "unit": " s",
            "points": [{"commit": number[c.hash], "value": p.median, "least": p.low, "most": p.high,
                        "ratio": scale and p.median * scale, "low": scale and p.low * scale,
                        "high": scale and p.high * scale} for c in own for p in [points[c.hash]]],
            "changes": [{"commit": number[own[c.place].hash], "ratio": c.ratio, "t": c.t, "p": c.p}
                        for c in history.changes.get(name, ())]})
    repeats = {c.hash: max(p[c.hash].repeats for p in history.components.values() if c.hash in p)
               for c in history.commits}
    return {"name": history.series, "baseline": history.baseline.hash, "components": components,
            "commits": [{"hash": c.hash, "date": c.date, "subject": c.subject, "repeats": repeats[c.hash],
                         "report": links.get(c.hash)} for c in history.commits]}


def _reports(store: Store, folder: Path, number: int, history: History) -> dict[str, str]:
    """Write the report of each commit that has records, for its median repeat; commit hash -> address."""
    links = {}
    for commit in history.commits:
        runs = [parse_run(r) for r in store.records(history.series, commit.hash)]
        if not runs:
            continue
        runs.sort(key=lambda r: max(k.elapsed for k in r.ranks))
        address = f"commits/{number}-{commit.hash[:12]}.html"
        write_text(folder / address, report_of(runs[len(runs) // 2], Asked()).html())
        links[commit.hash] = address
    return links
