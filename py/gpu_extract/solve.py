"""The deconvolved flux x of a whole bundle: icov x = rhs (B&S eq. 4).

x is never cut: solving it in windows would put light from outside into their
edges. The way is conjugate gradients with one banded factorisation per fibre, every
other fibre eliminated; the exact banded Cholesky of the whole bundle is its check, and what is used where
the iteration does not arrive.
"""
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_solve_banded, cholesky_banded

from gpu_extract.backend import cpu_couple, cpu_factor, cpu_solve, cpu_strengths, cpu_substitute
from gpu_extract.backend.arena import Arena
from gpu_extract.data import Array, Normal, Strengths
from gpu_extract.errors import InternalError

TOLERANCE = 1e-10    # of x in units of its errors, the root of the sum of squares over the bundle
ROUNDING = 1e-15     # the same, relative to the signal to noise of the whole bundle: no residual gets below
ITERATIONS = 100
FAINT = 1e-11        # couplings of fibres that are far apart and below this are left to the residual's correction
SAMPLE = 32          # bins from one look at the couplings to the next


@dataclass(frozen=True)
class Solution:
    """x: (nfibre, nwave) photons per bin, 0 where weight is 0; iterations: 0 means solved directly.

    error: what is left, from the residual, in units of the errors (root of the sum of squares over the bundle)
    strengths: of icov, which the residual reads as a whole
    """

    x: Array
    iterations: int
    error: float
    strengths: Strengths


def solve(normal: Normal, arena: Arena | None = None, lasting: Arena | None = None) -> Solution:
    """Solve for the whole bundle; arena: where the work is done, lasting: where the strengths are kept.

    The iteration leaves out couplings of distant fibres that hardly count; then the residual of all of icov tells what
    is left, and if that is too much, it is solved for with all of icov.
    Raises InternalError where the normal equations are not positive definite.
    """
    nfibre, nd, nwave, _ = normal.icov.shape
    rows, margin, length = cpu_factor.room_of(nfibre, nwave, normal.halfband)
    arena = arena or Arena()
    hw, own = normal.halfband, normal.own_halfband
    factor = arena.take(*cpu_factor.factor_shape(nfibre, nwave, own))
    correlations, roots = cpu_strengths.room(normal.icov.shape, lasting or Arena())
    cpu_factor.factorise(factor, roots, normal.icov[:, 0, :, hw - own:hw + 1])
    strengths = Strengths(roots, correlations)
    vectors = arena.take(6, rows, length)
    x, r, t = vectors[0], vectors[1], vectors[-1]
    x[:] = 0.0
    cpu_solve.begin(r, normal.rhs, normal.weight, margin)
    limit, rounding, iterations, error = TOLERANCE, ROUNDING, 0, np.inf
    for near in (nearest(normal), nd - 1):
        done, limit = cpu_solve.conjugate_gradients(vectors, normal.icov, factor, near,
                                                    (limit, rounding, ITERATIONS - iterations))
        iterations, rounding = iterations + done, 0.0
        cpu_solve.begin(r, normal.rhs, normal.weight, margin)
        cpu_strengths.multiply(correlations, t, normal.icov, x, margin, roots)
        error = cpu_substitute.size_of(r, t, factor, margin)
        if error <= 2 * limit:
            break
        r -= t
    if not error <= 10 * limit:
        return Solution(solve_directly(normal), 0, 0.0, strengths)
    found = np.empty((nfibre, nwave))
    cpu_solve.by_fibre(found, x, margin)
    return Solution(found, iterations, error, strengths)


def nearest(normal: Normal) -> int:
    """Distance of the farthest fibres whose coupling, with the diagonal scaled to 1, is not faint (on a sample)."""
    return min(cpu_couple.farthest(normal.icov, FAINT, SAMPLE), normal.icov.shape[1] - 1)


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
