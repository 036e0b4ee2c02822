"""Which bins good pixels do not distinguish from others: doc/method.md, "Weak bins".

C_jj icov_jj, with C = icov^-1 of the whole bundle, is the factor by which a bin's variance increases because the other
bins are unknown, too. It has no unit and does not depend on the weights of other bins. It bounds the effect of rounding
on the bin: 100 eps times it is 2e-4 sigma at UNKNOWN. Where such bins are possible, the pixels decide instead of icov
(dense.pixels).
"""
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpu_extract.data import Array
from gpu_extract.lapack import lapack
from gpu_extract.normal import lower_band

UNKNOWN = 1e10   # C_jj icov_jj above which a bin is weak
TOLD = 1e-2 * UNKNOWN    # C_jj icov_jj above which a band, made from icov, may not show whether a bin is weak
HIDDEN = 0.1 * TOLD      # C_jj icov_jj of bins with all pixels good above which a step is reported as too fine
SAFE = 1e-6      # pivots of a band above this, in units of the diagonals, exceed its rounding
UNCERTAIN = 1e-11  # pivots below this allow no certain statement
ESTIMATE = 10.0  # how many times LAPACK's estimate a norm may be: three is common, ten was never seen
AT_ONCE = 256    # columns of the inverse of a factor that are made at once


@dataclass(frozen=True)
class Factor:
    """L with L L' = icov of some bins, as LAPACK's lower band, (half + 1, n), and icov's diagonal, (n,)."""

    band: Array
    diagonal: Array

    def solve(self, sides: Array) -> Array:
        """C = icov^-1 times (n,) or (n, count)."""
        return lapack.dpbtrs(self.band, sides, lower=1)[0]

    @cached_property
    def size(self) -> float:
        """An estimate of the 1-norm of C, scaled by the root of icov's diagonal, as by LAPACK's dpocon.

        Higham 1988, ACM Trans. Math. Softw. 14, 381: a lower bound from a few products with C
        """
        n, root = len(self.diagonal), np.sqrt(self.diagonal)
        side, found = np.full(n, 1.0 / n), 0.0
        for _ in range(5):
            product = root * self.solve(root * side)
            found = max(found, float(np.abs(product).sum()))
            slope = root * self.solve(root * np.copysign(1.0, product))
            steepest = int(np.abs(slope).argmax())
            if abs(slope[steepest]) <= slope @ side:
                break
            side = np.zeros(n)
            side[steepest] = 1.0
        side = np.linspace(1.0, 2.0, n) * (-1.0) ** np.arange(n)
        return max(found, 2.0 / (3.0 * n) * float(np.abs(root * self.solve(root * side)).sum()))


def told_factor(icov: Array, fibres: tuple[int, int], waves: tuple[int, int], most: float = UNKNOWN) -> Factor | None:
    """The factor of `lower_band`, None if icov is too close to singular; most: see factor_tells."""
    matrix = lower_band(icov, fibres, waves)
    diagonal = matrix[0].copy()
    band, info = lapack.dpbtrf(matrix, lower=1, overwrite_ab=1)
    factor = Factor(band, diagonal)
    return factor if info == 0 and factor_tells(factor, most) else None


def factor_tells(factor: Factor, most: float = UNKNOWN) -> bool:
    """Whether no bin is weak by C^-1 = L L': C_jj icov_jj <= most.

    Pivots alone do not suffice: a chain of bins that only wings distinguish has pivots of 1e-3 each, and C_jj icov_jj
    of 1e11. The 1-norm of C, scaled, is above every C_jj icov_jj; an estimate of it costs a few solutions. If that does
    not suffice, C_jj is computed from column j of L^-1, which is 0 above bin j.
    """
    band, diagonal = factor.band, factor.diagonal
    if not (band[0] ** 2 > UNCERTAIN * diagonal).all():
        return False
    if factor.size * ESTIMATE <= most:
        return True
    for first in range(0, len(diagonal), AT_ONCE):
        some = diagonal[first:first + AT_ONCE]
        unit = np.eye(len(diagonal) - first, len(some), order="F")
        columns = lapack.dtbtrs(band[:, first:], unit, uplo="L", overwrite_b=1)[0]
        if not ((columns**2).sum(axis=0) * some <= most).all():
            return False
    return True


def band_tells(band: Array, diagonal: Array) -> bool:
    """Whether no bin is nearly weak by C^-1 = S: C_jj icov_jj <= TOLD if S - diagonal / TOLD is definite.

    band: (n, half + 1) rows of the upper triangle of S; diagonal: (n,) of icov, 0 for bins without weight
    """
    return definite(band, diagonal / TOLD)


def definite(band: Array, shift: float | Array) -> bool:
    """Whether a band, (n, half + 1) of its upper triangle, minus `shift` (one or n) on the diagonal, is definite."""
    shifted = band.T.copy(order="F")
    shifted[0] -= shift
    info: int = lapack.dpbtrf(shifted, lower=1, overwrite_ab=1)[1]
    return info == 0


def whole_tells(matrix: Array, diagonal: Array) -> bool:
    """The same for S as a full matrix, (n, n)."""
    shifted = np.array(matrix, order="F")
    shifted.ravel(order="K")[::len(shifted) + 1] -= diagonal / TOLD
    info: int = lapack.dpotrf(shifted, lower=1, overwrite_a=1, clean=0)[1]
    return info == 0
