"""The report of one or more campaigns: text, PNG plots, one HTML page."""
from collections.abc import Sequence
from html import escape
from pathlib import Path

from gpu_extract.io.atomic import check_folder, make_folder, write_text
from gpu_perf.webpage import Report, anchor_of, document, figure_html, summary_html, table_html
from gpu_stress.rows import Campaign, read_campaign
from gpu_stress.tables import campaign_tables, summary
from gpu_stress.verdict import corrected, doubts, verdict

# lines of the summary that prevent a green box
_BAD = "WRONG", "NOT QUIET", "SHARED CORES", "MEMORY", "not judged", "not fit"


def write_report(folders: Sequence[str], output: str, *, plots: bool = True) -> str:
    """Write report.txt, report.html and PNG files into `output`; returns the text.

    folders: of campaigns; each further one is compared with the first
    plots: draw (needs matplotlib)
    Raises InputError if a folder holds no campaign, OutputError if nothing can be written.
    """
    if output not in folders:            # else a file, given for a folder, would be said to be in the way
        check_folder(output)
    campaigns = _read(folders)
    check_folder(output)
    target = Path(output)
    make_folder(target)
    sections = [Report(c.label, [*summary(c), *corrected(c), *doubts(c), verdict(c)], campaign_tables(c, campaigns[0]))
                for c in campaigns]
    text = "\n".join(section.text() for section in sections)
    if plots:
        from gpu_stress.figures import draw

        write_text(target / "report.html", _page(sections, draw(campaigns, target)))
    write_text(target / "report.txt", text)
    return text


def _read(folders: Sequence[str]) -> list[Campaign]:
    """All campaigns; those whose machines have the same name are labelled by folder."""
    campaigns = [read_campaign(Path(f)) for f in folders]
    labels = [c.label for c in campaigns]
    if len(set(labels)) < len(labels):
        campaigns = [read_campaign(Path(f), f"{c.label} ({Path(f).name})")
                     for f, c in zip(folders, campaigns, strict=True)]
    return campaigns


def _page(sections: Sequence[Report], figures: Sequence[tuple[Path, str]]) -> str:
    """The sections on one page. figures: (PNG file, caption)"""
    title, several = "GPU stress report", len(sections) > 1
    links = [(f"f{n}", caption) for n, (_, caption) in enumerate(figures)]
    tables = [(t, f"{s.title}: " if several else "") for s in sections for t in s.tables]
    links += [(anchor_of(before + t.title), before + t.title) for t, before in tables]
    parts = [f"<h1>{title}</h1>",
             "<nav>" + "".join(f'<a href="#{anchor}">{escape(text)}</a>' for anchor, text in links) + "</nav>"]
    for section in sections:
        bad = any(word in line for line in section.verdict for word in _BAD)
        parts += [f"<h2>{escape(section.title)}</h2>", summary_html(section.verdict, bad=bad)]
    parts += [figure_html(path, caption, f"f{number}") for number, (path, caption) in enumerate(figures)]
    parts += [table_html(t, before) for t, before in tables]
    return document(title, parts)
