"""The store of the history: one SQLite file that only ever grows.

    commits    hash, date (seconds since 1970), subject
    runs       one measurement of one commit: series, repeat, when, where, status, message, the record of --perf
    measures   its figures by name
    facts      name and value: the baseline of each series, the place of each commit among commits of one second

A series is a problem on a machine, or an imported one. Each addition is one transaction, so that a killed program
leaves the previous content.
"""
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_extract.errors import InputError, OutputError, check_local
from gpu_extract.io.atomic import check_target
from gpu_extract.perf.clock import epoch

APPLICATION, VERSION = 0x47505458, 1
_TABLES = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
CREATE TABLE commits (hash TEXT PRIMARY KEY, date REAL NOT NULL, subject TEXT NOT NULL DEFAULT '');
CREATE TABLE runs (id INTEGER PRIMARY KEY, series TEXT NOT NULL, hash TEXT NOT NULL REFERENCES commits,
                   repeat INTEGER NOT NULL, measured REAL NOT NULL, machine TEXT NOT NULL, status TEXT NOT NULL,
                   message TEXT NOT NULL DEFAULT '', record TEXT);
CREATE TABLE measures (run INTEGER NOT NULL REFERENCES runs, name TEXT NOT NULL, value REAL NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE UNIQUE INDEX runs_of ON runs (series, hash, repeat, measured);
CREATE INDEX measures_of ON measures (run);
"""
_NAMES = {"commits", "runs", "measures", "facts"}
_NO_NUMBERS = [f"SELECT 1 FROM {table} WHERE typeof({column}) != 'real'" for table, column in
               (("commits", "date"), ("runs", "measured"), ("measures", "value"))]


@dataclass(frozen=True)
class Commit:
    """A commit: its hash, seconds since 1970, first line of its message."""

    hash: str
    date: float
    subject: str = ""


@dataclass(frozen=True)
class Result:
    """One measurement of a commit; status: "ok", or what happened, with a message; measures: figures by name"""

    series: str
    hash: str
    repeat: int
    machine: str
    status: str = "ok"
    message: str = ""
    measures: Mapping[str, float] | None = None
    record: Mapping[str, Any] | None = None


class Store:
    """The store in a file, which is made by the first addition if it does not exist: an error before leaves none.

    Raises InputError if the file is something else or damaged, OutputError if it cannot be made or written.
    """

    def __init__(self, path: Path, *, must_exist: bool = False):
        self.path = path
        if not path.is_file():
            check_local(str(path), "keep the store on a local disk, and send a copy there")
        if must_exist and not path.is_file():
            raise InputError(f"{path}: no such store; gpu_track run or gpu_track import makes one")
        self._in_memory = not path.exists()
        if self._in_memory:
            check_target(path, make=str(path.parent))
        self._open()

    def _open(self) -> None:
        """Open the file, or a store in memory as long as there is none; make the tables where it is empty."""
        path, place = self.path, ":memory:" if self._in_memory else self.path
        try:
            if not self._in_memory:
                path.parent.mkdir(parents=True, exist_ok=True)
            with ExitStack() as undo:
                self._base = undo.enter_context(closing(sqlite3.connect(place, timeout=60.0)))
                self._check()
                undo.pop_all()
        except sqlite3.OperationalError as error:
            raise OutputError(f"{path} cannot be opened ({error}): give a file in a folder that can be written to") \
                from error
        except sqlite3.DatabaseError as error:
            raise InputError(f"{path} is not a store of gpu_track, or is damaged ({error}): give another "
                             "file") from error
        except OSError as error:
            raise OutputError(f"{path} cannot be made: {error.strerror}") from error

    def _check(self) -> None:
        base = self._base
        base.execute("PRAGMA foreign_keys = ON")
        empty = not self._tables()       # checked first: another program may make them now, with its mark
        known = base.execute("PRAGMA application_id").fetchone()[0]
        if empty and known in (0, APPLICATION):
            self._make()
        elif known != APPLICATION:
            raise InputError(f"{self.path} is a database, but not a store of gpu_track: give another file")
        elif base.execute("PRAGMA user_version").fetchone()[0] > VERSION:
            raise InputError(f"{self.path} was made by a newer gpu_track: use that version")
        elif (base.execute("PRAGMA quick_check").fetchone()[0] != "ok" or not self._tables() >= _NAMES
              or any(base.execute(question).fetchone() for question in _NO_NUMBERS)):
            raise InputError(f"{self.path} is damaged: restore it from a copy")

    def _tables(self) -> set[str]:
        return {row[0] for row in self._base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def _make(self) -> None:
        """Make the tables in one transaction, unless another program has just done so."""
        with self._base as base:
            base.execute("BEGIN IMMEDIATE")
            for statement in () if self._tables() else _TABLES.split(";"):
                base.execute(statement)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self._base.close()

    def add_commits(self, commits: Iterable[Commit]) -> int:
        """Add commits that are missing; returns the number of new ones. Dates and subjects of known ones are kept."""
        with self._writing():
            before = self._base.total_changes
            self._base.executemany("INSERT OR IGNORE INTO commits VALUES (?, ?, ?)",
                                   [(c.hash, c.date, c.subject) for c in commits])
            return self._base.total_changes - before

    def add_result(self, result: Result, measured: float | None = None) -> None:
        """Add one measurement of a known commit, once; measured: time (seconds since 1970), default now."""
        record = None if result.record is None else json.dumps(result.record)
        with self._writing():
            row = self._base.execute(
                "INSERT OR IGNORE INTO runs (series, hash, repeat, measured, machine, status, message, record) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (result.series, result.hash, result.repeat, epoch() if measured is None else measured,
                 result.machine, result.status, result.message, record))
            if row.rowcount:
                self._base.executemany("INSERT INTO measures VALUES (?, ?, ?)",
                                       [(row.lastrowid, n, v) for n, v in (result.measures or {}).items()])

    def figures(self, result: Result, measured: float) -> dict[str, float] | None:
        """The stored figures of a measurement, by its series, commit, repeat and time; None if it is missing."""
        row = self._base.execute("SELECT id FROM runs WHERE series = ? AND hash = ? AND repeat = ? AND measured = ?",
                                 (result.series, result.hash, result.repeat, measured)).fetchone()
        return row and dict(self._base.execute("SELECT name, value FROM measures WHERE run = ?", row).fetchall())

    def set_places(self, places: Mapping[str, int]) -> None:
        """commit hash -> number of its ancestors: the order of commits with the same date, as after a rebase."""
        with self._writing():
            self._base.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)",
                                   [(f"place {name}", str(place)) for name, place in places.items()])

    def set_baseline(self, series: str, commit: str) -> None:
        """Choose the commit that a series is relative to."""
        with self._writing():
            self._base.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (f"baseline {series}", commit))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction in the file, whose failure raises OutputError."""
        if self._in_memory:
            self._in_memory = False
            self._base.close()
            self._make_file()
        try:
            with self._base:
                yield
        except sqlite3.Error as error:
            raise OutputError(f"{self.path} cannot be written: {error}; its previous content is safe") from error

    def _make_file(self) -> None:
        """Open the file that does not exist yet. Where the disk is full, SQLite makes an empty one: it is removed."""
        try:
            self._open()
        except OutputError:
            with suppress(OSError):
                if self.path.stat().st_size == 0:
                    self.path.unlink()
            raise

    def baseline(self, series: str) -> str | None:
        """The commit chosen for a series, or None."""
        row = self._base.execute("SELECT value FROM facts WHERE name = ?", (f"baseline {series}",)).fetchone()
        return row[0] if row else None

    def series(self) -> list[str]:
        """Names of all series, the last measured one first."""
        return [r[0] for r in self._base.execute(
            "SELECT series FROM runs GROUP BY series ORDER BY max(measured) DESC, series")]

    def find(self, start: str) -> Commit:
        """The commit whose hash begins like that. Raises InputError unless there is exactly one."""
        rows = self._base.execute("SELECT hash, date, subject FROM commits WHERE substr(hash, 1, ?) = ? LIMIT 3",
                                  (len(start), start)).fetchall()
        if len(rows) != 1:
            raise InputError(f"{start!r} is {'the beginning of several commits' if rows else 'no commit'} of the store")
        return Commit(*rows[0])

    def commits(self, series: str | None = None) -> list[Commit]:
        """All commits, or those of a series, by date, and those of one second by their places."""
        where = "" if series is None else "WHERE hash IN (SELECT hash FROM runs WHERE series = ?)"
        place = "(SELECT CAST(value AS INTEGER) FROM facts WHERE name = 'place ' || hash)"
        rows = self._base.execute(f"SELECT hash, date, subject FROM commits {where} ORDER BY date, {place}, rowid",
                                  () if series is None else (series,))
        return [Commit(*r) for r in rows]

    def measured(self, series: str) -> dict[str, dict[str, list[float]]]:
        """commit hash -> figure -> values of the good repeats, in order."""
        found: dict[str, dict[str, list[float]]] = {}
        for commit, name, value in self._base.execute(
                "SELECT hash, name, value FROM runs JOIN measures ON run = id WHERE series = ? AND status = 'ok' "
                "ORDER BY measured, id", (series,)):
            found.setdefault(commit, {}).setdefault(name, []).append(value)
        return found

    def good(self, series: str, commit: str) -> int:
        """Number of good repeats of a commit."""
        return int(self._base.execute("SELECT count(*) FROM runs WHERE series = ? AND hash = ? AND status = 'ok'",
                                      (series, commit)).fetchone()[0])

    def failures(self, series: str) -> dict[str, str]:
        """commit hash -> last failure, for commits without any good repeat."""
        rows = self._base.execute(
            "SELECT hash, status, message FROM runs WHERE series = ?1 AND status != 'ok' AND hash NOT IN "
            "(SELECT hash FROM runs WHERE series = ?1 AND status = 'ok') ORDER BY measured", (series,))
        return {r[0]: f"{r[1]}: {r[2]}" for r in rows}

    def records(self, series: str, commit: str) -> list[dict[str, Any]]:
        """The records of --perf of a commit's good repeats."""
        rows = self._base.execute("SELECT record FROM runs WHERE series = ? AND hash = ? AND status = 'ok' "
                                  "AND record IS NOT NULL ORDER BY measured, id", (series, commit))
        try:
            return [json.loads(r[0]) for r in rows]
        except ValueError as error:
            raise InputError(f"{self.path} is damaged (a record of {commit[:10]}): restore it from a copy") from error

    def machines(self, series: str) -> list[str]:
        """Names of the machines that a series was measured on."""
        return [r[0] for r in self._base.execute("SELECT DISTINCT machine FROM runs WHERE series = ?", (series,))]
