"""Gauss-Hermite profiles integrated over pixels, and their derivatives.

With u = (pixel edge - centre)/sigma, phi the normal density and He_k the probabilists' Hermite polynomials, the
profile of order k over a pixel is P_k = -[He_(k-1) phi] between its edges, P_0 the normal probability. Because
d(He_(k-1) phi)/du = -He_k phi and u He_k = He_(k+1) + k He_(k-1), every derivative is made of profiles again:

    dP_k/dcentre = P_(k+1)/sigma        dP_k/dsigma = (P_(k+2) + k P_k)/sigma
"""
import numpy as np
from scipy.special import ndtr

from gpu_extract.data import Array


def profiles(centre: Array, sigma: Array, first: np.ndarray, size: int, degree: int) -> Array:
    """P_0 .. P_degree of n spots over `size` pixels from `first` (n,) on: (n, degree + 1, size).

    centre, sigma: (n,) pixels, sigma > 0
    """
    edges = first[:, np.newaxis] + (np.arange(size + 1) - 0.5)
    u = (edges - centre[:, np.newaxis]) / sigma[:, np.newaxis]
    found = np.empty((len(centre), degree + 1, size))
    found[:, 0] = np.diff(ndtr(u), axis=1)
    before, density = np.zeros_like(u), np.exp(-0.5 * u * u) / np.sqrt(2 * np.pi)      # He_(k-2) phi, He_(k-1) phi
    for k in range(1, degree + 1):
        found[:, k] = density[:, :-1] - density[:, 1:]
        before, density = density, u * density - (k - 1) * before
    return found


def by_centre(p: Array, sigma: Array, count: int) -> Array:
    """dP_k/dcentre of the first `count` profiles, (n, count, size)."""
    return p[:, 1:count + 1] / sigma[:, np.newaxis, np.newaxis]


def by_sigma(p: Array, sigma: Array, count: int) -> Array:
    """dP_k/dsigma of the first `count` profiles, (n, count, size)."""
    order = np.arange(count)[:, np.newaxis]
    return (p[:, 2:count + 2] + order * p[:, :count]) / sigma[:, np.newaxis, np.newaxis]
