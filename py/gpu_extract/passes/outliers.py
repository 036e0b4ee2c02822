"""Pixels that stand out from the model of an image: unmasked cosmic rays.

An outlier lies above the model by more than noise and the model's error allow. The latter is the PSF's error, plus the
misfit of a line between two bins (some per cent of its height, more where a bin is wide for its spot). The excess is
also narrower than any spot: in some direction the pixels on both sides have a smaller part of it than in a spot, and
the pixels two away have less than half. Faint tracks are found as pairs of pixels. Neighbours that also lie above the
model join an outlier, because a cosmic ray's charge spreads. Where the model lacks light, beside its ends, a pixel must
stand out from both adjacent columns instead, as the light of no bin does.

Errors are converted to those of a Gaussian that is exceeded as rarely (`rarity`): where 0.01 electrons are expected,
every hundredth pixel has a photon, which is ten times the root of the variance.
"""
from dataclasses import replace

import numpy as np

from gpu_extract.data import Array, IntArray, read_only
from gpu_extract.normal import Cut
from gpu_extract.passes import simd_pixels
from gpu_extract.passes.spot_shape import DIRECTIONS, Shape
from gpu_extract.passes.variance import weigh

FAR = 5.5            # errors above the model; noise reaches it in one pixel of 5e7
PAIR = 3.5           # the same for pairs of neighbours
WRONG = 2.0          # times the PSF's error: allowed residual in a pixel, as a share of the brightest light nearby
STAY = 4.0           # the same for outliers of the previous look, which the model no longer includes
GROWN = 2.0          # the same for neighbours of outliers
FIRST = 2.0          # factor of the errors in the first pass: its model oscillates more, and faint hits can wait
BRIGHTEST = 1e30     # electrons of a pixel; larger numbers exceed single precision
LENIENT = 0.8        # times what a spot has beside its brightest pixel: an excess has less in some direction
FEWEST = 0.05        # least expected electrons in a pixel that a model of some 20 pixels can distinguish from none
AROUND = 4           # distance in pixels within which light contributes to the model's error
MOST = 0.01          # share of the good pixels: if more stand out, they must look like hits, or the model is wrong
MANY = 0.1           # share from which on the model is wrong whatever they look like
NARROW = 0.93        # share of those that stand out which is narrow and isolated: of hits 0.98, of wrong models 0.85
LOW = 0.5            # pixels as far below the model, for each one above: a model without its hits 0.4, wrong ones 0.7
GAUSSIAN, STEPS = 1e-3, 12   # t below which counts are Gaussian to 2e-4; Newton steps
_NEIGHBOURS = np.array([(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1) if (y, x) != (0, 0)])
_RING = np.array([(y, x) for y in range(-2, 3) for x in range(-2, 3) if max(abs(y), abs(x)) == 2])


def by_own_light(cut: Cut, noise: Array) -> Cut:
    """A copy of a cut-out with the errors for the first pass: FIRST times those of read noise and own light.

    noise: (rows, columns) read noise squared. Of the image's IVAR only the good pixels are used.
    """
    good = cut.root > 0
    own = np.divide(cut.light, cut.root, out=np.zeros(good.shape), where=good).clip(0.0, BRIGHTEST).astype(np.float32)
    judged = replace(cut, root=cut.root.copy(), light=cut.light.copy())
    weigh(judged, noise, own, np.zeros_like(own))
    judged.root[:] /= FIRST
    judged.light[:] /= FIRST
    return judged


def find_outliers(cut: Cut, own: np.ndarray, rows: IntArray, *, shape: Shape, error: float,
                  known: IntArray, lit: np.ndarray | None = None) -> IntArray | None:
    """The outliers of a cut-out: (n, 2) row and column; None if so many stand out that the model must be wrong.

    cut: weighted, without the light of other bundles (variance.weigh); own: the model
    rows: (2, columns) first and end of the rows in each column whose light the model contains (`known_rows`)
    error: of the PSF; known: (n, 2) outliers of a previous look, which stay while they lie above the model
    lit: see Pixels
    """
    found = np.empty(cut.root.shape, dtype=bool)
    count = simd_pixels.look(found, cut.root, cut.light, read_only(own), PAIR)
    look, places = Pixels(cut, own, rows, WRONG * error + shape.between, lit), places_of(found)
    if count > MOST * np.count_nonzero(cut.root) and look.contradicted(places, shape):
        return None
    seeds = look.seeds(places, shape)
    # Beside a bright hit the model oscillates, and pixels of mere noise stand out. Once they are masked, the model no
    # longer follows them, so each stands out by more than its noise. A known outlier without a neighbour must therefore
    # exceed FAR, the limit of a new one.
    known = known[look.known(known)]
    height = look.height(known)
    slender = look.slender(places, shape)
    known = np.concatenate([known[height > STAY], slender])
    height = np.concatenate([height[height > STAY], np.full(len(slender), np.inf)])
    return look.grown(known[(height > FAR) | look.paired(known)], seeds)


def known_rows(cut: Cut, y0: IntArray, x0: IntArray, stamp: tuple[int, int], reach: int, ny: int) -> IntArray:
    """(2, columns) first and end of the rows of a cut-out whose light the model contains.

    y0, x0: (nfibre, nwave) first pixels of the spots; reach: bins at which spots overlap; ny: rows of the CCD, or of
        the image if it has more

    Bins beyond both ends send light into the rows there, and bins at the ends take it for their own. The rows that
    2 reach bins at either end touch are therefore left out. None are where the bin after the last has no pixel on the
    CCD: there is no such light.
    """
    rows, columns = cut.root.shape
    near = min(2 * reach, (y0.shape[1] - 1) // 2)
    ends = np.array([np.zeros(columns), np.full(columns, rows)], dtype=np.int64)
    for y, x in zip(y0 - cut.y0, x0 - cut.x0, strict=True):
        up = bool(y[-1] >= y[0])
        low, high = (y[near], y[-1 - near]) if up else (y[-1 - near], y[near])
        for bins, beyond in ((slice(None, near + 1), 2 * y[0] - y[:2][-1]),
                             (slice(len(y) - 1 - near, None), 2 * y[-1] - y[-2:][0])):
            if not 1 - stamp[0] < beyond + cut.y0 < ny - 1:        # by rounding it may be a row nearer
                continue
            first, last = max(int(x[bins].min()), 0), min(int(x[bins].max()) + stamp[1], columns)
            side = 0 if (bins.start is None) == up else 1
            place = ends[side, first:last]
            (np.maximum if side == 0 else np.minimum)(place, low + stamp[0] if side == 0 else high, out=place)
    return ends


def rarity(excess: Array, root: Array, lit: Array) -> Array:
    """The Gaussian errors (n) that are exceeded as rarely as an excess (n) of pixels of variance 1 / root^2.

    lit: the part of the variance that comes from counts, FEWEST at least; the rest, g, is Gaussian

    K(t) = g t^2 / 2 + lit (e^t - 1 - t) is the logarithm of the mean of exp(t excess). With K'(t) = excess, the result
    is sqrt(2 (t excess - K(t))): Lugannani & Rice 1980, Adv. Appl. Prob. 12, 475. Below 0 it is excess times root.
    """
    height = excess * root
    some = np.flatnonzero(height > 0)
    above, variance, light = excess[some], 1.0 / np.square(root[some]), np.maximum(lit[some], FEWEST)
    rest = np.maximum(variance - light, 0.0)
    t = np.minimum(above / (rest + light), np.log1p(above / light))     # Newton's steps descend from here
    near = t < GAUSSIAN
    for _ in range(STEPS):
        t -= (rest * t + light * np.expm1(t) - above) / (rest + light * np.exp(t))
    twice = rest * np.square(t) + 2.0 * light * (t * np.exp(t) - np.expm1(t))
    height[some] = np.where(near, height[some], np.minimum(np.sqrt(twice), height[some]))
    return height


class Pixels:
    """The excess of pixels over a model.

    wrong: allowed error of the model, as a share of the light around
    lit: (rows, columns) light in the pixels' variance, which has the noise of counts; None: all noise is Gaussian
    """

    def __init__(self, cut: Cut, own: np.ndarray, rows: IntArray, wrong: float, lit: np.ndarray | None):
        self._cut, self._own, self._rows, self._wrong, self._lit = cut, own, rows, wrong, lit

    def known(self, places: IntArray) -> np.ndarray:
        """Whether the model contains the light of places (n, 2)."""
        y, x = places.T
        return (y >= self._rows[0, x]) & (y < self._rows[1, x])

    def seeds(self, places: IntArray, shape: Shape) -> IntArray:
        """Places that stand out by themselves or in pairs, and are narrow and isolated."""
        places = places[self.known(places)]
        height = self.height(places)
        places, height = places[height > PAIR], height[height > PAIR]
        sharp = self.sharp(places, shape)
        places, height = places[sharp], height[sharp]
        return places[(height > FAR) | self.paired(places)]

    def slender(self, places: IntArray, shape: Shape) -> IntArray:
        """Places in the other rows, whose light the model does not contain, that stand out from both adjacent columns.

        This needs no model: along a row, the light of any bin is as wide as a spot. It needs two good pixels.
        """
        places = places[~self.known(places)]
        sides, beside = self.excess(places[:, None] + np.array([(0, -1), (0, 1)])), LENIENT * shape.beside[1]
        light = np.maximum(sides.mean(axis=1), 0.0) / beside            # at most, at the place itself
        top = self.excess(places)
        some = top > light          # without two good pixels it is NaN, which compares as false
        places, top, light = places[some], top[some], light[some]
        y, x = places.T
        noise = [1.0 / np.square(self._cut.root[y, x + k]) for k in (-1, 0, 1)]
        root = 1.0 / np.sqrt(noise[1] + light + (noise[0] + noise[2] + 2.0 * beside * light) / (4.0 * beside**2))
        above = top - light - self._doubt(places)
        height = above * root if self._lit is None else rarity(above, root, self._lit[y, x] + light)
        return places[height > FAR]

    def contradicted(self, places: IntArray, shape: Shape) -> bool:
        """Whether the model must be wrong: many of these places, all that may stand out, do so, and not as hits do.

        Hits are narrow, and once the brightest are masked, few pixels lie below the model. The first pass has not
        masked any: its model oscillates beside them.
        """
        y = np.arange(len(self._own))[:, None]          # at the ends, light of bins beyond stands out
        good = np.count_nonzero((self._cut.root > 0) & (y >= self._rows[0]) & (y < self._rows[1]))
        inside = places[self.known(places)]
        high = inside[self.height(inside) > PAIR]       # beyond the PSF's error
        if len(high) <= MOST * good:
            return False
        if len(high) > MANY * good or np.count_nonzero(self.sharp(high, shape)) < NARROW * len(high):
            return True
        low = self._lit is not None and np.count_nonzero(self._cut.light - self._cut.root * self._own < -PAIR)
        return bool(low > LOW * len(places))

    def sharp(self, places: IntArray, shape: Shape) -> np.ndarray:
        """Whether places are narrow and isolated."""
        return self.narrow(places, shape) & self.alone(places)

    def paired(self, places: IntArray) -> np.ndarray:
        """Whether another of the places is next to each of them."""
        marked = np.zeros(np.add(self._cut.root.shape, 2), dtype=bool)
        marked[places[:, 0] + 1, places[:, 1] + 1] = True
        beside = places[:, None, :] + 1 + _NEIGHBOURS
        return marked[beside[..., 0], beside[..., 1]].any(axis=1)

    def excess(self, places: IntArray) -> Array:
        """pix - model, electron, at places (..., 2); NaN where there is no good pixel.

        A model below 0, where x swings beside a cosmic, counts as 0.
        """
        rows, columns = self._cut.root.shape
        inside = (places >= 0).all(axis=-1) & (places[..., 0] < rows) & (places[..., 1] < columns)
        y, x = np.where(inside, places[..., 0], 0), np.where(inside, places[..., 1], 0)
        root = self._cut.root[y, x]
        good = inside & (root > 0)
        return np.where(good, self._cut.light[y, x] / np.where(good, root, 1.0)
                        - np.maximum(self._own[y, x], 0.0), np.nan)

    def height(self, places: IntArray) -> Array:
        """The excess of good pixels beyond the allowed error of the light around them, in units of noise."""
        y, x = places.T
        root = self._cut.root[y, x]
        above = self.excess(places) - self._doubt(places)
        return above * root if self._lit is None else rarity(above, root, self._lit[y, x].astype(float))

    def _doubt(self, places: IntArray) -> Array:
        """The allowed error of the model at places, electron."""
        brightest = np.empty(len(places))
        simd_pixels.around(brightest, read_only(self._own), places, AROUND)
        return self._wrong * brightest

    def narrow(self, places: IntArray, shape: Shape) -> np.ndarray:
        """Whether places are narrower than a spot in some direction; the excess of an adjacent bad pixel counts as
        0."""
        top, narrow = self.excess(places), np.zeros(len(places), dtype=bool)
        for direction, beside in zip(np.array(DIRECTIONS), shape.beside, strict=True):
            sides = np.nan_to_num(np.stack([self.excess(places + direction), self.excess(places - direction)]))
            narrow |= sides.mean(axis=0) < LENIENT * beside * top
        return narrow

    def alone(self, places: IntArray) -> np.ndarray:
        """Whether the median of the pixels two away has less than half of a place's excess: broad light is not a
        cosmic ray."""
        ring = np.sort(self.excess(places[:, None, :] + _RING), axis=1)      # NaN last
        known = np.count_nonzero(~np.isnan(ring), axis=1)
        middle = np.where(known > 0, np.nan_to_num(ring[np.arange(len(ring)), np.maximum(known - 1, 0) // 2]), 0.0)
        return middle < 0.5 * self.excess(places)

    def grown(self, known: IntArray, seeds: IntArray) -> IntArray:
        """The known outliers, the seeds, and the seeds' neighbours that also lie above the model, in order of rows."""
        near = (seeds[:, None, :] + _NEIGHBOURS).reshape(-1, 2)
        near = near[~np.isnan(self.excess(near))]
        near = near[self.known(near)]
        chosen = np.zeros(self._cut.root.shape, dtype=bool)
        for places in (known, seeds, near[self.height(near) > GROWN]):
            chosen[places[:, 0], places[:, 1]] = True
        return places_of(chosen)


def places_of(flags: np.ndarray) -> IntArray:
    """np.argwhere of flags (n, m) of which few are set, 15 times as fast."""
    return np.stack(np.unravel_index(np.flatnonzero(flags), flags.shape), axis=1)
