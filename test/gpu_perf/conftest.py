"""A small frame on disk, and a small project with commits."""
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from assess_project import git

from gpu_extract.simulate import SimConfig, simulate, write_simulation

GRID = "6012,6098,0.85"
# a project whose gpu_extract sleeps and writes a record: SECONDS stands for the run time of the commit's code
PROGRAM = """
    import json, sys, time
    from gpu_extract.perf.record import whole
    from gpu_extract.perf.recorder import Recorder

    recorder = Recorder()
    with recorder.span("extract"):
        with recorder.span("bundle"):
            time.sleep(SECONDS)
        with recorder.span("mpi gather"):
            time.sleep(0.2 * SECONDS)
    record = whole([recorder.record()], {"program": "gpu_extract", "version": "0", "commit": "COMMIT"})
    open(sys.argv[sys.argv.index("--perf") + 1], "w").write(json.dumps(record))
"""


@pytest.fixture(scope="session")
def small_frame(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Options of gpu_extract that name a frame of two bundles of five fibres."""
    folder = tmp_path_factory.mktemp("frame")
    image, psf = folder / "image.fits", folder / "psf.fits"
    write_simulation(simulate(SimConfig(camera="tiny", seed=11)), image, psf=psf)
    return "-i", str(image), "-p", str(psf), "-w", GRID, "--loglevel", "warning"


Project = Callable[..., Path]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Makes a project of commits a day apart: the seconds of each, None if it cannot run."""
    def made(*seconds: float | None) -> Path:
        folder = tmp_path / "project"
        (folder / "bin").mkdir(parents=True)
        git(folder, "init", "-q", "-b", "main")
        for day, each in enumerate(seconds, 1):
            text = textwrap.dedent(PROGRAM).replace("SECONDS", str(each)) if each is not None else "this is no Python\n"
            (folder / "bin" / "gpu_extract").write_text(text)
            git(folder, "add", "-A")
            date = f"2026-01-{day:02d}T12:00:00+0000"
            git(folder, "-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m",
                f"Change {day}",
                GIT_AUTHOR_DATE=date, GIT_COMMITTER_DATE=date)
        return folder

    return made
