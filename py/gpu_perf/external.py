"""Series measured elsewhere: lists of commits and dates, and tables of figures.

A list has lines HASH|SECONDS, as git log --format="%h|%ct" prints them. A table is CSV with a header: a column
"commit", or "date" (seconds since 1970, or YYYY-MM-DD with or without a time), or both, and a column for each figure.
Several lines for one commit are its repeats; empty cells are left out.
"""
import csv
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from gpu_extract.errors import InputError, reading
from gpu_perf.store import Commit, Result, Store

_KEYS = ("commit", "date")
_HASH = re.compile(r"[0-9A-Za-z._-]{1,64}")


def read_list(path: Path) -> list[Commit]:
    """The commits of a list. Raises InputError that names the first line that is not HASH|SECONDS."""
    found = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        if not line.strip():
            continue
        match = re.fullmatch(r"\s*([0-9a-fA-F]{4,64})\|(\d{1,12})\s*", line)
        if match is None:
            raise InputError(f"{path}, line {number}, must be HASH|SECONDS: make the file with git log "
                             '--format="%h|%ct"')
        found.append(Commit(match[1], float(match[2])))
    if not found:
        raise InputError(f'{path} has no lines: make the file with git log --format="%h|%ct"')
    return found


def add_table(store: Store, path: Path, series: str, known: Mapping[str, Commit]) -> tuple[int, int]:
    """Add the figures of a table to a series; returns the numbers of new lines and of all lines. The whole table is
    read before anything is added.

    known: commits by their hash as the table may write it; supplies dates that the table lacks
    Raises InputError that names the first line that is invalid, or whose figures differ from those in the series.
    """
    rows = list(_rows(path, known))
    if not rows:
        raise InputError(f"{path} has a header but no rows: give at least one")
    repeats: dict[str, int] = {}
    new = []
    for commit, measures in rows:
        number = repeats.get(commit.hash, 0)
        repeats[commit.hash] = number + 1
        result = Result(series, commit.hash, number, path.name, measures=measures)
        there = store.figures(result, commit.date)
        if there is None:
            new.append((result, commit.date))
        elif there != measures:
            raise InputError(f"{path}: the figures of {commit.hash[:10]} differ from those that {series} has already: "
                             "nothing was added; give the table its own series (--series)")
    store.add_commits(commit for commit, _ in rows)
    for result, date in new:
        store.add_result(result, date)
    return len(new), len(rows)


def _rows(path: Path, known: Mapping[str, Commit]) -> Iterator[tuple[Commit, dict[str, float]]]:
    try:
        yield from _cells(csv.DictReader(_text(path).splitlines()), path, known)
    except csv.Error as error:
        raise InputError(f"{path} is not a table ({error}): give a CSV file with a row for each commit") from error


def _cells(reader: "csv.DictReader[str]", path: Path,
           known: Mapping[str, Commit]) -> Iterator[tuple[Commit, dict[str, float]]]:
    names = [n.strip() for n in reader.fieldnames or ()]
    if not set(_KEYS) & set(names) or len(set(names)) < len(names) or not set(names) - set(_KEYS):
        raise InputError(f"{path}: the first line must name the columns: commit or date, and at least one figure, "
                         "each once")
    reader.fieldnames = names
    for row in reader:
        where = f"{path}, line {reader.line_num}"
        if None in row or None in row.values():
            raise InputError(f"{where}: must have as many cells as the first line")
        yield _commit(row, known, where), {n: _number(row[n], f"{where}, {n}") for n in names
                                           if n not in _KEYS and row[n].strip()}


def _commit(row: Mapping[str, str], known: Mapping[str, Commit], where: str) -> Commit:
    name = row.get("commit", "").strip()
    date = _date(row["date"].strip(), where) if row.get("date", "").strip() else None
    if name and not _HASH.fullmatch(name):
        raise InputError(f"{where}: {name!r} is not the name of a commit")
    if name in known:
        return known[name]
    if date is None:
        raise InputError(f"{where}: {name or 'a line'} has no date, and neither --dates nor the repository has one; "
                         "give it with --dates")
    return Commit(name or datetime.fromtimestamp(date, UTC).strftime("%Y-%m-%dT%H-%M-%S"), date)


def _date(text: str, where: str) -> float:
    with suppress(ValueError, OverflowError, OSError):      # not a number, or out of range
        seconds = float(text)
        datetime.fromtimestamp(seconds, UTC)
        return seconds
    try:
        date = datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"{where}: {text!r} is not a date; give seconds since 1970 or YYYY-MM-DD") from error
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise InputError(f"{where}: {text!r} is not a number") from error
    if not math.isfinite(value):
        raise InputError(f"{where}: {text!r} is not a finite number")
    return value


def _text(path: Path) -> str:
    try:
        with reading(path):
            return path.read_bytes().decode("utf-8-sig")       # spreadsheets write a byte order mark
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file: give a CSV file or a list of commits") from error
