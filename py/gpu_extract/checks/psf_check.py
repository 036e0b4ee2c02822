"""The PSF validator: it drops an unusable fibre with a message, so that the frame is not lost."""
from collections.abc import Container
from dataclasses import replace
from functools import reduce

import numpy as np

from gpu_extract.data import Array, Core, IntArray, PsfModel
from gpu_extract.errors import InputError
from gpu_extract.spots import centres, evaluate, select

SAMPLES = 64           # wavelengths at which a fibre is checked
BEYOND = 200           # bins beyond the ends that are checked first: more than the pad of most PSFs
LIGHT = 1e-3           # of a spot's light: the least its Gaussians may hold; inverse: the most a term may hold
APART = 0.5            # pixels: traces closer than this count as one trace
IN_PLACE = 0.5         # of the distance of two fibres: a trace farther from its place may be that of another fibre


@np.errstate(all="ignore")      # values that are not finite
def check_psf(psf: PsfModel, wave: Array, beyond: int = BEYOND) -> dict[int, str]:
    """The fibres that cannot be extracted, with reasons.

    Checked over `wave` (Angstrom) and `beyond` bins of padding: coefficients are finite, sigma is positive and no
    larger than the stamp, no core is cut off below 0 sigma, spots hold light, y is monotonic along wavelength, fibres
    are in order (either way) and apart, and part of the trace is on the CCD. Raises InputError if no fibre is left.
    """
    sample = _samples(psf, wave, beyond)
    finite = _finite(psf)
    centre = centres(psf, (0, psf.nfibre), sample)
    widths = [evaluate(s, (0, psf.nfibre), sample) for c in psf.cores for s in (c.sigma_x, c.sigma_y)]
    width, widest = reduce(np.minimum, widths), reduce(np.maximum, widths)
    usable = _of_fibres(np.logical_and, (width > 0) & (widest <= max(psf.stamp)))
    cuts = [evaluate(c.nsig, (0, psf.nfibre), sample).min(axis=1) for c in psf.cores if c.nsig is not None]
    cut = reduce(np.minimum, cuts, np.zeros(psf.nfibre))
    light, most = _light(psf, sample)
    lit = (light >= LIGHT) & (most <= 1 / LIGHT)
    index = np.zeros((psf.nfibre, 1)) if psf.tail is None else evaluate(psf.tail.index, (0, psf.nfibre), sample)
    falling = _of_fibres(np.logical_and, index >= 0)
    steps = np.sign(np.diff(centre[0]))
    monotonic = _of_fibres(np.logical_and, steps * steps[:, :1] > 0)
    margin, size = np.array(psf.stamp)[:, None, None], np.array(psf.shape)[:, None, None]
    inside = np.abs(centre - (size - 1) / 2) < (size - 1) / 2 + margin      # the same in a mirror
    seen = _of_fibres(np.logical_or, inside[0] & inside[1])
    good = finite & usable & (cut >= 0) & lit & falling & monotonic & seen
    dropped = {}
    for i in np.nonzero(~good)[0].tolist():
        worst = width[i].min() if (width[i] <= 0).any() else widest[i].max()
        dropped[i] = next(reason for fine, reason in (
            (finite, "its PSF has values that are not finite"),
            (usable, f"its PSF has sigma {worst:.3g} pixels"),
            (cut >= 0, f"its core is cut off at {cut[i]:.3g} sigma"),
            (lit, f"its spots hold {light[i]:.3g} of their light, with terms of up to {most[i]:.3g}"),
            (falling, "its tail grows outwards"), (monotonic, "its y is not monotonic in wavelength"),
            (seen, "its trace is off the CCD")) if not fine[i])
    dropped = dict(sorted((dropped | out_of_order(centre[1], np.nonzero(good)[0])).items()))
    if len(dropped) == psf.nfibre:
        raise InputError(f"{psf.name}: no fibre can be extracted (fibre 0: {dropped[0]}); give the PSF of this image")
    return dropped


def _light(psf: PsfModel, sample: Array) -> tuple[Array, Array]:
    """The least share of a spot's light in its Gaussians, and the largest contribution of a term: (nfibre,)."""
    gaussians = [_tables(c, sample) if c.tabulated else
                 evaluate(replace(c.gh, coeff=c.gh.coeff[0, 0]), (0, psf.nfibre), sample) for c in psf.cores]
    terms = [_most(c.gh.coeff) for c in psf.cores] + ([] if psf.tail is None else [_most(psf.tail.amp.coeff)])
    return sum(gaussians).min(axis=1), reduce(np.maximum, terms)       # type: ignore[union-attr]


def _tables(core: Core, sample: Array) -> Array:
    """(nfibre, nwave): the light of tabulated spots, their mean over all positions within a pixel."""
    fibres = 0, core.gh.coeff.shape[2]
    light = evaluate(replace(core.gh, coeff=core.gh.coeff.sum(axis=(0, 1))), fibres, sample)
    return light * evaluate(core.sigma_x, fibres, sample) * evaluate(core.sigma_y, fibres, sample)


def _most(coeff: Array) -> Array:
    """The largest contribution of a term of series, (nfibre,); a bound on all, if that does not exceed 1 / LIGHT."""
    bound = coeff.shape[-1] * max(coeff.max(), -coeff.min())
    if bound <= 1 / LIGHT:
        return np.full(coeff.shape[-2], bound)
    return np.abs(coeff).sum(axis=-1).max(axis=tuple(range(coeff.ndim - 2)))


def _of_fibres(combine: np.ufunc, holds: np.ndarray) -> np.ndarray:
    """(nfibre,) whether (nfibre, nwave) holds at all wavelengths, or at some; single rows are rarely examined."""
    return np.ones(len(holds), dtype=bool) if holds.all() else combine.reduce(holds, axis=1)


def _samples(psf: PsfModel, wave: Array, beyond: int) -> Array:
    """Wavelengths that span `wave` and this many bins beyond its ends, as far as the PSF reaches."""
    low, high = psf.wavelength_range
    margin = beyond * (wave[-1] - wave[0]) / max(len(wave) - 1, 1)
    first, last = max(low, wave[0] - margin), min(high, wave[-1] + margin)
    samples = np.linspace(min(first, wave[0]), max(last, wave[-1]), SAMPLES)
    return samples[np.append(True, samples[1:] > samples[:-1])]


def remaining(psf: PsfModel, dropped: Container[int]) -> PsfModel:
    """The PSF of the fibres that were not dropped, renumbered without gaps: for measurements, not for extraction."""
    good = [i for i in range(psf.nfibre) if i not in dropped]
    return psf if len(good) == psf.nfibre else select(psf, good)


def _finite(psf: PsfModel) -> np.ndarray:
    """(nfibre,) whether every coefficient of the fibre is finite."""
    good = np.ones(psf.nfibre, dtype=bool)
    for s in replace(psf, own=None).series():       # own wavelengths are checked elsewhere
        finite = np.isfinite(s.coeff)
        if not finite.all():
            good &= finite.all(axis=(*range(s.coeff.ndim - 2), -1))
    return good


def out_of_order(x: Array, candidates: IntArray) -> dict[int, str]:
    """The candidates outside the largest set of fibres whose traces are in order and apart, with reasons.

    x: (nfibre, nwave) of the traces, which may increase or decrease with the fibre number, whichever keeps more fibres.
        The order must hold at all wavelengths: traces that cross count as one
    Several sets are as large if two fibres share a trace, or have each other's. A fibre that is in some of them is kept
    if the fibres that are in all of them have it there: it would get the spectrum of another fibre otherwise.
    """
    steps = np.diff(x[candidates], axis=0)
    if np.all(steps >= APART) or np.all(steps <= -APART):
        return {}
    rising, falling = _ranks(x[candidates]), _ranks(-x[candidates])
    upwards = rising.max() >= falling.max()
    place, rank = (x, rising) if upwards else (-x, falling)
    certain = candidates[_alone(rank)]
    in_place = [i for i in candidates[rank > 0] if i in certain or _in_place(x, i, certain)]
    good = np.array(in_place, dtype=int)
    good = good[_alone(_ranks(place[good]))]
    reasons = {}
    for i in np.setdiff1d(candidates, good).tolist():
        rivals = next(r for r in (_rivals(place, i, good), _rivals(place, i, candidates)) if len(r))
        at_left = bool(rivals[0] < i) == upwards
        other = rivals[rivals < i][-1] if rivals[0] < i else rivals[0]
        reasons[i] = f"its trace is not {'right' if at_left else 'left'} of that of fibre {other}"
    return reasons


def _rivals(x: Array, fibre: int, others: IntArray) -> IntArray:
    """Those of the others, in order, with which a fibre is not in order; x rises with the number."""
    side = np.sign(others - fibre)[:, None]
    return others[(side[:, 0] != 0) & ((side * (x[others] - x[fibre])).min(axis=1) < APART)]


def _in_place(x: Array, fibre: int, certain: IntArray) -> bool:
    """Whether a trace lies where the two certain fibres around it, or the two next to it, predict."""
    if len(certain) < 2:
        return False
    first = np.clip(np.searchsorted(certain, fibre) - 1, 0, len(certain) - 2)
    below, above = certain[first:first + 2]
    distance = (x[above] - x[below]) / (above - below)
    return bool(np.all(np.abs(x[fibre] - x[below] - (fibre - below) * distance) < IN_PLACE * np.abs(distance)))


def _ranks(x: Array) -> IntArray:
    """The place of each trace, from 1, in the longest selections in which each x exceeds the last; 0: in none of them.

    x: (n, nwave). It exceeds another if it does by APART or more everywhere.
    """
    after = np.array([(trace - x).min(axis=1) >= APART for trace in x]).reshape(len(x), len(x))
    upto, beyond = np.ones(len(x), dtype=int), np.ones(len(x), dtype=int)
    for n in range(len(x)):
        upto[n] += np.max(upto[:n], where=after[n, :n], initial=0)
    for n in reversed(range(len(x))):
        beyond[n] += np.max(beyond[n + 1:], where=after[n + 1:, n], initial=0)
    return np.where(upto + beyond - 1 == upto.max(initial=0), upto, 0)


def _alone(ranks: IntArray) -> np.ndarray:
    """(n,) which traces are in all of the longest selections."""
    return (ranks > 0) & (np.bincount(ranks)[ranks] == 1)
