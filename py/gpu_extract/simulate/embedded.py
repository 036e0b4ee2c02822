"""The embedded frame: a simulated r frame that is made on first use and kept."""
import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from gpu_extract.errors import InputError, OutputError
from gpu_extract.io.lines import night_sky
from gpu_extract.simulate.config import SimConfig
from gpu_extract.simulate.header import VERSION
from gpu_extract.simulate.instrument import DETECTORS
from gpu_extract.simulate.kept import complaint_of, kept_folder
from gpu_extract.user_cache import cache_folder

EMBEDDED = SimConfig(camera="r0", seed=20200707)
_FEW = 4                        # largest number of bundles that are made and kept separately


class EmbeddedFiles(NamedTuple):
    """Paths of a simulated frame's files."""

    image: Path
    psf: Path
    truth: Path


def embedded_default(specmin: int, nspec: int | None, log: Callable[[str], None], *,
                     threads: int = 1) -> EmbeddedFiles:
    """The files of the embedded frame, with the fibres `specmin` .. `specmin` + `nspec` - 1 (as far as they exist).

    A few bundles from the first on come as an image that ends after them; its pixels equal those of the whole frame,
    bit by bit.

    log: called with lines for the user
    Raises InputError if the camera has none of these fibres, OutputError if the files cannot be made.
    """
    folder = _cache()
    config = embedded_config(specmin, nspec)
    made = config.nspec or 0

    def make(into: Path) -> None:
        from gpu_extract.simulate.files import write_simulation
        from gpu_extract.simulate.frame import simulate

        log(f"simulating {made} fibres of an r frame, once; kept in {folder}")
        files = files_of(into, config)
        write_simulation(simulate(config, threads=threads), files.image, psf=files.psf, truth=files.truth,
                         read_noise=False)                  # not read here, and half as much again to verify

    return files_of(kept_folder(folder, _name(config), make, log=log), config)


def embedded_there(specmin: int, nspec: int | None) -> EmbeddedFiles | None:
    """The same files, if they exist unchanged; None if they would have to be made."""
    config = embedded_config(specmin, nspec)
    there = _cache() / _name(config)
    return files_of(there, config) if complaint_of(there) is None else None


def _cache() -> Path:
    folder = cache_folder()
    if folder is None:
        raise OutputError("there is no home folder for the simulated frame; set XDG_CACHE_HOME to a writable folder, "
                          "or give -i and -p")
    return folder


def embedded_config(specmin: int, nspec: int | None) -> SimConfig:
    """The simulation for a fibre range: its bundles, or the whole camera if they are many."""
    detector = DETECTORS[EMBEDDED.band]
    if not 0 <= specmin < detector.nfibre or (nspec is not None and nspec < 1):
        raise InputError(f"fibres from {specmin} on, {nspec} of them: the embedded frame has fibres 0 to "
                         f"{detector.nfibre - 1}; choose --specmin and --nspec within them")
    size = detector.bundlesize
    last = detector.nfibre if nspec is None else min(specmin + nspec, detector.nfibre)
    lo, hi = specmin // size * size, -(-last // size) * size
    if hi - lo > _FEW * size:
        lo, hi = 0, detector.nfibre
    return replace(EMBEDDED, specmin=lo, nspec=hi - lo, crop=hi < detector.nfibre)


def _name(config: SimConfig) -> str:
    """A folder's name contains everything that its content depends on."""
    sky = night_sky()
    numbers = [array.tolist() for array in (sky.knots, sky.continuum, sky.lines, sky.strengths)]
    text = f"{VERSION} {config.digest()} {numbers}"
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    last = config.specmin + (config.nspec or 0) - 1
    return f"simulated-v{VERSION}-{config.camera}-{config.specmin:03d}-{last:03d}-{key}"


def files_of(folder: Path, config: SimConfig) -> EmbeddedFiles:
    """Names of a simulated frame's files in a folder."""
    frame = f"{config.camera}-{config.expid:08d}.fits"
    return EmbeddedFiles(folder / f"preproc-{frame}", folder / f"psf-{frame}", folder / f"truth-{frame}")
