"""The deconvolved flux x of a whole bundle: icov x = rhs (B&S eq. 4).

x is never cut: solving it in windows would put light from outside into their
edges. The way is conjugate gradients with one banded Cholesky per fibre; the
exact banded Cholesky of the whole bundle is its check, and what is used where
the iteration does not arrive.
"""
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_solve_banded, cholesky_banded

from gpu_extract.backend import cpu_solve
from gpu_extract.data import Array, Normal
from gpu_extract.errors import InternalError

TOLERANCE = 1e-10    # of x in units of its errors, the root of the sum of squares over the bundle
ITERATIONS = 100


@dataclass(frozen=True)
class Solution:
    """x: (nfibre, nwave) photons per bin, 0 where weight is 0; iterations: 0 means solved directly.

    error: what the iteration left, in units of the errors (root of the sum of squares over the bundle)
    """

    x: Array
    iterations: int
    error: float


def solve(normal: Normal) -> Solution:
    """Solve for the whole bundle.

    Raises InternalError where the normal equations are not positive definite.
    """
    factor = np.empty((*normal.rhs.shape, normal.halfband + 1))
    x = np.empty_like(normal.rhs)
    rhs = np.where(normal.weight > 0, normal.rhs, 0.0)
    cpu_solve.cholesky(factor, normal.icov[:, 0])
    iterations, error, floor = cpu_solve.conjugate_gradients(x, normal.icov, rhs, factor, TOLERANCE, ITERATIONS)
    if not error <= max(10 * TOLERANCE, 10 * floor):
        return Solution(solve_directly(normal), 0, 0.0)
    x[normal.weight == 0] = 0.0
    return Solution(x, iterations, error)


def solve_directly(normal: Normal) -> Array:
    """x by one banded Cholesky of the bundle, bins ordered by wavelength, then fibre: (nfibre, nwave).

    Raises InternalError where the matrix is not positive definite.
    """
    nfibre, nd, nwave, nband = normal.icov.shape
    hw = nband // 2
    half = hw * nfibre + nd - 1
    lower = np.zeros((half + 1, nwave, nfibre))
    for d in range(nd):
        for k in range(-hw, hw + 1):
            distance = k * nfibre + d
            i = np.arange(nfibre - d)
            j = np.arange(max(0, -k), nwave - max(0, k))
            values = normal.icov[:nfibre - d, d, j[0]:j[-1] + 1, hw + k] if len(j) else None
            if values is None or (d == 0 and k < 0):
                continue
            if distance >= 0:
                lower[distance][np.ix_(j, i)] = values.T
            else:
                lower[-distance][np.ix_(j + k, i + d)] = values.T
    lower = lower.reshape(half + 1, -1)
    lower[0][normal.weight.T.ravel() == 0] = 1.0
    rhs = np.where(normal.weight > 0, normal.rhs, 0.0).T.ravel()
    try:
        x = cho_solve_banded((cholesky_banded(lower, lower=True), True), rhs)
    except LinAlgError as error:
        raise InternalError("the normal equations of a bundle are not positive definite: are there two fibres "
                            f"on one trace, or is the step far below the resolution? ({error})") from error
    return np.where(normal.weight > 0, x.reshape(nwave, nfibre).T, 0.0)
