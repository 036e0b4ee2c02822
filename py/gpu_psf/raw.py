"""Raw images as written by a camera: ADU, in any HDU, possibly one of several in a cube.

Also checks whether they are what they are assumed to be, and whether their bias is right.
"""
import itertools
import re
from collections.abc import Sequence

import numpy as np
from scipy.ndimage import uniform_filter1d

from gpu_extract.checks.sense import in_electrons
from gpu_extract.data import Array, Card, Image
from gpu_extract.errors import FileName, InputError, file_name
from gpu_extract.io.fits import find, image_of, open_fits
from gpu_extract.io.headers import cards_of, number_of
from gpu_psf.detector import Detector
from gpu_psf.noise import DIFFERENCES, fourth, noise_in, spread, with_bias
from gpu_psf.preprocess import FAR_BELOW
from gpu_psf.transfer import FEWEST

BELOW = 3.0              # read noises below 0 that no median of an image reaches
FAINT = 0.02, 0.2        # quantiles of light between which pixels count as faint
LEAST = 0.5              # least ratio of variance to electrons of light
OTHER_TIME = 0.1         # relative difference of exposure times that counts
OTHER_NOISE = 0.1        # the same of read noises
_NAME = re.compile(r"(?P<path>.+?)(?:\[(?P<hdu>[^\[\],]+)(?:,(?P<plane>\d+))?\])?")


def file_of(name: str) -> str:
    """The file of FILE, FILE[HDU] or FILE[HDU,PLANE]."""
    parts = _NAME.fullmatch(name)
    return name if parts is None else parts["path"]


def read_raw(name: FileName) -> tuple[np.ndarray, tuple[Card, ...]]:
    """An image (ny, nx) float64, ADU, and its header.

    name: FILE, FILE[HDU] or FILE[HDU,PLANE]; HDU is a name or a number, the first one with an image if left out; PLANE
        counts from 0 in a cube

    Raises InputError.
    """
    parts = _NAME.fullmatch(file_name(name))
    if parts is None:
        raise InputError(f"{name}: must be FILE, FILE[HDU] or FILE[HDU,PLANE]")
    path, wanted, plane = parts["path"], parts["hdu"], parts["plane"]
    with open_fits(path) as hdus:
        if wanted is None:
            images = [h for h in hdus if h.is_image and len(h.shape) in (2, 3)]
            if not images:
                raise InputError("holds no image; give a FITS file of the camera")
            hdu = images[0]
        elif wanted.isdigit():
            if int(wanted) >= len(hdus):
                raise InputError(f"has {len(hdus)} HDUs, counted from 0, and no number {wanted}")
            hdu = hdus[int(wanted)]
        else:
            hdu = find(hdus, wanted)
        cards = cards_of(hdu.header)
        cube = len(getattr(hdu, "shape", ())) == 3
        array = image_of(hdu, 3 if cube else 2).astype(np.float64)
    if not cube:
        return array, cards
    number = 0 if plane is None and len(array) == 1 else plane
    if number is None or int(number) >= len(array):
        raise InputError(f"{name}: is a cube of {len(array)} images; choose one with {path}[{wanted or 0},0] to "
                         f"[{wanted or 0},{len(array) - 1}]")
    return array[int(number)], cards


def check_unlike(option: str, frames: Sequence[tuple[str, Array]], raw: tuple[str, Array] | None = None) -> None:
    """Raise InputError where two frames (name, pixels) are the same exposure, or one is the image `raw` itself.

    Noise is measured from differences of exposures, and nothing is left of an image that is its own dark frame.
    """
    for (name, one), (other, two) in itertools.combinations((*frames, *([raw] if raw else [])), 2):
        if np.array_equal(one, two, equal_nan=True):
            raise InputError(f"{option}: {name} and {other} hold the same pixels; give each exposure once, and not the "
                             "image itself")


def doubts(image: Image, cards: Sequence[Card], of_darks: Sequence[Sequence[Card]] = ()) -> list[str]:
    """Warnings, as sentences, about an image in electrons that was made from a raw one with these cards, and about dark
    frames with theirs."""
    return [*_unit(cards), *_below(image), *_left_in(image), *_times(cards, of_darks)]


def dark_noise(darks: Sequence[Array], detector: Detector) -> list[str]:
    """A warning about dark frames (ADU) whose noise differs from the read noise that is given.

    A single frame may have less: it may be the mean of many.
    """
    if not darks or detector.noise is not None:
        return []
    measured = with_bias(noise_in(darks), len(darks)) * detector.gain
    more = measured / detector.read_noise - 1
    if not (more > OTHER_NOISE or (more < -OTHER_NOISE and len(darks) > 1)):        # also NaN
        return []
    return [f"the read noise is given as {detector.read_noise:.3g} electron, but a dark pixel has a noise of "
            f"{measured:.3g} once the dark frames are subtracted, that of their charge included; leave --read-noise "
            "out, and it is measured"]


def _unit(cards: Sequence[Card]) -> list[str]:
    unit = next((str(card.value) for card in cards if card.key == "BUNIT"), "")
    if not unit or not in_electrons(unit):
        return []
    return [f"the raw image's BUNIT is {unit}: its pixels are taken to be in ADU and multiplied by the gain; an image "
            "in electrons needs no preprocessing"]


def _below(image: Image) -> list[str]:
    usual = float(np.median(image.pix[image.ivar > 0]))
    noise = image.read_noise or 0.0
    if usual >= -BELOW * noise:
        count = np.count_nonzero((image.pix < -FAR_BELOW * noise) & (image.ivar == 0))
        return [f"{count} pixels are more than {FAR_BELOW:g} read noises below the bias, and masked: a dead amplifier, "
                "a hit dark frame, or unsigned integers that were read as signed ones"] if count else []
    return [f"the typical pixel is {usual:.4g} electrons, far below 0: either the bias is too large, or unsigned "
            "integers were read as signed ones (BZERO 32768 is missing)"]


def _left_in(image: Image) -> list[str]:
    """A warning from the faintest pixels: the variance of light equals its electrons, a bias has none.

    They are chosen by the mean of five pixels, and their variance comes from the fourth difference: the two are
    independent.
    """
    rows = len(image.pix) - DIFFERENCES
    if rows < 1:
        return []
    pix = image.pix.astype(np.float64)
    good = np.logical_and.reduce([image.ivar[k:k + rows] > 0 for k in range(DIFFERENCES + 1)])
    light = uniform_filter1d(pix, DIFFERENCES + 1, axis=0)[DIFFERENCES // 2:rows + DIFFERENCES // 2][good]
    if len(light) < FEWEST / (FAINT[1] - FAINT[0]):
        return []
    low, high = np.quantile(light, FAINT)
    faint = (light >= low) & (light <= high)
    electrons, variance = float(np.median(light[faint])), spread(fourth(pix)[good][faint])**2
    if electrons <= BELOW * (image.read_noise or 0.0) or variance >= LEAST * electrons:
        return []
    return [f"the faintest pixels have {electrons:.4g} electrons with a variance of {variance:.3g}, but the variance "
            "of light equals its electrons: bias remains, the gain is too small, or the image is a mean of several"]


def _times(cards: Sequence[Card], of_darks: Sequence[Sequence[Card]]) -> list[str]:
    """A warning about dark frames whose exposure time differs from the image's; those of 0 s hold only the bias."""
    own, *others = (next((number_of(card.value) for card in each if card.key == "EXPTIME"), float("nan"))
                    for each in (cards, *of_darks))
    wrong = [time for time in others if time > 0 and abs(time - own) > OTHER_TIME * own]
    if not wrong:
        return []
    return [f"a dark frame was exposed for {wrong[0]:g} s, the image for {own:g} s (EXPTIME), so the wrong dark "
            "current is subtracted; give dark frames of the image's exposure time, or of 0 s"]
