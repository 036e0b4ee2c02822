"""One bundle solved with dense matrices, equation by equation.

Bolton & Schlegel 2010, PASP 122, 248 ("B&S").
"""
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
from numpy.typing import NDArray

from gpu_extract.data import Array, Image
from gpu_extract.errors import InputError, InternalError

LEAST_LIGHT = 1e-10       # of a bin, on the pixels that tell of it: with less it is no part of the problem
BINS_MAX = 8000           # 0.5 GB for each dense matrix
FLOOR = 100 * float(np.finfo(float).eps)    # of a matrix of unit diagonal that is singular, or as good as


@dataclass(frozen=True)
class FibreOracle:
    """One fibre, decorrelated: flux, ivar (nall,), resolution (nall, nall)."""

    flux: Array
    ivar: Array
    resolution: Array


def decorrelate(covariance: Array, x: Array) -> FibreOracle:
    """B&S eq. 10-19 for one fibre: Q = C_ii^(-1/2), s = Q 1, R = Q/s, flux = R x, ivar = s^2.

    Bins of variance 0 are those without any data: their flux, ivar and row of R are 0.
    """
    n = len(x)
    seen = np.flatnonzero(np.diag(covariance) > 0)
    result = FibreOracle(np.zeros(n), np.zeros(n), np.zeros((n, n)))
    if len(seen):
        q = _inverse_root(covariance[np.ix_(seen, seen)])
        s = q.sum(axis=1)
        result.resolution[np.ix_(seen, seen)] = q / s[:, None]
        result.flux[seen] = (q @ x[seen]) / s
        result.ivar[seen] = s**2
    return result


def _inverse_root(covariance: Array) -> Array:
    """C^(-1/2) from the singular values and left vectors of a Cholesky factor of C^-1.

    Bins may know 1e20 times less than others. Scaled to unit errors first, and by Jacobi rotations, each bin's root has
    the accuracy that the scaled matrix allows; eigenvectors of C itself would have that of the best known bin's.
    """
    error = np.sqrt(np.diag(covariance))
    inverse = np.linalg.inv(covariance / error / error[:, None])
    if not np.diag(inverse).all():
        raise InternalError(f"double precision does not tell {len(error)} bins of a fibre apart: please report this "
                            "with the image")
    unit = 1 / np.sqrt(np.abs(np.diag(inverse)))
    factor = _cholesky(inverse * unit * unit[:, None]) / (unit * error)[:, None]
    value, vector, _, work, _, info = scipy.linalg.lapack.dgejsv(factor, joba=0, jobu=0, jobv=3)
    if info:
        raise InternalError(f"the singular values of a fibre of {len(unit)} bins were not found (dgejsv: {info}): "
                            "please report this with the image")
    return np.asarray((vector * (value * (work[0] / work[1]))) @ vector.T)


def _cholesky(scaled: Array) -> Array:
    """Lower factor of a matrix of unit diagonal; where rounding left it indefinite, with a floor below it."""
    scaled, floor = (scaled + scaled.T) / 2, 0.0
    while floor < 1:
        try:
            return np.asarray(scipy.linalg.cholesky(scaled + floor * np.eye(len(scaled)), lower=True))
        except np.linalg.LinAlgError:
            floor = max(FLOOR, 10 * floor)
    raise InternalError(f"a matrix of {len(scaled)} rows is not positive definite: please report this with the image")


def _largest_eigenvalue(matrix: Array) -> float:
    start = np.ones(len(matrix))
    if len(matrix) < 3:
        return float(scipy.linalg.eigvalsh(matrix)[-1])
    return float(scipy.sparse.linalg.eigsh(matrix, k=1, v0=start, return_eigenvectors=False, tol=1e-3)[0])


@dataclass(frozen=True)
class BundleOracle:
    """One bundle, solved without any cut: arrays of (nfibre, nall), the extra bins at both ends included.

    x: deconvolved photons; flux, ivar: decorrelated; resolution: (nfibre, nall, nall), R_i in full
    covariance: (nfibre, nall, nall), C_ii; weight: A^T W 1; cond: condition number of icov scaled to a unit diagonal
    """

    x: Array
    flux: Array
    ivar: Array
    resolution: Array
    covariance: Array
    weight: Array
    chi2pix: Array
    pixmask_fraction: Array
    model: Array
    cond: float


def has_light(design: scipy.sparse.csc_matrix, w: Array) -> NDArray[np.bool_]:
    """Which bins (columns of A) are part of the problem: those with sum a^2 w > 1e-10 sum a w over the pixels.

    Less light on the pixels that tell of a bin is no light: the others are solved for as if it had none.
    """
    return np.asarray(design.multiply(design).T @ w).ravel() > LEAST_LIGHT * (design.T @ w)


def solve_bundle(design: scipy.sparse.csc_matrix, image: Image, nfibre: int, *, psferr: float,
                 ridge: float = 0.0) -> BundleOracle:
    """Everything of B&S eq. 4 and 10-19 for the bundle whose A is `design`, with dense matrices.

    ridge: its square is added to the diagonal of icov. Where double precision does not suffice (cond above 1e10 or so)
    bench/tools/exact.py does.
    """
    count = design.shape[1]
    if count > BINS_MAX:
        raise InputError(f"the oracle was given {count} bins in one bundle, must be at most {BINS_MAX}: choose fewer "
                         "fibres, a shorter wavelength range or less padding")
    w = np.where(image.ivar > 0, image.ivar, 0).astype(float).ravel()
    p = np.where(w > 0, image.pix.ravel(), 0).astype(float)
    weight = design.T @ w
    seen = np.flatnonzero(has_light(design, w))
    x, c, cond = np.zeros(count), np.zeros((count, count)), 1.0
    if len(seen):
        icov = (design.T @ scipy.sparse.diags(w) @ design).toarray()[np.ix_(seen, seen)]
        icov[np.diag_indices_from(icov)] += ridge**2
        x[seen], c[np.ix_(seen, seen)], cond = invert(icov, (design.T @ (w * p))[seen])
    nall = count // nfibre
    fibres = [slice(i * nall, (i + 1) * nall) for i in range(nfibre)]
    parts = [decorrelate(c[i, i], x[i]) for i in fibres]
    model, grid = design @ x, (nfibre, nall)
    chi2pix, fraction = judge(design, w, p, model, psferr)
    return BundleOracle(
        x=x.reshape(grid), flux=np.array([p.flux for p in parts]), ivar=np.array([p.ivar for p in parts]),
        resolution=np.array([p.resolution for p in parts]), covariance=np.array([c[i, i] for i in fibres]),
        weight=weight.reshape(grid), chi2pix=chi2pix.reshape(grid), pixmask_fraction=fraction.reshape(grid),
        model=model.reshape(image.shape), cond=cond)


def invert(icov: Array, rhs: Array) -> tuple[Array, Array, float]:
    """x and C of icov x = rhs, and the condition number of icov scaled to a unit diagonal, which is what is solved."""
    unit = 1 / np.sqrt(np.diag(icov))
    scaled = icov * unit * unit[:, None]
    factor = _cholesky(scaled), True
    inverse = scipy.linalg.cho_solve(factor, np.eye(len(scaled)))
    inverse = (inverse + inverse.T) / 2
    cond = _largest_eigenvalue(scaled) * _largest_eigenvalue(inverse)
    return unit * scipy.linalg.cho_solve(factor, unit * rhs), inverse * unit * unit[:, None], cond


def judge(design: scipy.sparse.csc_matrix, w: Array, p: Array, model: Array, psferr: float) -> tuple[Array, Array]:
    """chi2pix and pixmask_fraction of every bin; w, p, model: ivar, electrons and A x of all pixels."""
    variance = np.divide(1, w, out=np.zeros_like(w), where=w > 0) + (psferr * model) ** 2
    chi2 = np.where(w > 0, (p - model) ** 2 / np.where(w > 0, variance, 1), 0)
    good_light = np.asarray(design.T @ (w > 0).astype(float))
    any_light = good_light > 0
    return (np.divide(design.T @ chi2, good_light, out=np.zeros(len(good_light)), where=any_light),
            np.where(any_light, 1 - good_light, 1.0))
