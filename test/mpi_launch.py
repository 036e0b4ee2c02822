"""Start programs under a real mpiexec, and check what remains after they have ended."""
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

import ranks as ranks_at_work
from gpu_extract.cli.extract import main
from ranks import ROOT, VARIABLES

PROGRAM = ROOT / "bin" / "gpu_extract"
LIMIT = 30.0     # seconds within which all ranks must be gone after one of them is lost


class Frames:
    """Options that name a small image with its PSF (two bundles of five fibres), and the frame from one process.

    Most tests need only the options: each file is made when it is first requested.
    """

    def __init__(self, folder: Path, options: tuple[str, ...]):
        self._folder, self.options = folder, options
        self.one_bundle = (*options, "-s", "5", "-n", "5")

    def _made(self, name: str, *words: object) -> Path:
        path = self._folder / name
        if not path.exists():
            assert main([*map(str, words), "-o", str(path)]) == 0
        return path

    @property
    def frame(self) -> Path:
        return self._made("whole.fits", *self.options)

    @property
    def frame_of_one(self) -> Path:
        return self._made("one.fits", *self.one_bundle)

    @property
    def frame_with_model(self) -> Path:
        return self._made("also.fits", *self.options, "-m", self._folder / "model.fits")

    @property
    def model(self) -> Path:
        return self.frame_with_model.with_name("model.fits")


class Ended(NamedTuple):
    """How a launched program ended."""

    code: int
    out: str
    err: str
    end: float        # of time.monotonic

    @property
    def errors(self) -> list[str]:
        """The program's error output, without the launcher's."""
        start = "gpu_extract: error: "
        return [line.removeprefix(start) for line in self.err.splitlines() if line.startswith(start)]


def launcher(ranks: int) -> list[str]:
    """The command that starts this many ranks; the test is skipped if there is no launcher."""
    try:
        return ranks_at_work.launcher(ranks)
    except SystemExit as absent:
        pytest.skip(str(absent))


def launch(ranks: int, *words: object, limit: float = 120.0, **variables: str) -> Ended:
    """Run Python on `words` under mpiexec, and wait until everything has ended."""
    return finish([*launcher(ranks), sys.executable, *(str(word) for word in words)], limit, variables)


def finish(command: Sequence[str], limit: float = 120.0, variables: dict[str, str] | None = None) -> Ended:
    """Run a command, at most `limit` seconds long."""
    environment = {**os.environ, **VARIABLES, **(variables or {})}
    ended = subprocess.run(list(command), capture_output=True, text=True, errors="replace", check=False,
                           timeout=limit, env=environment, stdin=subprocess.DEVNULL)
    return Ended(ended.returncode, ended.stdout, ended.stderr, time.monotonic())


def wait_for_none(word: str, limit: float = 5.0) -> list[int]:
    """The processes with `word` that still exist after this many seconds; zombies have no command line."""
    end = time.monotonic() + limit
    while (left := list(ranks_at_work.processes_with(word))) and time.monotonic() < end:
        time.sleep(0.1)
    return left


def unused_segments() -> set[Path]:
    """MPI's segments of shared memory that no process has mapped, in two looks: while a job of the other worker starts
    or ends, it has such a segment for milliseconds."""
    if first := unmapped_segments():
        time.sleep(0.1)
        return first & unmapped_segments()
    return first


@contextmanager
def removing_segments() -> Iterator[None]:
    """MPI leaves its shared memory behind when ranks are killed: remove new segments without an owner at the end."""
    before = unused_segments()
    yield
    for path in unused_segments() - before:
        path.unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def no_segments_left() -> Iterator[None]:
    """The same for each test where this fixture is imported."""
    with removing_segments():
        yield


def unmapped_segments() -> set[Path]:
    """The segments that no process has mapped now."""
    memory = Path("/dev/shm")
    there = {*memory.glob("mpich_shm_*"), *memory.glob("sm_segment.*")}
    for maps in Path("/proc").glob("[0-9]*/maps") if there else ():
        try:
            text = maps.read_text(errors="replace")
        except OSError:
            continue
        there -= {path for path in there if str(path) in text}
    return there
