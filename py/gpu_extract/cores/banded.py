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

import numpy as np

from gpu_extract.backend import cpu_band_tests, cpu_banded
from gpu_extract.cores.poles import LADDER, scaled_poles
from gpu_extract.cores.schur import Limits, Neighbours, Schur
from gpu_extract.data import Array, Decorrelated, Normal, Status

AGREEMENT = 1e-8    # of the squares of Q with S: 1e-10 from the poles, rounding of 1e-14 times the root of the condition


@dataclass(frozen=True)
class Options:
    """How the banded core works: what it may neglect."""

    limits: Limits = field(default_factory=Limits)


def decorrelate(normal: Normal, x: Array, fibres: tuple[int, int], *, ndiag: int,
                options: Options | None = None) -> Decorrelated:
    """Flux, ivar and resolution of fibres lo .. hi - 1 on all wavelengths of the normal equations.

    x: (nfibre, nwave), the bundle's deconvolved flux. Arrays of the result: (hi - lo, ..., nwave).
    A fibre's result does not depend, to the last bit, on which fibres it is asked for with.
    Bins of weight 0 get flux = ivar = 0 and no resolution. status: GOOD; WIDE_BAND where the neighbours had to be
    eliminated in a wide band; EMPTY where no bin has weight; FAILED (everything 0) where S is not definite in any band or
    a check failed: decorrelate such fibres with the dense core.
    """
    options = options or Options()
    shape = fibres[1] - fibres[0], normal.rhs.shape[1]
    out = Decorrelated(np.zeros(shape), np.zeros(shape), np.empty((shape[0], 2 * ndiag + 1, shape[1])),
                       np.zeros(shape, dtype=np.int8))
    neighbours = Neighbours(normal, options.limits)
    neighbours.prepare(fibres)
    for n, fibre in enumerate(range(*fibres)):
        result = out.flux[n], out.ivar[n], out.resolution[n]
        status = _fibre(result, neighbours, normal.weight[fibre] > 0, x[fibre], fibre)
        out.status[n] = status
        if status in (Status.EMPTY, Status.FAILED):
            for array in result:
                array[:] = 0.0
    return out


def _fibre(result: tuple[Array, Array, Array], neighbours: Neighbours, alive: np.ndarray, x: Array,
           fibre: int) -> Status:
    """Decorrelate one fibre into `result` (flux, ivar, resolution)."""
    if not alive.any():
        return Status.EMPTY
    schur = neighbours.complement(fibre)
    if not schur.holds:
        return Status.FAILED
    sides = np.stack([alive, np.where(alive, x, 0.0)], axis=1).astype(float)
    return Status.GOOD if _narrow(result, schur, sides) else Status.FAILED


def _narrow(result: tuple[Array, Array, Array], schur: Schur, sides: Array) -> bool:
    """The pole sum of one fibre; False where a check failed."""
    half, ndiag, nwave = schur.band.shape[1] - 1, len(result[2]) // 2, len(sides)
    assert schur.facts.rung is not None
    poles = scaled_poles(*LADDER[schur.facts.rung], schur.bound)
    shifts, weights = cpu_banded.aligned(2, len(poles.shifts))
    shifts[:], weights[:] = poles.shifts, poles.weights * poles.shifts
    out = cpu_banded.aligned(nwave, cpu_banded.out_width(ndiag))
    work = cpu_banded.aligned(cpu_banded.work_size(nwave, half, ndiag))
    cpu_banded.pole_sum(half, ndiag)(out, work, schur.band, sides, shifts, weights)
    made = np.array(cpu_banded.finish(result, out, sides, poles.weights.sum()))
    wanted = np.array(cpu_band_tests.squares(schur.band, sides))
    scale = np.array([wanted[0], np.sqrt(wanted[0] * wanted[2]), wanted[2]])
    agrees = np.all(np.abs(made - wanted) <= AGREEMENT * scale)
    return bool(agrees and cpu_banded.excess(out, schur.band, ndiag) <= AGREEMENT)
