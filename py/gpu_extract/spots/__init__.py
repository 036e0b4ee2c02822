"""The PSF: the position of a bin's spot, and the distribution of its light over the pixels.

The families are those of specter and specex: one or two Gauss-Hermite components integrated over pixels plus a
power-law tail, clipped at 0 and normalised. Tabulated spots (`spots.tables`) are smooth functions between given
stamps, clipped and normalised in the same way.
"""
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpu_extract.data import LANE, Array, Core, Legendre, PsfModel, Recipe, Spots, read_only, with_series
from gpu_extract.kernels.arena import Arena
from gpu_extract.spots import simd_cut, simd_project, simd_series, simd_spots


def select(psf: PsfModel, fibres: Sequence[int]) -> PsfModel:
    """The PSF of some fibres only, renumbered without gaps."""
    chosen = list(fibres)

    def cut(series: Legendre) -> Legendre:
        return replace(series, coeff=series.coeff[..., chosen, :])

    return replace(with_series(psf, cut), bundle=psf.bundle[chosen] if psf.bundle is not None else None)


def legendre_basis(wave: Array, series: Legendre) -> Array:
    """Legendre polynomials of `series` at `wave` (Angstrom): (ncoef, nwave).

    Computed element by element, so that a value does not depend on its neighbours.
    """
    basis = np.empty((series.coeff.shape[-1], len(wave)))
    simd_series.legendre(basis, wave, (series.wmin, series.wmax))
    return basis


def evaluate(series: Legendre, fibres: tuple[int, int], wave: Array, out: Array | None = None) -> Array:
    """The series of fibres lo .. hi - 1 at `wave`: (..., nfibre, nwave); bitwise independent of how either is cut.

    out: where to write a series with one value per fibre: (nfibre, nwave), rows without gaps
    """
    coeff = np.ascontiguousarray(series.coeff[..., fibres[0]:fibres[1], :])
    total = np.empty((*coeff.shape[:-1], len(wave))) if out is None else out
    rows = total.reshape(-1, len(wave)) if out is None else out
    simd_series.evaluate(rows, read_only(coeff.reshape(-1, coeff.shape[-1])), wave, (series.wmin, series.wmax))
    return total


def centres(psf: PsfModel, fibres: tuple[int, int], wave: Array, out: Array | None = None) -> Array:
    """Centres of the spots in pixels: (2, nfibre, nwave), y then x; out: where to write them."""
    centre = np.empty((2, fibres[1] - fibres[0], len(wave))) if out is None else out
    for place, series in zip(centre, (psf.y, psf.x), strict=True):
        evaluate(series, fibres, wave, place)
    return centre


def corners(psf: PsfModel, centre: Array, apart: Array | None = None) -> np.ndarray:
    """First pixels of the spots: (2, nfibre, nwave) int64, y then x (not yet aligned).

    apart: where to write first pixel minus centre; may be the array of the centres
    """
    corner = np.empty(centre.shape, dtype=np.int64)
    apart = np.empty(centre.shape) if apart is None else apart
    for n in range(2):
        simd_cut.corners(corner[n], apart[n], centre[n], psf.offset[n])
    return corner


def recipe(psf: PsfModel, fibres: tuple[int, int], wave: Array, arena: Arena | None = None) -> Recipe:
    """The data from which kernels make the spots of fibres lo .. hi - 1 at `wave` (Angstrom), in whole blocks.

    arena: holds the numbers
    """
    wave = np.concatenate((wave, wave[-1:].repeat(-len(wave) % LANE)))
    # a missing component or tail may hold any values
    numbers = (arena or Arena()).take(fibres[1] - fibres[0], simd_spots.NUMBERS, len(wave))
    of_bins = numbers.transpose(1, 0, 2)
    centre = centres(psf, fibres, wave, of_bins[simd_spots.FIRST:simd_spots.FIRST + 2])
    corner = corners(psf, centre, centre)
    for n, core in enumerate(psf.cores):
        at = simd_spots.CORES + 3 * n
        evaluate(core.sigma_y, fibres, wave, of_bins[at])
        evaluate(core.sigma_x, fibres, wave, of_bins[at + 1])
        if core.nsig:
            evaluate(core.nsig, fibres, wave, of_bins[at + 2])
        else:
            of_bins[at + 2] = simd_spots.TABULATED if core.tabulated else np.inf
    if psf.tail is not None:
        t = psf.tail
        for n, series in enumerate((t.amp, t.core, t.xscale, t.yscale, t.index)):
            evaluate(series, fibres, wave, of_bins[simd_spots.TAIL + n])
    first, second, *_ = *(_core(core, fibres, wave) for core in psf.cores), _NO_CORE
    return Recipe(corner[1], corner[0], simd_spots.Ingredients(numbers, first, second,
                                                               (*psf.stamp, psf.tail is not None)))


def stretch(whole: Recipe, bins: tuple[int, int]) -> Recipe:
    """The recipe of bins first .. last - 1 only; both are multiples of LANE, or last is the number of all bins.

    Its arrays have no gaps, like those of the whole: kernels are compiled for such.
    """
    part = slice(bins[0], bins[1] + -bins[1] % LANE)
    if part.stop - part.start >= whole.x0.shape[1]:
        return whole
    numbers, *cores, shape = whole.ingredients
    first, second = (core._replace(basis=np.ascontiguousarray(core.basis[:, part])) for core in cores)
    return Recipe(np.ascontiguousarray(whole.x0[:, part]), np.ascontiguousarray(whole.y0[:, part]),
                  simd_spots.Ingredients(np.ascontiguousarray(numbers[..., part]), first, second, shape))


def make_spots(psf: PsfModel, fibres: tuple[int, int], wave: Array) -> Spots:
    """The spots of fibres lo .. hi - 1 at wavelengths `wave` (Angstrom).

    The bits of a spot depend only on its fibre and wavelength, not on what else is requested.
    """
    r = recipe(psf, fibres, wave)
    offsets, place = simd_cut.frames(r.y0, r.x0, (int(r.y0.min()), int(r.y0.max())), (int(r.x0.min()), int(r.x0.max())),
                                    psf.stamp)
    stamps = np.empty((len(r.x0), len(wave), *psf.stamp))
    simd_spots.make_spots(stamps, r.ingredients, offsets, place[2:])
    return Spots(stamps, r.x0[:, :len(wave)], r.y0[:, :len(wave)])


def add_to_image(image: np.ndarray, spots: Spots, flux: Array) -> None:
    """Add the light of `flux` (nfibre, nwave), A x, to `image` (ny, nx) in place; spots are clipped at its edges.

    Light is added wavelength by wavelength, fibre by fibre. Calls with consecutive wavelengths are therefore bitwise
    equal to one call with all of them.
    """
    simd_project.add_to_image(image, spots.stamps, spots.y0, spots.x0, np.ascontiguousarray(flux))


_NO_CORE = simd_spots.Component(np.empty((1, 0, 0)), np.empty((0, 1)), 0, 0)


def _core(core: Core, fibres: tuple[int, int], wave: Array) -> simd_spots.Component:
    """A component's series and basis in the form for the kernels."""
    nj, ni, _, ncoef = core.gh.coeff.shape
    series = np.zeros((fibres[1] - fibres[0], ncoef, nj, -(-ni // LANE) * LANE))
    series[..., :ni] = core.gh.coeff[:, :, fibres[0]:fibres[1]].transpose(2, 3, 0, 1)
    return simd_spots.Component(series.reshape(len(series), ncoef, -1), legendre_basis(wave, core.gh), nj, ni)
