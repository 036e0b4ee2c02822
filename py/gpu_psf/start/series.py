"""Legendre series in float64: numpy's, whose types say no more than that they are numbers."""
from typing import Any

import numpy as np
from numpy.polynomial import legendre

from gpu_extract.data import Array


def legval(argument: Any, coeff: Array) -> Array:
    """Values of a series, coefficients along the first axis."""
    return np.asarray(legendre.legval(argument, coeff), dtype=np.float64)


def legfit(argument: Array, values: Array, degree: int) -> Array:
    """Coefficients of a fit, along the first axis."""
    return np.asarray(legendre.legfit(argument, values, degree), dtype=np.float64)


def legvander(argument: Array, degree: int) -> Array:
    """(n, degree + 1) values of the polynomials."""
    return np.asarray(legendre.legvander(argument, degree), dtype=np.float64)


def legvander2d(u: Array, v: Array, degrees: tuple[int, int]) -> Array:
    """(n, terms) values of the products of two."""
    return np.asarray(legendre.legvander2d(u, v, degrees), dtype=np.float64)
