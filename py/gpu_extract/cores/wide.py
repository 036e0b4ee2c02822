"""The wide band: fibres whose neighbours reach far, for broad PSFs with strong tails.

Where the coupling between fibres is per cents, eliminating next neighbours one by one does not hold. Here the
neighbours on both sides are eliminated together, ordered by wavelength, by a block Cholesky that all of BLAS works
for; what they leave of S_i decays over several half-bands of icov, and is kept as far as the measured decay asks.
How many neighbours count is measured on two short stretches of the bundle's middle fibre, once per bundle.
"""
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, eigh, lapack

from gpu_extract.backend import cpu_wide, cpu_wide_poles
from gpu_extract.backend.cpu_banded import LANES, SIDES
from gpu_extract.cores.poles import LADDER, Poles
from gpu_extract.data import Array

MOST_NEIGHBOURS = 8


@dataclass(frozen=True)
class WideLimits:
    """What the wide band may leave out.

    neighbours: change of S by the next neighbour that is not eliminated, relative in S's own norm
    tail: what the band cuts off, relative to the smallest eigenvalue S may have (moves flux by 0.002 tail sigma)
    pole: what a group of poles may cut off the band more, relative to its smallest shift
    widths: half-bands of S to try, in half-bands of icov
    """

    neighbours: float = 1e-7
    tail: float = 5e-5
    pole: float = 1e-7
    widths: tuple[float, ...] = (4.6, 6.0, 8.0)


@dataclass(frozen=True)
class WideSchur:
    """S_i in a wide band: (nwave, half + 1) rows of the upper triangle, a bound on its largest eigenvalue, its rung.

    tail: what the band cuts off, relative to the smallest eigenvalue of the rung
    """

    band: Array
    bound: float
    rung: int
    tail: float


def count_neighbours(icov: Array, limits: WideLimits) -> int:
    """How many neighbours on each side matter, measured in the middle of a bundle; 0 where that cannot be told."""
    nfibre, _, nwave, width = icov.shape
    middle, size = nfibre // 2, min(nwave, max(width, 32))
    most = min(MOST_NEIGHBOURS, max(middle, nfibre - 1 - middle))
    starts = sorted({(nwave - size) // 3, 2 * (nwave - size) // 3})
    wanted = [_count(icov, middle, (start, size), limits.neighbours, most) for start in starts]
    return 0 if 0 in wanted else max(wanted)


def _count(icov: Array, fibre: int, stretch: tuple[int, int], limit: float, most: int) -> int:
    """The first number of neighbours at which one more changes S, on a stretch of bins, by less than `limit`."""
    last = None
    for n in range(1, most + 1):
        s = _dense_complement(icov, fibre, stretch, n)
        if s is None:
            return 0
        if last is not None:
            try:
                change = eigh(last - s, s, eigvals_only=True)
            except LinAlgError:
                return 0
            if np.abs(change).max() <= limit:
                return n - 1
        last = s
    return most


def _dense_complement(icov: Array, fibre: int, stretch: tuple[int, int], n: int) -> Array | None:
    start, size = stretch
    around = [j for j in range(fibre - n, fibre + n + 1) if 0 <= j < len(icov) and j != fibre]
    fibres = np.array([*around, fibre])
    matrix = np.empty((len(fibres) * size,) * 2, order="F")
    cpu_wide.fill(matrix, icov[:, :, start:start + size], fibres, fibres, (0, 0))
    factor, info = lapack.dpotrf(matrix, lower=1, clean=1, overwrite_a=1)
    last = factor[-size:, -size:]
    return last @ last.T if info == 0 else None


def complement(icov: Array, fibre: int, neighbours: int, limits: WideLimits) -> WideSchur | None:
    """S of one fibre, or None where no width holds it or it is not positive definite."""
    nfibre, _, nwave, width = icov.shape
    hw = width // 2
    others = np.array([j for j in range(fibre - neighbours, fibre + neighbours + 1) if 0 <= j < nfibre and j != fibre])
    for factor in limits.widths:
        half = min(max(int(factor * hw), 8), nwave - 1)
        band = np.zeros((nwave, half + 1))
        band[:, :hw + 1] = icov[fibre, 0, :, hw:hw + half + 1]
        if len(others) and not cpu_wide.eliminate(band, icov, fibre, others, half):
            return None
        top = np.abs(band).max(axis=0)
        bound = float(2.0 * top.sum() - top[0])
        band[icov[fibre, 0, :, hw] == 0.0, 0] = bound
        rung = _rung(band, bound)
        if rung is None:
            return None
        tail = float(4.0 * top[-1] / bound * LADDER[rung][1]) if half < nwave - 1 and len(others) else 0.0
        if tail <= limits.tail:
            return WideSchur(band, bound, rung, tail)
    return None


def _rung(band: Array, bound: float) -> int | None:
    """The first rung of LADDER whose range holds the spectrum."""
    for n, (_, ratio) in enumerate(LADDER):
        shifted = band.T.copy(order="F")
        shifted[0] -= bound / ratio
        if lapack.dpbtrf(shifted, lower=1, overwrite_ab=1)[1] == 0:
            return n
    return None


def pole_sum(schur: WideSchur, poles: Poles, sides: Array, ndiag: int, limits: WideLimits) -> Array:
    """(nwave, SIDES + ndiag + 1): as backend.cpu_banded.pole_sum with weights c_k t_k.

    The poles are done by eights in the order of their shifts. To (S + t I)^-1 elements of S that are small against t
    do not matter: each eight has a band as wide as its smallest shift asks for.
    """
    nwave = len(schur.band)
    top = np.abs(schur.band).max(axis=0)
    beyond = np.append(2.0 * np.cumsum(top[::-1])[::-1][1:], 0.0)
    count = -(-nwave // cpu_wide_poles.EDGE)
    padded = np.zeros((cpu_wide_poles.EDGE * count, SIDES))
    padded[:nwave] = sides
    out = np.zeros((nwave, SIDES + ndiag + 1))
    order = np.argsort(poles.shifts)
    for n in range(0, len(order), LANES):
        shifts = poles.shifts[order[n:n + LANES]]
        half = int(np.argmax(beyond <= limits.pole * (shifts[0] + schur.bound / LADDER[schur.rung][1])))
        reach = -(-max(half, ndiag) // cpu_wide_poles.EDGE)
        blocks = np.empty((count, reach + 1, cpu_wide_poles.EDGE**2))
        cpu_wide_poles.by_panels(blocks, schur.band[:, :half + 1])
        cpu_wide_poles.pole_sum(out, cpu_wide_poles.make_works(count, reach), blocks, padded, shifts,
                                poles.weights[order[n:n + LANES]] * shifts)
    return out
