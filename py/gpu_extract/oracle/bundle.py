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
from gpu_extract.errors import InputError

WEAK = 1e-4               # a bin with less than this part of the largest weight is regularised
BINS_MAX = 8000           # 0.5 GB for each dense matrix


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
        value, vector = scipy.linalg.eigh(covariance[np.ix_(seen, seen)])
        q = (vector / np.sqrt(value)) @ vector.T
        s = q.sum(axis=1)
        result.resolution[np.ix_(seen, seen)] = q / s[:, None]
        result.flux[seen] = (q @ x[seen]) / s
        result.ivar[seen] = s**2
    return result


def regularise(icov: Array, weight: Array, ridge: float, largest: float | None = None) -> NDArray[np.bool_]:
    """Regularise icov (n, n) in place and tell which bins were: METHOD's rule for weak bins.

    minweight is 1e-4 of the largest weight (`largest`, where only some bins count); bins below it get
    (minweight - weight)^2 added to their diagonal element, the others ridge^2.
    """
    minweight = WEAK * (weight.max(initial=0.0) if largest is None else largest)
    weak = weight < minweight
    for k in range(len(weight)):
        icov[k, k] += (minweight - weight[k]) ** 2 if weak[k] else ridge**2
    return weak


def _largest_eigenvalue(matrix: Array) -> float:
    start = np.ones(len(matrix))
    if len(matrix) < 3:
        return float(scipy.linalg.eigvalsh(matrix)[-1])
    return float(scipy.sparse.linalg.eigsh(matrix, k=1, v0=start, return_eigenvectors=False, tol=1e-3)[0])


@dataclass(frozen=True)
class BundleOracle:
    """One bundle, solved without any cut: arrays of (nfibre, nall), the extra bins at both ends included.

    x: deconvolved photons; flux, ivar: decorrelated; resolution: (nfibre, nall, nall), R_i in full
    covariance: (nfibre, nall, nall), C_ii; weight: A^T W 1; cond: condition number of icov
    """

    x: Array
    flux: Array
    ivar: Array
    resolution: Array
    covariance: Array
    weight: Array
    chi2pix: Array
    pixmask_fraction: Array
    regularised: NDArray[np.bool_]
    model: Array
    cond: float


def solve_bundle(design: scipy.sparse.csc_matrix, image: Image, nfibre: int, *, psferr: float,
                 ridge: float = 0.0, wanted: slice = slice(None)) -> BundleOracle:
    """Everything of B&S eq. 4 and 10-19 for the bundle whose A is `design`, with dense matrices.

    wanted: the wavelengths without those beyond the ends; the largest weight is looked for among them
    """
    count = design.shape[1]
    if count > BINS_MAX:
        raise InputError(f"the oracle was given {count} bins in one bundle, it takes at most {BINS_MAX}: "
                         "choose fewer fibres, a shorter wavelength range or less padding")
    w = np.where(image.ivar > 0, image.ivar, 0).astype(float).ravel()
    p = np.where(w > 0, image.pix.ravel(), 0).astype(float)
    icov = (design.T @ scipy.sparse.diags(w) @ design).toarray()
    weight = design.T @ w
    weak = regularise(icov, weight, ridge, weight.reshape(nfibre, -1)[:, wanted].max(initial=0.0))
    seen = np.flatnonzero(weight > 0)
    x, c, cond = np.zeros(count), np.zeros((count, count)), 1.0
    if len(seen):
        kept = icov[np.ix_(seen, seen)]
        x[seen] = scipy.linalg.solve(kept, (design.T @ (w * p))[seen], assume_a="pos")
        inverse = scipy.linalg.cho_solve(scipy.linalg.cho_factor(kept), np.eye(len(seen)))
        c[np.ix_(seen, seen)] = (inverse + inverse.T) / 2
        cond = _largest_eigenvalue(kept) * _largest_eigenvalue(inverse)
    nall = count // nfibre
    fibres = [slice(i * nall, (i + 1) * nall) for i in range(nfibre)]
    parts = [decorrelate(c[i, i], x[i]) for i in fibres]
    model = design @ x
    variance = np.divide(1, w, out=np.zeros_like(w), where=w > 0) + (psferr * model) ** 2
    chi2 = np.where(w > 0, (p - model) ** 2 / np.where(w > 0, variance, 1), 0)
    good_light = design.T @ (w > 0).astype(float)
    any_light = good_light > 0
    grid = (nfibre, nall)
    return BundleOracle(
        x=x.reshape(grid), flux=np.array([p.flux for p in parts]), ivar=np.array([p.ivar for p in parts]),
        resolution=np.array([p.resolution for p in parts]), covariance=np.array([c[i, i] for i in fibres]),
        weight=weight.reshape(grid),
        chi2pix=np.divide(design.T @ chi2, good_light, out=np.zeros(count), where=any_light).reshape(grid),
        pixmask_fraction=np.where(any_light, 1 - good_light, 1.0).reshape(grid),
        regularised=weak.reshape(grid), model=model.reshape(image.shape), cond=cond)
