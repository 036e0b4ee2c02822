"""The PSF: where a bin's spot lies and how its light falls on the pixels.

The families are those of specter and specex: a Gauss-Hermite core integrated
over pixels (one or two of them), a power-law tail, clipped at 0 and normalised.
"""
import numpy as np

from gpu_extract.backend import cpu_spots
from gpu_extract.data import LANE, Array, Core, Legendre, PsfModel, Spots


def legendre_basis(wave: Array, series: Legendre) -> Array:
    """Legendre polynomials of `series` at `wave` (Angstrom): (ncoef, nwave).

    Element by element, so that a value does not depend on its neighbours.
    """
    u = 2.0 * (wave - series.wmin) / (series.wmax - series.wmin) - 1.0
    basis = np.empty((series.coeff.shape[-1], len(wave)))
    basis[0] = 1.0
    if len(basis) > 1:
        basis[1] = u
    for k in range(2, len(basis)):
        basis[k] = ((2 * k - 1) * u * basis[k - 1] - (k - 1) * basis[k - 2]) / k
    return basis


def evaluate(series: Legendre, fibres: tuple[int, int], wave: Array) -> Array:
    """The series of fibres lo .. hi - 1 at `wave`: (..., nfibre, nwave); the same bits for any cut of either."""
    basis = legendre_basis(wave, series)
    coeff = series.coeff[..., fibres[0]:fibres[1], :]
    total = np.zeros((*coeff.shape[:-1], len(wave)))
    for k, polynomial in enumerate(basis):
        total += coeff[..., k, None] * polynomial
    return total


def centres(psf: PsfModel, fibres: tuple[int, int], wave: Array) -> Array:
    """Centres of the spots in pixels: (2, nfibre, nwave), y then x."""
    return np.stack([evaluate(psf.y, fibres, wave), evaluate(psf.x, fibres, wave)])


def corners(psf: PsfModel, centre: Array) -> np.ndarray:
    """First pixel of the spots: (2, nfibre, nwave) int64, y then x (not yet aligned)."""
    offset = np.array(psf.offset)[:, None, None]
    return np.floor(centre - offset).astype(np.int64)


def stamp_width(psf: PsfModel) -> int:
    """Columns of a stamp: the spot's, and room to start at a multiple of LANE."""
    return -(-(psf.stamp[1] + LANE - 1) // LANE) * LANE


def make_spots(psf: PsfModel, fibres: tuple[int, int], wave: Array) -> Spots:
    """The spots of fibres lo .. hi - 1 at wavelengths `wave` (Angstrom).

    A spot's bits depend on its fibre and wavelength alone, not on what else is asked for.
    """
    centre = centres(psf, fibres, wave)
    corner = corners(psf, centre)
    shift = corner[1] % LANE
    corner[1] -= shift
    stamps = np.zeros((*centre.shape[1:], psf.stamp[0], stamp_width(psf)))
    for core in psf.cores:
        _add_core(stamps, corner, centre, core, fibres, wave)
    if psf.tail is not None:
        tail = psf.tail
        series = (tail.amp, tail.core, tail.xscale, tail.yscale, tail.index)
        cpu_spots.add_tail(stamps, corner, centre, np.stack([evaluate(s, fibres, wave) for s in series]))
    cpu_spots.finish(stamps, shift, psf.stamp[1])
    return Spots(stamps, corner[1], corner[0])


def _add_core(stamps: Array, corner: np.ndarray, centre: Array, core: Core, fibres: tuple[int, int],
              wave: Array) -> None:
    sigma = np.stack([evaluate(core.sigma_y, fibres, wave), evaluate(core.sigma_x, fibres, wave)])
    nsig = evaluate(core.nsig, fibres, wave) if core.nsig else np.full(sigma.shape[1:], np.inf)
    nj, ni, _, ncoef = core.gh.coeff.shape
    series = np.zeros((fibres[1] - fibres[0], ncoef, -(-nj * ni // LANE) * LANE))
    gh = core.gh.coeff[:, :, fibres[0]:fibres[1]].reshape(nj * ni, -1, ncoef)
    series[:, :, :nj * ni] = gh.transpose(1, 2, 0)
    basis = np.ascontiguousarray(legendre_basis(wave, core.gh).T)
    cpu_spots.add_core(stamps, corner, centre, sigma, series, basis, nsig, (nj - 1, ni - 1))
