"""Tabulated spots from arcs: the residuals of the Gauss-Hermite spots of a fitted bundle, as smooth functions.

The light of a spot of flux f is f (g(r) + sum_k b_k c_k(r)), r the distance of a pixel from the spot's centre. g is the
fitted Gauss-Hermite spot, b_k are the polynomials of the shapes in wavelength and across the bundle, and c_k are
quintic splines with some knots per pixel, as in tables (`gpu_extract.spots.tables`). Fluxes and all c_k are solved
together by least squares with conjugate gradients, including overlapping spots. A prior limits c_k to a share of the
light that g has nearby, so that nothing is invented where there is no light.
"""
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpu_extract.data import Array, PsfModel
from gpu_extract.errors import InputError
from gpu_extract.io.psf_tables import MOST_NUMBERS, MOST_SIDE
from gpu_extract.spots.tables import core_of, nodes_of, stamps_of
from gpu_psf.data import FitConfig
from gpu_psf.fit import Fit
from gpu_psf.prepare import psf_of, shape_basis
from gpu_psf.stamps import project
from gpu_psf.state import State, Task, reweighted

ERRORS = 0.1, 0.05, 0.02, 0.02      # allowed error of the model for pixels to count, as a share of the light nearby
SHARE, FLOOR, CHANGE = 0.1, 1e-4, 0.3       # of the prior: of the light nearby, of the peak; for varying terms
UNEVEN = 0.003                      # share of a spot's light: no spot determines the shape better than this
EXTRA = 2                           # wavelengths of a table in addition to the shapes' degree
ENOUGH, MOST_STEPS = 1e-3, 200      # residual of the conjugate gradients, and largest number of steps


@dataclass(frozen=True)
class Splines:
    """Values of the splines at the pixels of spots.

    y, x: (nspot, ny or nx, knots); orders: (nspot, norder) polynomials of the shapes
    """

    y: Array
    x: Array
    orders: Array

    def light(self, terms: Array) -> Array:
        """(nspot, ny, nx) of coefficients (norder, knots y, knots x)."""
        knots = np.tensordot(self.orders, terms, axes=1)
        return self.y @ knots @ self.x.swapaxes(1, 2)

    def gathered(self, light: Array) -> Array:
        """The transpose: (norder, knots y, knots x) of (nspot, ny, nx)."""
        knots: Array = self.y.swapaxes(1, 2) @ light @ self.x
        return np.tensordot(self.orders.T, knots, axes=1)

    def squared(self) -> "Splines":
        """All values squared: for diagonals."""
        return Splines(self.y**2, self.x**2, self.orders**2)


@dataclass(frozen=True)
class FittedTable:
    """The table of a bundle.

    fit: with fluxes, residuals and weights of the tabulated spots; terms: (norder, knots y, knots x) of c_k
    """

    fit: Fit
    terms: Array


def fit_table(fit: Fit, positions: int) -> FittedTable:
    """Fit c_k to the residuals of the Gauss-Hermite spots of a bundle; positions: knots per pixel."""
    task, state = fit.task, fit.state
    plain, splines = state.stamps, splines_of(fit, positions)
    known = _prior(fit, positions)
    terms = np.zeros((splines.orders.shape[1], splines.y.shape[2], splines.x.shape[2]))
    for error in ERRORS:
        state = reweighted(task, state, error)
        terms = terms + _step(task, state, splines, known, terms)
        image = plain.image.copy()
        image[:, 0] = np.maximum(plain.image[:, 0] + splines.light(terms), 0.0)
        state = replace(state, stamps=replace(plain, image=image))
    return FittedTable(replace(fit, state=reweighted(task, state, ERRORS[-1])), terms)


def splines_of(fit: Fit, positions: int) -> Splines:
    """The splines at the pixels of a fit's spots."""
    stamps = fit.state.stamps
    (x0, y0), (ny, nx) = stamps.corner, fit.frame.start.stamp
    return Splines(_values(y0 - stamps.y, ny, positions), _values(x0 - stamps.x, nx, positions), fit.task.spots.shape)


def _values(first: Array, count: int, positions: int) -> Array:
    """(nspot, count, knots): the splines at `count` pixels from distances (nspot,) of the first one on."""
    apart = (first[:, np.newaxis] + np.arange(count) + 0.5 * count) * positions - 0.5
    return _b_spline(apart[:, :, np.newaxis] - np.arange(count * positions))


def _b_spline(at: Array) -> Array:
    """The quintic B-spline around 0, knots 1 apart."""
    far = np.abs(at)
    three, two, one = (np.maximum(end - far, 0) ** 5 for end in (3, 2, 1))
    return (three - 6 * two + 15 * one) / 120


def _prior(fit: Fit, positions: int) -> Array:
    """Inverse variances of the terms, (norder, knots y, knots x)."""
    from scipy.ndimage import maximum_filter

    psf = psf_of(fit.frame, fit.state.now)
    stamps = stamps_of(psf, np.array([0.5 * sum(fit.frame.range)]), (positions, positions))[:, 0].mean(axis=0)
    py, px, ny, nx = stamps.shape
    fine = stamps[::-1, ::-1].transpose(2, 0, 3, 1).reshape(ny * py, nx * px)
    size = SHARE * maximum_filter(fine, 2 * positions + 1) + FLOOR * fine.max()
    first = np.array([order == (0, 0) for order in fit.frame.orders])
    return 1 / (np.where(first, 1.0, CHANGE)[:, np.newaxis, np.newaxis] * size) ** 2


def _step(task: Task, state: State, splines: Splines, known: Array, terms: Array) -> Array:
    """The change of the terms, with free fluxes: (norder, knots y, knots x)."""
    from scipy.sparse.linalg import LinearOperator, cg

    stamps, count = state.stamps, len(task.spots)
    place, shape = stamps.place, stamps.image[:, 0]
    firm = np.where(task.firm, state.flux, 0.0)[:, np.newaxis, np.newaxis]
    model = project(task.pixels, stamps, state.flux).ravel()
    weight = state.weight / (1 + state.weight * (UNEVEN * model) ** 2)

    def ahead(change: Array) -> Array:
        light = firm * splines.light(change[count:].reshape(known.shape))
        light += change[:count, np.newaxis, np.newaxis] * shape
        return np.bincount(place.ravel(), light.ravel(), len(weight)).astype(np.float64)

    def back(pixels: Array) -> Array:
        light = pixels[place].reshape(shape.shape)
        return np.concatenate([(light * shape).sum(axis=(1, 2)), splines.gathered(firm * light).ravel()])

    of_terms = np.concatenate([np.zeros(count), known.ravel()])
    there = weight[place].reshape(shape.shape)
    diagonal = np.concatenate([(there * shape**2).sum(axis=(1, 2)) + 1e-30,
                               splines.squared().gathered(firm**2 * there).ravel() + known.ravel()])
    size = len(of_terms)
    matrix = LinearOperator((size, size), lambda v: back(weight * ahead(v)) + of_terms * v)
    around = LinearOperator((size, size), lambda v: v / diagonal)
    pull = back(weight * state.residual)
    pull[count:] -= (known * terms).ravel()
    change, _ = cg(matrix, pull, rtol=ENOUGH, maxiter=MOST_STEPS, M=around)
    return change[count:].reshape(known.shape)


def stamps_in(table: FittedTable, config: FitConfig) -> Array:
    """The table's stamps at its wavelengths, (nfibre, nwave, py, px, ny, nx)."""
    fit, positions = table.fit, config.positions
    frame, waves = fit.frame, table_waves(table.fit.frame.range, config)
    stamps = stamps_of(psf_of(frame, fit.state.now), waves, (positions, positions))
    centre = (np.arange(positions) + 0.5) / positions - 0.5
    ny, nx = frame.start.stamp
    y, x = (_values(-(side // 2) - centre, side, positions) for side in (ny, nx))
    fibre, wave = np.repeat(np.arange(frame.nfibre), len(waves)), np.tile(waves, frame.nfibre)
    knots = np.tensordot(shape_basis(frame, fibre, wave), table.terms, axes=1)
    more = np.einsum("pyj,sji,qxi->spqyx", y, knots, x, optimize=True).reshape(stamps.shape)
    light = fit.state.stamps.image[:, 0].sum(axis=(1, 2)).mean()        # of spots of the fit; the sum here is 1
    return np.maximum(stamps + more / light, 0.0)


def check_tables(start: PsfModel, config: FitConfig) -> None:
    """Raise InputError where the spots of a starting PSF cannot become tables."""
    (ny, nx), waves = start.stamp, config.degree_wave + 1 + EXTRA
    numbers = start.nfibre * waves * config.positions**2 * ny * nx
    if not (ny % 2 and nx % 2 and max(ny, nx) <= MOST_SIDE):
        raise InputError(f"{start.name}: its stamps have {nx} x {ny} pixels, must be odd numbers up to {MOST_SIDE} for "
                         "tables: start from another PSF, as made by gpu_psf start")
    if numbers > MOST_NUMBERS:
        raise InputError(f"tables of {start.nfibre} fibres at {waves} wavelengths with {config.positions} x "
                         f"{config.positions} positions are {numbers} numbers, at most {MOST_NUMBERS} are allowed: "
                         "give fewer --positions, or a lower --wave-degree")


def table_waves(ends: tuple[float, float], config: FitConfig) -> Array:
    """Wavelengths of a table."""
    return nodes_of(config.degree_wave + 1 + EXTRA, ends)


def with_tables(psf: PsfModel, ranges: Sequence[tuple[int, int]], tables: Sequence[Array | None],
                config: FitConfig) -> PsfModel:
    """A PSF with the tables of bundles; the spots of other fibres are tabulated unchanged."""
    core = psf.cores[0]
    domain = core.gh.wmin, core.gh.wmax
    waves = table_waves(domain, config)
    stamps = stamps_of(psf, waves, (config.positions, config.positions))
    for (lo, hi), table in zip(ranges, tables, strict=True):
        if table is not None:
            stamps[lo:hi] = table
    return replace(psf, cores=(core_of(stamps, np.arange(psf.nfibre), waves, domain, psf.nfibre),), tail=None)
