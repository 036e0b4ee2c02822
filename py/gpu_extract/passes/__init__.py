"""From one pass over an image to the next: how the previous pass's light weights and masks a bundle's pixels.

The first of several passes weights all good pixels by the read noise alone, which is independent of their noise. Each
further pass weights them by the model of the previous pass. Pixels whose light that model misses are weighted by their
own light. All results here are the same on every rank.
"""
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gpu_extract.config import ExtractConfig
from gpu_extract.data import Array, Image, IntArray, Light
from gpu_extract.normal import Cut
from gpu_extract.passes.background import background
from gpu_extract.passes.crosstalk import Piece, add_pieces, overlap
from gpu_extract.passes.missed import weigh_missed
from gpu_extract.passes.outliers import by_own_light, find_outliers
from gpu_extract.passes.read_noise import ReadNoise
from gpu_extract.passes.spot_shape import Shape
from gpu_extract.passes.variance import weigh

ROUNDS = 4           # most solutions of a bundle in one pass; each further one follows from newly rejected pixels


@dataclass(frozen=True)
class Past:
    """What is known of a bundle's pixels before a pass.

    noise: the read noise; before: the light of the previous pass, None before the first pass
    others: parts of other bundles' models, and of all spots' tails beyond their stamps, in order of bundles
    """

    noise: ReadNoise
    before: Light | None = None
    others: Sequence[Piece] = ()


@dataclass
class Sight:
    """A bundle's pixels as a pass sees them. It weights the cut-out in place and masks pixels that stand out.

    cut: changed in place; psferr: fractional error of the PSF; shape: of its spots
    rows: (2, columns) rows of the cut-out whose light a model contains, see outliers.known_rows
    rejected: (n, 2) y and x on the CCD
    hopeless: whether so many pixels stood out that none was rejected
    open: whether another look at the model may reject pixels: because the first look did, or because there was none
    """

    cut: Cut
    past: Past
    config: ExtractConfig
    psferr: float
    shape: Shape
    rows: IntArray
    rejected: IntArray = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))
    hopeless: bool = False
    open: bool = False
    _judged: Cut = field(init=False)
    _lit: np.ndarray = field(init=False)
    _were: list[tuple[IntArray, Array, Array]] = field(default_factory=list)

    def __post_init__(self) -> None:
        shape, before = self.cut.root.shape, self.past.before
        own, others = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        add_pieces(others, self._corner, self.past.others)
        noise = self.past.noise.squared(self._corner, (shape[0], shape[1]))
        self._judged = self.cut if before is not None else by_own_light(self.cut, noise)
        error = self.psferr if self.config.psferr_in_ivar else 0.0
        weigh(self.cut, noise, own if before is None else before.expected, others, error)
        self._lit = others if before is None else before.expected + others
        if before is None:
            self.open = not self.config.keep_cosmics
        else:
            self.rejected = before.rejected
            if self.config.keep_cosmics:
                self._reject(before.rejected)
            else:
                self.open = self.look(before.model, before.background)

    def look(self, model: np.ndarray, smooth: Array) -> bool:
        """Reject pixels that stand out from a model of the bundle; returns whether the rejected pixels change.

        model: (rows, columns) float32; smooth: coefficients of the background, which is added to the model

        Rejected pixels that hardly stand out from the new model are restored: a cosmic ray beside them had pulled the
        previous model down.

        The first pass judges by `by_own_light`, because the read noise alone is not a valid error.
        """
        if self.config.keep_cosmics or self.hopeless:
            return False
        before = self.rejected
        if len(smooth):
            model = (model + background(smooth, model.shape)).astype(np.float32)      # type: ignore[arg-type]
        self._restore()
        found = find_outliers(self._judged, model, self.rows, shape=self.shape, error=self.psferr,
                              known=before - self._corner, lit=None if self.past.before is None else self._lit)
        if found is None:
            self.hopeless, found = True, np.zeros((0, 2), dtype=np.int64)
        self._reject(found + self._corner)
        return not np.array_equal(before, self.rejected)

    @property
    def _corner(self) -> tuple[int, int]:
        return self.cut.y0, self.cut.x0

    def _reject(self, places: IntArray) -> None:
        """Mask pixels. Other pixels whose light the previous model misses are weighted by their own light."""
        self.rejected, before = places, self.past.before
        self._dim(places - self._corner, np.zeros(len(places)))
        if before is not None:
            self._dim(*weigh_missed(self.cut, before.expected, self.rows, shape=self.shape, error=self.psferr,
                                    lit=self._lit))

    def _dim(self, places: IntArray, factor: Array) -> None:
        """Multiply root and light of pixels (n, 2) of the cut-out by factors (n), and remember the previous values."""
        y, x = places.T
        self._were.append((places, self.cut.root[y, x], self.cut.light[y, x]))
        self.cut.root[y, x] *= factor
        self.cut.light[y, x] *= factor

    def _restore(self) -> None:
        """Undo all changes."""
        while self._were:
            places, root, light = self._were.pop()
            y, x = places.T
            self.cut.root[y, x], self.cut.light[y, x] = root, light


class Seen:
    """A cut-out in place of the whole image: pix and ivar as in Image, 0 beyond the cut-out and on masked pixels."""

    def __init__(self, cut: Cut, shape: tuple[int, int]):
        self._cut, self.shape = cut, shape

    @cached_property
    def _image(self) -> Image:
        pix, ivar = np.zeros(self.shape), np.zeros(self.shape)
        root, y0, x0 = self._cut.root, self._cut.y0, self._cut.x0
        y, x, ny, nx = overlap((y0, x0, *root.shape), (0, 0, *self.shape))      # type: ignore[arg-type]
        place, inside = np.s_[y:y + ny, x:x + nx], np.s_[y - y0:y - y0 + ny, x - x0:x - x0 + nx]
        good = root[inside] > 0
        ivar[place] = root[inside] ** 2
        pix[place] = np.divide(self._cut.light[inside], root[inside], out=np.zeros(good.shape), where=good)
        return Image(pix, ivar)

    @property
    def pix(self) -> np.ndarray:
        """(ny, nx) electron."""
        return self._image.pix

    @property
    def ivar(self) -> np.ndarray:
        """(ny, nx) 1/electron^2."""
        return self._image.ivar
