"""The read noise of an image: from its READNOISE, from its header, or from the ivar of pixels without light.

It is compared with the ivar, since further passes need an image in electrons.
"""
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpu_extract.data import Array, Image
from gpu_extract.errors import InputError

LOW = 0.05           # share of the CCD: less than an amplifier has, more than bad pixels
QUIET = 0.2          # electron: lower read noise leaves pixels beside a line with hardly any variance
SAMPLE = 1 << 18     # pixels from which the read noise is derived
ENOUGH = 50          # dark pixels of an amplifier that its read noise needs
BELIEVED = 4.0       # largest factor between a read noise and that of the dark pixels; beyond it the units differ
SOME, BRIGHT = 1.0, 25.0      # times the read noise squared: light that shows in a variance; that is most of it
UNIT = 2.0           # the ratio of variance to light is 1 in electrons; beyond this factor the unit is another
_CARDS = (("OBSRDNA", "OBSRDNB", "OBSRDNC", "OBSRDND"), ("RDNOISE1", "RDNOISE2", "RDNOISE3", "RDNOISE4"),
          ("RDNOISEA", "RDNOISEB", "RDNOISEC", "RDNOISED"))


@dataclass(frozen=True)
class ReadNoise:
    """Read noise of all pixels.

    values: electron, (ny, nx), or (2, 2) of the amplifiers: low and high y, low and high x
    split: (y, x) at which the amplifiers meet; source: "READNOISE", "header" or "ivar"
    """

    values: np.ndarray
    split: tuple[int, int]
    source: str

    @cached_property
    def levels(self) -> tuple[float, float]:
        """The lowest of any amplifier, or of a twentieth of the CCD; and the median. For judgements of the whole image:
        no pixel's weight may depend on others' read noise."""
        some = self.values[_spread(self.values.shape)]
        low, median = np.quantile(some, (LOW, 0.5), method="lower")
        return float(low), float(median)

    def squared(self, corner: tuple[int, int], shape: tuple[int, int]) -> Array:
        """Read noise squared of the pixels from `corner` on; pixels off the CCD have that of its edge."""
        if self.values.shape == (2, 2):
            counts = [np.clip(at - first, 0, size) for at, first, size in zip(self.split, corner, shape, strict=True)]
            noise = self.values.astype(np.float64)
            for axis, (count, size) in enumerate(zip(counts, shape, strict=True)):
                noise = noise.repeat([count, size - count], axis=axis)
        else:
            rows, columns = (np.clip(np.arange(first, first + size), 0, most - 1)
                             for first, size, most in zip(corner, shape, self.values.shape, strict=True))
            noise = self.values[rows[0]:rows[-1] + 1, columns[0]:columns[-1] + 1].astype(np.float64)
            if noise.shape != shape:
                noise = noise[rows[:, None] - rows[0], columns - columns[0]]
        return np.square(noise, out=noise)


def find_read_noise(image: Image, ccd: tuple[int, int]) -> ReadNoise:
    """The read noise: from READNOISE, else from the amplifiers in the header, else from the ivar of dark pixels.

    ccd: rows and columns of the CCD, of which the image may hold only the first
    A given read noise is compared with the ivar of pixels without light, and ignored if it is in another unit.
    Raises InputError if there is no read noise, and for an image that is not in electrons.
    """
    split = max(image.shape[0], ccd[0]) // 2, max(image.shape[1], ccd[1]) // 2
    found = believed(given_read_noise(image, split), image, split)
    if found is None:
        raise InputError("the read noise is unknown: the image has no READNOISE, no OBSRDNA to D in its header, and no "
                         "good pixels without light to derive it from; give one of these, or --passes 1")
    ivar, pix, rows = _sample(image)
    noise = np.concatenate([found.squared((int(row), 0), (1, pix.shape[1])) for row in rows])
    _check_electrons(ivar, pix, noise)
    return found


def believed(given: ReadNoise | None, image: Image, split: tuple[int, int]) -> ReadNoise | None:
    """The given read noise, if there is one and its unit is that of the ivar of pixels without light.

    Otherwise the read noise that follows from these pixels; None if there are too few.
    """
    dark = _of_dark_pixels(*_sample(image), split)
    if dark is None or (given is not None and _agree(given, dark)):
        return given
    return ReadNoise(dark, split, "ivar")


def too_quiet(noise: ReadNoise | None) -> str:
    """A warning that the read noise is too low, in an amplifier at least, for a model of counts beside lines, or
    nothing."""
    if noise is None or noise.levels[0] >= QUIET:
        return ""
    return (f"the read noise is {noise.levels[0]:.2g} electron: with several passes, errors beside lines may be far "
            "too small, as pixels there have almost no variance where the model is below 0; give an ivar of the "
            "expected light, and --passes 1")


def _sample(image: Image) -> tuple[Array, Array, np.ndarray]:
    """ivar and pix in some evenly spread rows, and the numbers of these rows."""
    rows = _spread(image.shape)
    return image.ivar[rows].astype(np.float64), image.pix[rows].astype(np.float64), rows


def _spread(shape: tuple[int, ...]) -> np.ndarray:
    """Some evenly spread rows of an image."""
    every = max(shape[0] * shape[1] // SAMPLE, 1)
    return np.arange(every // 2 if every < shape[0] else 0, shape[0], every)


def _of_dark_pixels(ivar: Array, pix: Array, rows: np.ndarray, split: tuple[int, int]) -> np.ndarray | None:
    """(2, 2) read noise of the amplifiers: light has little or no share in 1/ivar of good pixels that are not above 0.

    An amplifier with too few such pixels gets the median of the others; None if none has enough.
    """
    found = np.full((2, 2), np.nan)
    high, right = rows >= split[0], np.arange(pix.shape[1]) >= split[1]
    with np.errstate(invalid="ignore"):
        good = (ivar > 0) & (pix <= 0)
    for y in range(2):
        for x in range(2):
            mine = ivar[high == y][:, right == x][good[high == y][:, right == x]]
            if len(mine) >= ENOUGH:
                found[y, x] = 1.0 / np.sqrt(np.median(mine))
    if np.isnan(found).all():
        return None
    return np.where(np.isnan(found), np.nanmedian(found), found)


def given_read_noise(image: Image, split: tuple[int, int]) -> ReadNoise | None:
    """The read noise of READNOISE or of the header's amplifiers; None if neither is usable."""
    if image.noise is not None:
        usable = np.isfinite(image.noise) & (image.noise > 0)
        if usable.any():
            return ReadNoise(image.noise if usable.all() else _filled(image.noise, usable, split), split, "READNOISE")
    for names in _CARDS:
        values = [image.get(name) for name in names]
        if all(isinstance(v, (int, float)) and not isinstance(v, bool) and 0 < v < np.inf for v in values):
            return ReadNoise(np.array(values, dtype=np.float64).reshape(2, 2), split, "header")
    return None


def _filled(noise: np.ndarray, usable: np.ndarray, split: tuple[int, int]) -> np.ndarray:
    """The read noise of pixels, where it is unusable the largest of the pixel's amplifier; if that has none, of all."""
    out = np.where(usable, noise, 0)
    most, (y, x) = out.max(), np.clip(split, 0, noise.shape).tolist()
    for rows in (slice(0, y), slice(y, None)):
        for columns in (slice(0, x), slice(x, None)):
            part = out[rows, columns]
            part[part == 0] = part.max(initial=0) or most
    return out


def _agree(given: ReadNoise, dark: np.ndarray) -> bool:
    """Whether a read noise is in the unit of the image."""
    ratio = given.levels[1] / float(np.median(dark))
    return 1 / BELIEVED <= ratio <= BELIEVED


def _check_electrons(ivar: Array, pix: Array, noise: Array) -> None:
    """Raise InputError if the variance of pixels with light does not equal their light: the image is in another unit.

    noise: read noise squared

    Bright pixels with a low variance may be cosmic rays, which an IVAR made from a model does not include. They count
    only if no variance includes light.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        bright = (ivar > 0) & (pix > BRIGHT * noise) & np.isfinite(pix)
        light = np.where(ivar > 0, 1.0 / ivar - noise, 0.0)
    flat = np.count_nonzero(light > SOME * noise) < ENOUGH
    lit = bright if flat else bright & (light > BRIGHT * noise)
    if np.count_nonzero(lit) < ENOUGH:
        return
    unit = float(np.median(light[lit] / pix[lit]))
    if not 1 / UNIT <= unit <= UNIT:
        raise InputError(f"the variance of bright pixels is {unit:.3g} times their light, must be 1 times, as in "
                         "electrons: further passes need an image in electrons; convert it and its ivar, or give "
                         "--passes 1")
