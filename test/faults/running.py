"""The command on a case with a fault, in this process."""
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from case import Change, good_case

from gpu_extract.cli.extract import main
from gpu_extract.data import Frame
from gpu_extract.io.frame import read_frame


@dataclass(frozen=True)
class Outcome:
    """The result of a command: its exit code, its output, and its frame."""

    code: int
    said: str
    frame: Frame | None


def run(change: Change, folder: Path) -> Outcome:
    """The command on a changed case."""
    case = good_case()
    change(case)
    said, output = StringIO(), folder / "frame.fits"
    words = case.write(folder)
    with redirect_stderr(said):
        code = main([*words, "-o", str(output), "--loglevel", "warning", "--no-gpu"])
    return Outcome(code, said.getvalue(), read_frame(output) if code == 0 else None)
