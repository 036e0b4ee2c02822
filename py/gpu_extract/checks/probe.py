"""How far a PSF reaches through the normal equations: pads from the measured decay.

Light of omitted bins enters through C = icov^-1. Two numbers are measured on a small ideal problem (every pixel good,
equal errors): how fast C decays along a fibre, and how strongly neighbouring fibres are correlated. They give the
number of bins and fibres that must take part.
"""
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from gpu_extract.checks import ideal
from gpu_extract.data import Array, PsfModel
from gpu_extract.kernels.arena import borrowed
from gpu_extract.plan import MOST_NEIGHBOURS, Plan, enough_neighbours
from gpu_extract.spots import centres, corners, select

# A solution that is cut has errors of the canonical correlation with what is left out times its S/N, 5 C(k)/C(0) sigma
# on real frames (doc/method.md), patches with the exact x 0.1 of that; masked pixels increase both up to 10 times. The
# margins below cover masks.
SAFETY_CUT = 0.02
SAFETY_PATCH = 1.0
LEAST = 1e-15    # least divisor
STRAIGHT = 2.0   # bins by which neighbours may differ in rows: the margins cover them,
CORRELATED = 0.3 # if C falls by no more than this over as many bins as from a fibre to the next
WIDER = 1.2      # factor of trial steps, up to one with a value below FINE
FINE = 1e5       # the narrow band still holds up to it


@dataclass(frozen=True)
class Decay:
    """beyond: bins to add beyond the ends of the requested range; patch: bins of padding for a dense patch.

    hidden: the least C_jj icov_jj of the measured bins, with all pixels good: how much the other bins hide each
    (weak.py)
    aslant: the part of `beyond` for neighbours, whose spots of the same wavelength lie in other rows
    """

    beyond: int
    patch: int
    hidden: float = 1.0
    aslant: int = 0


def measure_decay(psf: PsfModel, wavelength: tuple[float, float, float], tolerance: float) -> Decay:
    """Measure the decay of C along a few fibres, at both ends of the range; return the slowest.

    wavelength: (first, last, step); tolerance: acceptable error, in sigma.
    """
    few = select(psf, sorted({0, psf.nfibre // 2, psf.nfibre - 1, *_broadest(psf, wavelength)}))
    low, high = psf.wavelength_range
    most, limit = int((high - low) / wavelength[2]) + 1, SAFETY_CUT * tolerance
    for window in ideal.lengths(most):
        envelopes, hidden, stretches, blocks = [], np.inf, ideal.windows(psf, wavelength, window), []
        for wave, place in stretches:
            with borrowed() as arena, ideal.told_apart(psf, wavelength):
                bands = ideal.ideal(few, (0, few.nfibre), wave, arena, apart=True).icov[:, 0]
                columns = ideal.columns_of(bands, place)
                blocks += [(block, place) for block in bands.copy()]
            envelopes += [*ideal.envelopes_of(columns, place)]
            hidden = min(hidden, float((columns[:, place] * bands[:, place, bands.shape[2] // 2]).min()))
        cut = _cut_fibres(psf, wavelength, max(ideal.bins_below(e, limit, most) for e in envelopes))
        envelopes += [found for stretch in stretches for fibre in cut for found in _at_the_side(psf, fibre, *stretch)]
        beyond = max(ideal.bins_below(e, limit, most) for e in envelopes)
        beyond = max(_carries(block, place, beyond, limit, most) for block, place in blocks)
        if beyond < window // 2:      # measured, not extrapolated
            break
    others = _others(psf, wavelength, limit ** (1 / max(beyond, 1)))
    with_others, patch = (min(most, max(away + ideal.bins_below(e, limit / share, most)
                                        for e in envelopes for away, share in others if share > limit))
                          for limit in (limit, SAFETY_PATCH * tolerance))
    patch = max(_carries(block, place, patch, SAFETY_PATCH * tolerance, most) for block, place in blocks)
    return Decay(max(with_others, beyond), patch, hidden, max(with_others - beyond, 0))


def _carries(block: Array, place: int, beyond: int, limit: float, most: int) -> int:
    """The pad from `beyond` bins on whose canonical correlation with what lies outside is below the limit, both ways.

    C of one bin falls by the limit over `beyond` bins: K, which is more where bins are hardly told apart, falls alike.
    """
    rate = -np.log(limit) / max(beyond, 1)
    while beyond < most:
        found = max(ideal.carried(each, n, beyond) for each, n in ((block, place + 1),
                                                                    (block[::-1, ::-1], len(block) - place)))
        if found <= limit:
            break
        beyond += max(int(np.ceil(np.log(found / limit) / rate)), 1)
    return min(beyond, most)


def _broadest(psf: PsfModel, wavelength: tuple[float, float, float]) -> set[int]:
    """The fibre at each end whose spots of adjacent bins are most alike."""
    found = set()
    for wave, _ in ideal.windows(psf, wavelength, 2):
        with borrowed() as arena:
            bands = ideal.ideal(psf, (0, psf.nfibre), wave, arena, apart=True).icov[:, 0]
        own, next_one = np.moveaxis(bands[:, 0, bands.shape[2] // 2:][:, :2], 1, 0)
        found.add(int((next_one**2 / (own * bands[:, -1, bands.shape[2] // 2])).argmax()))
    return found


def _others(psf: PsfModel, wavelength: tuple[float, float, float], rate: float) -> list[tuple[int, float]]:
    """For a fibre itself and each next one: the distance in bins of its spots in the same rows, and its share in C.

    rate: by which C falls from bin to bin along a fibre. Where traces begin in other rows, C between a bin and those of
    the d-th next fibre is largest d slants away. It is smaller than along the fibre by the correlation of these two, or
    by those of fibres between them: where C falls off even faster, light goes farther by way of them.
    """
    slant, itself = _slant(psf, wavelength), (0, 1.0)
    if slant <= STRAIGHT and rate**slant >= CORRELATED:
        return [itself]
    x = centres(psf, (0, psf.nfibre), np.asarray(wavelength[:2], dtype=float))[1]
    closest = int(np.abs(np.diff(x, axis=0)).min(axis=1).argmin())
    share, among = np.zeros(psf.nfibre), min(MOST_NEIGHBOURS + 1, psf.nfibre)
    for fibre in {min(first, psf.nfibre - among) for first in (0, (psf.nfibre - 1) // 2, closest)}:
        for wave, _ in ideal.windows(psf, wavelength, ideal.WINDOWS[-1] + 2 * ceil(among * slant)):
            with borrowed() as arena, ideal.told_apart(psf, wavelength):
                sums = ideal.ideal(psf, (fibre, fibre + among), wave, arena)
                found = [ideal.correlation(sums, d) for d in range(1, sums.icov.shape[1])]
            share[1:1 + len(found)] = np.maximum(share[1:1 + len(found)], found)
    for d in range(2, psf.nfibre):
        share[d] = max(share[d], (share[1:d] * share[d - 1:0:-1]).max())
    return [itself, *((ceil(d * slant), float(share[d])) for d in range(1, psf.nfibre))]


def _slant(psf: PsfModel, wavelength: tuple[float, float, float]) -> float:
    """The largest difference in bins of two neighbouring fibres' spots in the same row, at both ends."""
    y, x = centres(psf, (0, psf.nfibre), np.asarray(wavelength[:2], dtype=float))
    near = np.abs(np.diff(x, axis=0)) < psf.stamp[1]
    bins = np.abs(np.diff(y, axis=0)) / _rows(psf, wavelength)[1:]
    return float(np.max(bins, where=near, initial=0.0))


def _rows(psf: PsfModel, wavelength: tuple[float, float, float]) -> Array:
    """Rows from a bin to the next, for each fibre at both ends: (nfibre, 2)."""
    first, last, step = wavelength
    y = centres(psf, (0, psf.nfibre), np.clip([first, first + step, last, last - step], *psf.wavelength_range))[0]
    return np.maximum(np.abs(y[:, ::2] - y[:, 1::2]), LEAST)


def too_fine(psf: PsfModel, decay: Decay, wavelength: tuple[float, float, float], tolerance: float, most: float) -> str:
    """A warning if the step is so fine that even good pixels hardly distinguish adjacent bins, or nothing.

    decay: as measured for this PSF, these wavelengths and this tolerance; most: decay.hidden of a sufficient step
    """
    if decay.hidden <= most:
        return ""
    (first, last, step), hidden = wavelength, decay.hidden
    while hidden > FINE:
        step *= WIDER
        hidden = measure_decay(psf, (first, last, step), tolerance).hidden
    return (f"bins of {wavelength[2]:g} Angstrom are too narrow for this PSF: the other bins increase the variance of "
            f"each by a factor of {decay.hidden:.0e}. Many bins may be flagged, and most are solved from their pixels, "
            f"which takes minutes per bundle; use a step of {step:.2g} or more (-w)")


def _cut_fibres(psf: PsfModel, wavelength: tuple[float, float, float], pad: int) -> list[int]:
    """Fibres whose spots are cut off, partly or completely, by the CCD's left or right edge at an end of range or
    pad."""
    first, last, step = wavelength
    wave = np.clip([first - pad * step, first, last, last + pad * step], *psf.wavelength_range)
    x0 = corners(psf, centres(psf, (0, psf.nfibre), wave))[1]
    return np.flatnonzero(((x0 < 0) | (x0 + psf.stamp[1] > psf.shape[1])).any(axis=1)).tolist()


def _at_the_side(psf: PsfModel, fibre: int, wave: Array, place: int) -> list[Array]:
    """The envelope of a fibre that the CCD's edge cuts off, from the remaining part; nothing if there is none.

    Wings alone are similar from bin to bin, so that C falls off along the fibre far more slowly than with the spots'
    cores.
    """
    with borrowed() as arena:
        return ideal.scaled_envelope(ideal.ideal(psf, (fibre, fibre + 1), wave, arena, there=True).icov[:, 0], place)


def measure_neighbours(psf: PsfModel, wavelength: tuple[float, float, float], tolerance: float) -> int:
    """Neighbours that a dense patch needs on each side if all pixels are good.

    Omitting the fibres beyond n changes S_i, relative to itself, by the square of their own correlation with fibre i
    and by the correlation of neighbours to the power 2 (n + 1). A spectrum of SIGNAL errors turns that into sigma.
    """
    worst = np.zeros(1)
    for fibre in sorted({0, psf.nfibre // 2, max(0, psf.nfibre - MOST_NEIGHBOURS - 1)}):
        for wave, _ in ideal.windows(psf, wavelength, ideal.WINDOWS[-1]):
            with borrowed() as arena, ideal.told_apart(psf, wavelength):
                sums = ideal.ideal(psf, (fibre, min(fibre + MOST_NEIGHBOURS + 1, psf.nfibre)), wave, arena)
                found = np.array([ideal.correlation(sums, d) for d in range(1, sums.icov.shape[1])])
            size = max(len(worst), len(found))
            worst = np.maximum(np.pad(worst, (0, size - len(worst))), np.pad(found, (0, size - len(found))))
    return enough_neighbours(worst, tolerance)


def on_ccd(psf: PsfModel, plan: Plan) -> Plan:
    """The plan without the bins beyond the ends for which no fibre has a pixel of its spots on the CCD."""
    if _seen(psf, plan.extended[[0, -1]]).all():
        return plan
    seen, inner = np.ones(len(plan.extended), dtype=bool), plan.inner
    for pad in (slice(0, inner.start), slice(inner.stop, None)):
        seen[pad] = _seen(psf, plan.extended[pad])
    first, last = np.flatnonzero(seen)[[0, -1]].tolist()
    return replace(plan, extended=plan.extended[first:last + 1], inner=slice(inner.start - first, inner.stop - first))


def _seen(psf: PsfModel, wave: Array) -> np.ndarray:
    """(nwave,) whether the spot of some fibre touches the CCD."""
    first = corners(psf, centres(psf, (0, psf.nfibre), wave))
    stamp, shape = np.array(psf.stamp)[:, None, None], np.array(psf.shape)[:, None, None]
    return np.asarray(((first > -stamp) & (first < shape)).all(axis=0).any(axis=0))
