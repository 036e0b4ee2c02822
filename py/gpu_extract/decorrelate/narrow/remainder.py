"""What a fibre's band cuts off, added to its flux exactly to first order: see narrow.simd_remainder."""
import numpy as np

from gpu_extract.data import Array, IntArray
from gpu_extract.decorrelate.narrow import simd_remainder
from gpu_extract.decorrelate.narrow.bands import address_of
from gpu_extract.decorrelate.narrow.schur import Neighbours, Schur
from gpu_extract.decorrelate.poles import LADDER, pole_error, scaled_poles
from gpu_extract.kernels.arena import borrowed

LEFT = 8e-9     # sigma that the poles may leave of what was foreseen, which is twice what is added,
SHARE = 8.0     # and so many times their error of it (measured: 5 to 7)
MOST = 64       # poles
REACH = 16      # bins, and four half-bands, that are worked on beyond those that count


def add_remainder(fluxes: tuple[Array, Array], spectrum: Array, sides: Array, of: tuple[Neighbours, int, Schur],
                  first: int) -> None:
    """flux = plain and what S of a fibre has beyond its band and windows makes of it, where that counts.

    fluxes: (flux, plain), (n,) both, bins `first` and following: flux elsewhere stays as it is
    spectrum: (nwave,), s = Q 1; sides: (nwave, SIDES), 1 and x
    of: the bundle's complements, the fibre's number and its own
    """
    neighbours, fibre, schur = of
    ratio, lanes = LADDER[schur.facts.rung or 0][1], simd_remainder.POLES
    enough = (n for n in range(lanes, MOST, lanes) if SHARE * pole_error(n, ratio) * schur.shift < LEFT)
    poles = scaled_poles(next(enough, MOST), ratio, schur.bound)
    around, half, hw = _addresses(neighbours, fibre, schur), schur.room.half, neighbours.couplings.hw
    limits = first, (2.0 * neighbours.limits.shift)**2, REACH + 4 * half
    with borrowed() as arena:
        work = arena.take(simd_remainder.work_size(len(sides), hw, half, sum(len(block) for _, block in schur.windows)))
        simd_remainder.remainder(*fluxes, spectrum, sides, schur.band, schur.room.shifts[schur.place],
                                (poles.shifts.reshape(-1, lanes), (poles.weights * poles.shifts).reshape(-1, lanes)),
                                around, work, limits)


def _addresses(neighbours: Neighbours, fibre: int, schur: Schur) -> tuple[IntArray, IntArray, int]:
    """What is around a fibre, as the kernel takes it; all of that lives as long as the bundle's complements."""
    couplings, half, found = neighbours.couplings, schur.room.half, neighbours.remainder(fibre, schur)
    icov, hw, rows = couplings.icov, couplings.hw, []
    for j, taken, beyond in found.around:
        near = address_of(icov[min(j, fibre), abs(j - fibre)]), int(j < fibre), address_of(icov[j, 0]) + 8 * hw
        if beyond is None:
            rows.append((*near, couplings.own + 1, *_place(taken), 0, 0, couplings.own + 1))
        else:
            rows.append((*near, min(hw, half) + 1, *_place(taken), *_place(beyond), half + 1))
    windows = [(begin, end, start, len(exact), address_of(exact)) for begin, end, start, exact in found.windows]
    return (np.array(rows, dtype=np.int64).reshape(-1, 9), np.array(windows, dtype=np.int64).reshape(-1, 5), hw)


def _place(band: Array) -> tuple[int, int]:
    """Where a band begins, and elements of its rows."""
    return address_of(band), band.strides[0] // band.itemsize
