"""The dense core: classical decorrelation patch by patch, with the exact x.

A patch is a sub-bundle of fibres with neighbours on both sides, and a range of wavelengths with a pad on both sides.
Pads and neighbours come from the measured decay (probe.py). Columns of the patch's covariance C show whether it is
large enough; icov is ordered by bins, then fibres, which makes it a band matrix (weak.Factor).

Q_i = C_ii^(-1/2) comes from the singular values of L_i, where C_ii^-1 = L_i L_i^T = U sigma^2 U^T remains of icov when
all other fibres of the patch are eliminated (B&S eq. 10-19; why not from the eigenvalues of C_ii: doc/method.md).
"""
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import numpy as np

from gpu_extract.data import Array, Decorrelated, Normal, Status
from gpu_extract.decorrelate import room_for
from gpu_extract.decorrelate.dense.patches import Cuts, Part, as_one, factor_of, grown, joined
from gpu_extract.decorrelate.dense.pixels import Patch, Rooted, moved, quickly, root_of, singular
from gpu_extract.decorrelate.dense.pixels import decorrelate as from_pixels
from gpu_extract.decorrelate.weak import Factor
from gpu_extract.decorrelate.wide.simd_wide_eliminate import eliminate
from gpu_extract.lapack import lapack
from gpu_extract.plan import spread, tiles

TOGETHER = 3     # adjacent patches that are computed from the pixels at once
LARGE = 10.0     # element of R up to which rounding leaves an error of at most 100 eps cond, as in any result,
ROUNDED = 10 * float(np.finfo(float).eps)     # because the error is this times cond and the element: six eps were seen
LEFT_OF_R = 1e-8     # allowed error of R, whatever cond is

Pixels = Callable[..., Patch]      # patch_pixels.PatchPixels
Made = tuple[Rooted, int]          # with the first of its bins


def decorrelate(normal: Normal, x: Array, fibres: tuple[int, int], *, ndiag: int, cuts: Cuts,
                pixels: Pixels | None = None) -> Decorrelated:
    """Flux, ivar and resolution of fibres lo .. hi - 1 at the kept bins.

    x: (nfibre, nwave), the bundle's deconvolved flux. Bins of weight 0 get flux = ivar = 0 and no resolution.
    pixels: returns the pixels of a patch, see dense.pixels. They are used where icov is too close to singular, with
    status PIXELS; without them the status is FAILED, and bins are 0. EMPTY: no bin has weight. weak: see weak.py.
    """
    shape = fibres[1] - fibres[0], cuts.inner.stop - cuts.inner.start
    out = room_for(*shape, ndiag)
    for array in (out.flux, out.ivar, out.resolution, out.status, out.weak):
        array[:] = 0

    def put(fibre: int, part: Part, one: Made | None, status: Status) -> None:
        _put(out, fibre - fibres[0], (part.waves, cuts.inner.start), one, status=status, weight=normal.weight[fibre])

    told = dict(grown(normal, fibres, (first + cuts.inner.start, last + cuts.inner.start), cuts)
                for first, last in tiles(shape[1], cuts.step))
    untold: list[Part] = []
    for parts in joined(list(told)):
        for part, made, sure in _by_icov(normal, x, fibres, parts, told):
            if pixels is not None and not sure:
                untold.append(part)
                continue
            for fibre, one in zip(range(*fibres), made, strict=True):
                put(fibre, part, one, Status.GOOD)
    if pixels is None:
        return out
    for part in map(as_one, joined(untold, TOGETHER * cuts.step)):
        for fibre in range(*fibres):
            make = partial(_by_pixels, partial(pixels, normal, x), fibre, part, shape=x.shape, tolerance=cuts.tolerance)
            put(fibre, part, _tried(make, normal.weight[fibre], part), Status.PIXELS)
    return out


def _put(out: Decorrelated, n: int, place: tuple[tuple[int, int], int], of: Made | None, *, status: Status,
         weight: Array) -> None:
    """Write the results of bins of fibre n to `out`: FAILED without a result, EMPTY without any weight.

    place: the bins, and the first bin of `out`
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
    resolution, columns = made.root * inverse[:, None], np.arange(*waves) - start
    rows = columns + np.arange(len(out.resolution[n]))[:, None] - len(out.resolution[n]) // 2
    within = (rows >= 0) & (rows < len(resolution))
    out.resolution[n, :, kept] = np.where(within, resolution[rows * within, columns], 0.0)


def _tried(make: Callable[[], Made], weight: Array, part: Part) -> Made | None:
    """The result of `make` for a fibre; None if no bin of a part has weight, or singular values do not converge."""
    with suppress(np.linalg.LinAlgError):
        return make() if (weight[slice(*part.waves)] > 0).any() else None
    return None


def _by_icov(normal: Normal, x: Array, fibres: tuple[int, int], parts: list[Part],
             told: dict[Part, Factor | None]) -> Iterator[tuple[Part, list[Made | None], bool]]:
    """Adjacent parts at once, or one by one if icov does not suffice for all of them; each fibre's results, see
    `_tried`, and whether icov suffices. told: the factors of parts (`factor_of`)"""
    part, made = as_one(parts), list[Made | None]()
    bins, among = part.bins(x.shape[1]), spread(*fibres, part.reach, len(x))
    factor = told[part] if part in told else factor_of(normal, among, bins)
    for fibre in range(*fibres) if factor is not None else ():
        own, here = _own_factor(normal.icov, fibre, among, bins), (fibre, slice(*bins))
        if own is None:
            break
        make = partial(_rooted, own, normal.weight[here] > 0, x[here], start=bins[0])
        made.append(_tried(make, normal.weight[fibre], part))
    whole = len(made) == fibres[1] - fibres[0]
    sure = whole and factor is not None and not any(_cancels(one, part, factor) for one in made)
    if sure or len(parts) == 1:
        yield part, made if whole else [None] * (fibres[1] - fibres[0]), sure
        return
    for single in parts:
        yield from _by_icov(normal, x, fibres, [single], told)


def _cancels(of: Made | None, part: Part, factor: Factor) -> bool:
    """Whether rounding of icov leaves an error above LEFT_OF_R in a row of R with elements far above their sum, 1.

    The error is a few eps cond times the largest element, with cond of icov scaled to a unit diagonal.
    """
    if of is None:
        return False
    made, inner = of[0], slice(part.waves[0] - of[1], part.waves[1] - of[1])
    there = made.sums[inner] != 0.0
    most = (np.abs(made.root[inner]).max(axis=1)[there] / np.abs(made.sums[inner][there])).max(initial=0.0)
    return bool(most > LARGE and ROUNDED * most * factor.size > LEFT_OF_R)


def _by_pixels(pixels: Pixels, fibre: int, part: Part, *, shape: tuple[int, int], tolerance: float) -> Made:
    """A fibre's bins of a part from the pixels, with as many fibres and bins around them as matter.

    icov does not show how many these are. So the result is compared with one from fewer. If a bin that is not weak
    moves by more than `tolerance` sigma, all fibres of the bundle take part.
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


def _own_factor(icov: Array, fibre: int, among: tuple[int, int], waves: tuple[int, int]) -> Array | None:
    """L_i with C_ii^-1 = L_i L_i^T, (n, n), of fibres lo .. hi - 1 on a range of bins; None if indefinite."""
    icov, own = np.ascontiguousarray(icov[slice(*among), :, slice(*waves)]), fibre - among[0]
    (nfibre, _, n, width) = icov.shape
    rows, wide = np.zeros((n, n + 1)), min(width // 2, n) + 1      # of the upper triangle: see normal.squared
    rows[:, :wide] = icov[own, 0, :, width // 2:width // 2 + wide]
    others = np.array([i for i in range(nfibre) if i != own])
    if len(others) and eliminate(rows, icov, own, others, n) is None:
        return None
    rows[rows[:, 0] == 0.0, 0] = 1.0
    factor, info = lapack.dpotrf(rows.ravel()[:n * n].reshape(n, n).T, lower=1, clean=1, overwrite_a=1)
    return factor if info == 0 else None


def _rooted(factor: Array, keep: np.ndarray, x: Array, *, start: int) -> Made:
    """Q = (L L^T)^(1/2), its row sums and Q x, and `start`; these are 0 for bins not kept.

    With L^T = V sigma U^T, Q x = U V^T (L^T x), and L^T x has the size of signal to noise even if x of a bin with
    little light is huge.
    """
    factor[~keep, ~keep] = factor.diagonal()[keep].max(initial=0.0)      # decoupled; gets the size of the others
    v, sigma, u = singular(factor.T)
    u[:, ~keep] = 0.0
    product = v.T @ (factor.T @ np.where(keep, x, 0.0))
    root, sums, made = root_of(sigma, u, product)
    none = np.zeros(len(keep))
    return Rooted(root, sums, made, none, none, none > 0.0), start
