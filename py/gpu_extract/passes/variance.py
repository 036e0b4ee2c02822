"""The variance of pixels from a model of their light: read noise squared, expected light, and the PSF's error.

An inverse variance made from the noisy pixels gives more weight to those that are low by chance. One made from a model
of the same pixels still does, because the model contains a bin's own noise. The model's spectrum is therefore smoothed
first (`smooth`), wherever that removes only noise (doc/method.md, "Passes").
"""
from dataclasses import dataclass

import numpy as np

from gpu_extract.data import Array, Normal, read_only
from gpu_extract.normal import Cut
from gpu_extract.passes import simd_pixels

KEEP = 4.0           # sigma of a spot-shaped residual above which smoothing would lose a line
SKEW = (KEEP**2 - 1.0) / 6.0        # photons more, because counts exceed KEEP sigma more often: Cornish & Fisher 1938
WIDTHS = 7, 15       # bins that are averaged; a bin's own noise keeps a share of 1 / width in its variance
FREQUENCIES = 128    # at which `left_by` evaluates how much of the noise an average follows
LACKED = 10.0        # photons by which noise may put x below 0 in faint bins; more is an effect of a line
SAME = 1e-6          # relative difference below which a value equals x
FULL = 0.3           # K_jj for a read noise of 0.5; where K_jj is lower, lacking photons count for less
TURNS = 3
HALF, WINGS = 0.5, 0.01     # share of a spot's light on good pixels from which on x, or K x / K 1, is known
REACH = 3            # bins on each side of a line that are not averaged either


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
