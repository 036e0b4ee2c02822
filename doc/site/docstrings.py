"""Docstrings say `name: what it is, its shape, its unit`, a name a line; on the site such lines are a list."""
import re

NAMED = re.compile(r"^(\w+(?:, \w+)*): (?=\S)")
PIECE = re.compile(r"; (?=\w+(?:, \w+)*: )")            # several in a line: psf: ...; config: ...
MARKUP = re.compile(r"([*|\\]|(?<=\w)_(?=\W|$))")       # what reStructuredText would take for markup
QUOTED = re.compile(r"(?<!`)`([^`]+)`(?!`)")


def as_rst(text: str) -> str:
    """A docstring as reStructuredText: lines of names as a list, and a paragraph where a sentence follows them."""
    lines: list[str] = []
    inside = False
    for line in PIECE.sub("\n", text).split("\n"):
        named = NAMED.match(line)
        begins = inside and not named and re.match(r"[A-Z]", line) is not None
        if (named and not inside and lines and lines[-1]) or begins:
            lines.append("")
        inside = bool(named) or (inside and not begins and bool(line))
        if named:
            lines.append(f"- ``{named[1]}``: {plain(line[named.end():])}")
        else:
            lines.append(f"  {plain(line.strip())}" if inside else plain(line))
    return "\n".join(lines)


def plain(line: str) -> str:
    """A line of prose: what stands in quotes is code, and nothing else is markup."""
    return "".join(part if part.startswith("``") else MARKUP.sub(r"\\\1", part)
                   for part in re.split(r"(``[^`]+``)", QUOTED.sub(r"``\1``", line)))
