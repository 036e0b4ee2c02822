"""Wavelengths from a description that is nearly right: shift, stretch and curvature are searched for.

All combinations are tried on the middle fibre. The one with most matches between its brightest lines and the list is
used, if it has clearly more than any other. The other fibres follow from neighbour to neighbour.
"""
from dataclasses import dataclass

import numpy as np

from gpu_extract.data import Array
from gpu_extract.errors import InputError
from gpu_psf.series import legendre_of_rows, legfit, legval
from gpu_psf.start.identify import LEAST, SAMPLES
from gpu_psf.start.lines import Seen
from gpu_psf.start.solution import Solution

BRIGHT = 30                     # brightest lines of a fibre that are used
STRETCHES, CURVES = 33, (13, 35)     # numbers that are tried; curvatures with a known middle, and without
OFF = 0.03                      # largest error of each end, as a share of the range
OUT, MOST = 1.3, 0.75           # times as many lines as with a typical solution must agree; or this share of what
#                                 chance leaves
CLOSE = 0.7                     # largest distance of matching lines, pixels
ENOUGH = 0.75                   # share of a usual fibre's lines
CURVED = 0.015, 0.04            # largest of these curvatures, as a share of the range


@dataclass(frozen=True)
class Range:
    """A described range: wavelengths (Angstrom) in the first and the last row of the middle fibre, and in its middle
    row (None: half way)."""

    first: float
    last: float
    middle: float | None = None

    def wave(self, y: Array, ny: int) -> Array:
        """A parabola through the three."""
        middle = (self.first + self.last) / 2 if self.middle is None else self.middle
        u = 2 * y / (ny - 1) - 1
        return middle + (self.last - self.first) / 2 * u + ((self.first + self.last) / 2 - middle) * u**2


def describe(known: Range, seen: Seen, lines: Array, nfibre: int, ny: int) -> Solution:
    """A solution from a description that is correct to about 3 % of the range: shift, stretch and curvature are
    searched for on the middle fibre, and the other fibres follow from neighbour to neighbour.

    Raises InputError if nothing stands out.
    """
    middle = _middle(seen, nfibre)
    found = _search(known, seen, lines, middle, ny)
    coeff: dict[int, Array] = {middle: found}
    for direction in (1, -1):
        for i in range(middle + direction, nfibre if direction > 0 else -1, direction):
            coeff[i] = _follow(coeff[i - direction], seen, lines, i, ny)
    every = np.stack([coeff[i] for i in range(nfibre)])
    return Solution(legendre_of_rows(every, ny), 0.0, np.ones(0, dtype=bool))


def _middle(seen: Seen, nfibre: int) -> int:
    """The middle fibre, or the nearest one with ENOUGH of the lines of a fibre, where the middle one is dark or
    masked in part."""
    count = np.bincount(seen.fibre, minlength=nfibre)
    good = np.flatnonzero(count >= ENOUGH * np.quantile(count, 0.9))
    return int(good[np.abs(good - nfibre // 2).argmin()])


def brightest(seen: Seen, fibre: int) -> Array:
    """Rows of a fibre's BRIGHT brightest lines, ascending."""
    own = np.flatnonzero(seen.fibre == fibre)
    return np.sort(seen.row[own[np.argsort(-seen.light[own])[:BRIGHT]]])


def _search(known: Range, seen: Seen, lines: Array, fibre: int, ny: int) -> Array:
    """Coefficients of the middle fibre's wavelengths: the shift, stretch and curvature with most matches between the
    brightest lines and the list, and clearly more than any other."""
    rows = brightest(seen, fibre)
    if len(rows) < LEAST:
        raise InputError(f"the middle fibre shows {len(rows)} lines, at least {LEAST} are needed: give an exposure of "
                         "a lamp with lines, a longer one, or --psf or --pairs")
    y = np.linspace(0, ny - 1, SAMPLES)
    base = known.wave(y, ny)
    step = (base[-1] - base[0]) / (ny - 1)
    u_seen = 2 * rows / (ny - 1) - 1
    wave_seen = np.interp(rows, y, base)
    span = abs(base[-1] - base[0])
    free = int(known.middle is None)
    sizes = [span * 2 * OFF * np.linspace(-1, 1, STRETCHES), span * CURVED[free] * np.linspace(-1, 1, CURVES[free])]
    most = (OFF + free * CURVED[1] * 2 / 3) * span         # a curvature moves the middle relative to the ends
    shifts = np.arange(-most, most, abs(step) * 0.75)
    best: list[tuple[float, float, float, float]] = []
    for curve in sizes[1]:
        for stretch in sizes[0]:
            moved = wave_seen + stretch * u_seen / 2 + curve * (u_seen**2 - 1 / 3)
            near = _distance(moved[None, :] + shifts[:, None], lines) / abs(step)
            score = np.exp(-0.5 * (near / 2.0)**2).sum(axis=1)
            k = int(score.argmax())
            best.append((float(score[k]), float(shifts[k]), float(stretch), float(curve)))
    best.sort(reverse=True)
    tried = [_polished(known, best[n][1:], rows, lines, ny) for n in range(min(12, len(best)))]
    score, coeff = max(tried, key=lambda t: t[0])
    typical = float(np.median([b[0] for b in best]))
    # where rows are few, so is what is tried, and the typical solution is nearly right: what chance gives is told then
    # by how dense the list is, a Gaussian of CLOSE pixels around each of its lines
    chance = len(rows) * min(np.sqrt(2 * np.pi) * CLOSE * abs(step) * len(lines) / np.ptp(lines), 1.0)
    needed = max(0.5 * len(rows), LEAST - 1, min(OUT * typical, chance + MOST * (len(rows) - chance)))
    if score < needed:
        raise InputError(f"no solution near the description stands out: at best {score:.0f} of the {len(rows)} "
                         f"brightest lines of the middle fibre match the list, {needed:.0f} are needed; give the list "
                         "of this lamp, and first and last wavelengths correct to 3 %")
    return coeff


def _distance(wave: Array, lines: Array) -> Array:
    """Distance of each wavelength from the nearest line."""
    right = np.clip(np.searchsorted(lines, wave), 1, len(lines) - 1)
    return np.minimum(np.abs(wave - lines[right - 1]), np.abs(wave - lines[right]))


def _polished(known: Range, start: tuple[float, float, float], rows: Array, lines: Array,
              ny: int) -> tuple[float, Array]:
    """A cubic through the matching lines, refined repeatedly, and the number of lines that match to a pixel."""
    y = np.linspace(0, ny - 1, SAMPLES)
    u = 2 * y / (ny - 1) - 1
    wave = known.wave(y, ny) + start[0] + start[1] * u / 2 + start[2] * (u**2 - 1 / 3)
    coeff = legfit(u, wave, 4)
    return _settle(coeff, rows, lines, ny, (6.0, 4.0, 3.0, 2.0, 1.5))


def _settle(coeff: Array, rows: Array, lines: Array, ny: int, tolerances: tuple[float, ...]) -> tuple[float, Array]:
    """Fit the lines within each tolerance (pixels) in turn. The score is the number of lines within a pixel."""
    argument = 2 * rows / (ny - 1) - 1
    step = abs(2 * coeff[1] / (ny - 1))
    for tolerance in tolerances:
        wave = legval(argument, coeff)
        nearest = lines[np.abs(lines[None, :] - wave[:, None]).argmin(axis=1)]
        left = nearest - wave
        kept = np.abs(left) < tolerance * step
        if np.count_nonzero(kept) < LEAST - 1:
            break
        terms = min(max(int(np.count_nonzero(kept)) // 4, 1), 4)
        change = legfit(argument[kept], left[kept], terms - 1)
        coeff = coeff.copy()
        coeff[:terms] += change
    left = _distance(legval(argument, coeff), lines) / step
    return float(np.exp(-0.5 * (left / CLOSE)**2).sum()), coeff


def _follow(coeff: Array, seen: Seen, lines: Array, fibre: int, ny: int) -> Array:
    """The wavelengths of a fibre from those of its neighbour: shifted by a few pixels, then fitted."""
    rows = brightest(seen, fibre)
    if len(rows) < LEAST:
        return coeff
    step = 2 * coeff[1] / (ny - 1)
    tried = []
    for shift in np.arange(-6, 6.5, 0.5):
        moved = coeff.copy()
        moved[0] += shift * step
        tried.append(_settle(moved, rows, lines, ny, (1.5, 1.0)))
    return max(tried, key=lambda t: t[0])[1]
