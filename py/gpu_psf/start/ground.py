"""Background light: measured half way between neighbouring traces, and smooth along them.

It needs images whose traces leave a valley between them. Wings of spots that reach the valleys count as background, so
that the light of the spots is that of their cores.
"""
import numpy as np
from scipy.ndimage import median_filter

from gpu_extract.data import Array, Image
from gpu_psf.series import at_rows
from gpu_psf.start.profiles import Traces

LENGTH = 31              # rows over which the background is a median


def ground_between(image: Image, traces: Traces) -> Array:
    """(ny, nx) electron: the median over LENGTH rows of the pixels nearest to the middle of two traces, interpolated
    linearly between these; constant beyond the outer valleys. Masked pixels do not count."""
    ny, nx = image.shape
    y = np.arange(ny, dtype=float)
    x = at_rows(traces.x, y)
    middle = (x[1:] + x[:-1]) / 2
    pixel = np.clip(np.rint(middle).astype(int), 0, nx - 1)
    rows = np.arange(ny)
    value = np.where(image.ivar[rows, pixel] > 0, image.pix[rows, pixel], np.nan).astype(float)
    for valley in value:
        bad = ~np.isfinite(valley)
        valley[bad] = np.interp(rows[bad], rows[~bad], valley[~bad]) if (~bad).any() else 0.0
    smooth = median_filter(value, size=(1, LENGTH), mode="nearest")
    columns = np.arange(nx, dtype=float)
    return np.stack([np.interp(columns, middle[:, row], smooth[:, row]) for row in rows])
