"""What the small arc of these tests consists of."""
from typing import NamedTuple

from psf_errors import Judge

from gpu_extract.data import Image, PsfModel
from gpu_psf.data import Lines
from gpu_psf.fit import Fit

FIBRES = 0, 5


class Small(NamedTuple):
    """The true PSF, a start that is off, lines, an arc, its fit, and what compares."""

    true: PsfModel
    start: PsfModel
    lines: Lines
    arc: Image
    fit: Fit
    judge: Judge
