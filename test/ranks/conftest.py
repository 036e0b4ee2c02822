"""A small simulated image on disk, and its extraction settings."""
import pytest

from gpu_extract.simulate import SimConfig, simulate, write_simulation
from mpi_launch import Frames, no_segments_left  # noqa: F401     a fixture

GRID = "6012,6098,0.85"
FINE = "6012,6098,0.4"     # with pads two tiles of the normal equations; each frame takes 3.5 CPU seconds


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The options that name it and its PSF."""
    folder = tmp_path_factory.mktemp("mpi")
    image, psf = folder / "image.fits", folder / "psf.fits"
    write_simulation(simulate(SimConfig(camera="tiny", seed=11)), image, psf=psf)
    return "-i", str(image), "-p", str(psf), "--loglevel", "warning"


@pytest.fixture(scope="session")
def frames(tmp_path_factory: pytest.TempPathFactory, image: tuple[str, ...]) -> Frames:
    return Frames(tmp_path_factory.mktemp("frames"), (*image, "-w", GRID))


@pytest.fixture(scope="session")
def fine(tmp_path_factory: pytest.TempPathFactory, image: tuple[str, ...]) -> Frames:
    return Frames(tmp_path_factory.mktemp("fine"), (*image, "-w", FINE))
