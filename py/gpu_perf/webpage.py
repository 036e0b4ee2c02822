"""Self-contained HTML pages: style, pictures and scripts are embedded, and nothing is loaded from elsewhere."""
import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from gpu_perf.tables import Table

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
ul.summary { list-style: none; padding: .7rem 1rem; border-left: 4px solid #1b7837; background: #1b78371a; }
ul.summary.bad { border-color: #d73027; background: #d730271a; }
figure { margin: 1.2rem 0; } figcaption, p.note { color: #666; font-size: .85rem; }
img { max-width: 100%; height: auto; background: #fff; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid #8884; text-align: right; white-space: nowrap; }
th { border-bottom: 2px solid #8888; } .l { text-align: left; }
tbody tr:hover { background: #8882; } td.bad { color: #d73027; font-weight: 600; }
nav a { margin-right: 1rem; }
@media (prefers-color-scheme: dark) {
  figcaption, p.note { color: #aaa; } td.bad { color: #ff8a78; }
  img { filter: invert(.93) hue-rotate(180deg); }        /* pictures are drawn on white: hues stay */
  svg { filter: brightness(1.3); }
}
"""
BAD = ("wrong", "failed", "killed", "timeout")


def document(title: str, parts: Sequence[str], *, style: str = "", script: str = "") -> str:
    """A whole page. parts: HTML, one after another; style: rules besides STYLE; script: run at the end of the page."""
    code = f"\n<script>\n{script}\n</script>" if script else ""
    return ("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
            "<meta name=\"viewport\" content=\"width=device-width\">"
            f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head>\n<body>\n" + "\n".join(parts)
            + f"{code}\n</body></html>\n")


@dataclass(frozen=True)
class Report:
    """A report as text or as a page.

    verdict: the main lines, in red if bad; facts: the circumstances
    pictures, style: HTML before the tables, and rules besides STYLE, of the page
    """

    title: str
    verdict: Sequence[str]
    tables: Sequence[Table]
    facts: Sequence[str] = ()
    bad: bool = False
    pictures: Sequence[str] = ()
    style: str = ""

    def text(self) -> str:
        """Title, facts, verdict, tables."""
        head = "\n".join([self.title, "=" * len(self.title), *self.facts])
        blocks = [head, "\n".join(self.verdict), "\n".join(t.text() for t in self.tables)]
        return "\n\n".join(filter(None, blocks))

    def html(self) -> str:
        """The same, with pictures, as a page."""
        facts = [f'<p class="note">{"<br>".join(map(escape, self.facts))}</p>'] if self.facts else []
        parts = [f"<h1>{escape(self.title)}</h1>", summary_html(self.verdict, bad=self.bad), *facts, *self.pictures]
        return document(self.title, [*parts, *map(table_html, self.tables)], style=self.style)


def summary_html(lines: Sequence[str], *, bad: bool = False) -> str:
    """The main lines in a box; bad: in red."""
    return (f'<ul class="summary{" bad" * bad}">' + "".join(f"<li>{escape(x)}</li>" for x in lines) + "</ul>")


def figure_html(path: Path, caption: str, anchor: str) -> str:
    """A PNG file inside the page."""
    data = base64.b64encode(path.read_bytes()).decode()
    return (f'<figure id="{anchor}"><h2>{escape(caption)}</h2>'
            f'<img src="data:image/png;base64,{data}" alt="{escape(caption)}"></figure>')


def table_html(table: Table, before: str = "") -> str:
    """A table under its title; before: HTML above the title."""
    def cell(tag: str, text: str, column: int) -> str:
        classes = " ".join([*(["l"] if column < table.left else []), *(["bad"] if text in BAD else [])])
        return f'<{tag} class="{classes}">{escape(text)}</{tag}>' if classes else f"<{tag}>{escape(text)}</{tag}>"

    head = "".join(cell("th", text, i) for i, text in enumerate(table.header))
    rows = "".join("<tr>" + "".join(cell("td", text, i) for i, text in enumerate(row)) + "</tr>" for row in table.rows)
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    title = before + table.title
    return (f'<h2 id="{anchor_of(title)}">{escape(title)}</h2><div class="scroll"><table><thead><tr>'
            f"{head}</tr></thead><tbody>{rows}</tbody></table></div>{note}")


def anchor_of(title: str) -> str:
    """The anchor of the table of that title."""
    return "t-" + "".join(c if c.isalnum() else "-" for c in title.lower())
