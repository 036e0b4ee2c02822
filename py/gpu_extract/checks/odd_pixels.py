"""Odd pixels: an inverse variance that no detector has, or a value that no light produces.

The search covers one instrument bundle at a time, in all rows of the columns that its traces cross. The result
therefore depends neither on the requested fibres and wavelengths nor on which rank works on the bundle. All limits are
ratios: an image times s with ivar / s^2 has the same odd pixels.

ivar: odd above 10 times the largest that the read noise allows; if that is unknown, above 100 times the 99.9 % quantile
of the image (`most_ivar`).

Value: measured in its own sigma, |pix| sqrt(ivar), relative to the bundle's 99 % quantile, or to 1 if that is less (a
sigma is the scatter of a pixel). Light also reaches neighbouring pixels, so no star and no line is as sharp as a
single pixel. A pixel is odd if it exceeds FAR times the quantile and is SHARP times more concentrated than the
sharpest spot of the PSF (compared with the sum over its 24 neighbours, half of which must be good). Whatever its
neighbours, it is odd above ALWAYS_ODD sigma, which is more than the range between the noise and the full well of any
detector, and above OF_USUAL times the quantile, as images without noise may be that bright. It is odd above NOISELESS
sigma in any case.
"""
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from gpu_extract.checks import simd_odd
from gpu_extract.data import Array, Image, IntArray, PsfModel, read_only
from gpu_extract.errors import InputError
from gpu_extract.spots import centres, make_spots

OF_NOISE = 10.0        # times 1 / (read noise)^2 is more than an ivar can be: flat fields change it by less than 2
OF_IVAR = 100.0        # times the quantile, if the read noise is unknown
IVAR_QUANTILE = 0.999
FAR = 100.0            # times the bundle's quantile: bright light, or no light
SHARP = 4.0            # times as concentrated as the sharpest spot: no light
ALWAYS_ODD = 1e8       # times its sigma, and
OF_USUAL = 1e5         # times the quantile: no light, whatever the neighbours
NOISELESS = 1e16       # times its sigma: its noise is less than the rounding of its value; always odd
QUANTILE = 0.99
SAMPLE = 16384         # pixels from which a quantile is computed
ENOUGH = 1000          # of them; if fewer are good, all pixels are used
FEWEST = 100           # good pixels below which no pixel can be judged
REACH = 2              # pixels on each side that count as neighbours: enough to outweigh the sharp rims of a model spot
AROUND = (2 * REACH + 1)**2 - 1
LIT = 1e-4             # of a stamp's brightest pixel: fainter ones never exceed a bundle's quantile by much
_WAVES, _FIBRES = 16, 16
_LARGEST = float(np.finfo(np.float64).max)
_LEAST = 1e-34         # ivar: single precision begins at 1e-38, and a bin's may be less than a pixel's
NO_PIXELS = np.zeros((0, 2), dtype=np.int64)


def most_ivar(image: Image) -> float:
    """The largest plausible ivar of an image; larger ones are odd.

    A read noise that would make more than 0.1 % of the ivar odd is ignored: its unit differs from that of the pixels.
    """
    noise = image.read_noise
    allowed = OF_NOISE / noise / noise if noise and noise > 0 else 0.0
    if not 0.0 < float(_sample(image.ivar).max()) <= allowed < np.inf:        # else the quantile is below it, too
        ivar = _good(image)
        if len(ivar) < FEWEST:
            return _LARGEST
        usual = float(np.quantile(ivar, IVAR_QUANTILE, method="higher"))
        allowed = allowed if allowed >= usual else OF_IVAR * usual
    return min(allowed, _LARGEST)


def check_unit(image: Image) -> None:
    """Raise InputError if an image is in a unit in which its frame exceeds the single precision of files, as an ivar
    scales with the square of the unit."""
    ivar = _good(image)
    if len(ivar) == 0 or (float(ivar.min()) >= _LEAST and float(ivar.max()) <= 1 / _LEAST):
        return
    usual = float(np.quantile(ivar, 0.5, method="higher"))
    if not _LEAST <= usual <= 1 / _LEAST:
        raise InputError(f"the image's ivar is {usual:.3g} (median), must be {_LEAST:.0e} to {1 / _LEAST:.0e}, as a "
                         "frame cannot hold other values; give the image in electrons")


def columns(psf: PsfModel, fibres: Iterable[int], width: int) -> slice:
    """The columns that the traces of some fibres cross in an image of this width, plus half a stamp on each side."""
    low, high = psf.wavelength_range
    chosen = list(fibres)
    if not chosen:
        return slice(0, 0)
    x = centres(psf, (min(chosen), max(chosen) + 1), np.linspace(low, high, _WAVES))[1][np.array(chosen) - min(chosen)]
    half = psf.stamp[1] // 2 + 1
    first, last = np.clip([np.floor(x.min()) - half, np.ceil(x.max()) + half + 1], 0, width).astype(int)
    return slice(int(first), int(last))


def find_odd(image: Image, place: slice, most: float | None, sharpest: Callable[[], float]) -> IntArray:
    """The odd pixels in some columns of an image: (n, 2) y and x.

    most: the largest plausible ivar; None: no pixel is odd, whatever its value
    sharpest: called for the concentration of the PSF's sharpest spot (`concentration`) if there is a pixel to judge

    Raises InputError for values that are invalid: NaN, negative or infinite ivar, NaN or infinite pixels with ivar
    above 0.
    """
    limit = _LARGEST if most is None else most
    usual = None if most is None else _usual(image.ivar[:, place], image.pix[:, place], limit)
    highest = _LARGEST if usual is None else min(FAR * usual, NOISELESS)**2
    ivar, pix, there = _some(image, place, (limit, highest))
    if len(there) == 0:
        return NO_PIXELS
    with np.errstate(over="ignore", invalid="ignore"):
        if (~(ivar >= 0) | (ivar == np.inf) | (~np.isfinite(pix) & (ivar > 0))).any():
            _refuse(ivar, pix)
        suspect = (ivar > limit) | ((ivar > 0) & ((ivar * pix) * pix > highest))
    if most is None or not suspect.any():
        return NO_PIXELS
    values, weights, places = pix[suspect], ivar[suspect], np.argwhere(suspect)
    places = np.stack([there[places[:, 0]], places[:, 1] + place.start], axis=1)
    odd = weights > limit
    if usual is not None:
        odd |= np.abs(values) * np.sqrt(weights) > min(max(ALWAYS_ODD, OF_USUAL * usual), NOISELESS)
        if not odd.all():
            odd = _alone(places, odd, image, limit=limit, most=SHARP * sharpest())
    return places[odd]


def may_be_odd(image: Image, place: slice, most: float | None, seen: Sequence[float]) -> bool:
    """Whether `find_odd` may find a pixel in these columns, or refuse one.

    seen: in these columns the largest ivar, the largest (ivar pix) pix, and whether any pixel is illegal (above 0)
    """
    ivar, bright, illegal = seen
    if illegal > 0 or most is None:
        return illegal > 0
    if ivar > most or bright <= FAR**2:        # the quantile counts as 1 at least
        return ivar > most
    usual = _usual(image.ivar[:, place], image.pix[:, place], most)
    return usual is not None and bright > min(FAR * usual, NOISELESS)**2


def none_odd(image: Image, place: slice, most: float | None, inside: tuple[int, int, int, int],
             seen: Sequence[float]) -> bool:
    """Whether `find_odd` would find nothing in these columns, nor refuse anything.

    inside: (first row, last + 1, first column, last + 1) of a part of the image for which that is known; seen: what is
    known, as for `may_be_odd`. Only the rest of the columns is looked at.
    """
    if may_be_odd(image, place, most, seen) or not (image.ivar.flags.c_contiguous and image.pix.flags.c_contiguous):
        return False
    limits = (_LARGEST, _LARGEST) if most is None else (most, FAR**2)      # the quantile counts as 1 at least
    first, last, start, stop = inside
    whole, ny = (place.start, place.stop), image.shape[0]
    rest = ((slice(0, first), whole), (slice(last, ny), whole),
            (slice(first, last), (place.start, min(start, place.stop))),
            (slice(first, last), (max(stop, place.start), place.stop)))
    return not any(_suspects(image.ivar[rows], image.pix[rows], columns, limits).any() for rows, columns in rest)


def _suspects(ivar: Array, pix: Array, columns: tuple[int, int], limits: tuple[float, float]) -> np.ndarray:
    """Which of some rows contain a suspect; see simd_odd.look."""
    rows = np.empty(len(ivar), dtype=bool)
    simd_odd.look(rows, read_only(ivar), read_only(pix), columns, limits)
    return rows


def _some(image: Image, place: slice, limits: tuple[float, float]) -> tuple[Array, Array, IntArray]:
    """ivar and pix in these columns of the rows that contain a suspect, and which rows these are."""
    ivar, pix = image.ivar, image.pix
    columns = place.start, place.stop
    if not all(a.flags.c_contiguous for a in (ivar, pix)):
        ivar, pix = (np.ascontiguousarray(a[:, place]) for a in (ivar, pix))
        columns = 0, ivar.shape[1]
    there = np.nonzero(_suspects(ivar, pix, columns, limits))[0]
    some = slice(*columns)
    return ivar[there, some].astype(np.float64), pix[there, some].astype(np.float64), there


def _alone(places: IntArray, odd: np.ndarray, image: Image, *, limit: float, most: float) -> np.ndarray:
    """Which suspects are odd: those that are already, and those too bright for the pixels around them.

    An odd pixel carries no information on its neighbours, so the search is repeated until no more are found.
    """
    (ny, nx), pix, ivar = image.shape, image.pix, image.ivar
    suspects = [(int(y), int(x)) for y, x in places]
    known = {place for place, is_odd in zip(suspects, odd, strict=True) if is_odd}
    before = -1
    while len(known) > before:
        before = len(known)
        for y, x in suspects:
            around = [abs(float(pix[j, i])) for j in range(max(y - REACH, 0), min(y + REACH + 1, ny))
                      for i in range(max(x - REACH, 0), min(x + REACH + 1, nx))
                      if (j, i) != (y, x) and (j, i) not in known and 0 < float(ivar[j, i]) <= limit]
            enough = 2 * len(around) >= AROUND
            if enough and abs(float(pix[y, x])) > most * AROUND / len(around) * sum(around):
                known.add((y, x))
    return np.array([place in known for place in suspects], dtype=bool)


def concentration(psf: PsfModel) -> float:
    """The largest ratio of a spot's pixel to the sum of its neighbours, over a sample of the spots."""
    low, high = psf.wavelength_range
    wave, most = np.linspace(low, high, _WAVES), 0.0
    for fibre in range(0, psf.nfibre, max(psf.nfibre // _FIBRES, 1)):
        stamps = make_spots(psf, (fibre, fibre + 1), wave).stamps[0]
        padded = np.pad(stamps, ((0, 0), (REACH, REACH), (REACH, REACH)))
        window = np.lib.stride_tricks.sliding_window_view(padded, (2 * REACH + 1, 2 * REACH + 1), (1, 2))
        around = window.sum(axis=(3, 4)) - stamps
        bright = stamps > LIT * stamps.max(axis=(1, 2), keepdims=True)
        most = max(most, float(np.max(stamps[bright] / np.maximum(around[bright], np.finfo(float).tiny), initial=0.0)))
    return most


def touched(odd: IntArray, y0: IntArray, x0: IntArray, stamp: tuple[int, int]) -> np.ndarray:
    """Which bins have an odd pixel on their stamp: bool, shaped as y0 and x0, the first pixels of the stamps."""
    if len(odd) == 0:
        return np.zeros(y0.shape, dtype=bool)
    (top, left), (bottom, right) = odd.min(axis=0), odd.max(axis=0) + 1
    count = np.zeros((bottom - top + 1, right - left + 1), dtype=np.int32)
    count[odd[:, 0] - top + 1, odd[:, 1] - left + 1] = 1
    count = count.cumsum(axis=0, out=count).cumsum(axis=1, out=count)
    rows = [np.clip(y0 + n - top, 0, bottom - top) for n in (0, stamp[0])]
    cols = [np.clip(x0 + n - left, 0, right - left) for n in (0, stamp[1])]
    inside: np.ndarray = (count[rows[1], cols[1]] - count[rows[0], cols[1]] - count[rows[1], cols[0]]
                          + count[rows[0], cols[0]])
    return inside > 0


def _usual(ivar: np.ndarray, pix: np.ndarray, limit: float) -> float | None:
    """The quantile of |pix| sqrt(ivar) over good pixels, at least 1; None if there are too few."""
    for take in (_sample, np.ravel):
        weights, values = take(ivar), take(pix)
        good = (weights > 0) & (weights <= np.float64(limit)) & np.isfinite(values)
        if good.sum() >= ENOUGH:
            break
    if good.sum() < FEWEST:
        return None
    sigmas = np.abs(values[good].astype(np.float64)) * np.sqrt(weights[good].astype(np.float64))
    at = int(QUANTILE * (len(sigmas) - 1))
    return max(float(np.partition(sigmas, at)[at]), 1.0)


def _sample(array: np.ndarray) -> np.ndarray:
    """Evenly spaced rows of an image, about SAMPLE pixels in total, as one row."""
    every = min(max(array.size // SAMPLE, 1), len(array))
    return array[every // 2::every].ravel()


def _good(image: Image) -> Array:
    """A sample of the image's finite ivar above 0; all of them if a sample of rows has too few."""
    for take in (_sample, np.ravel):
        ivar = take(image.ivar)
        good: Array = ivar[(ivar > 0) & (ivar < np.inf)]
        if len(good) >= ENOUGH:
            break
    return good


def _refuse(ivar: np.ndarray, pix: np.ndarray) -> None:
    nan, negative, infinite = (int(found.sum()) for found in (np.isnan(ivar), ivar < 0, np.isinf(ivar)))
    bad = int((~np.isfinite(pix) & (ivar > 0)).sum())
    raise InputError(f"the image has {nan} NaN, {negative} negative and {infinite} infinite ivar, and {bad} NaN or "
                     "infinite pixels with ivar > 0, in the columns of one bundle; values must be finite, and ivar 0 "
                     "or more; set ivar to 0 for pixels to leave out")


def mask_pixels(root: Array, light: Array, odd: IntArray, corner: tuple[int, int]) -> None:
    """Mask odd pixels in place in a cut-out (sqrt(ivar), sqrt(ivar) pix); corner: its first pixel."""
    if len(odd) == 0:
        return
    y, x = (odd - np.array(corner)).T
    there = (y >= 0) & (y < root.shape[0]) & (x >= 0) & (x < root.shape[1])
    root[y[there], x[there]] = light[y[there], x[there]] = 0.0


def in_notes(notes: dict[str, Any], odd: IntArray) -> dict[str, Any]:
    """A bundle's notes with the number of its odd pixels, if there are any."""
    return {**notes, "odd_pixels": len(odd)} if len(odd) else notes
