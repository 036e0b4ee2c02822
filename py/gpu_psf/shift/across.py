"""Shifts across the fibres: the light of short stretches, compared with the PSF's profile there.

A stretch of a fibre has light in a few columns of some rows. Two filters, fixed over the stretch, are made of the PSF's
profile p (its spots summed along the dispersion), its derivative q by the centre, and the profiles of both neighbours.
A sums to 1 with p, B to 1 with q, and each to 0 with all others. The sum of A times the pixels is the light; the sum of
B times the pixels is the light times its distance from the trace. Both are linear in the pixels, with weights that are
constant along the rows. Therefore lines and continuum give the same answer for any two-dimensional shape of the spots,
and light of neighbours has no effect. Stray light, which is even across a window, has none either if a third filter G
measures it.
"""
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gpu_extract.data import Array, Image, IntArray, PsfModel
from gpu_extract.spots import centres, make_spots
from gpu_psf.shift.surface import Moments

ROWS = 20               # of a stretch
CHUNK = 25              # fibres at a time, so that their arrays stay in the caches
FEWEST = 6              # groups of `CHUNK` fibres, spread over the camera, that suffice for a first look
SHARE = 0.75            # half-width of a window, as a share of the distance of fibres
CLIP = 5.0              # standard deviations beyond which a row has a cosmic ray
TINY = 1e-9
WINGS = 3               # pixels beside a profile that its derivative needs


class Filters(NamedTuple):
    """Filters of stretches, (nfibre, nwave, 2 or 3, ncolumn): A, B and, if it was asked for, G; column, row: first
    column and the middle row; x, y: centres of the trace; tilt: pixels in x to a row; share: sums of B^2 and of B^2 p,
    (nfibre, nwave, 2)."""

    weight: Array
    column: IntArray
    row: IntArray
    x: Array
    y: Array
    tilt: Array
    share: Array


def groups(nfibre: int, *, all_of_them: bool) -> list[tuple[int, int]]:
    """The fibres in groups lo .. hi - 1: all, or some that are spread over the camera."""
    count = -(-nfibre // CHUNK)
    chosen = np.arange(count) if all_of_them else np.unique(np.rint(np.linspace(0, count - 1, min(count, FEWEST))))
    return [(int(n) * CHUNK, min((int(n) + 1) * CHUNK, nfibre)) for n in chosen]


def half_window(psf: PsfModel) -> int:
    """Columns of a window on each side of a trace."""
    middle = np.array([0.5 * sum(psf.wavelength_range)])
    x = centres(psf, (0, psf.nfibre), middle)[1, :, 0]
    apart = float(np.median(np.abs(np.diff(x)))) if psf.nfibre > 1 else np.inf
    return int(np.clip(SHARE * apart, 2, psf.stamp[1] // 2))


def make_filters(psf: PsfModel, fibres: tuple[int, int], wave: Array, half: int, *, stray: bool) -> Filters:
    """Filters of fibres lo .. hi - 1 at wavelengths; they know of the neighbours beyond both ends.

    stray: whether stray light is measured, which makes the others less certain
    """
    lo, hi = max(fibres[0] - 1, 0), min(fibres[1] + 1, psf.nfibre)
    spots = make_spots(psf, (lo, hi), wave)
    y, x = centres(psf, (lo, hi), wave)
    own = slice(fibres[0] - lo, fibres[1] - lo)
    profile = spots.stamps.sum(axis=2)
    size, span = profile.shape[2], 2 * half + 1
    wide = np.zeros((*profile.shape[:2], size + 2 * (span + WINGS)))       # zero beyond the stamp
    wide[..., span + WINGS:span + WINGS + size] = profile
    column = np.rint(x).astype(np.int64) - half

    def seen(by: int) -> Array:
        """Profiles of the fibres `by` steps away, in the windows of these fibres; 0 if there is no such fibre."""
        other = np.arange(own.start, own.stop) + by
        there = (other >= 0) & (other < hi - lo)
        other = np.clip(other, 0, hi - lo - 1)
        first = np.clip(column[own] - spots.x0[other] + span, 0, size + span) + WINGS
        return _cut(wide[other] * there[:, np.newaxis, np.newaxis], first, span)

    first = column[own] - spots.x0[own] + span
    p, slope = with_slope(_cut(wide[own], first, span + 2 * WINGS))
    parts = np.stack([p, slope, *([np.ones_like(p)] * stray), seen(-1), seen(1)], axis=2)
    gram = parts @ parts.swapaxes(2, 3)
    gram += TINY * np.eye(parts.shape[2])
    weight = np.linalg.solve(gram, parts)[:, :, :2 + stray]
    square = weight[:, :, 1] ** 2
    share = np.stack([square.sum(axis=2), (square * np.maximum(p, 0)).sum(axis=2)], axis=2)
    return Filters(weight, column[own], np.rint(y[own]).astype(np.int64), x[own], y[own],
                   _tilt(psf, fibres, wave, (y[own], x[own])), share)


def _tilt(psf: PsfModel, fibres: tuple[int, int], wave: Array, at: tuple[Array, Array]) -> Array:
    """Slope of the trace, in pixels in x per row, at wavelengths whose centres (y, x) are `at`: from one to the next,
    or around each if they belong to a few lines of one order."""
    if psf.own is None and len(wave) > 1:
        y, x = (np.gradient(part, axis=1) for part in at)
    else:
        step = 1e-3 * (psf.wavelength_range[1] - psf.wavelength_range[0])
        y, x = centres(psf, fibres, wave + step) - centres(psf, fibres, wave - step)
    return x / y


def with_slope(around: Array) -> tuple[Array, Array]:
    """Profiles, and their change with a shift by a pixel, from profiles with WINGS more pixels at each end.

    Central differences over three pixels to each side, exact for polynomials of degree 6.
    """
    apart = [around[..., WINGS - k:-WINGS - k] - around[..., WINGS + k:around.shape[-1] - WINGS + k] for k in (1, 2)]
    apart.append(around[..., :-2 * WINGS] - around[..., 2 * WINGS:])
    return around[..., WINGS:-WINGS], (45 * apart[0] - 9 * apart[1] + apart[2]) / 60


def _cut(rows: Array, first: IntArray, size: int) -> Array:
    """`size` numbers of every row from its `first` on."""
    return np.take_along_axis(rows, first[..., np.newaxis] + np.arange(size), axis=-1)


def light_and_moment(image: Image, made: Filters, rows: int, noise: float, off: float) -> tuple[Array, Array, Array]:
    """Light of rows around the middle of each window, its moment and the variance of that: (nfibre, nwave, rows) each.

    The light is NaN in rows with a pixel that is masked or beyond the image, and in rows that are farther from the
    trace than noise and `off` pixels allow.
    """
    span = made.weight.shape[-1]
    corner = made.row - rows // 2, made.column
    shape = image.shape[0] - rows + 1, image.shape[1] - span + 1
    inside = (corner[0] >= 0) & (corner[0] < shape[0]) & (corner[1] >= 0) & (corner[1] < shape[1])
    at = tuple(np.where(inside, part, 0) for part in corner)
    cut = sliding_window_view(image.pix, (rows, span))[at]
    good = (sliding_window_view(image.ivar, (rows, span))[at] > 0).all(axis=3) & inside[..., np.newaxis]
    with np.errstate(invalid="ignore"):                                     # masked pixels may hold anything
        sums = cut @ made.weight.swapaxes(2, 3).astype(cut.dtype)           # (nfibre, nwave, rows, filters)
        light, moment, stray = sums[..., 0], sums[..., 1], np.maximum(sums[..., 2:], 0).sum(axis=3)
        along = (made.row - rows // 2 - made.y)[..., np.newaxis] + np.arange(rows)
        # the trace moves within a window
        moment = moment - light * (made.tilt[..., np.newaxis] * along).astype(cut.dtype)
        share = made.share[:, :, np.newaxis].astype(cut.dtype)
        bright = np.maximum(light, 0)
        variance = (noise**2 + stray) * share[..., 0] + bright * share[..., 1]
        good &= np.abs(moment) < CLIP * np.sqrt(variance) + off * bright
    return np.where(good, light, np.nan), moment, variance


def across(image: Image, noise: float, psf: PsfModel, wave: Array, how: tuple[float, bool]) -> Moments:
    """Moments of fibres at wavelengths.

    noise: read noise, electron; how: pixels by which the traces may still be off (rows that are farther away than noise
    and this allow are left out), and whether all fibres are looked at
    """
    half, parts = half_window(psf), []
    off, all_of_them = how
    for fibres in groups(psf.nfibre, all_of_them=all_of_them):
        made = make_filters(psf, fibres, wave, half, stray=True)
        light, moment, variance = light_and_moment(image, made, ROWS, noise, off)
        good = np.isfinite(light)
        parts.append(as_moments(fibres, wave, [np.where(good, part, 0).sum(axis=2, dtype=np.float64)
                                               for part in (moment, light, variance)]))
    return joined(parts)


def as_moments(fibres: tuple[int, int], wave: Array, values: Sequence[Array]) -> Moments:
    """Moment, light and variance (nfibre, nwave) of some fibres."""
    count = fibres[1] - fibres[0]
    return Moments(np.repeat(np.arange(*fibres), len(wave)), np.tile(wave, count), *(part.ravel() for part in values))


def joined(parts: Sequence[Moments]) -> Moments:
    """The moments of all groups."""
    return Moments(*(np.concatenate(part) for part in zip(*parts, strict=True)))
