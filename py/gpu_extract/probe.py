"""How far a PSF reaches through the normal equations: pads from measured decay.

Light of bins that are left out returns through C = icov^-1. On a small ideal
problem (every pixel good, equal errors) two numbers are measured: how fast C
falls off along a fibre, and how strongly neighbouring fibres are correlated.
They turn into the number of bins and fibres that must take part.
"""
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_solve_banded, cholesky_banded, solveh_banded

from gpu_extract.backend.arena import Arena, borrowed
from gpu_extract.data import LANE, Array, PsfModel
from gpu_extract.normal import VECTOR, Cut, Sums, add_tile, empty_sums, half_bands, place_blocks
from gpu_extract.plan import MOST_NEIGHBOURS, MOST_PADDING, enough_neighbours
from gpu_extract.psf import recipe, select

WINDOWS = 192, 320    # bins of the small problem: the longer one where light reaches beyond the shorter one
STEPS = 12            # of the power iteration for the correlation between fibres: it is wanted to a few per cent
# Measured on real frames (doc/method.md): a solution cut at distance k is off by about 5 C(k)/C(0) sigma, patches
# with the exact x by 0.1; masked pixels make both up to 10 times worse. The margins below hold with masks.
SAFETY_CUT = 0.02
SAFETY_PATCH = 1.0


@dataclass(frozen=True)
class Decay:
    """beyond: bins to add beyond the ends of the wanted range; patch: bins to pad a dense patch with."""

    beyond: int
    patch: int


def measure_decay(psf: PsfModel, wavelength: tuple[float, float, float], tolerance: float) -> Decay:
    """Measure the decay of C along the first, middle and last fibre, at both ends of the range; the widest counts.

    wavelength: (first, last, step); tolerance: error to leave, in sigma.
    """
    few = select(psf, sorted({0, psf.nfibre // 2, psf.nfibre - 1}))
    for window in WINDOWS:
        envelopes = []
        for wave in _windows(psf, wavelength, window):
            with borrowed() as arena:
                sums = _ideal(few, (0, few.nfibre), wave, arena, apart=True)
                envelopes += [*_envelope(sums.icov[:, 0])]
        beyond, patch = (max(_bins(e, safety * tolerance) for e in envelopes) for safety in (SAFETY_CUT, SAFETY_PATCH))
        if beyond < window // 2:      # seen, not extrapolated
            break
    return Decay(beyond, patch)


def measure_neighbours(psf: PsfModel, wavelength: tuple[float, float, float], tolerance: float) -> int:
    """Fibres that a dense patch needs on both sides where all pixels are good.

    Leaving out the fibres beyond n costs S_i, relative to itself, the square of their own correlation with fibre i and
    the correlation of neighbours to the power 2 (n + 1); a spectrum of SIGNAL errors turns that into sigma.
    """
    worst = np.zeros(1)
    for fibre in sorted({0, psf.nfibre // 2, max(0, psf.nfibre - MOST_NEIGHBOURS - 1)}):
        for wave in _windows(psf, wavelength, WINDOWS[-1]):
            with borrowed() as arena:
                sums = _ideal(psf, (fibre, min(fibre + MOST_NEIGHBOURS + 1, psf.nfibre)), wave, arena)
                found = np.array([_correlation(sums, d) for d in range(1, sums.icov.shape[1])])
            size = max(len(worst), len(found))
            worst = np.maximum(np.pad(worst, (0, size - len(worst))), np.pad(found, (0, size - len(found))))
    return enough_neighbours(worst, tolerance)


def _windows(psf: PsfModel, wavelength: tuple[float, float, float], bins: int) -> list[Array]:
    """A stretch of so many bins around each end of the range, as far as the PSF reaches."""
    first, last, step = wavelength
    low, high = psf.wavelength_range
    starts = [max(low, min(centre - 0.5 * bins * step, high - bins * step)) for centre in (first, last)]
    return [np.asarray(start + step * np.arange(min(bins, int((high - start) / step) + 1)), dtype=float)
            for start in starts]


def _ideal(psf: PsfModel, fibres: tuple[int, int], wave: Array, arena: Arena, *, apart: bool = False) -> Sums:
    """Normal equations of a few fibres where every pixel is good and has unit errors, on the CCD or not.

    apart: the fibres are moved side by side, so that none sees another and the image is small.
    """
    spots = recipe(psf, fibres, wave, arena)
    y0, x0 = spots.y0 - spots.y0.min(), spots.x0 - spots.x0.min()
    if apart:
        y0, x0 = y0 - y0.min(axis=1, keepdims=True), x0 - x0.min(axis=1, keepdims=True)
        x0 += (x0.max() + psf.stamp[1]) * np.arange(len(x0))[:, None]
    rows, columns = int(y0.max()) + psf.stamp[0], int(x0.max()) + psf.stamp[1] + LANE
    ones = arena.take(rows, columns + -columns % VECTOR)
    ones[:] = 1.0
    bands = half_bands(y0[:, :len(wave)], x0[:, :len(wave)], psf.stamp, (ones.shape[0], ones.shape[1]))
    sums = empty_sums(len(y0), len(wave), bands, arena)
    spots, cut = replace(spots, x0=x0, y0=y0), Cut(ones, ones, 0, 0)
    add_tile(sums, spots, place_blocks(spots, cut, arena, keep=False), cut, (0, len(wave), 0))
    return sums


def _cholesky(bands: Array) -> Array:
    """Lower banded Cholesky factor of a fibre's block, bands (n, 2 hw + 1)."""
    hw = bands.shape[1] // 2
    return cholesky_banded(np.ascontiguousarray(bands[:, hw:].T), lower=True)


def _envelope(bands: Array) -> Array:
    """Largest |C| at every distance from the middle bin and beyond, relative to that bin's own: (nfibre, distances).

    bands: (nfibre, n, 2 hw + 1) of the fibres' own blocks. One behind the other they are one matrix, for nothing
    couples the last bin of a fibre to the first of the next.
    """
    nfibre, n, hw = len(bands), bands.shape[1], bands.shape[2] // 2
    unit = np.zeros((nfibre, n))
    unit[:, n // 2] = 1.0
    lower = bands[..., hw:].reshape(-1, hw + 1)
    column = np.abs(solveh_banded(lower.T, unit.ravel(), lower=True)).reshape(nfibre, n)
    right, left = column[:, n // 2:], column[:, n // 2::-1]
    both = min(right.shape[1], left.shape[1])
    reach = np.maximum(right[:, :both], left[:, :both]) / column[:, n // 2, None]
    return np.maximum.accumulate(reach[:, ::-1], axis=1)[:, ::-1]


def _correlation(sums: Sums, d: int) -> float:
    """Largest canonical correlation between the first fibre and that d further: the norm of L_0^-1 icov_0d L_d^-T."""
    if len(sums.icov) <= d:
        return 0.0
    between = _band_matrix(sums.icov[0, d])
    factors = [(_cholesky(sums.icov[i, 0]), True) for i in (0, d)]
    v = np.where(np.arange(len(between)) % 2, -1.0, 1.0)
    square = 0.0
    for _ in range(STEPS):
        image = cho_solve_banded(factors[1], between.T @ cho_solve_banded(factors[0], between @ v))
        square = float(np.linalg.norm(image) / np.linalg.norm(v)) if v.any() else 0.0
        v = image / np.linalg.norm(image) if image.any() else image
    return square**0.5


def _band_matrix(bands: Array) -> Array:
    """A square matrix out of bands (n, 2 hw + 1)."""
    n, hw = len(bands), bands.shape[1] // 2
    matrix, rows = np.zeros((n, n)), np.arange(n)
    for k in range(-hw, hw + 1):
        inside = rows[max(0, -k):n - max(0, k)]
        matrix[inside, inside + k] = bands[inside, hw + k]
    return matrix


def _bins(envelope: Array, limit: float) -> int:
    """First distance at which the envelope is below the limit, extrapolated by its last decay where it never is."""
    below = np.nonzero(envelope < limit)[0]
    if len(below):
        return min(int(below[0]), MOST_PADDING)
    half = len(envelope) // 2
    rate = np.log(envelope[0] / envelope[half]) / half if half else 0.0
    return int(min(MOST_PADDING, np.ceil(np.log(envelope[0] / limit) / rate))) if rate > 0 else MOST_PADDING
