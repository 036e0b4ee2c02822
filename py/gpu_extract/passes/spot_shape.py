"""The shape of a PSF's spots, by which light is told from cosmic rays, and what spots in steps of a bin cannot form."""
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpu_extract.data import Array, PsfModel
from gpu_extract.spots import make_spots

FAINT = 0.01         # share of a spot's brightest pixel that bounds its core
DIRECTIONS = ((1, 0), (0, 1), (1, 1), (1, -1))
BESIDE = 8           # bins on each side that take part in the fit of a line between two
DARK = 1e-4          # read noise squared as a share of a bright line's top; a full pixel has some ten times more
PLACES = 25          # wavelengths of each fibre at which such a line is fitted
_WAVES, _FIBRES = 8, 25


class Shape(NamedTuple):
    """The shape of spots.

    beside: for each direction (y, x, both diagonals), the mean of the two pixels beside a spot's brightest one, as a
        share of that; the least of all spots
    core: distance in pixels from the middle of a stamp, along y and along x, up to which some spot is not faint
    between: the largest residual of a bright line halfway between two bins, as a share of the model's brightest pixel
    least: the smallest eigenvalue of A^T A of neighbouring bins, as a share of the largest: how much a pattern of bins
        shows that the spots show least (passes/fine_bins.py)
    """

    beside: tuple[float, float, float, float]
    core: tuple[int, int]
    between: float
    least: float = 1.0


def shape_of(psf: PsfModel, step: float) -> Shape:
    """The shape of a PSF's spots, from a sample for each fibre; step: Angstrom between two bins.

    It is that of the whole PSF, so that the classification of pixels does not depend on the requested bins and fibres.
    """
    beside, core = np.full((psf.nfibre, len(DIRECTIONS)), np.inf), np.zeros(2, dtype=int)
    wave = np.linspace(*psf.wavelength_range, _WAVES)
    for lo in range(0, psf.nfibre, _FIBRES):
        stamps = make_spots(psf, (lo, min(lo + _FIBRES, psf.nfibre)), wave).stamps
        fibre, at = np.nonzero(np.isfinite(stamps).all(axis=(2, 3)) & (stamps.max(axis=(2, 3)) > 0))
        stamps = stamps[fibre, at]      # those with light
        n, (y, x) = np.arange(len(stamps)), np.unravel_index(_flat(stamps).argmax(axis=1), psf.stamp)
        padded, top = np.pad(stamps, ((0, 0), (1, 1), (1, 1))), stamps[n, y, x]
        both = [padded[n, y + 1 + dy, x + 1 + dx] + padded[n, y + 1 - dy, x + 1 - dx] for dy, dx in DIRECTIONS]
        np.minimum.at(beside, lo + fibre, 0.5 * np.stack(both, axis=1) / top[:, None])
        lit = np.argwhere(stamps > FAINT * top[:, None, None])[:, 1:] - np.array(psf.stamp) // 2
        core = np.maximum(core, np.abs(lit).max(axis=0, initial=0))
    # the same fibres from either side, so that the image in a mirror has the same outliers
    fibres = {*np.linspace(0, psf.nfibre - 1, 4).round().astype(int).tolist(), *beside.argmin(axis=0).tolist()}
    least, (high, wide) = beside.min(axis=0).tolist(), core.tolist()
    return Shape((least[0], least[1], least[2], least[3]), (high, wide), *_between(psf, step, sorted(fibres)))


def _between(psf: PsfModel, step: float, fibres: Sequence[int]) -> tuple[float, float]:
    """The residual of a spot halfway between two bins, fitted by the spots of bins, and the smallest eigenvalue of
    their A^T A relative to the largest: the worst of some fibres and wavelengths. Wavelengths, and the bins around
    each, are the same counted from either end."""
    low, high = psf.wavelength_range
    most, least, margin = 0.0, 1.0, min(BESIDE * step, 0.5 * (high - low))
    for fibre in fibres:
        for line in np.linspace(low + margin, high - margin, PLACES):
            some = line + step * (np.arange(2 * BESIDE) - BESIDE + 0.5)
            some = some[(some >= low) & (some <= high)]
            if len(some) == 0:
                continue
            spots = make_spots(psf, (fibre, fibre + 1), np.append(some, line))
            image = np.zeros((len(some) + 1, *np.add(psf.stamp, [np.ptp(spots.y0), np.ptp(spots.x0)])))
            for n, (y, x) in enumerate(zip(spots.y0[0] - spots.y0.min(), spots.x0[0] - spots.x0.min(), strict=True)):
                image[n, y:y + psf.stamp[0], x:x + psf.stamp[1]] = spots.stamps[0, n]
            columns = _flat(image)
            if np.isfinite(columns).all() and columns[-1].max() > 0:        # else it cannot be a requested bin
                most = max(most, _left_of(columns[-1], columns[:-1].T))
                values = np.linalg.eigvalsh(columns[:-1] @ columns[:-1].T)
                least = min(least, float(values[0] / values[-1])) if values[-1] > 0 else least
    return most, least


def _flat(images: Array) -> Array:
    """(n, pixels) of images (n, rows, columns)."""
    return images.reshape(len(images), images.shape[1] * images.shape[2])


def _left_of(line: Array, others: Array) -> float:
    """The largest residual of a bright line that is fitted by other spots (pixels, n), as a share of the model's
    brightest pixel. At least DARK of the line's is assumed for that: where bins are broader than spots, the model may
    have no light.

    Pixels are weighted by the light of a model, as in the second pass. The wings then count more than the top, and the
    top has a larger residual.
    """
    light = line
    for _ in range(2):
        root = 1.0 / np.sqrt(np.maximum(light, 0.0) + DARK * line.max())
        light = others @ np.linalg.lstsq(others * root[:, None], line * root, rcond=None)[0]
    return float((line - light).max() / max(light.max(), DARK * line.max()))
