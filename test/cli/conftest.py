"""A small image and PSF on disk, and the command run on them."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from edge_files import GRID, small_psf, write_image
from gpu_extract.cli.extract import main
from gpu_extract.io.psf import write_psf


class Files(NamedTuple):
    """The input files and the output path."""

    image: Path
    psf: Path
    output: Path


class Outcome(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line that a failed command prints besides its log."""
        lines = [line for line in self.err.splitlines() if line.startswith("gpu_extract: error: ")]
        assert len(lines) == 1 and "Traceback" not in self.err
        return lines[0].removeprefix("gpu_extract: error: ")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    write_psf(tmp_path / "psf.fits", small_psf())
    write_image(tmp_path / "image.fits")
    (tmp_path / "out").mkdir()
    return Files(tmp_path / "image.fits", tmp_path / "psf.fits", tmp_path / "out" / "frame.fits")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run gpu_extract in this process."""

    def command(*words: object) -> Outcome:
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return command


@pytest.fixture
def extract(run: Callable[..., Outcome], files: Files) -> Callable[..., Outcome]:
    """Run gpu_extract on the small files, with more options."""

    def command(*words: object) -> Outcome:
        given = {str(word) for word in words}
        usual = ["-i", files.image, "-p", files.psf, "-o", files.output]
        return run(*usual, *words, *([] if {"-w", "--preset"} & given else ["-w", GRID]))

    return command
