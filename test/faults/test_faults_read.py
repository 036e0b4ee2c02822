"""Faults of the input: each row of the matrix, by one process, then all of them again by three ranks."""
import json
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import pytest
from astropy.io import fits
from case import Change, good_case
from holds import Seen, contract
from rows import READ, Row
from running import run

from gpu_extract.cli.extract import main
from gpu_extract.data import Frame
from mpi_launch import launch

RANKS = 3
DRIVER = Path(__file__).with_name("on_ranks.py")
ROWS = [pytest.param(row, id=f"{section}: {row.fault}") for section, rows in READ for row in rows]


@pytest.mark.parametrize("row", ROWS)
def test_a_fault_of_the_input_has_its_outcome(row: Row, tmp_path: Path, frame_of: Callable[[Change], Frame],
                                              good: Frame) -> None:
    outcome = run(row.change, tmp_path)
    assert outcome.code == row.code, outcome.said
    assert row.says in outcome.said
    lines = outcome.said.splitlines()
    if outcome.frame is None:
        assert len(lines) == 1 and lines[0].startswith("gpu_extract: error: ")
        assert not list(tmp_path.glob("frame*")) and not list(tmp_path.glob(".frame*"))
        return
    assert all(line.startswith("warning: ") for line in lines), outcome.said
    contract(outcome.frame)
    for holds in row.holds:
        holds.check(Seen(outcome.frame, frame_of, good))


def differences(path: Path, reference: Path) -> list[str]:
    """HDUs in which two files differ; every one has a DATASUM, and CHECKSUM is that of a header with a date."""
    with fits.open(path, checksum=True) as ours, fits.open(reference) as theirs:
        names = [(hdu.name, hdu.header["DATASUM"]) for hdu in theirs]
        return [name for (name, value), hdu in zip(names, ours, strict=True)
                if (hdu.name, hdu.header["DATASUM"]) != (name, value)]


def on_three_ranks(rows: list[Row], folder: Path) -> None:
    """All rows in one job: the same exit code, the same message, printed once, and the same bits."""
    commands, alone = [], []
    for number, row in enumerate(rows):
        case = good_case()
        row.change(case)
        words = [*case.write(folder / str(number)), "--loglevel", "warning", "--no-gpu", "-o"]
        said = StringIO()
        with redirect_stderr(said):
            alone.append((main([*words, str(folder / f"alone-{number}.fits")]), said.getvalue()))
        commands.append([*words, str(folder / f"ranks-{number}.fits")])
    (folder / "commands.json").write_text(json.dumps(commands))
    ended = launch(RANKS, DRIVER, folder, folder / "commands.json", limit=600)
    assert ended.code == 0, ended.err
    for number, (row, (code, said)) in enumerate(zip(rows, alone, strict=True)):
        told = [(folder / f"{number}.{rank}").read_text().split("\n", 1) for rank in range(RANKS)]
        assert {int(first) for first, _ in told} == {code}, row.fault
        assert "".join(words for _, words in told).replace("ranks-", "alone-") == said, row.fault
        if code == 0:
            assert differences(folder / f"ranks-{number}.fits", folder / f"alone-{number}.fits") == [], row.fault


def test_on_three_ranks_some(tmp_path: Path) -> None:
    """Every seventh row."""
    on_three_ranks([row for _, rows in READ for row in rows][::7], tmp_path)


@pytest.mark.slow
def test_on_three_ranks_all(tmp_path: Path) -> None:
    on_three_ranks([row for _, rows in READ for row in rows], tmp_path)
