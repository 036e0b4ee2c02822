"""The wide band: fibres with far-reaching neighbours, for broad PSFs with strong tails.

If the coupling between fibres is a few per cent, eliminating next neighbours one by one is not accurate. Here the
neighbours on both sides are eliminated together, as one band matrix ordered by wavelength. The remainder S_i decays
over several half-bands of icov, and is kept as far as the measured decay requires.
"""
from dataclasses import dataclass

import numpy as np

from gpu_extract.data import Array
from gpu_extract.decorrelate.limits import WideLimits
from gpu_extract.decorrelate.narrow.simd_banded import LANES, SIDES
from gpu_extract.decorrelate.poles import LADDER, Poles
from gpu_extract.decorrelate.weak import definite
from gpu_extract.decorrelate.wide import simd_wide_eliminate, simd_wide_poles
from gpu_extract.decorrelate.wide.neighbours import count_neighbours
from gpu_extract.lapack import blas, lapack

OF_TAIL = 0.08    # of what the band may cut off, sigma that it may move the flux: 4e-9; twice that is the most seen
OF_LIGHT = 3e-12  # and of the S/N, a tenth of what poles leave of bright light
GAMMAS = 10.0 ** -np.arange(2.0, 10.5, 0.5)


@dataclass(frozen=True)
class WideSchur:
    """S_i in a wide band: (nwave, half + 1) rows of the upper triangle, a bound on its largest eigenvalue, its rung.

    squares: 1'S1, 1'Sx and x'Sx with the right-hand sides (nwave, 2), 1 (0 if a bin has no weight) and x
    tail: the elements cut off by the band, in S's own norm; shift: the change of the flux that is allowed, in sigma
    cond: bound / cond lies below the spectrum
    sizes: (half + 1,), the largest element of each diagonal, with the main one scaled to 1
    """

    band: Array
    bound: float
    rung: int
    squares: Array
    tail: float
    shift: float
    cond: float
    sizes: Array


def complement(icov: Array, fibre: int, sides: Array, limits: WideLimits) -> WideSchur | None:
    """S of one fibre, or None if no width holds it or it is not positive definite; sides: see WideSchur.squares.

    As many neighbours are eliminated as matter. S is made in a width that should hold it; if it does not, in the width
    that its decay predicts. It is then kept as narrow as its diagonals allow. The neighbours' contribution is followed
    over the width of the band, then twice as far and so on, until its remainder is less than the band may cut off:
    beside a mask or the edge of the CCD, where neighbours have light in the wings alone, it falls far more slowly than
    S.
    """
    nfibre, _, nwave, width = icov.shape
    hw, neighbours = width // 2, count_neighbours(icov, fibre, np.ascontiguousarray(sides[:, 1]), limits)
    if neighbours == 0 and nfibre > 1:
        return None
    others = np.array([j for j in range(fibre - neighbours, fibre + neighbours + 1) if 0 <= j < nfibre and j != fibre])
    half, widest = (min(max(int(factor * hw), 8), nwave - 1) for factor in limits.widths)
    reach, left = half, np.zeros(nwave)
    while True:
        band = np.zeros((nwave, half + 1))
        band[:, :hw + 1] = icov[fibre, 0, :, hw:hw + half + 1]
        if len(others):
            found = simd_wide_eliminate.eliminate(band, icov, fibre, others, reach)
            if found is None:
                return None
            left = found
        top = np.abs(band).max(axis=0)
        bound = float(2.0 * top.sum() - top[0])       # on the largest eigenvalue
        band[icov[fibre, 0, :, hw] == 0.0, 0] = bound
        if not (band[:, 0] > 0.0).all():      # only a rounding error is left of a bin: S is definite in no width
            return None
        cond = _cond(band, bound)
        sizes = _sizes(band)
        tails, allowed = _tails(band, sizes, limits) if cond < np.inf else (np.full(half + 1, np.inf), limits.tail)
        if np.isfinite(tails[0]) and float((left / band[:, 0]).max()) * tails[0] > allowed:      # tails[0]: 4 / gamma
            reach = 2 * reach
            continue
        if half == nwave - 1 or len(others) == 0:
            tails[-1] = 0.0
        if cond <= limits.cond and tails[-1] <= allowed:
            kept, shift = _kept(band, sides[:, 1], tails, allowed)
            if kept < half or half >= widest or tails[-1] == 0.0:
                break
            allowed *= OF_TAIL      # it is not known what elements beyond this band move
        elif half >= widest or limits.cond < cond < np.inf:
            return None
        half = min(half + hw // 2 + int(_farther(tails, allowed)), widest)
        reach = max(reach, half)
    rung = next(n for n, (_, ratio) in enumerate(LADDER) if ratio >= cond)
    band = np.ascontiguousarray(band[:, :kept + 1])
    return WideSchur(band, bound, rung, _squares(band, sides), float(tails[kept]), shift, cond, sizes[:kept + 1])


def _kept(band: Array, x: Array, tails: Array, allowed: float) -> tuple[int, float]:
    """The smallest half-band whose tail is `allowed`, and which moves the flux by no more than OF_TAIL of that; and so
    much, in sigma.

    Elements E beyond a band B = L L' move Q x by some |L^-1 E x| / 2, in sigma (doc/method-banded.md). Of bright light
    that may be OF_LIGHT of its S/N, a tenth of what poles leave.
    """
    fall, last = np.maximum.accumulate(tails[::-1])[::-1], len(tails) - 1
    half, signal = int(np.argmax(fall <= allowed)), blas.dsbmv(last, 1.0, band.T, x, lower=1) / np.sqrt(band[:, 0])
    most = max(OF_TAIL * allowed, OF_LIGHT * float(np.abs(signal).max()))
    while half < last:
        factor = lapack.dpbtrf(band[:, :half + 1].T, lower=1)[0]
        change = lapack.dtbtrs(factor, _beyond(band, half, x)[:, None], uplo="L")[0]
        moved = 0.5 * float(np.abs(change).max())
        if moved <= most:
            break
        allowed *= most / moved
        half = max(int(np.argmax(fall <= allowed)) if fall[-1] <= allowed else last, half + 1)
    return half, most


def _beyond(band: Array, half: int, x: Array) -> Array:
    """The elements beyond `half` of S, (n, width) rows of its upper triangle, times x."""
    rest = band.copy()
    rest[:, :half + 1] = 0.0
    product: Array = blas.dsbmv(band.shape[1] - 1, 1.0, rest.T, x, lower=1)
    return product


def _farther(tails: Array, allowed: float) -> float:
    """How many more bins until `tails` fall to `allowed`, at the rate of their second half."""
    last = len(tails) - 1
    first, end = tails[last // 2], tails[last]
    if not (np.isfinite(first) and np.isfinite(allowed)) or end >= first:
        return 0.5 * last
    return max(float(np.log(end / allowed) / np.log(first / end) * (last - last // 2)), 0.0)


def _cond(band: Array, bound: float) -> float:
    """bound / cond lies below the spectrum, by no more than a factor of 3; infinite if S is not definite."""
    low, high = 1.0, np.inf
    for _, ratio in LADDER:
        if definite(band, bound / ratio):
            high = ratio
            break
        low = ratio
    while high < np.inf and high > 3.0 * low:
        middle = np.sqrt(low * high)
        low, high = (low, middle) if definite(band, bound / middle) else (middle, high)
    return float(high)


def _sizes(band: Array) -> Array:
    """(half + 1,), the largest element of each diagonal, with the main one scaled to 1."""
    scale = 1.0 / np.sqrt(band[:, 0])
    return (np.abs(band * _along(scale[None], band.shape[1])[0]) * scale[:, None]).max(axis=0)


def _tails(band: Array, sizes: Array, limits: WideLimits) -> tuple[Array, float]:
    """(half + 1,): a bound on what a band up to each diagonal cuts off, in S's own norm; and its limit.

    The bound is four times the last diagonal that is kept, over the smallest eigenvalue, both with S's diagonal scaled
    to 1. Without scaling, the condition number would be that of the weights: beside a mask a thousand times larger.
    """
    gamma = next((g for g in GAMMAS if definite(band, g * band[:, 0])), 0.0)
    if gamma == 0.0:
        return np.full(band.shape[1], np.inf), limits.tail
    return 4.0 * sizes / gamma, max(limits.tail, 600.0 * float(np.finfo(float).eps) / gamma)


def pole_sum(schur: WideSchur, poles: Poles, sides: Array, ndiag: int, limits: WideLimits) -> Array:
    """(nwave, SIDES + ndiag + 1): as narrow.simd_banded.pole_sum with weights c_k t_k.

    The poles are computed eight at a time in the order of their shifts. Elements of S that are small compared with t do
    not affect (S + t I)^-1. Each group of eight therefore has a band as wide as its smallest shift requires if all bins
    had the largest weight. (The median weight is insufficient: beside a mask most bins may be weak, and the others
    would lose elements that matter.) Elements E that are cut off move the flux by sum_k c_k t_k (S + t_k)^-1 E
    (S + t_k)^-1 x. The band is as wide as sum_k c_k / t_k E x needs, which is one to six times that (seen).
    """
    nwave = len(schur.band)
    top = schur.sizes * schur.band[:, 0].max()
    beyond = np.append(2.0 * np.cumsum(top[::-1])[::-1][1:], 0.0)
    count = -(-nwave // simd_wide_poles.EDGE)
    padded = np.zeros((simd_wide_poles.EDGE * count, SIDES))
    padded[:nwave] = sides
    out = np.zeros((nwave, SIDES + ndiag + 1))
    order = np.argsort(poles.shifts)
    works = simd_wide_poles.make_works(count, -(-max(schur.band.shape[1] - 1, ndiag) // simd_wide_poles.EDGE))
    for n in range(0, len(order), LANES):
        shifts = poles.shifts[order[n:n + LANES]]
        weights = poles.weights[order[n:n + LANES]]
        half = int(np.argmax(beyond <= limits.pole * (shifts[0] + schur.bound / LADDER[schur.rung][1])))
        most = schur.shift / float((weights / shifts).sum())
        while half < len(beyond) - 1 and np.abs(_beyond(schur.band, half, sides[:, 1])).max() > most:
            half += 1
        reach = -(-max(half, ndiag) // simd_wide_poles.EDGE)
        blocks = np.empty((count, reach + 1, simd_wide_poles.EDGE**2))
        simd_wide_poles.by_panels(blocks, schur.band[:, :half + 1])
        simd_wide_poles.pole_sum(out, simd_wide_poles.part_of(works, count, reach), blocks, padded, shifts,
                                 weights * shifts)
    return out


def _squares(band: Array, sides: Array) -> Array:
    """1'S1, 1'Sx and x'Sx over the bins that have weight; sides: (nwave, 2), 1 (0 if a bin has none) and x."""
    upper = sides.T @ np.einsum("qa,sqa->qs", band, _along(sides.T, band.shape[1]))
    gram = upper + upper.T - sides.T @ (band[:, :1] * sides)
    return np.array([gram[0, 0], gram[0, 1], gram[1, 1]])


def _along(rows: Array, wide: int) -> Array:
    """(rows, bins, wide), a view: the elements of each row from every bin on, 0 beyond the end."""
    padded = np.zeros((len(rows), rows.shape[1] + wide - 1))
    padded[:, :rows.shape[1]] = rows
    return np.lib.stride_tricks.sliding_window_view(padded, wide, axis=1)
