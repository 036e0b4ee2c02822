"""Corrections of spectra for what the fibres' bands cut off, exact to first order: see narrow.simd_remainder."""
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from gpu_extract.data import Array, IntArray
from gpu_extract.decorrelate.narrow import simd_remainder
from gpu_extract.decorrelate.narrow.bands import address_of
from gpu_extract.decorrelate.narrow.definite import Questions, ask
from gpu_extract.decorrelate.narrow.measure import OF_EDGES, REACH, Schur
from gpu_extract.decorrelate.narrow.schur import Neighbours
from gpu_extract.decorrelate.poles import pole_error, unit_poles
from gpu_extract.kernels.arena import Arena

LEFT = 8e-9     # sigma that the poles may leave of the foreseen change, which is twice the correction,
SHARE = 8.0     # and this many times their relative error times the change (measured: 5 to 7)
MOST = 64       # poles
OF_PLAIN = 0.4  # of Limits.plain: of fibres whose tail is above that, ivar and R are corrected around bins whose own
                # tail is above this share. With 1, ivar was off by up to 1.7e-9; with 0.5, by no more than with 0
USUAL = 3e-5    # sigma: the poles for ivar are those for so much, or more, if the flux needs them
FARTHER = 12    # REACH half-bands are worked on beyond the bins that count. What is added decays as poles do, not
                # faster where a band is cut short: of uneven fibres at least so many diagonals more than icov's
AWAY = 1e6      # of the bound on S: bins that have that on the diagonal take next to nothing from others
OUTSIDE = Questions((5e3, 2e4, 5e4, 2e5, 1e6, 1e7, 1e8, 1e9))      # of S outside of its windows


class Remainders(NamedTuple):
    """The remainders of fibres' S beyond band and windows in the form for the kernel, and its work array's size."""

    fibres: IntArray
    scales: Array
    poles: tuple[Array, Array]
    around: tuple[IntArray, IntArray, int]
    size: int

    def only(self, numbers: Sequence[int]) -> "Remainders":
        """The remainders of those fibres whose numbers are among `numbers`."""
        kept = [each in numbers for each in self.fibres[:, 0].tolist()]
        return self._replace(fibres=self.fibres[kept], scales=self.scales[kept])


def remainders(neighbours: Neighbours, some: Sequence[tuple[int, int, Schur]]) -> Remainders:
    """The remainders of fibres, each given by its number in the arrays of `add_remainders`, its number in the bundle,
    and its complement.

    neighbours: the bundle's complements. All of these must live until `add_remainders` is called.
    """
    hw, limits = neighbours.couplings.hw, neighbours.limits
    poles: list[tuple[Array, Array]] = []
    begins: dict[tuple[int, float], int] = {}      # of the poles that fibres share
    rows, near, windows, scales, size = [], list[tuple[int, ...]](), list[tuple[int, ...]](), [], 0
    for n, fibre, schur in some:
        ends, half, facts = (len(near), len(windows)), schur.room.half, schur.facts
        around, inside = _addresses(neighbours, fibre, schur)
        near += around
        windows += inside
        reach = REACH * (max(half, hw + FARTHER) if facts.cond > limits.uneven else half)
        band, shifts_at, edges_at = schur.room.at(schur.place)
        asked = [(simd_remainder.FLUX, shifts_at, (2.0 * limits.most_shift(facts.cond))**2, schur.shift)]
        if schur.tail > limits.plain:
            asked.insert(0, (simd_remainder.IVAR, edges_at, OF_PLAIN * limits.plain * facts.gamma / OF_EDGES,
                             max(schur.shift, USUAL)))
        outside: float | None = None
        for what, measure, least, shift in asked:
            ranges, ratios = list[int](), [facts.cond]
            if schur.windows and _count(facts.cond, shift) > _count(OUTSIDE.ratios[0], shift):
                outside = outside or _outside(schur, neighbours.first.gauge.work)
                ratios.append(outside)
            for ratio in ratios:
                wanted = _count(ratio, shift), ratio
                if wanted not in begins:
                    begins[wanted] = sum(len(shifts) for shifts, _ in poles)
                    poles.append(_unit_poles(*wanted))
                ranges += begins[wanted], begins[wanted] + wanted[0] // simd_remainder.POLES
            ranges += ranges if len(ratios) == 1 else []
            rows.append((n, what, band, measure, half + 1, reach, *ranges, ends[0], len(near), ends[1], len(windows)))
            scales.append((least, schur.bound, schur.bound**1.5))
        size = max(size, simd_remainder.work_size(schur.room.nwave, hw, half, sum(len(w) for _, w in schur.windows)))
    shifts, weights = (np.concatenate(each) for each in zip(*poles, strict=True))
    return Remainders(np.array(rows), np.array(scales), (shifts, weights),
                      (np.array(near, dtype=np.int64).reshape(-1, 10),
                       np.array(windows, dtype=np.int64).reshape(-1, 5), hw), size)


def _count(ratio: float, shift: float) -> int:
    """The number of poles that suffice for a foreseen change and a spectrum in [1 / ratio, 1], in multiples of the
    kernel's."""
    lanes = simd_remainder.POLES
    return next((n for n in range(lanes, MOST, lanes) if SHARE * pole_error(n, ratio) * shift < LEFT), MOST)


def _outside(schur: Schur, work: Array) -> float:
    """The condition number of S without its windows' bins, and so of every stretch without any.

    Every principal submatrix of a definite matrix is definite, so the elements in windows make no answer wrong.
    """
    band = schur.band.copy()
    for first, block in schur.windows:
        band[first:first + len(block), 0] = AWAY * schur.bound
    return min(ask(band, band, schur.bound, OUTSIDE, work).cond, schur.facts.cond)


@cache
def _unit_poles(count: int, ratio: float) -> tuple[Array, Array]:
    """t_k and c_k t_k of a spectrum in [1 / ratio, 1], in rows of as many as the kernel uses at a time."""
    poles, lanes = unit_poles(count, ratio), simd_remainder.POLES
    return poles.shifts.reshape(-1, lanes), (poles.weights * poles.shifts).reshape(-1, lanes)


def add_remainders(result: tuple[Array, Array, Array], plain: Array, spectra: Array, sides: Array, of: Remainders,
                   first: int, arena: Arena) -> dict[int, float]:
    """flux = plain and what the remainder of fibres makes of it, where that counts, and ivar and R where the tail does;
    returns the largest share it has of s of each.

    result: (flux, ivar, resolution), plain: (n, bins): the requested bins, from `first` on; others are unchanged
    spectra: (n, nwave, some), s = Q 1 and others; sides: (n, nwave, SIDES), 1 and x
    """
    shares = np.empty(len(of.fibres))
    simd_remainder.remainder(result, plain, shares, spectra, sides, of.fibres, of.scales, of.poles, of.around,
                             arena.take(of.size), first)
    most: dict[int, float] = {}
    for n, share in zip(of.fibres[:, 0].tolist(), shares.tolist(), strict=True):
        most[n] = max(share, most.get(n, 0.0))
    return most


def _addresses(neighbours: Neighbours, fibre: int, schur: Schur) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """A fibre's neighbours and windows in the form for the kernel; they live as long as the complements."""
    couplings, found = neighbours.couplings, neighbours.remainder(fibre, schur)
    hw, begin, (apart, block, _, _) = couplings.hw, couplings.begin, couplings.icov.strides
    rows: list[tuple[int, ...]] = []
    for j, share, beyond in found.around:
        near = begin + min(j, fibre) * apart + abs(j - fibre) * block, int(j < fibre), share.at[0]
        if beyond is None:
            rows.append((*near, *couplings.factors[j], 0, 0, 0))
        else:
            rows.append((*near, 0, 0, 0, beyond.taken.shape[1] - 1, begin + j * apart + 8 * hw, hw + 1, beyond.at[0]))
    return rows, [(begin, end, start, len(exact), address_of(exact)) for begin, end, start, exact in found.windows]
