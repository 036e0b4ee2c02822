"""Legendre series in float64: numpy's functions, with precise type annotations."""
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.polynomial import legendre as numpys_own

from gpu_extract.data import Array, IntArray, Legendre

numpys: Any = numpys_own      # whose types are those of any numbers
legval: Callable[..., Array] = numpys.legval
legfit: Callable[..., Array] = numpys.legfit
legvander: Callable[..., Array] = numpys.legvander
legvander2d: Callable[..., Array] = numpys.legvander2d


def scaled(at: Array, ends: tuple[float, float]) -> Array:
    """Wavelengths or rows, scaled to -1 .. 1."""
    return 2 * (at - ends[0]) / (ends[1] - ends[0]) - 1


def legendre(at: Array, ends: tuple[float, float], degree: int) -> Array:
    """Legendre polynomials 0 .. degree between `ends`: (n, degree + 1)."""
    return legvander(scaled(at, ends), degree)


def _basis(series: Legendre, at: Array) -> Array:
    return legendre(at, (series.wmin, series.wmax), series.coeff.shape[-1] - 1)


def series_at(series: Legendre, fibres: slice | int, at: Array) -> Array:
    """Values of a series, (..., nfibre, n); of one fibre (..., n)."""
    return series.coeff[..., fibres, :] @ _basis(series, at).T


def one_by_one(series: Legendre, fibre: IntArray, at: Array) -> Array:
    """Values of a series at fibres (n,) and one place on each (n,): (n,)."""
    return (_basis(series, at) * series.coeff[fibre]).sum(axis=1)


def at_rows(series: Legendre, y: Array) -> Array:
    """(nfibre, len(y)) values of series against the row."""
    return legval(scaled(y, (series.wmin, series.wmax)), series.coeff.T)


def fit_series(at: Array, values: Array, ends: tuple[float, float], degree: int, beyond: float = np.inf) -> Legendre:
    """Series of each fibre's values against its own places, (nfibre, n) both; places farther than `beyond` from the
    ends do not count."""
    coeff = [legfit(scaled(place[on], ends), value[on], degree) for place, value in zip(at, values, strict=True)
             for on in [(place > ends[0] - beyond) & (place < ends[1] + beyond)]]
    return Legendre(np.stack(coeff), *ends)


def legendre_of_rows(coeff: Array, ny: int) -> Legendre:
    """A series against the row, 0 to ny - 1."""
    return Legendre(coeff, 0.0, float(ny - 1))
