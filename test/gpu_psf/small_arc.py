"""The contents of these tests' small arc."""
from typing import NamedTuple

from psf_errors import Judge

from gpu_extract.data import Image, PsfModel
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
