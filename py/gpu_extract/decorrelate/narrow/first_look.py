"""Facts about a bundle's fibres from S to second order in the coupling, in the narrowest band.

They decide how the final S is made (schur.py), and whether the eliminated fibres leave more than rounding errors.
"""
from collections.abc import Iterable, Sequence

import numpy as np

from gpu_extract.data import Array, Normal
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.decorrelate.narrow.coupling import Couplings
from gpu_extract.decorrelate.narrow.definite import Facts
from gpu_extract.decorrelate.narrow.measure import Gauge, Schur, Wanted
from gpu_extract.decorrelate.weak import TOLD, UNKNOWN, told_factor
from gpu_extract.decorrelate.windows import Window, find
from gpu_extract.kernels.arena import Arena


class FirstLook:
    """S of each fibre on request, outside of its windows or without them, and its consequences for eliminations.

    windowed: outside of the windows of fibres that have any; kept: see measure.Gauge
    """

    def __init__(self, normal: Normal, x: Array, limits: Limits, arena: Arena, kept: slice):
        self.limits, self.nfibre = limits, len(normal.rhs)
        self.couplings = Couplings(normal, x, limits.distant, max(limits.widen), arena)
        self.widths = limits.widths(self.couplings.own, normal.halfband)
        self.windows = find(self.couplings, limits.window)
        self.gauge = Gauge(self.couplings, limits, self.widths, arena, kept)
        self._room = self.gauge.room(self.nfibre + len(self.windows), self.widths[0])
        self._found: dict[bool, dict[int, Schur]] = {False: {}, True: {}}
        self._told: dict[tuple[int, int, int, int, float], bool] = {}
        self._told_beside: dict[tuple[int, int, int], dict[int, bool]] = {}

    def near(self, fibre: int) -> range:
        """A fibre and its next neighbours."""
        return range(max(fibre - 1, 0), min(fibre + 2, self.nfibre))

    def measure(self, fibres: Iterable[int], *, windowed: bool = False) -> None:
        """Make S to second order in the coupling, in the narrowest band, with windows or without."""
        wanted = [i for i in fibres if i not in self._found[windowed]]
        if wanted:
            found = self.gauge.measure([self.second_order(i, self.widths[0], windowed) for i in wanted], self._room)
            self._found[windowed].update(zip(wanted, found, strict=True))

    def at(self, fibre: int, *, windowed: bool = False) -> Schur:
        """The result of `measure` for one fibre."""
        if fibre not in self._found[windowed]:
            self.measure([fibre], windowed=windowed)
        return self._found[windowed][fibre]

    def facts(self, fibre: int, windowed: bool) -> Facts:
        """The facts about one fibre, outside of any windows that it has."""
        windowed = windowed and fibre in self.windows
        found = self._found[windowed].get(fibre)
        return self.at(fibre, windowed=windowed).facts if found is None else found.facts

    def second_order(self, fibre: int, half: int, windowed: bool) -> Wanted:
        """S to second order in the coupling, with windows or without."""
        return Wanted(fibre, [self.couplings.share(j, fibre, half) for j in self.couplings.eliminated(fibre)],
                      self.windows[fibre] if windowed else ())

    def chained(self, j: int, fibre: int, windowed: bool) -> bool:
        """Whether fibre j is eliminated for `fibre` after the contribution of the fibre beyond it was subtracted.

        windowed: for a fibre with windows, outside of which the coupling counts
        """
        if abs(j - fibre) > 1 or not 0 <= 2 * j - fibre < self.nfibre:
            return False
        theta = self.facts(fibre, windowed).theta * self.facts(j, windowed).theta
        return theta > 1.01 * self.limits.coupling

    def tells(self, fibre: int) -> bool:
        """Whether a fibre's own block distinguishes its bins: from the facts about its S, which is less than that
        block, or from the block. With windows within the limits, S is known to a hundredth of itself."""
        plain = self._found[False].get(fibre)
        if plain is not None and not plain.facts.may_be_weak:
            return True
        windowed = self._found[True].get(fibre)
        if windowed is not None and windowed.excess <= 1.0 and not windowed.facts.may_be_weak:
            return True
        return self.couplings.tells(fibre) or (plain is None and not self.at(fibre).facts.may_be_weak)

    def _tells_in(self, fibre: int, window: Window) -> bool:
        """The same for S in a fibre's window; the facts suffice if S keeps enough of icov's diagonal."""
        known = self._found[True].get(fibre)
        gamma = known.facts.gamma if known is not None and known.excess <= 1.0 else 0.0
        return gamma * window.kept >= 1.02 / TOLD or window.tells

    def tell_beside(self, fibre: int, window: Window) -> bool:
        """The same for the fibres eliminated in a window: each by its S there, or by its facts if it has no window, as
        when that would be too long."""
        lo, hi = window.fibres
        told = self._told_beside.get((window.start, lo, hi))
        if told is None:
            inside = {j: next((w for w in self.windows.get(j, ()) if w.start == window.start), None)
                      for j in range(lo, hi)}
            told = self._told_beside[window.start, lo, hi] = {
                j: not self.at(j).facts.may_be_weak if found is None else self._tells_in(j, found)
                for j, found in inside.items()}
        bins = slice(window.start, window.start + len(window.exact))
        return all(all(told[j] for j in side) or self.tell_together(side, bins)
                   for side in (range(fibre - 1, lo - 1, -1), range(fibre + 1, hi)))

    def tell_together(self, outwards: Sequence[int], bins: slice = slice(None)) -> bool:
        """Whether icov of the fibres that are eliminated one after another distinguishes their bins, as far out as they
        matter.

        The own block suffices for a single one. Two fibres that icov does not distinguish from one another leave only
        rounding errors of the next, although each block alone distinguishes its bins. The error of a fibre is reduced
        by the couplings of all on the way: it may be as much less certain than `fibre` must be, up to a weak bin.
        """
        facts = [self.at(j).facts for j in outwards]
        if not any(each.may_be_weak for each in facts):
            return True
        through = np.cumprod([each.theta for each in facts])
        matter = int(np.count_nonzero(through > self.limits.coupling))       # they decrease
        weak = next((n for n, each in enumerate(facts[:matter]) if each.may_be_weak), None)
        if matter < 2 or weak is None:
            return True
        ends, (start, stop, _) = sorted((outwards[0], outwards[matter - 1])), bins.indices(self.couplings.nwave)
        told = ends[0], ends[1] + 1, start, stop, min(TOLD / float(through[weak]), UNKNOWN)
        if told not in self._told:
            self._told[told] = told_factor(self.couplings.icov, told[:2], told[2:4], told[4]) is not None
        return self._told[told]
