"""The offset of the light from the traces in whole pixels, from which the small shifts are measured."""
from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gpu_extract.data import Array, Image, PsfModel
from gpu_psf.shift.across import ROWS, Filters, groups, half_window, make_filters
from gpu_psf.shift.along import BEND, Marks, looks, reach, row_filters, row_profiles

STRETCHES = 8           # of each fibre that are used
PEAK = 0.4              # excess of the best score over the lowest quarter, at least; noise gives about 0.15


def across_scores(image: Image, noise: float, psf: PsfModel, most: int) -> Array:
    """Light on the traces for each shift by -most .. most columns, as means of logarithms, so that no fibre
    dominates."""
    low, high = psf.wavelength_range
    wave = np.linspace(low, high, STRETCHES + 2)[1:-1]
    parts = [_across(image, noise, make_filters(psf, fibres, wave, half_window(psf), stray=True), most)
             for fibres in groups(psf.nfibre, all_of_them=False)]
    return np.asarray(np.mean(parts, axis=0), np.float64)


def _across(image: Image, noise: float, made: Filters, most: int) -> Array:
    span = made.weight.shape[-1]
    cut = _cut(image, (made.row - ROWS // 2, ROWS), (made.column - most, span + 2 * most)).sum(axis=2)
    views = sliding_window_view(cut, span, axis=2)
    light = np.einsum("fwsx,fwx->fws", views, made.weight[:, :, 0])
    spread = noise * np.sqrt(ROWS * (made.weight[:, :, 0] ** 2).sum(axis=2))
    return _score(light / spread[..., np.newaxis])


def along_scores(image: Image, noise: float, psf: PsfModel, every: Sequence[Marks], most: int) -> Array:
    """Light of the lines for each shift by -most .. most rows."""
    parts = []
    for fibres, marks in looks(psf, every, all_of_them=False):
        made = make_filters(psf, fibres, marks.lines.wave[marks.chosen], half_window(psf), stray=False)
        profiles = row_profiles(psf, fibres, marks, made, 2 * reach(psf) + 1)
        profiles = np.delete(profiles, BEND, axis=2)      # with it, a filter would see light far from the line
        weight = row_filters(profiles, np.ones_like(profiles[:, :, 0], dtype=bool))[:, :, 0]
        parts.append(_along(image, noise, made, weight, most))
    return np.asarray(np.mean(parts, axis=0), np.float64)


def _along(image: Image, noise: float, made: Filters, weight: Array, most: int) -> Array:
    rows = weight.shape[-1]
    span = made.weight.shape[-1]
    cut = _cut(image, (made.row - rows // 2 - most, rows + 2 * most), (made.column, span))
    light = np.einsum("fwrx,fwx->fwr", cut, made.weight[:, :, 0])
    found = np.einsum("fwsr,fwr->fws", sliding_window_view(light, rows, axis=2), weight)
    spread = noise * np.sqrt((made.weight[:, :, 0] ** 2).sum(axis=2) * (weight**2).sum(axis=2))
    return _score(found / spread[..., np.newaxis])


def peak(table: Array) -> int | None:
    """The shift of the best score; None if it is hardly better than others, as for noise, or light everywhere."""
    if table.max() <= float(np.quantile(table, 0.25)) + PEAK:
        return None
    return int(table.argmax()) - len(table) // 2


def _score(signal: Array) -> Array:
    return np.asarray(np.arcsinh(np.maximum(signal, 0.0)).mean(axis=(0, 1)), np.float64)


def _cut(image: Image, rows: tuple[np.ndarray, int], columns: tuple[np.ndarray, int]) -> Array:
    """Pixels from first rows and columns (nfibre, nwave) on; 0 where masked or beyond the image."""
    (first_row, ny), (first_column, nx) = rows, columns
    row = first_row[..., np.newaxis] + np.arange(ny)
    column = first_column[..., np.newaxis] + np.arange(nx)
    inside = ((row >= 0) & (row < image.shape[0]))[..., np.newaxis] & (
        (column >= 0) & (column < image.shape[1]))[..., np.newaxis, :]
    at = (np.clip(row, 0, image.shape[0] - 1)[..., np.newaxis],
          np.clip(column, 0, image.shape[1] - 1)[..., np.newaxis, :])
    good = inside & (image.ivar[at] > 0) & np.isfinite(image.pix[at])
    return np.where(good, image.pix[at], 0.0).astype(np.float64)
