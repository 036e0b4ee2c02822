"""The banded core: whole fibres decorrelated at once, without a patch or a pad.

For fibre i the Schur complement S_i = C_ii^-1 of icov is a band matrix (schur.py), and its square root Q_i a sum
over a few poles t_k > 0 (poles.py)

    Q_i = S_i^(1/2) ~ sum_k c_k (I - t_k (S_i + t_k I)^-1),

each of them one band factorisation, solutions for the right sides 1 and x_i, and the entries of an inverse on the
diagonals that the resolution wants. s = Q_i 1, flux = Q_i x_i / s, ivar = s^2, R_i = diag(1/s) Q_i (B&S eq. 10-19).

Errors, relative to the exact Q_i of the whole bundle: the poles 1e-10; what S_i leaves out, see schur.Limits
(measured for each fibre); rounding, 1e-15 times the condition number of S_i.

Three checks follow every fibre and end in Status.FAILED, never in a silent wrong number: Q is finite; the squares
1'QQ1, 1'QQx and x'QQx agree with those of S to 1e-8 (the noise in Q x is white, so that x probes every part of the
spectrum alike); no bin's sum of squares over the stored diagonals of Q exceeds its S_jj.
"""
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gpu_extract.backend import cpu_banded, cpu_correct, cpu_finish, cpu_windows
from gpu_extract.backend.arena import Arena, borrowed
from gpu_extract.cores import wide
from gpu_extract.cores.poles import LADDER, scaled_poles
from gpu_extract.cores.schur import Limits, Neighbours, Schur
from gpu_extract.cores.wide import WideLimits
from gpu_extract.data import Array, Decorrelated, IntArray, Normal, Status

AGREEMENT = 1e-8    # of the squares of Q with S: 1e-10 from the poles, rounding 1e-14 sqrt(condition)


NARROW = 16         # icov's half-band up to which the narrow band is tried: its kernels are written out, band by band


@dataclass(frozen=True)
class Options:
    """How the banded core works: what it may neglect in the narrow band, and in the wide one."""

    limits: Limits = field(default_factory=Limits)
    wide: WideLimits = field(default_factory=WideLimits)


def decorrelate(normal: Normal, x: Array, fibres: tuple[int, int], *, ndiag: int, options: Options | None = None,
                bins: slice = slice(None), out: Decorrelated | None = None) -> Decorrelated:
    """Flux, ivar and resolution of fibres lo .. hi - 1 on all wavelengths of the normal equations.

    x: (nfibre, nwave), the bundle's deconvolved flux. Arrays of the result: (hi - lo, ..., nwave), or `bins` of them;
    out: where it is to be written, each array with the fibres and bins that are asked for.
    A fibre's result does not depend, to the last bit, on which fibres it is asked for with; to ask for many at
    once is cheaper, since neighbours share most of the work on their coupling.
    bins: without a step. Bins of weight 0 get flux = ivar = 0 and no resolution. status: GOOD; WIDE_BAND where the
    neighbours had to be eliminated in a wide band; EMPTY where no bin has weight; FAILED (everything 0) where S is not
    definite in any band or a check failed: decorrelate such fibres with the dense core.
    """
    options, nwave = options or Options(), normal.rhs.shape[1]
    if out is None:
        shape = fibres[1] - fibres[0], len(range(nwave)[bins])
        out = Decorrelated(np.empty(shape), np.empty(shape), np.empty((shape[0], 2 * ndiag + 1, shape[1])),
                           np.empty(shape, dtype=np.int8))
    with borrowed() as arena:
        bundle = _Bundle(normal, x, options, fibres, ndiag=ndiag, first=bins.indices(nwave)[0],
                         arena=arena)
        # all is got ready first: between kernels that fill the caches the same takes several times as long
        ready = [bundle.ready(fibre) for fibre in range(*fibres)]
        narrow = []
        for n, fibre in enumerate(range(*fibres)):
            result = out.flux[n], out.ivar[n], out.resolution[n]
            status = _fibre(result, bundle, ready[n], fibre) if bundle.alive[n] else Status.EMPTY
            out.status[n] = int(status)
            if status is Status.GOOD:
                narrow.append(n)
            elif status is not Status.WIDE_BAND:
                for array in result:
                    array[:] = 0.0
        bundle.correct(out.flux, narrow)
    return out


@dataclass(frozen=True)
class _Ready:
    """A fibre's Schur complement in the narrow band, and the pole sum's arguments; total: of the poles' weights."""

    schur: Schur
    total: float
    shifts: Array
    weights: Array
    windows: tuple[IntArray, Array, Array]


class _Bundle:
    """What the fibres of a bundle have in common, made when it is first asked for, and their work space.

    alive: whether a fibre has any weight; first: of the bins that are wanted
    """

    def __init__(self, normal: Normal, x: Array, options: Options, fibres: tuple[int, int], *, ndiag: int, first: int,
                 arena: Arena):
        self.normal, self.options, self.first, self._x, self._fibres = normal, options, first, x, fibres
        self.ndiag = max(ndiag, cpu_correct.HALF)
        self._arena, self._columns = arena, np.empty(0)
        lit = np.greater(normal.weight[slice(*fibres)], 0.0)
        self.alive = np.any(lit, axis=1, keepdims=True)[:, 0].tolist()
        self._sides = arena.take(*lit.shape, cpu_banded.SIDES)
        self._sides[..., 0], self._sides[..., 1] = lit, np.where(lit, x[slice(*fibres)], 0.0)
        self._sums = arena.take(*lit.shape, cpu_banded.out_width(self.ndiag))
        self._works: dict[int, Array] = {}

    def sides(self, fibre: int) -> Array:
        """(nwave, SIDES), a fibre's right sides: 1 and x, 0 without weight."""
        sides: Array = self._sides[fibre - self._fibres[0]]
        return sides

    def ready(self, fibre: int) -> _Ready | None:
        """A fibre in the narrow band, where that holds."""
        if self.normal.halfband > NARROW or not self.alive[fibre - self._fibres[0]]:
            return None
        schur = self.neighbours.complement(fibre)
        if not schur.holds or schur.facts.rung is None:
            return None
        poles = scaled_poles(*LADDER[schur.facts.rung], schur.bound)
        shifts, weights = self._arena.take(2, len(poles.shifts))
        shifts[:] = poles.shifts
        np.multiply(poles.weights, poles.shifts, out=weights)
        return _Ready(schur, float(poles.weights.sum()), shifts, weights, self._windows(schur))

    @cached_property
    def neighbours(self) -> Neighbours:
        """Schur complements in the narrow band."""
        neighbours = Neighbours(self.normal, self._x, self.options.limits, self._arena)
        neighbours.prepare(self._fibres)
        return neighbours

    def _windows(self, schur: Schur) -> tuple[IntArray, Array, Array]:
        """A fibre's windows as the kernel takes them."""
        wide = max(schur.band.shape[1] - 1, self.ndiag)
        if not schur.windows:
            return cpu_windows.NO_WINDOWS
        size = cpu_windows.room([len(matrix) for _, matrix in schur.windows], wide)
        if len(self._columns) < size:
            self._columns = self._arena.take(size)
        return cpu_windows.packed(schur.windows, wide, self._columns)

    def pole_sum(self, fibre: int, ready: _Ready) -> tuple[Array, Array]:
        """The narrow pole sum of one fibre, (nwave, out_width), and work space that is free again."""
        half = ready.schur.band.shape[1] - 1
        if half not in self._works:
            self._works[half] = self._arena.take(cpu_banded.work_size(len(ready.schur.band), half, self.ndiag))
        out, work = self._sums[fibre - self._fibres[0]], self._works[half]
        kernel = cpu_banded.pole_sum(half, self.ndiag)
        kernel(out, work, ready.schur.band, self.sides(fibre), ready.shifts, ready.weights, ready.windows)
        return out, work

    def correct(self, flux: Array, narrow: list[int]) -> None:
        """Correct the flux of those fibres that the narrow band has done for what it cuts off."""
        if narrow:
            work = self._arena.take(cpu_correct.work_size(self._sums.shape[1]))
            cpu_correct.correct(flux, self._sums, work, np.array(narrow), self.first)


def _fibre(result: tuple[Array, Array, Array], bundle: _Bundle, ready: _Ready | None, fibre: int) -> Status:
    """Decorrelate one fibre into `result` (flux, ivar, resolution), whose flux is still to be corrected where GOOD."""
    sides = bundle.sides(fibre)
    if ready is not None:
        out, work = bundle.pole_sum(fibre, ready)
        schur, scale = ready.schur, (ready.total, bundle.first)
        if cpu_finish.finish(result, out, work, sides, schur.band[:, 0], schur.squares, scale) <= AGREEMENT:
            out[:, 1] = schur.rest
            return Status.GOOD
    broad = wide.complement(bundle.normal.icov, fibre, sides, bundle.options.wide)
    if broad is None:
        return Status.FAILED
    ndiag = len(result[2]) // 2
    poles = scaled_poles(*LADDER[broad.rung], broad.bound)
    out = wide.pole_sum(broad, poles, sides, ndiag, bundle.options.wide)
    work = np.empty(cpu_finish.work_size(len(sides), ndiag))
    scale = float(poles.weights.sum()), bundle.first
    agrees = cpu_finish.finish(result, out, work, sides, broad.band[:, 0], broad.squares, scale) <= AGREEMENT
    return Status.WIDE_BAND if agrees else Status.FAILED
