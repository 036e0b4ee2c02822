"""The pixels that belong to a bundle.

A bundle's pixels are cut out as a rectangle. Where traces bend, fibres of the next bundle cross its corners, which no
spot of the bundle itself reaches. The bundle's model does not contain their light. It would count as cosmic rays and as
background, so these pixels are left out of all passes.
"""
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gpu_extract.data import IntArray, PsfModel
from gpu_extract.normal import Cut
from gpu_extract.passes.crosstalk import Window
from gpu_extract.spots import centres, corners

FAR = 1 << 40        # columns: farther than any spot


def own_columns(psf: PsfModel, bundle: tuple[int, int], window: Window, y0: IntArray, x0: IntArray) -> IntArray:
    """(2, rows) first and end of the columns of a bundle's window that belong to it.

    Beyond them lie spots of the adjacent fibre, at any wavelength of the PSF, and none of the bundle.

    bundle: fibres lo .. hi - 1 of the PSF; y0, x0: (nfibre, nwave) first pixels of their spots on the CCD
    """
    rows, columns = window[2:]
    own_first, own_last = _reached(y0, x0, window, psf.stamp[0])
    ends = np.array([[0], [columns]]).repeat(rows, axis=1)
    wave = np.linspace(*psf.wavelength_range, psf.shape[0])         # about one spot in each row
    for fibre in (f for f in (bundle[0] - 1, bundle[1]) if 0 <= f < psf.nfibre):
        y, x = corners(psf, centres(psf, (fibre, fibre + 1), wave))
        first, last = _reached(y, x, window, psf.stamp[0])
        both = (first < FAR) & (own_first < FAR)        # the columns of tilted traces depend on the row
        if (first - own_first)[both].sum() < 0:
            ends[0] = np.minimum(own_first, last + psf.stamp[1])
        else:
            ends[1] = np.maximum(own_last + psf.stamp[1], first)
    return np.clip(ends, 0, columns)


def _reached(y0: IntArray, x0: IntArray, window: Window, height: int) -> tuple[IntArray, IntArray]:
    """The lowest and the highest first column of spots on each row of a window; FAR and -FAR where there is none."""
    y, x, rows = y0 - window[0] + height - 1, x0 - window[1], window[2]
    inside = (y >= 0) & (y < rows + height - 1)
    first, last = np.full((2, rows + height - 1), FAR)
    np.minimum.at(first, y[inside], x[inside])
    np.minimum.at(last, y[inside], -x[inside])
    low, high = (sliding_window_view(edge, height).min(axis=1) for edge in (first, last))
    return low, -high


def leave_out(cut: Cut, ends: IntArray) -> None:
    """Mask, in place, the pixels of a cut-out that do not belong to the bundle; ends: see own_columns."""
    column = np.arange(cut.root.shape[1])
    if (ends != [[0], [len(column)]]).any():
        beside = (column < ends[0, :, None]) | (column >= ends[1, :, None])
        cut.root[beside] = cut.light[beside] = 0.0
