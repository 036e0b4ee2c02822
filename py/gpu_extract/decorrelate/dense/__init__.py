"""The dense core: classical decorrelation patch by patch, with the exact x.

A patch is a sub-bundle of fibres with neighbours on both sides, and a range of wavelengths with a pad on both sides.
Pads and neighbours come from the measured decay (probe.py). The covariance C of a patch comes from one Cholesky
factorisation in which the neighbours are eliminated first, and its inner part is kept (B&S eq. 10-19).

Q_i = C_ii^(-1/2) comes from the singular values of L_i, where C_ii^-1 = L_i L_i^T = U sigma^2 U^T. In exact arithmetic
the eigenvalues of C_ii would be sufficient. However, where one bin of the patch sees little light (at the rim of a mask
or the edge of the CCD), its variance is 1e8 times that of the others, and rounding, relative to the largest, would
affect all bins: 1e-6 sigma and more. In L_i such bins are small numbers.
"""
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import repeat

import numpy as np
from scipy.linalg import lapack

from gpu_extract.data import Array, Decorrelated, Normal, Status
from gpu_extract.decorrelate.dense import simd_dense
from gpu_extract.decorrelate.dense.pixels import Patch
from gpu_extract.decorrelate.dense.pixels import decorrelate as from_pixels
from gpu_extract.decorrelate.weak import factor_tells
from gpu_extract.plan import SIGNAL, spread, tiles

ENDS = 10.0      # times the tolerance: correlation with the ends of a patch up to which it is long enough
LEFT_BEYOND = 1e-3  # of the tolerance is left to fibres beyond it: masks may increase their coupling tenfold

Pixels = Callable[..., Patch]      # patch_pixels.PatchPixels


@dataclass(frozen=True)
class Cuts:
    """The patches of the dense core: bins `inner` of the grid are kept, in steps of `step`. `pad` bins on both ends and
    `neighbours` fibres on both sides take part, and more of both where masks would leave an error above `tolerance`
    sigma."""

    inner: slice
    step: int
    pad: int
    neighbours: int
    tolerance: float


def decorrelate(normal: Normal, x: Array, fibres: tuple[int, int], *, ndiag: int, cuts: Cuts,
                pixels: Pixels | None = None) -> Decorrelated:
    """Flux, ivar and resolution of fibres lo .. hi - 1 at the kept bins.

    x: (nfibre, nwave), the bundle's deconvolved flux. Bins of weight 0 get flux = ivar = 0 and no resolution.
    pixels: gives the pixels of a patch, see dense.pixels. They are used where icov is too close to singular, with
    status PIXELS; without them the status is FAILED there, and bins are 0. EMPTY: no bin has weight. weak: see weak.py.
    """
    shape = fibres[1] - fibres[0], cuts.inner.stop - cuts.inner.start
    out = Decorrelated(np.zeros(shape), np.zeros(shape), np.zeros((shape[0], 2 * ndiag + 1, shape[1])),
                       np.zeros(shape, dtype=np.int8), np.zeros(shape, dtype=bool))
    for first, last in tiles(shape[1], cuts.step):
        waves = first + cuts.inner.start, last + cuts.inner.start
        _patch(out, normal, x, fibres=fibres, waves=waves, cuts=cuts, pixels=pixels)
    return out


def _patch(out: Decorrelated, normal: Normal, x: Array, *, fibres: tuple[int, int], waves: tuple[int, int],
           cuts: Cuts, pixels: Pixels | None) -> None:
    """Compute the bins `waves` (of the grid) of `fibres` and write them into `out`."""
    around, (start, stop), factor = _grown(normal, fibres, waves, cuts)
    kept = slice(waves[0] - cuts.inner.start, waves[1] - cuts.inner.start)
    last = (fibres[1] - fibres[0]) * (stop - start)
    factors = repeat(None) if factor is None else _factors(factor[-last:, -last:], stop - start)
    for n, (fibre, own) in enumerate(zip(range(*fibres), factors, strict=False)):
        keep, inner = normal.weight[fibre, start:stop] > 0, slice(waves[0] - start, waves[1] - start)
        if not keep[inner].any():
            out.status[n, kept] = Status.EMPTY
            continue
        if own is not None:
            root, scale, product = _rows(own, keep, x[fibre, start:stop])
        elif pixels is not None:
            others = [i for i in (*around, *range(*fibres)) if i != fibre]
            made = from_pixels(partial(pixels, normal, x, (others, fibre), (start, stop)))
            root, scale, product = made.root, made.sums, made.product
            out.weak[n, kept] = made.weak[inner]
        else:
            out.status[n, kept] = Status.FAILED
            continue
        inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale != 0)
        out.flux[n, kept], out.ivar[n, kept] = (product * inverse)[inner], scale[inner] ** 2
        out.status[n, kept] = Status.FAILED if not scale[inner].any() else Status.GOOD if own is not None \
            else Status.PIXELS
        simd_dense.diagonals(out.resolution[n, :, kept], root * inverse[:, None], start, waves)


def _grown(normal: Normal, fibres: tuple[int, int], waves: tuple[int, int],
           cuts: Cuts) -> tuple[list[int], tuple[int, int], Array | None]:
    """The fibres around a patch, its bins, and its factor (`_factor`), as large as its own covariance requires.

    The planned sizes are sufficient for good pixels. Where masks let light reach farther, the correlations of the kept
    bins with the patch's ends and with the surrounding fibres show it, and the patch grows until it is large enough.
    """
    nfibre, nwave = normal.rhs.shape
    pad, reach = cuts.pad, cuts.neighbours
    while True:
        (start, stop), (lo, hi) = spread(*waves, pad, nwave), spread(*fibres, reach, nfibre)
        around = [i for i in range(lo, hi) if not fibres[0] <= i < fibres[1]]
        order = around + list(range(*fibres))
        factor = _factor(normal, order, (start, stop))
        if factor is None:      # no covariance to judge by: take a generous patch
            (start, stop), (lo, hi) = (spread(*waves, 2 * pad, nwave), spread(*fibres, reach + 2, nfibre))
            return [i for i in range(lo, hi) if not fibres[0] <= i < fibres[1]], (start, stop), None
        kept = _kept(factor, fibres[1] - fibres[0], stop - start, (waves[0] - start, waves[1] - start))
        left, right = _at_ends(normal, factor, kept, order, (start, stop))
        longer = max(left if start > 0 else 0.0, right if stop < nwave else 0.0) > ENDS * cuts.tolerance
        wider = _beyond(normal, kept, order, (start, stop)) ** 2 > LEFT_BEYOND * cuts.tolerance / SIGNAL
        if not (longer or wider):
            return around, (start, stop), factor
        pad, reach = 2 * pad if longer else pad, reach + 1 if wider else reach


def _kept(factor: Array, fibres: int, size: int, bins: tuple[int, int]) -> Array:
    """(n, kept) columns of C of the kept bins, `bins` of the last so many fibres, over the roots of C_kk.

    size: bins of a fibre in the patch
    """
    places = np.concatenate([np.arange(*bins) + n * size for n in range(fibres)])
    unit = np.zeros((len(factor), len(places)), order="F")
    unit[places - fibres * size, np.arange(len(places))] = 1.0
    own = slice(len(factor) - fibres * size, None)
    unit[own] = lapack.dtrtrs(np.asfortranarray(factor[own, own]), unit[own], lower=1)[0]
    unit /= np.sqrt((unit**2).sum(axis=0))
    columns: Array = lapack.dtrtrs(factor, unit, lower=1, trans=1, overwrite_b=1)[0]
    return columns


def _at_ends(normal: Normal, factor: Array, kept: Array, order: list[int], waves: tuple[int, int]) -> list[float]:
    """The largest correlation coefficient of kept bins with a patch's first and with its last bins.

    Those are the outermost bins with light of each fibre: no light crosses more than a half-band without any.
    """
    size, most = waves[1] - waves[0], []
    alive = normal.weight[order, waves[0]:waves[1]] > 0.0
    for some in (alive, alive[:, ::-1]):
        there = some[:, :normal.halfband + 1]
        fibres = np.flatnonzero(there.any(axis=1))
        bins = there[fibres].argmax(axis=1)
        places = fibres * size + (bins if some is alive else size - 1 - bins)
        unit = np.zeros((len(factor), len(places)), order="F")
        unit[places, np.arange(len(places))] = 1.0
        root = np.sqrt((lapack.dtrtrs(factor, unit, lower=1, overwrite_b=1)[0] ** 2).sum(axis=0))
        most.append(float((np.abs(kept[places]) / root[:, None]).max(initial=0.0)))
    return most


def _beyond(normal: Normal, kept: Array, order: list[int], waves: tuple[int, int]) -> float:
    """The largest correlation of kept bins with all bins of a fibre that is coupled to the patch but not in it.

    C_ko C_oo^-1 C_ok / C_kk is the relative change of C_kk by eliminating fibre o; here C_oo^-1 = A_oo, to first order.
    """
    (lo, hi), size = (min(order), max(order) + 1), waves[1] - waves[0]
    around = [i for i in range(*spread(lo, hi, normal.icov.shape[1] - 1, len(normal.icov))) if not lo <= i < hi]
    matrix, inside = simd_dense.empty(size * (len(order) + len(around))), size * len(order)
    simd_dense.fill(matrix, normal.icov, np.array(order + around), waves)
    seen = matrix[inside:, :inside] @ kept
    most = 0.0
    for n in range(0, len(seen), size):
        own, info = lapack.dpotrf(matrix[inside + n:inside + n + size, inside + n:inside + n + size], lower=1)
        if info != 0:
            return np.inf
        most = max(most, float((lapack.dtrtrs(own, seen[n:n + size], lower=1)[0] ** 2).sum(axis=0).max()))
    return most**0.5


def _factor(normal: Normal, order: list[int], waves: tuple[int, int]) -> Array | None:
    """L with L L^T = icov of some fibres; None where icov is too close to singular.

    order: the fibres, the requested ones last: L ends with the factor of their C^-1
    """
    if normal.lifted is not None and normal.lifted[order, waves[0]:waves[1]].any():
        return None
    size = waves[1] - waves[0]
    matrix = simd_dense.empty(size * len(order))
    simd_dense.fill(matrix, normal.icov, np.array(order), waves)
    diagonal = matrix.diagonal().copy()
    factor, info = lapack.dpotrf(matrix, lower=1, clean=1, overwrite_a=1)
    return factor if info == 0 and factor_tells(factor, diagonal) else None


def _factors(factor: Array, size: int) -> Iterator[Array]:
    """L_i with C_ii^-1 = L_i L_i^T for every inner fibre: `factor` itself if there is only one."""
    if len(factor) == size:
        yield factor
        return
    inverse = lapack.dtrtri(factor, lower=1)[0]
    for first in range(0, len(factor), size):
        columns = inverse[first:, first:first + size]
        yield lapack.dtrtri(lapack.dpotrf(columns.T @ columns, lower=1, clean=1)[0], lower=1)[0].T


def _rows(factor: Array, keep: np.ndarray, x: Array) -> tuple[Array, Array, Array]:
    """Q = (L L^T)^(1/2), its row sums and Q x; bins not kept have neither.

    With L = U sigma V^T, Q = (U V^T) L^T. U V^T is accurate to rounding, and L^T x is of the size of the signal to
    noise, even where x of a bin with little light is huge.
    """
    factor[~keep, ~keep] = factor.diagonal()[keep].max(initial=0.0)      # decoupled; now of the size of the others
    vectors, _, others, info = lapack.dgesdd(factor)
    if info != 0:
        return np.zeros_like(factor), np.zeros(len(factor)), np.zeros(len(factor))
    polar = vectors @ others
    polar[~keep] = 0.0
    sides = factor.T @ np.column_stack([keep, np.where(keep, x, 0.0)])
    sums, product = (polar @ sides).T
    root = polar @ factor.T
    root[:, ~keep] = 0.0
    return root, sums, product
