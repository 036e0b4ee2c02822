"""Exports of Nsight Systems, made here with the schema of its documentation: read, sorted, reported."""
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gpu_extract.errors import InputError
from gpu_perf.cli.perf import main
from gpu_perf.nsys import NO_RANGE, read_profile
from gpu_perf.nsys_report import busy, copy_table, gap_table, kernel_table, length, report_of, uses

PROCESS = 0x1000000000000 + (77 << 24)         # globalTid of thread 0; the process is in the bits above the lowest 24
MAIN, OTHER = PROCESS + 11, PROCESS + 12
TABLES = {
    "StringIds": "id INTEGER, value TEXT",
    "NVTX_EVENTS": "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER, "
                   "domainId INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, "
                                   "nameId INTEGER",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, "
                                  "correlationId INTEGER, globalPid INTEGER, shortName INTEGER, demangledName INTEGER, "
                                  "gridX INTEGER, blockX INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, "
                                  "correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER"}
MS = 1_000_000
# bundle 0-100 ms holds normal 10-40 and solve 50-90; another thread is in "read" all the time
ROWS = {
    "StringIds": [(1, "add_tile"), (2, "void add_tile<float>(...)"), (3, "solve_band"), (4, "solve"), (5, "launch")],
    "NVTX_EVENTS": [(0, 100 * MS, 59, "bundle", None, MAIN, 0), (10 * MS, 40 * MS, 59, "normal", None, MAIN, 0),
                    (50 * MS, 90 * MS, 59, None, 4, MAIN, 0), (0, 200 * MS, 60, "read", None, OTHER, 0),
                    (5 * MS, None, 34, "a mark", None, MAIN, 0)],
    "CUPTI_ACTIVITY_KIND_RUNTIME": [(11 * MS, 12 * MS, MAIN, 101, 5), (20 * MS, 21 * MS, MAIN, 102, 5),
                                    (55 * MS, 56 * MS, MAIN, 103, 5), (5 * MS, 6 * MS, MAIN, 104, 5),
                                    (60 * MS, 61 * MS, OTHER, 105, 5)],
    "CUPTI_ACTIVITY_KIND_KERNEL": [(12 * MS, 22 * MS, 0, 7, 101, PROCESS, 1, 2, 64, 128),
                                   (22 * MS, 30 * MS, 0, 7, 102, PROCESS, 1, 2, 64, 128),
                                   (60 * MS, 64 * MS, 0, 7, 103, PROCESS, 3, 3, 8, 128),
                                   (96 * MS, 97 * MS, 0, 7, 999, PROCESS, 3, 3, 8, 128)],
    "CUPTI_ACTIVITY_KIND_MEMCPY": [(6 * MS, 8 * MS, 0, 8, 104, PROCESS, 20_000_000, 1),
                                   (61 * MS, 62 * MS, 0, 8, 105, PROCESS, 5_000, 2)]}

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(*without: str, drop: str = "") -> Path:
        path = tmp_path / "run.sqlite"
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as base, base:
            for table, columns in TABLES.items():
                if table in without:
                    continue
                kept = [c for c in columns.split(", ") if c.split()[0] != drop]
                base.execute(f"CREATE TABLE {table} ({', '.join(kept)})")
                chosen = [i for i, c in enumerate(columns.split(", ")) if c.split()[0] != drop]
                for row in ROWS[table]:
                    base.execute(f"INSERT INTO {table} VALUES ({', '.join('?' for _ in chosen)})",
                                 [row[i] for i in chosen])
        return path

    return made


def test_kernels_and_copies_stand_under_the_ranges_of_their_calls(make: Make) -> None:
    profile = read_profile(make())
    assert profile.missing == ()
    found = [(a.kind, a.name, a.stage) for a in profile.activities]
    assert found == [
        ("h2d", "copy", ("bundle",)), ("kernel", "add_tile", ("bundle", "normal")),
        ("kernel", "add_tile", ("bundle", "normal")), ("kernel", "solve_band", ("bundle", "solve")),
        ("d2h", "copy", ("read",)), ("kernel", "solve_band", (NO_RANGE,))]
    assert [round(1e3 * a.start, 6) for a in profile.activities] == [6, 12, 22, 60, 61, 96]
    assert profile.activities[1].seconds == pytest.approx(0.010)


def test_tables_by_hand(make: Make) -> None:
    profile = read_profile(make())
    kernels = kernel_table(profile).rows
    assert kernels[0][:5] == ("bundle > normal", "add_tile", "2", "18.000", "78.3%")       # of 23 ms
    assert kernels[0][5:] == ("9000.0", "10000.0")
    copies = {row[:3]: row[3:] for row in copy_table(profile).rows}
    assert copies["h2d", "from 16 MB to 256 MB", "1"] == ("20", "2.000", "10")              # 20 MB in 2 ms
    assert copies["d2h", "from 4 kB to 64 kB", "1"][0] == "0.005"
    # busy 6-8, 12-30, 60-64, 96-97: gaps 4, 30, 32 ms
    assert length(busy(profile.activities)) == pytest.approx(0.025)
    assert [round(1e3 * (end - start)) for start, end in uses(profile)[0].gaps] == [32, 30, 4]
    assert gap_table(profile).rows[0][1:] == ("0.064000", "32.000", "solve")


def test_the_verdict_names_the_idle_gpu(make: Make) -> None:
    text = report_of(read_profile(make())).text()
    assert "An idle GPU costs 73% of the time" in text           # 66 of 91 ms
    assert "0.066 s of 0.091 s" in text
    page = report_of(read_profile(make())).html()
    assert "solve_band" in page and "http" not in page


@pytest.mark.parametrize(("table", "words"), [
    ("CUPTI_ACTIVITY_KIND_KERNEL", "kernels: the table"), ("NVTX_EVENTS", "--nvtx"),
    ("CUPTI_ACTIVITY_KIND_RUNTIME", "cannot be assigned to stages"), ("CUPTI_ACTIVITY_KIND_MEMCPY", "copies: ")])
def test_what_is_absent_is_said(make: Make, table: str, words: str) -> None:
    profile = read_profile(make(table))
    (said,) = profile.missing
    assert words in said and table in said
    assert "Not in this export" in report_of(profile).text()


def test_older_columns(make: Make) -> None:
    """Without globalPid the only process is used; without eventType every row with an end is a range."""
    profile = read_profile(make(drop="globalPid"))
    assert ("bundle", "normal") in {a.stage for a in profile.activities}
    assert {r.name for r in read_profile(make(drop="eventType")).ranges} == {"bundle", "normal", "solve", "read"}


def test_the_same_numbers_in_two_processes(make: Make) -> None:
    path = make()
    other = PROCESS + (1 << 24)
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("INSERT INTO NVTX_EVENTS VALUES (0, ?, 59, 'elsewhere', NULL, ?, 0)", (300 * MS, other + 1))
        base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, 101, 5)",
                     (150 * MS, 151 * MS, other + 1))
        base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 1, 7, 101, ?, 3, 3, 8, 128)",
                     (160 * MS, 161 * MS, other))
    found = {(a.device, a.stage) for a in read_profile(path).activities if a.kind == "kernel"}
    assert (1, ("elsewhere",)) in found and (0, ("bundle", "normal")) in found


@pytest.mark.parametrize(("kind", "words"), [
    ("missing", "no such file"), ("text", "not a complete SQLite file"), ("cut", "not a complete SQLite file"),
    ("foreign", "not an export of Nsight Systems")])
def test_files_that_are_no_exports(make: Make, tmp_path: Path, kind: str, words: str,
                                   capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.sqlite"
    if kind == "text":
        path.write_text("this is no database, and long enough to be looked at " * 20)
    elif kind == "cut":
        path.write_bytes(make().read_bytes()[:5000])
    elif kind == "foreign":
        with closing(sqlite3.connect(path)) as base, base:
            base.execute("CREATE TABLE birds (name TEXT)")
    with pytest.raises(InputError, match=words):
        read_profile(path)
    assert main(["nsys", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gpu_perf: error: ") and words in line


def test_the_command_writes_text_and_page(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert main(["nsys", str(make()), "--html", str(page)]) == 0
    assert "Kernels by stage" in capsys.readouterr().out
    assert "Kernels by stage" in page.read_text() and '<p class="note"></p>' not in page.read_text()


def test_the_page_in_a_browser(make: Make, tmp_path: Path, browser: Any) -> None:
    page = tmp_path / "page.html"
    page.write_text(report_of(read_profile(make())).html())
    browser.open(page)
    assert "An idle GPU costs 73%" in browser.text("ul.summary")
    rows = [row.text.split() for row in browser.all("#t-kernels-by-stage + .scroll tbody tr")]
    assert rows[0] == ["bundle", ">", "normal", "add_tile", "2", "18.000", "78.3%", "9000.0", "10000.0"]
    assert browser.requests() == [] and browser.complaints() == []


@pytest.mark.parametrize("words", [
    ("nsys", "FILE", "--html", "FILE"), ("report", "FILE", "--html", "FILE"), ("talp", "FILE", "-o", "FILE"),
    ("report", "other", "--reference", "FILE", "--html", "FILE"),
    ("talp", "other", "--reference", "FILE", "-o", "FILE"),
    ("report", "other", "--ceilings", "FILE", "--html", "FILE")])
def test_what_a_report_is_made_from_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                          words: tuple[str, ...]) -> None:
    path = tmp_path / "file"
    path.write_text("an input")
    assert main([str(path) if word == "FILE" else word for word in words]) == 2
    assert f"{path}: {words[-2]} is the same file as " in capsys.readouterr().err
    assert path.read_text() == "an input"
