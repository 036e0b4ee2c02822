"""The Schur complement of a fibre: S_i = C_ii^-1, made from icov without inverting anything large.

Eliminating all other fibres leaves S_i = A_ii - sum_j A_ij (A_jj - ...)^-1 A_ji. With the coupling between
fibres theta (the largest eigenvalue of A_ii^-1 A_ij A_jj^-1 A_ji, so a correlation squared: 1e-7 to 1e-6 on DESI
PSFs, 5e-2 beside a masked block), what the dots stand for changes S_i by theta_i theta_j in its own norm: left out
where that is below `Limits.coupling`, else fibre j is eliminated together with what its own neighbours beyond it
left of it, and so on outwards until it no longer matters. For couplings to next neighbours alone that is exact.

All of it stays in a band. What the band cuts off, what farther neighbours and their coupling among each other
would change, and the extent of the spectrum are measured for every fibre; the facts decide (see `Schur.holds`).
"""
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpu_extract.backend import cpu_band_tests, cpu_eliminate, cpu_schur
from gpu_extract.cores.definite import FAR, Facts, ask, examine
from gpu_extract.cores.poles import LADDER
from gpu_extract.data import Array, Normal

WORST = 1e-5       # a spectrum of the scaled S that is not expected to be worse, for the quickest of the bounds


@dataclass(frozen=True)
class Limits:
    """What may be left out of S, relative to S in its own norm (an error e there moves ivar by less than e).

    coupling: terms of higher order; distant: fibres whose bound on the coupling is below its root are not eliminated
    tail: what the band cuts off (it acts on what no spectrum holds: it moves flux by 0.2 tail sigma, ivar by 0.01 tail)
    widen: diagonals added to icov's half-band where the tail is too large
    """

    coupling: float = 1e-10
    distant: float = 1e-8
    tail: float = 3e-6
    widen: tuple[int, ...] = (0, 4, 8)


@dataclass(frozen=True)
class Schur:
    """S_i of a fibre.

    band: (nwave, half + 1), band[j, a] = S[j, j + a]; bins of weight 0 are decoupled and hold `bound`
    bound: on the largest eigenvalue; facts: see Facts; error: bound on what is left out, in S's own norm
    holds: whether that is within the limits and S is positive definite
    """

    band: Array
    bound: float
    facts: Facts
    error: float
    holds: bool


@dataclass(frozen=True)
class _Measured:
    band: Array
    bound: float
    facts: Facts
    tail: float


class Neighbours:
    """Makes the Schur complements of the fibres of a bundle, and remembers what they share.

    What it makes for a fibre depends on the normal equations alone, not on which fibres are asked for.
    """

    def __init__(self, normal: Normal, limits: Limits):
        self.icov, self.limits, self.hw = normal.icov, limits, normal.halfband
        self.nfibre, self.nwave = normal.rhs.shape
        self._roots = np.empty((self.nfibre, self.nwave + 2 * self.hw))
        cpu_band_tests.inverse_roots(self._roots, self.icov)
        self._coupled: dict[tuple[int, int], float] = {}
        self._outermost: dict[int, float] = {}
        self._direct: dict[tuple[int, int], Array] = {}
        self._chains: dict[tuple[int, int, int], Array] = {}
        self._first: dict[int, _Measured] = {}
        self._beyond: dict[int, float] = {}
        self._nothing = np.zeros((self.nwave, cpu_schur.padded(self.hw + max(limits.widen))))

    def prepare(self, fibres: tuple[int, int]) -> None:
        """Eliminate, four at a time, all fibres that fibres lo .. hi - 1 will ask for as a rule."""
        reach = 2 * max(self._distances())
        self._eliminate(range(max(fibres[0] - reach, 0), min(fibres[1] + reach, self.nfibre)))

    def complement(self, fibre: int) -> Schur:
        """S of one fibre, in the narrowest of the bands of `Limits` that hold it."""
        measured = self._at_first(fibre)
        chained = any(self._chained(j, fibre) for j in self._eliminated(fibre))
        for extra in self.limits.widen[1:]:
            if not chained and measured.tail <= self._allowed(measured.facts, self.limits.tail):
                break
            measured, chained = self._measure(fibre, self.hw + extra), False
        facts = measured.facts
        error = self._higher_orders(fibre, facts)
        holds = (facts.rung is not None and error <= self._allowed(facts, self.limits.coupling)
                 and measured.tail <= self._allowed(facts, self.limits.tail))
        return Schur(measured.band, measured.bound, facts, error + measured.tail, holds)

    def _allowed(self, facts: Facts, limit: float) -> float:
        """A limit, or what rounding leaves where that is more."""
        ratio = LADDER[facts.rung][1] if facts.rung is not None else 1.0
        return max(limit, 40.0 * float(np.finfo(float).eps) * ratio)

    def _distances(self) -> list[int]:
        """Distances of fibres that are eliminated somewhere in the bundle."""
        far = [d for d in range(2, self.icov.shape[1])
               if any(self._coupling(i, i + d) > self.limits.distant for i in range(self.nfibre - d))]
        return [1, *far]

    def _coupling(self, i: int, j: int) -> float:
        """A bound on the coupling of two fibres with all diagonals scaled to 1 (not yet that in S's norm)."""
        key = min(i, j), max(i, j)
        if key[1] - key[0] >= self.icov.shape[1]:
            return 0.0
        if key not in self._coupled:
            self._coupled[key] = cpu_band_tests.largest_coupling(self.icov, key[0], key[1] - key[0], self._roots)
        return self._coupled[key]

    def _eliminated(self, fibre: int) -> list[int]:
        """The fibres that are eliminated for one: its next neighbours, and others with a coupling that counts."""
        return [j for j in self._around(fibre, 1)
                if abs(j - fibre) == 1 or self._coupling(fibre, j) > self.limits.distant]

    def _eliminate(self, fibres: Sequence[int]) -> None:
        """Fill `_direct` with what eliminating each of `fibres` as it stands takes from those around it."""
        lanes = cpu_schur.LANES
        distances = np.array([side * d for d in self._distances() for side in (-1, 1)])
        padded = np.array([*fibres, *[fibres[-1]] * (-len(fibres) % lanes)])
        half = self.hw + self.limits.widen[0]
        taken = np.empty((len(padded), len(distances), self.nwave, cpu_schur.padded(half)))
        work = cpu_schur.coupling_work(self.nwave, self.hw, half, len(distances))
        cpu_schur.coupling(self.hw, half)(taken, self.icov, padded, distances, *work)
        for n, j in enumerate(fibres):
            for e, d in enumerate(distances):
                self._direct[j, j + int(d)] = taken[n, e]

    def _at_first(self, fibre: int) -> _Measured:
        """S to second order in the coupling, in the narrowest band."""
        if fibre not in self._first:
            for j in self._eliminated(fibre):
                if (j, fibre) not in self._direct:
                    self._eliminate([j])
            shares = [self._direct[j, fibre] for j in self._eliminated(fibre)]
            self._first[fibre] = self._assemble(fibre, shares, self.hw + self.limits.widen[0])
        return self._first[fibre]

    def _measure(self, fibre: int, half: int) -> _Measured:
        """S to all orders that count, with `half` diagonals."""
        return self._assemble(fibre, [self._share(j, fibre, half) for j in self._eliminated(fibre)], half)

    def _chained(self, j: int, fibre: int) -> bool:
        """Whether fibre j is eliminated for `fibre` together with what the fibre beyond it took from it."""
        beyond = 2 * j - fibre
        if abs(j - fibre) > 1 or not 0 <= beyond < self.nfibre:
            return False
        return self._at_first(fibre).facts.theta * self._at_first(j).facts.theta > 1.01 * self.limits.coupling

    def _share(self, j: int, fibre: int, half: int) -> Array:
        """What eliminating fibre j takes from `fibre`: (nwave, half + 1)."""
        key = j, fibre, half
        if key not in self._chains:
            band = np.ascontiguousarray(self.icov[j, 0, :, self.hw:])
            if self._chained(j, fibre):
                own, band = band, -self._share(2 * j - fibre, j, half)
                band[:, :self.hw + 1] += own
            self._chains[key] = np.empty((self.nwave, half + 1))
            cpu_eliminate.eliminate(self._chains[key], band, self._block(fibre, j))
        return self._chains[key]

    def _block(self, i: int, j: int) -> Array:
        """A_ij: (nwave, 2 hw + 1), element [p, hw + k] couples bin p of fibre i with bin p + k of fibre j."""
        if i < j:
            return self.icov[i, j - i]
        block = np.zeros((self.nwave, 2 * self.hw + 1))
        reach = min(self.hw, self.nwave - 1)
        for k in range(-reach, reach + 1):
            first, last = max(0, -k), self.nwave - max(0, k)
            block[first:last, self.hw + k] = self.icov[j, i - j, first + k:last + k, self.hw - k]
        return block

    def _assemble(self, fibre: int, shares: Sequence[Array], half: int) -> _Measured:
        """S from what each eliminated fibre takes, and what is to be known about it."""
        sides = [*shares[:2], *[self._nothing] * (2 - len(shares))]
        if len(shares) > 2:
            sides[1] = np.sum([share[:, :half + 1] for share in shares[1:]], axis=0)
        band, taken = np.empty((self.nwave, half + 1)), np.empty((self.nwave, half + 1))
        bound = cpu_band_tests.assemble(band, taken, self.icov, fibre, *sides)
        facts = examine(band, taken, bound)
        last = cpu_band_tests.last_diagonal(taken, self._roots[fibre])
        return _Measured(band, bound, facts, 4.0 * last / facts.gamma if facts.gamma > 0 else np.inf)

    def _higher_orders(self, fibre: int, facts: Facts) -> float:
        """A bound on what couplings to farther fibres change that were not, or not fully, taken into account.

        Those that are not eliminated change S by their square; any of them together with two couplings to next
        neighbours by the product of the three, and there are six such products.
        """
        near = [i for i in range(fibre - 1, fibre + 2) if 0 <= i < self.nfibre]
        theta = float(np.sqrt(facts.theta * max(self._at_first(i).facts.theta for i in near)))
        size = max(self._farthest(i) for i in near) / WORST
        if 6.0 * theta * size + size**2 <= 0.1 * self.limits.coupling:
            return 6.0 * theta * size + size**2
        sizes = {(i, j): self._far(i, j, facts) for i in near for j in self._around(i, 2)}
        second = sum(size**2 for (i, j), size in sizes.items()
                     if i == fibre and self._coupling(i, j) <= self.limits.distant)
        return second + 6.0 * theta * max(sizes.values(), default=0.0)

    def _around(self, fibre: int, first: int) -> list[int]:
        """Fibres at distances first .. that icov couples to `fibre`."""
        distances = range(first, self.icov.shape[1])
        return [j for d in distances for j in (fibre - d, fibre + d) if 0 <= j < self.nfibre]

    def _farthest(self, fibre: int) -> float:
        """The largest coupling to fibres that are not next to it (diagonals scaled to 1)."""
        if fibre not in self._outermost:
            self._outermost[fibre] = max((self._coupling(fibre, j) for j in self._around(fibre, 2)), default=0.0)
        return self._outermost[fibre]

    def _far(self, i: int, j: int, facts: Facts) -> float:
        """A bound on the coupling (not squared) of two fibres that are not next to each other, in the norm of S."""
        if self._coupling(i, j) > self.limits.distant:
            return float(np.sqrt(self._far_theta(i)))
        gamma = min(facts.gamma, self._at_first(i).facts.gamma, self._at_first(j).facts.gamma)
        return self._coupling(i, j) / max(gamma, 1e-300)

    def _far_theta(self, fibre: int) -> float:
        """The coupling (squared) of a fibre to those farther than the next that are eliminated for it."""
        if fibre not in self._beyond:
            shares = [self._direct[j, fibre] for j in self._eliminated(fibre) if abs(j - fibre) > 1]
            band = self._at_first(fibre).band
            taken = np.ascontiguousarray(np.sum(shares, axis=0)[:, :band.shape[1]])
            self._beyond[fibre] = ask(band, taken, self._at_first(fibre).bound, FAR).theta
        return self._beyond[fibre]
