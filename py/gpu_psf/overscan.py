"""The bias of each row from the overscan."""
import numpy as np

from gpu_extract.data import Array
from gpu_extract.errors import InputError
from gpu_psf.noise import CLIP

SMOOTH = 51                        # rows of the overscan that are smoothed together


def overscan_bias(raw: Array, columns: tuple[int, int]) -> Array:
    """The bias of each row, (ny, 1), from the columns lo .. hi - 1 of the overscan, smoothed along y.

    A row's bias is the mean without outliers: a median of integers is an integer, off by up to half an ADU. The
    smoothing is a mean of SMOOTH rows, and a straight line at both ends, so that a drifting bias is correct there. Rows
    that are hit as a whole, or without a finite overscan, get the bias of the rows around. Raises InputError if the
    columns are outside the image, or hold no finite number.
    """
    from scipy.signal import savgol_filter  # loading takes a while, and other sources of the bias do not need it

    lo, hi = columns
    if not 0 <= lo < hi <= raw.shape[1]:
        raise InputError(f"overscan {lo}:{hi} does not lie within the {raw.shape[1]} columns of the image")
    part = np.where(np.isfinite(raw[:, lo:hi]), raw[:, lo:hi], np.nan).astype(np.float64)
    known = np.flatnonzero(np.isfinite(part).any(axis=1))
    if not len(known):
        raise InputError(f"overscan {lo}:{hi} holds no finite number; give the columns where the camera has its "
                         "overscan")
    place = np.arange(len(part))
    part = part[known]
    usual = _usual(part - np.nanmedian(part, axis=1, keepdims=True))
    usual[~usual.any(axis=1)] = True        # half of the row is hit: no pixel is near the median
    rows = np.nanmean(np.where(usual, part, np.nan), axis=1)
    half = (min(SMOOTH, len(place)) - 1) // 2
    noise = _sigma(np.append(np.diff(rows), 0.0)) / 2**0.5      # no matter how the bias drifts
    kept = np.ones(len(rows), dtype=bool)
    smooth: Array = rows
    for _ in range(20):                     # the worst first: a hit row pulls those around it along
        smooth = savgol_filter(np.interp(place, known[kept], rows[kept]), 2 * half + 1, min(half, 1))
        off = np.abs(rows - smooth[known])
        before, kept = kept, off <= max(CLIP * noise, off[kept].max() / 2)
        if np.array_equal(before, kept):
            break
    return smooth[:, None]


def _usual(off: Array) -> np.ndarray:
    """Which differences in ADU are no outliers; rounding to integers makes none."""
    return np.abs(off) <= CLIP * _sigma(off)


def _sigma(off: Array) -> float:
    """Standard deviation of differences without regard to outliers, ADU; at least that of rounding to integers."""
    return max(1.4826 * float(np.nanmedian(np.abs(off))), 0.5)
