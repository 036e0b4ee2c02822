"""From a raw image in ADU to electrons with inverse variance, dispersion along y.

    electrons = (ADU - bias) gain,    variance = (read noise)^2 + max(electrons, 0)

The bias is the mean of dark frames, or the overscan. The read noise is that of pairs of dark frames; the gain is the
slope of the variance of a flat against its light (photon transfer). Both are fixed before extraction, so that a chi2
near 1 is a real test.
"""
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import median_filter, uniform_filter1d

from gpu_extract.data import Array, Card, Image
from gpu_extract.errors import InputError, one_of

BAD, SATURATED = 1, 8              # ccdmask bits
CLIP = 5.0                         # sigma beyond which a difference is not noise
LEVELS = 24                        # levels of light at which the variance is measured
FEWEST = 200                       # pixels that a level needs
DIFFERENCES = 4                    # order of the differences along y: light that is a cubic drops out
AROUND = 31                        # columns whose median is the bias where a pixel is hot
SMOOTH = 51                        # rows of the overscan that are smoothed together
FAR_BELOW = 20.0                   # read noises below 0 that no pixel with light, or without, reaches
DISPERSIONS = ("y", "-y", "x", "-x")
Levels = tuple[Array, Array, Array]     # of light: mean, variance, inverse error of the variance


@dataclass(frozen=True)
class Detector:
    """The conversion of ADU to electrons.

    gain: electron per ADU; read_noise: electron
    saturation: ADU from which on a pixel is masked
    """

    gain: float
    read_noise: float
    saturation: float = 65000.0

    def __post_init__(self) -> None:
        for name in ("gain", "read_noise", "saturation"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise InputError(f"{name} is {value}, must be a number above 0")


@dataclass(frozen=True)
class Transfer:
    """A photon transfer: variance = a constant + light / gain + (uneven light)^2, all in ADU.

    The constant is the read noise squared if the bias is right. It is left free: the levels of least light have the
    smallest errors, so that a bias off by 30 ADU would turn a gain of 2.5 into 3.8.

    gain: electron per ADU; uneven: by how much pixels differ in sensitivity; light, variance: (levels,) as measured
    """

    gain: float
    uneven: float
    light: Array
    variance: Array


def turned(array: np.ndarray, dispersion: str) -> np.ndarray:
    """An image whose wavelengths ascend along "x", "-x", "y" or "-y", turned so that they ascend along y. Raises
    InputError."""
    if dispersion not in DISPERSIONS:
        raise InputError(one_of("dispersion", dispersion, DISPERSIONS))
    upright = array.T if dispersion.endswith("x") else array
    return np.ascontiguousarray(upright[::-1] if dispersion.startswith("-") else upright)


def read_noise_of(darks: Sequence[Array]) -> float:
    """Read noise in ADU from dark frames: from the differences of consecutive frames, without outliers.

    From a single frame it comes from fourth differences along y, which include differences between pixels. A median is
    not used, because integer ADU would round it. Raises InputError without a dark frame, or if there is no noise.
    """
    if len(darks) == 0:
        raise InputError("measuring the read noise needs a dark frame, better two; give one, or the value")
    if len(darks) == 1:
        noise = spread(fourth(darks[0].astype(np.float64)))
    else:
        noise = math.sqrt(np.mean([spread(second - first)**2 / 2 for first, second in itertools.pairwise(darks)]))
    if not noise > 0:
        raise InputError(f"the noise of the dark frames is {noise:g} ADU, must be above 0: give other dark frames, or "
                         "the read noise")
    return noise


def with_bias(read_noise: float, darks: int) -> float:
    """The noise of a dark pixel after subtraction of the median of so many dark frames, including their noise."""
    if darks == 0:
        return read_noise
    # of a median; that of an even number is the mean of two
    share = 1 / darks if darks < 3 else np.pi / 2 / (darks + (0.5 if darks % 2 else 1.3))
    return float(read_noise * np.sqrt(1 + share))


def spread(values: Array) -> float:
    """Standard deviation about the mean, without values beyond CLIP times itself; NaN without finite values."""
    kept = values[np.isfinite(values)].astype(np.float64)
    if not len(kept):
        return math.nan
    for _ in range(20):
        middle, width = kept.mean(), kept.std()
        inside = np.abs(kept - middle) <= CLIP * max(width, 1e-12)
        if inside.all():
            break
        kept = kept[inside]
    return float(kept.std())


def fourth(array: Array) -> Array:
    """Fourth differences along y, scaled to the noise of one pixel."""
    return np.diff(array, DIFFERENCES, axis=0) / np.sqrt(math.comb(2 * DIFFERENCES, DIFFERENCES))


def photon_transfer(flat: Array, read_noise: float, saturation: float, second: Array | None = None) -> Transfer:
    """Gain from a flat, dispersion along y, bias subtracted, all in ADU.

    read_noise: of a frame; only used as the limit below which there is no light
    second: another flat of the same lamp, possibly of another exposure time: the variance is that of their
        difference then, and what differs from pixel to pixel drops out. From one flat alone it is that of the fourth
        differences along y, from which smooth light drops out, and the sensitivity of the pixels counts in the term of
        the square.
    Raises InputError where there is no light, or the variance does not grow with it.
    """
    levels = _levels([flat] if second is None else [flat, second], read_noise, saturation)
    slope, uneven = _slopes(levels, alone=second is None)
    if slope <= 0:
        raise _flat_tells_nothing(levels)
    return Transfer(1 / slope, math.sqrt(uneven), levels[0], levels[1])


def gain_from(flats: Sequence[Array], read_noise: float, saturation: float) -> float:
    """Gain by photon_transfer, from one flat or two; read_noise: electron, the rest in ADU."""
    slope = 0.0
    for _ in range(2):                      # the levels begin at the read noise
        levels = _levels(flats, read_noise * slope, saturation)
        _check_light(levels[0][-1], math.sqrt(levels[1].min()))
        slope = _slopes(levels, alone=len(flats) == 1)[0]
        if slope <= 0:
            raise _flat_tells_nothing(levels)
    return 1 / slope


def _check_light(most: float, noise: float) -> None:
    if most <= 20 * noise:
        raise InputError(f"the flat has no light ({most:.4g} ADU at most, read noise {noise:.3g}): give a brighter one")


def _flat_tells_nothing(levels: Levels) -> InputError:
    return InputError(f"the variance of the flat does not grow with its light ({levels[0][-1]:.4g} ADU at most): give "
                      "unprocessed flats of one exposure each, or the gain")


def _slopes(levels: Levels, *, alone: bool) -> tuple[float, float]:
    """How the variance grows with the light and, for a single flat, with its square; 0 or more."""
    level, variance, weight = levels
    terms = np.stack([np.ones_like(level), level, *([level**2] * alone)], axis=1) * weight[:, None]
    found = np.maximum(np.linalg.lstsq(terms, variance * weight, rcond=None)[0], 0.0)
    return float(found[1]), float(found[2]) if alone else 0.0


def _levels(flats: Sequence[Array], read_noise: float, saturation: float) -> Levels:
    """Light of one flat or two, its variance and the inverse error of the variance, see _by_level."""
    # pixels that are not finite are left out, like saturated ones
    flat, *other = (np.where(np.isfinite(part), part, saturation) for part in flats)
    if not other:
        rows = len(flat) - DIFFERENCES
        noise = fourth(flat)
        light = uniform_filter1d(flat, 5, axis=0)[2:rows + 2]
        high = np.max([flat[k:k + rows] for k in range(5)], axis=0)
    else:
        second = other[0]
        noise, light, high = (flat - second) / np.sqrt(2), (flat + second) / 2, np.maximum(flat, second)
        bright = light > np.median(light)
        uneven = np.median(noise[bright] / light[bright])      # 2^(1/2) (a - b) / (a + b), of exposures a and b
        # b and a times the flats: variance (1 + u^2/2) read_noise^2 + (1 - u^2/2) light / gain
        noise = (noise - uneven * light) / np.sqrt(1 + uneven**2 / 2)
        light = light * (1 - uneven**2 / 2) / (1 + uneven**2 / 2)
    return _by_level(noise, light, high < 0.8 * saturation, read_noise)


def _by_level(noise: Array, light: Array, good: np.ndarray, read_noise: float) -> Levels:
    """Light, variance and its inverse error at levels of light that are evenly spaced in the logarithm."""
    values, noise = light[good], noise[good]
    top = np.quantile(values, 0.999) if len(values) else 0.0
    _check_light(top, read_noise)
    # a power of two, so that the digits of the read noise change no level
    edges = np.geomspace(2 ** np.ceil(np.log2(max(read_noise, top / 1e4))), top, LEVELS + 1)
    found = []
    for low, high in itertools.pairwise(edges):
        inside = (values >= low) & (values < high)
        count = np.count_nonzero(inside)
        variance = spread(noise[inside])**2
        if count >= FEWEST and variance > 0:
            found.append((values[inside].mean(), variance, np.sqrt(count / 2) / variance))
    if len(found) < 3:
        raise InputError("the flat has light at fewer than three levels with enough pixels: give another flat, or the "
                         "gain")
    return tuple(np.array(found).T)


def overscan_bias(raw: Array, columns: tuple[int, int]) -> Array:
    """The bias of each row, (ny, 1), from the columns lo .. hi - 1 of the overscan, smoothed along y.

    A row's bias is the mean without outliers: a median of integers is an integer, off by up to half an ADU. The
    smoothing is a mean of SMOOTH rows, and a straight line at both ends, so that a drifting bias is correct there. Rows
    that are hit as a whole, or without a finite overscan, get the bias of the rows around. Raises InputError if the
    columns are outside the image, or hold no finite number.
    """
    from scipy.signal import savgol_filter  # loading takes a while, and other sources of the bias do not need it

    lo, hi = columns
    if not 0 <= lo < hi <= raw.shape[1]:
        raise InputError(f"overscan {lo}:{hi} does not lie within the {raw.shape[1]} columns of the image")
    part = np.where(np.isfinite(raw[:, lo:hi]), raw[:, lo:hi], np.nan).astype(np.float64)
    known = np.flatnonzero(np.isfinite(part).any(axis=1))
    if not len(known):
        raise InputError(f"overscan {lo}:{hi} holds no finite number; give the columns where the camera has its "
                         "overscan")
    place = np.arange(len(part))
    part = part[known]
    usual = _usual(part - np.nanmedian(part, axis=1, keepdims=True))
    usual[~usual.any(axis=1)] = True        # half of the row is hit: no pixel is near the median
    rows = np.nanmean(np.where(usual, part, np.nan), axis=1)
    half = (min(SMOOTH, len(place)) - 1) // 2
    noise = _sigma(np.append(np.diff(rows), 0.0)) / 2**0.5      # no matter how the bias drifts
    kept = np.ones(len(rows), dtype=bool)
    smooth: Array = rows
    for _ in range(20):                     # the worst first: a hit row pulls those around it along
        smooth = savgol_filter(np.interp(place, known[kept], rows[kept]), 2 * half + 1, min(half, 1))
        off = np.abs(rows - smooth[known])
        before, kept = kept, off <= max(CLIP * noise, off[kept].max() / 2)
        if np.array_equal(before, kept):
            break
    return smooth[:, None]


def _usual(off: Array) -> np.ndarray:
    """Which differences in ADU are no outliers; rounding to integers makes none."""
    return np.abs(off) <= CLIP * _sigma(off)


def _sigma(off: Array) -> float:
    """Standard deviation of differences without regard to outliers, ADU; at least that of rounding to integers."""
    return max(1.4826 * float(np.nanmedian(np.abs(off))), 0.5)


def hot_charge(dark: Array, detector: Detector) -> Array:
    """Electrons of a dark frame (ADU) above the median of the columns around; 0 where they may be noise."""
    known = np.where(np.isfinite(dark), dark, 0.0)
    half = AROUND // 2
    row = np.pad(known, ((0, 0), (half, half)), mode="reflect" if known.shape[1] > half else "symmetric")
    usual = median_filter(row.ravel(), AROUND).reshape(row.shape)       # quick along one axis only
    charge = (known - usual[:, half:-half]) * detector.gain
    return np.where(charge > CLIP * detector.read_noise, charge, 0.0)


def preprocess(raw: np.ndarray, bias: Array | float, detector: Detector, *, dispersion: str = "y", mirror: bool = False,
               bad: np.ndarray | None = None, cards: Sequence[Card] = (), darks: int = 0) -> tuple[Image, np.ndarray]:
    """An image in electrons, and its mask (ccdmask bits BAD and SATURATED).

    raw: (ny, nx) ADU as read; bias: ADU, its shape or one that broadcasts to it; bad: pixels to leave out, beside those
        that are NaN, and those far below the bias, as of a dead amplifier
    dispersion: along which wavelengths ascend in `raw`: the image is transposed or flipped so that they ascend along y,
        and the header says from what (DISPAXIS, DISPFLIP)
    darks: number of dark frames whose median the bias is: the charge of hot pixels has noise then, which counts as
        read noise
    mirror: the fibres descend along the other axis of `raw`: it is reversed (MIRRORED), so that they ascend along x

    ivar is computed from the pixel's own light, and is therefore correlated with it on faint pixels. Further passes of
    the extraction (--passes 2) weight pixels by a model instead. Raises InputError for different shapes, a bias that is
    not finite, an image without a good pixel, and whatever `turned` raises.
    """
    if np.ndim(bias) == 0 and not np.isfinite(bias):
        raise InputError(f"bias is {bias}, must be a number of ADU")
    if bad is not None and bad.shape != raw.shape:
        raise InputError(f"bad pixels have shape {bad.shape}, the image {raw.shape}; they must be the same")
    mask = np.where(raw >= detector.saturation, SATURATED, 0)
    if bad is not None:
        mask = np.where(bad, mask | BAD, mask)
    light = (raw.astype(np.float64) - bias) * detector.gain
    known = np.isfinite(light)
    below = light < -FAR_BELOW * detector.read_noise
    if np.count_nonzero(below) > below.size / 2:        # the bias is wrong, of which `doubts` warns
        below[:] = False
    light, mask = np.where(known, light, 0.0), np.where(known & ~below, mask, mask | BAD)
    if mask.all():
        raise InputError(f"no pixel is good: {np.count_nonzero(mask & SATURATED)} of {mask.size} have "
                         f"{detector.saturation:g} ADU or more, the others are bad or not finite; give the saturation, "
                         "or another image")
    noise = np.full(light.shape, detector.read_noise)
    if darks:
        noise = np.sqrt(noise**2 + hot_charge(np.broadcast_to(bias, light.shape), detector) * with_bias(1.0, darks)**2)
    ivar = np.where(mask == 0, 1 / (noise**2 + np.maximum(light, 0.0)), 0.0)
    across = slice(None, None, -1 if mirror else 1)
    pix, ivar, bits, noise = (np.ascontiguousarray(turned(array, dispersion)[:, across])
                              for array in (light, ivar, mask, noise))
    own = (Card("BUNIT", "electron"), Card("GAIN", detector.gain, "electron/ADU"),
           Card("RDNOISE", detector.read_noise, "electron"), Card("SATURATE", detector.saturation, "ADU"),
           Card("DISPAXIS", 1 if dispersion.endswith("x") else 2, "dispersion along this axis as read"),
           Card("DISPFLIP", dispersion.startswith("-"), "wavelengths descended as read"),
           Card("MIRRORED", mirror, "fibres descended as read"))
    others = (card for card in cards if card.key not in {mine.key for mine in own})
    image = Image(pix.astype(np.float32), ivar.astype(np.float32), (*others, *own), read_noise=detector.read_noise,
                  noise=noise.astype(np.float32))
    return image, bits.astype(np.int32)
