"""A small simulated frame on disk."""
from collections.abc import Iterator

import pytest

from gpu_extract.simulate import SimConfig, simulate, write_simulation
from mpi_launch import Frames, unused_segments

GRID = "6012,6098,0.4"     # with pads two tiles of the normal equations


@pytest.fixture(scope="session")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Frames:
    folder = tmp_path_factory.mktemp("mpi")
    image, psf = folder / "image.fits", folder / "psf.fits"
    write_simulation(simulate(SimConfig(camera="tiny", seed=11)), image, psf=psf)
    options = ("-i", str(image), "-p", str(psf), "-w", GRID, "--loglevel", "warning")
    return Frames(folder, options)


@pytest.fixture(autouse=True)
def no_segments_left() -> Iterator[None]:
    """MPI leaves its own shared memory behind where ranks were killed: remove what is new and nobody's."""
    before = unused_segments()
    yield
    for path in unused_segments() - before:
        path.unlink(missing_ok=True)
