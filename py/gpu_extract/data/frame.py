"""The output: rows of fibres, and the frame that they make."""
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_extract.arrays import Array, IntArray, SpecMask
from gpu_extract.data.checked import check_shape, plain, real, whole
from gpu_extract.data.image import A_FIBERMAP, Card, FiberMap, as_cards
from gpu_extract.data.stages import Status
from gpu_extract.errors import InputError, check_kind


@dataclass(frozen=True)
class Output:
    """An array of the output: a number for each bin of each fibre, or the columns of the resolution matrix.

    hdu: its name in files; kind: its type in memory, None for that of all real numbers; stored: its type in files
    dropped: the value for a dropped fibre; unit: BUNIT in files
    """

    hdu: str
    kind: Any = None
    stored: Any = np.float32
    dropped: float = 0.0
    unit: str = ""


# field of Rows and Frame -> its description: assembling, sending and writing use this table
OUTPUTS = {
    "flux": Output("FLUX", unit="electron/Angstrom"),
    "ivar": Output("IVAR", unit="Angstrom2/electron2"),
    "mask": Output("MASK", np.uint32, np.uint32,
                   SpecMask.SOMEBADPIX | SpecMask.ALLBADPIX | SpecMask.NODATA | SpecMask.BADFIBER),
    "resolution": Output("RESOLUTION"),
    "chi2pix": Output("CHI2PIX"),
    "pixmask_fraction": Output("PIXMASK_FRACTION", dropped=1.0),
    "status": Output("STATUS", np.int8, np.uint8, Status.DROPPED),
}


@dataclass(frozen=True)
class Rows:
    """The results of consecutive fibres: all of OUTPUTS.

    For a bundle in float64 and photons per bin; for a frame only the requested fibres, in photons per Angstrom.

    fibres: (lo, hi)
    flux, ivar, chi2pix, pixmask_fraction: (nfibre, nwave); resolution: (nfibre, 2 ndiag + 1, nwave)
    mask: (nfibre, nwave) uint32; status: (nfibre, nwave) int8 of Status
    models: of each bundle, in order: its A x (rows, columns), and its first pixel (y, x) on the CCD; () if none is
        wanted
    notes: first fibre of each bundle -> facts about how it was made (half-bands, iterations, residual)
    rejected: (n, 2) y and x on the CCD of pixels that stood out from the model
    """

    fibres: tuple[int, int]
    flux: np.ndarray
    ivar: np.ndarray
    resolution: np.ndarray
    chi2pix: np.ndarray
    pixmask_fraction: np.ndarray
    mask: NDArray[np.uint32]
    status: NDArray[np.int8]
    models: tuple[tuple[Array, tuple[int, int]], ...] = ()
    notes: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    rejected: IntArray = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))

    def __post_init__(self) -> None:
        shape = self.fibres[1] - self.fibres[0], self.flux.shape[-1]
        for name in OUTPUTS:
            check_shape(name, getattr(self, name), (shape[0], None, shape[1]) if name == "resolution" else shape)


@dataclass(frozen=True)
class Frame:
    """Extracted spectra.

    wave: (nwave,) Angstrom
    flux: (nspec, nwave) electron/Angstrom; ivar: its inverse variance
    mask: (nspec, nwave) uint32, SpecMask bits
    resolution: (nspec, 2 ndiag + 1, nwave), rows of a dia_matrix with offsets ndiag .. -ndiag
    chi2pix, pixmask_fraction: (nspec, nwave)
    fibres: (nspec,) fibre numbers
    status: (nspec, nwave) int8 of Status
    model: (ny, nx) image in electron, or None
    cards: header; fibermap: cut to these fibres; notes: facts about how it was made
    own_wave: (nspec, nwave) Angstrom, the fibres' own wavelengths, if they have any: flux and ivar are per Angstrom of
        these, and `wave` is the common coordinate (PsfModel.own)
    unit: of flux, from a file; "": electron/Angstrom
    """

    wave: Array
    flux: np.ndarray
    ivar: np.ndarray
    mask: NDArray[np.uint32]
    resolution: np.ndarray
    chi2pix: np.ndarray
    fibres: IntArray
    pixmask_fraction: np.ndarray | None = None
    status: NDArray[np.int8] | None = None
    model: np.ndarray | None = None
    cards: tuple[Card, ...] = ()
    fibermap: FiberMap | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    own_wave: Array | None = None
    unit: str = ""

    def __post_init__(self) -> None:
        for name, array in (("wave", real("wave", self.wave)), ("fibres", whole("fibres", self.fibres))):
            check_shape(name, array, (None,))
            object.__setattr__(self, name, array)
        shape = (len(self.fibres), len(self.wave))
        self._check_rest()
        for name in (*OUTPUTS, "own_wave"):
            array = getattr(self, name)
            if array is not None or not hasattr(Frame, name):       # None is the default of optional arrays
                array = plain(name, array, kinds="iu" if name in ("mask", "status") else "fiu")
                object.__setattr__(self, name, array)
                check_shape(name, array, (shape[0], None, shape[1]) if name == "resolution" else shape)
        if self.resolution.shape[1] % 2 == 0:
            raise InputError(f"resolution has {self.resolution.shape[1]} diagonals, must be an odd number: as many "
                             "above the main one as below")

    def _check_rest(self) -> None:
        """Raise InputError if the model, header, fibermap or notes have another type."""
        check_kind("fibermap of the frame", self.fibermap, FiberMap | None, A_FIBERMAP)
        check_kind("notes of the frame", self.notes, Mapping, "a dictionary")
        check_kind("unit of the frame", self.unit, str, "a word, e.g. electron/Angstrom")
        object.__setattr__(self, "cards", as_cards(self.cards))
        if self.model is not None:
            object.__setattr__(self, "model", plain("model", self.model))
            check_shape("model", self.model, (None, None))

    @property
    def ndiag(self) -> int:
        """Number of diagonals on each side of the resolution matrix's main one."""
        return self.resolution.shape[1] // 2
