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

from gpu_extract.backend import cpu_banded, cpu_correct, cpu_windows
from gpu_extract.backend.arena import Arena, borrowed
from gpu_extract.cores import wide
from gpu_extract.cores.poles import LADDER, Poles, scaled_poles
from gpu_extract.cores.schur import Limits, Neighbours, Schur
from gpu_extract.cores.wide import WideLimits, WideSchur
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
    Bins of weight 0 get flux = ivar = 0 and no resolution. status: GOOD; WIDE_BAND where the neighbours had to be
    eliminated in a wide band; EMPTY where no bin has weight; FAILED (everything 0) where S is not definite in any
    band or a check failed: decorrelate such fibres with the dense core.
    """
    options, nwave = options or Options(), normal.rhs.shape[1]
    if out is None:
        shape = fibres[1] - fibres[0], len(range(nwave)[bins])
        out = Decorrelated(np.empty(shape), np.empty(shape), np.empty((shape[0], 2 * ndiag + 1, shape[1])),
                           np.empty(shape, dtype=np.int8))
    with borrowed() as arena:
        bundle = _Bundle(normal, x, options, fibres, arena=arena)
        result = arena.take(nwave), arena.take(nwave), arena.take(2 * ndiag + 1, nwave)
        for n, fibre in enumerate(range(*fibres)):
            status = _fibre(result, bundle, x, fibre)
            out.status[n] = status
            for array, found in zip((out.flux, out.ivar, out.resolution), result, strict=True):
                array[n] = 0.0 if status in (Status.EMPTY, Status.FAILED) else found[..., bins]
    return out


class _Bundle:
    """What the fibres of a bundle have in common, made when it is first asked for, and their work space."""

    def __init__(self, normal: Normal, x: Array, options: Options, fibres: tuple[int, int], *, arena: Arena):
        self.normal, self.options, self._x, self._fibres, self._arena = normal, options, x, fibres, arena
        self._columns = np.empty(0)
        self.sides = arena.take(normal.rhs.shape[1], cpu_banded.SIDES)
        self._works: dict[tuple[int, int], tuple[Array, Array]] = {}

    @cached_property
    def neighbours(self) -> Neighbours:
        """Schur complements in the narrow band."""
        neighbours = Neighbours(self.normal, self._x, self.options.limits, self._arena)
        neighbours.prepare(self._fibres)
        return neighbours

    def windows(self, schur: Schur, ndiag: int) -> tuple[IntArray, Array, Array]:
        """A fibre's windows as the kernel takes them."""
        wide = max(schur.band.shape[1] - 1, ndiag)
        if not schur.windows:
            return cpu_windows.NO_WINDOWS
        size = cpu_windows.room([len(matrix) for _, matrix in schur.windows], wide)
        if len(self._columns) < size:
            self._columns = self._arena.take(size)
        return cpu_windows.packed(schur.windows, wide, self._columns)

    def works(self, half: int, ndiag: int) -> tuple[Array, Array]:
        """Output and work arrays of the narrow pole sum."""
        if (half, ndiag) not in self._works:
            nwave = self.normal.rhs.shape[1]
            self._works[half, ndiag] = (self._arena.take(nwave, cpu_banded.out_width(ndiag)),
                                        self._arena.take(cpu_banded.work_size(nwave, half, ndiag)))
        return self._works[half, ndiag]


def _fibre(result: tuple[Array, Array, Array], bundle: _Bundle, x: Array, fibre: int) -> Status:
    """Decorrelate one fibre into `result` (flux, ivar, resolution)."""
    alive = bundle.normal.weight[fibre] > 0
    if not alive.any():
        return Status.EMPTY
    sides = bundle.sides
    sides[:, 0] = alive
    np.multiply(x[fibre], alive, out=sides[:, 1])
    if bundle.normal.halfband <= NARROW:
        schur = bundle.neighbours.complement(fibre)
        if schur.holds and schur.facts.rung is not None:
            poles = scaled_poles(*LADDER[schur.facts.rung], schur.bound)
            out = _narrow(bundle, schur, poles, sides, ndiag=len(result[2]) // 2)
            if _agrees(result, out, sides, schur, poles):
                cpu_correct.correct(result[0], out, sides, schur.rest, poles.weights.sum())
                return Status.GOOD
    broad = wide.complement(bundle.normal.icov, fibre, sides, bundle.options.wide)
    if broad is None:
        return Status.FAILED
    poles = scaled_poles(*LADDER[broad.rung], broad.bound)
    out = wide.pole_sum(broad, poles, sides, len(result[2]) // 2, bundle.options.wide)
    return Status.WIDE_BAND if _agrees(result, out, sides, broad, poles) else Status.FAILED


def _narrow(bundle: _Bundle, schur: Schur, poles: Poles, sides: Array, *, ndiag: int) -> Array:
    """The pole sum of one fibre: (nwave, out_width)."""
    half, ndiag = schur.band.shape[1] - 1, max(ndiag, cpu_correct.HALF)
    out, work = bundle.works(half, ndiag)
    shifts, weights = cpu_banded.aligned(2, len(poles.shifts))
    shifts[:], weights[:] = poles.shifts, poles.weights * poles.shifts
    cpu_banded.pole_sum(half, ndiag)(out, work, schur.band, sides, shifts, weights, bundle.windows(schur, ndiag))
    return out


def _agrees(result: tuple[Array, Array, Array], out: Array, sides: Array, schur: Schur | WideSchur,
            poles: Poles) -> bool:
    """Fill flux, ivar and resolution from a pole sum; whether Q passes the checks against S."""
    disagreement = cpu_banded.finish(result, out, sides, schur.band[:, 0], schur.squares, poles.weights.sum())
    return bool(disagreement <= AGREEMENT)
