"""The data that all bundles of a run share, and those of one bundle between the steps of bundle.py."""
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import DTypeLike

from gpu_extract.checks import odd_pixels
from gpu_extract.checks.probe import Decay, measure_neighbours
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Array, Image, IntArray, Normal, PsfModel, Recipe
from gpu_extract.known import known
from gpu_extract.normal import Cut
from gpu_extract.passes.read_noise import ReadNoise
from gpu_extract.passes.spot_shape import Shape, shape_of
from gpu_extract.plan import TILE, Plan
from gpu_extract.solve import Solution

T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """The common data of all bundles of a run.

    psf: of the fibres that can be extracted, renumbered; dropped: the others, numbered as in the given PSF,
        with the validator's reasons
    threads: number that work on a bundle in this process
    tile: wavelength bins of a tile of the normal equations, which ranks and threads share; it changes no bit
    dtype: of the frame's real numbers
    most_ivar: the largest plausible ivar; None: no pixel of the image counts as odd (odd_pixels)
    noise: the read noise, with more than one pass
    """

    psf: PsfModel
    config: ExtractConfig
    plan: Plan
    decay: Decay
    dropped: dict[int, str]
    psferr: float
    ndiag: int
    threads: int = 1
    tile: int = TILE
    dtype: DTypeLike = np.float64
    most_ivar: float | None = None
    noise: ReadNoise | None = None

    def odd_in(self, image: Image, place: slice) -> IntArray:
        """The odd pixels in the columns of a bundle: (n, 2) y and x. Raises InputError for illegal ones."""
        return odd_pixels.find_odd(image, place, self.most_ivar, lambda: self.sharpest)

    def columns(self, image: Image, fibres: tuple[int, int]) -> slice:
        """The columns of the image in which odd pixels are searched for."""
        return odd_pixels.columns(self.psf, range(*fibres), image.shape[1])

    @cached_property
    def sharpest(self) -> float:
        """The concentration of the PSF's sharpest spot; needed only if a pixel may be odd."""
        return odd_pixels.concentration(self.psf)

    @cached_property
    def shape(self) -> Shape:
        """The shape of the PSF's spots; only further passes need it."""
        step = self.config.wavelength[2] / self.config.wave_factor
        return known(self.psf, ("shape", step), lambda: shape_of(self.psf, step))

    @cached_property
    def neighbours(self) -> int:
        """Fibres that a dense patch needs on both sides; only the dense core needs it."""
        return measure_neighbours(self.psf, self.config.wavelength, self.config.tolerance)

    def map(self, function: Callable[[T], None], items: Iterable[T]) -> None:
        """Call `function` for every item, on as many threads as the job has."""
        if self.threads == 1:
            for item in items:
                function(item)
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                list(pool.map(function, items))


@dataclass(frozen=True)
class Place:
    """The place of a bundle's spots.

    spots: their recipe, for all bins that are solved for; cut: the pixels that they touch
    bands: half-bands: the fibres and bins within which they overlap, and the bins within one fibre
    odd: (n, 2) y and x on the CCD of odd pixels, which are masked on the cut-out
    most_ivar: the largest ivar that a pixel of a spot may have had on the cut-out when it was made
    """

    spots: Recipe
    cut: Cut
    bands: tuple[int, int, int]
    odd: IntArray
    most_ivar: float = math.inf


@dataclass(frozen=True)
class Solved:
    """A bundle up to its deconvolved flux; quality: chi2pix and pixmask_fraction of the requested bins.

    The pixels of the cut and the recipe's numbers in `place` lie in an arena. After it has been given back, they are
    undefined. The corners (spots.y0, spots.x0), bands and odd pixels stay valid.
    """

    place: Place
    normal: Normal
    solution: Solution
    quality: tuple[Array, Array]
