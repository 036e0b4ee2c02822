"""Shifts along the dispersion: lines of known wavelengths, compared with their rows in the PSF.

The light of the rows around a line (filter A of across.py) is compared with the PSF's profile of the line and of its
neighbours in the list, weighted by their strengths. Filters over the rows, made of this profile, its derivative, a
constant and a slope, give light and moment of the line, like those of across.py. Near neighbours that can be separated,
as in a doublet, have their own profile: their brightness relative to the line says nothing about the shift, but their
place does.

If fibres have their own wavelengths, like the orders of an echelle, each has its own marks, in the common coordinate
(gpu_psf.own_lines).
"""
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpu_extract.data import Array, Image, IntArray, PsfModel
from gpu_extract.io.lines import night_sky
from gpu_extract.spots import make_spots
from gpu_psf.data import Lines
from gpu_psf.own_lines import coordinates
from gpu_psf.series import series_at
from gpu_psf.shift import across
from gpu_psf.shift.surface import Moments

STRETCHES, MOST = 12, 2 # of the CCD, and lines used in each
OXYGEN = (6862.0, 6930.0), (7590.0, 7710.0)    # Angstrom: in these bands the spectra of all fibres jump
ALONE = 0.15            # share of a line's light that neighbours in its window may have
SAME, CLEAR = 1.5, 5.0  # pixels: nearer lines count as one; farther ones can be separated whatever their light
TOLD = 3.0              # pixels from which on a fainter neighbour can be separated
RATHER = 0.1            # share of a doublet's light from which on clear lines of a stretch are preferred to it
FAINT = 0.3             # of the brightest line in its window: fainter ones add nothing
LITTLE = 0.004          # share of a line's light below which neighbours are left out of its profile
ENOUGH = 0.75           # share of the rows of a line's window that must be good
BEND = 4                # index of the bend in the profiles of a window, see row_profiles
TINY = 1e-9


@dataclass(frozen=True)
class Marks:
    """Lines that locate the spectra.

    lines: all of the list that may be seen; chosen: numbers of those that are measured
    fibre: whose they are; None: of all
    """

    lines: Lines
    chosen: IntArray
    fibre: int | None = None


def reach(psf: PsfModel) -> int:
    """Rows on each side of a line that are used."""
    return psf.stamp[0] // 2 + 2


def sky_lines() -> Lines:
    """Lines of the dark night sky, vacuum wavelengths, without those in the absorption bands of oxygen."""
    sky = night_sky()
    clear = np.logical_and.reduce([(sky.lines < low) | (sky.lines > high) for low, high in OXYGEN])
    return Lines(sky.lines[clear], sky.strengths[clear])


def choose_all(psf: PsfModel, lines: Lines) -> list[Marks]:
    """Marks of all fibres together or, if wavelengths are their own, of each fibre that has lines."""
    if psf.own is None:
        return [choose(psf, lines)]
    found = []
    for fibre in range(psf.nfibre):
        at = coordinates(psf, fibre, lines.wave)
        order = np.argsort(at)[:np.count_nonzero(np.isfinite(at))]              # NaN is last
        found.append(replace(choose(psf, Lines(at[order], lines.strength[order]), fibre), fibre=fibre))
    return [marks for marks in found if len(marks.chosen)]


def looks(psf: PsfModel, marks: Sequence[Marks], *, all_of_them: bool) -> Iterator[tuple[tuple[int, int], Marks]]:
    """Fibres lo .. hi - 1 and the marks that are measured there; see across.groups."""
    for mine in marks:
        one = [] if mine.fibre is None else [(mine.fibre, mine.fibre + 1)]
        yield from ((fibres, mine) for fibres in one or across.groups(psf.nfibre, all_of_them=all_of_them))


def choose(psf: PsfModel, lines: Lines, fibre: int | None = None) -> Marks:
    """The brightest lines of the list that hardly share light with others, spread over the range.

    fibre: in whose rows they are compared (default: the middle one's)
    """
    low, high = psf.wavelength_range
    inside = (lines.wave > low) & (lines.wave < high)
    lines = Lines(lines.wave[inside], lines.strength[inside])
    y = series_at(psf.y, psf.nfibre // 2 if fibre is None else fibre, lines.wave)
    on = (y > reach(psf)) & (y < psf.shape[0] - 1 - reach(psf))
    apart = np.abs(y[:, np.newaxis] - y)
    beside = np.where((apart > SAME) & (apart < TOLD), lines.strength, 0.0).sum(axis=1)
    rival = np.where((apart >= TOLD) & (apart < CLEAR), lines.strength, 0.0).max(axis=1, initial=0)
    others = np.where(apart < reach(psf), lines.strength * np.where(apart <= SAME, 1.0, FAINT), 0.0)
    good = on & (beside < ALONE * lines.strength) & (rival < lines.strength)
    good &= lines.strength >= others.max(axis=1, initial=0)
    clear = beside + rival < ALONE * lines.strength
    part = np.minimum(((y / psf.shape[0]) * STRETCHES).astype(int), STRETCHES - 1)
    chosen: list[int] = []
    for n in range(STRETCHES):                                    # two of each stretch of the CCD
        there = good & (part == n)
        best = np.where(there & clear, lines.strength, 0.0).max(initial=0)
        mine = np.flatnonzero(there & (clear | (RATHER * lines.strength > best)))
        chosen += mine[np.argsort(-lines.strength[mine], kind="stable")[:MOST]].tolist()
    return Marks(lines, np.array(sorted(chosen), dtype=np.int64))


def brightest(marks: Marks, count: int) -> Marks:
    """The same with only the brightest lines."""
    order = np.argsort(-marks.lines.strength[marks.chosen], kind="stable")[:count]
    return replace(marks, chosen=marks.chosen[np.sort(order)])


def along(image: Image, noise: float, psf: PsfModel, every: Sequence[Marks], how: tuple[float, bool]) -> Moments:
    """Moments of the chosen lines; see across.across, of which `how` is."""
    half, parts = across.half_window(psf), []
    off, all_of_them = how
    rows = 2 * reach(psf) + 1
    for fibres, marks in looks(psf, every, all_of_them=all_of_them):
        wave = marks.lines.wave[marks.chosen]
        made = across.make_filters(psf, fibres, wave, half, stray=False)
        light, _, _ = across.light_and_moment(image, made, rows, noise, off)
        good = np.isfinite(light)
        good &= good.sum(axis=2, keepdims=True) >= ENOUGH * rows
        light = np.where(good, light, 0)
        weight = row_filters(row_profiles(psf, fibres, marks, made, rows), good)
        spread = noise**2 * (made.weight[:, :, 0] ** 2).sum(axis=2)[..., np.newaxis] + np.maximum(light, 0)
        sums = [part.sum(axis=2) for part in (weight[:, :, 1] * light, weight[:, :, 0] * light,
                                              weight[:, :, 1] ** 2 * spread)]
        parts.append(across.as_moments(fibres, wave, sums))
    return across.joined(parts)


def row_filters(parts: Array, good: np.ndarray) -> Array:
    """Filters over the rows of each line's window, from some of these: (nfibre, nline, 2, rows); parts: see
    row_profiles."""
    used = parts * good[:, :, np.newaxis]
    gram = used @ parts.swapaxes(2, 3) + TINY * np.eye(parts.shape[2])
    return np.asarray(np.linalg.solve(gram, used)[:, :, :2], np.float64)


def row_profiles(psf: PsfModel, fibres: tuple[int, int], marks: Marks, made: across.Filters, rows: int) -> Array:
    """The profiles of each line's window: the line with neighbours that cannot be separated, the derivative of all
    lines, a constant, a slope, a bend, and the neighbours that can be separated: (nfibre, nline, 6, rows).

    made: filters over its columns
    """
    weight, column, row = made.weight[:, :, 0], made.column, made.row
    lines, wide = marks.lines, rows + 2 * across.WINGS
    near = _beside(psf, fibres, marks)
    needed = np.unique(np.concatenate(near))
    spots = make_spots(psf, fibres, lines.wave[needed])
    (ny, nx), span = spots.stamps.shape[2:], weight.shape[-1]
    profile = np.zeros((2, *weight.shape[:2], wide))        # of the line, of its neighbours
    y = series_at(psf.y, sum(fibres) // 2, lines.wave)
    for n, others in enumerate(near):
        for other in others:
            k = int(np.searchsorted(needed, other))
            columns = spots.x0[:, k, np.newaxis] + np.arange(nx) - column[:, n, np.newaxis]
            seen = np.where((columns >= 0) & (columns < span), np.take_along_axis(
                weight[:, n], np.clip(columns, 0, span - 1), axis=1), 0.0)
            values = (spots.stamps[:, k] @ seen[:, :, np.newaxis])[..., 0]            # (nfibre, ny)
            at = spots.y0[:, k, np.newaxis] + np.arange(ny) - (row[:, n, np.newaxis] - rows // 2 - across.WINGS)
            on = (at >= 0) & (at < wide)
            fibre = np.broadcast_to(np.arange(len(at))[:, np.newaxis], at.shape)
            kind = int(TOLD <= abs(y[other] - y[marks.chosen[n]]) < CLEAR)
            profile[kind, fibre[on], n, at[on]] += values[on] * lines.strength[other]
        profile[:, :, n] /= lines.strength[marks.chosen[n]]
    (p, others_p), (slope, others_slope) = across.with_slope(profile)
    flat, u = np.broadcast_to(np.ones(rows), p.shape), np.linspace(-1, 1, rows)
    return np.stack([p, slope + others_slope, flat, flat * u, flat * u**2, others_p], axis=2)


def _beside(psf: PsfModel, fibres: tuple[int, int], marks: Marks) -> list[IntArray]:
    """Lines of the list whose light reaches the window of each chosen one, including itself."""
    y = series_at(psf.y, sum(fibres) // 2, marks.lines.wave)
    far = reach(psf) + psf.stamp[0] // 2
    bright = marks.lines.strength
    return [np.flatnonzero((np.abs(y - y[n]) < far) & (bright > LITTLE * bright[n])) for n in marks.chosen]
