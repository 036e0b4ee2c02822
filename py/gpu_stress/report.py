"""The report of one or more campaigns: text, PNG plots, one HTML page."""
from collections.abc import Sequence
from pathlib import Path

from gpu_extract.io.atomic import check_folder, make_folder, write_text
from gpu_perf.tables import Table
from gpu_stress.rows import Campaign, read_campaign
from gpu_stress.tables import campaign_tables, machine_table, summary
from gpu_stress.verdict import corrected, doubts, verdict


def write_report(folders: Sequence[str], output: str, *, plots: bool = True) -> str:
    """Write report.txt, report.html and PNG files into `output`; returns the text.

    folders: of campaigns; each further one is set beside the first
    plots: draw (needs matplotlib)
    Raises InputError where a folder holds no campaign, OutputError where nothing can be written.
    """
    check_folder(output)
    campaigns = _read(folders)
    target = Path(output)
    make_folder(target)
    sections = [(c.label, [*summary(c), *corrected(c), *doubts(c), verdict(c)], campaign_tables(c)) for c in campaigns]
    sections += [(t.title, [], [t]) for c in campaigns[1:] if (t := machine_table(campaigns[0], c)).rows]
    text = _text(sections)
    figures = []
    if plots:
        from gpu_stress.figures import draw
        from gpu_stress.page import page

        figures = draw(campaigns, target)
        write_text(target / "report.html", page("GPU stress report", sections, figures))
    write_text(target / "report.txt", text)
    return text


def _read(folders: Sequence[str]) -> list[Campaign]:
    """All campaigns; folders name those whose machines have the same name."""
    campaigns = [read_campaign(Path(f)) for f in folders]
    labels = [c.label for c in campaigns]
    if len(set(labels)) < len(labels):
        campaigns = [read_campaign(Path(f), f"{c.label} ({Path(f).name})")
                     for f, c in zip(folders, campaigns, strict=True)]
    return campaigns


def _text(sections: Sequence[tuple[str, Sequence[str], Sequence[Table]]]) -> str:
    parts = []
    for heading, lines, tables in sections:
        if lines:
            parts.append("\n".join([heading, "=" * len(heading), *lines]) + "\n")
        parts += [t.text() for t in tables]
    return "\n".join(parts)
