"""The Schur complement of a fibre: S_i = C_ii^-1, made from icov without inverting anything large.

Eliminating all other fibres leaves S_i = A_ii - sum_j A_ij (A_jj - ...)^-1 A_ji. With the coupling between
fibres theta (the largest eigenvalue of A_ii^-1 A_ij A_jj^-1 A_ji, so a correlation squared: 1e-7 to 1e-5 on DESI
PSFs, 5e-2 beside a masked block), what the dots stand for changes S_i by theta_i theta_j in its own norm: left out
where that is below `Limits.coupling`, else fibre j is eliminated together with what its own neighbour beyond it
left of it, and so on outwards until it no longer matters. For couplings to next neighbours alone that is exact.

All of it stays in a band, but for stretches beside masks and the CCD's edge where all of S is kept (windows.py). What
the band cuts off, what farther neighbours and their coupling among each other would change, and the extent of the
spectrum are measured for every fibre; the facts decide (`Schur.holds`).
"""
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpu_extract.backend import cpu_band_tests, cpu_foresee
from gpu_extract.backend.arena import Arena
from gpu_extract.cores.bands import Bands
from gpu_extract.cores.coupling import Couplings, Share
from gpu_extract.cores.definite import FAR, Facts, ask, examine, room
from gpu_extract.cores.windows import Window, find, put
from gpu_extract.data import Array, Normal

DECAY = 4.0       # of what is cut off from one of the bands to the next, measured: 3 to 8
CORRECTED = 8.0   # times rounding that the widest band may leave with windows: of what it moves the flux by, the
                  # correction leaves a quarter to a tenth, and of its tail ivar feels 4e-4 (both measured)
EPS = float(np.finfo(float).eps)
WORST = 1e-5       # a spectrum of the scaled S that is not expected to be worse, for the quickest of the bounds


@dataclass(frozen=True)
class Limits:
    """What may be left out of S, or what rounding leaves where that is more (40 eps times the condition number).

    coupling: terms of higher order in the coupling, relative to S in its own norm
    distant: fibres farther than the next are eliminated where the bound on their coupling is above this
    tail: what the band cuts off, in S's own norm; ivar and R move by 4e-4 of it (measured)
    shift: what it moves the flux by, in sigma, before that is corrected for to first order
    noisy_shift: the same where x swings with noise, not signal: there the correction leaves a sixth (measured)
    bright: share of bins with signal to noise above 10 up to which a fibre counts as noisy
    widen: diagonals added to icov's half-band in turn until the band is wide enough
    own: whether one diagonal more than the fibres' own blocks have is tried before, see `_widths`
    window: correlation of two fibres' bins above which S is made whole around them, see windows.py
    inner: what windows have beyond the band, in S's own norm: facts are asked of the band alone
    """

    coupling: float = 1e-10
    distant: float = 1e-8
    tail: float = 2.5e-6
    shift: float = 2e-8
    noisy_shift: float = 2e-7
    bright: float = 0.25
    widen: tuple[int, ...] = (0, 4, 8, 12)
    own: bool = True
    window: float = 2e-3
    inner: float = 1e-2


@dataclass(frozen=True)
class Schur:
    """S_i of a fibre.

    room, place: where its band is and E x, S x less the part of this band. band[j, a] = S[j, j + a]; bins of weight 0
        are decoupled and hold `bound`, which is on the largest eigenvalue
    squares: 1'S1, 1'Sx and x'Sx over the bins that have weight
    facts: see definite.Facts; error: bound on what is left out, in S's own norm
    holds: whether that is within the limits and S is positive definite
    windows: (first bin, (n, n)) of stretches in which all of S is kept
    """

    room: Bands
    place: int
    bound: float
    squares: Array
    facts: Facts
    error: float
    holds: bool
    windows: tuple[tuple[int, Array], ...] = ()

    @property
    def band(self) -> Array:
        """(nwave, half + 1)."""
        return self.room.band(self.place)

    @property
    def rest(self) -> Array:
        """(nwave,), E x."""
        return self.room.rest(self.place)


@dataclass(frozen=True)
class _Measured:
    """S in one band; what is not said here as in Schur.

    tail: what it cuts off; excess: that, or what it moves the flux by, over the limit
    seam: what a window's S differs by from the band's just outside of the window, in S's own norm
    """

    room: Bands
    place: int
    bound: float
    facts: Facts
    tail: float
    excess: float
    squares: Array
    windows: tuple[tuple[int, Array], ...] = ()
    seam: float = 0.0


class Neighbours:
    """Makes the Schur complements of the fibres of a bundle, and remembers what they share.

    What it makes for a fibre depends on the normal equations alone, not on which fibres are asked for.
    """

    def __init__(self, normal: Normal, x: Array, limits: Limits, arena: Arena | None = None):
        self._arena = arena or Arena()
        self.couplings = Couplings(normal, x, limits.distant, max(limits.widen), self._arena)
        self.limits, self.hw = limits, normal.halfband
        self.nfibre, self.nwave = normal.rhs.shape
        self._chains: dict[tuple[int, int, int], Share] = {}
        self._first: dict[tuple[int, bool], _Measured] = {}
        self._beyond: dict[int, float] = {}
        self._best: dict[int, _Measured] = {}
        self.windows = find(self.couplings, limits.window)
        self._given_up: set[int] = set()
        self._taken: dict[int, Array] = {}
        self._nothing: dict[int, Share] = {}
        self.widths = _widths(self.couplings.own if limits.own else self.hw, self.hw, limits.widen)
        self._work = self._arena.take(room(self.widths[-1]))
        self._narrowest = self._room(self.nfibre + len(self.windows), self.widths[0])

    def prepare(self, fibres: tuple[int, int]) -> None:
        """Make the complements of fibres lo .. hi - 1, each in the narrowest of the bands of `Limits` that holds it.

        All neighbours that are needed in one width are eliminated together, eight at a time.
        """
        reach = 2 * max(self.couplings.distances())
        around = range(max(fibres[0] - reach, 0), min(fibres[1] + reach, self.nfibre))
        self.couplings.eliminate(around, self.widths[0])
        wanted = [i for i in range(*fibres) if i not in self._best]
        windowed = [i for i in wanted if i in self.windows]
        for fibre in windowed:
            self._best[fibre] = self._at_first(fibre, windowed=True)
        self._widen({i: _steps(self._best[i].excess, self.widths) for i in windowed})
        for fibre in windowed:
            if not self._window_holds(fibre):
                self._given_up.add(fibre)
        rest = [i for i in wanted if not self._has_windows(i)]
        for fibre in rest:
            self._best[fibre] = self._at_first(fibre)
        chained = [i for i in rest if any(self._chained(j, i) for j in self.couplings.eliminated(i))]
        self._widen({i: 1 if i in chained else _steps(self._best[i].excess, self.widths) for i in rest})

    def _widen(self, wanted: dict[int, int]) -> None:
        """Measure fibres in wider bands until one holds; wanted: how many steps further each is to begin."""
        for n, half in enumerate(self.widths[1:], 1):
            last = n == len(self.widths) - 1
            narrow = [i for i, step in wanted.items() if step == n or (last and step > n)]
            needed = sorted({j for i in narrow for j in self.couplings.eliminated(i)
                             if self._has_windows(i) or not self._chained(j, i)})
            self.couplings.eliminate(needed, half)
            room = self._room(len(narrow), half)
            for fibre in narrow:
                self._best[fibre] = self._measure(fibre, room)
                steps = _steps(self._best[fibre].excess, self.widths[n:])
                wanted[fibre] = n + steps if steps else 0

    def _has_windows(self, fibre: int) -> bool:
        """Whether a fibre has windows, and they hold as far as that is known."""
        return fibre in self.windows and fibre not in self._given_up

    def _window_holds(self, fibre: int) -> bool:
        """Whether a fibre is within the limits outside of its windows, to second order in the coupling."""
        measured, near = self._best[fibre], [j for j in (fibre - 1, fibre + 1) if 0 <= j < self.nfibre]
        theta = self._known(fibre, fibre).theta * max(self._known(j, fibre).theta for j in near)
        error = max(measured.seam, theta / 1.01)
        return (measured.facts.rung is not None and measured.excess <= 1.0
                and error <= _allowed(measured.facts, self.limits.coupling))

    def complement(self, fibre: int) -> Schur:
        """S of one fibre."""
        if fibre not in self._best:
            self.prepare((fibre, fibre + 1))
        measured = self._best[fibre]
        facts = measured.facts
        error = self._higher_orders(fibre, facts)
        holds = facts.rung is not None and error <= _allowed(facts, self.limits.coupling) and measured.excess <= 1.0
        return Schur(measured.room, measured.place, measured.bound, measured.squares, facts, error + measured.tail,
                     holds, measured.windows)

    def _at_first(self, fibre: int, *, windowed: bool = False) -> _Measured:
        """S to second order in the coupling, in the narrowest band, with windows or without."""
        if (fibre, windowed) not in self._first:
            shares = [self.couplings.share(j, fibre, self.widths[0]) for j in self.couplings.eliminated(fibre)]
            self._first[fibre, windowed] = self._assemble(fibre, shares, self._narrowest,
                                                          self.windows[fibre] if windowed else ())
        return self._first[fibre, windowed]

    def _known(self, i: int, fibre: int) -> Facts:
        """Facts about fibre i in the narrowest band, outside of windows where `fibre` has them (then so has i)."""
        return self._at_first(i, windowed=self._has_windows(fibre) and i in self.windows).facts

    def _measure(self, fibre: int, room: Bands) -> _Measured:
        """S in a band of some width: whole in windows, else to all orders that count."""
        half = room.bands.shape[2] - 1
        if self._has_windows(fibre):
            shares = [self.couplings.share(j, fibre, half) for j in self.couplings.eliminated(fibre)]
            return self._assemble(fibre, shares, room, self.windows[fibre])
        return self._assemble(fibre, [self._share(j, fibre, half) for j in self.couplings.eliminated(fibre)], room)

    def _chained(self, j: int, fibre: int) -> bool:
        """Whether fibre j is eliminated for `fibre` together with what the fibre beyond it took from it."""
        beyond = 2 * j - fibre
        if abs(j - fibre) > 1 or not 0 <= beyond < self.nfibre:
            return False
        return self._at_first(fibre).facts.theta * self._at_first(j).facts.theta > 1.01 * self.limits.coupling

    def _share(self, j: int, fibre: int, half: int) -> Share:
        """What eliminating fibre j, chained or as it stands, takes from `fibre`, with `half` diagonals."""
        if not self._chained(j, fibre):
            return self.couplings.share(j, fibre, half)
        key = j, fibre, half
        if key not in self._chains:
            self._chains[key] = self.couplings.share_of_rest(j, fibre, half, self._share(2 * j - fibre, j, half))
        return self._chains[key]

    def _assemble(self, fibre: int, shares: list[Share], room: Bands, windows: Sequence[Window] = ()) -> _Measured:
        """S from what each eliminated fibre takes, and what is to be known about it."""
        half, place = room.bands.shape[2] - 1, room.take()
        left, right = [*shares, *(self._none(half) for _ in range(2 - len(shares)))][:2]
        if len(shares) > 2:
            right = Share(np.sum([share.taken[:, :half + 1] for share in shares[1:]], axis=0),
                          np.sum([share.moved for share in shares[1:]], axis=0))
        band, rest, taken, sums = room.band(place), room.rest(place), self._passing(half), np.empty(6)
        bound = cpu_band_tests.assemble((band, taken, rest), self.couplings.icov, fibre, (left.taken, left.moved),
                                        (right.taken, right.moved))
        margin = self.couplings.margin
        x, roots = self.couplings.spread[fibre, margin:], self.couplings.roots[fibre, margin:]
        whole = put(windows, (band, taken, rest), x[:self.nwave], roots[:self.nwave], bound=bound, hw=self.hw)
        cpu_foresee.foresee(sums, rest, band, taken, x, roots)
        facts = examine(band, taken, whole.bound, self._work)
        gamma = max(facts.gamma, 1e-300)
        moved, bright, *_, edge = sums.tolist()
        tail = 4.0 * max(edge, whole.crossing) / gamma
        limit = self.limits.noisy_shift if bright <= self.limits.bright * self.nwave else self.limits.shift
        least = CORRECTED if windows and half == self.widths[-1] else 1.0
        excess = max(tail / _allowed(facts, self.limits.tail, least),
                     0.5 * math.sqrt(moved) / _allowed(facts, limit, least), whole.inner / (self.limits.inner * gamma))
        return _Measured(room, place, whole.bound, facts, tail, excess, sums[2:5] + whole.squares, whole.blocks,
                         whole.seam / gamma)

    def _room(self, count: int, half: int) -> Bands:
        """Room for so many bands."""
        return Bands(self._arena, count, self.nwave, half + 1)

    def _passing(self, half: int) -> Array:
        """Room for one band that is done with before the next fibre's turn."""
        if half not in self._taken:
            room = self._room(1, half)
            self._taken[half] = room.band(room.take())
        return self._taken[half]

    def _none(self, half: int) -> Share:
        """What a fibre takes that is not there."""
        if half not in self._nothing:
            self._nothing[half] = Share(self._arena.zeros(self.nwave, half + 1), np.zeros(self.nwave))
        return self._nothing[half]

    def _higher_orders(self, fibre: int, facts: Facts) -> float:
        """A bound on what couplings to farther fibres change that were not, or not fully, taken into account.

        Those that are not eliminated change S by their square; any of them together with two couplings to next
        neighbours by the product of the three, and there are six such products.
        """
        near = [i for i in range(fibre - 1, fibre + 2) if 0 <= i < self.nfibre]
        theta = math.sqrt(facts.theta * max(self._known(i, fibre).theta for i in near))
        size = max(self.couplings.farthest(i) for i in near) / WORST
        if 6.0 * theta * size + size**2 <= self.limits.coupling:
            return 6.0 * theta * size + size**2
        sizes = {(i, j): min(self._far(i, j, fibre), 1.0) for i in near for j in self.couplings.around(i, 2)}
        second = sum(size**2 for (i, j), size in sizes.items()
                     if i == fibre and self.couplings.size(i, j) <= self.limits.distant)
        return second + 6.0 * theta * max(sizes.values(), default=0.0)

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
            first, half = self._at_first(fibre), self.widths[0]
            far = [j for j in self.couplings.eliminated(fibre) if abs(j - fibre) > 1]
            taken = np.sum([self.couplings.share(j, fibre, half).taken[:, :half + 1] for j in far], axis=0)
            self._beyond[fibre] = ask(first.room.band(first.place), taken, first.bound, FAR, self._work).theta
        return self._beyond[fibre]


def _widths(own: int, hw: int, widen: Sequence[int]) -> list[int]:
    """The half-bands of S that are tried in turn, from those of a fibre's own block and of all of icov.

    What the neighbours take reaches farther than the fibre's own overlaps, but is small: one diagonal more often does.
    """
    widths = [hw + extra for extra in widen]
    return widths if own + 1 >= hw else [max(own + 1, 2), *widths]


def _steps(excess: float, widths: Sequence[int]) -> int:
    """How many of the wider bands on is the one that will hold: four diagonals make the excess DECAY times smaller.

    widths: those that are left, from the one that was measured on; half a step too few counts as enough.
    """
    if excess <= 1.0:
        return 0
    wanted = widths[0] + 4.0 * math.log(excess, DECAY)
    enough = (n for n in range(1, len(widths)) if widths[n] >= wanted - (widths[n] - widths[n - 1]) / 2)
    return next(enough, len(widths))


def _allowed(facts: Facts, limit: float, times: float = 1.0) -> float:
    """A limit, or so many times what rounding leaves where that is more."""
    return max(limit, times * 40.0 * EPS * facts.cond) if facts.cond < math.inf else limit
