"""The variance of pixels from a model of their light: read noise squared, expected light, and the PSF's error.

An inverse variance made from the noisy pixels gives more weight to those that are low by chance. One made from a model
of the same pixels still does, because the model contains a bin's own noise. The model's spectrum is therefore smoothed
first (`smooth`), wherever that removes only noise (doc/method.md, "Passes").
"""
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpu_extract.data import Array, Image, Normal, read_only
from gpu_extract.errors import InputError
from gpu_extract.normal import Cut
from gpu_extract.passes import simd_pixels

KEEP = 4.0           # sigma of a spot-shaped residual above which smoothing would lose a line
SKEW = (KEEP**2 - 1.0) / 6.0        # photons more, because counts exceed KEEP sigma more often: Cornish & Fisher 1938
WIDTHS = 7, 15       # bins that are averaged; a bin's own noise keeps a share of 1 / width in its variance
FREQUENCIES = 128    # at which `left_by` evaluates how much of the noise an average follows
LACKED = 10.0        # photons by which noise may put x below 0 in faint bins; more is an effect of a line
SAME = 1e-6          # relative difference below which a value equals x
FULL = 0.3           # K_jj for a read noise of 0.5; where K_jj is lower, lacking photons count for less
LOW = 0.05           # share of the CCD: less than an amplifier has, more than bad pixels
QUIET = 0.2          # electron: lower read noise leaves pixels beside a line with hardly any variance
TURNS = 3
HALF, WINGS = 0.5, 0.01     # share of a spot's light on good pixels from which on x, or K x / K 1, is known
REACH = 3            # bins on each side of a line that are not averaged either
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


def weigh(cut: Cut, noise: Array, own: np.ndarray, others: np.ndarray, error: float = 0.0) -> None:
    """Weight good pixels of a cut-out by a model, and subtract the others' light, in place.

    noise: read noise squared; own, others: light of the bundle and of all others; error: fractional, of the PSF
    """
    simd_pixels.weigh(cut.root, cut.light, read_only(noise), read_only(own), read_only(others), float(error))


@dataclass(frozen=True)
class Shared:
    """Light of lines that the other fibres of a bundle show as well (passes/shared_lines.py), (nfibre, nwave).

    light: photons per bin, the smooth spectrum of the fibres included; 0 where it is not known
    more: its noise squared, relative to that of x
    """

    light: Array
    more: Array


def smooth(normal: Normal, x: Array, share: Array | None, shared: Shared | None = None,
           bands: Array | None = None) -> Array:
    """The spectrum for the variance: (nfibre, nwave) photons per bin.

    With K the fibre's own block of icov, K x / K 1 is what the spots see of the spectrum: x smoothed over some three
    bins. It is averaged over WIDTHS[-1] bins. Where that would lose a line or an edge (`_averaged`), it is averaged
    over WIDTHS[0] bins, and where these would lose it as well, x stays as it is. A bin in which no photon has arrived
    is not dark: n photons come on average from light of n + 1. An x that noise may have put below 0 counts as 0.

    share: (nfibre, nwave) of a spot's light on good pixels, if read noise was their whole variance; None if their light
        was part of it
    shared: light that is known from other fibres; it is not averaged
    bands: `bands_of` the normal equations, if known
    """
    bands, seen = bands_of(normal, x.shape[1]) if bands is None else bands, normal.weight > 0
    rest = x if shared is None else x - shared.light
    y, light, products = rest, x - rest, seen_of(bands, rest, seen)
    error = seen_noise(normal, bands, over(products, WIDTHS[0]) + light, share)
    if shared is not None:
        error *= 1.0 + shared.more
    for width in WIDTHS:
        y = _averaged(bands, (rest, y), products, seen, error * left_by(bands, seen, width), width)
    if shared is not None:
        y = y + light
    alone = np.abs(y - x) <= SAME * (1.0 + np.abs(x))        # a bin between lines is its own average
    lacked = np.clip(-y, 0.0, LACKED) + np.where(alone, 1.0, 1.0 / WIDTHS[-1])
    return y + lacked * np.minimum(bands[0] / FULL, 1.0)


def seen_noise(normal: Normal, bands: Array, light: Array, share: Array | None) -> Array:
    """The variance of K x: (nfibre, nwave), infinite in bins without weight.

    With weights W of read noise alone it is K_jj times 1 + l, l being the light of the spot's good pixels in terms of
    each one's read noise squared: K light / share is the mean of W A light under the spot.

    light: photons per bin; share: see `smooth`
    """
    seen = normal.weight > 0
    error = np.where(seen, bands[0], np.inf)
    if share is not None:
        seen &= share > 0
        error *= np.where(seen, 1.0 + multiply(bands, np.maximum(light, 0.0)) / np.where(seen, share, 1.0), np.inf)
    return error


def _averaged(bands: Array, spectra: tuple[Array, Array], products: tuple[Array, Array], seen: np.ndarray, error: Array,
              width: int) -> Array:
    """A spectrum x averaged over `width` bins, except at lines, where another spectrum is used.

    spectra: x and the other; products: `seen_of` x; seen: bins with light; error: variance of K (x - y)

    K (x - y) is the spot-shaped residual that an average y would leave. Where it exceeds KEEP errors plus what SKEW
    photons add to it, there is a line or an edge. These bins, and REACH bins on both sides, are not averaged and take
    no part in other averages. Without them, further lines may stand out, so the test is made up to TURNS times.
    """
    x, other = spectra
    lines = np.zeros(x.shape, dtype=bool)
    for turn in range(TURNS):
        products = seen_of(bands, x, seen & ~lines) if turn else products
        y = np.where(lines, other, over(products, width))
        residual = multiply(bands, x - y)
        residual -= np.clip(residual, 0.0, SKEW * bands[0])
        found = widened(np.square(residual) > KEEP**2 * error, REACH) & ~lines
        if not found.any():
            break
        lines |= found
        y = np.where(lines, other, y)
    return y


def left_by(bands: Array, seen: np.ndarray, width: int) -> Array:
    """The variance of K (x - y) relative to that of K x, for an average y: (nfibre, 1), 1 if y follows no noise.

    For uniform bins and the frequency w, K x has the power k(w), the transform of the bands, and K (x - y) has
    k (1 - k(w) b(w) / k(0))^2, where b is the transform of a box.
    """
    count = np.maximum(seen.sum(axis=1), 1)
    row = (bands * seen).sum(axis=2).T / count[:, None]
    turn = np.cos(np.pi * np.outer(np.arange(max(len(bands), width)), (np.arange(FREQUENCIES) + 0.5) / FREQUENCIES))
    turn[1:] *= 2.0
    power = np.sum([row[:, k, None] * turn[k] for k in range(len(bands))], axis=0)
    whole = row[:, :1] + 2.0 * row[:, 1:].sum(axis=1, keepdims=True)
    share = power / np.where(whole > 0, whole, 1.0) * turn[:width // 2 + 1].sum(axis=0) / width
    mean: Array = (power * np.square(1.0 - share)).mean(axis=1, keepdims=True)
    return np.divide(mean, row[:, :1], out=np.ones_like(mean), where=mean > 0)


def trusted(normal: Normal, x: Array, share: Array) -> Array:
    """The spectrum x (nfibre, nwave) for light on pixels beyond the spots themselves, such as that of tails.

    Beside masks and at the edge of the CCD, good pixels see some bins by their wings alone. The x of such a bin may be
    wrong by 1e5 photons, and that of its neighbours by as much in the other direction: only their sum under the spots
    is known. There K x / K 1 takes the place of x, or 0 where there are not even wings.

    share: (nfibre, nwave) of a spot's light on good pixels: x is kept from HALF on, and counts as 0 below WINGS
    """
    near = average(bands_of(normal, x.shape[1]), x, (normal.weight > 0) & (share >= WINGS), 1)
    return np.where(share >= HALF, x, near)


def bands_of(normal: Normal, nwave: int) -> Array:
    """The fibres' own blocks of icov by diagonal: (reach + 1, nfibre, nwave), [k, i, j] couples bins j and j + k."""
    hw, reach = normal.halfband, min(normal.own_halfband, nwave - 1)
    return np.ascontiguousarray(normal.icov[:, 0, :, hw:hw + reach + 1].transpose(2, 0, 1))


def average(bands: Array, x: Array, known: np.ndarray, width: int) -> Array:
    """K x / K 1 of the known bins alone, averaged over `width` bins; 0 where there are none."""
    return over(seen_of(bands, x, known), width)


def seen_of(bands: Array, x: Array, known: np.ndarray) -> tuple[Array, Array]:
    """K x and K 1 of the known bins alone, 0 at the others."""
    light, share = multiply(bands, np.where(known, x, 0.0)), multiply(bands, known.astype(float))
    return np.where(known, light, 0.0), np.where(known, share, 0.0)


def over(products: tuple[Array, Array], width: int) -> Array:
    """K x / K 1 (see `seen_of`) averaged over `width` bins; 0 where no bin is known."""
    light, share = (sums(array, width) for array in products)
    return np.divide(light, share, out=np.zeros_like(light), where=share > 0)


def sums(values: Array, width: int) -> Array:
    """Sums of `width` elements around each, along the second axis, put together from sums of 1, 2, 4 and so on."""
    half, count = width // 2, values.shape[1]
    part, size, start = np.pad(values, ((0, 0), (half, half))), 1, 0
    out = np.zeros_like(values)
    while True:
        if width & size:
            out += part[:, start:start + count]
            start += size
        size *= 2
        if size > width:
            return out
        part = part[:, :-(size // 2)] + part[:, size // 2:]


def multiply(bands: Array, x: Array) -> Array:
    """Symmetric bands (reach + 1, nfibre, nwave) times x (nfibre, nwave)."""
    out = np.empty(x.shape)
    simd_pixels.multiply(out, bands, np.ascontiguousarray(x, dtype=np.float64))
    return out


def widened(flags: np.ndarray, reach: int) -> np.ndarray:
    """Flags (n, m) extended by `reach` elements on both sides, along the second axis."""
    out = flags.copy()
    for k in range(1, min(reach, flags.shape[1] - 1) + 1):
        out[:, k:] |= flags[:, :-k]
        out[:, :-k] |= flags[:, k:]
    return out
