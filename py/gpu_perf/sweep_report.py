"""The report on a sweep: a table, plots, and a page that holds both."""
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from gpu_extract.errors import InputError
from gpu_extract.io.atomic import write_json, write_text
from gpu_perf import sweep_results
from gpu_perf.sweep_results import METRICS, Curve, Row, Spread, is_published_work, spread
from gpu_perf.sweep_verdict import circumstances, doubts, judgement
from gpu_perf.tables import NONE, Table, number
from gpu_perf.webpage import Report, figure_html

TIMES = {"extract": "extraction", "run": "run with start-up, reading and writing", "command": "whole command"}


def write_report(folder: Path, *, time: str = "extract", plots: bool = True, markdown: str | None = None,
                 reference: bool = True) -> str:
    """Write report.html, scaling.json and, with plots, scaling.png into the sweep's folder; returns the text.

    time: the time of efficiencies, a key of TIMES; markdown: also write the table there; reference: with the published
    figures. Raises InputError where the folder holds no sweep, OutputError where nothing can be written.
    """
    rows = sweep_results.read_rows(folder, time)
    table = scaling_table(rows, time)
    failed = [line for row in rows for line in row.failed]
    about = circumstances(rows)
    doubtful = doubts(rows, time) + [line for line in about if "MIXED" in line]
    end = judgement(rows, bool(doubtful))
    lines = [*summary(rows, time), *(f"FAILED: {line}" for line in failed), *doubtful, end]
    pictures = []
    if plots:
        from gpu_perf.scaling_figure import scaling_figure  # loads libraries that tables do not need

        picture = folder / "scaling.png"
        scaling_figure(picture, curves(rows, time, reference=reference), f"seconds of the {TIMES[time]}")
        pictures.append(figure_html(picture, "Run time, efficiency and POP metrics against ranks", "scaling"))
        if reference:
            grey = "Grey" if any(map(is_published_work, rows)) else "Not drawn, because this sweep is of other work"
            pictures.append(f'<p class="note">{grey}: {escape(sweep_results.published_source())}.</p>')
    report = Report("How the extraction scales", lines, [table, pop_table(rows)], about,
                    bad=bool(failed or doubtful) or "not fit" in end, pictures=pictures)
    write_text(folder / "report.html", report.html())
    write_json(folder / "scaling.json", plain(rows), 1)
    if markdown:
        lines = ["| " + " | ".join(line) + " |" for line in (table.header, ["---"] * len(table.header), *table.rows)]
        write_text(markdown, "\n".join(lines) + f"\n\n{table.note}\n")
    return report.text()


def scaling_table(rows: Sequence[Row], time: str) -> Table:
    """Medians with spread of each point."""
    lines = [(row.point.label, str(row.point.ranks), str(row.point.nspec), str(len(row.repeats)),
              *(_seconds(row.seconds(t)) for t in ("command", "run", "extract")),
              _share(spread(row.efficiency.values()))) for row in rows]
    header = ("series", "ranks", "fibres", "repeats", "command, s", "run, s", "extraction, s", "efficiency")
    return Table("Scaling", header, tuple(lines), "Median (lowest to highest repeat). Efficiency: that of the "
                                                  f"{TIMES[time]}, relative to the smallest number of ranks of the "
                                                  "series in the same repeat.")


def pop_table(rows: Sequence[Row]) -> Table:
    """POP metrics of each point's extraction."""
    lines = [(row.point.label, str(row.point.ranks), *(_share(row.metric(name)) for name in METRICS)) for row in rows]
    return Table("POP metrics of the extraction", ("series", "ranks", *METRICS), tuple(lines),
                 "Computation scaling is per fibre: in weak scaling the work grows with the ranks.")


def summary(rows: Sequence[Row], time: str) -> list[str]:
    """One line for each series: its efficiency on the largest number of ranks."""
    lines = []
    for label in dict.fromkeys(r.point.label for r in rows):
        own = [r for r in rows if r.point.label == label and r.efficiency]
        if len(own) > 1:
            last = max(own, key=lambda r: r.point.ranks)
            lines.append(f"{label}: {_share(spread(last.efficiency.values()))} efficient on {last.point.ranks} ranks "
                         f"({TIMES[time]})")
    return lines or ["Only one number of ranks: scaling cannot be judged."]


def curves(rows: Sequence[Row], time: str, *, reference: bool) -> list[Curve]:
    """The curves of the figure. Raises InputError if there is nothing to draw."""
    found: list[Curve] = []
    for label in dict.fromkeys(r.point.label for r in rows):
        own = {r.point.ranks: r for r in rows if r.point.label == label and r.repeats}
        if own:
            names = {name: _known({n: r.metric(name) for n, r in own.items()}) for name in METRICS}
            found.append(Curve(next(iter(own.values())).point.mode, label,
                               _known({n: r.seconds(time) for n, r in own.items()}),
                               _known({n: spread(r.efficiency.values()) for n, r in own.items()}), names))
    if not found:
        raise InputError("no point of the sweep has a result: see the messages above")
    modes = {mode for mode in {r.point.mode for r in rows}
             if all(is_published_work(r) for r in rows if r.point.mode == mode and r.repeats)}
    if reference:
        found += [Curve(p.mode, p.label, {n: (s, s, s) for n, s in p.seconds.items()},
                        {n: (e, e, e) for n, e in p.efficiency.items()}, published=True)
                  for p in sweep_results.published() if p.mode in modes]
    return found


def plain(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows as plain values."""
    return [{"point": vars(row.point), "name": row.point.name,
             "seconds": {t: {n: r.seconds[t] for n, r in row.repeats.items()} for t in TIMES},
             "efficiency": dict(row.efficiency), "failed": list(row.failed),
             "metrics": {n: vars(m) for n, m in row.metrics.items()}} for row in rows]


def _known(values: Mapping[int, Spread | None]) -> dict[int, Spread]:
    return {n: v for n, v in values.items() if v is not None}


def _seconds(value: Spread | None) -> str:
    return NONE if value is None else f"{number(value[1], 3)} ({number(value[0], 3)} to {number(value[2], 3)})"


def _share(value: Spread | None) -> str:
    return NONE if value is None else f"{value[1]:.1%} ({value[0]:.1%} to {value[2]:.1%})"
