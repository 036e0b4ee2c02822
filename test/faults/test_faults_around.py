"""Faults of the environment and of writing: each row of the matrix, with the whole command."""
import os
import shlex
import subprocess
import sys
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import pytest
from case import good_case
from rows import SURROUNDINGS, WHOLE, WRITING, Surroundings, Writing

from gpu_extract.cli.extract import main
from ranks import datasums, program

OLD = b"the old frame"


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command on the good case, without the output; its frame lies beside the image."""
    folder = tmp_path_factory.mktemp("good")
    made = [*good_case().write(folder), "--loglevel", "warning", "--no-gpu"]
    assert main([*made, "-o", str(folder / "good.fits")]) == 0
    return made


def good(words: list[str]) -> dict[str, str]:
    """DATASUMs of the frame in a good environment."""
    return datasums(Path(words[1]).with_name("good.fits"))


@pytest.mark.parametrize("row", [pytest.param(row, id=row.fault, marks=[pytest.mark.slow] if row.slow else [])
                                 for row in SURROUNDINGS])
def test_a_fault_of_the_surroundings_has_its_outcome(row: Surroundings, words: list[str], tmp_path: Path) -> None:
    output = tmp_path / "frame.fits"
    output.write_bytes(OLD)
    run = shlex.join([*program("gpu_extract"), *words, "-o", str(output)])
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_NUM_THREADS")}
    done = subprocess.run(["bash", "-c", row.shell.format(run=run, folder=Path(words[1]).parent)], capture_output=True,
                          text=True, check=False, timeout=120, env=environment)
    assert done.returncode == row.code and row.says in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == bool(row.says)
    written = row.code == 0 or "--test" in row.shell
    assert (datasums(output) == good(words)) if written else output.read_bytes() == OLD
    assert [path.name for path in tmp_path.iterdir() if not (row.code == 137 and path.name.startswith("."))] == \
        ["frame.fits"]


def test_the_size_of_the_frame_is_known(words: list[str]) -> None:
    """Two rows have it as a limit: after a change of a frame's content, update it in rows.py."""
    assert Path(words[1]).with_name("good.fits").stat().st_size == WHOLE


@pytest.mark.parametrize("row", [pytest.param(row, id=row.fault) for row in WRITING])
def test_a_fault_while_writing_has_its_outcome(row: Writing, words: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    output = folder / "frame.fits"
    output.write_bytes(OLD)
    said = StringIO()
    with row.around(folder), redirect_stderr(said):
        code = main([*words, "-o", str(output)])
    assert code == row.code, said.getvalue()
    if code == 0:
        assert datasums(output) == good(words)
    else:
        (line,) = said.getvalue().splitlines()
        assert line.startswith(f"gpu_extract: error: {output}: ") and row.says in line
        assert "no file was changed" in line
        assert output.read_bytes() == OLD
    assert [path.name for path in folder.iterdir()] == ["frame.fits"]


def test_the_commands_run_this_python() -> None:
    """The rows above refer to this Python."""
    assert program("gpu_extract")[0] == sys.executable
