"""The dense core: decorrelation patch by patch, the classical way, with the exact x.

A patch is a sub-bundle of fibres with neighbours on both sides, and a stretch
of wavelengths with a pad on both sides; pads and neighbours come from the
measured decay (probe.py). Its covariance C comes from one Cholesky with the
neighbours eliminated first, and the inner part is kept (B&S eq. 10-19).

Q_i = C_ii^(-1/2) comes from the singular values of L_i, where C_ii^-1 = L_i L_i^T =
U sigma^2 U^T. The eigenvalues of C_ii would do in exact arithmetic, but where one
bin of the patch sees little (the rim of a mask, the edge of the CCD) its variance is
1e8 times that of the others, and rounding, relative to the largest, would be
in all bins: 1e-6 sigma and more. In L_i such bins are small numbers.
"""
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from gpu_extract.backend import cpu_dense
from gpu_extract.cores.weak import weak_in_factor
from gpu_extract.data import Array, Decorrelated, Normal, Status
from gpu_extract.plan import enough_neighbours, spread, tiles

FLOORS = tuple(10.0 ** np.arange(-13.0, -7.0))   # of what a bin's own diagonal has, for directions lost to rounding


@dataclass(frozen=True)
class Cuts:
    """How the dense core cuts: bins `inner` of the grid are kept, in stretches of `step` bins, with `pad` bins on both
    ends and `neighbours` fibres on both sides taking part, more where masks leave more than `tolerance` sigma."""

    inner: slice
    step: int
    pad: int
    neighbours: int
    tolerance: float


def decorrelate(normal: Normal, x: Array, fibres: tuple[int, int], *, ndiag: int, cuts: Cuts) -> Decorrelated:
    """Flux, ivar and resolution of fibres lo .. hi - 1 at the kept bins.

    x: (nfibre, nwave), the bundle's deconvolved flux. Bins of weight 0 get flux = ivar = 0 and no resolution.
    In a patch that is not positive definite, directions that are lost to rounding get a floor: Status.RIDGE. Failing
    that its bins are 0: Status.FAILED. Status.EMPTY: no bin of the patch has weight. weak: see cores.weak.
    """
    shape = fibres[1] - fibres[0], cuts.inner.stop - cuts.inner.start
    out = Decorrelated(np.zeros(shape), np.zeros(shape), np.zeros((shape[0], 2 * ndiag + 1, shape[1])),
                       np.zeros(shape, dtype=np.int8), np.zeros(shape, dtype=bool))
    for first, last in tiles(shape[1], cuts.step):
        waves = first + cuts.inner.start, last + cuts.inner.start
        _patch(out, normal, x, fibres=fibres, waves=waves, cuts=cuts)
    return out


def _patch(out: Decorrelated, normal: Normal, x: Array, *, fibres: tuple[int, int], waves: tuple[int, int],
           cuts: Cuts) -> None:
    """Do the bins `waves` (of the grid) of `fibres` and write them into `out`."""
    nfibre, nwave = x.shape
    start, stop = spread(*waves, cuts.pad, nwave)
    closest = max(_correlation(normal, i, (start, stop)) for i in (fibres[0] - 1, fibres[1] - 1))
    reach = max(cuts.neighbours, enough_neighbours(np.array([closest]), cuts.tolerance))
    around = [i for i in range(*spread(*fibres, reach, nfibre)) if not fibres[0] <= i < fibres[1]]
    factor, floor, status = _factor(normal, (around, list(range(*fibres))), (start, stop))
    kept = slice(waves[0] - cuts.inner.start, waves[1] - cuts.inner.start)
    out.status[:, kept] = status
    if factor is None:
        return
    inner = slice(waves[0] - start, waves[1] - start)
    for n, (fibre, own) in enumerate(zip(range(*fibres), _factors(factor, stop - start), strict=True)):
        keep = normal.weight[fibre, start:stop] > 0
        rows, scale = _rows(own, keep)
        if not scale.any():
            out.status[n, kept] = Status.FAILED if keep.any() else Status.EMPTY
        out.flux[n, kept] = (rows @ x[fibre, start:stop])[inner]
        out.ivar[n, kept] = scale[inner] ** 2
        out.weak[n, kept] = weak_in_factor(own, normal.icov[fibre, 0, start:stop, normal.halfband], floor)[inner]
        cpu_dense.diagonals(out.resolution[n, :, kept], rows, start, waves)


def _correlation(normal: Normal, fibre: int, waves: tuple[int, int]) -> float:
    """Largest correlation coefficient between bins of `fibre` and of the next one, 0 where there is none of either."""
    if fibre < 0 or fibre + 1 >= len(normal.icov) or normal.icov.shape[1] < 2:
        return 0.0
    hw, (start, stop) = normal.halfband, waves
    own = normal.icov[fibre, 0, start:stop, hw]
    other = np.pad(normal.icov[fibre + 1, 0, start:stop, hw], hw)
    product = own[:, None] * np.lib.stride_tricks.sliding_window_view(other, 2 * hw + 1)
    square = np.zeros_like(product)
    np.divide(normal.icov[fibre, 1, start:stop] ** 2, product, out=square, where=product > 0)
    return float(np.sqrt(square.max(initial=0.0)))


def _factor(normal: Normal, fibres: tuple[list[int], list[int]],
            waves: tuple[int, int]) -> tuple[Array | None, float, Status]:
    """L with C^-1 = L L^T for the covariance C of the inner fibres, None where there is none; its floor and status.

    fibres: (around, inner); the Cholesky factor of the whole patch, neighbours first, ends with that of C^-1.
    floor: what directions that are lost to rounding were given, in units of the diagonals; 0 where there are none
    """
    around, inner = fibres
    n, first = (waves[1] - waves[0]) * len(around + inner), (waves[1] - waves[0]) * len(around)
    matrix = cpu_dense.empty(n)
    cpu_dense.fill(matrix, normal.icov, np.array(around + inner), waves)
    diagonal = matrix.diagonal().copy()
    factor, info = lapack.dpotrf(matrix, lower=1, clean=1)
    if info == 0:
        return factor[first:, first:], normal.floor, Status.GOOD
    scale = 1.0 / np.sqrt(diagonal)
    _, order, rank, _ = lapack.dpstrf(matrix * scale * scale[:, None], tol=FLOORS[0], lower=1)
    lost = order[rank:] - 1        # bins of which, the others known, rounding leaves nothing
    for floor in FLOORS:
        matrix[lost, lost] = diagonal[lost] * (1.0 + floor)
        factor, info = lapack.dpotrf(matrix, lower=1, clean=1)
        if info == 0:
            return factor[first:, first:], floor, Status.RIDGE
    return None, 0.0, Status.FAILED


def _factors(factor: Array, size: int) -> Iterator[Array]:
    """L_i with C_ii^-1 = L_i L_i^T for every inner fibre: `factor` itself where there is but one."""
    if len(factor) == size:
        yield factor
        return
    inverse = lapack.dtrtri(factor, lower=1)[0]
    for first in range(0, len(factor), size):
        columns = inverse[first:, first:first + size]
        yield lapack.dtrtri(lapack.dpotrf(columns.T @ columns, lower=1, clean=1)[0], lower=1)[0].T


def _rows(factor: Array, keep: np.ndarray) -> tuple[Array, Array]:
    """R = diag(1/s) Q and s, the row sums of Q = (L L^T)^(1/2) = U sigma U^T; bins not kept have neither."""
    factor[~keep, ~keep] = factor.diagonal()[keep].max(initial=0.0)      # decoupled; now of the size of the others
    vectors, values, _, info = lapack.dgesdd(factor)
    if info != 0:
        return np.zeros_like(factor), np.zeros(len(factor))
    q = (vectors * values) @ vectors.T
    q[~keep] = 0.0
    q[:, ~keep] = 0.0
    scale = q.sum(axis=1)
    return np.divide(q, scale[:, None], out=np.zeros_like(q), where=scale[:, None] != 0), scale
