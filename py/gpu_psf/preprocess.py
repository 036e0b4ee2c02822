"""From a raw image in ADU to electrons with inverse variance, dispersion along y.

    electrons = (ADU - bias) gain,    variance = (read noise)^2 + max(electrons, 0)

The bias is the mean of dark frames, or the overscan. The read noise is that of pairs of dark frames; the gain is the
slope of the variance of a flat against its light (photon transfer). Both are fixed before extraction, so that a chi2
near 1 is a real test.
"""
from collections.abc import Sequence

import numpy as np

from gpu_extract.data import Array, Card, Image
from gpu_extract.errors import InputError, one_of
from gpu_psf.detector import Detector
from gpu_psf.noise import hot_charge, with_bias
from gpu_psf.raw_header import holding

BAD, SATURATED = 1, 8              # ccdmask bits
FAR_BELOW = 20.0                   # read noises below 0 that no pixel with light, or without, reaches
DISPERSIONS = ("y", "-y", "x", "-x")


def turned(array: np.ndarray, dispersion: str) -> np.ndarray:
    """An image whose wavelengths ascend along "x", "-x", "y" or "-y", turned so that they ascend along y. Raises
    InputError."""
    if dispersion not in DISPERSIONS:
        raise InputError(one_of("dispersion", dispersion, DISPERSIONS))
    upright = array.T if dispersion.endswith("x") else array
    return np.ascontiguousarray(upright[::-1] if dispersion.startswith("-") else upright)


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
    noise = np.full(light.shape, detector.read_noise) if detector.noise is None else detector.noise
    if darks:
        charge = hot_charge(np.broadcast_to(bias, light.shape), detector.gain, noise)
        noise = np.sqrt(noise**2 + charge * with_bias(1.0, darks)**2)
    ivar = np.where(mask == 0, 1 / (noise**2 + np.maximum(light, 0.0)), 0.0)
    across = slice(None, None, -1 if mirror else 1)
    pix, ivar, bits, noise = (np.ascontiguousarray(turned(array, dispersion)[:, across])
                              for array in (light, ivar, mask, noise))
    own = (Card("BUNIT", "electron"), Card("GAIN", detector.gain, "electron/ADU"),
           Card("RDNOISE", detector.read_noise, "electron"), Card("SATURATE", detector.saturation, "ADU"),
           Card("DISPAXIS", 1 if dispersion.endswith("x") else 2, "dispersion along this axis as read"),
           Card("DISPFLIP", dispersion.startswith("-"), "wavelengths descended as read"),
           Card("MIRRORED", mirror, "fibres descended as read"))
    kept = holding(cards, turned=mirror or dispersion != "y")
    others = (card for card in kept if card.key not in {mine.key for mine in own})
    image = Image(pix.astype(np.float32), ivar.astype(np.float32), (*others, *own), read_noise=float(noise.min()),
                  noise=noise.astype(np.float32))
    return image, bits.astype(np.int32)
