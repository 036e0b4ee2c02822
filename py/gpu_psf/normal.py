"""The normal equations of a Gauss-Newton step: all products of derivatives, for each pair of spots.

A Gauss-Hermite term is a product of a profile along x and one along y, so that its products are made of those of
profiles: sum over x first, then over y. The fluxes are linear and are eliminated (variable projection): with C the
products of spots with spots, X those of spots with derivatives, H those of derivatives, and fluxes that fit best, so
that the gradient by them is 0, a step solves

    (H - X^T C^-1 X) step = g
"""
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.blas import dsyrk

from gpu_extract.data import Array, IntArray
from gpu_psf.data import Frame, Spots
from gpu_psf.pairs import Pairs, beside, moved
from gpu_psf.stamps import IMAGES, Stamps

CHUNK = 128          # pairs at a time: their products stay within a few MB


@dataclass(frozen=True)
class Scene:
    """The linearised problem: spots, their stamps and fluxes, weights and residuals of the pixels (flat).

    shapes: whether the Gauss-Hermite terms are free, or only the traces and widths
    columns: (ncolumn, npixel) light of amounts that are free besides, see Parameters.ground; only where shapes are
    """

    frame: Frame
    spots: Spots
    stamps: Stamps
    flux: Array
    weight: Array
    residual: Array
    shapes: bool = True
    columns: Array | None = None

    @property
    def size(self) -> int:
        """Free parameters."""
        return self.local + (0 if self.columns is None else len(self.columns))

    @property
    def local(self) -> int:
        """Free parameters that move spots."""
        return self.frame.ntrace + (self.frame.nterm if self.shapes else 2) * self.frame.nshape


@dataclass(frozen=True)
class _Products:
    """Products over the pixels of pairs of spots; derivatives are times their spot's flux.

    ii: (p, IMAGES, IMAGES) images of the first with those of the second
    ig, gi: (p, IMAGES, ngh) images of the one (first, second) with the Gauss-Hermite terms of the other
    gg: (p, m, m) of the terms: pairs of profiles along x, then along y, see _two_profiles
    """

    ii: Array
    ig: Array
    gi: Array
    gg: Array


def _products(scene: Scene, a: IntArray, b: IntArray) -> _Products:
    stamps, n = scene.stamps, len(a)
    ny, nx = stamps.open.shape[1:]
    flux = scene.flux
    weight = scene.weight[stamps.place[a]].reshape(n, ny, nx) * stamps.open[a]
    of_a, of_b = (stamps.image[k] * np.where(np.arange(IMAGES) > 0, flux[k, np.newaxis], 1.0)
                  [..., np.newaxis, np.newaxis] for k in (a, b))
    px, py, px_b, py_b = stamps.px[a], stamps.py[a], stamps.px[b], stamps.py[b]
    if a is not b:
        by = _apart(stamps, a, b)
        of_b, px_b, py_b = moved(of_b, by), beside(px_b, by[0]), beside(py_b, by[1])
        weight = weight * moved(stamps.open[b], by)
    weighted = of_a * weight[:, np.newaxis]
    ii = weighted.reshape(n, IMAGES, -1) @ of_b.reshape(n, IMAGES, -1).transpose(0, 2, 1)
    none = np.empty((n, 0, 0))
    if not scene.shapes:
        return _Products(ii, none, none, none)
    ig = _on_terms(weighted, px_b, py_b) * flux[b, np.newaxis, np.newaxis]
    gi = ig if a is b else _on_terms(of_b * weight[:, np.newaxis], px, py) * flux[a, np.newaxis, np.newaxis]
    i, j = _two_profiles(px.shape[1], same=a is b)
    xx, yy = px[:, i] * px_b[:, j], py[:, i] * py_b[:, j]
    gg = xx @ (weight * (flux[a] * flux[b])[:, np.newaxis, np.newaxis]).transpose(0, 2, 1) @ yy.transpose(0, 2, 1)
    return _Products(ii, ig, gi, gg)


def _apart(stamps: Stamps, a: IntArray, b: IntArray) -> tuple[IntArray, IntArray]:
    """Columns and rows by which stamps of the second spots begin after those of the first."""
    x, y = (corner[b] - corner[a] for corner in stamps.corner)
    return x, y


def _two_profiles(count: int, *, same: bool) -> tuple[IntArray, IntArray]:
    """Orders of the profiles of two spots to multiply: all pairs, or each pair once if the spots are the same."""
    if same:
        i, j = np.triu_indices(count)
        return i, j
    i, j = np.indices((count, count)).reshape(2, -1)
    return i, j


def _all_terms(sums: Array, count: int, *, same: bool) -> Array:
    """Sums (m, m, ...) over pairs of profiles as those over pairs of terms (j, i, j', i', ...)."""
    i, j = _two_profiles(count, same=same)
    number = np.empty((count, count), np.int64)
    number[j, i] = number[i, j] = np.arange(len(i))
    if not same:
        number = np.arange(count * count).reshape(count, count)
    # number[i, i'] along x, number[j, j'] along y
    return sums[number[np.newaxis, :, np.newaxis, :], number[:, np.newaxis, :, np.newaxis]]


def _on_terms(images: Array, px: Array, py: Array) -> Array:
    """Sums of images (n, k, ny, nx) times each Gauss-Hermite term: (n, k, ngh)."""
    sums = py[:, np.newaxis] @ images @ px.transpose(0, 2, 1)[:, np.newaxis]
    return sums.reshape(*sums.shape[:2], -1)


def gradient(scene: Scene) -> Array:
    """Half the gradient of the decrease of chi squared with a step: (size,)."""
    pull = scene.weight * scene.residual
    moves, _ = _with_spots(scene, pull)
    return moves if scene.columns is None else np.concatenate([moves, scene.columns @ pull])


def _with_spots(scene: Scene, pixels: Array) -> tuple[Array, Array]:
    """Products of pixels (npixel,) with the derivatives of spots, (local,), and with spots, (nspot,)."""
    spots, stamps, n = scene.spots, scene.stamps, len(scene.spots)
    seen = pixels[stamps.place].reshape(stamps.open.shape)
    images = (stamps.image.reshape(n, IMAGES, -1) @ seen.reshape(n, -1, 1))[..., 0]
    local = images[:, 1:]
    if scene.shapes:
        terms = _on_terms((seen * stamps.open)[:, np.newaxis], stamps.px, stamps.py)[:, 0, 1:]
        local = np.concatenate([local, terms], axis=1)
    local = local * scene.flux[:, np.newaxis]
    moves = np.zeros((2, scene.frame.nfibre, spots.trace.shape[1]))
    for one in np.unique(spots.fibre):
        mine = spots.fibre == one
        moves[:, one] = local[mine, :2].T @ spots.trace[mine]
    return np.concatenate([moves.ravel(), (local[:, 2:].T @ spots.shape).ravel()]), images[:, 0]


def _overlap(scene: Scene, pairs: Pairs) -> Array:
    """Weighted sums over the pixels that the spots of pairs share: (p,)."""
    stamps = scene.stamps
    n, (ny, nx) = len(pairs.first), stamps.open.shape[1:]
    of_a = stamps.image[pairs.first, 0] * scene.weight[stamps.place[pairs.first]].reshape(n, ny, nx)
    of_b = stamps.image[pairs.second, 0]
    if pairs.first is not pairs.second:
        of_b = moved(of_b, _apart(stamps, pairs.first, pairs.second))
    return (of_a * of_b).sum(axis=(1, 2))


def grams(scene: Scene, pairs: Sequence[Pairs], groups: Sequence[IntArray]) -> list[Array]:
    """The matrix C of each group of spots."""
    number, place = np.empty(len(scene.spots), np.int64), np.empty(len(scene.spots), np.int64)
    for n, group in enumerate(groups):
        number[group], place[group] = n, np.arange(len(group))
    first = np.concatenate([p.first for p in pairs])
    second = np.concatenate([p.second for p in pairs])
    values = np.concatenate([_overlap(scene, p) for p in pairs])
    order = np.argsort(number[first], kind="stable")
    cuts = np.searchsorted(number[first][order], np.arange(1, len(groups)))
    return [_gram(len(group), values[mine], place[first[mine]], place[second[mine]])
            for group, mine in zip(groups, np.split(order, cuts), strict=True)]


def _gram(size: int, values: Array, i: IntArray, j: IntArray) -> Array:
    matrix = np.zeros((size, size))
    matrix[i, j] = values
    matrix[j, i] = values
    # a spot without a good pixel has no light; spots that nearly coincide share their light
    own = matrix.diagonal()
    np.fill_diagonal(matrix, np.where(own > 0, own * (1 + 1e-10), 1.0))
    return matrix


def normal_equations(scene: Scene, pairs: Sequence[Pairs]) -> tuple[Array, Array]:
    """H (size, size) and X (nspot, size). Pairs in which no spot has a flux have no effect."""
    matrix = np.zeros((scene.size, scene.size))
    lights = np.zeros((len(scene.spots), scene.size))
    for every in pairs:
        kind = every.cut((scene.flux[every.first] != 0) | (scene.flux[every.second] != 0))
        if not len(kind.first):
            continue
        same = kind.first is kind.second
        half = _half(scene, kind, lights)
        matrix += half if same else half + half.T
    if scene.columns is not None:
        _add_columns(scene, scene.columns, matrix, lights)
    return matrix, lights


def _add_columns(scene: Scene, columns: Array, matrix: Array, lights: Array) -> None:
    """Add the products of columns with each other, with spots and with the derivatives of spots to H and X."""
    weighted, last = columns * scene.weight, scene.local
    matrix[last:, last:] += weighted @ columns.T
    mixed = np.zeros((len(columns), last))
    for k, column in enumerate(weighted):
        mixed[k], lights[:, last + k] = _with_spots(scene, column)
    matrix[last:, :last] += mixed
    matrix[:last, last:] += mixed.T


def _half(scene: Scene, kind: Pairs, lights: Array) -> Array:
    """Products of the parameters of the first spots (rows) with those of the second; lights: X, added to."""
    a, b, n, last = kind.first, kind.second, scene.frame.ntrace, scene.local
    made, whole = _sums(scene, kind)
    # images of the one spot times shapes of the other: widths, then terms
    forth = np.concatenate([made.ii[:, :, 3:], made.ig[:, :, 1:]], axis=2) if scene.shapes else made.ii[:, :, 3:]
    back = made.ii[:, 3:].transpose(0, 2, 1)
    back = np.concatenate([back, made.gi[:, :, 1:]], axis=2) if scene.shapes else back
    matrix = np.zeros((scene.size, scene.size))
    matrix[n:last, n:last] = whole
    _add_traces(scene, kind, made.ii, (forth, back), matrix, lights)
    lights[a, n:last] += _of_shapes(scene, b, forth[:, 0])
    if a is not b:
        lights[b, n:last] += _of_shapes(scene, a, back[:, 0])
    return matrix


def _add_traces(scene: Scene, kind: Pairs, ii: Array, shapes: tuple[Array, Array], matrix: Array,
                lights: Array) -> None:
    """Products of the traces with each other, with the shapes and with spots, fibre by fibre.

    shapes: (p, IMAGES, nterm or 2) images of the first with the shapes of the second, and the other way round
    matrix, lights: of `_half`, set and added to
    """
    spots, n, last = scene.spots, scene.frame.ntrace, scene.local
    count = spots.trace.shape[1]
    trace = scene.frame.nfibre, count
    nshape, fibre = spots.shape.shape[1], spots.fibre[kind.first]
    moves = matrix[:n, :n].reshape(2, *trace, 2, *trace)
    rows, columns = matrix[:n, n:last].reshape(2, *trace, -1, nshape), matrix[n:last, :n].reshape(-1, nshape, 2, *trace)
    light = lights[:, :n].reshape(-1, 2, *trace)
    for one in np.unique(fibre):
        mine, other = np.flatnonzero(fibre == one), one + kind.across
        a, b = kind.first[mine], kind.second[mine]
        of_a, of_b, p = spots.trace[a], spots.trace[b], len(mine)
        both = (of_a[:, :, np.newaxis] * of_b[:, np.newaxis]).reshape(p, -1)
        moves[:, one, :, :, other] = (both.T @ ii[mine, 1:3, 1:3].reshape(p, -1)).reshape(
            count, count, 2, 2).transpose(2, 0, 3, 1)
        forth, back = (((near[:, :, np.newaxis] * spots.shape[far][:, np.newaxis]).reshape(p, -1).T
                        @ each[mine, 1:3].reshape(p, -1)).reshape(count, nshape, 2, -1)
                       for near, far, each in zip((of_a, of_b), (b, a), shapes, strict=True))
        rows[:, one] = forth.transpose(2, 0, 3, 1)
        columns[:, :, :, other] = back.transpose(3, 1, 2, 0)
        light[a, :, other] += ii[mine, 0, 1:3, np.newaxis] * of_b[:, np.newaxis]
        if kind.first is not kind.second:
            light[b, :, one] += ii[mine, 1:3, 0, np.newaxis] * of_a[:, np.newaxis]


def _of_shapes(scene: Scene, some: IntArray, values: Array) -> Array:
    """(p, nterm nshape): values of each term of some spots (p, nterm), times the polynomials of the shapes."""
    return (values[:, :, np.newaxis] * scene.spots.shape[some][:, np.newaxis]).reshape(len(some), -1)


def _sums(scene: Scene, kind: Pairs) -> tuple[_Products, Array]:
    """The products of all pairs of a kind (without gg), and those of shapes with shapes, summed."""
    frame, count, parts = scene.frame, scene.frame.nshape, []
    nterm = frame.nterm if scene.shapes else 2
    whole = np.zeros((nterm, nterm, count, count))
    ngh, c, terms = nterm - 2, frame.degree + 1, np.zeros(())
    for start in range(0, len(kind.first), CHUNK):
        a = kind.first[start:start + CHUNK]
        b = a if kind.first is kind.second else kind.second[start:start + CHUNK]
        made, n = _products(scene, a, b), len(a)
        parts.append((made.ii, made.ig, made.gi))
        both = (scene.spots.shape[a][:, :, np.newaxis] * scene.spots.shape[b][:, np.newaxis]).reshape(n, -1)
        whole[:2, :2] += (made.ii[:, 3:, 3:].reshape(n, -1).T @ both).reshape(2, 2, count, count)
        if scene.shapes:
            whole[:2, 2:] += (made.ig[:, 3:, 1:].reshape(n, -1).T @ both).reshape(2, ngh, count, count)
            whole[2:, :2] += (made.gi[:, 3:, 1:].transpose(0, 2, 1).reshape(n, -1).T @ both).reshape(
                ngh, 2, count, count)
            terms = terms + made.gg.reshape(n, -1).T @ both
    if scene.shapes:
        same = kind.first is kind.second
        pairs = len(_two_profiles(c, same=same)[0])
        all_terms = _all_terms(terms.reshape(pairs, pairs, count, count), c, same=same)
        whole[2:, 2:] = all_terms.reshape(c * c, c * c, count, count)[1:, 1:]
    ii, ig, gi = (np.concatenate(each) for each in zip(*parts, strict=True))
    return _Products(ii, ig, gi, np.empty(0)), whole.transpose(0, 2, 1, 3).reshape(nterm * count, nterm * count)


def reduced(scene: Scene, pairs: Sequence[Pairs], groups: Sequence[IntArray], blocks: Sequence[Array]) -> Array:
    """The matrix of a step, the fluxes eliminated; blocks: C of each group (see grams)."""
    matrix, lights = normal_equations(scene, pairs)
    whitened, row = np.empty_like(lights), 0
    for group, gram in zip(groups, blocks, strict=True):
        part = slice(row, row + len(group))
        whitened[part] = solve_triangular(cholesky(gram, lower=True), lights[group], lower=True)
        row += len(group)
    matrix -= _square(whitened)
    return matrix


def _square(rows: Array) -> Array:
    """rows^T rows."""
    upper = dsyrk(1.0, rows.T)
    return np.triu(upper) + np.triu(upper, 1).T


def fluxes(scene: Scene, groups: Sequence[IntArray], blocks: Sequence[Array], light: Array) -> tuple[Array, Array]:
    """Electrons that fit the light (flat, without continuum) best, and their variances: (nspot,) each; 0 and infinite
    without a good pixel."""
    stamps = scene.stamps
    images = stamps.image[:, 0].reshape(len(stamps.x), -1)
    pull = ((scene.weight * light)[stamps.place] * images).sum(axis=1)
    seen = ((scene.weight[stamps.place] > 0) & (images != 0)).any(axis=1)
    found, variance = np.empty(len(pull)), np.empty(len(pull))
    for group, gram in zip(groups, blocks, strict=True):
        inverse = np.linalg.inv(gram)
        found[group], variance[group] = inverse @ pull[group], np.diag(inverse)
    return found, np.where(seen, variance, np.inf)
