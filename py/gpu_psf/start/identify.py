"""Identification of an arc's lines with those of the list, from a solution that is nearly right.

A proposed solution is moved until the lines of the list lie on those that are seen. The number of matches is compared
with that expected by chance. A wrong list, or an arc of another lamp, agrees no better than chance, which is an error.
"""
import itertools
from dataclasses import replace

import numpy as np
from scipy.ndimage import gaussian_filter1d

from gpu_extract.data import Array, IntArray, Legendre, PsfModel
from gpu_extract.errors import InputError
from gpu_extract.spots import centres
from gpu_psf.beside import check_beside, light_on_traces
from gpu_psf.series import at_rows, fit_series, legfit, scaled
from gpu_psf.start.lines import Pairs, Seen, select_lines
from gpu_psf.start.profiles import Traces
from gpu_psf.start.solution import Solution, solve_wavelengths

TOLERANCES = (3.0, 2.0, 1.0, 1.0)     # pixels, for successive rounds of refinement
BLENDED = 5.0            # sigmas: lines of the list closer than this are not used
BROAD = 1.4              # times the width of a sharp line: broader lines are blends, and not used
NARROW = 0.6             # narrower ones are hot pixels
VOTE = 0.25              # width of a bin of the histogram of shifts, pixels
BEYOND_CHANCE = 3.0      # least ratio of matches to chance matches, or half of the lines that do not match by chance
LEAST = 6                # least number of matches
FEWEST = 12              # least number of lines for a width
SAMPLES = 512
BLOCK = 64               # rows in which a hot column has one level
MOST_ALONG, MOST_ACROSS = 8.0, 5.0      # largest offset of a given PSF in y and x, pixels


def rows_of(solution: Solution, lines: Array) -> Array:
    """(nfibre, nline) rows of wavelengths; NaN where they are off the CCD."""
    y = np.linspace(solution.wave.wmin, solution.wave.wmax, SAMPLES)
    rows = np.empty((len(solution.wave.coeff), len(lines)))
    for i, wave in enumerate(solution.at(y)):
        order = np.argsort(wave)
        rows[i] = np.interp(lines, wave[order], y[order], left=np.nan, right=np.nan)
    return rows


def match(seen: Seen, lines: Array, solution: Solution, tolerance: float,
          blended: float = BLENDED) -> tuple[Pairs, IntArray]:
    """Pairs of listed and seen lines that are each other's nearest within `tolerance` pixels, and which of `seen` they
    are. If one spot may be either of two listed lines, neither is used."""
    expected = rows_of(solution, lines)
    width = _typical(seen)
    sharp = (seen.sigma < BROAD * width) & (seen.sigma > NARROW * width)
    rows: list[tuple[int, float, float, int]] = []
    for i, row in enumerate(expected):
        own = np.flatnonzero((seen.fibre == i) & sharp)
        on = np.flatnonzero(np.isfinite(row))
        if not len(own) or not len(on):
            continue
        apart = np.abs(seen.row[own][None, :] - row[on][:, None])
        distances = np.abs(row[on][None, :] - row[on][:, None]) + np.where(np.eye(len(on), dtype=bool), np.inf, 0.0)
        alone = distances.min(axis=1) > blended * width if len(on) > 1 else np.ones(len(on), dtype=bool)
        for n in np.flatnonzero(alone):
            k = int(apart[n].argmin())
            if apart[n, k] <= tolerance and apart[:, k].argmin() == n:
                rows.append((i, seen.row[own[k]], lines[on[n]], int(own[k])))
    table = np.array(rows).reshape(-1, 4)
    return Pairs(table[:, 0].astype(int), table[:, 1], table[:, 2]), table[:, 3].astype(int)


def refine(seen: Seen, lines: Array, solution: Solution, *, ny: int, kept: bool = False,
           found: bool = False) -> tuple[Solution, Pairs]:
    """The solution through all lines of the list that are seen, matched with decreasing tolerance.

    kept: the given one is right in its shape, and stays as it is where no lines tell; found: lines have told it, also
        such as are not matched here, and it counts a little
    Raises InputError if no more lines match than by chance.
    """
    nfibre, echelle, base = len(solution.wave.coeff), solution.orders is not None, solution if kept else None
    told = solution if found else None
    pairs = match(seen, lines, solution, TOLERANCES[0])[0]
    for n, tolerance in enumerate(TOLERANCES):
        pairs, _ = match(seen, lines, solution, tolerance)
        _enough(len(pairs.row), seen, lines, solution, tolerance)
        solution = solve_wavelengths(pairs, nfibre, ny, echelle=echelle, base=base, found=told,
                                     even=found and n < len(TOLERANCES) - 1)
        told = solution if found else None
    return solution, pairs.cut(solution.used)


def _typical(seen: Seen) -> float:
    """The width of the sharper of the bright lines: hot pixels are narrower, and faint; blends are broader."""
    if not len(seen.light):
        return 1.0
    bright = np.argsort(-seen.light)[:max(len(seen.light) // 4, LEAST)]
    return float(np.quantile(seen.sigma[bright], 0.3))


def sharp_lines(seen: Seen, lines: Array, solution: Solution) -> Seen:
    """Lines that measure the width of a spot: isolated ones, or all matched ones if these are few."""
    for apart in (2 * BLENDED, BLENDED, 0.0):
        _, which = match(seen, lines, solution, TOLERANCES[-1], apart)
        if len(which) >= FEWEST:
            break
    return select_lines(seen, which)


def _enough(count: int, seen: Seen, lines: Array, solution: Solution, tolerance: float) -> None:
    """Raise InputError if a list that is shifted by a large amount agrees nearly as often as it does in place."""
    chance = []
    for shift in (-61.0, -37.0, -23.0, 23.0, 37.0, 61.0):
        moved = replace(seen, row=seen.row + shift)
        chance.append(len(match(moved, lines, solution, tolerance)[0].row))
    by_chance = float(np.mean(chance))
    needed = max(min(BEYOND_CHANCE * by_chance, (by_chance + len(seen.row)) / 2), LEAST)      # at most all of them
    if count < needed:
        raise InputError(f"{count} of the {len(seen.row)} lines that are seen match one of the list's {len(lines)}; "
                         f"{by_chance:.0f} would by chance, at least {needed:.0f} are needed: give the list of this "
                         "lamp, in Angstrom, in vacuum or air like the start, and a start of this spectrograph")


def shifted(solution: Solution, seen: Seen, lines: Array) -> tuple[Solution, float]:
    """A solution moved along the dispersion, by up to MOST_ALONG pixels, to the most matches, and the shift.

    Raises InputError if no shift stands out.
    """
    expected = rows_of(solution, lines)
    edges = np.arange(-MOST_ALONG - VOTE / 2, MOST_ALONG + VOTE, VOTE)
    votes = np.zeros(len(edges) - 1)
    for i, row in enumerate(expected):
        apart = seen.row[seen.fibre == i][None, :] - row[np.isfinite(row)][:, None]
        votes += np.histogram(apart, edges)[0]
    smooth = gaussian_filter1d(votes, 1.5, mode="constant")
    best = int(smooth.argmax())
    level, found = float(np.median(smooth)), float(smooth[best])
    if found < level + 5 * np.sqrt(max(level, 1.0) / 5) + 1:
        raise InputError(f"no shift of up to {MOST_ALONG:g} pixels brings the start's lines onto those that are seen "
                         f"({len(seen.row)} seen, {int(np.isfinite(expected).sum())} expected); give a nearer start, "
                         "or the right list of lines")
    near = slice(max(best - 3, 0), best + 4)
    middle = (edges[:-1] + edges[1:]) / 2
    shift = float((middle[near] * smooth[near]).sum() / smooth[near].sum())
    return moved_along(solution, shift), shift


def moved_along(solution: Solution, shift: float) -> Solution:
    """w(y) becomes w(y - shift)."""
    low, high = solution.wave.wmin, solution.wave.wmax
    y = np.linspace(low, high, SAMPLES)
    coeff = legfit(scaled(y, (low, high)), solution.at(y - shift).T, solution.wave.coeff.shape[1] - 1).T
    return replace(solution, wave=Legendre(coeff, low, high))


def solution_of(psf: PsfModel, ny: int) -> Solution:
    """The wavelengths against the row of a given PSF."""
    coordinate = np.linspace(*psf.wavelength_range, SAMPLES)
    rows = centres(psf, (0, psf.nfibre), coordinate)[0]
    wave = np.broadcast_to(coordinate, rows.shape) if psf.own is None else at_rows(psf.own, coordinate)
    orders = None if psf.own is None else np.arange(psf.nfibre)
    return Solution(fit_series(rows, wave, (0.0, ny - 1.0), psf.y.coeff.shape[1], beyond=2.0), 0.0,
                    np.ones(0, dtype=bool), orders)


def shift_across(pix: Array, psf: PsfModel) -> float:
    """Offset in x of an image's light from a PSF's traces, in pixels: the shift with most light on them.

    Raises InputError if it exceeds MOST_ACROSS.
    """
    pix = _without_columns(pix)
    check_beside(pix, psf, MOST_ACROSS)
    shifts = np.arange(-MOST_ACROSS, MOST_ACROSS + 0.125, 0.25)
    light = light_on_traces(pix, psf, shifts)
    best = int(np.argmax(light))
    if 0 < best < len(light) - 1:
        low, top, high = light[best - 1:best + 2]
        return float(shifts[best] + 0.25 * 0.5 * (low - high) / (low - 2 * top + high))
    return float(shifts[best])


def _without_columns(pix: Array) -> Array:
    """An arc less the lower quartile of each column in blocks of rows: hot columns, on which traces would settle."""
    edges = np.linspace(0, len(pix), max(len(pix) // BLOCK, 1) + 1).astype(int)
    return np.concatenate([pix[low:high] - np.quantile(pix[low:high], 0.25, axis=0)
                           for low, high in itertools.pairwise(edges)])


def traces_of(psf: PsfModel, ny: int) -> Traces:
    """The traces of a PSF against the row."""
    coordinate = np.linspace(*psf.wavelength_range, SAMPLES)
    y, x = centres(psf, (0, psf.nfibre), coordinate)
    trace, width = (fit_series(y, values, (0.0, ny - 1.0), degree, beyond=2.0) for values, degree in (
        (x, psf.x.coeff.shape[1]), (at_rows(psf.cores[0].sigma_x, coordinate), 2)))
    none = np.zeros(psf.nfibre)
    return Traces(trace, width, none, none, none > 0, psf.shape[1])
