"""A night of small simulated frames, and each of them extracted by itself."""
from pathlib import Path

import pytest
from nights import FRAMES, GRID, Night

from gpu_extract.cli.extract import main
from gpu_extract.simulate import SimConfig, simulate, write_simulation


@pytest.fixture(scope="session")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    folder = tmp_path_factory.mktemp("night")
    psf = folder / "psf.fits"
    images = [folder / f"preproc-r{n}-00000001.fits" for n in range(FRAMES)]
    frames = [folder / f"frame-r{n}-00000001.fits" for n in range(FRAMES)]
    for number, (image, frame) in enumerate(zip(images, frames, strict=True)):
        write_simulation(simulate(SimConfig(camera="tiny", seed=20 + number)), image, psf=psf)
        assert main(["-i", str(image), "-p", str(psf), "-o", str(frame), "-w", GRID, "--loglevel", "warning"]) == 0
    return Night(images, psf, frames)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the frames go."""
    made = tmp_path / "out"
    made.mkdir()
    return made
