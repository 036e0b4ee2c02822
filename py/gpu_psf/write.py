"""The file of a fitted PSF: GAUSS-HERMITE version 3 with three more tables."""
import os
from collections.abc import Sequence

import numpy as np

from gpu_extract import __version__
from gpu_extract.data import Card
from gpu_extract.errors import FileName
from gpu_extract.io.psf import ORIGIN, write_psf
from gpu_psf.data import FitConfig
from gpu_psf.run import FittedPsf
from gpu_psf.series import legval
from gpu_psf.shift.run import Reference, ShiftedPsf

_CARRIED = ("CAMERA", "INSTRUME", "TELESCOP", "DETECTOR", "SPECGRPH", "NIGHT", "EXPID")

FITTED = "FITTED"               # instead of FIBRES in a file of tables
SHIFTS = np.dtype([("FIBER", "i4"), ("XSHIFT", "f8"), ("YSHIFT", "f8")])


def write_fitted(path: FileName, fitted: FittedPsf, *, cards: Sequence[Card], config: FitConfig,
                 inputs: Sequence[str]) -> None:
    """Write a fitted PSF, completely or not at all.

    cards: header of the first arc, whose identifying cards are carried over; inputs: names of the files it was
    made from: arcs, then the starting PSF
    Raises OutputError.
    """
    names = [Card(f"IN_ARC{n}", os.path.basename(name)[:60]) for n, name in enumerate(inputs[:-1][:100])]
    own = (Card("FITTER", f"gpu_psf {__version__}"), *names, Card("IN_PSF", os.path.basename(inputs[-1])[:60]),
           Card("FITGH", config.degree_gh, "degree of the Gauss-Hermite terms"),
           Card("FITWAVE", config.degree_wave, "degree of shapes in wavelength"),
           Card("FITACROS", config.degree_across, "degree of shapes across a bundle"),
           Card("FITTAIL", config.tail is not None, "whether the amplitude of tails was fitted"),
           Card("FITCONT", config.continuum, "where light beside the lines was fitted"))
    carried = tuple(card for card in cards if card.key in _CARRIED)
    tabulated = fitted.psf.tabulated            # its files hold the fibres of the tables in an HDU FIBRES
    write_psf(path, fitted.psf, cards=(*carried, *own), status=None if tabulated else fitted.fibres["STATUS"],
              continuum=None if tabulated else fitted.continuum,
              tables={FITTED if tabulated else "FIBRES": fitted.fibres, "BUNDLES": fitted.bundles,
                      "SPOTS": fitted.spots})


def write_shifted(path: FileName, found: ShiftedPsf, *, cards: Sequence[Card], inputs: tuple[str, str]) -> None:
    """Write the PSF of an exposure, completely or not at all.

    cards: header of the exposure; inputs: names of the exposure and of the PSF
    Raises OutputError.
    """
    rows = np.zeros(found.psf.nfibre, SHIFTS)
    rows["FIBER"] = np.arange(len(rows))
    for name, shift in (("XSHIFT", found.x), ("YSHIFT", found.y)):
        rows[name] = legval(0.0, shift.series().T)          # at the middle wavelength
    own = (Card("FITTER", f"gpu_psf {__version__}"), Card("IN_IMG", os.path.basename(inputs[0])[:60]),
           Card(ORIGIN, os.path.basename(inputs[1])[:60]),
           Card("YREF", str(found.reference), "reference of the shift in y"),
           Card("XSHERR", found.x.error(), "pixels, largest uncertainty of the shift in x"),
           *([Card("YSHERR", found.y.error(), "pixels, the same in y")] if found.reference is Reference.LINES else []))
    carried = tuple(card for card in cards if card.key in _CARRIED)
    write_psf(path, found.psf, cards=(*carried, *own), tables={"SHIFTS": rows})
