"""Spots by numerical quadrature of the PSF over each pixel, tabulated ones by definition, and A as a matrix."""
from dataclasses import dataclass
from math import comb

import numpy as np
import scipy.sparse
from numpy.polynomial import hermite_e, legendre

from gpu_extract.data import Array, Core, Legendre, PsfModel

# 40 Gauss-Legendre nodes per pixel: exact to rounding for sigma >= 0.2 pixel
NODES, WEIGHTS = legendre.leggauss(40)


def evaluate(series: Legendre, fibre: int, wave: float) -> Array:
    """Value of a Legendre series of one fibre at one wavelength (Angstrom): (...) without the fibre axis."""
    argument = 2 * (wave - series.wmin) / (series.wmax - series.wmin) - 1
    return np.asarray(legendre.legval(argument, np.moveaxis(series.coeff[..., fibre, :], -1, 0)), dtype=float)


def _value(series: Legendre, fibre: int, wave: float) -> float:
    return float(evaluate(series, fibre, wave))


def _pixel_integrals(degree: int, sigma: float, offset: Array) -> Array:
    """(degree + 1, npix): integrals over pixels whose centres lie `offset` from the spot's centre.

    Of He_k(u) exp(-u^2/2)/sqrt(2 pi) du, u = offset/sigma, by Gauss-Legendre quadrature in every pixel.
    """
    u = (offset[:, None] + NODES / 2) / sigma
    density = hermite_e.hermevander(u, degree) * (np.exp(-u**2 / 2) / np.sqrt(2 * np.pi))[..., None]
    return np.einsum("pnk,n->kp", density, WEIGHTS) / (2 * sigma)


def b_splines(count: int, distance: float, offset: Array) -> Array:
    """(count, npix): quintic B-splines around knots at this distance, at pixels `offset` from the spot's centre.

    By the sum of truncated powers that defines them: B(t) = sum_k (-1)^k binomial(6, k) (t + 3 - k)_+^5 / 5!.
    """
    t = offset / distance - (np.arange(count) - (count - 1) / 2)[:, None]
    powers = [(-1) ** k * comb(6, k) * np.maximum(t + 3 - k, 0) ** 5 / 120 for k in range(7)]
    return np.where(np.abs(t) < 3, np.sum(powers, axis=0), 0.0)


def _table(core: Core, fibre: int, wave: float, offset: tuple[Array, Array]) -> Array:
    """(ny, nx): a tabulated core, as `component`."""
    terms = evaluate(core.gh, fibre, wave)
    in_y, in_x = (b_splines(count, _value(series, fibre, wave), d) for count, series, d in
                  zip(terms.shape, (core.sigma_y, core.sigma_x), offset, strict=True))
    return np.asarray(in_y.T @ terms @ in_x)


def component(core: Core, fibre: int, wave: float, offset: tuple[Array, Array]) -> Array:
    """(ny, nx): one Gauss-Hermite core on pixels whose centres lie offset = (y, x) from the spot's."""
    if core.tabulated:
        return _table(core, fibre, wave, offset)
    dy, dx = offset
    sigma_x, sigma_y = _value(core.sigma_x, fibre, wave), _value(core.sigma_y, fibre, wave)
    gh = evaluate(core.gh, fibre, wave)
    in_x = _pixel_integrals(gh.shape[1] - 1, sigma_x, dx)
    in_y = _pixel_integrals(gh.shape[0] - 1, sigma_y, dy)
    pixels = np.einsum("ji,jy,ix->yx", gh, in_y, in_x)
    if core.nsig is not None:
        nsig = _value(core.nsig, fibre, wave)
        pixels[(dx / sigma_x) ** 2 + (dy[:, None] / sigma_y) ** 2 >= nsig**2] = 0
    return pixels


@dataclass(frozen=True)
class Spot:
    """A spot (ny, nx), of sum 1, whose first pixel is (y0, x0) on the CCD or off it."""

    pixels: Array
    y0: int
    x0: int


def spot(psf: PsfModel, fibre: int, wave: float) -> Spot:
    """The spot of a fibre at a wavelength (Angstrom): core(s) by quadrature, plus the tail, normalised."""
    x, y = _value(psf.x, fibre, wave), _value(psf.y, fibre, wave)
    y0, x0 = int(np.floor(y - psf.offset[0])), int(np.floor(x - psf.offset[1]))
    dy: Array = np.asarray(y0 + np.arange(psf.stamp[0]) - y, dtype=float)
    dx: Array = np.asarray(x0 + np.arange(psf.stamp[1]) - x, dtype=float)
    pixels = np.zeros(psf.stamp)
    for core in psf.cores:
        pixels += component(core, fibre, wave, (dy, dx))
    if psf.tail is not None:
        xscale, yscale = _value(psf.tail.xscale, fibre, wave), _value(psf.tail.yscale, fibre, wave)
        knee, index = _value(psf.tail.core, fibre, wave), _value(psf.tail.index, fibre, wave)
        r2 = (dx * xscale) ** 2 + (dy[:, None] * yscale) ** 2
        pixels += _value(psf.tail.amp, fibre, wave) * r2 / (knee**2 + r2) ** (1 + index / 2)
    pixels[pixels < 0] = 0
    return Spot(pixels / pixels.sum(), y0, x0)


def design_matrix(psf: PsfModel, fibres: range, wave: Array,
                  shape: tuple[int, int]) -> scipy.sparse.csc_matrix:
    """A (ny nx, nfibre nwave): column i nwave + j is the spot of bin (i, j), as far as it lies on the CCD."""
    ny, nx = shape
    row, column, value = [], [], []
    for k, (fibre, w) in enumerate((f, w) for f in fibres for w in wave):
        one = spot(psf, fibre, float(w))
        y, x = np.indices(psf.stamp) + np.array([one.y0, one.x0])[:, None, None]
        on = (y >= 0) & (y < ny) & (x >= 0) & (x < nx) & (one.pixels > 0)
        row.append((y * nx + x)[on])
        value.append(one.pixels[on])
        column.append(np.full(on.sum(), k))
    entries = np.concatenate(value), (np.concatenate(row), np.concatenate(column))
    return scipy.sparse.csc_matrix(entries, shape=(ny * nx, len(fibres) * len(wave)))


def expected_image(psf: PsfModel, fibres: range, wave: Array, photons: Array,
                   shape: tuple[int, int]) -> Array:
    """(ny, nx) electron: A f, of spectra f (nfibre, nwave) in photons per bin."""
    return np.asarray(design_matrix(psf, fibres, wave, shape) @ np.ravel(photons)).reshape(shape)
