"""S of fibres in a band of one width, made from the contributions of the eliminated fibres, and its measured facts."""
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gpu_extract.data import Array
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.decorrelate.narrow import simd_band_tests, simd_measure
from gpu_extract.decorrelate.narrow.bands import Bands
from gpu_extract.decorrelate.narrow.coupling import Couplings, Share, share_of
from gpu_extract.decorrelate.narrow.definite import FINER, KINDS, SETS, Facts, ask, facts_of
from gpu_extract.decorrelate.windows import Window, put
from gpu_extract.kernels.arena import Arena

Blocks = tuple[tuple[int, Array], ...]
OF_EDGES = 4.0  # ratio of the tail to the largest of the last elements in the band
REACH = 4       # half-bands around the requested bins: what is cut off farther away does not affect them


class Wanted(NamedTuple):
    """A fibre whose S is requested, the contributions of the fibres eliminated for it, and its windows.

    facts: the facts about S, if they are known already, so that no tests are needed
    """

    fibre: int
    shares: list[Share]
    windows: Sequence[Window] = ()
    facts: Facts | None = None


class Schur(NamedTuple):
    """S_i of a fibre in one band.

    room, place: the position of its band, and of E x, which is S x minus this band's part. band[j, a] = S[j, j + a];
        bins of weight 0 are decoupled and hold `bound`, which bounds the largest eigenvalue
    windows: (first bin, (n, n)) of stretches in which all of S is kept
    facts: see definite.Facts; squares: 1'S1, 1'Sx and x'Sx over the bins that have weight
    tail: the elements that the band cuts off; inner: those of windows beyond the band; both in S's own norm
    excess: the larger ratio of the two to their limits
    shift: the change of the flux by the band, in sigma; little: whether the quick correction is sufficient
    seam: difference between a window's S and the band's just outside the window, in S's own norm
    error: bound on the neglected terms, in S's own norm
    holds: whether all are within the limits and S is positive definite; it and `error` are added when it is chosen
    """

    room: Bands
    place: int
    bound: float
    windows: Blocks
    facts: Facts
    squares: list[float]
    tail: float
    inner: float
    excess: float
    shift: float
    little: bool
    seam: float
    error: float = np.inf
    holds: bool = False

    @property
    def band(self) -> Array:
        """(nwave, half + 1)."""
        return self.room.band(self.place)

    @property
    def rest(self) -> Array:
        """(nwave,), E x."""
        return self.room.rest(self.place)


class Gauge:
    """Makes and measures S in bands of ascending widths.

    kept: the requested bins: what the band cuts off far from them does not count, unless a fibre is uneven
    work: scratch memory for tests of such bands, see definite.ask
    """

    def __init__(self, couplings: Couplings, limits: Limits, widths: Sequence[int], arena: Arena,
                 kept: slice):
        self.couplings, self.limits, self._arena = couplings, limits, arena
        self._kept = kept.indices(couplings.nwave)[:2]
        self.work, self._narrowest = arena.take(simd_band_tests.work_size(widths[-1])), widths[0]
        self._taken: dict[int, Array] = {}
        self._nothing: dict[int, Share] = {}

    def room(self, count: int, half: int) -> Bands:
        """Memory for `count` bands."""
        return Bands(self._arena, count, self.couplings.nwave, half + 1)

    def measure(self, wanted: Sequence[Wanted], room: Bands) -> list[Schur]:
        """S of each requested fibre, in the room's width."""
        c, taken, count = self.couplings, self._passing(room.half), len(wanted)
        sums, bounds, answers = np.empty((count, 6)), np.empty(count), np.empty((count, 4), dtype=np.int64)
        more, blocks = np.zeros((count, 6)), list[Blocks]([()] * count)      # contributions of windows
        shares = [self._sides(each.shares, room.half) for each in wanted]      # kept while their addresses are in use
        near = self._kept[0] - REACH * room.half, self._kept[1] + REACH * room.half
        sets = 4 if room.half == self._narrowest else 3       # of questions: a strong coupling is told once
        places = np.array([(each.fibre, room.take(), *left.at, *right.at, 0 if each.facts else sets, *near)
                           for each, (left, right) in zip(wanted, shares, strict=True)])

        kernel = simd_measure.measure(room.half)
        schur = room.bands, room.rests, room.diagonals, room.shifts, room.edges, taken

        def run(some: slice, *steps: bool) -> None:
            kernel((sums[some], bounds[some], answers[some]), schur, c.icov, places[some], (c.spread, c.roots),
                   (SETS, KINDS), self.work, steps)
        if not any(each.windows for each in wanted):
            run(slice(count), True, True)       # in one call: Python is slow between cache-filling kernels
        else:
            for n, (fibre, _, windows, _) in enumerate(wanted):
                run(slice(n, n + 1), True, False)
                place, x, roots = int(places[n, 1]), c.spread[fibre, c.margin:], c.roots[fibre, c.margin:]
                whole = put(windows, (room.band(place), taken, room.rest(place)), x[:c.nwave], roots[:c.nwave],
                            bound=float(bounds[n]), hw=c.hw)
                bounds[n], blocks[n] = whole.bound, whole.blocks
                more[n] = *whole.squares, whole.inner, whole.crossing, whole.seam
                run(slice(n, n + 1), False, True)
                for first, block in whole.blocks:
                    np.maximum(room.edges[place, first:first + len(block)], whole.crossing,
                               out=room.edges[place, first:first + len(block)])
        facts = [Facts(1.0, 0.0, 1.0) if bound == 0.0 else each.facts or facts_of(*told)
                 for each, bound, told in zip(wanted, bounds.tolist(), answers.tolist(), strict=True)]
        judged = self._judged(room.half, sums, more, facts)
        doubtful = [n for n, (tail, excess) in enumerate(zip(judged[1], judged[3], strict=True))
                    if facts[n].finer(excess) or facts[n].finer(tail / self.limits.plain)]
        for n in doubtful:
            band = room.band(int(places[n, 1]))
            facts[n] = facts[n].also(ask(band, band, float(bounds[n]), FINER[facts[n].gamma], self.work))
        if doubtful:
            judged = self._judged(room.half, sums, more, facts)
        return [Schur(room, *one) for one in zip(places[:, 1].tolist(), bounds.tolist(), blocks, facts, *judged,
                                                 strict=True)]

    def _judged(self, half: int, sums: Array, more: Array, facts: list[Facts]) -> list[list[Any]]:
        """Squares, tails, inner parts, excesses, shifts and seams of fibres in a band.

        sums: see simd_foresee; more: of windows: squares, inner, crossing, seam
        """
        limits, gamma = self.limits, np.array([max(each.gamma, 1e-300) for each in facts])
        with np.errstate(over="ignore"):
            uneven = np.array([each.cond > limits.uneven for each in facts])
            tail = OF_EDGES * np.maximum(np.where(uneven, sums[:, 4], sums[:, 5]), more[:, 4]) / gamma
            shift = 0.5 * np.sqrt(sums[:, 0])
            inner = more[:, 3] / gamma
            excess = np.maximum(tail / limits.most_tail(half), inner / limits.inner)
        squares, little = sums[:, 1:4] + more[:, :3], shift <= np.array([limits.most_shift(f.cond) for f in facts])
        return [array.tolist() for array in (squares, tail, inner, excess, shift, little, more[:, 5] / gamma)]

    def _sides(self, shares: list[Share], half: int) -> tuple[Share, Share]:
        """The contributions of fibres on both sides; missing fibres contribute nothing."""
        left, right = [*shares, *(self._none(half) for _ in range(2 - len(shares)))][:2]
        if len(shares) > 2:
            right = share_of(np.sum([share.taken[:, :half + 1] for share in shares[1:]], axis=0),
                             np.sum([share.moved for share in shares[1:]], axis=0))
        return left, right

    def _passing(self, half: int) -> Array:
        """Memory for one band that is no longer needed when the next fibre begins."""
        if half not in self._taken:
            room = self.room(1, half)
            self._taken[half] = room.band(room.take())
        return self._taken[half]

    def _none(self, half: int) -> Share:
        """The contribution of a missing fibre."""
        if half not in self._nothing:
            self._nothing[half] = share_of(self._arena.zeros(self.couplings.nwave, half + 1),
                                           np.zeros(self.couplings.nwave))
        return self._nothing[half]
