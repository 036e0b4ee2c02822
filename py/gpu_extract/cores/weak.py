"""Which bins good pixels do not tell from others: doc/method.md, "Weak bins".

C_jj icov_jj, with C = icov^-1 of the whole bundle, is what a bin's variance is raised by because other bins are not
known either: a number without a unit that knows nothing of other bins' weights. It bounds what rounding does to the
bin: 100 eps times it is 2e-4 sigma at UNKNOWN. Only factors are asked, and one look is enough for most fibres.
"""
import numpy as np
from scipy.linalg import lapack

from gpu_extract.data import Array

UNKNOWN = 1e10   # C_jj icov_jj above which a bin is weak
SHARE = 1e-6     # of a bin, squared, in directions that were lost to rounding, above which it is weak
SAFE = 1e-6      # pivots above that, in units of the diagonals, need no look at the inverse
BATCH = 256      # columns of an inverse that are made at a time


def weak_in_factor(factor: Array, diagonal: Array, floor: float = 0.0) -> np.ndarray:
    """(n,) bool, from L with C^-1 = L L^T, (n, n) its lower part.

    diagonal: (n,) of icov, 0 for bins without weight, which are not weak
    floor: what directions that are lost to rounding were given, in units of the diagonals. C_jj icov_jj times that is
        then the bin's share in them
    """
    if (factor.diagonal() ** 2 > SAFE * diagonal).all():
        return np.zeros(len(diagonal), dtype=bool)
    inverse = lapack.dtrtri(factor, lower=1)[0]
    weak: np.ndarray = (inverse**2).sum(axis=0) * diagonal > _limit(floor)
    return weak


def weak_in_band(band: Array, diagonal: Array, floor: float = 0.0) -> np.ndarray:
    """(n,) bool, from C^-1 = S, (n, half + 1) rows of its upper triangle; diagonal, floor: as above.

    None is weak where S - diagonal / UNKNOWN is definite: one factorisation says so of most fibres.
    """
    lower, unknown = np.asfortranarray(band.T), _limit(floor)
    shifted = lower.copy(order="F")
    shifted[0] -= diagonal / unknown
    if lapack.dpbtrf(shifted, lower=1, overwrite_ab=1)[1] == 0:
        return np.zeros(len(diagonal), dtype=bool)
    factor, info = lapack.dpbtrf(lower, lower=1)
    if info != 0:
        return diagonal > 0.0
    variance = np.empty(len(diagonal))
    for first in range(0, len(diagonal), BATCH):
        bins = np.arange(first, min(first + BATCH, len(diagonal)))
        unit = np.zeros((len(diagonal), len(bins)), order="F")
        unit[bins, bins - first] = 1.0
        variance[bins] = lapack.dpbtrs(factor, unit, lower=1, overwrite_b=1)[0][bins, bins - first]
    weak: np.ndarray = ~(variance * diagonal <= unknown)
    return weak


def _limit(floor: float) -> float:
    """C_jj icov_jj above which a bin is weak."""
    return min(UNKNOWN, SHARE / floor) if floor > 0.0 else UNKNOWN
