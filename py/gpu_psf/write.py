"""The file of a fitted PSF: GAUSS-HERMITE version 3 with three more tables."""
import os
from collections.abc import Sequence

from gpu_extract import __version__
from gpu_extract.data import Card
from gpu_extract.io.psf import write_psf
from gpu_psf.data import FitConfig
from gpu_psf.run import FittedPsf

_CARRIED = ("CAMERA", "INSTRUME", "TELESCOP", "DETECTOR", "SPECGRPH", "NIGHT", "EXPID")


def write_fitted(path: str | os.PathLike[str], fitted: FittedPsf, *, cards: Sequence[Card], config: FitConfig,
                 inputs: Sequence[str]) -> None:
    """Write a fitted PSF, whole or not at all.

    cards: header of the first arc, of which what says who is who is carried over; inputs: names of the files it was
    made from: arcs, then the starting PSF
    Raises OutputError.
    """
    names = [Card(f"IN_ARC{n}", os.path.basename(name)[:60]) for n, name in enumerate(inputs[:-1][:100])]
    own = (Card("FITTER", f"gpu_psf {__version__}"), *names, Card("IN_PSF", os.path.basename(inputs[-1])[:60]),
           Card("FITGH", config.degree_gh, "degree of the Gauss-Hermite terms"),
           Card("FITWAVE", config.degree_wave, "degree of shapes in wavelength"),
           Card("FITACROS", config.degree_across, "degree of shapes across a bundle"))
    carried = tuple(card for card in cards if card.key in _CARRIED)
    write_psf(path, fitted.psf, cards=(*carried, *own), status=fitted.fibres["STATUS"],
              tables={"FIBRES": fitted.fibres, "BUNDLES": fitted.bundles, "SPOTS": fitted.spots})
