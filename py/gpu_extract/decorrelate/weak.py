"""Which bins good pixels do not distinguish from others: doc/method.md, "Weak bins".

C_jj icov_jj, with C = icov^-1 of the whole bundle, is the factor by which a bin's variance increases because the other
bins are unknown, too. It has no unit and does not depend on the weights of other bins. It bounds the effect of rounding
on the bin: 100 eps times it is 2e-4 sigma at UNKNOWN. Where such bins are possible, the pixels decide instead of icov
(dense.pixels).
"""
import numpy as np

from gpu_extract.data import Array
from gpu_extract.lapack import lapack

UNKNOWN = 1e10   # C_jj icov_jj above which a bin is weak
TOLD = 1e-2 * UNKNOWN    # that above which a band, made from icov, may have lost what tells whether it is
HIDDEN = 0.1 * TOLD      # that of bins with all pixels good above which a step is told to be too fine
SAFE = 1e-6      # pivots of a band above that, in units of the diagonals, are more than its rounding
UNCERTAIN = 1e-11  # those below that allow no certain statement
ESTIMATE = 10.0  # by how much a norm may be above LAPACK's estimate: three is common, ten is not seen


def factor_tells(factor: Array, diagonal: Array, most: float = UNKNOWN) -> bool:
    """Whether no bin is weak by C^-1 = L L': C_jj icov_jj <= most.

    factor: L, (n, n), lower; diagonal: (n,) of icov

    Pivots alone do not tell: a chain of bins that only wings distinguish has pivots of 1e-3 each, and C_jj icov_jj of
    1e11. The 1-norm of C, scaled, is above every C_jj icov_jj; LAPACK's estimate of it costs a few solutions.
    """
    if not (factor.diagonal() ** 2 > UNCERTAIN * diagonal).all():
        return False
    part, info = lapack.dpocon(factor / np.sqrt(diagonal)[:, None], 1.0, uplo="L")
    if info == 0 and part * most >= ESTIMATE:
        return True
    return bool(((lapack.dtrtri(factor, lower=1)[0] ** 2).sum(axis=0) * diagonal <= most).all())


def band_tells(band: Array, diagonal: Array) -> bool:
    """Whether no bin is near weak by C^-1 = S: C_jj icov_jj <= TOLD where S - diagonal / TOLD is definite.

    band: (n, half + 1) rows of the upper triangle of S; diagonal: (n,) of icov, 0 for bins without weight
    """
    shifted = band.T.copy(order="F")
    shifted[0] -= diagonal / TOLD
    info: int = lapack.dpbtrf(shifted, lower=1, overwrite_ab=1)[1]
    return info == 0
