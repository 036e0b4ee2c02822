"""How many neighbours a fibre needs in the wide band, measured on short stretches where its coupling is strongest."""
from itertools import pairwise

import numpy as np

from gpu_extract.data import Array
from gpu_extract.decorrelate.limits import WideLimits
from gpu_extract.decorrelate.weak import TOLD, told_factor
from gpu_extract.decorrelate.wide import simd_wide_eliminate
from gpu_extract.lapack import blas, lapack
from gpu_extract.plan import spread

USUAL_NEIGHBOURS, MANY_NEIGHBOURS, MOST_NEIGHBOURS = 5, 8, 12      # on each side
THIN = 0.05           # of the information in other fibres' bins at the same wavelength: a bin with less is weak
LITTLE = 1e-4         # a change of S that may be rounding


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
    these three fibres; the bin with its best signal to noise, x being its deconvolved flux; on each side, the bin where
    its coupling to the next fibre times that fibre's to the second is largest; and, in every stretch of `length` bins
    that has a bin far weaker than those of other fibres at its wavelength, as beside a mask, the weakest bin of the
    fibres within reach: the influence of farther fibres passes through such bins.
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

    Rounding errors are allowed for. It is all of the bundle if no number up to MOST_NEIGHBOURS suffices, and 0 if icov
    is not definite.
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
            # the next ring also alone: masks can make farther rings matter if it does not
            for more in (blas.dtrsm(1.0, low, some, lower=1) for some in (ring, np.hstack(rings[n + 1:]))):
                most_of_all = float((more**2).sum())  # largest eigenvalue of more more', or up to len(more) of it
                if most_of_all <= LITTLE * len(more) and allowed == 0.0:
                    allowed = max(limits.neighbours, 60.0 * float(np.finfo(float).eps) * _extent(covariance))
                if not (most_of_all <= allowed
                        or (most_of_all <= allowed * len(more) and np.linalg.eigvalsh(more @ more.T)[-1] <= allowed)):
                    break
                # half of the change of Q x is that of the root: doc/method-banded.md
                moved = 0.5 * np.linalg.norm(more @ (more.T @ blas.dtrsm(1.0, low, flux[:, None], lower=1)))
                if moved > max(limits.shift, allowed):
                    break
            else:
                return n
    return len(icov) - 1


def _told(icov: Array, fibre: int, stretch: tuple[int, int]) -> bool:
    """Whether icov distinguishes the bins of a fibre and its neighbours from one another, on a stretch of bins.

    If it does not distinguish those of neighbours, eliminating them leaves only rounding errors of S, however S looks.
    """
    fibres = spread(fibre, fibre + 1, USUAL_NEIGHBOURS, len(icov))
    return told_factor(icov, fibres, (stretch[0], sum(stretch)), TOLD) is not None


def _extent(matrix: Array) -> float:
    """The condition number, with the diagonal scaled to 1."""
    scale = 1.0 / np.sqrt(matrix.diagonal())
    spectrum = np.linalg.eigvalsh(matrix * scale * scale[:, None])
    return float(spectrum[-1] / spectrum[0])


def _rings(icov: Array, fibre: int, stretch: tuple[int, int], most: int) -> list[Array] | None:
    """R_n, (bins, ...): the n-th neighbours on both sides, n = 0 .. `most`, add R_n R_n' to the fibre's C = S^-1.

    Bins are those of a stretch that have weight. With L L' of all fibres, the requested one first and then its
    neighbours outwards, C = X X' for its own rows X of L'^-1, and R_n are the columns of X that belong to those fibres.
    None if icov is not definite.
    """
    around = [[j for j in dict.fromkeys((fibre - n, fibre + n)) if 0 <= j < len(icov)] for n in range(most + 1)]
    rows = simd_wide_eliminate.shares(icov, np.array([j for ring in around for j in ring]), stretch)
    if rows is None:
        return None
    rows = rows[icov[fibre, 0, stretch[0]:sum(stretch), icov.shape[3] // 2] > 0]
    ends = np.cumsum([0, *(len(ring) * stretch[1] for ring in around)])
    return [rows[:, a:b] for a, b in pairwise(ends)]
