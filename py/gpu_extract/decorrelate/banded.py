"""The banded core: whole fibres are decorrelated at once, without patches or pads (doc/method-banded.md).

For fibre i the Schur complement S_i = C_ii^-1 of icov is a band matrix (schur.py), and its square root Q_i a sum
over a few poles (poles.py): each takes one band factorisation, solutions for the right-hand sides 1 and x_i, and the
elements of an inverse on the diagonals that the resolution needs. s = Q_i 1, flux = Q_i x_i / s, ivar = s^2, R_i =
diag(1/s) Q_i (B&S eq. 10-19).

Errors, relative to the exact Q_i of the whole bundle: the poles 1e-10; the truncation of S_i, see limits.Limits
(measured for each fibre); rounding, 1e-15 times the condition number of S_i.

Three checks follow every fibre. A failure gives Status.FAILED, never a silent wrong number: Q is finite; the squares
1'QQ1, 1'QQx and x'QQx agree with those of S to 1e-8 (the noise in Q x is white, so x probes the whole spectrum evenly);
for no bin does the sum of squares over the stored diagonals of Q exceed S_jj.
"""
from dataclasses import dataclass, field, replace
from itertools import compress, groupby

import numpy as np

from gpu_extract.data import FACTS, NOT_MEASURED, Array, Decorrelated, Normal, Status
from gpu_extract.decorrelate import room_for, wide
from gpu_extract.decorrelate.limits import Limits, WideLimits
from gpu_extract.decorrelate.narrow import simd_banded, simd_correct, simd_finish
from gpu_extract.decorrelate.narrow.measure import Schur
from gpu_extract.decorrelate.narrow.remainder import add_remainders, remainders
from gpu_extract.decorrelate.narrow.schur import Neighbours
from gpu_extract.decorrelate.poles import LADDER, scaled_poles
from gpu_extract.decorrelate.weak import SAFE, band_tells
from gpu_extract.decorrelate.windows import simd_windows
from gpu_extract.kernels.arena import Arena, borrowed

AGREEMENT = 1e-8    # of the squares of Q with S: 1e-10 from the poles, rounding 1e-14 sqrt(condition)
OF_CUT = 0.1        # of Limits.added, where the tail holds bin by bin only: such bounds are nearer to it
NARROW = 16         # largest half-band of icov for which the narrow band is tried: kernels are unrolled for each


@dataclass(frozen=True)
class Options:
    """Settings of the banded core: what it may neglect in the narrow band and in the wide band."""

    limits: Limits = field(default_factory=Limits)
    wide: WideLimits = field(default_factory=WideLimits)


def decorrelate(normal: Normal, x: Array, fibres: tuple[int, int], *, ndiag: int, options: Options | None = None,
                bins: slice = slice(None), out: Decorrelated | None = None) -> Decorrelated:
    """Flux, ivar and resolution of fibres lo .. hi - 1 on all wavelengths of the normal equations.

    x: (nfibre, nwave), the bundle's deconvolved flux. Arrays of the result: (hi - lo, ..., nwave), or `bins` of them;
    out: where to write it, each array with the fibres and bins requested.
    A fibre's result does not depend, to the last bit, on the other fibres requested. Requesting many at once is
    cheaper, because neighbours share most of the work on their coupling.
    bins: without a step. Bins of weight 0 get flux = ivar = 0 and no resolution. status: GOOD; WIDE_BAND where the
    neighbours had to be eliminated in a wide band; EMPTY where no bin has weight; FAILED (everything 0) where S is not
    definite in any band, bins may be weak (weak.py) or a check failed: decorrelate such fibres with the dense core.
    """
    options, nwave = options or Options(), normal.rhs.shape[1]
    options = replace(options, limits=replace(options.limits, ndiag=ndiag))
    if out is None:
        out = room_for(fibres[1] - fibres[0], len(range(nwave)[bins]), ndiag)
    first = bins.indices(nwave)[0]
    out.weak[:] = False
    with borrowed() as arena:
        bundle = _Bundle(normal, x, options, fibres, ndiag=max(ndiag, simd_correct.HALF), arena=arena)
        status = [Status.FAILED if alive else Status.EMPTY for alive in bundle.alive]
        bundle.give_up_near_lifted()
        if normal.halfband <= NARROW and any(bundle.sound):
            for n in bundle.narrow((out.flux, out.ivar, out.resolution), bins):
                status[n] = Status.GOOD
        for n, state in enumerate(status):
            result = out.flux[n], out.ivar[n], out.resolution[n]
            if state is Status.FAILED and bundle.sound[n] and bundle.broad(result, n, first):
                status[n] = Status.WIDE_BAND
            elif state is not Status.GOOD:
                for array in result:
                    array[:] = 0.0
    out.status[:] = np.array(status, dtype=np.int8)[:, None]
    if len(out.facts):
        out.facts[:] = bundle.facts
    return out


def _rung(of: tuple[int, Schur]) -> int:
    """The rung of a fibre's poles."""
    return of[1].facts.rung or 0


class _Bundle:
    """Data shared by fibres lo .. hi - 1 of a bundle, and their scratch memory; here they are numbered from 0.

    alive: whether a fibre has any weight; sound: whether its band may also hold
    sides: (n, nwave, SIDES), their right-hand sides: 1 and x, 0 without weight
    facts: see data.Decorrelated, of the completed fibres
    """

    def __init__(self, normal: Normal, x: Array, options: Options, fibres: tuple[int, int], *, ndiag: int,
                 arena: Arena):
        self.normal, self.options, self.ndiag = normal, options, ndiag
        self._x, self._fibres, self._arena = x, fibres, arena
        weight = normal.weight[slice(*fibres)]
        self.sides = arena.take(*weight.shape, simd_banded.SIDES)
        self.alive = simd_banded.right_sides(self.sides, weight, x[slice(*fibres)]).tolist()
        self.facts = np.full((len(self.sides), len(FACTS)), NOT_MEASURED)

    def give_up_near_lifted(self) -> None:
        """Leave fibres that lost directions may affect to the dense core, which examines their effect."""
        lifted, reach = self.normal.lifted, self.normal.icov.shape[1] - 1
        self.sound = [alive and not (lifted is not None and lifted[max(i - reach, 0):i + reach + 1].any())
                      for i, alive in enumerate(self.alive, self._fibres[0])]

    def narrow(self, result: tuple[Array, Array, Array], bins: slice) -> list[int]:
        """Decorrelate those fibres for which the narrow band holds into `result` (flux, ivar, resolution); return them.

        bins: those that are requested
        """
        first = bins.indices(self.sides.shape[1])[0]
        neighbours = Neighbours(self.normal, self._x, self.options.limits, self._arena, bins)
        neighbours.prepare(self._fibres)
        # preparation comes first: between kernels that fill the caches it takes several times as long
        groups: dict[int, list[tuple[int, Schur]]] = {}
        for n in compress(range(len(self.alive)), self.sound):
            schur = neighbours.complement(self._fibres[0] + n)
            if schur.holds and self._tells(n, schur):         # as one of the rungs does
                groups.setdefault(id(schur.room), []).append((n, schur))
        much = [(n, self._fibres[0] + n, schur) for group in groups.values() for n, schur in group
                if not schur.little or schur.tail > self.options.limits.plain]
        beyond = remainders(neighbours, much) if much else None
        nwave, wide = self.sides.shape[1], max((group[0][1].room.half for group in groups.values()), default=0)
        made = self._arena.take(len(self.sides), nwave, simd_banded.out_width(self.ndiag))
        work = self._arena.take(simd_banded.work_size(nwave, wide, self.ndiag))
        good = [n for group in groups.values() for n in self._sum(result, (made, work), first, group)]
        if not good:
            return good
        plain, work = result[0].copy(), self._arena.take(simd_correct.work_size(nwave))
        simd_correct.correct(result[0], made, work, np.array(good), first)
        if beyond is not None:
            shares = add_remainders(result, plain, made, self.sides, beyond.only(good), first, self._arena)
            most = {n: self._most_share(schur) for n, _, schur in much}
            broken = [n for n, share in shares.items() if share > most[n]]
            self.facts[broken] = NOT_MEASURED       # a few elements beyond the band that do not fall off
            good = [n for n in good if n not in broken]
        return good

    def _most_share(self, schur: Schur) -> float:
        """How much a fibre's band may move s."""
        limits = self.options.limits
        return limits.share if schur.tail <= limits.plain else limits.added * (OF_CUT if schur.excess > 1.0 else 1.0)

    def _sum(self, result: tuple[Array, Array, Array], places: tuple[Array, Array], first: int,
             group: list[tuple[int, Schur]]) -> list[int]:
        """The pole sums of fibres with one width of band, and the results from them, without corrections of the flux.

        places: (n, nwave, out_width) for the sums, and scratch memory. Returns the numbers of the fibres that pass.
        """
        (made, work), room, count = places, group[0][1].room, len(group)
        group = sorted(group, key=_rung)
        poles = [scaled_poles(*LADDER[rung], np.array([schur.bound for _, schur in some])[:, None])
                 for rung, some in groupby(group, _rung)]
        ends = np.cumsum([0, *(each.shifts.shape[1] for each in poles for _ in each.shifts)])
        pairs = self._arena.take(2, int(ends[-1]))
        np.concatenate([each.shifts.ravel() for each in poles], out=pairs[0])
        np.multiply(pairs[0], np.concatenate([each.weights.ravel() for each in poles]), out=pairs[1])
        inside, wide = [schur.windows for _, schur in group], max(room.half, self.ndiag)
        size = max(simd_windows.room([len(matrix) for _, matrix in some], wide) for some in inside)
        windows, edges = simd_windows.packed(inside, wide, self._arena.take(size))
        fibres = np.empty((count, 6), dtype=np.int64)
        fibres[:, :2] = [(n, schur.place) for n, schur in group]
        fibres[:, 2], fibres[:, 3], fibres[:, 4], fibres[:, 5] = ends[:-1], ends[1:], edges[:-1], edges[1:]
        scales = np.empty((count, 4))
        scales[:, 0] = np.concatenate([each.weights.sum(axis=1) for each in poles])
        scales[:, 1:] = [schur.squares for _, schur in group]
        simd_banded.pole_sum(room.half, self.ndiag)(made, work, room.bands, self.sides, (pairs[0], pairs[1]), windows,
                                                   fibres)
        disagreement = simd_finish.finish_narrow(result, made, self.sides, (room.diagonals, room.rests), scales,
                                                (work, fibres, first))
        passed = disagreement <= AGREEMENT
        good: list[int] = fibres[passed, 0].tolist()
        self.facts[good] = np.column_stack([[schur.facts.cond for _, schur in group], disagreement])[passed]
        return good

    def broad(self, result: tuple[Array, Array, Array], n: int, first: int) -> bool:
        """Decorrelate a fibre in the wide band into `result` (flux, ivar, resolution); return whether it holds."""
        sides, limits, ndiag = self.sides[n], self.options.wide, len(result[2]) // 2
        schur = wide.complement(self.normal.icov, self._fibres[0] + n, sides, limits)
        if schur is None or not band_tells(schur.band, self._diagonal(n)):
            return False
        poles = scaled_poles(*LADDER[schur.rung], schur.bound)
        made = wide.pole_sum(schur, poles, sides, ndiag, limits)
        work, scale = np.empty(simd_finish.work_size(len(sides), ndiag)), (float(poles.weights.sum()), first)
        disagreement = simd_finish.finish(result, made, work, sides, schur.band[:, 0], schur.squares, scale)
        if disagreement <= AGREEMENT:
            self.facts[n] = schur.cond, disagreement
        return bool(disagreement <= AGREEMENT)

    def _tells(self, n: int, schur: Schur) -> bool:
        """Whether no bin of a fibre is weak; in windows S may be rounding of icov that the facts do not cover."""
        diagonal = self._diagonal(n)
        lost = any((block.diagonal() < SAFE * diagonal[first:first + len(block)]).any()
                   for first, block in schur.windows)
        return not (lost or schur.facts.may_be_weak) or band_tells(schur.band, diagonal)

    def _diagonal(self, n: int) -> Array:
        """The diagonal of icov."""
        return self.normal.icov[self._fibres[0] + n, 0, :, self.normal.halfband]
