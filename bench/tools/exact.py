"""One bundle in as many digits as it takes: where double precision cannot invert icov, and where nothing can.

Bins that good pixels do not tell apart make icov singular, or as good as. S_i, what fibre i knows when all other
bins are marginalised, is then still defined: it is the limit of the Schur complements of icov + t diag(icov) for
t -> 0, and so are Q_i = S_i^(1/2) and Q_i x_i. Here t is so small that the limit is reached to 1e-20, and numbers
have so many bits that this t is seen. Needs python-flint, which nothing else here does.
"""
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from flint import arb_mat, ctx
from numpy.typing import NDArray

from gpu_extract.data import Array, Image
from gpu_extract.errors import InternalError
from gpu_extract.oracle.bundle import has_light

BITS = 512           # 154 decimal digits
VANISHING = -133     # t = 2^-133 = 1e-40: its root is what a direction without data adds, rounding is 1e-154 / t^2
PIXELS = 400         # whose share of icov is made at once
LEAF = 128           # matrices up to this size are inverted as they are
STEPS = 40           # of Newton's iterations; 15 are usual
WEAK = 1e10          # a bin with C_kk icov_kk above it is told from others by less than double precision has


@dataclass(frozen=True)
class Exact:
    """One bundle, nothing cut: arrays of (nfibre, nall), 0 for bins without a good pixel.

    x: deconvolved photons, where icov is singular one of many; flux, ivar: decorrelated
    resolution: (nfibre, nall, nall), R_i in full
    information: 1 / C_kk, what is known of a bin when all others are marginalised; alone: icov_kk, when they are known
    cond: of icov scaled to a unit diagonal, the weak bins marginalised
    """

    x: Array
    flux: Array
    ivar: Array
    resolution: Array
    information: Array
    alone: Array
    cond: float

    @property
    def weak(self) -> NDArray[np.bool_]:
        """Bins that others know nearly all of: C_kk icov_kk > WEAK; those without any good pixel are none of them."""
        return self.information * WEAK < self.alone


def solve_exact(design: scipy.sparse.csc_matrix, image: Image, nfibre: int, *, floor: float = 0.0) -> Exact:
    """B&S eq. 4 and 10-19 for the bundle whose A is `design`.

    floor: what is added to the diagonal scaled to 1. By how much this changes a bin's result tells how well it can be
    known by numbers that are rounded by so much.
    """
    with ctx.workprec(BITS):
        return _solve(design, image, nfibre, floor)


def _solve(design: scipy.sparse.csc_matrix, image: Image, nfibre: int, floor: float) -> Exact:
    good = np.flatnonzero(image.ivar.ravel() > 0)
    a = design.tocsr()[good]
    w, p = (array.ravel()[good].astype(float) for array in (image.ivar, image.pix))
    diagonal = np.asarray(a.multiply(a).T @ w).ravel()
    diagonal = np.where(has_light(a, w), diagonal, 0)
    seen = np.flatnonzero(diagonal > 0)
    unit = 2.0 ** np.round(-np.log2(diagonal[seen]) / 2)     # powers of two: scaling rounds nothing
    icov, rhs = _normal_equations(a[:, seen].multiply(unit).tocsr(), w, p)
    for k in range(len(seen)):
        icov[k, k] += floor + 2.0**VANISHING
    c = inverse(icov)
    x = c * rhs
    count, nall = design.shape[1], design.shape[1] // nfibre
    out = {name: np.zeros(count) for name in ("x", "flux", "ivar", "information")}
    out["x"][seen] = to_array(x)[:, 0] * unit
    out["information"][seen] = 1 / (np.diag(to_array(c)) * unit**2)
    resolution = np.zeros((nfibre, nall, nall))
    for i in range(nfibre):
        mine = np.flatnonzero(seen // nall == i)
        if len(mine):
            bins = seen[mine]
            q = root(_scaled(inverse(_cut(c, mine)), 1 / unit[mine]))
            s = q * arb_mat(len(mine), 1, [1] * len(mine))
            qx = q * arb_mat([[x[int(k), 0] * u] for k, u in zip(mine, unit[mine], strict=True)])
            out["ivar"][bins] = to_array(s)[:, 0] ** 2
            out["flux"][bins] = [float(qx[k, 0] / s[k, 0]) for k in range(len(mine))]
            place = bins - i * nall
            resolution[i][np.ix_(place, place)] = [[float(q[k, n] / s[k, 0]) for n in range(len(mine))]
                                                   for k in range(len(mine))]
    known = np.flatnonzero(out["information"][seen] * WEAK >= diagonal[seen])
    grid = {name: array.reshape(nfibre, nall) for name, array in out.items()}
    return Exact(**grid, resolution=resolution, alone=diagonal.reshape(nfibre, nall), cond=_cond(_cut(c, known)))


def _normal_equations(a: scipy.sparse.csr_matrix, w: Array, p: Array) -> tuple[arb_mat, arb_mat]:
    """A^T W A and A^T W p without rounding worth the name (a product of doubles fits), PIXELS at a time."""
    n = a.shape[1]
    total: list[list[Any]] = [[0] * (n + 1) for _ in range(n)]
    touched = np.flatnonzero(np.diff(a.indptr))
    for some in np.split(touched, range(PIXELS, len(touched), PIXELS)):
        part = a[some]
        bins = np.unique(part.indices)
        rows = part[:, bins].toarray()
        scaled = arb_mat(len(some), len(some), 0)
        for k, weight in enumerate(w[some].tolist()):
            scaled[k, k] = weight
        both = arb_mat(rows.T.tolist()) * (scaled * arb_mat(np.c_[rows, p[some]].tolist()))
        columns = [*bins.tolist(), n]
        for k, row in zip(bins.tolist(), both.tolist(), strict=True):
            for m, value in zip(columns, row, strict=True):
                total[k][m] += value
    return arb_mat([row[:n] for row in total]), arb_mat([row[n:] for row in total])


def _cut(matrix: arb_mat, rows: NDArray[np.intp], columns: NDArray[np.intp] | None = None) -> arb_mat:
    columns = rows if columns is None else columns
    table = matrix.tolist()
    return arb_mat(len(rows), len(columns), [table[k][m] for k in rows for m in columns])


def _scaled(matrix: arb_mat, factor: Array) -> arb_mat:
    """diag(factor) M diag(factor)."""
    n = len(factor)
    return arb_mat(n, n, [value * (factor[k] * factor[m]) for k, row in enumerate(matrix.tolist())
                          for m, value in enumerate(row)])


def to_array(matrix: arb_mat) -> Array:
    """Its elements, rounded to double precision."""
    return np.array([[float(value) for value in row] for row in matrix.tolist()]).reshape(matrix.nrows(), -1)


def inverse(matrix: arb_mat) -> arb_mat:
    """The inverse of a positive definite matrix, corrected until its residual is 1e-50."""
    one = arb_mat(matrix.nrows(), matrix.nrows(), 1)
    back = _by_halves(matrix)
    for _ in range(STEPS):
        left = (one - matrix * back).mid()
        if _size(left) < 1e-50:
            return back
        back = (back + back * left).mid()
    raise _not_found("inverse", matrix)


def _by_halves(matrix: arb_mat) -> arb_mat:
    """The inverse by blocks: products are far cheaper than what solves. The condition number enters squared."""
    n = matrix.nrows()
    if n <= LEAF:
        return matrix.solve(arb_mat(n, n, 1), algorithm="approx").mid()
    first, last = np.arange(n // 2), np.arange(n // 2, n)
    upper, between = _by_halves(_cut(matrix, first)), _cut(matrix, first, last)
    gain = (upper * between).mid()
    lower = _by_halves((_cut(matrix, last) - between.transpose() * gain).mid())
    corner = (gain * lower).mid()
    top = (upper + corner * gain.transpose()).mid().tolist()
    side, bottom = (-corner).tolist(), lower.tolist()
    return arb_mat([a + b for a, b in zip(top, side, strict=True)]
                   + [list(b) + c for b, c in zip(zip(*side, strict=True), bottom, strict=True)])


def root(matrix: arb_mat) -> arb_mat:
    """The square root of a positive definite matrix by Newton's iteration in its product form.

    X <- m X (1 + 1/(m^2 M)) / 2, M <- (1 + (m^2 M + 1/(m^2 M)) / 2) / 2 from X = M = S: M goes to 1, X to the root
    (Higham 2008, Functions of Matrices, eq. 6.29). m brings the extremes of M's spectrum to each other's inverse.
    """
    one = arb_mat(matrix.nrows(), matrix.nrows(), 1)
    x = m = matrix
    for _ in range(STEPS):
        back = _by_halves(m)
        far = _size(m - one)
        scale = 2.0 ** round(np.log2(_size(back) / _size(m)) / 4) if far > 0.1 else 1.0
        x = (x * (one + back * scale**-2) * (scale / 2)).mid()
        m = ((one + (m * scale**2 + back * scale**-2) * 0.5) * 0.5).mid()
        if far < 1e-25:
            break
    if _size(x * x - matrix) < 1e-30 * _size(matrix):
        return x
    raise _not_found("root", matrix)


def _not_found(what: str, matrix: arb_mat) -> InternalError:
    return InternalError(f"the {what} of a matrix of {matrix.nrows()} rows was not found in {STEPS} steps of "
                         f"{BITS} bits: please report this with the image")


def _size(matrix: arb_mat) -> float:
    """Norm of the largest row."""
    return float(np.abs(to_array(matrix)).sum(axis=1).max(initial=0.0))


def _cond(c: arb_mat) -> float:
    """Condition number of the inverse of C, scaled to a unit diagonal."""
    if not c.nrows():
        return 1.0
    s = to_array(inverse(c))
    unit = 1 / np.sqrt(np.diag(s))
    value = np.linalg.eigvalsh(s * unit * unit[:, None])
    return float(value[-1] / value[0])
