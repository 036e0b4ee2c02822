"""The results of a bundle's stages: spots, normal equations, spectra."""
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_extract.arrays import LANE, Array, IntArray
from gpu_extract.data.checked import check_shape


@dataclass(frozen=True)
class Spots:
    """The spots of the bins of some fibres: A, column by column.

    stamps: (nfibre, nwave, ny, nx), sum over (y, x) is 1
    x0, y0: (nfibre, nwave) int64, pixel of stamps[..., 0, 0] on the CCD (both may lie off the CCD)
    """

    stamps: np.ndarray
    x0: IntArray
    y0: IntArray

    def __post_init__(self) -> None:
        check_shape("x0", self.x0, self.stamps.shape[:2])
        check_shape("y0", self.y0, self.stamps.shape[:2])


@dataclass(frozen=True)
class Recipe:
    """Everything that the kernels need to make the spots of some fibres at some wavelengths.

    x0, y0: (nfibre, n) first pixel of the stamps on the CCD, n the number of wavelengths rounded up to whole blocks of
        LANE (the last is repeated); ingredients: spots.simd_spots.Ingredients
    """

    x0: IntArray
    y0: IntArray
    ingredients: Any


@dataclass(frozen=True)
class Blocks:
    """Spots in blocks of LANE successive bins of a fibre on one frame of pixels, for the CPU's kernels.

    stamps: (rows, columns, LANE), one block after the other in `order`, each with the rows of its frame; columns
        even, as many as the widest frame needs; 0 beside a bin's own stamp
    begins: (nfibre, nblock) int64, a block's first row in `stamps`
    order: (nfibre nblock,) int64, the blocks' numbers in order of their frames' first rows on the cut-out
    scale: (nfibre, nblock, LANE) float64, the factor that makes the sum of a stamp 1; 0 for bins that do
        not exist
    corners: (4, nfibre, nblock) int64: the frames' first row and column on a cut-out of the image, their height and
        width (rows and columns or less)
    offsets: (nfibre, 2, nblock LANE) float64: first pixel (y, x) of each bin's own stamp in its frame
    """

    stamps: np.ndarray
    begins: IntArray
    order: IntArray
    scale: Array
    corners: IntArray
    offsets: Array

    def __post_init__(self) -> None:
        nfibre, nblock = self.begins.shape
        check_shape("order", self.order, (nfibre * nblock,))
        check_shape("corners", self.corners, (4, nfibre, nblock))
        check_shape("offsets", self.offsets, (nfibre, 2, nblock * LANE))


@dataclass(frozen=True)
class Strengths:
    """The strength of the couplings between a bundle's bins, measured on its icov.

    roots: (nfibre, hw + nwave + hw), 1 / sqrt of the diagonal, 0 where that is 0 and at both ends
    correlations: (ndf, nfibre, nwave), [d - 1, i] the largest |A_ij| / sqrt(A_ii A_jj) of every bin of fibre i with
        those of fibre j = i + d; undefined if there is none
    factor: of the fibres' own blocks, see solve.simd_factor, if known already
    """

    roots: Array
    correlations: Array
    factor: Array | None = None

    def __post_init__(self) -> None:
        check_shape("correlations", self.correlations, (None, self.roots.shape[0], None))


@dataclass(frozen=True)
class Normal:
    """The normal equations of one bundle, in banded form (B&S eq. 4).

    icov:   (nfibre, ndf + 1, nwave, 2 hw + 1), 1/photon^2: icov[i, d, j, hw + k] couples bin
            (i, j) with bin (i + d, j + k); 0 where that bin does not exist. The matrix is
            symmetric: couplings to fibre i - d are read from that fibre's row.
            Bins of weight 0 hold zeros (also on the diagonal).
    rhs:    (nfibre, nwave), A^T W p
    weight: (nfibre, nwave), A^T W 1; 0 for bins that are given up
    given_up: (nfibre, nwave) bool, bins whose weight was not 0 before, see normal.give_up
    own: half-band of the fibres' own blocks icov[:, 0], if known to be narrower than that of their couplings
    strengths: of icov, if known already
    lifted: (nfibre, nwave) bool, bins in whose directions icov is lost to rounding, see solve.Solution
    may_be_faint: whether there may be bins that normal.faint finds
    """

    icov: Array
    rhs: Array
    weight: Array
    given_up: NDArray[np.bool_]
    own: int | None = None
    strengths: Strengths | None = None
    lifted: NDArray[np.bool_] | None = None
    may_be_faint: bool = True

    def __post_init__(self) -> None:
        nfibre, _, nwave, _ = self.icov.shape
        for name in ("rhs", "weight", "given_up"):
            check_shape(name, getattr(self, name), (nfibre, nwave))

    @property
    def halfband(self) -> int:
        """Half-band in wavelength bins."""
        return self.icov.shape[3] // 2

    @property
    def own_halfband(self) -> int:
        """Half-band of the fibres' own blocks."""
        return self.halfband if self.own is None else self.own


class Status(IntEnum):
    """The outcome for a bin of solution and decorrelation; the values are those in files."""

    GOOD = 0, "Extracted by the requested core."
    EMPTY = 1, "No good pixel carries information on the bin: nothing was extracted."
    WIDE_BAND = 2, "The narrow band did not suffice: neighbours were eliminated in a wide band."
    DENSE = 3, "The banded form did not hold: decorrelated by the dense core."
    PIXELS = 4, "The normal equations are (nearly) singular there: decorrelated from pixels."
    FAILED = 5, "No core could decorrelate the fibre: nothing was extracted."
    DROPPED = 6, "The fibre was dropped because of its PSF: nothing was extracted."
    sentence: str

    def __new__(cls, value: int, sentence: str = "") -> "Status":
        status = int.__new__(cls, value)
        status._value_, status.sentence = value, sentence
        return status


NOTHING = (Status.EMPTY, Status.FAILED, Status.DROPPED)      # of bins without a flux

FACTS = ("cond", "selfcheck")     # columns of Decorrelated.facts
NOT_MEASURED = -1.0               # instead of an unknown fact, as files hold no NaN


@dataclass(frozen=True)
class Decorrelated:
    """The result of a core for a bundle's normal equations (B&S eq. 10-19), photons per bin.

    flux, ivar:  (nfibre, nwave)
    resolution:  (nfibre, 2 ndiag + 1, nwave): resolution[i, k, j] = R_i[j - ndiag + k, j]
    status:      (nfibre, nwave) int8 of Status, the worst that touched the bin
    weak:        (nfibre, nwave) bool, bins that good pixels do not distinguish from others
    facts:       (nfibre, 2) of the banded core, NOT_MEASURED elsewhere: a bound on the condition number of S_i, and
                 the disagreement of the squares of Q_i with those of S_i; without rows if not requested
    """

    flux: Array
    ivar: Array
    resolution: Array
    status: NDArray[np.int8]
    weak: NDArray[np.bool_]
    facts: Array = field(default_factory=lambda: np.empty((0, len(FACTS))))
