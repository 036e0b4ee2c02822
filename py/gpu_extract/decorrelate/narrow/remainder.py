"""What a fibre's band cuts off, added to its flux exactly to first order: see narrow.simd_remainder."""
from functools import cache
from typing import NamedTuple

import numpy as np

from gpu_extract.data import Array, IntArray
from gpu_extract.decorrelate.narrow import simd_remainder
from gpu_extract.decorrelate.narrow.bands import address_of
from gpu_extract.decorrelate.narrow.coupling import Share
from gpu_extract.decorrelate.narrow.schur import Neighbours, Schur
from gpu_extract.decorrelate.poles import LADDER, pole_error, unit_poles
from gpu_extract.kernels.arena import borrowed

LEFT = 8e-9     # sigma that the poles may leave of what was foreseen, which is twice what is added,
SHARE = 8.0     # and so many times their error of it (measured: 5 to 7)
MOST = 64       # poles
REACH = 4       # half-bands that are worked on beyond the bins that count


_NO_WINDOW = np.empty((0, 5), dtype=np.int64)


class Remainders(NamedTuple):
    """What S of a fibre has beyond its band and windows, as the kernel takes it, and room for its work."""

    band: Array
    shifts: Array
    poles: tuple[Array, Array]
    around: tuple[IntArray, IntArray, int]
    limits: tuple[int, float, int]
    size: int


def remainders(neighbours: Neighbours, fibre: int, schur: Schur, first: int) -> Remainders:
    """Of one fibre; first: of the bins that are wanted.

    neighbours: the bundle's complements; schur: the fibre's own. All of that has to live on until it is added.
    """
    ratio, lanes = LADDER[schur.facts.rung or 0][1], simd_remainder.POLES
    enough = (n for n in range(lanes, MOST, lanes) if SHARE * pole_error(n, ratio) * schur.shift < LEFT)
    unit = _unit_poles(next(enough, MOST), ratio)
    poles = unit[0] * schur.bound, unit[1] * schur.bound**1.5
    half, hw, most = schur.room.half, neighbours.couplings.hw, neighbours.limits.most_shift(schur.facts.cond)
    size = simd_remainder.work_size(schur.room.nwave, hw, half, sum(len(block) for _, block in schur.windows))
    return Remainders(schur.band, schur.room.shifts[schur.place], poles, _addresses(neighbours, fibre, schur),
                      (first, (2.0 * most)**2, REACH * half), size)


@cache
def _unit_poles(count: int, ratio: float) -> tuple[Array, Array]:
    """t_k and c_k t_k of a spectrum in [1 / ratio, 1], so many at a time as the kernel takes."""
    poles, lanes = unit_poles(count, ratio), simd_remainder.POLES
    return poles.shifts.reshape(-1, lanes), (poles.weights * poles.shifts).reshape(-1, lanes)


def add_remainder(fluxes: tuple[Array, Array], spectrum: Array, sides: Array, of: Remainders) -> float:
    """flux = plain and what the remainder of a fibre makes of it, where that counts; returns what share it has of s.

    fluxes: (flux, plain), (n,) both, bins that are wanted: flux elsewhere stays as it is
    spectrum: (nwave,), s = Q 1; sides: (nwave, SIDES), 1 and x
    """
    with borrowed() as arena:
        share: float = simd_remainder.remainder(*fluxes, spectrum, sides, of.band, of.shifts, of.poles, of.around,
                                                arena.take(of.size), of.limits)
    return share


def _addresses(neighbours: Neighbours, fibre: int, schur: Schur) -> tuple[IntArray, IntArray, int]:
    """A fibre's surroundings in the form that the kernel takes; they live as long as the bundle's complements."""
    couplings, half, found = neighbours.couplings, schur.room.half, neighbours.remainder(fibre, schur)
    hw, rows, begin, (apart, block, _, _) = couplings.hw, [], couplings.begin, couplings.icov.strides
    for j, share, beyond in found.around:
        near = begin + min(j, fibre) * apart + abs(j - fibre) * block, int(j < fibre), *_place(share)
        if beyond is None:
            rows.append((*near, *couplings.factors[j], 0, 0, 0, 0))
        else:
            rows.append((*near, 0, 0, 0, half, begin + j * apart + 8 * hw, min(hw, half) + 1, *_place(beyond)))
    windows = [(begin, end, start, len(exact), address_of(exact)) for begin, end, start, exact in found.windows]
    return (np.array(rows, dtype=np.int64).reshape(-1, 12),
            np.array(windows, dtype=np.int64).reshape(-1, 5) if windows else _NO_WINDOW, hw)


def _place(share: Share) -> tuple[int, int]:
    """Where its band begins, and elements of its rows."""
    return share.at[0], share.taken.strides[0] // share.taken.itemsize
