"""A night of small frames, the expected results of a run over it, and how it is started."""
import sys
from pathlib import Path
from typing import Any, NamedTuple

from gpu_extract.cli.extract import main
from gpu_extract.simulate import SimConfig, simulate, write_simulation
from mpi_launch import ROOT, Ended, finish, launch
from ranks import datasums

PROGRAM = ROOT / "bin" / "gpu_extract_exposure"
GRID = "6030,6080,0.85"
FRAMES = 5


class Night(NamedTuple):
    """Images, their PSF, and a frame of each image from gpu_extract."""

    images: list[Path]
    psf: Path
    frames: list[Path]
    more: tuple[str, ...] = ()

    @property
    def options(self) -> list[str]:
        """Options of a run over all images, except the output."""
        return ["-i", *map(str, self.images), "-p", str(self.psf), "-w", GRID, *self.more]


def assert_all_there(night: Night, folder: Path, wanted: list[int] | None = None) -> None:
    """Exactly the frames of these images (default: all) exist, with the bits of gpu_extract."""
    expected = {night.frames[n].name: n for n in (range(len(night.frames)) if wanted is None else wanted)}
    assert sorted(path.name for path in folder.iterdir()) == sorted(expected)
    for name, number in expected.items():
        assert datasums(folder / name) == datasums(night.frames[number]), name


def make_night(folder: Path, *more: str, **settings: Any) -> Night:
    """Simulate the images, and extract each of them singly; with further options, and settings of the simulation."""
    psf = folder / "psf.fits"
    images = [folder / f"preproc-r{n}-00000001.fits" for n in range(FRAMES)]
    frames = [folder / f"frame-r{n}-00000001.fits" for n in range(FRAMES)]
    for number, (image, frame) in enumerate(zip(images, frames, strict=True)):
        write_simulation(simulate(SimConfig(camera="tiny", seed=20 + number, **settings)), image, psf=psf)
        words = ["-i", str(image), "-p", str(psf), "-o", str(frame), "-w", GRID, "--loglevel", "warning", *more]
        assert main(words) == 0
    return Night(images, psf, frames, more)


def run(ranks: int, *words: object, limit: float = 120.0) -> Ended:
    """Run the program on this many ranks, 0: without a launcher."""
    if ranks == 0:
        return finish([sys.executable, str(PROGRAM), *map(str, words)], limit)
    return launch(ranks, PROGRAM, *words, limit=limit)


def errors(ended: Ended) -> list[str]:
    """The program's last error output."""
    start = f"{PROGRAM.name}: error: "
    return [line.removeprefix(start) for line in ended.err.splitlines() if line.startswith(start)]
