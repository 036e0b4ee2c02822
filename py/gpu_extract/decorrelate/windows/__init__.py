"""Windows: ranges of bins beside the edge of the CCD and beside masks in which S is made without approximation.

Around a bin whose spot is almost entirely off the CCD, or almost entirely masked, second order in the coupling is
insufficient, and S decays over forty bins instead of twenty (doc/method-banded.md). The rest of the fibre has a narrow
band. Therefore a stretch of all fibres around such bins is solved densely. One forward and one backward elimination
from fibre to fibre give every fibre's complement,

    F_k = A_kk - A_k,k-1 F_k-1^-1 A_k-1,k,   B_k = A_kk - A_k,k+1 B_k+1^-1 A_k+1,k,   S_k = F_k + B_k - A_kk,

with k a group of as many fibres as are coupled beyond the next, so that the matrix is block tridiagonal.
"""
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpu_extract.data import Array, IntArray
from gpu_extract.decorrelate.narrow.coupling import Couplings
from gpu_extract.decorrelate.weak import whole_tells
from gpu_extract.decorrelate.windows import simd_stretch, simd_window_fit
from gpu_extract.kernels.arena import borrowed
from gpu_extract.lapack import lapack

STANDS_OUT = 4.0    # times the median along the fibre: only a stronger coupling makes a window
ENDS = 2            # half-bands of icov from the first and the last bin with weight: there, where the CCD may end,
WEAK = 0.05         # bins with less than this share of the fibre's median information
OF_WEAK = 0.25      # have windows from this share of the limits on: correlations have a larger effect, see AMPLIFIED
MARGIN = 4          # half-bands of icov from such a bin to the end of its window
PAD = 3             # additional half-bands solved with it,
SHORTEST_PAD = 30  # or, if that is more, one half-band and this many bins: the widest of the narrow bands
LONGEST = 160       # bins of one fibre's window
LONGEST_STRETCH = 320  # bins of all fibres' windows together
MOST_STRETCHES = 6  # stretches in a bundle
DISTANT = 2e-10     # correlation of fibres beyond the next that is neglected: S changes by 0.6 to 3 times that
FAINT = 2e-11       # elements of scaled S beyond the band that a window may drop: other bins drop as much
SAME = 1e-15        # allowed difference of a band element outside the window: rounding
REACH = 8           # most fibres that take part on each side: each adds a factor theta of the coupling,
AMPLIFIED = 64.0    # at most (64 c)^2, c the largest correlation: (1 to 7 c)^2 if S is well conditioned, up to
                    # (44 c)^2 at the edge of the CCD and beside masks (measured, on r0 and on simulated frames)
NOTHING = 1e-16     # change of S, in its own norm, by fibres that take no part: less than rounding


@dataclass(frozen=True)
class Window:
    """Bins first .. last - 1 of a fibre; exact: (m, m), S of bins start, start + 1, ... around them.

    fibres: lo .. hi - 1, the fibres that took part; diagonal: (m,) of icov
    Bins without weight are decoupled, with 1 on the diagonal.
    """

    first: int
    last: int
    start: int
    exact: Array
    fibres: tuple[int, int]
    diagonal: Array

    @cached_property
    def tells(self) -> bool:
        """Whether S in the window distinguishes its bins (decorrelate.weak)."""
        return whole_tells(self.exact, self.diagonal)

    @cached_property
    def kept(self) -> float:
        """The least share of icov's diagonal that S keeps in a bin."""
        lit = self.diagonal > 0.0
        return float((self.exact.diagonal()[lit] / self.diagonal[lit]).min(initial=np.inf))


@dataclass(frozen=True)
class Windowed:
    """The changes that windows make to a fibre's band.

    blocks: (first bin, S within: (n, n)), bins without weight decoupled, with the bound on the diagonal
    bound: on the largest eigenvalue; squares: 1'E1, 1'Ex and x'Ex of the elements of windows beyond the band
    inner, crossing, seam: see windows.simd_window_fit.put
    """

    blocks: tuple[tuple[int, Array], ...]
    bound: float
    squares: Array
    inner: float
    crossing: float
    seam: float


def put(windows: Sequence[Window], bands: tuple[Array, Array, Array], x: Array, roots: Array, *, bound: float,
        hw: int) -> Windowed:
    """Put a fibre's windows into its band.

    bands: (band, taken, rest) as in windows.simd_window_fit.put, changed in place; x, roots: as there
    bound: on the largest eigenvalue so far; hw: icov's half-band
    """
    if not windows:
        return Windowed((), bound, np.zeros(3), 0.0, 0.0, 0.0)
    ranges = [simd_window_fit.trimmed(bands[0], w.exact, roots, (w.first, w.last, w.start, hw), (FAINT, SAME))
              for w in windows]
    found = [simd_window_fit.put(*bands, w.exact, x, roots, (*pair, w.start, hw))
             for w, pair in zip(windows, ranges, strict=True)]
    measures = np.array(found)
    bound += float(measures[:, 3].max())
    bands[0][np.flatnonzero(roots == 0.0), 0] = bound
    blocks = []
    for window, (first, last) in zip(windows, ranges, strict=True):
        inside = slice(first - window.start, last - window.start)
        block, dark = window.exact[inside, inside], roots[first:last] == 0.0
        if dark.any():
            block = block.copy()
            block[dark, dark] = bound
        blocks.append((first, block))
    inner, crossing, seam = measures[:, :3].max(axis=0).tolist()
    return Windowed(tuple(blocks), bound, measures[:, 4:].sum(axis=0), inner, crossing, seam)


def find(couplings: Couplings, coupled: float) -> dict[int, list[Window]]:
    """The windows of a bundle, by fibre; a fibre whose windows would be too long has none.

    coupled: correlation of the bins of two fibres above which they need a window

    Windows depend on the normal equations alone.
    """
    nfibre, nd, nwave, width = couplings.icov.shape
    hw, diagonal = width // 2, couplings.icov[:, 0, :, width // 2]
    if nd < 2 or nfibre < 2 or not np.isfinite(coupled):
        return {}
    correlations = couplings.correlations(1)
    strong = np.zeros((nfibre + 2, nwave), dtype=bool)
    for i in np.nonzero(correlations.max(axis=1) > OF_WEAK * coupled)[0]:
        limit = _limit(correlations[i], coupled)
        stands_out = correlations[i] > limit
        doubtful = np.nonzero((correlations[i] > OF_WEAK * limit) & ~stands_out)[0]
        if len(doubtful):
            stands_out[doubtful] = _weak_ends(diagonal[i], doubtful, hw) | _weak_ends(diagonal[i + 1], doubtful, hw)
        strong[i:i + 4] |= stands_out    # for both fibres and the next ones, to which the two contribute as well
    strong = strong[1:-1]
    wanted: dict[int, list[tuple[int, int]]] = {}
    for fibre in np.nonzero(strong.any(axis=1))[0].tolist():
        rows = np.nonzero(strong[fibre])[0].tolist()
        pieces = _merged([(max(j - MARGIN * hw, 0), min(j + 1 + MARGIN * hw, nwave)) for j in rows], hw)
        pieces = [_trimmed(diagonal[fibre], *piece) for piece in pieces]
        wanted[fibre] = [piece for piece in pieces if piece[0] < piece[1]]
    wanted = {i: pieces for i, pieces in wanted.items() if all(b - a <= LONGEST for a, b in pieces)}
    return _solved(couplings, wanted)


def _weak_ends(diagonal: Array, bins: IntArray, hw: int) -> np.ndarray:
    """(n,) bool: whether bins of a fibre are weak and near its first or last bin with weight, where the CCD may end."""
    alive = diagonal > 0.0
    first, last = alive.argmax(), len(alive) - 1 - alive[::-1].argmax()
    ends = (bins < first + ENDS * hw) | (bins > last - ENDS * hw)
    if not ends.any():       # the median takes longer than everything else
        return ends
    return ends & (diagonal[bins] < WEAK * np.median(diagonal))


def _limit(correlations: Array, coupled: float) -> float:
    """The correlation above which a bin needs a window; the median of most fibres is far below any that matters."""
    if 2 * np.count_nonzero(correlations <= coupled / STANDS_OUT) > len(correlations):
        return coupled
    return max(coupled, STANDS_OUT * float(np.median(correlations)))


def _merged(pieces: list[tuple[int, int]], gap: int = 0) -> list[tuple[int, int]]:
    """Ranges, with those that are no more than `gap` apart merged."""
    out: list[tuple[int, int]] = []
    for first, last in sorted(pieces):
        if out and first <= out[-1][1] + gap:
            out[-1] = out[-1][0], max(last, out[-1][1])
        else:
            out.append((first, last))
    return out


def _trimmed(diagonal: Array, first: int, last: int) -> tuple[int, int]:
    """A range without bins of weight 0 at its ends."""
    alive = np.nonzero(diagonal[first:last] > 0)[0]
    return (first + int(alive[0]), first + int(alive[-1]) + 1) if len(alive) else (first, first)


def _solved(couplings: Couplings, wanted: dict[int, list[tuple[int, int]]]) -> dict[int, list[Window]]:
    """The windows of the fibres with the given ranges, stretch by stretch."""
    nfibre, _, nwave, width = couplings.icov.shape
    pad = max(PAD * (width // 2), width // 2 + SHORTEST_PAD)
    stretches = _merged([piece for pieces in wanted.values() for piece in pieces])
    windows: dict[int, list[Window]] = {i: [] for i in wanted}
    for n, (first, last) in enumerate(stretches):
        own = {i: [p for p in pieces if first <= p[0] < last] for i, pieces in wanted.items()}
        own = {i: pieces for i, pieces in own.items() if pieces and i in windows}
        start, stop = max(first - pad, 0), min(last + pad, nwave)
        exact, around = None, (0, 0)
        if own and n < MOST_STRETCHES and last - first <= LONGEST_STRETCH:
            around = max(min(own) - REACH, 0), min(max(own) + REACH + 1, nfibre)
            distances = _reach(couplings, around, slice(start, stop)) + 1
            if distances == 2:
                around = _around(couplings.correlations(1)[:, start:stop], min(own), max(own))
            part = np.ascontiguousarray(couplings.icov[around[0]:around[1], :distances, start:stop])
            exact = complements(part, (min(own) - around[0], max(own) + 1 - around[0]))
        for i, pieces in own.items():
            if exact is None:
                del windows[i]
            else:
                found = exact[i - min(own)]
                diagonal = couplings.icov[i, 0, start:stop, width // 2]
                windows[i] += [Window(*piece, start, found, around, diagonal) for piece in pieces]
    return windows


def _around(correlations: Array, low: int, high: int) -> tuple[int, int]:
    """The fibres lo .. hi - 1 that take part in the complements of low .. high.

    correlations: of each fibre's bins with the next one's. The contribution to S of all fibres from one on is the
    product of all couplings on the way to it.
    """
    ends = []
    for fibre, step in ((low, -1), (high, 1)):
        left, end = 1.0, fibre
        while abs(end - fibre) < REACH and 0 <= end + step <= len(correlations):
            left *= min((AMPLIFIED * correlations[min(end, end + step)].max())**2, 1.0)
            if left <= NOTHING:
                break
            end += step
        ends.append(end)
    return ends[0], ends[1] + 1


def _reach(couplings: Couplings, fibres: tuple[int, int], bins: slice) -> int:
    """The farthest of fibres lo .. hi - 1 whose coupling is not faint on some bins."""
    for d in range(couplings.icov.shape[1] - 1, 1, -1):
        if couplings.correlations(d)[fibres[0]:max(fibres[1] - d, 0), bins].max(initial=0.0) > DISTANT:
            return d
    return 1


def complements(icov: Array, wanted: tuple[int, int] | None = None) -> list[Array] | None:
    """S of fibres lo .. hi - 1 (of all), (nwave, nwave) each, with all others eliminated; None if icov is not
    definite.

    Bins of weight 0 are decoupled, with 1 on the diagonal.
    """
    nfibre, nd, nwave = icov.shape[:3]
    lo, hi = wanted or (0, nfibre)
    joint = max(nd - 1, 1)
    first, last = lo // joint, (hi - 1) // joint + 1
    found = np.empty((last - first, (joint * nwave)**2))
    with borrowed() as arena:
        room = (joint * simd_stretch.whole_tiles(nwave))**2
        if not simd_stretch.complements(found, arena.take(len(found), room), arena.take(3, room), icov,
                                       (joint, first, last)):
            return None
    out: list[Array] = []
    for g, joined in enumerate(found, first):
        size = min(joint, nfibre - g * joint) * nwave
        singles = _singles(joined[:size**2].reshape(size, size), nwave)
        if singles is None:
            return None
        out += singles
    return out[lo - first * joint:hi - first * joint]


def _singles(joint: Array, size: int) -> list[Array] | None:
    """The complement of each fibre, from their joint complement."""
    count = len(joint) // size
    if count == 1:
        return [joint]
    out = []
    for n in range(count):
        order = np.r_[0:n * size, (n + 1) * size:count * size, n * size:(n + 1) * size]
        low, info = lapack.dpotrf(joint[np.ix_(order, order)], lower=1, clean=1)
        if info != 0:
            return None
        last = low[-size:, -size:]
        out.append(last @ last.T)
    return out
