"""Truth files: the spectra of a simulated frame."""
from dataclasses import dataclass

import numpy as np

from gpu_extract.data import Array, Card
from gpu_extract.errors import FileName
from gpu_extract.io.fibermap import rows_of
from gpu_extract.io.fits import find, find_optional, image_of, open_fits
from gpu_extract.io.headers import cards_of
from gpu_extract.io.write import image_hdu, table_hdu, write_hdus


@dataclass(frozen=True)
class TruthFile:
    """The content of a truth file.

    wave: (nwave,) Angstrom, centres of the bins; all light of a bin is at its centre
    flux: (nfibre, nwave) electron/Angstrom
    targets: (nfibre,) structured array with FIBRE (number on the camera), or None
    cards: header
    """

    wave: Array
    flux: np.ndarray
    targets: np.ndarray | None = None
    cards: tuple[Card, ...] = ()

    @property
    def fibres(self) -> np.ndarray:
        """(nfibre,) fibre numbers on the camera; counted from 0 without a table of targets."""
        return np.arange(len(self.flux)) if self.targets is None else self.targets["FIBRE"]


def write_truth(path: FileName, truth: TruthFile) -> None:
    """Write WAVELENGTH, FLUX and TARGETS. Raises OutputError if the file cannot be written."""
    hdus = [image_hdu(None, "", cards=truth.cards, primary=True),
            image_hdu(truth.wave, "WAVELENGTH", bunit="Angstrom"),
            image_hdu(truth.flux, "FLUX", bunit="electron/Angstrom")]
    if truth.targets is not None:
        hdus.append(table_hdu(truth.targets, "TARGETS"))
    write_hdus(path, hdus)


def read_truth(path: FileName) -> TruthFile:
    """The spectra in a truth file. Raises InputError if it cannot be read or lacks WAVELENGTH or FLUX."""
    with open_fits(path) as hdus:
        wave = image_of(find(hdus, "WAVELENGTH"), 1)
        flux = image_of(find(hdus, "FLUX"))
        table = find_optional(hdus, "TARGETS")
        rows = None if table is None else rows_of(table)
        return TruthFile(wave, flux, rows, cards_of(hdus[0].header))
