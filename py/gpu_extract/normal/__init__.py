"""The normal equations of a bundle in banded form (B&S eq. 4): spots, pixels -> icov, rhs, weight."""
import math
from dataclasses import dataclass

import numpy as np

from gpu_extract.data import LANE, Array, Blocks, Image, IntArray, Normal, Recipe, read_only
from gpu_extract.kernels.arena import Arena
from gpu_extract.normal import simd_bins, simd_normal
from gpu_extract.spots import simd_cut

VECTOR = 8           # float64 of the longest vector
LEAST = 2            # smallest half-band
LEAST_LIGHT = 1e-10  # share of a bin's light on good pixels, weighted by their ivar, below which it is given up
FAINT_LIGHT = 2e-6   # share below which a bin is kept but flagged: rounding of its spot may change its ivar by 1e-8


@dataclass(frozen=True)
class Cut:
    """The pixels that a bundle's spots touch, including those off the CCD, which are masked.

    root, light: (rows, columns) float64, sqrt(ivar) and sqrt(ivar) pix; 0 where ivar is 0
    y0, x0: CCD pixel of [0, 0]
    inside: (first row, last + 1, first column, last + 1) of the part of the image in it
    seen: of that part the largest ivar, the largest ivar pix^2, and whether a number is illegal (above 0)
    """

    root: Array
    light: Array
    y0: int
    x0: int
    inside: tuple[int, int, int, int] = (0, 0, 0, 0)
    seen: tuple[float, float, float] = (0.0, 0.0, 0.0)


def make_cut(image: Image, y0: IntArray, x0: IntArray, stamp: tuple[int, int], arena: Arena | None = None) -> Cut:
    """Cut the pixels touched by spots at (y0, x0) of shape `stamp` (ny, nx) out of the image.

    Pixels with ivar 0 and those off the CCD become 0, whatever their values. At least LANE more columns are added on
    the right, because kernels read a spot's columns by fours and an image's by eights. arena: holds the pixels.
    """
    top, left, rows, columns = cut_window(y0, x0, stamp, image.shape)
    root, light = (arena or Arena()).take(2, rows, cut_width(columns))
    inside = max(top, 0), min(top + rows, image.shape[0]), max(left, 0), min(left + columns, image.shape[1])
    pixels = read_only(image.ivar), read_only(image.pix)
    seen = simd_cut.whiten_pixels(root, light, *pixels, inside, (inside[0] - top, inside[2] - left))
    return Cut(root, light, top, left, inside, seen)


def cut_window(y0: IntArray, x0: IntArray, stamp: tuple[int, int], ccd: tuple[int, int]) -> tuple[int, int, int, int]:
    """The pixels touched by spots at (y0, x0), including those off the CCD: first row and column, rows, columns."""
    (top, bottom), (left, right) = (_touched(low, size, n) for low, size, n in zip((y0, x0), stamp, ccd, strict=True))
    return top, left, bottom - top, right - left


def cut_width(columns: int) -> int:
    """Columns of a cut-out, given how many the spots touch."""
    return columns + LANE + -(columns + LANE) % VECTOR


def _touched(first: IntArray, size: int, n: int) -> tuple[int, int]:
    """Range of pixels of spots of this length from `first` on; a spot entirely off the CCD is moved just beside it."""
    low, high = (min(max(int(pixel), -size), n) for pixel in (first.min(), first.max()))
    return low, high + size


def half_bands(y0: IntArray, x0: IntArray, stamp: tuple[int, int], shape: tuple[int, int]) -> tuple[int, int, int]:
    """(fibres, bins) over which spots overlap, and bins of one fibre, from first pixels (nfibre, nwave) alone.

    stamp: (ny, nx) of a spot; shape: (ny, nx) of the CCD, spots off it do not count.
    """
    # copies of array columns: contiguous ones are read three times as fast
    return simd_cut.half_bands(np.ascontiguousarray(y0), np.ascontiguousarray(x0), stamp, shape)


@dataclass(frozen=True)
class Sums:
    """Unregularised normal equations, filled tile by tile; layout and `own` as in data.Normal."""

    icov: Array
    rhs: Array
    weight: Array
    own: int


def empty_sums(nfibre: int, nwave: int, bands: tuple[int, int, int], arena: Arena | None = None) -> Sums:
    """Uninitialised arrays for sums, filled tile by tile; bands: from half_bands.

    Half-bands are at least 2, with zeros where spots do not overlap: kernels cannot handle rows shorter than a vector.
    """
    arena = arena or Arena()
    rhs, weight = arena.take(2, nfibre, nwave)
    return Sums(arena.take(nfibre, bands[0] + 1, nwave, 2 * max(bands[1], LEAST) + 1), rhs, weight,
                max(bands[2], LEAST))


def place_blocks(recipe: Recipe, cut: Cut, arena: Arena | None = None, *, keep: bool = True) -> Blocks:
    """The positions of a recipe's blocks on a cut-out, and memory for what is kept of them; without `keep`, no stamps.

    A spot entirely off the CCD is moved to pixels just beside it, which do not count.
    """
    stamp = recipe.ingredients.shape[:2]
    last = cut.y0 + cut.root.shape[0] - stamp[0], cut.x0 + cut.root.shape[1] - LANE - stamp[1]
    offsets, corners = simd_cut.frames(recipe.y0, recipe.x0, (cut.y0, last[0]), (cut.x0, last[1]), stamp)
    order, begins, rows = simd_cut.in_order(corners)
    columns = int(corners[3].max(initial=0))
    shape = rows if keep else 0, -(-columns // 2) * 2, LANE
    stamps = (arena or Arena()).take(math.prod(shape) // 2).view(np.float32).reshape(shape)
    return Blocks(stamps, begins, order, np.zeros((*begins.shape, LANE)), corners, offsets)


def add_tile(sums: Sums, recipe: Recipe, blocks: Blocks, cut: Cut, tile: tuple[int, int, int]) -> None:
    """Fill bins first .. last - 1 of `sums` in place, and the blocks that hold these and the overlapping bins.

    recipe: of bins origin, origin + 1, ..., which reach one half-band beyond the tile where bins exist
    tile: (first, last, origin), origin a multiple of LANE. The bits of an element do not depend on its tile.
    """
    simd_normal.normal_tile((sums.icov, sums.rhs, sums.weight), recipe.ingredients,
                           (blocks.offsets, blocks.corners, blocks.begins, blocks.stamps, blocks.scale),
                           (cut.root, cut.light), tile)


def give_up(sums: Sums, ridge: float, brightest: float = math.inf) -> Normal:
    """Remove, in place, the bins without light on good pixels, and those with only their faintest rim on any.

    icov_jj / weight_j = sum a^2 w / sum a w is the bin's light on good pixels, weighted by their ivar; a whole spot has
    about 0.05. Below 1e-10 a bin is treated like one without any good pixel (doc/method.md, "Weak bins"). The other
    bins are unchanged, except that ridge^2 is added to their diagonal.

    brightest: an upper limit of sum w over any spot's pixels. Because weight^2 <= icov_jj sum w, a bin whose weight is
    above FAINT_LIGHT times it is neither faint nor given up, and its icov, which is far from the next, is not read.
    """
    given_up, count, dim = np.zeros(sums.weight.shape, dtype=bool), 0, 0
    enough = 2.0 * FAINT_LIGHT * brightest if ridge == 0.0 else math.inf      # twice, for rounding
    for i in np.flatnonzero(~(sums.weight.min(axis=1) > enough)).tolist():
        one = slice(i, i + 1)
        found = simd_bins.judge_weights(given_up[one], sums.icov[one], sums.weight[one], float(ridge)**2,
                                        (LEAST_LIGHT, FAINT_LIGHT))
        count, dim = count + found[0], dim + found[1]
    if count:
        simd_bins.take_out(sums.icov, sums.rhs, sums.weight, given_up)
    return Normal(sums.icov, sums.rhs, sums.weight, given_up, sums.own, may_be_faint=dim > count)


def faint(normal: Normal, bins: slice) -> np.ndarray:
    """(nfibre, nwave) bool: whether `bins` have hardly more light than those that are given up."""
    weight = normal.weight[:, bins]
    if not normal.may_be_faint:
        return np.zeros(weight.shape, dtype=bool)
    return (weight > 0.0) & (normal.icov[:, 0, bins, normal.halfband] < FAINT_LIGHT * weight)


def lower_band(icov: Array, fibres: tuple[int, int], waves: tuple[int, int]) -> Array:
    """icov of fibres lo .. hi - 1 on a range of bins, ordered by bins, then fibres: (half + 1, n), LAPACK's lower band.

    Bins of weight 0 (zero diagonal) get 1 on the diagonal.
    """
    part = icov[slice(*fibres), :fibres[1] - fibres[0], slice(*waves)]
    (nfibre, nd, nwave), hw = part.shape[:3], icov.shape[3] // 2
    rows = np.zeros((nwave, nfibre, min(hw, nwave - 1) * nfibre + nd))
    for d in range(nd):
        for k in range(max(-hw, 1 - nwave) if d else 0, min(hw, nwave - 1) + 1):
            values = part[:nfibre - d, d, max(-k, 0):nwave - max(k, 0), hw + k].T
            column = rows[:nwave - k, :nfibre - d] if k >= 0 else rows[:nwave + k, d:]
            column[..., abs(k * nfibre + d)] = values
    rows[..., 0][rows[..., 0] == 0.0] = 1.0
    return rows.reshape(nwave * nfibre, -1).T


def squared(bands: Array) -> Array:
    """The square matrix of a block's bands: element (j, j + k) of bands[j, hw + k], bands (n, 2 hw + 1)."""
    n, width = bands.shape
    rows = np.zeros((n, n + width))
    rows[:, :width] = bands                       # in rows of n + width - 1 they are around the diagonal
    return rows.ravel()[:n * (n + width - 1)].reshape(n, -1)[:, width // 2:width // 2 + n]
