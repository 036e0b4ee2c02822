"""The case that faults are put into: a small simulated image with its PSF, two bundles of five fibres.

A fault lies in the first bundle; the second is its neighbour. A case consists of FITS files in memory: a fault is a
function that changes them, or the options, before they are written.
"""
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
from astropy.io import fits

from gpu_extract.simulate import NO_DEFECTS, SimConfig, simulate, write_simulation

GRID = "6012,6098,0.85"       # that of test/ranks: its kernels are compiled once
BUNDLE, FIBRES, BINS = 5, 10, 102
ON_TRACE, IN_CORE, BETWEEN = (96, 20), (96, 27), (96, 23)        # pixels (y, x) of the first bundle


@dataclass
class Case:
    """A command's input: the HDUs of its files, and options beyond those that name them.

    words: None in place of an option omits its usual value
    """

    image: fits.HDUList
    psf: fits.HDUList
    options: list[str] = field(default_factory=lambda: ["-w", GRID])
    fibermap: fits.HDUList | None = None

    @property
    def pix(self) -> np.ndarray:
        """Pixels of the image."""
        return self.image["IMAGE"].data

    @property
    def ivar(self) -> np.ndarray:
        """Their inverse variance."""
        return self.image["IVAR"].data

    def write(self, folder: Path) -> list[str]:
        """Write the files; returns the command line without the output."""
        folder.mkdir(parents=True, exist_ok=True)
        words = []
        for option, name, hdus in (("-i", "image.fits", self.image), ("-p", "psf.fits", self.psf),
                                   ("-f", "fibermap.fits", self.fibermap)):
            if hdus is not None:
                hdus.writeto(folder / name, checksum=True, overwrite=True, output_verify="ignore")
                words += [option, str(folder / name)]
        return [*words, *self.options]


Change = Callable[[Case], None]


@cache
def _files(nspec: int) -> tuple[bytes, bytes]:
    """The good image and PSF, as files."""
    import tempfile

    made = simulate(SimConfig(camera="tiny", seed=11, nspec=nspec, defects=NO_DEFECTS))
    with tempfile.TemporaryDirectory() as name:
        image, psf = Path(name) / "image.fits", Path(name) / "psf.fits"
        write_simulation(made, image, psf=psf)
        return image.read_bytes(), psf.read_bytes()


def good_case(nspec: int = FIBRES) -> Case:
    """A case without a fault, ready to be changed."""
    image, psf = (_opened(content) for content in _files(nspec))
    return Case(image, psf)


def _opened(content: bytes) -> fits.HDUList:
    """All HDUs of a file, in memory, without their old checksums. Data are read when they are used."""
    hdus = fits.open(BytesIO(content), memmap=False, lazy_load_hdus=False)
    for hdu in hdus:
        for key in ("CHECKSUM", "DATASUM"):
            hdu.header.remove(key, ignore_missing=True)
    return hdus
