"""A stress report as one HTML page that needs nothing else."""
from collections.abc import Sequence
from html import escape
from pathlib import Path

from gpu_perf.tables import Table
from gpu_perf.webpage import anchor_of, document, figure_html, summary_html, table_html

# of the summary: its box is not green
_BAD = "WRONG", "NOT QUIET", "SHARED CORES", "MEMORY", "not judged", "not fit"


def page(title: str, sections: Sequence[tuple[str, Sequence[str], Sequence[Table]]],
         figures: Sequence[tuple[Path, str]]) -> str:
    """The page as text.

    sections: (heading, lines of summary, tables); figures: (PNG file, caption)
    """
    parts = [f"<h1>{escape(title)}</h1>", _contents(sections, figures)]
    for number, (heading, lines, _) in enumerate(sections):
        parts.append(f'<h2 id="s{number}">{escape(heading)}</h2>')
        if lines:
            parts.append(summary_html(lines, bad=any(word in line for line in lines for word in _BAD)))
    parts += [figure_html(path, caption, f"f{number}") for number, (path, caption) in enumerate(figures)]
    several = len(sections) > 1
    parts += [table_html(t, f"{heading}: " if several else "") for heading, _, tables in sections for t in tables]
    return document(title, parts)


def _contents(sections: Sequence[tuple[str, Sequence[str], Sequence[Table]]],
              figures: Sequence[tuple[Path, str]]) -> str:
    links = [(f"f{n}", caption) for n, (_, caption) in enumerate(figures)]
    links += [(anchor_of(t), t.title) for _, _, tables in sections[:1] for t in tables]
    return "<nav>" + "".join(f'<a href="#{a}">{escape(text)}</a>' for a, text in links) + "</nav>"
