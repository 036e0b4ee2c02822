"""Simulated frames for an exposure, which all ranks make once and keep."""
import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_extract.cli.common import at_least, log
from gpu_extract.cli.exposure_list import Entry, output_of
from gpu_extract.errors import InputError

if TYPE_CHECKING:
    from gpu_extract.seams import Comm
    from gpu_extract.simulate import EmbeddedFiles, SimConfig

FOLDER = "simulated"


def simulated_entries(args: argparse.Namespace, comm: "Comm") -> tuple[Entry, ...]:
    """The frames of --simulate; all ranks call this, and each makes the frames assigned to it.

    Raises InputError or ConfigError for impossible simulations, OutputError if files cannot be written.
    """
    configs = [_config(args, number) for number in range(args.simulate)]
    numbers = comm.hand_out(len(configs))
    try:
        for number in iter(numbers.take, None):
            _make(args.output, configs[number])
    finally:
        numbers.close()
    comm.barrier()
    found = [_files(args.output, config) for config in configs]
    return tuple(Entry(str(files.image), str(files.psf), output_of(args.output, files.image.name)) for files in found)


def check_simulation(args: argparse.Namespace) -> None:
    """Raise InputError if the options are inconsistent."""
    at_least(args.simulate, "--simulate")
    if args.output is None:
        raise InputError("--simulate needs -o FOLDER, for frames and simulated images")
    if args.psf is not None:
        raise InputError("--simulate makes its own PSFs; leave -p out")


def _config(args: argparse.Namespace, number: int) -> "SimConfig":
    """Settings of one frame: the bundles that will be extracted, a camera in turn, its own seed."""
    from gpu_extract.simulate import SimConfig

    cameras = args.camera.split(",")
    return SimConfig(camera=cameras[number % len(cameras)], specmin=args.specmin, nspec=args.nspec,
                     seed=args.seed + number, expid=number + 1, crop=args.nspec is not None)


def _files(folder: str, config: "SimConfig") -> "EmbeddedFiles":
    """A frame's files, in the folder where they are kept."""
    from gpu_extract.simulate.embedded import files_of
    from gpu_extract.simulate.header import VERSION

    kept = f"v{VERSION}-{config.camera}-{config.expid:08d}-{config.digest()}"
    return files_of(Path(folder) / FOLDER / kept, config)


def _make(folder: str, config: "SimConfig") -> None:
    """Make one frame, unless it exists unchanged."""
    from gpu_extract.simulate import simulate, write_simulation
    from gpu_extract.simulate.kept import kept_folder

    image, psf, _ = _files(folder, config)

    def make(into: Path) -> None:
        log.info(f"simulating {image.name}, once; kept in {os.path.join(folder, FOLDER)}")
        write_simulation(simulate(config), into / image.name, psf=into / psf.name)

    kept_folder(image.parent.parent, image.parent.name, make, log=log.info)
