"""The wide band: fibres with far-reaching neighbours, for broad PSFs with strong tails.

Where the coupling between fibres is a few per cent, eliminating next neighbours one by one does not hold. Here the
neighbours on both sides are eliminated together, as one band matrix ordered by wavelength. The remainder S_i decays
over several half-bands of icov, and is kept as far as the measured decay requires.

The number of neighbours that matter is measured for every fibre on short stretches where its coupling is strongest.
"""
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gpu_extract.data import Array
from gpu_extract.decorrelate.narrow.simd_banded import LANES, SIDES
from gpu_extract.decorrelate.poles import LADDER, Poles
from gpu_extract.decorrelate.weak import TOLD, definite, told_factor
from gpu_extract.decorrelate.wide import simd_wide_eliminate, simd_wide_poles
from gpu_extract.lapack import blas, lapack
from gpu_extract.plan import spread

USUAL_NEIGHBOURS, MANY_NEIGHBOURS, MOST_NEIGHBOURS = 5, 8, 12      # on each side
THIN = 0.05           # a bin has far less information: of other fibres' bins at the same wavelength
LITTLE = 1e-4         # a change of S that may be rounding
GAMMAS = 10.0 ** -np.arange(2.0, 10.5, 0.5)


@dataclass(frozen=True)
class WideLimits:
    """Limits of what the wide band may neglect.

    neighbours: change of S by the neighbours that are not eliminated, relative in S's own norm, or 60 eps times the
        condition number where that is more
    shift: what they move the flux by, in sigma, or the same 60 eps times the condition number
    tail: what the band cuts off, in S's own norm, or 600 eps times the condition number where that is more: the flux
        moves by 0.01 to 0.2 of it (measured). Above S/N 1000 that grows with S/N, as what poles leave does, of which it
        is a tenth
    pole: what a group of poles may cut off the band more, relative to its smallest shift
    Tails, their condition numbers and what poles cut off are those with the diagonal scaled to 1: weak bins count
        alike
    cond: condition number with the diagonal as it is: poles leave the weakest bins 10 eps times its root, 3e-9
    widths: half-bands of S, in half-bands of icov: the first that is made, and the widest
    """

    neighbours: float = 1e-10
    shift: float = 1e-8
    tail: float = 5e-8
    pole: float = 3e-9
    cond: float = 1e12
    widths: tuple[float, float] = (6.0, 14.0)


@dataclass(frozen=True)
class WideSchur:
    """S_i in a wide band: (nwave, half + 1) rows of the upper triangle, a bound on its largest eigenvalue, its rung.

    squares: 1'S1, 1'Sx and x'Sx with the right-hand sides (nwave, 2), 1 (0 where a bin has no weight) and x
    tail: the elements cut off by the band, in S's own norm
    cond: bound / cond lies below the spectrum
    sizes: (half + 1,), the largest element of each diagonal, with the main one scaled to 1
    """

    band: Array
    bound: float
    rung: int
    squares: Array
    tail: float
    cond: float
    sizes: Array


def count_neighbours(icov: Array, fibre: int, x: Array, limits: WideLimits) -> int:
    """How many neighbours on each side matter for a fibre; 0 if it has none, or if that cannot be determined.

    x: (nwave,), its deconvolved flux. Measured where most are likely to be needed: on the stretches of `_places`, until
    one needs all fibres.
    """
    nfibre, _, nwave, width = icov.shape
    if nfibre == 1:
        return 0
    size, most, starts = min(nwave, max(3 * (width // 2) // 2, 32)), 0, set[int]()
    for middle in _places(icov, fibre, size // 2, x):
        start = min(max(middle - size // 2, 0), nwave - size)
        if most == nfibre - 1 or any(abs(start - other) < size // 4 for other in starts):
            continue
        starts.add(start)
        wanted = _count(icov, fibre, x, (start, size), limits) if _told(icov, fibre, (start, size)) else 0
        if wanted == 0:
            return 0
        most = max(most, wanted)
    return most


def _places(icov: Array, fibre: int, length: int, x: Array) -> list[int]:
    """Bins around which neighbours are likely to matter most for a fibre.

    These are the bin where its coupling to the next fibres is largest, relative to their diagonals; the weakest bin of
    these three fibres; the bin of its best signal to noise, x being its deconvolved flux; on each side, the bin where
    its coupling to the next fibre times that fibre's to the second is; and the weakest bin of the fibres within reach,
    in every stretch of so many bins with a bin far weaker than those of other fibres at its wavelength, as beside a
    mask: the influence of farther fibres passes through such bins.
    """
    hw, first = icov.shape[3] // 2, max(fibre - 1, 0)
    diagonal = icov[:, 0, :, hw]
    relative = np.minimum(diagonal / np.maximum(np.median(diagonal, axis=1, keepdims=True), 1e-150), 1e150)
    relative[diagonal == 0.0] = 1e150
    signal = np.abs(blas.dsbmv(hw, 1.0, icov[fibre, 0, :, hw:].T, x, lower=1))
    signal /= np.sqrt(np.where(diagonal[fibre] > 0.0, diagonal[fibre], np.inf))
    places = [int(relative[first:fibre + 2].min(axis=0).argmin()), int(signal.argmax())]
    if icov.shape[1] > 1:
        own = diagonal[max(fibre - 2, 0):fibre + 3]
        between = np.abs(icov[max(fibre - 2, 0):fibre + 2, 1]).max(axis=2)[:len(own) - 1]**2
        scale = own[:-1] * own[1:]
        between = np.divide(between, scale, out=np.zeros_like(between), where=scale > 0)
        at = min(fibre, 2)           # the pair of the fibre and the next one
        places.insert(0, int(between[max(at - 1, 0):at + 1].max(axis=0).argmax()))
        chains = [between[n] * between[n + 1] for n in (at - 2, at) if 0 <= n < len(between) - 1]
        places += [int(chain.argmax()) for chain in chains]
    around = slice(max(fibre - MANY_NEIGHBOURS, 0), fibre + MANY_NEIGHBOURS + 1)
    weakest = (relative[around] / np.maximum(np.median(relative, axis=0), 1e-150)).min(axis=0)
    pieces = [weakest[n:n + length] for n in range(0, len(weakest), length)]
    return places + [n * length + int(piece.argmin()) for n, piece in enumerate(pieces) if piece.min() < THIN]


def _count(icov: Array, fibre: int, x: Array, stretch: tuple[int, int], limits: WideLimits) -> int:
    """The smallest number of neighbours beyond which more of them change S and flux by less than `limits` on a stretch.

    Rounding errors are allowed for. All of the bundle if no number up to MOST_NEIGHBOURS is enough, 0 if icov is not
    definite.
    """
    farthest, seen = max(fibre, len(icov) - 1 - fibre), slice(stretch[0], sum(stretch))
    flux = x[seen][icov[fibre, 0, seen, icov.shape[3] // 2] > 0]
    for most in (min(number, farthest) for number in (USUAL_NEIGHBOURS, MANY_NEIGHBOURS, MOST_NEIGHBOURS)):
        rings = _rings(icov, fibre, stretch, most)
        if rings is None:
            return 0
        if rings[0].size == 0:      # no bin of the fibre has weight there
            return 1
        covariance, allowed = rings[0] @ rings[0].T + rings[1] @ rings[1].T, 0.0
        for n, ring in enumerate(rings[2:], 1):
            low = lapack.dpotrf(covariance, lower=1, clean=1)[0]
            covariance = covariance + ring @ ring.T
            # the next ring also by itself: masks can make farther rings matter where it does not
            for more in (blas.dtrsm(1.0, low, some, lower=1) for some in (ring, np.hstack(rings[n + 1:]))):
                most_of_all = float((more**2).sum())  # largest eigenvalue of more more', or up to len(more) of it
                if most_of_all <= LITTLE * len(more) and allowed == 0.0:
                    allowed = max(limits.neighbours, 60.0 * float(np.finfo(float).eps) * _extent(covariance))
                if not (most_of_all <= allowed
                        or (most_of_all <= allowed * len(more) and np.linalg.eigvalsh(more @ more.T)[-1] <= allowed)):
                    break
                # of what Q x changes by half is the root's: doc/method-banded.md
                moved = 0.5 * np.linalg.norm(more @ (more.T @ blas.dtrsm(1.0, low, flux[:, None], lower=1)))
                if moved > max(limits.shift, allowed):
                    break
            else:
                return n
    return len(icov) - 1


def _told(icov: Array, fibre: int, stretch: tuple[int, int]) -> bool:
    """Whether icov distinguishes the bins of a fibre and its neighbours from one another, on a stretch of bins.

    If it does not distinguish those of neighbours, eliminating them leaves only rounding of S, however S looks.
    """
    fibres = spread(fibre, fibre + 1, USUAL_NEIGHBOURS, len(icov))
    return told_factor(icov, fibres, (stretch[0], sum(stretch)), TOLD) is not None


def _extent(matrix: Array) -> float:
    """The condition number, with the diagonal scaled to 1."""
    scale = 1.0 / np.sqrt(matrix.diagonal())
    spectrum = np.linalg.eigvalsh(matrix * scale * scale[:, None])
    return float(spectrum[-1] / spectrum[0])


def _rings(icov: Array, fibre: int, stretch: tuple[int, int], most: int) -> list[Array] | None:
    """R_n, (bins, ...), with which 0, 1, ... `most` neighbours on each side add R_n R_n' to the fibre's C = S^-1.

    For the bins of a stretch that have weight. With L L' of all fibres, the requested one first and then its neighbours
    outwards, C = X X' for its own rows X of L'^-1, and R_n are the columns of X that belong to those fibres. None if
    icov is not definite.
    """
    around = [[j for j in dict.fromkeys((fibre - n, fibre + n)) if 0 <= j < len(icov)] for n in range(most + 1)]
    rows = simd_wide_eliminate.shares(icov, np.array([j for ring in around for j in ring]), stretch)
    if rows is None:
        return None
    rows = rows[icov[fibre, 0, stretch[0]:sum(stretch), icov.shape[3] // 2] > 0]
    ends = np.cumsum([0, *(len(ring) * stretch[1] for ring in around)])
    return [rows[:, a:b] for a, b in pairwise(ends)]


def complement(icov: Array, fibre: int, sides: Array, limits: WideLimits) -> WideSchur | None:
    """S of one fibre, or None if no width holds it or it is not positive definite; sides: see WideSchur.squares.

    As many neighbours are eliminated as matter. S is made in a width that should hold it; if it does not, in the width
    that its decay predicts. It is then kept as narrow as its diagonals allow. What the neighbours take is followed as
    far as the band is wide, then twice as far and so on, until what is left of it is less than the band may cut off:
    where they see wings alone, beside a mask or the CCD's edge, it falls off far more slowly along them than S does.
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
        if not (band[:, 0] > 0.0).all():      # only rounding is left of a bin: S is definite in no width
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
            break
        if half >= widest or limits.cond < cond < np.inf:
            return None
        half = min(half + hw // 2 + int(_farther(tails, allowed)), widest)
        reach = max(reach, half)
    rung = next(n for n, (_, ratio) in enumerate(LADDER) if ratio >= cond)
    half = int(np.argmax(np.maximum.accumulate(tails[::-1])[::-1] <= allowed))
    band = np.ascontiguousarray(band[:, :half + 1])
    return WideSchur(band, bound, rung, _squares(band, sides), float(tails[half]), cond, sizes[:half + 1])


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
    sizes: Array = (np.abs(band * _along(scale[None], band.shape[1])[0]) * scale[:, None]).max(axis=0)
    return sizes


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
    would lose elements that matter.)
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
        half = int(np.argmax(beyond <= limits.pole * (shifts[0] + schur.bound / LADDER[schur.rung][1])))
        reach = -(-max(half, ndiag) // simd_wide_poles.EDGE)
        blocks = np.empty((count, reach + 1, simd_wide_poles.EDGE**2))
        simd_wide_poles.by_panels(blocks, schur.band[:, :half + 1])
        simd_wide_poles.pole_sum(out, simd_wide_poles.part_of(works, count, reach), blocks, padded, shifts,
                                poles.weights[order[n:n + LANES]] * shifts)
    return out


def _squares(band: Array, sides: Array) -> Array:
    """1'S1, 1'Sx and x'Sx over the bins that have weight; sides: (nwave, 2), 1 (0 where a bin has none) and x."""
    upper = sides.T @ np.einsum("qa,sqa->qs", band, _along(sides.T, band.shape[1]))
    gram = upper + upper.T - sides.T @ (band[:, :1] * sides)
    return np.array([gram[0, 0], gram[0, 1], gram[1, 1]])


def _along(rows: Array, wide: int) -> Array:
    """(rows, bins, wide), a view: the elements of each row from every bin on, 0 beyond the end."""
    padded = np.zeros((len(rows), rows.shape[1] + wide - 1))
    padded[:, :rows.shape[1]] = rows
    view: Array = np.lib.stride_tricks.sliding_window_view(padded, wide, axis=1)
    return view
