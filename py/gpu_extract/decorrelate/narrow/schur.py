"""The Schur complement of a fibre: S_i = C_ii^-1, made from icov without inverting a large matrix.

Eliminating all other fibres leaves S_i = A_ii - sum_j A_ij (A_jj - ...)^-1 A_ji. Let theta be the coupling between
fibres: the largest eigenvalue of A_ii^-1 A_ij A_jj^-1 A_ji, a squared correlation, 1e-7 to 1e-5 on DESI PSFs and 5e-2
beside a masked block. The dots change S_i by theta_i theta_j in its own norm. They are omitted if that is below
`Limits.coupling`. Otherwise fibre j is eliminated after the contribution of its own outer neighbour has been
subtracted from it, and so on outwards until it no longer matters. For couplings between next neighbours only, that is
exact.

S stays in a band, except for stretches beside masks and the edge of the CCD, where all of it is kept (the package
windows). The truncated part, the effect of farther neighbours and of their mutual coupling, and the extent of the
spectrum are measured for every fibre; these facts decide (`Schur.holds`).
"""
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpu_extract.data import Array, Normal
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.decorrelate.narrow.by_bins import compared, cut_off
from gpu_extract.decorrelate.narrow.coupling import Share
from gpu_extract.decorrelate.narrow.definite import ABOVE, EPS, FAR, SHARES, Facts, ask
from gpu_extract.decorrelate.narrow.first_look import FirstLook
from gpu_extract.decorrelate.narrow.measure import Schur, Wanted
from gpu_extract.kernels.arena import Arena

DECAY = 4.0       # factor by which the truncated part falls in four diagonals (measured: 3 to 8)
OF_POLES, LEFT = 6.0 * EPS, 5e-9   # error in sigma that the largest x leaves in all bins' sums over poles: at most
                                   # OF_POLES times x and the root of S's bound (measured: 2 to 6 eps); allowed error
OF_CHAINS = 12     # diagonals more than icov's in the elimination of chains beside windows
ALIKE = 2e-3       # of S in its own norm: two matrices that differ by less have the same facts
NOTHING = 1e-16    # reduction through a chain below which terms do not matter: they are of order 1, limits are 1e-10
WORST = 1e-5       # assumed lower end of the spectrum of the scaled S, for the quickest of the bounds


class Remainder(NamedTuple):
    """The elements of a fibre's S beyond its band and windows, as an operator on a vector: see narrow.simd_beyond.

    around: the eliminated fibres, the share of each, and the share of the fibre beyond it in it
    windows: (first bin, last + 1, first bin of S, S) each
    """

    around: list[tuple[int, Share, Share | None]]
    windows: list[tuple[int, int, int, Array]]


class Neighbours:
    """Makes the Schur complements of the fibres of a bundle, and keeps what they share.

    kept: the requested bins; others may have any condition number that the poles reach
    The result for a fibre depends only on the normal equations, not on the other fibres requested.
    """

    def __init__(self, normal: Normal, x: Array, limits: Limits, arena: Arena | None = None,
                 kept: slice = slice(None)):
        self.first, self._kept = FirstLook(normal, x, limits, arena or Arena(), kept), kept
        self.limits, self.couplings, self.windows = limits, self.first.couplings, self.first.windows
        self.widths = self.first.widths
        self._chains: dict[tuple[int, int, int, bool], Share] = {}
        self._made: dict[tuple[int, int], Share] = {}       # of chains beside windows, in the widest band so far
        self._chain_width = self._ahead = min(self.couplings.hw + OF_CHAINS, self.widths[-1])
        self._chain_ends: dict[tuple[int, bool], list[int]] = {}
        self._beyond: dict[int, float] = {}
        self._best: dict[int, Schur] = {}
        self._chained_too: set[int] = set()     # fibres with windows, and chains outside of them
        self._given_up: set[int] = set()
        self._by_bins: set[int] = set()
        self._far_shares: dict[int, float] = {}

    def prepare(self, fibres: tuple[int, int]) -> None:
        """Make the complements of fibres lo .. hi - 1, each in the narrowest of the bands of `Limits` that holds it.

        All neighbours that are needed in one width are eliminated together, eight at a time.
        """
        reach = 2 * max(self.couplings.distances)
        around = range(max(fibres[0] - reach, 0), min(fibres[1] + reach, self.first.nfibre))
        self.couplings.eliminate(around, self.widths[0])
        wanted = [i for i in range(*fibres) if i not in self._best]
        windowed = [i for i in wanted if i in self.windows]
        near = {j for i in windowed for j in self.first.near(i)}
        self.first.measure(near & self.windows.keys(), windowed=True)
        self.first.measure(near - self.windows.keys())
        self._chained_too.update([i for i in windowed if self._coupled_outside(i)])
        self._choose({i: self.first.at(i, windowed=True) for i in windowed})
        plain = [i for i in windowed if i not in self._chained_too]
        helped = [i for i in plain if not self._window_holds(i) and self._chains_help(i)]
        self._chained_too.update(helped)
        self._choose({i: self._best[i] for i in helped})
        self._given_up.update([i for i in windowed if not self._window_holds(i)])
        rest = [i for i in wanted if not self._has_windows(i)]
        self.first.measure({j for i in rest for j in self.first.near(i)})
        self._choose({i: self.first.at(i) for i in rest})

    def _choose(self, found: dict[int, Schur]) -> None:
        """Keep what was measured if it holds; otherwise measure in wider bands until one does."""
        self._best.update(found)
        wanted = {i: self._first_step(i, each) for i, each in found.items()}
        last = len(self.widths) - 1
        self._ahead = max(self._ahead, self.widths[min(max(wanted.values(), default=0), last)])
        for n, half in enumerate(self.widths[1:], 1):
            narrow = [i for i, step in wanted.items() if step == n or (n == last and step > n)]
            if not narrow:
                continue
            chained = {(j, i) for i in narrow for j in self._chains_of(i)}
            self.couplings.eliminate(sorted({j for i in narrow for j in self.couplings.eliminated(i)
                                             if (j, i) not in chained}), half)
            room = self.first.gauge.room(len(narrow), half)
            asked = [self._wanted(i, half)._replace(facts=self._facts_in_any(i)) for i in narrow]
            for i, measured in zip(narrow, self.first.gauge.measure(asked, room), strict=True):
                self._best[i], steps = measured, _steps(measured.excess, self.widths[n:], self.limits)
                wanted[i] = n + steps if steps else 0

    def complement(self, fibre: int) -> Schur:
        """S of one fibre."""
        if fibre not in self._best:
            self.prepare((fibre, fibre + 1))
        best = self._best[fibre]
        facts = self._known(fibre, fibre) if best.windows else best.facts
        error = self._higher_orders(fibre, facts)
        if not self._holds(fibre, error) and self._holds(fibre, 0.0):
            self._by_bins.add(fibre)
            error = self._higher_orders(fibre, facts)
        return best._replace(error=error + best.tail, holds=self._holds(fibre, error) and self._eliminated_tell(fibre))

    def remainder(self, fibre: int, schur: Schur) -> Remainder:
        """The elements of a fibre's S beyond its band and windows."""
        half, found, around = schur.room.half, self._wanted(fibre, schur.room.half), []
        chains, windowed = self._chains_of(fibre), self._has_windows(fibre)
        for j, share in zip(self.couplings.eliminated(fibre), found.shares, strict=True):
            around.append((j, share, self._taken_beyond(j, fibre, half, windowed) if j in chains else None))
        return Remainder(around, [(first, first + len(block), window.start, window.exact) for (first, block), window
                                  in zip(schur.windows, found.windows, strict=True)])

    def _holds(self, fibre: int, error: float) -> bool:
        """Whether the best of a fibre's bands is within the limits; error: that of other neglected terms."""
        measured, facts = self._best[fibre], self._best[fibre].facts
        if facts.rung is None or not error <= max(self.limits.coupling, min(facts.rounding, self.limits.most_coupling)):
            return False
        return (measured.excess <= 1.0 and facts.cond <= self.limits.cond) or self._kept_hold(fibre)

    def _kept_hold(self, fibre: int) -> bool:
        """Whether S exceeds, bin by bin, what its band cuts off, where the largest values leave that open.

        If the condition number is above its limit, S must also exceed its bound over that limit in the kept bins, and
        the error of the poles from the largest x must be small.
        """
        measured, largest = self._best[fibre], float(np.abs(self.couplings.spread[fibre]).max())
        least, cut = np.zeros(len(measured.band)), measured.excess > 1.0
        if cut:
            if measured.windows or measured.room.half < self.widths[-1]:
                return False
            roots = self.couplings.roots[fibre, self.couplings.margin:-self.couplings.margin]
            least += cut_off(measured.band, roots) / self.limits.most_tail(measured.room.half)
        if measured.facts.cond > self.limits.cond:
            if not OF_POLES * math.sqrt(measured.bound) * largest <= LEFT:      # nor NaN
                return False
            least[self._kept] += measured.bound / self.limits.cond
        return compared(measured, least, ABOVE, self.first.gauge.work).theta < 1.0

    def _window_holds(self, fibre: int) -> bool:
        """Whether a fibre is within the limits outside its windows, to second order in the coupling or with chains."""
        if fibre in self._chained_too:
            return self._holds(fibre, self._best[fibre].seam)
        theta = self._outside(fibre)
        return theta <= self.limits.outside and self._holds(fibre, max(self._best[fibre].seam, theta))

    def _outside(self, fibre: int) -> float:
        """The error of the second order outside of a fibre's windows, in the norm of S."""
        near = [self._known(j, fibre).theta for j in self.first.near(fibre) if j != fibre]
        return self._known(fibre, fibre).theta * max(near) / 1.01

    def _coupled_outside(self, fibre: int) -> bool:
        """Whether that error is too large in any band, and chains may help."""
        return self._outside(fibre) > self.limits.outside and max(self._known(i, fibre).theta
                                                                  for i in self.first.near(fibre)) < 1.0

    def _chains_help(self, fibre: int) -> bool:
        """Whether only the coupling, which also affects the seam, prevents a fibre with windows from holding."""
        return self._holds(fibre, 0.0) and max(self._known(i, fibre).theta for i in self.first.near(fibre)) < 1.0

    def _has_windows(self, fibre: int) -> bool:
        """Whether a fibre has windows, and they hold as far as is known."""
        return fibre in self.windows and fibre not in self._given_up

    def _known(self, i: int, fibre: int) -> Facts:
        """Facts about fibre i in the narrowest band, outside windows if `fibre` has any (then i has them, too)."""
        return self.first.facts(i, self._has_windows(fibre))

    def _facts_in_any(self, fibre: int) -> Facts | None:
        """The facts of S to second order in the narrowest band, if they are valid for any band and any order."""
        first = self.first.at(fibre, windowed=self._has_windows(fibre))
        return first.facts if first.tail + first.inner + self._outside(fibre) <= ALIKE else None

    def _wanted(self, fibre: int, half: int) -> Wanted:
        """S to be made: all of it in windows, and outside of them to all orders that matter."""
        windowed = self._has_windows(fibre)
        if windowed and fibre not in self._chained_too:
            return self.first.second_order(fibre, half, True)
        chains = self._chains_of(fibre)
        return Wanted(fibre, [self._share(j, fibre, half, windowed) if j in chains else
                              self.couplings.share(j, fibre, half) for j in self.couplings.eliminated(fibre)],
                      self.windows[fibre] if windowed else ())

    def _first_step(self, fibre: int, found: Schur) -> int:
        """The number of the band that is measured next, 0 for none; found: S to second order.

        With chains, S is measured again, from the band of `found` on. Without them that band is the narrowest, or
        holds.
        """
        if not self._chains_of(fibre):
            return _steps(found.excess, self.widths, self.limits)
        known = self.widths.index(found.room.half)
        foretold = (_steps(found.excess, self.widths, self.limits) if self._has_windows(fibre) and known == 0 else 0)
        return max(1, known, min(foretold, len(self.widths) - 1))

    def _chains_of(self, fibre: int) -> list[int]:
        """The fibres that are eliminated for one fibre together with those beyond them: see FirstLook.chained."""
        windowed = self._has_windows(fibre)
        if windowed and fibre not in self._chained_too:
            return []
        found = self._chain_ends.get((fibre, windowed))
        if found is None:
            found = self._chain_ends[fibre, windowed] = [j for j in self.couplings.eliminated(fibre)
                                                         if self.first.chained(j, fibre, windowed)]
        return found

    def _eliminated_tell(self, fibre: int) -> bool:
        """Whether the fibres eliminated for this one, alone or in chains, leave more than rounding errors of it."""
        windowed, chains = self._has_windows(fibre), self._chains_of(fibre)
        for j in self.couplings.eliminated(fibre):
            i, outwards = fibre, [j]
            while self.first.tells(j) and (i != fibre or j in chains) and self.first.chained(j, i, windowed):
                i, j = j, 2 * j - i
                outwards.append(j)
            if not (self.first.tells(j) and (windowed or len(outwards) == 1 or self.first.tell_together(outwards))):
                return False
        return not windowed or all(self.first.tell_beside(fibre, window) for window in self.windows[fibre])

    def _share(self, j: int, fibre: int, half: int, windowed: bool) -> Share:
        """The contribution to `fibre` of eliminating fibre j, chained or alone, with `half` diagonals."""
        if not self.first.chained(j, fibre, windowed):
            return self.couplings.share(j, fibre, half)
        key = (j, fibre, half, windowed)
        if key not in self._chains:
            self._chains[key] = (self._beside_windows(j, fibre, half).narrowed(half) if windowed else
                                 self.couplings.share_of_rest(j, fibre, half,
                                                              self._taken_beyond(j, fibre, half, windowed)))
        return self._chains[key]

    def _beside_windows(self, j: int, fibre: int, half: int) -> Share:
        """The same for a chain beside windows, with `half` diagonals or more: their number does not affect bits."""
        made = self._made.get((j, fibre))
        if made is None or made.taken.shape[1] <= half:
            half = max(half, self._ahead)
            made = self.couplings.share_of_rest(j, fibre, half, self._taken_beyond(j, fibre, half, True))
            self._made[j, fibre] = made
        return made

    def _taken_beyond(self, j: int, fibre: int, half: int, windowed: bool) -> Share:
        """The share of the fibre beyond j in a chain, in the band in which j is eliminated.

        Outside of windows the part that a band cuts off from j is reduced by the coupling, so OF_CHAINS diagonals
        suffice.
        """
        return self._share(2 * j - fibre, j, self._chain_width if windowed else half, windowed)

    def _higher_orders(self, fibre: int, facts: Facts) -> float:
        """A bound on the effect of couplings to farther fibres that were not, or not fully, taken into account: the
        fibre's own, and those of fibres in its chains, reduced by the couplings in between."""
        total, windowed = self._orders(fibre, fibre, facts), self._has_windows(fibre)
        for j in self._chains_of(fibre):
            i, through = fibre, 1.0
            while through > NOTHING and self.first.chained(j, i, windowed):
                first = self.first.facts(j, windowed)
                through *= first.theta
                total += through * self._orders(j, fibre, first)
                i, j = j, 2 * j - i
        return total

    def _orders(self, place: int, fibre: int, facts: Facts) -> float:
        """The same for fibre `place` alone, in the norm of S of `fibre`.

        Couplings that are not eliminated change S by their square. Any of them, together with two couplings to next
        neighbours, changes S by the product of the three; there are six such products.
        """
        near = self.first.near(place)
        theta = math.sqrt(facts.theta * max(self._known(i, fibre).theta for i in near))
        size = max(self.couplings.farthest[i] for i in near) / WORST
        if 6.0 * theta * size + size**2 <= self.limits.coupling:
            return 6.0 * theta * size + size**2
        sizes = {(i, j): min(self._far(i, j, fibre), 1.0) for i in near for j in self.couplings.around(i, 2)}
        if fibre in self._by_bins:
            sizes = {(i, j): min(size, math.sqrt(self._share_of_far(i) * self._share_of_far(j)))
                     for (i, j), size in sizes.items()}
        second = sum(size**2 for (i, j), size in sizes.items()
                     if i == place and self.couplings.size(i, j) <= self.limits.distant)
        if fibre in self._by_bins:
            return second + 2.0 * theta * sum(size for (i, j), size in sizes.items() if i == place
                                              or (j > place if i < place else j < place - 1))
        return second + 6.0 * theta * max(sizes.values(), default=0.0)

    def _share_of_far(self, fibre: int) -> float:
        """The share of a fibre's S that bounds, bin by bin, its couplings to fibres farther than the next."""
        if fibre not in self._far_shares:
            if fibre not in self._best:
                self.prepare((fibre, fibre + 1))
            self._far_shares[fibre] = compared(self._best[fibre], self.couplings.beyond_next[fibre], SHARES,
                                               self.first.gauge.work).theta
        return self._far_shares[fibre]

    def _far(self, i: int, j: int, fibre: int) -> float:
        """A bound on the coupling (not squared) of two fibres, not next to each other, in the norm of S of `fibre`."""
        size = self.couplings.size(i, j)
        if size > self.limits.distant:
            return float(np.sqrt(self._far_theta(i)))
        gamma = min(self._best[fibre].facts.gamma, *(self._known(n, fibre).gamma for n in (i, j)))
        return size / max(gamma, 1e-300)

    def _far_theta(self, fibre: int) -> float:
        """The coupling (squared) of a fibre to those farther than the next that are eliminated for it."""
        if fibre not in self._beyond:
            first, half = self.first.at(fibre), self.widths[0]
            far = [j for j in self.couplings.eliminated(fibre) if abs(j - fibre) > 1]
            taken = np.sum([self.couplings.share(j, fibre, half).taken[:, :half + 1] for j in far], axis=0)
            self._beyond[fibre] = ask(first.band, taken, first.bound, FAR, self.first.gauge.work).theta
        return self._beyond[fibre]


def _steps(excess: float, widths: Sequence[int], limits: Limits) -> int:
    """How many bands wider the first that should hold is: four diagonals reduce what is cut off by a factor of DECAY.

    widths: from the measured band on; a band that is too narrow by half a step counts as wide enough.
    """
    if excess <= 1.0:
        return 0
    tail = excess * limits.most_tail(widths[0])
    for n in range(1, len(widths)):
        further = widths[n] - widths[0] + (widths[n] - widths[n - 1]) / 2
        if tail <= limits.most_tail(widths[n]) * DECAY ** (further / 4.0):
            return n
    return len(widths)
