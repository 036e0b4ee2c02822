"""Lists of lines, and the lines of an arc that are seen on the traces."""
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.ndimage import median_filter, percentile_filter

from gpu_extract.data import Array, Image, IntArray
from gpu_extract.errors import FileName, InputError, reading
from gpu_psf.series import at_rows
from gpu_psf.start.profiles import Traces, pixel_gaussian
from gpu_psf.start.traces import risen

PEAK = 8.0               # noise that a line rises above both sides
WINDOW = 2.5             # sigmas on both sides over which a line is fitted
SHARP = 0.3              # quantile of widths that is used as the width: broader lines may be blends
ALONE, NEIGHBOUR = 8.0, 0.02     # least distance in sigmas to the next line of at least this share of a line's light
STEPS = 25               # of Gauss-Newton, at most
GROUND = 12              # sigmas over which the light beneath the lines is the lower quartile
ANGSTROM = {"angstrom": 1.0, "nm": 10.0}


@dataclass(frozen=True)
class Pairs:
    """Lines of known place: fibre, row (pixel along the dispersion), wavelength (Angstrom), sorted by fibre."""

    fibre: IntArray
    row: Array
    wave: Array

    def cut(self, chosen: np.ndarray) -> "Pairs":
        """A subset of the lines."""
        return Pairs(self.fibre[chosen], self.row[chosen], self.wave[chosen])


@dataclass(frozen=True)
class Seen:
    """Lines of an arc: fibre, row and its error, sigma along the dispersion (pixels), light (electron)."""

    fibre: IntArray
    row: Array
    error: Array
    sigma: Array
    light: Array


def read_pairs(path: FileName, columns: tuple[int, int, int] = (0, 1, 2), unit: str = "angstrom") -> Pairs:
    """Known lines from a text file; columns: those of fibre, row and wavelength. Raises InputError."""
    rows = _numbers(path, max(columns) + 1)
    if not rows:
        raise InputError(f"{path}: holds no lines with fibre, row and wavelength")
    fibre, row, wave = (np.array([line[k] for line in rows]) for k in columns)
    if (broken := fibre[fibre != np.rint(fibre)]).size:
        raise InputError(f"{path}: the number of a fibre is {broken[0]:g}, must be a whole number from 0 on: give the "
                         "right --columns")
    order = np.lexsort((row, fibre))
    return Pairs(fibre[order].astype(int), row[order], wave[order] * ANGSTROM[unit])


def _numbers(path: FileName, least: int) -> list[list[float]]:
    """The numbers at the beginning of each line of a text, `least` of them or more."""
    with reading(path):
        text = Path(path).read_text(encoding="utf-8-sig", errors="replace")
    rows = []
    for count, line in enumerate(text.splitlines(), start=1):
        words = line.split("#")[0].split()
        numbers: list[float] = []
        for word in words:
            try:
                numbers.append(float(word))
            except ValueError:
                break
        if words and (len(numbers) < least or not np.isfinite(numbers).all()):
            raise InputError(f"{path}: line {count} ({line.strip()[:40]!r}) does not begin with {least} "
                             f"number{'s' if least > 1 else ''}")
        if words:
            rows.append(numbers)
    return rows


def along(image: Image, traces: Traces, sigmas: float = 2.0) -> tuple[Array, Array]:
    """Light and its error along each trace, (n, ny), from pixels within this many sigmas, weighted by their fraction
    within.

    A row with a masked pixel there has error inf.
    """
    ny, nx = image.shape
    y = np.arange(ny, dtype=float)
    x, sigma = at_rows(traces.x, y), at_rows(traces.sigma, y)
    light, error = np.zeros(x.shape), np.full(x.shape, np.inf)
    for i, (centre, width) in enumerate(zip(x, sigmas * np.maximum(sigma, 0.5), strict=True)):
        half = int(np.ceil(width.max())) + 1
        pixel = np.rint(centre).astype(int)[:, None] + np.arange(-half, half + 1)
        part = np.clip(width[:, None] + 0.5 - np.abs(pixel - centre[:, None]), 0.0, 1.0)
        on_ccd = (pixel >= 0) & (pixel < nx)
        clipped = np.clip(pixel, 0, nx - 1)
        pix, ivar = (array[np.arange(ny)[:, None], clipped].astype(float) for array in (image.pix, image.ivar))
        touched = part > 0
        whole = (~touched | (on_ccd & (ivar > 0))).all(axis=1)
        light[i] = (np.where(ivar > 0, pix, 0.0) * part).sum(axis=1)
        variance = np.divide(part**2, ivar, out=np.zeros_like(part), where=ivar > 0).sum(axis=1)
        error[i] = np.where(whole, np.sqrt(np.maximum(variance, 1e-30)), np.inf)
    return light, error


def seen_lines(image: Image, traces: Traces, width: float) -> Seen:
    """The lines of an arc on each trace, without saturated ones; width: approximate sigma along the dispersion."""
    found: list[tuple[float, ...]] = []
    light, error = along(image, traces)
    for i, (spectrum, noise) in enumerate(zip(light, error, strict=True)):
        if not np.isfinite(noise).any():
            continue
        ground = percentile_filter(median_filter(spectrum, 5, mode="nearest"), 25, int(2 * GROUND * width) | 1,
                                   mode="nearest")
        rows = spectrum - ground                           # without features broader than lines
        quiet = np.where(np.isfinite(noise), noise, 0.0)
        at, rise = risen(rows, 20 * width)
        for row in at[rise > PEAK * np.maximum(quiet[at], 1e-30)]:
            fitted = _fit_line(rows, noise, int(row), width)
            if fitted is not None:
                found.append((i, *fitted))
    table = np.array(found).reshape(-1, 5)
    return Seen(table[:, 0].astype(int), *(table[:, k] for k in range(1, 5)))


def line_width(image: Image, traces: Traces) -> float:
    """Sigma along the dispersion, pixels, of the arc's lines: that of the sharper bright ones, in fits that start from
    several widths.

    Raises InputError if there are no lines.
    """
    for width in (1.0, 2.0, 4.0, 8.0):
        seen = seen_lines(image, traces, width)
        if len(seen.row) >= 5:
            middle = float(np.quantile(seen.sigma[np.argsort(seen.light)[len(seen.row) // 2:]], SHARP))
            if middle < 1.6 * width:
                return middle
    raise InputError(f"the arc has no lines on the {len(traces.light)} traces that rise {PEAK:g} times above the "
                     "noise: give an exposure of a lamp with lines, and its own flat")


def isolated(seen: Seen, width: float) -> Seen:
    """The lines without a neighbour on the same fibre that would affect their fit, or the light beneath them."""
    kept = np.zeros(len(seen.row), dtype=bool)
    for i in np.unique(seen.fibre):
        own = np.flatnonzero(seen.fibre == i)
        apart = np.abs(seen.row[own][:, None] - seen.row[own][None, :])
        other = ~np.eye(len(own), dtype=bool)
        bright = seen.light[own][None, :] > NEIGHBOUR * seen.light[own][:, None]
        kept[own] = ~((apart < ALONE * width) & other & bright).any(axis=1)
    return select_lines(seen, kept)


def select_lines(seen: Seen, kept: np.ndarray) -> Seen:
    """A subset of the lines."""
    return Seen(*(array[kept] for array in vars(seen).values()))


def _fit_line(spectrum: Array, noise: Array, row: int, width: float) -> tuple[float, float, float, float] | None:
    """Row, its error, sigma and light of a Gaussian over pixels on a constant, by Gauss-Newton; None if it is not a
    single line."""
    half = int(np.ceil(WINDOW * width)) + 1
    part = slice(max(row - half, 0), min(row + half + 1, len(spectrum)))
    pixel = np.arange(part.start, part.stop, dtype=np.float64)
    if len(pixel) < 5 or not np.isfinite(noise[part]).all():
        return None
    values, weight = spectrum[part], 1 / noise[part]
    place, sigma = float(row), width
    light = max(float(spectrum[row]), 1e-30) * width * np.sqrt(2 * np.pi)
    for _ in range(STEPS):
        terms = np.stack([*pixel_gaussian(pixel, place, sigma, light), np.ones(len(pixel))], axis=1) * weight[:, None]
        normal = terms.T @ terms
        try:
            change = np.linalg.solve(normal, terms.T @ (values * weight) - normal[:, 0] * light)
        except np.linalg.LinAlgError:
            return None
        # the constant is fitted again each time, as a value, not as a change
        light = max(light + float(change[0]), 1e-30)
        place += float(np.clip(change[1], -0.5 * sigma, 0.5 * sigma))
        sigma *= float(np.clip(1 + change[2] / sigma, 0.7, 1.4))
        if abs(place - row) > 1.5 or not 0.3 < sigma < 4 * width:
            return None
        if abs(change[1]) < 1e-4 * sigma and abs(change[2]) < 1e-4 * sigma:
            break
    error = float(np.sqrt(np.linalg.inv(normal)[1, 1]))
    return (place, error, sigma, light) if error < width and light > 1e-20 else None
