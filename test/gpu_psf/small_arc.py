"""The contents of these tests' small arc, and a PSF whose fibres have their own wavelengths."""
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from psf_errors import Judge

from gpu_extract.data import Image, Legendre, PsfModel
from gpu_psf.data import Lines
from gpu_psf.fit import Fit

FIBRES = 0, 5


class Small(NamedTuple):
    """The true PSF, an inaccurate start, lines, an arc, its fit, and means of comparison."""

    true: PsfModel
    start: PsfModel
    lines: Lines
    arc: Image
    fit: Fit
    judge: Judge


def echelle(psf: PsfModel) -> PsfModel:
    """Fibre n has 1 + n / 10 times the coordinate as its wavelength, slightly bent: no wavelength is on two fibres."""
    low, high = psf.x.wmin, psf.x.wmax
    factor = 1 + np.arange(psf.nfibre) / 10
    return replace(psf, own=Legendre(factor[:, None] * np.array([(low + high) / 2, (high - low) / 2, 1.0]), low, high))
