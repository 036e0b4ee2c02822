"""The division of the work into pieces: integer ranges, and the single wavelength array that they index.

Pieces depend only on the settings and the PSF, never on the number of ranks, threads or devices, which only decide who
makes a piece.
"""
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

import numpy as np

from gpu_extract.config import ExtractConfig
from gpu_extract.data import LANE, Array, IntArray, PsfModel
from gpu_extract.errors import InputError

TILE = 256            # wavelength bins of a tile of the normal equations
MOST_NEIGHBOURS = 6   # largest number of fibres on each side of a dense patch
SIGNAL = 100.0        # height of a bright line in errors
# of a wavelength, by which a bin and a limit of the PSF may differ that are the same but for rounding: 3/2 eps of the
# bin (half for the decimals of first and step, for their product, for the sum), as much of the limit (its decimals,
# those of the factor, their product), and half for the difference and for the number of steps in it
ROUNDED = 4 * float(np.finfo(float).eps)


@dataclass(frozen=True)
class Plan:
    """The whole job in integers.

    fibres: (lo, hi) requested; bundles: fibre ranges of the instrument bundles that hold them, with several passes also
        of those that have light on their pixels. Both count the fibres that can be extracted: those that the validator
        dropped are closed up
    asked: (lo, hi) requested, numbered as in the PSF; kept: (fibres,) the PSF's numbers of those that can be extracted
    wave: (nwave,) Angstrom, the stored grid; extended: (below + nwave + above,) Angstrom, all bins to solve for
        (divided by the barycentric factor); inner: slice of the extended grid that is kept
    """

    fibres: tuple[int, int]
    bundles: tuple[tuple[int, int], ...]
    wave: Array
    extended: Array
    inner: slice
    asked: tuple[int, int]
    kept: IntArray


def wavelength_grid(wavelength: tuple[float, float, float], below: int = 0, above: int = 0) -> Array:
    """first, first + step, ... last (included if the step hits it within half a step), with bins beyond the ends."""
    first, last, step = wavelength
    n = ceil((last + 0.5 * step - first) / step)
    return first + step * np.arange(-below, n + above, dtype=np.float64)


def make_plan(psf: PsfModel, config: ExtractConfig, pad: int, dropped: Collection[int] = ()) -> Plan:
    """Bundles and grids of a job; `pad` bins are added beyond both ends as far as the PSF reaches.

    dropped: the PSF's fibres that cannot be extracted. They are in no bundle, so that fibres on both sides of one are
    next neighbours. A bundle without any requested fibre is left out, unless a further pass needs its light. Raises
    InputError if fibres or wavelengths lie outside the PSF.
    """
    hi = psf.nfibre if config.nspec is None else config.specmin + config.nspec
    if config.specmin >= psf.nfibre or hi > psf.nfibre:
        asked = f"from {config.specmin} on" if config.nspec is None else f"{config.specmin} to {hi - 1}"
        raise InputError(f"fibres {asked} were requested, {psf.name} has fibres 0 to {psf.nfibre - 1}: choose "
                         "--specmin and --nspec within them")
    wave = wavelength_grid(config.wavelength)
    low, high = psf.wavelength_range
    factor, step = config.wave_factor, config.wavelength[2]
    first, last, unsure = wave[0] / factor, wave[-1] / factor, ROUNDED * high
    short = [series for series in psf.series() if (first < series.wmin or last > series.wmax)
             and series.coeff[..., 1:].any()]           # constants are valid everywhere
    lowest, highest = max([low, *(s.wmin for s in short)]), min([high, *(s.wmax for s in short)])
    if first < lowest - unsure or last > highest + unsure:
        made = f"{first:.8g} to {last:.8g}"
        moved = "" if factor == 1 else f" (the factor {factor} makes them {made})"
        raise InputError(f"wavelengths {wave[0]:g} to {wave[-1]:g} Angstrom were requested, {psf.name} covers "
                         f"{lowest:g} to {highest:g}{moved}: choose --wavelength within that")
    below = min(pad, int((wave[0] - low * factor + unsure * factor) / step))
    above = min(pad, int((high * factor - wave[-1] + unsure * factor) / step))
    extended = wavelength_grid(config.wavelength, below, above) / factor
    kept = np.delete(np.arange(psf.nfibre), list(dropped))
    whole = config.specmin, hi
    fibres, *bundles = ((int(first), int(last)) for first, last in
                        np.searchsorted(kept, [whole, *instrument_bundles(psf, config.bundlesize)]))
    holders = [b for b in bundles if max(b[0], fibres[0]) < min(b[1], fibres[1])]
    beside = [] if config.passes == 1 else _beside(psf, config, kept, holders, bundles)
    return Plan(fibres, tuple(sorted(holders + beside)), wave, extended, slice(below, below + len(wave)), whole, kept)


def _beside(psf: PsfModel, config: ExtractConfig, kept: IntArray, holders: list[tuple[int, int]],
            bundles: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The other bundles whose light has a part in bundles with requested fibres: that under their spots, and with each
    further pass that under the spots of those. From all columns that traces can reach: a series is bounded by the sum
    of its coefficients."""
    x, bend = psf.x.coeff[kept, 0], np.abs(psf.x.coeff[kept, 1:]).sum(axis=1)
    reach = psf.stamp[1] + (config.tail_radius if psf.tail is not None else 0.0)
    left, right = ({b: end(x[slice(*b)] + sign * bend[slice(*b)]) for b in bundles if b[0] < b[1]}
                   for sign, end in ((-1, np.min), (1, np.max)))
    found = set(holders)
    for _ in range(config.passes - 1):
        found |= {b for b in left
                  if any(left[b] - right[held] < reach and left[held] - right[b] < reach for held in found)}
    return sorted(found - set(holders))


def instrument_bundles(psf: PsfModel, bundlesize: int) -> tuple[tuple[int, int], ...]:
    """Fibre ranges of the bundles: runs of equal BUNDLE numbers, else multiples of `bundlesize` from fibre 0.

    Raises InputError if fibres of one number do not lie side by side.
    """
    if psf.bundle is None:
        edges = [*range(0, psf.nfibre, bundlesize), psf.nfibre]
    else:
        edges = [0, *(np.nonzero(np.diff(psf.bundle))[0] + 1).tolist(), psf.nfibre]
        numbers = psf.bundle[edges[:-1]].tolist()
        again = [n for n, number in enumerate(numbers) if number in numbers[:n]]
        if again:
            raise InputError(f"{psf.name}: BUNDLE of fibre {edges[again[0]]} is {numbers[again[0]]}, as for earlier "
                             "fibres that are not adjacent: fibres of one bundle must lie side by side; make the PSF "
                             "again, or give another one")
    return tuple(pairwise(edges))


def tiles(nwave: int, length: int = TILE) -> tuple[tuple[int, int], ...]:
    """Wavelength ranges of the tiles of a bundle's normal equations."""
    return tuple((first, min(first + length, nwave)) for first in range(0, nwave, length))


def spread(first: int, last: int, reach: int, n: int) -> tuple[int, int]:
    """first .. last - 1 with `reach` more on both sides, within 0 .. n - 1."""
    return max(0, first - reach), min(n, last + reach)


def halo(first: int, last: int, reach: int, nwave: int) -> tuple[int, int]:
    """The same for wavelength bins, in whole blocks of LANE from bin 0 on."""
    start, stop = spread(first, last, reach, nwave)
    return start // LANE * LANE, min(nwave, -(-stop // LANE) * LANE)


def fibre_groups(nfibre: int, groups: int | None) -> tuple[tuple[int, int], ...]:
    """A bundle's fibres in this many groups of equal size (the last may be smaller); None: every fibre by itself."""
    return tiles(nfibre, -(-nfibre // (groups or nfibre)))


def share(pieces: int, rank: int, size: int) -> range:
    """The pieces of `rank` out of `size`: consecutive, as even as possible, none for surplus ranks."""
    return range(pieces * rank // size, pieces * (rank + 1) // size)


def bounds(ranges: tuple[tuple[int, int], ...], size: int) -> list[int]:
    """The beginnings of the consecutive shares of `size` ranks in consecutive ranges, and the end of the last."""
    ends = [0, *(last for _, last in ranges)]
    return [ends[len(ranges) * rank // size] for rank in range(size + 1)]


@dataclass(frozen=True)
class Turn:
    """One bundle that a rank works on.

    bundle: its number in the plan; group: a common number of the ranks that share it;
    None: a single rank has it
    """

    bundle: int
    group: int | None = None


def turns(bundles: int, size: int, rank: int) -> list[Turn]:
    """The bundles of a rank, in order: rounds of one bundle for each rank, then the rest, shared by groups of ranks.

    Every rank has the same number of turns; the last one is shared as soon as there are bundles left over.
    """
    rounds, left = divmod(bundles, size)
    own = [Turn(n * size + rank) for n in range(rounds)]
    if left == 0:
        return own
    group = next(g for g in range(left) if rank in share(size, g, left))
    return [*own, Turn(rounds * size + group, group)]


def enough_neighbours(correlation: Array, tolerance: float) -> int:
    """Smallest n that leaves less than `tolerance` sigma; correlation[d - 1]: of fibres d apart."""
    limit = tolerance / SIGNAL
    for n in range(1, MOST_NEIGHBOURS):
        beyond = np.append(correlation[n:] ** 2, correlation[0] ** (2 * (n + 1)))
        if beyond.max() < limit:
            return n
    return MOST_NEIGHBOURS
