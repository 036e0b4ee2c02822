"""Tables as data, to print or to put on a page."""
from dataclasses import dataclass

NONE = "-"


@dataclass(frozen=True)
class Table:
    """title; header; rows of text, as long as the header; note: a sentence below, or empty; left: columns of words"""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    left: int = 1

    def text(self) -> str:
        """Columns of fixed width."""
        widths = [max(len(line[i]) for line in (self.header, *self.rows)) for i in range(len(self.header))]
        lines = [self.title, "-" * len(self.title)]
        for line in (self.header, *self.rows):
            cells = [c.ljust(w) if i < self.left else c.rjust(w)
                     for i, (c, w) in enumerate(zip(line, widths, strict=True))]
            lines.append("  ".join(cells).rstrip())
        return "\n".join([*lines, *([self.note] if self.note else [])]) + "\n"


def percent(share: float | None) -> str:
    """A share as per cent."""
    return NONE if share is None else f"{share:.1%}"


def number(value: float | None, digits: int = 4, unit: float = 1.0) -> str:
    """A figure in a unit with this many digits, without powers of ten below a million."""
    if value is None:
        return NONE
    value /= unit
    return f"{value:.0f}" if 10**digits <= abs(value) < 1e6 else f"{value:.{digits}g}"
