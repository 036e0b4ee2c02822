"""Lines that all fibres of a bundle show, such as those of the night sky: how bright a fibre's are, from the others.

The spectrum from which a fibre's variance is made must not follow the fibre's own noise (passes/variance.py). Away from
lines it is an average along wavelength. On lines that the other fibres show as well, it is the mean of the others times
the fibre's gain. The rest of x is then smooth, and is averaged as elsewhere (doc/method.md, "Shared lines").
"""
import numpy as np

from gpu_extract.data import Array, IntArray, Normal, read_only
from gpu_extract.normal import Cut
from gpu_extract.passes import simd_pixels
from gpu_extract.passes.variance import (
    HALF,
    KEEP,
    REACH,
    WIDTHS,
    Shared,
    bands_of,
    multiply,
    over,
    seen_noise,
    seen_of,
    sums,
    widened,
)

FIBRES = 3           # least number of fibres: two others
LEAST = 2.0          # least information of the others about a line, in units of the fibre's own
GAINS = 0.1          # by which gains of fibres differ from 1; decides where lines are too faint to show it
LOUDEST = 0.5        # of the largest deviation; a line of one fibre shifts the mean, so all others deviate, but less
TURNS = 2


def share_good(cut: Cut, corners: tuple[IntArray, IntArray], core: tuple[int, int]) -> Array:
    """The share of good pixels in the core of each spot: (nfibre, nwave).

    corners: y and x of the cores' first pixels on the cut-out; a core beyond its edges is moved to the edge
    core: rows and columns of a core
    """
    out = np.empty(corners[0].shape)
    y0, x0 = (np.clip(one, 0, size - own).astype(np.int64)
              for one, size, own in zip(corners, cut.root.shape, core, strict=True))
    simd_pixels.count_good(out, read_only(cut.root), y0, x0, *core)
    out /= core[0] * core[1]
    return out


def shared_lines(normal: Normal, x: Array, share: Array | None, good: Array,
                 bands: Array | None = None) -> Shared | None:
    """Lines of the spectrum x (nfibre, nwave) that other fibres show as well; None if there are none.

    D is x less its average over WIDTHS[-1] bins. K D is what the spots see of D. It has the noise e and the weight
    K_jj / e^2. Where its weighted sum over the fibres exceeds KEEP errors, there is a line. The mean P of D over the
    fibres is the line's shape. A fibre's gain g follows from least squares, with the prior 1 +- GAINS.

    All this is done twice. Bins near masks take no part: their x has noise that the fibre's own good pixels do not see,
    and those of other fibres would. The second time, bins in which K (D - g P) of a fibre deviates by KEEP errors, as
    at lines of its own, take no part either. In averages, the bins that take no part have K x / K 1 the first time, and
    the average plus g P the second. In the result, P is the mean of the other fibres.

    share, bands: see variance.smooth; good: (nfibre, nwave) share of good pixels in the core of each spot
    """
    if len(x) < FIBRES:
        return None
    bands = bands_of(normal, x.shape[1]) if bands is None else bands
    seen, part = normal.weight > 0, good >= HALF
    products = seen_of(bands, x, seen)
    error = seen_noise(normal, bands, over(products, WIDTHS[0]), share)
    count = sums(part.astype(float), WIDTHS[-1])
    based = 2 * count > WIDTHS[-1]
    known = ~widened(good < 1.0, REACH) & based & seen
    scale = np.where(known, bands[0] / error, 0.0)
    weight = (scale * bands[0]).sum(axis=1, keepdims=True) / np.maximum(known.sum(axis=1, keepdims=True), 1)
    filled = np.where(known, x, over(products, 1))
    for turn in range(TURNS):
        base = sums(np.where(part, filled, 0.0), WIDTHS[-1]) / np.maximum(count, 1.0)
        rest = np.where(seen, x - base, 0.0)
        found = multiply(bands, rest)
        lines = _lines(found, scale, bands[0])
        if not lines.any():
            return None
        mean = _mean(rest, weight * known, lines)
        alike = multiply(bands, np.broadcast_to(mean, x.shape))
        gain = _gains(found, alike, scale * mean)
        if turn + 1 < TURNS:
            apart = np.where(known, np.square(found - gain * alike), 0.0) / error
            known &= ~widened((apart > KEEP**2) & (apart >= LOUDEST**2 * apart.max(axis=0)), REACH)
            scale[~known] = 0.0
            filled = np.where(known, x, base + gain * mean)
    return _of_others((rest, known & lines), (base, based), gain, weight)


def _lines(found: Array, scale: Array, own: Array) -> np.ndarray:
    """(nwave,) where all fibres together show a line, and the bins around it whose averages contain its light.

    found: K D; scale: K_jj over its noise squared; own: K_jj
    """
    total, error = (scale * found).sum(axis=0), (scale * own).sum(axis=0)
    return widened((np.square(total) > KEEP**2 * error)[None], WIDTHS[-1] // 2)[0]


def _mean(rest: Array, weight: Array, lines: np.ndarray) -> Array:
    """(nwave,) the weighted mean of D over all fibres, 0 away from lines."""
    light, share = (weight * rest).sum(axis=0), weight.sum(axis=0)
    return np.divide(light, share, out=np.zeros_like(light), where=lines & (share > 0))


def _gains(found: Array, alike: Array, scale: Array) -> Array:
    """(nfibre, 1) gain: a fibre's lines relative to the mean of all, by least squares of K D with K P."""
    own, all_of = ((scale * array).sum(axis=1, keepdims=True) for array in (found, alike))
    gain: Array = np.maximum(GAINS**-2 + own, 0.0) / (GAINS**-2 + np.maximum(all_of, 0.0))
    return gain


def _of_others(of_lines: tuple[Array, np.ndarray], averages: tuple[Array, np.ndarray], gain: Array,
               weight: Array) -> Shared:
    """A fibre's light: from D of the others, where these have LEAST times its information, and from all averages.

    of_lines: D, and the bins of lines in which it is known; averages: of x, and the bins in which they are known

    The mean of a fibre's averages, its continuum, is subtracted from them. Otherwise their mean over fibres would have
    a step where the average of one fibre is not known.
    """
    (rest, known), (base, based) = of_lines, averages
    one = weight * gain**2
    light, inside = weight * gain * np.where(known, rest, 0.0), one * known
    light, inside = (array.sum(axis=0) - array for array in (light, inside))
    told = (inside >= LEAST * one) & (inside > 0)
    lines, more = (np.divide(array, inside, out=np.zeros_like(rest), where=told) for array in (light, one + 0.0 * rest))
    middle = (base * based).sum(axis=1, keepdims=True) / np.maximum(based.sum(axis=1, keepdims=True), 1)
    light, inside = (weight * gain * (base - middle) * based).sum(axis=0), (one * based).sum(axis=0)
    smooth = np.divide(light, inside, out=np.zeros_like(light), where=inside > 0)
    return Shared(gain * (lines + smooth), more)
