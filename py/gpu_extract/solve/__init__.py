"""The deconvolved flux x of a whole bundle: icov x = rhs (B&S eq. 4).

x is never cut: solving it in windows would bring outside light into their edges. The method is conjugate gradients,
preconditioned by one banded factorisation per fibre, after every other fibre has been eliminated. The banded Cholesky
factorisation of the whole bundle is its check, and its replacement if the iteration does not converge. icov may be
singular, since masks can leave fewer pixels than bins. rhs still lies in its range, and x is one of the solutions; the
choice does not affect the flux, because Q removes the difference.
"""
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gpu_extract.data import Array, Normal, Strengths
from gpu_extract.kernels.arena import Arena
from gpu_extract.lapack import blas, lapack
from gpu_extract.normal import lower_band
from gpu_extract.solve import simd_factor, simd_solve, simd_strengths, simd_substitute

TOLERANCE = 1e-10    # of x in units of its errors, the root of the sum of squares over the bundle
ROUNDING = 1e-15     # the same, relative to the signal to noise of the whole bundle: the lowest possible residual
ITERATIONS = 100
FAINT = 1e-11        # weaker couplings of distant fibres are left to the correction by the residual
SAMPLE = 32          # bins between two samples of the couplings
FLOORS = (0.0, *10.0 ** np.arange(-15.0, -8.0))    # added to a factor's diagonal, scaled to 1, until it is definite
REFINEMENTS = 12  # of refinement, each of which must reduce the error to less than CLOSER
CLOSER = 0.9


@dataclass(frozen=True)
class Solution:
    """x: (nfibre, nwave) photons per bin, 0 where weight is 0; iterations: 0 means a direct solution.

    error: remaining error, from the residual, in units of the errors (root of the sum of squares over the bundle)
    strengths: of icov, measured while the residual reads all of it
    lifted: (nfibre, nwave) bool, bins of which icov holds only rounding once the previous bins of the fibre are known:
        their diagonal elements were given a floor, in place; None if there are none
    """

    x: Array
    iterations: int
    error: float
    strengths: Strengths
    lifted: np.ndarray | None = None


def solve(normal: Normal, arena: Arena | None = None, lasting: Arena | None = None) -> Solution:
    """Solve for the whole bundle; arena: scratch memory; lasting: memory that holds the strengths.

    The iteration omits negligible couplings of distant fibres. The residual with all of icov then gives the remaining
    error. If that is too large, the iteration is repeated with all of icov, and after that x is solved directly.
    """
    nfibre, nd, nwave, _ = normal.icov.shape
    rows, margin, length = simd_factor.room_of(nfibre, nwave, normal.halfband)
    arena = arena or Arena()
    hw, own = normal.halfband, normal.own_halfband
    lasting = lasting or Arena()
    factor = lasting.take(*simd_factor.factor_shape(nfibre, nwave, own))
    correlations, roots = simd_strengths.room(normal.icov.shape, lasting)
    own_blocks = normal.icov[:, 0, :, hw - own:hw + 1]
    lifted = None
    if simd_factor.factorise(factor, roots, own_blocks):
        lifted = simd_factor.lift(normal.icov, own)
        simd_factor.factorise(factor, roots, own_blocks)
    strengths = Strengths(roots, correlations, factor)
    vectors = arena.take(6, rows, length)
    x, r, t = vectors[0], vectors[1], vectors[-1]
    right_side = normal.rhs.copy()
    right_side.ravel()[np.flatnonzero(~(normal.weight > 0.0))] = 0.0      # np.where takes three times as long
    x[:] = 0.0
    _write(r, right_side, margin)
    limit, rounding, iterations, error, least = TOLERANCE, ROUNDING, 0, np.inf, 1.0
    steps = np.empty((2, ITERATIONS))
    for near in (nearest(normal.icov, FAINT, SAMPLE), nd - 1):
        done, reached = simd_solve.conjugate_gradients(vectors, normal.icov, factor, near,
                                                      (limit * least, rounding, ITERATIONS - iterations), steps)
        limit, iterations, rounding = max(limit, reached), iterations + done, 0.0
        least = min(least, _smallest(steps[:, :done]) ** 0.5)
        _write(r, right_side, margin)
        simd_strengths.multiply(correlations, t, normal.icov, x, margin, roots)
        error = simd_substitute.size_of(r, t, factor, margin) / least
        if error <= 2 * limit:
            break
        r -= t
    if not error <= 10 * limit:
        return Solution(*solve_directly(normal), strengths, lifted)
    odd, bins = simd_factor.row_of(1, nfibre), slice(margin, margin + nwave)
    found = np.empty((nfibre, nwave))
    found[::2], found[1::2] = x[:(nfibre + 1) // 2, bins], x[odd:odd + nfibre // 2, bins]
    return Solution(found, iterations, error, strengths, lifted)


def _write(vector: Array, values: Array, margin: int) -> None:
    """Values of all bins, (nfibre, nwave), into a vector as in simd_factor.room_of, with zeros around them."""
    bins, odd, first = slice(margin, margin + values.shape[1]), simd_factor.row_of(1, len(values)), 0
    vector[:, :margin] = vector[:, bins.stop:] = 0.0
    for begin, part in ((0, values[::2]), (odd, values[1::2])):
        vector[first:begin], first = 0.0, begin + len(part)
        vector[begin:first, bins] = part
    vector[first:] = 0.0


def _smallest(steps: Array) -> float:
    """The smallest eigenvalue of M^-1 icov met by the iteration, at most 1; M holds the fibres' own blocks.

    steps: see simd_solve.conjugate_gradients; they are the elements of Lanczos's tridiagonal matrix (Golub & Van Loan,
    Matrix Computations, 11.3). r M^-1 r is smaller than the square of the error by up to that factor: fibres that share
    pixels are distinguished by a small part of the information in their own blocks.
    """
    length, beta = steps
    if len(length) == 0:
        return 1.0
    diagonal = 1.0 / length
    diagonal[1:] += beta[1:] / length[:-1]
    if len(diagonal) > 1:       # scipy.linalg.eigvalsh_tridiagonal asks this, too, after a hundred times as long
        diagonal, info = lapack.dsterf(diagonal, np.sqrt(beta[1:]) / length[:-1])
        if info != 0:
            return 1e-16
    return float(min(max(diagonal[0], 1e-16), 1.0))


def closest(strengths: Strengths) -> float:
    """The largest correlation between bins of different fibres, 0 if none are coupled."""
    nd, nfibre = len(strengths.correlations) + 1, len(strengths.roots)
    return max((float(strengths.correlations[d - 1, :nfibre - d].max()) for d in range(1, min(nd, nfibre))),
               default=0.0)


def nearest(icov: Array, least: float, step: int) -> int:
    """Distance of the farthest fibres whose coupling, with the diagonal scaled to 1, is above `least`; 1 for next ones.

    Every step-th bin is looked at, where both fibres have weight.
    """
    some = icov[:, :, ::step]
    roots = np.sqrt(some[:, 0, :, icov.shape[3] // 2])
    for d in range(icov.shape[1] - 1, 1, -1):
        limits = least * roots[:-d] * roots[d:]
        limits[limits == 0.0] = np.inf
        if (np.abs(some[:-d, d]) > limits[:, :, None]).any():
            return d
    return min(1, icov.shape[1] - 1)


def solve_directly(normal: Normal) -> tuple[Array, int, float]:
    """x, 0 for the iterations, and the remaining error in sigma, by one banded Cholesky factorisation of the bundle.

    With the diagonal scaled to 1, the smallest floor that makes the factor definite is added to it. Refinement removes
    its effect: each step leaves floor / (h + floor) of the error in a direction of information h. Where h is at the
    rounding level, the effect of the steps is irrelevant.
    """
    lower = lower_band(normal.icov, (0, len(normal.rhs)), (0, normal.rhs.shape[1]))
    scale, factor = definite_factor(lower)
    b = np.where(normal.weight.T.ravel() > 0, normal.rhs.T.ravel() * scale, 0.0)
    x, best = np.zeros(len(b)), np.inf
    for _ in range(REFINEMENTS):
        r = b - blas.dsbmv(len(lower) - 1, 1.0, lower, x, lower=1)
        z = lapack.dpbtrs(factor, r, lower=1)[0]
        left = float(np.sqrt(max(r @ z, 0.0)))
        if not left < CLOSER * best:
            break
        x, best = x + z, left
    return (x * scale).reshape(normal.rhs.T.shape).T.copy(), 0, left


def definite_factor(lower: Array) -> tuple[Array, Array]:
    """Scale LAPACK's lower band to a diagonal of 1, in place: by what, and its Cholesky factor, with the smallest of
    FLOORS added to the diagonal that makes it definite."""
    scale = 1.0 / np.sqrt(lower[0])
    lower *= scale * sliding_window_view(np.append(scale, np.ones(len(lower) - 1)), len(scale))
    for floor in FLOORS:
        factor = lower.copy(order="F")
        factor[0] += floor
        factor, info = lapack.dpbtrf(factor, lower=1, overwrite_ab=1)
        if info == 0:
            break
    return scale, factor


def measure_strengths(icov: Array, arena: Arena) -> Strengths:
    """The strengths of icov, which is read for them alone; arena: memory that holds them."""
    correlations, roots = simd_strengths.room(icov.shape, arena)
    simd_strengths.inverse_roots(roots, icov)
    simd_strengths.strongest(correlations, icov, roots)
    return Strengths(roots, correlations)
