"""The prior of a fit: how far traces and shapes move from one night to another.

Traces move together, as a parabola across the bundle, and each fibre moves a little by itself. The assumed
uncertainties are far above those that an ordinary arc leaves, so that lines decide wherever there are any. Without
lines (a dead fibre, a masked amplifier), a trace follows those of the other fibres.
"""
from collections.abc import Sequence

import numpy as np

from gpu_extract.data import Array
from gpu_psf.data import Frame, Parameters
from gpu_psf.prepare import place_across

# pixels, by the order in wavelength (the last for all higher ones): of all traces together, and of one alone
TOGETHER = 20.0, 2.0, 0.3, 0.1, 0.05
ALONE = 0.2, 0.1, 0.05
TAIL = 0.02            # of a tail's amplitude; those of DESI and BOSS are below 0.012
ANY = 1e4              # electrons of a continuum
LEAST = 1e-3           # pixels: no trace is assumed to follow the others more closely
WIDTH, TERM, TWIN = 0.3, 0.1, 0.05      # of a width (pixels), of a Gauss-Hermite term, of one that does what a trace
                                        # or a width does: GH-1-0, GH-0-1, GH-2-0, GH-0-2


def precision(frame: Frame, alone: Sequence[float] = ALONE, *, shapes: bool, columns: int = 0) -> Array:
    """Inverse covariance of the parameters before the fit, (size, size).

    alone: see ALONE; columns: how many amounts of the ground are free
    """
    n, count = frame.nfibre, frame.trace + 1
    smooth = parabolas(frame)
    smooth = smooth @ smooth.T
    one = np.zeros((n, count, n, count))
    for k in range(count):
        together, single = (widths[min(k, len(widths) - 1)] for widths in (TOGETHER, alone))
        one[:, k, :, k] = smooth / (n * together**2) + (np.eye(n) - smooth) / single**2
    nterm = frame.nterm if shapes else 2
    width = np.full((nterm, frame.nshape), TERM)
    width[:2] = WIDTH
    if shapes:
        twins = [i - 1 + 2 for i in (1, 2, frame.degree + 1, 2 * (frame.degree + 1)) if i < (frame.degree + 1) ** 2]
        width[twins] = TWIN
    ground = np.full(columns if shapes else 0, ANY)
    ground[:frame.nshape if frame.tail else 0] = TAIL
    rest = np.concatenate([width.ravel(), ground])
    size, half = frame.ntrace + rest.size, frame.ntrace // 2
    matrix = np.zeros((size, size))
    matrix[:half, :half] = matrix[half:2 * half, half:2 * half] = one.reshape(half, half)
    matrix[np.arange(2 * half, size), np.arange(2 * half, size)] = 1 / rest**2
    return matrix


def parabolas(frame: Frame) -> Array:
    """Common motion of all traces: orthonormal parabolas across the fibres, (nfibre, 3 or fewer)."""
    return np.linalg.qr(np.vander(place_across(frame, np.arange(frame.nfibre)), min(3, frame.nfibre)))[0]


def measured_alone(frame: Frame, now: Parameters, start: Parameters, good: np.ndarray) -> tuple[float, ...]:
    """Deviation of the traces of well measured fibres (good: (nfibre,)) from their common motion, for each order.

    Its noise makes it too large, so that it takes no weight from a fibre's own lines.
    """
    smooth = parabolas(frame)[good]
    widths = []
    for k in range(frame.trace + 1):
        rest = []
        for moved in (now.x - start.x, now.y - start.y):
            value = moved[good, k]
            rest.append(value - smooth @ np.linalg.lstsq(smooth, value, rcond=None)[0])
        spread = 2 * float(np.sqrt(np.mean(np.square(rest)) * good.sum() / max(good.sum() - smooth.shape[1], 1)))
        widths.append(min(max(spread, LEAST), ALONE[min(k, len(ALONE) - 1)]))
    return tuple(widths)


def away(now: Parameters, start: Parameters, size: int) -> Array:
    """Difference of the first `size` parameters from the start, whose ground is 0 if it has none."""
    begun = start.vector()[:size]
    return now.vector()[:size] - np.pad(begun, (0, size - len(begun)))
