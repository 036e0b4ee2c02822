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
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from gpu_extract.data import Array, Decorrelated, IntArray, Normal, Status
from gpu_extract.decorrelate import room_for
from gpu_extract.decorrelate.dense import simd_dense
from gpu_extract.decorrelate.dense.pixels import Patch, Rooted, moved, quickly, root_of, singular
from gpu_extract.decorrelate.dense.pixels import decorrelate as from_pixels
from gpu_extract.decorrelate.weak import UNKNOWN, factor_tells
from gpu_extract.lapack import lapack
from gpu_extract.plan import SIGNAL, spread, tiles

ENDS = 10.0      # times the tolerance: correlation with the ends of a patch up to which it is long enough
TOGETHER = 3     # patches that are next to each other and asked of the pixels at once
LARGE = 10.0     # element of R up to which rounding leaves no more of it than 100 eps cond, as of any result,
ROUNDED = 10 * float(np.finfo(float).eps)     # for it leaves this times cond and the element: six eps were seen
LEFT_OF_R = 1e-8     # of R, whatever cond is
LEFT_BEYOND = 1e-3   # of the tolerance is left to fibres beyond it: masks may couple them ten times as much

Pixels = Callable[..., Patch]      # patch_pixels.PatchPixels
Made = tuple[Rooted, int]          # and the first of its bins


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
    out = room_for(*shape, ndiag)
    for array in (out.flux, out.ivar, out.resolution, out.status, out.weak):
        array[:] = 0
    untold: list[_Part] = []
    for first, last in tiles(shape[1], cuts.step):
        part, factor = _grown(normal, fibres, (first + cuts.inner.start, last + cuts.inner.start), cuts)
        made = [None] * shape[0] if factor is None else _by_icov(factor, normal, x, fibres, part)
        if pixels is not None and (factor is None or any(_cancels(one, part, factor) for one in made)):
            untold.append(part)
            continue
        for fibre, one in zip(range(*fibres), made, strict=True):
            _put(out, fibre - fibres[0], (part.waves, cuts.inner.start), one, status=Status.GOOD,
                 weight=normal.weight[fibre])
    if pixels is None:
        return out
    for part in _joined(untold, TOGETHER * cuts.step):
        for fibre in range(*fibres):
            make = partial(_by_pixels, partial(pixels, normal, x), fibre, part, shape=x.shape, tolerance=cuts.tolerance)
            _put(out, fibre - fibres[0], (part.waves, cuts.inner.start), _tried(make, normal.weight[fibre], part),
                 status=Status.PIXELS, weight=normal.weight[fibre])
    return out


class _Part(NamedTuple):
    """Bins `waves` of the grid that are kept of a patch, and how many fibres and bins on both sides take part."""

    waves: tuple[int, int]
    reach: int
    pad: int

    def bins(self, nwave: int) -> tuple[int, int]:
        """Those that take part."""
        return spread(*self.waves, self.pad, nwave)


def _joined(parts: list[_Part], most: int) -> list[_Part]:
    """Parts that are next to each other as one of up to so many bins: their pads are the most of the work."""
    out: list[_Part] = []
    for part in parts:
        if out and out[-1].waves[1] == part.waves[0] and part.waves[1] - out[-1].waves[0] <= most:
            last = out.pop()
            part = _Part((last.waves[0], part.waves[1]), max(last.reach, part.reach), max(last.pad, part.pad))
        out.append(part)
    return out


def _put(out: Decorrelated, n: int, place: tuple[tuple[int, int], int], of: Made | None, *, status: Status,
         weight: Array) -> None:
    """Write what bins of fibre n of `out` come to: FAILED where that is nothing, EMPTY without any weight.

    place: the bins, and the one with which `out` begins
    """
    waves, kept = place[0], slice(place[0][0] - place[1], place[0][1] - place[1])
    if not (weight[slice(*waves)] > 0).any():
        out.status[n, kept] = Status.EMPTY
        return
    made, start = of or (None, 0)
    inner = slice(waves[0] - start, waves[1] - start)
    if made is None or not made.sums[inner].any():
        out.status[n, kept] = Status.FAILED
        return
    inverse = np.divide(1.0, made.sums, out=np.zeros_like(made.sums), where=made.sums != 0)
    out.flux[n, kept], out.ivar[n, kept] = (made.product * inverse)[inner], made.sums[inner] ** 2
    out.weak[n, kept], out.status[n, kept] = made.weak[inner], status
    simd_dense.diagonals(out.resolution[n, :, kept], made.root * inverse[:, None], start, waves)


def _tried(make: Callable[[], Made], weight: Array, part: _Part) -> Made | None:
    """What `make` makes of a fibre; None where no bin of a part has weight, or singular values do not converge."""
    with suppress(np.linalg.LinAlgError):
        return make() if (weight[slice(*part.waves)] > 0).any() else None
    return None


def _by_icov(factor: Array, normal: Normal, x: Array, fibres: tuple[int, int], part: _Part) -> list[Made | None]:
    """Each fibre's bins of a patch from its factor (`_factor`), see `_tried`."""
    bins = part.bins(x.shape[1])
    made = []
    for fibre, one in zip(range(*fibres), _factors(factor, fibres[1] - fibres[0], bins[1] - bins[0]), strict=True):
        here = fibre, slice(*bins)
        make = partial(_rooted, one, normal.weight[here] > 0, x[here], start=bins[0])
        made.append(_tried(make, normal.weight[fibre], part))
    return made


def _cancels(of: Made | None, part: _Part, factor: Array) -> bool:
    """Whether rounding of icov leaves more than LEFT_OF_R of a row of R, whose elements are far above their sum, 1.

    It leaves a few eps cond of the largest of them, cond that of icov scaled to a unit diagonal. factor: see `_factor`
    """
    if of is None:
        return False
    made, inner = of[0], slice(part.waves[0] - of[1], part.waves[1] - of[1])
    there = made.sums[inner] != 0.0
    most = (np.abs(made.root[inner]).max(axis=1)[there] / np.abs(made.sums[inner][there])).max(initial=0.0)
    if most <= LARGE:
        return False
    inverse, info = lapack.dpocon(factor / np.sqrt((factor**2).sum(axis=1))[:, None], 1.0, uplo="L")
    return bool(info != 0 or ROUNDED * most > LEFT_OF_R * inverse)


def _by_pixels(pixels: Pixels, fibre: int, part: _Part, *, shape: tuple[int, int], tolerance: float) -> Made:
    """A fibre's bins of a part from the pixels, with as many fibres and bins around them as count.

    icov does not say how far that is. So it is asked with fewer, and where a bin that is not weak moves by more than
    `tolerance` sigma, with all fibres of the bundle.
    """
    def ask(reach: int, pad: int) -> tuple[tuple[tuple[list[int], int], tuple[int, int]], Callable[..., Patch]]:
        around = [i for i in range(*spread(fibre, fibre + 1, reach, shape[0])) if i != fibre]
        what = (around, fibre), spread(*part.waves, pad, shape[1])
        return what, partial(pixels, *what)

    def kept(made: Rooted, start: int) -> Rooted:
        inner = slice(part.waves[0] - start, part.waves[1] - start)
        return made._replace(sums=made.sums[inner], product=made.product[inner], weak=made.weak[inner])

    (fewer, nearer), (usual, near), (every, far) = (
        ask(part.reach + 1, part.pad * 3 // 2), ask(part.reach + 2, part.pad * 2), ask(shape[0], part.pad * 4))
    made, start = from_pixels(near), usual[1][0]
    if usual != every:
        one, other = kept(made, start), kept(quickly(nearer), fewer[1][0])
        if (moved(one, other, 0.1 * tolerance, tolerance) & ~one.weak).any():
            return from_pixels(far), every[1][0]
    return made, start


def _grown(normal: Normal, fibres: tuple[int, int], waves: tuple[int, int],
           cuts: Cuts) -> tuple[_Part, Array | None]:
    """A patch as large as its own covariance asks for, and its factor (`_factor`).

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
        if factor is None:      # nothing can be told from it
            return _Part(waves, reach, pad), None
        kept = _kept(factor, fibres[1] - fibres[0], stop - start, (waves[0] - start, waves[1] - start))
        left, right = _at_ends(normal, factor, kept, order, (start, stop))
        longer = max(left if start > 0 else 0.0, right if stop < nwave else 0.0) > ENDS * cuts.tolerance
        wider = _beyond(normal, kept, order, (start, stop)) ** 2 > LEFT_BEYOND * cuts.tolerance / SIGNAL
        if not (longer or wider):
            return _Part(waves, reach, pad), factor
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
    return told_factor(normal.icov, np.array(order), waves)


def told_factor(icov: Array, order: IntArray, waves: tuple[int, int], most: float = UNKNOWN) -> Array | None:
    """The same of icov alone; most: see weak.factor_tells."""
    matrix = simd_dense.empty((waves[1] - waves[0]) * len(order))
    simd_dense.fill(matrix, icov, order, waves)
    diagonal = matrix.diagonal().copy()
    factor, info = lapack.dpotrf(matrix, lower=1, clean=1, overwrite_a=1)
    return factor if info == 0 and factor_tells(factor, diagonal, most) else None


def _factors(factor: Array, count: int, size: int) -> Iterator[Array]:
    """L_i with C_ii^-1 = L_i L_i^T for every one of the last fibres: the end of `factor` itself where there is one."""
    factor = factor[-count * size:, -count * size:]
    if count == 1:
        yield factor
        return
    inverse = lapack.dtrtri(factor, lower=1)[0]
    for first in range(0, len(factor), size):
        columns = inverse[first:, first:first + size]
        yield lapack.dtrtri(lapack.dpotrf(columns.T @ columns, lower=1, clean=1)[0], lower=1)[0].T


def _rooted(factor: Array, keep: np.ndarray, x: Array, *, start: int) -> Made:
    """Q = (L L^T)^(1/2), its row sums and Q x, and `start`; bins not kept have neither.

    With L^T = V sigma U^T, Q x = U V^T (L^T x), and L^T x has the size of signal to noise where x of a bin that sees
    little is huge.
    """
    factor[~keep, ~keep] = factor.diagonal()[keep].max(initial=0.0)      # decoupled; now of the size of the others
    v, sigma, u = singular(factor.T)
    u[:, ~keep] = 0.0
    product = v.T @ (factor.T @ np.where(keep, x, 0.0))
    return Rooted(*root_of(sigma, u, product), np.zeros(len(keep)), np.zeros(len(keep), dtype=bool)), start
