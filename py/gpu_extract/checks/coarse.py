"""Checks whether bins are so broad that the model's spots miss the light between them.

The model places the light of a bin at its centre. Let a_j be the sum over the pixels of spot(0) spot(j), with j in fine
steps, n to a bin. A smooth spectrum has A^T p = sum_j a_j, and the normal equations of bins of equal flux have sum_k
a_(k n). With equal errors, the ratio of the extracted to the true flux is

    (sum_j a_j / n) / (sum_k a_(k n))
"""
from math import ceil

import numpy as np

from gpu_extract.data import Array, PsfModel
from gpu_extract.spots import centres, make_spots

KEPT = 0.99          # least share of the flux of a smooth spectrum: with less the bins are too broad
NARROW = 2.0         # rows from a bin to the next that are never too many for a usable PSF
FINE = 0.25          # rows from a step of the fine grid to the next
PLACES = 3           # along the range
REACH = 1.5          # stamps: farther spots do not overlap, even where rows are closer


def too_coarse(psf: PsfModel, wavelength: tuple[float, float, float]) -> str:
    """A warning if the step is so long that FLUX of a smooth spectrum is too small, or nothing.

    wavelength: (first, last, step), Angstrom
    """
    first, last, step = wavelength
    fibre, ends = psf.nfibre // 2, np.linspace(first, last, PLACES + 1)
    rows = float((np.abs(np.diff(centres(psf, (fibre, fibre + 1), ends)[0])) / np.diff(ends)).max()) * step
    if not rows > NARROW:
        return ""
    per_bin = ceil(rows / FINE)
    overlaps = [_overlaps(psf, fibre, middle, step / per_bin) for middle in (ends[1:] + ends[:-1]) / 2]
    found = min(_kept(each, per_bin) for each in overlaps)
    if found >= KEPT:
        return ""
    enough = max((n for n in range(1, per_bin) if min(_kept(each, n) for each in overlaps) >= KEPT), default=1)
    return (f"bins of {step:g} Angstrom are too broad for this PSF: no spot holds the light between bin centres, and "
            f"FLUX of a smooth spectrum is {found:.0%} of its true value; use a step of {enough * step / per_bin:.2g} "
            "or less (-w), and add up bins afterwards")


def _kept(overlaps: Array, per_bin: int) -> float:
    """The share of a smooth spectrum's flux in bins of this many fine steps; overlaps: (2 m + 1,) a_j."""
    middle = len(overlaps) // 2
    return float(overlaps.sum() / per_bin / overlaps[middle % per_bin::per_bin].sum())


def _overlaps(psf: PsfModel, fibre: int, middle: float, step: float) -> Array:
    """a_j of a fibre for fine steps on both sides of a wavelength, or of one from which all lie within the range."""
    low, high = psf.wavelength_range
    most = int(min(REACH * psf.stamp[0] / FINE, (high - low) / step / 2))
    wave: Array = np.clip(middle, low + most * step, high - most * step) + step * np.arange(-most, most + 1.0)
    spots = make_spots(psf, (fibre, fibre + 1), wave)
    stamps, x0, y0 = spots.stamps[0], spots.x0[0] - spots.x0[0, most], spots.y0[0] - spots.y0[0, most]
    ny, nx = psf.stamp
    found = np.zeros(len(stamps))
    for j, (stamp, x, y) in enumerate(zip(stamps, x0.tolist(), y0.tolist(), strict=True)):
        if abs(x) < nx and abs(y) < ny:
            mine = stamps[most, max(y, 0):ny + min(y, 0), max(x, 0):nx + min(x, 0)]
            found[j] = (mine * stamp[max(-y, 0):ny - max(y, 0), max(-x, 0):nx - max(x, 0)]).sum()
    return found
