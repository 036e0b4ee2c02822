"""A shift that varies slowly over a camera: a polynomial in fibre and wavelength, fitted to the moments of many
windows."""
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from gpu_extract.data import Array, IntArray, PsfModel
from gpu_psf.series import legendre, legvander

CLIP = 4.0              # standard deviations beyond which windows, and wavelengths of all fibres together, are left out
ROUNDS = 4
WRONG = 0.02            # pixels: error of a window in addition to noise, from inexact profiles
TINY = 1e-30
TILT, BEND = 0.2, 0.05  # pixels: prior uncertainties of tilts and bends


class Moments(NamedTuple):
    """Measurements of windows along the fibres: light times its distance from the trace, flat over windows.

    fibre, wave: where; moment: electron pixel; light: electron; variance: of the moment
    """

    fibre: IntArray
    wave: Array
    moment: Array
    light: Array
    variance: Array


@dataclass(frozen=True)
class Surface:
    """Shifts of a camera's fibres in pixels.

    orders: (nterm, 2) Legendre orders across the fibres and in wavelength; coeff, covariance: of the terms
    nfibre, ends: the ranges of -1 .. 1; used: number of windows that it was fitted to
    spread: scatter of the wavelengths in units of noise; 1 at least. The covariance includes it
    beside: numbers of fibres before the first and after the last of these, which move like the nearest one
    """

    orders: IntArray
    coeff: Array
    covariance: Array
    nfibre: int
    ends: tuple[float, float]
    used: int = 0
    spread: float = 1.0
    beside: tuple[int, int] = (0, 0)

    def basis(self, fibre: Array | IntArray, wave: Array) -> Array:
        """The terms at fibres and wavelengths (n,): (n, nterm)."""
        place = 2 * np.asarray(fibre, np.float64) / max(self.nfibre - 1, 1) - 1
        most = int(self.orders.max(initial=0))
        across, along = legvander(place, most), legendre(wave, self.ends, most)
        return across[:, self.orders[:, 0]] * along[:, self.orders[:, 1]]

    def grid(self) -> Array:
        """The terms at 9 x 9 places spread over the camera, (81, nterm)."""
        fibre, wave = np.meshgrid(np.linspace(0, self.nfibre - 1, 9), np.linspace(*self.ends, 9))
        return self.basis(fibre.ravel(), wave.ravel())

    def series(self) -> Array:
        """Legendre coefficients in wavelength of every fibre, including those beside: (all fibres, degree + 1)."""
        most = int(self.orders.max(initial=0))
        across = legvander(np.linspace(-1, 1, self.nfibre) if self.nfibre > 1 else np.zeros(1), most)
        found = np.zeros((self.nfibre, most + 1))
        for (a, k), value in zip(self.orders, self.coeff, strict=True):
            found[:, k] += value * across[:, a]
        return np.pad(found, (self.beside, (0, 0)), mode="edge")

    def error(self) -> float:
        """The largest uncertainty anywhere on the camera, pixels."""
        terms = self.grid()
        return float(np.sqrt(np.einsum("ni,ij,nj->n", terms, self.covariance, terms).max()))


def level(nfibre: int, ends: tuple[float, float], degree: int) -> Surface:
    """No shift, with all terms up to a total degree."""
    orders = np.array([(a, k) for a in range(degree + 1) for k in range(degree + 1 - a) if a < nfibre])
    return Surface(orders, np.zeros(len(orders)), np.diag(_known(orders) ** -1.0), nfibre, ends)


def raised(surface: Surface, by: float) -> Surface:
    """The surface, raised by this many pixels."""
    coeff = surface.coeff.copy()
    coeff[0] += by
    return replace(surface, coeff=coeff)


def fit_surface(before: Surface, moments: Moments, often: float = 1.0) -> Surface:
    """The shifts from the moments, which are measured on traces moved by `before`, added to it; often: the number of
    moments that each pixel is in.

    Minimises the sum of (moment - light shift)^2 / variance. Where the shift is 0, a moment's mean is 0 whatever its
    light is, so that the noise of the light does not bias what the steps converge to.

    Features common to the spectra of all fibres, e.g. the sodium lines of moonlight beside those of the sky, move one
    wavelength equally in all fibres. Therefore each wavelength is also judged as a whole, and the errors include the
    scatter of wavelengths.
    """
    good = np.isfinite(moments.moment + moments.light + moments.variance) & (moments.variance > 0) & (moments.light > 0)
    moment, light, variance = (part[good] for part in moments[2:])
    terms, known = before.basis(moments.fibre[good], moments.wave[good]), np.diag(_known(before.orders))
    weight = 1 / (variance + (WRONG * light) ** 2)
    pull, target = light * np.sqrt(weight), moment * np.sqrt(weight)
    scaled = terms * pull[:, np.newaxis]
    of_wave = np.unique(moments.wave[good], return_inverse=True)[1]
    matrix, step, kept = known, np.zeros(len(known)), np.ones(len(moment), bool)
    scatter = spread = told = 1.0
    for _ in range(ROUNDS):
        rows, told = scaled[kept], spread
        error = (scatter * spread) ** 2 * often
        matrix = rows.T @ rows / error + known
        step = _solved(matrix, rows.T @ target[kept] / error - known @ before.coeff)
        left = target - scaled @ step
        scatter, kept = _scatter(left), np.abs(left) < CLIP * scatter
        sums, squares = (np.bincount(of_wave, kept * pull * part) for part in (left, pull))
        shared = sums / np.sqrt(np.maximum(squares, TINY)) / scatter
        spread = _scatter(shared)
        kept &= (np.abs(shared) < CLIP * spread)[of_wave]
    return replace(before, coeff=before.coeff + step, covariance=_solved(matrix, np.eye(len(known))),
                   used=int(kept.sum()), spread=told)


def _scatter(values: Array) -> float:
    """Standard deviation of values, in units of the expected one; 1 at least."""
    return max(1.4826 * float(np.median(np.abs(values))), 1.0) if len(values) else 1.0


def _solved(matrix: Array, right: Array) -> Array:
    return np.asarray(np.linalg.solve(matrix, right), np.float64)


def _known(orders: IntArray) -> Array:
    """Prior inverse variances of the terms."""
    total = orders.sum(axis=1)
    return np.where(total == 0, 1e-4, np.where(total == 1, TILT**-2, BEND**-2))


def moved_by(psf: PsfModel, dx: Surface, dy: Surface) -> PsfModel:
    """The PSF with its traces moved."""
    return replace(psf, x=psf.x.plus(dx.series()), y=psf.y.plus(dy.series()))
