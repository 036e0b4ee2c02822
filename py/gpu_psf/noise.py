"""Noise of dark frames: the read noise, the noise of the bias that is made from them, and the charge of hot pixels."""
import itertools
import math
from collections.abc import Sequence

import numpy as np
from scipy.ndimage import median_filter

from gpu_extract.data import Array
from gpu_extract.errors import InputError

CLIP = 5.0                         # sigma beyond which a difference is not noise
DIFFERENCES = 4                    # order of the differences along y: light that is a cubic drops out
AROUND = 31                        # columns whose median is the bias where a pixel is hot
BLOCK = 64                         # rows and columns of a part of the detector whose noise is measured by itself
ENOUGH = 400                       # pixels that tell the noise of a part
RELATED = 2.6                      # pixels whose fourth differences tell as much as one that is independent


def read_noise_of(darks: Sequence[Array]) -> float:
    """Read noise in ADU from dark frames: from the differences of consecutive frames, without outliers.

    From a single frame it comes from fourth differences along y, which include differences between pixels. A median is
    not used, because integer ADU would round it. Raises InputError without a dark frame, or if there is no noise.
    """
    if len(darks) == 0:
        raise InputError("measuring the read noise needs a dark frame, better two; give one, or the value")
    noise = noise_in(darks)
    if not noise > 0:
        raise InputError(f"the noise of the dark frames is {noise:g} ADU, must be above 0: give other dark frames, or "
                         "the read noise")
    return noise


def noise_in(darks: Sequence[Array]) -> float:
    """The same, 0 if there is none, and NaN without finite pixels."""
    return math.sqrt(np.mean([spread(part)**2 for part in _noise_in(darks)]))


def _noise_in(darks: Sequence[Array]) -> list[Array]:
    """Images of the noise of one dark frame, ADU: differences of consecutive frames, or those within a single one."""
    if len(darks) == 1:
        return [fourth(darks[0].astype(np.float64))]
    return [(second - first) / 2**0.5 for first, second in itertools.pairwise(darks)]


def unevenness(darks: Sequence[Array]) -> Array:
    """The noise of a dark frame's pixels over that of the whole frame, its shape, measured in blocks of BLOCK x BLOCK.

    It is 1 where a block does not differ from the frame by more than chance. Blocks do that collect charge in the dark,
    as beside a glowing amplifier, or are read by an amplifier of another noise.
    """
    images, usual = _noise_in(darks), read_noise_of(darks)
    share: Array = np.ones(darks[0].shape)
    of_one = 1 / RELATED if len(darks) == 1 else len(darks) // 2        # consecutive differences share a frame
    for y, x in itertools.product(*(range(0, size, BLOCK) for size in share.shape)):
        parts = [image[y:y + BLOCK, x:x + BLOCK] for image in images]
        count = np.count_nonzero(np.isfinite(parts[0]))
        if count < ENOUGH:
            continue
        ratio = float(np.mean([spread(part)**2 for part in parts])) / usual**2
        if abs(ratio - 1) > CLIP * math.sqrt(2 / (count * of_one)) and ratio > 0:
            share[y:y + BLOCK, x:x + BLOCK] = math.sqrt(ratio)
    return share


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


def hot_charge(dark: Array, gain: float, read_noise: Array | float) -> Array:
    """Electrons of a dark frame (ADU) above the median of the columns around; 0 where they may be noise.

    gain: electron per ADU; read_noise: electron, of all pixels or of each
    """
    known = np.where(np.isfinite(dark), dark, 0.0)
    half = AROUND // 2
    row = np.pad(known, ((0, 0), (half, half)), mode="reflect" if known.shape[1] > half else "symmetric")
    usual = median_filter(row.ravel(), AROUND).reshape(row.shape)       # quick along one axis only
    charge = (known - usual[:, half:-half]) * gain
    return np.where(charge > CLIP * read_noise, charge, 0.0)
