"""The gain from flats by photon transfer: the variance of light grows with it by ADU per electron."""
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import uniform_filter1d

from gpu_extract.data import Array
from gpu_extract.errors import InputError
from gpu_psf.noise import DIFFERENCES, fourth, spread

LEVELS = 24                        # levels of light at which the variance is measured
FEWEST = 200                       # pixels that a level needs
Levels = tuple[Array, Array, Array]     # of light: mean, variance, inverse error of the variance


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
