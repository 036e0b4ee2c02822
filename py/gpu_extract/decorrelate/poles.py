"""The inverse square root as a sum of resolvents: S^(-1/2) ~ sum_k c_k (S + t_k)^-1 with all t_k > 0.

Hale, Higham & Trefethen 2008, SIAM J. Numer. Anal. 46, 2505, method 3: the contour integral of z^(-1/2) around the
spectrum in [m, M], mapped by elliptic functions and divided into N equal steps. It is also Zolotarev's best rational
approximation, with relative error 4 exp(-2 pi^2 N / (ln(M/m) + 3)) at every eigenvalue. With k^2 = m/M,
K' = K(1 - k^2), u_j = (j - 1/2) K'/N and y_j = sc(u_j | 1 - k^2):

    t_j = m y_j^2,   c_j = 2 K' sqrt(m) / (pi N) sqrt((1 + k^2 y_j^2)(1 + y_j^2)).

Library routines lose digits of sc with a parameter near 1. By Jacobi's imaginary transformation sc(u | 1 - k^2) =
-i sn(i u | k^2), and Landen's descending transformation reduces the small parameter k^2 to 0 in a few steps
(DLMF 22.6.1, 22.7.2), so that every digit is correct down to m/M = 1e-18.
"""
from dataclasses import dataclass
from functools import cache

import numpy as np

from gpu_extract.data import Array

LADDER = ((16, 5e3), (16, 2e4), (24, 1e7), (32, 1e10), (48, 1e14), (64, 1e18))
"""(poles, M/m): the first rung whose m lies below the spectrum is used. The relative error is 5e-12 on the first and
at most 1e-10 on all; the error of the flux is that times its signal to noise."""


@dataclass(frozen=True)
class Poles:
    """The sum for a spectrum in [maximum / ratio, maximum].

    shifts: (..., count) t_k; weights: (..., count) c_k
    """

    shifts: Array
    weights: Array


@cache
def unit_poles(count: int, ratio: float) -> Poles:
    """Poles for a spectrum in [1/ratio, 1]."""
    square = 1.0 / ratio
    high, low = 1.0, float(np.sqrt(square))
    while high - low > 1e-15 * high:
        high, low = 0.5 * (high + low), float(np.sqrt(high * low))
    quarter = np.pi / (2.0 * high)
    y = _sc((np.arange(count) + 0.5) * quarter / count, square)
    shifts = square * y**2
    weights = 2.0 * quarter * np.sqrt(square) / (np.pi * count) * np.sqrt((1.0 + square * y**2) * (1.0 + y**2))
    shifts.flags.writeable = weights.flags.writeable = False
    return Poles(shifts, weights)


def scaled_poles(count: int, ratio: float, maximum: Array | float) -> Poles:
    """Poles for a spectrum in [maximum / ratio, maximum]: t scales with maximum, c with its root.

    maximum: a number, or (n, 1) of them for n rows of poles
    """
    unit = unit_poles(count, ratio)
    return Poles(unit.shifts * maximum, unit.weights * np.sqrt(maximum))


@cache
def pole_error(count: int, ratio: float) -> float:
    """Largest relative error of the sum on [1/ratio, 1] (the asymptotic law, within 1.5 of the truth)."""
    return float(4.0 * np.exp(-2.0 * np.pi**2 * count / (np.log(ratio) + 3.0)))


def _sc(u: Array, square: float) -> Array:
    """sc(u | 1 - square) for 0 <= u < K(1 - square)."""
    if square < 1e-40:
        return np.sinh(u)
    root = np.sqrt(1.0 - square)
    small = square / (1.0 + root) ** 2
    y = _sc(u / (1.0 + small), small**2)
    return (1.0 + small) * y / (1.0 - small * y**2)
