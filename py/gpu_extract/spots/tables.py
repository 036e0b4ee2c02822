"""Tabulated spots: a smooth function between given stamps, for instruments whose spots are not Gauss-Hermite.

The stamps of all positions together are samples of one function of the distance from the spot's centre, P of them per
pixel along each axis; doc/method.md describes the interpolation between samples, along wavelength and across fibres.
Beyond the samples the spline's coefficients are 0; beyond the first and last fibre of the table they are constant.

Position p of P has the centre at (p + 1/2)/P - 1/2 pixel from the middle of the stamp's central pixel. On a stamp of
2 h + 1 pixels, sample m = P y + P - 1 - p then lies (m + 1/2)/P - h - 1/2 from the centre.
"""
from dataclasses import replace

import numpy as np

from gpu_extract.data import Array, Core, IntArray, Legendre, PsfModel
from gpu_extract.errors import InputError
from gpu_extract.spots import evaluate, make_spots

LEBESGUE = 10.0        # largest factor by which the polynomial in wavelength may amplify errors at its nodes
SAMPLES = (66 / 120, 26 / 120, 1 / 120)     # the quintic B-spline at its own knot and the next ones


def core_of(stamps: Array, fibres: IntArray, waves: Array, domain: tuple[float, float], nfibre: int) -> Core:
    """The tabulated component of all fibres.

    stamps: (nodes, nwave, py, px, ny, nx), each is scaled to the sum 1; fibres: (nodes,) ascending; waves: (nwave,)
    domain: the PSF's range in Angstrom; nfibre: of the camera
    """
    scaled = stamps / stamps.sum(axis=(4, 5), keepdims=True)
    nodes, nwave, py, px, ny, nx = scaled.shape
    fine = scaled[:, :, ::-1, ::-1].transpose(0, 1, 4, 2, 5, 3).reshape(nodes, nwave, ny * py, nx * px)
    knots = np.linalg.solve(_samples(ny * py), fine)
    knots = np.linalg.solve(_samples(nx * px), knots.swapaxes(2, 3)).swapaxes(2, 3)
    terms = np.tensordot(np.linalg.inv(_powers(waves, domain)), knots, axes=(1, 1))
    series = _of_all(terms.transpose(1, 2, 3, 0), fibres, nfibre)
    shapes = Legendre(np.ascontiguousarray(series.transpose(1, 2, 0, 3)), *domain)
    return Core(shapes.same(1 / px), shapes.same(1 / py), shapes, tabulated=True)


def magnified(waves: Array, domain: tuple[float, float]) -> float:
    """The largest factor by which the polynomial through values at `waves` amplifies errors of these: its Lebesgue
    constant, or infinity."""
    with np.errstate(all="ignore"):
        powers = _powers(waves, domain)
        if not np.isfinite(powers).all() or np.linalg.matrix_rank(powers) < len(waves):
            return float("inf")
        basis = _powers(np.linspace(*domain, 501), domain, len(waves)) @ np.linalg.inv(powers)
    return float(np.abs(basis).sum(axis=1).max())


def nodes_of(count: int, domain: tuple[float, float]) -> Array:
    """The best wavelengths for a table: Chebyshev nodes, ascending."""
    at = -np.cos(np.pi * (np.arange(count) + 0.5) / count)
    return 0.5 * (domain[0] + domain[1]) + 0.5 * (domain[1] - domain[0]) * at


def stamps_of(psf: PsfModel, waves: Array, positions: tuple[int, int]) -> Array:
    """A table of any PSF's spots: (nfibre, nwave, py, px, ny, nx).

    positions: (py, px) per pixel. Raises InputError if a stamp's size is even: its centre is then not in a pixel.
    """
    ny, nx = psf.stamp
    if psf.offset != (ny // 2 - 0.5, nx // 2 - 0.5):
        raise InputError(f"{psf.name}: its stamps have {nx} x {ny} pixels, must be odd numbers for a table")
    table = np.empty((psf.nfibre, len(waves), *positions, ny, nx))
    for p in range(positions[0]):
        for q in range(positions[1]):
            at = [half + (n + 0.5) / count - 0.5
                  for half, n, count in zip((ny // 2, nx // 2), (p, q), positions, strict=True)]
            y, x = (psf.x.same(place) for place in at)
            table[:, :, p, q] = make_spots(replace(psf, x=x, y=y), (0, psf.nfibre), waves).stamps
    return table


def tabulated(psf: PsfModel, count: int, positions: tuple[int, int]) -> PsfModel:
    """A PSF whose spots are tables of another one's, at `count` wavelengths and (py, px) positions per pixel."""
    domain = psf.cores[0].gh.wmin, psf.cores[0].gh.wmax
    waves = nodes_of(count, domain)
    core = core_of(stamps_of(psf, waves, positions), np.arange(psf.nfibre), waves, domain, psf.nfibre)
    return replace(psf, cores=(core,), tail=None)


def table_of(psf: PsfModel) -> tuple[Array, Array]:
    """Stamps in the form for `core_of`, and their wavelengths, which give the tabulated PSF again, to rounding.

    Where the function is below 0, the stamps are 0.
    """
    core, (ny, nx) = psf.cores[0], psf.stamp
    domain = core.gh.wmin, core.gh.wmax
    waves = nodes_of(core.gh.coeff.shape[3], domain)
    nj, ni = core.gh.coeff.shape[:2]
    knots = evaluate(core.gh, (0, psf.nfibre), waves).transpose(2, 3, 0, 1)
    fine = _samples(nj) @ knots @ _samples(ni)
    stamps = fine.reshape(psf.nfibre, len(waves), ny, nj // ny, nx, ni // nx).transpose(0, 1, 3, 5, 2, 4)
    return np.maximum(stamps[:, :, ::-1, ::-1], 0.0), waves


def _samples(count: int) -> Array:
    """(count, count): the B-splines at the knots."""
    rows = np.arange(count)
    apart = np.abs(rows[:, None] - rows)
    return np.array([*SAMPLES, 0.0])[np.minimum(apart, len(SAMPLES))]


def _powers(waves: Array, domain: tuple[float, float], count: int | None = None) -> Array:
    """Legendre polynomials at wavelengths: (nwave, count), by default as many as wavelengths."""
    at = (2 * waves - domain[0] - domain[1]) / (domain[1] - domain[0])
    degree = (len(waves) if count is None else count) - 1
    return np.asarray(np.polynomial.legendre.legvander(at, degree), dtype=np.float64)


def _of_all(values: Array, fibres: IntArray, nfibre: int) -> Array:
    """Interpolate values (nodes, ...) of some fibres to all fibres."""
    if np.array_equal(fibres, np.arange(nfibre)):
        return values
    if len(fibres) == 1:
        return np.broadcast_to(values, (nfibre, *values.shape[1:]))
    from scipy.interpolate import make_interp_spline  # not needed if every fibre has stamps

    at = np.clip(np.arange(nfibre), fibres[0], fibres[-1])
    return make_interp_spline(fibres, values, k=min(3, len(fibres) - 1))(at)
