"""Simulated frames for an exposure: made once, by all ranks, and kept."""
import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_extract.cli.common import at_least, log
from gpu_extract.cli.exposure_list import Entry, output_of
from gpu_extract.errors import InputError

if TYPE_CHECKING:
    from gpu_extract.seams import Comm
    from gpu_extract.simulate import SimConfig

FOLDER = "simulated"


def simulated_entries(args: argparse.Namespace, comm: "Comm") -> tuple[Entry, ...]:
    """The frames of --simulate; all ranks come here, and each makes what is handed to it.

    Raises InputError, ConfigError for what cannot be simulated, OutputError where files cannot be written.
    """
    configs = [_config(args, number) for number in range(args.simulate)]
    numbers = comm.hand_out(len(configs))
    try:
        for number in iter(numbers.take, None):
            _make(args.output, configs[number])
    finally:
        numbers.close()
    comm.barrier()
    return tuple(_entry(args.output, config) for config in configs)


def check_simulation(args: argparse.Namespace) -> None:
    """Raise InputError where the options make no sense together."""
    at_least(args.simulate, "--simulate")
    if args.output is None:
        raise InputError("--simulate needs -o FOLDER: frames and simulated images go there")
    if args.psf is not None:
        raise InputError("--simulate makes its own PSFs; leave -p out")


def _config(args: argparse.Namespace, number: int) -> "SimConfig":
    """Settings of one frame: the bundles that will be extracted, a camera in turn, a seed of its own."""
    from gpu_extract.simulate import SimConfig

    cameras = args.camera.split(",")
    return SimConfig(camera=cameras[number % len(cameras)], specmin=args.specmin, nspec=args.nspec,
                     seed=args.seed + number, expid=number + 1, crop=args.nspec is not None)


def _files(folder: str, config: "SimConfig") -> tuple[Path, str, str]:
    """The folder in which a frame's files are kept, and their names."""
    from gpu_extract.simulate.header import VERSION

    kept = Path(folder) / FOLDER / f"v{VERSION}-{config.camera}-{config.expid:08d}-{config.digest()}"
    return kept, f"preproc-{config.camera}-{config.expid:08d}.fits", f"psf-{config.camera}-{config.expid:08d}.fits"


def _entry(folder: str, config: "SimConfig") -> Entry:
    kept, image, psf = _files(folder, config)
    return Entry(str(kept / image), str(kept / psf), output_of(folder, image))


def _make(folder: str, config: "SimConfig") -> None:
    """Make one frame where it is not there as it was made."""
    from gpu_extract.simulate import simulate, write_simulation
    from gpu_extract.simulate.kept import kept_folder

    kept, image, psf = _files(folder, config)

    def make(into: Path) -> None:
        log.info(f"simulating {image}, once; kept in {os.path.join(folder, FOLDER)}")
        write_simulation(simulate(config), into / image, psf=into / psf)

    kept_folder(kept.parent, kept.name, make, log=log.info)
