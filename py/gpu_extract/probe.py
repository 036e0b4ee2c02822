"""How far a PSF reaches through the normal equations: pads from measured decay.

Light of bins that are left out returns through C = icov^-1. On a small ideal
problem (every pixel good, equal errors) two numbers are measured: how fast C
falls off along a fibre, and how strongly neighbouring fibres are correlated.
They turn into the number of bins and fibres that must take part.
"""
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

from gpu_extract.data import Array, Image, PsfModel, Spots
from gpu_extract.normal import add_tile, empty_sums, half_bands, make_cut
from gpu_extract.psf import make_spots

WINDOW = 320          # bins of the small problem
MOST = 200            # bins of padding at the very most
# Measured on real frames (doc/method.md): a solution cut at distance k is off by about 5 C(k)/C(0) sigma, patches
# with the exact x by 0.1; masked pixels make both up to 10 times worse. The margins below hold with masks.
SAFETY_CUT = 0.02
SAFETY_PATCH = 1.0


@dataclass(frozen=True)
class Decay:
    """beyond: bins to add beyond the ends of the wanted range; patch: bins to pad a dense patch with;
    neighbours: fibres to add on both sides of a dense patch."""

    beyond: int
    patch: int
    neighbours: int


def measure_decay(psf: PsfModel, wavelength: tuple[float, float, float], tolerance: float) -> Decay:
    """Measure the decay in the first, middle and last bundle-sized group of fibres, at both ends of the range.

    wavelength: (first, last, step); tolerance: error to leave, in sigma. The widest answer counts.
    """
    middle = psf.nfibre // 2
    fibres = sorted({0, max(0, min(middle, psf.nfibre - 2)), max(0, psf.nfibre - 2)})
    low, high = psf.wavelength_range
    answers = []
    for fibre in fibres:
        for centre in wavelength[:2]:
            half = 0.5 * WINDOW * wavelength[2]
            first = max(low, min(centre - half, high - 2 * half))
            n = min(WINDOW, int((high - first) / wavelength[2]) + 1)
            wave = first + wavelength[2] * np.arange(n, dtype=np.float64)
            answers.append(_probe(psf, fibre, wave, tolerance))
    return Decay(*(max(getattr(a, name) for a in answers) for name in ("beyond", "patch", "neighbours")))


def _probe(psf: PsfModel, fibre: int, wave: Array, tolerance: float) -> Decay:
    """Decay around the middle of `wave` in `fibre`, and its correlation with fibre + 1."""
    spots = make_spots(psf, (fibre, min(fibre + 2, psf.nfibre)), wave)
    stamp = spots.stamps.shape[2:]
    shape = int(spots.y0.max()) + stamp[0] + 1, int(spots.x0.max()) + stamp[1] + 1
    shift = min(0, int(spots.y0.min())), min(0, int(spots.x0.min()))
    ones = np.ones((shape[0] - shift[0], shape[1] - shift[1] // 4 * 4), dtype=np.float32)
    y0, x0 = spots.y0 - shift[0], spots.x0 - shift[1] // 4 * 4
    bands = half_bands(y0, x0, stamp, ones.shape)
    cut = make_cut(Image(ones, ones), y0, x0, stamp)
    sums = empty_sums(len(y0), len(wave), bands)
    add_tile(sums, Spots(spots.stamps, x0, y0), cut, (0, len(wave), 0))
    icov = sums.icov
    own = cholesky(_dense(icov[0, 0]), lower=True)
    middle = len(wave) // 2
    unit = np.zeros(len(wave))
    unit[middle] = 1.0
    column = np.abs(cho_solve((own, True), unit))
    column /= column[middle]
    right, left = column[middle:], column[middle::-1]
    both = min(len(left), len(right))
    reach = np.maximum(right[:both], left[:both])
    envelope = np.maximum.accumulate(reach[::-1])[::-1]
    correlation = 0.0
    if bands[0] > 0:
        other = cholesky(_dense(icov[1, 0]), lower=True)
        between = solve_triangular(own, _dense(icov[0, 1]), lower=True)
        correlation = float(np.linalg.norm(solve_triangular(other, between.T, lower=True), 2))
    return Decay(_bins(envelope, SAFETY_CUT * tolerance), _bins(envelope, SAFETY_PATCH * tolerance),
                 _neighbours(correlation, tolerance))


def _dense(bands: Array) -> Array:
    """A dense square out of bands (n, 2 hw + 1)."""
    n, hw = len(bands), bands.shape[1] // 2
    rows = np.arange(n)
    matrix = np.zeros((n, n))
    for k in range(-hw, hw + 1):
        inside = rows[max(0, -k):n - max(0, k)]
        matrix[inside, inside + k] = bands[inside, hw + k]
    return matrix


def _bins(envelope: Array, limit: float) -> int:
    """First distance at which the envelope is below the limit, extrapolated by its last decay where it never is."""
    below = np.nonzero(envelope < limit)[0]
    if len(below):
        return min(int(below[0]), MOST)
    half = len(envelope) // 2
    rate = np.log(envelope[0] / envelope[half]) / half
    return int(min(MOST, np.ceil(np.log(envelope[0] / limit) / rate))) if rate > 0 else MOST


def _neighbours(correlation: float, tolerance: float) -> int:
    """Fibres on each side: leaving out the next one costs the correlation to the power 2 (n + 1)."""
    if correlation**4 < tolerance:
        return 1
    return int(min(8, np.ceil(0.5 * np.log(tolerance) / np.log(min(correlation, 0.95)) - 1)))
