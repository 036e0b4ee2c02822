"""The results of a pass over an image for the next one."""
from dataclasses import dataclass, field

import numpy as np

from gpu_extract.arrays import Array, IntArray


@dataclass(frozen=True)
class Light:
    """The light of one instrument bundle after a pass, for the next pass.

    bright: (nfibre, nwave) photons per bin of which its tails are made (passes.variance.trusted); of size 0 without a
        tail
    model: (rows, columns) float32, its light on the pixels that the bundle's spots touch; corner: CCD pixel of [0, 0]
    expected: the same for x smoothed except at lines (passes.variance.smooth), for the variance
    tails: (rows, columns) float32, light of its spots beyond their stamps, as far as it reaches; of size 0 without a
        tail; tail_corner: CCD pixel of [0, 0]
    rejected: (n, 2) int64, y and x on the CCD of pixels that stood out from the model
    ran_away: whether the solution was not finite, or too large for single precision; the light is then 0 everywhere
    background: (n,) coefficients of a smooth background, contained only in `expected` (passes.background); empty if
        there is none
    """

    bright: Array
    model: np.ndarray
    expected: np.ndarray
    corner: tuple[int, int]
    tails: np.ndarray
    tail_corner: tuple[int, int]
    rejected: IntArray
    ran_away: int = 0
    background: Array = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class Draft:
    """The result of some passes over an image: a model to start another extraction from.

    lights: of each instrument bundle that was solved for; bundles: their fibres lo .. hi - 1, as the PSF counts those
        that can be extracted
    shape: (ny, nx) of the image; wave: (nwave,) Angstrom, all bins that were solved for; pad: requested bins beyond
        each end, some of which may not lie on the CCD
    """

    lights: tuple[Light, ...]
    bundles: tuple[tuple[int, int], ...]
    shape: tuple[int, int]
    wave: Array
    pad: int
