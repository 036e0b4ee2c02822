"""The arithmetic of the pictures: the truth at the instrument's resolution, and the choice of pixels to show."""
from dataclasses import dataclass

import numpy as np

from gpu_extract.data import Array, Frame, Image, PsfModel
from gpu_extract.io.truth import TruthFile
from gpu_extract.passes.background import background_of
from gpu_extract.resolution import times_resolution
from gpu_extract.spots import centres

BUNDLE = 25              # fibres shown together if the PSF has no bundles
WIDEST = 260             # columns shown without a PSF


def blurred_truth(truth: TruthFile, frame: Frame, row: int) -> Array | None:
    """R times the truth of a frame's row, electron/Angstrom in the frame's bins; None if it is unknown."""
    found = np.flatnonzero(np.asarray(truth.fibres) == frame.fibres[row])
    if len(found) == 0:
        return None
    fine = _edges(np.asarray(truth.wave, dtype=float))
    total = np.append(0.0, np.cumsum(np.asarray(truth.flux[found[0]], dtype=float) * np.diff(fine)))
    edges = _edges(frame.wave)
    binned = np.diff(np.interp(edges, fine, total)) / np.diff(edges)
    return times_resolution(frame.resolution[row], binned)


def _edges(wave: Array) -> Array:
    middle = 0.5 * (wave[1:] + wave[:-1])
    return np.concatenate([[1.5 * wave[0] - 0.5 * wave[1]], middle, [1.5 * wave[-1] - 0.5 * wave[-2]]])


@dataclass(frozen=True)
class View:
    """The part of the CCD to show, and the frame's rows on it.

    rows: of the frame; y0, x0: pixel of [0, 0]; pix, model, chi: (ny, nx), NaN where masked
    wave: (ny,) wavelength of each CCD row in the bundle's middle, if the PSF is known
    """

    rows: np.ndarray
    y0: int
    x0: int
    pix: Array
    model: Array | None
    chi: Array | None
    wave: Array | None


def wave_of(frame: Frame, row: int) -> Array:
    """The wavelengths of a row of the frame, which may be its own."""
    return frame.wave if frame.own_wave is None else np.asarray(frame.own_wave[row], dtype=np.float64)


def choose_view(image: Image, frame: Frame, psf: PsfModel | None) -> View:
    """The view of the bundle in the middle of the frame."""
    rows = _middle_bundle(frame.fibres, psf)
    wave = None
    if psf is None:
        ys, xs = slice(0, image.shape[0]), _columns(frame, image.shape[1])
    else:
        y, ys, xs = _place(psf, frame.fibres[rows], frame.wave, image.shape)
        middle = int(rows[len(rows) // 2])
        y_of = y[middle - rows[0]]
        of_y = np.argsort(y_of, kind="stable")              # wavelengths may descend along y
        wave = np.interp(np.arange(image.shape[0])[ys], y_of[of_y], wave_of(frame, middle)[of_y])
    good = image.ivar[ys, xs] > 0
    pix = np.where(good, image.pix[ys, xs], np.nan)
    model = chi = None
    if frame.model is not None:
        model = np.asarray(frame.model[ys, xs], dtype=float) + _smooth(frame, rows, image.shape[0])[ys, None]
        variance = 1 / np.where(good, image.ivar[ys, xs], 1) + (float(frame.notes.get("psferr", 0.01)) * model) ** 2
        chi = (pix - model) / np.sqrt(variance)
    return View(rows, ys.start, xs.start, pix, model, chi, wave)


def columns_shown(psf: PsfModel, fibres: tuple[int, int], wave: Array, shape: tuple[int, int]) -> tuple[int, int]:
    """Columns of the CCD, excluding the last, that a page shows of a frame with fibres lo .. hi - 1 and `wave`
    (Angstrom)."""
    numbers = np.arange(*fibres)
    xs = _place(psf, numbers[_middle_bundle(numbers, psf)], wave, shape)[2]
    return xs.start, xs.stop


def _middle_bundle(fibres: np.ndarray, psf: PsfModel | None) -> np.ndarray:
    """Those of these fibres in the same bundle as the middle one."""
    number = fibres // BUNDLE if psf is None or psf.bundle is None else psf.bundle[fibres]
    return np.flatnonzero(number == number[len(number) // 2])


def _place(psf: PsfModel, fibres: np.ndarray, wave: Array, shape: tuple[int, int]) -> tuple[Array, slice, slice]:
    """Rows of the centres of some fibres' spots, (nfibre, nwave); the rows and columns of the CCD around them."""
    y, x = centres(psf, (int(fibres[0]), int(fibres[-1]) + 1), wave)
    margin = psf.stamp[0], psf.stamp[1] // 2 + 2
    ys, xs = (_range(c, m, n) for c, m, n in zip((y, x), margin, shape, strict=True))
    return y, ys, xs


def _smooth(frame: Frame, rows: np.ndarray, ny: int) -> Array:
    """(ny,) the background of the bundle of these rows of the frame, 0 if there is none."""
    bundles = sorted(frame.notes.get("bundles", {}))
    mine = np.searchsorted(bundles, frame.fibres[rows[0]], side="right") - 1
    return background_of(frame, ny)[mine] if mine >= 0 else np.zeros(ny)


def _range(centre: Array, margin: int, n: int) -> slice:
    first = int(np.clip(np.floor(centre.min()) - margin, 0, n - 2))
    return slice(first, int(np.clip(np.ceil(centre.max()) + margin + 1, first + 2, n)))


def _columns(frame: Frame, n: int) -> slice:
    """Columns with a model, at most WIDEST of them, for an unknown PSF."""
    lit = np.flatnonzero((frame.model != 0).any(axis=0)) if frame.model is not None else np.arange(n)
    first, last = (int(lit[0]), int(lit[-1]) + 1) if len(lit) else (0, n)
    middle = (first + last) // 2
    return slice(max(first, middle - WIDEST // 2), min(last, middle + WIDEST // 2))
