"""shift_psf: moves the traces of a PSF to those of an exposure."""
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from gpu_extract.data import Array, Image, PsfModel
from gpu_extract.errors import ConfigError, InputError
from gpu_extract.spots import centres, select
from gpu_psf.data import Lines
from gpu_psf.own_lines import wavelengths
from gpu_psf.prepare import read_noise
from gpu_psf.shift.across import ROWS, across, half_window
from gpu_psf.shift.along import Marks, along, brightest, choose_all, sky_lines
from gpu_psf.shift.scan import across_scores, along_scores, peak
from gpu_psf.shift.surface import Moments, Surface, fit_surface, level, moved_by, raised

REACH = 2, 5            # largest offset of the traces in pixels (x, y)
BEYOND = 4              # more pixels that are searched, so that too large offsets are seen
COARSE, FINE = 16, 48   # stretches of each fibre
FEW = 8                 # lines of the first looks
NEAR = 0.6              # pixels: a larger step is followed by another coarse one
MOST_STEPS = 5
LEAST_LIGHT = 30.0      # standard deviations of all light on the traces together, at least
SEEN = 5.0              # standard deviations of a line in a fibre that is seen
LEAST_LINES = 20        # needed in all fibres together
FIRST = 2.0, False      # of the first looks: see across.across
UNSURE = 0.1            # pixels: largest uncertainty of shifts across


class Reference(StrEnum):
    """The reference of the shift along the dispersion."""

    LINES = "LINES"         # wavelengths of lines
    NONE = "NONE"           # no line is seen: the traces are not moved along the dispersion


@dataclass(frozen=True)
class ShiftConfig:
    """degree: of the shifts in fibre and wavelength together, 0 to 4."""

    degree: int = 2

    def __post_init__(self) -> None:
        if not 0 <= self.degree <= 4:
            raise ConfigError(f"degree is {self.degree}, must be 0 to 4")


@dataclass(frozen=True)
class ShiftedPsf:
    """The PSF of an exposure.

    psf: the given one with its traces moved; x, y: the shifts; reference: of y; lines: number of measured lines
    """

    psf: PsfModel
    x: Surface
    y: Surface
    reference: Reference
    lines: int


def shift_psf(image: Image, psf: PsfModel, lines: Lines | None = None, config: ShiftConfig | None = None) -> ShiftedPsf:
    """Move the traces of `psf` to those of an exposure, by shifts in x and y that vary slowly over the camera.

    image: with light on the fibres, of any kind; lines: that are in its spectra (default: of the night sky) The shapes
    of the spots do not change. If fibres have their own wavelengths, lines are searched for in each fibre that has
    them. Fibres beside a cropped image move like the nearest one on it. Raises InputError for another CCD, no light,
    and traces that are too far off.
    """
    config = config or ShiftConfig()
    _check(image, psf)
    first, last = _on_image(image, psf)
    if last - first < psf.nfibre:
        found = shift_psf(image, select(psf, range(first, last)), lines, config)
        dx, dy = (replace(shift, beside=(first, psf.nfibre - last)) for shift in (found.x, found.y))
        return replace(found, psf=moved_by(psf, dx, dy), x=dx, y=dy)
    noise = _noise(image, psf.shape[1])
    marks = choose_all(psf, sky_lines() if lines is None else lines)
    count = sum(len(mine.chosen) for mine in marks)
    if lines is not None and not count:
        low, high = _range(psf)
        raise InputError(f"none of the {len(lines.wave)} lines lies apart from others within the PSF's {low:.0f} to "
                         f"{high:.0f} A; give lines of this range")
    near = _approach(image, noise, psf, [brightest(mine, FEW) for mine in marks], config.degree)
    if near[2] is Reference.NONE and count > FEW * len(marks):    # the last look would see them from this far
        near = _approach(image, noise, psf, marks, config.degree)
    dx, dy, _ = near
    dx, dy, reference = _step(image, noise, moved_by(psf, dx, dy), (dx, dy), marks, FINE, (0.1, True))
    if (unsure := dx.error() / dx.spread) > UNSURE:
        raise InputError(f"the light on the traces gives the shift to only {unsure:.3f} pixels, must be {UNSURE} or "
                         "better: give a longer exposure, or a lower degree")
    return ShiftedPsf(moved_by(psf, dx, dy), dx, dy, reference, count)


def _approach(image: Image, noise: float, psf: PsfModel, marks: Sequence[Marks],
              degree: int) -> tuple[Surface, Surface, Reference]:
    """Shifts (x, y) after which one more step suffices, and the reference of y. Raises InputError."""
    dx, dy = (raised(level(psf.nfibre, (trace.wmin, trace.wmax), degree), by)
              for trace, by in zip((psf.x, psf.y), _whole_pixels(image, noise, psf, marks), strict=True))
    for _ in range(MOST_STEPS):
        x, y, reference = _step(image, noise, moved_by(psf, dx, dy), (dx, dy), marks, COARSE, FIRST)
        step = max(np.abs(now.grid() @ (now.coeff - old.coeff)).max() for now, old in ((x, dx), (y, dy)))
        dx, dy = x, y
        if step < NEAR:
            return dx, dy, reference
    raise InputError(f"the shifts do not converge (the last step was {step:.1f} pixels): {psf.name} is not of this "
                     "camera; give its own PSF")


def _noise(image: Image, width: int) -> float:
    """The typical read noise, electron, of good pixels only: READNOISE may hold anything under a mask."""
    good, noise = image.ivar[::16, ::16] > 0, read_noise(image, slice(0, image.shape[1]), width)
    every = np.concatenate([noise.squared((row, 0), (1, image.shape[1]))[:, ::16]
                            for row in range(0, image.shape[0], 16)])
    return float(np.sqrt(np.median(every[good]))) if good.any() else 1.0


def _range(psf: PsfModel) -> tuple[float, float]:
    """The wavelengths that any fibre has."""
    ends = np.repeat(psf.wavelength_range, psf.nfibre)
    wave = wavelengths(psf, np.tile(np.arange(psf.nfibre), 2), ends)
    return float(wave.min()), float(wave.max())


def _check(image: Image, psf: PsfModel) -> None:
    (rows, columns), (ny, nx) = image.shape, psf.shape
    if rows != ny or columns > nx:
        raise InputError(f"the image has {columns} x {rows} pixels, {psf.name} is about {nx} x {ny}; give the PSF of "
                         "this camera")


def _on_image(image: Image, psf: PsfModel) -> tuple[int, int]:
    """The fibres lo .. hi - 1 whose traces cross the image; all fibres if none does."""
    x = centres(psf, (0, psf.nfibre), np.linspace(*psf.wavelength_range, COARSE))[1]
    there = np.flatnonzero(((x >= 0) & (x <= image.shape[1] - 1)).any(axis=1))
    return (int(there[0]), int(there[-1]) + 1) if len(there) else (0, psf.nfibre)


def _whole_pixels(image: Image, noise: float, psf: PsfModel, marks: Sequence[Marks]) -> tuple[int, int]:
    """The shift in whole pixels (x, y), which detects too large offsets."""
    by_x = peak(across_scores(image, noise, psf, REACH[0] + half_window(psf) + BEYOND))
    if by_x is None:
        raise InputError(f"the traces of {psf.name} have no more light than the pixels beside them: the image has no "
                         "light, or it lies elsewhere; check that image and PSF belong together")
    _near(by_x, REACH[0], "x", psf)
    by_y = 0
    if any(len(mine.chosen) for mine in marks):
        moved = moved_by(psf, raised(level(psf.nfibre, (psf.x.wmin, psf.x.wmax), 0), by_x),
                         level(psf.nfibre, (psf.y.wmin, psf.y.wmax), 0))
        by_y = peak(along_scores(image, noise, moved, marks, REACH[1] + BEYOND)) or 0
        there = replace(moved, y=moved.y.plus(float(by_y)))
        if _seen_lines(image, noise, there, marks, FIRST) is None:      # it was only the best match to noise
            by_y = 0
        _near(by_y, REACH[1], "y", psf)
    return by_x, by_y


def _near(by: int, most: int, axis: str, psf: PsfModel) -> None:
    if abs(by) > most:
        raise InputError(f"the light lies {by:+d} pixels in {axis} from the traces of {psf.name}, at most {most} are "
                         "allowed: give a nearer PSF; gpu_psf start --psf makes one from an arc")


def _step(image: Image, noise: float, psf: PsfModel, so_far: tuple[Surface, Surface], marks: Sequence[Marks],
          stretches: int, how: tuple[float, bool]) -> tuple[Surface, Surface, Reference]:
    """Improved shifts; psf: moved by the shifts so far. Raises InputError without light."""
    dx, dy = so_far
    low, high = psf.wavelength_range
    wave = np.linspace(low, high, stretches + 2)[1:-1]
    seen, often = across(image, noise, psf, wave, how), _overlap(psf, wave)
    total = float(seen.light.sum() / np.sqrt(max(seen.variance.sum(), noise * noise) * often))
    if not total > LEAST_LIGHT:
        raise InputError(f"the light on the traces of {psf.name} is {max(total, 0):.0f} times its noise, must be "
                         f"{LEAST_LIGHT:.0f} or more: the image has no light, or it lies elsewhere; check that image "
                         "and PSF belong together")
    dx, lines = fit_surface(dx, seen, often), _seen_lines(image, noise, psf, marks, how)
    if lines is None:
        return dx, replace(dy, coeff=np.zeros_like(dy.coeff)), Reference.NONE
    return dx, fit_surface(dy, lines), Reference.LINES


def _overlap(psf: PsfModel, wave: Array) -> float:
    """How many stretches around these wavelengths share a row: several on a short detector."""
    return max(ROWS / float(np.median(np.abs(np.diff(centres(psf, (0, psf.nfibre), wave)[0])))), 1.0)


def _seen_lines(image: Image, noise: float, psf: PsfModel, marks: Sequence[Marks],
                how: tuple[float, bool]) -> Moments | None:
    """The moments of the lines; None if too few of them are seen."""
    if not any(len(mine.chosen) for mine in marks):
        return None
    lines = along(image, noise, psf, marks, how)
    with np.errstate(invalid="ignore", divide="ignore"):
        bright = lines.light > SEEN * np.sqrt(lines.variance)
    return lines if bright.sum() >= LEAST_LINES else None
