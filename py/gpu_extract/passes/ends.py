"""Requested bins beside an end of the PSF's wavelengths, where only some cosmic rays are searched for."""
import numpy as np

from gpu_extract.data import PsfModel
from gpu_extract.normal import Cut, half_bands
from gpu_extract.passes.outliers import known_rows
from gpu_extract.plan import Plan
from gpu_extract.spots import centres, corners


def unsearched(psf: PsfModel, plan: Plan, shape: tuple[int, int]) -> tuple[int, int]:
    """The number of requested bins in the lower and in the higher half of the wavelengths, of the fibre with most.

    Their spots have the middle in rows that `known_rows` leaves out: light may come from bins beyond the PSF's
    wavelengths.

    shape: rows and columns of the image
    """
    most, ny = np.zeros(2, dtype=int), max(shape[0], psf.shape[0])
    for bundle in plan.bundles:
        y0, x0 = corners(psf, centres(psf, bundle, plan.extended))
        top, left = int(y0.min()), int(x0.min())
        size = int(y0.max()) - top + psf.stamp[0], int(x0.max()) - left + psf.stamp[1]
        nothing = np.broadcast_to(0.0, size)
        rows = known_rows(Cut(nothing, nothing, top, left), y0, x0, psf.stamp, half_bands(y0, x0, psf.stamp, shape)[1],
                          ny)
        y, column = y0 - top + psf.stamp[0] // 2, x0 - left + psf.stamp[1] // 2
        hidden = ((y < rows[0, column]) | (y >= rows[1, column]))[:, plan.inner]
        middle = hidden.shape[1] // 2
        most = np.maximum(most, [half.sum(axis=1).max(initial=0) for half in (hidden[:, :middle], hidden[:, middle:])])
    return int(most[0]), int(most[1])


def told_of_ends(psf: PsfModel, plan: Plan, shape: tuple[int, int], pad: int) -> str:
    """A warning that wide cosmic rays are not searched for in requested bins, or nothing.

    pad: bins beyond each end, where the PSF reaches as far
    """
    if min(plan.inner.start, len(plan.extended) - plan.inner.stop) >= pad:
        return ""
    low, high = unsearched(psf, plan, shape)
    if low == high == 0:
        return ""
    where = " and ".join(f"the {side} {number} bins" for side, number in (("first", low), ("last", high)) if number)
    return (f"cosmic rays that hit adjacent columns are not searched for in {where}, because the PSF's wavelengths end "
            "there, and light from beyond would look alike: mask cosmic rays in the image, or request wavelengths "
            "farther from the PSF's ends")
