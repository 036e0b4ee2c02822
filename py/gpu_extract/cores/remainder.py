"""What a fibre's band cuts off, added to its flux exactly to first order: see backend.cpu_remainder."""
import numpy as np

from gpu_extract.backend import cpu_remainder
from gpu_extract.backend.arena import borrowed
from gpu_extract.cores.poles import LADDER, pole_error, scaled_poles
from gpu_extract.cores.schur import Neighbours, Schur
from gpu_extract.data import Array

LEFT = 8e-9     # sigma that the poles may leave of what was foreseen, which is twice what is added,
SHARE = 8.0     # and so many times their error of it (measured: 5 to 7)
MOST = 64       # poles


def add_remainder(flux: Array, spectrum: Array, sides: Array, of: tuple[Neighbours, int, Schur], first: int) -> None:
    """flux += what S of a fibre has beyond its band and windows makes of it.

    flux: (n,), bins `first` and following; spectrum: (nwave,), s = Q 1; sides: (nwave, SIDES), 1 and x
    of: the bundle's complements, the fibre's number and its own
    """
    neighbours, fibre, schur = of
    rest, icov, hw = neighbours.remainder(fibre, schur), neighbours.couplings.icov, neighbours.couplings.hw
    ratio, lanes = LADDER[schur.facts.rung or 0][1], cpu_remainder.POLES
    enough = (n for n in range(lanes, MOST, lanes) if SHARE * pole_error(n, ratio) * schur.shift < LEFT)
    poles = scaled_poles(next(enough, MOST), ratio, schur.bound)
    nwave, half = len(sides), schur.room.half
    lengths = np.full(nwave + 1, half + 1)
    lengths[-1] = 0
    for begin, end, _, _ in rest.windows:
        lengths[begin:end] = np.maximum(lengths[begin:end], end - np.arange(begin, end))
    starts = np.cumsum(lengths) - lengths
    around = np.array([(_address(icov[min(j, fibre), abs(j - fibre)]), int(j < fibre), _address(factor),
                        factor.shape[1] - 1) for j, factor in rest.around], dtype=np.int64).reshape(-1, 4)
    windows = np.array([(begin, end, start, len(exact), _address(exact)) for begin, end, start, exact in rest.windows],
                       dtype=np.int64).reshape(-1, 5)
    with borrowed() as arena:
        work = arena.take(cpu_remainder.work_size(starts, hw, half))
        cpu_remainder.remainder(flux, spectrum, sides, (schur.band, rest.taken), starts,
                                (poles.shifts.reshape(-1, lanes), (poles.weights * poles.shifts).reshape(-1, lanes)),
                                (around, windows, hw), work, first)


def _address(array: Array) -> int:
    """Where an array begins."""
    address: int = array.__array_interface__["data"][0]
    return address
