"""The data of an extraction: frozen dataclasses, no arithmetic.

Axis order is always spectrum (fibre), wavelength, y, x. Ranges are half open. Pixel centres are integers counted from
0. Shapes are checked on construction, so that functions can trust values of these types.

Types that kernels also use are defined in `arrays.py`, and imported here, so that an edit of this file recompiles no
kernel.
"""
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpu_extract.arrays import LANE, Array, IntArray, SpecMask
from gpu_extract.arrays import read_only as read_only
from gpu_extract.errors import InputError, check_kind
from gpu_extract.libraries import check_version

check_version(np)


class Card(NamedTuple):
    """One header keyword with its value and comment, independent of FITS."""

    key: str
    value: Any
    comment: str = ""


def _check(name: str, array: np.ndarray, shape: tuple[int | None, ...]) -> None:
    fits = array.ndim == len(shape) and all(n is None or n == m for n, m in zip(shape, array.shape, strict=True))
    if not fits:
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise InputError(f"{name} has shape {array.shape}, must be ({wanted})")


def _plain(name: str, array: Any, units: tuple[str, ...] = (), kinds: str = "fiu") -> np.ndarray:
    """A plain array of real numbers, or of these kinds. Masks and units, which would be lost, raise an error.

    units: allowed units, in astropy's spelling
    """
    unit = getattr(array, "unit", None)
    if unit is not None and not any(unit == word for word in ("", *units)):
        raise InputError(f"{name} is in {unit}, must be in {' or '.join(units) or 'no unit'}: convert it, and give "
                         "plain numbers")
    if getattr(array, "mask", None) is not None:
        raise InputError(f"{name} is a masked array, must be a plain one: give its data, and an ivar that is 0 where "
                         "it is masked")
    try:
        array = np.asarray(array)
    except ValueError as error:
        raise InputError(f"{name} is not an array: its rows differ in length") from error
    if array.dtype.kind not in kinds:
        raise InputError(f"{name} is of type {array.dtype}, must be "
                         + ("real numbers, float32 or float64" if "f" in kinds else "whole numbers"))
    return array


def _real(name: str, array: Any, units: tuple[str, ...] = ()) -> np.ndarray:
    """An array for kernels: float32 or float64 in the byte order of the machine, other real numbers as float64.

    FITS files, and astropy's arrays from them, have the other byte order. See `_plain`.
    """
    array = _plain(name, array, units)
    native = array.dtype.newbyteorder("=")
    return array.astype(native if native in (np.float32, np.float64) else np.float64, copy=False)


MOST_CORES = 2     # of a PSF
MOST_SIDE = 129    # pixels of a spot's stamp along an axis; larger ones would take hours
_UNITS = ("electron", "ph"), ("1 / electron2", "1 / ph2")      # of an image, and of its ivar
_A_FIBERMAP = ("a FiberMap: FiberMap(rows) of gpu_extract.data makes one from a structured array, e.g. a Table's "
               "as_array()")


def as_cards(given: Any) -> tuple[Card, ...]:
    """Header cards: those of a FITS header, of a dictionary, or (key, value) and (key, value, comment)."""
    found = getattr(given, "cards", given)
    try:
        return tuple(card if isinstance(card, Card) else Card(*card)
                     for card in (found.items() if hasattr(found, "items") else found))
    except TypeError as error:
        raise InputError(f"cards is {type(given).__name__}, must be (key, value) or (key, value, comment) for each of "
                         "them, or a FITS header") from error


def _whole(name: str, given: Any) -> IntArray:
    """Whole numbers in a row, of whatever type."""
    array = np.asarray(given)
    _check(name, array, (None,))
    if array.dtype.kind in "iu":
        return array
    array = _real(name, array)
    if not (np.isfinite(array).all() and (array == np.rint(array)).all()):
        raise InputError(f"{name} must be whole numbers, one for each fibre")
    return array.astype(np.int64)


def _pair(name: str, given: Any) -> tuple[int, int]:
    """Two whole numbers of pixels above 0, (y, x)."""
    pair = _whole(name, given)
    _check(name, pair, (2,))
    if pair.min() < 1:
        raise InputError(f"{name} is {given}, must be two whole numbers, (y, x), 1 or more")
    return int(pair[0]), int(pair[1])


@dataclass(frozen=True)
class FiberMap:
    """A table with one row per fibre, as a structured array with any columns.

    rows: (nfibre,) structured array, native byte order
    units: column name -> unit string
    cards: header cards of the table
    comments: column name -> description
    """

    rows: np.ndarray
    units: Mapping[str, str] = field(default_factory=dict)
    cards: tuple[Card, ...] = ()
    comments: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.rows, np.ndarray) or self.rows.dtype.names is None or self.rows.ndim != 1:
            raise InputError(f"rows of the fibermap are {type(self.rows).__name__}, must be a structured array with a "
                             "row for each fibre, e.g. a Table's as_array()")


@dataclass(frozen=True)
class Image:
    """A CCD image in electrons with its inverse variance.

    pix:  (ny, nx) float32 or float64, electron; values where ivar is 0 are never used
    ivar: (ny, nx) float32 or float64, 1/electron^2; 0 marks a masked pixel
        (both may be given in any byte order, or as other real numbers: they are converted)
    cards: header of the image, carried over to the frame
    fibermap: optional, one row per fibre
    read_noise: electron, the smallest of any amplifier, if known: no ivar is much larger than its square's
        inverse
    noise: (ny, nx) electron, the read noise of every pixel, if known, for further passes
    ivar_unit: the unit of ivar in the file; any other than 1/electron2 brings a warning
    """

    pix: np.ndarray
    ivar: np.ndarray
    cards: tuple[Card, ...] = ()
    fibermap: FiberMap | None = None
    read_noise: float | None = None
    noise: np.ndarray | None = None
    ivar_unit: str = ""

    def __post_init__(self) -> None:
        check_kind("ivar_unit", self.ivar_unit, str, "a word")
        for name in ("pix", "ivar") if self.noise is None else ("pix", "ivar", "noise"):
            object.__setattr__(self, name, _real(name, getattr(self, name), _UNITS[name == "ivar"]))
            _check(name, getattr(self, name), (None, None) if name == "pix" else self.pix.shape)
        if self.read_noise is not None:
            number = _real("read_noise", self.read_noise, _UNITS[0])
            _check("read_noise", number, ())
            if not 0 <= number < np.inf:
                raise InputError(f"read_noise is {number}, must be a finite number of electrons, 0 or more")
            object.__setattr__(self, "read_noise", float(number))
        check_kind("fibermap", self.fibermap, FiberMap | None, _A_FIBERMAP)
        object.__setattr__(self, "cards", as_cards(self.cards))

    @property
    def shape(self) -> tuple[int, int]:
        """(ny, nx)"""
        return self.pix.shape[0], self.pix.shape[1]

    def get(self, key: str, default: Any = None) -> Any:
        """Value of header keyword `key`, or `default`."""
        return next((c.value for c in self.cards if c.key == key), default)


@dataclass(frozen=True)
class Legendre:
    """Legendre series in wavelength, one for every fibre.

    coeff: (..., nfibre, ncoef), kept as float64; the argument is 2 (w - wmin)/(wmax - wmin) - 1
    wmin, wmax: Angstrom
    """

    coeff: Array
    wmin: float
    wmax: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "coeff", _real("a series of the PSF", self.coeff).astype(np.float64, copy=False))
        if self.coeff.ndim < 2 or not self.coeff.shape[-1]:
            raise InputError(f"a series of the PSF has shape {self.coeff.shape}, must be (fibres, coefficients)")
        for name in ("wmin", "wmax"):
            number = _real(f"{name} of a series of the PSF", getattr(self, name))
            _check(name, number, ())
            object.__setattr__(self, name, float(number))
        if not -np.inf < self.wmin < self.wmax < np.inf:
            raise InputError(f"a series of the PSF has wmin {self.wmin} and wmax {self.wmax}, must be two ascending "
                             "wavelengths")

    def same(self, value: float) -> "Legendre":
        """A series for the same number of fibres with this value at all wavelengths."""
        return replace(self, coeff=np.full((self.coeff.shape[-2], 1), value))

    def plus(self, more: Array | float) -> "Legendre":
        """The series with a number, or with coefficients (nfibre, any), added to it."""
        added, n = np.atleast_2d(more), self.coeff.shape[-1]
        coeff = np.zeros((*self.coeff.shape[:-1], max(added.shape[-1], n)))
        coeff[..., :n] = self.coeff
        coeff[..., :added.shape[-1]] += added
        return replace(self, coeff=coeff)


def with_series(part: Any, change: Callable[[Legendre], Legendre]) -> Any:
    """A PSF of any family, or a part of one, with each series replaced by change(series)."""
    if isinstance(part, Legendre):
        return change(part)
    if isinstance(part, tuple):
        return tuple(with_series(each, change) for each in part)
    if not is_dataclass(part) or isinstance(part, type):
        return part
    return replace(part, **{each.name: with_series(getattr(part, each.name), change) for each in fields(part)})


def _series_of(part: Any, name: str = "") -> Iterator[tuple[str, Legendre]]:
    """All series of a PSF, or of a part of one, in the order of the fields, each with its name."""
    if isinstance(part, Legendre):
        yield name, part
    elif isinstance(part, tuple):
        for each in part:
            yield from _series_of(each, "core")
    elif is_dataclass(part):
        for field_of in fields(part):
            yield from _series_of(getattr(part, field_of.name), f"{name} {field_of.name}".lstrip())


@dataclass(frozen=True)
class Core:
    """A Gauss-Hermite core, or a tabulated one.

    sigma_x, sigma_y: pixels, series of (nfibre, ncoef); for a tabulated core the distance of its knots
    gh: series of (degy + 1, degx + 1, nfibre, ncoef): gh[j, i] belongs to He_i(x) He_j(y); of a tabulated core to the
        quintic B-splines around knots i and j, see spots.tables
    nsig: the core is 0 where (dx/sigma_x)^2 + (dy/sigma_y)^2 >= nsig^2; None: everywhere kept
    tabulated: whether it is a table, which has no nsig, no second core and no tail
    """

    sigma_x: Legendre
    sigma_y: Legendre
    gh: Legendre
    nsig: Legendre | None = None
    tabulated: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Tail:
    """amp r2 / (core^2 + r2)^(1 + index/2), r2 = (dx xscale)^2 + (dy yscale)^2, at pixel centres."""

    amp: Legendre
    core: Legendre
    xscale: Legendre
    yscale: Legendre
    index: Legendre


@dataclass(frozen=True)
class PsfModel:
    """A PSF of the GAUSS-HERMITE family, or a tabulated one, for all fibres of a camera.

    x, y: traces (nfibre, ncoef), pixel of the spot's centre against wavelength
    cores: one (GAUSS-HERMITE, TABULATED) or two (GAUSS-HERMITE2)
    tail: None if there is none (TAILAMP 0 everywhere)
    stamp: (ny, nx) of a spot; offset: (y, x), a spot's first pixel is floor(centre - offset)
    shape: (ny, nx) of the CCD
    bundle: (nfibre,) bundle number of each fibre from the file, or None
    psferr: fractional error of the PSF model
    name: its origin, for messages
    identity: identifying cards of its header, card -> word (sense.IDENTITY); missing ones are not compared
    own: the fibres' own wavelengths, for example of the orders of an echelle: Angstrom, (nfibre, ncoef),
        against the common coordinate of all other series; None: that is the wavelength of every fibre
    """

    x: Legendre
    y: Legendre
    cores: tuple[Core, ...]
    tail: Tail | None
    stamp: tuple[int, int]
    offset: tuple[float, float]
    shape: tuple[int, int]
    bundle: IntArray | None = None
    psferr: float = 0.01
    name: str = "PSF"
    identity: Mapping[str, str] = field(default_factory=dict)
    own: Legendre | None = None

    def __post_init__(self) -> None:
        for name, kind, wanted in (
                ("x", Legendre, "a Legendre"), ("y", Legendre, "a Legendre"), ("own", Legendre | None, "a Legendre"),
                ("tail", Tail | None, "a Tail"), ("name", str, "a word"), ("identity", Mapping, "a dictionary")):
            check_kind(f"{name} of the PSF", getattr(self, name), kind, wanted)
        if not isinstance(self.cores, list | tuple) or not all(isinstance(core, Core) for core in self.cores):
            raise InputError("cores of the PSF must be a tuple of one Core or two")
        object.__setattr__(self, "cores", tuple(self.cores))
        for name in ("stamp", "shape"):
            object.__setattr__(self, name, _pair(name, getattr(self, name)))
        if max(self.stamp) > MOST_SIDE:
            raise InputError(f"stamp is {self.stamp}, must be at most {MOST_SIDE} pixels along an axis")
        offset = _real("offset", self.offset)
        _check("offset", offset, (2,))
        if not ((offset >= 0) & (offset <= self.stamp)).all():
            raise InputError(f"offset is {self.offset}, must lie within the stamp of {self.stamp} pixels, (y, x)")
        object.__setattr__(self, "offset", tuple(offset.tolist()))
        self._check_fibres()
        if self.bundle is not None:
            object.__setattr__(self, "bundle", _whole("bundle", self.bundle))
        psferr = _real("psferr", self.psferr)
        if psferr.ndim or not 0 <= psferr < np.inf:
            raise InputError(f"psferr of the PSF is {self.psferr}, must be a finite number, 0 or more")

    def _check_fibres(self) -> None:
        """Raise InputError if there are more cores than kernels support, or a series does not have all fibres."""
        if not 1 <= len(self.cores) <= MOST_CORES:
            raise InputError(f"the PSF has {len(self.cores) or 'no'} core{'s' * (len(self.cores) > 1)}, must have one "
                             "or two")
        for name, series in _series_of(self):
            _check(f"{name} of the PSF", series.coeff, (*(None, None) * name.endswith(" gh"), self.nfibre, None))

    @property
    def nfibre(self) -> int:
        """Number of fibres."""
        return self.x.coeff.shape[0]

    def series(self) -> list[Legendre]:
        """All of its series, in the order of the fields."""
        return [series for _, series in _series_of(self)]

    @property
    def tabulated(self) -> bool:
        """Whether its spots come from tables."""
        return any(core.tabulated for core in self.cores)

    @property
    def wavelength_range(self) -> tuple[float, float]:
        """(lowest, highest) wavelength in Angstrom at which every series is defined."""
        series = [self.x, self.y, *(c.sigma_x for c in self.cores)]
        return max(s.wmin for s in series), min(s.wmax for s in series)


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
        _check("x0", self.x0, self.stamps.shape[:2])
        _check("y0", self.y0, self.stamps.shape[:2])


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
        _check("order", self.order, (nfibre * nblock,))
        _check("corners", self.corners, (4, nfibre, nblock))
        _check("offsets", self.offsets, (nfibre, 2, nblock * LANE))


@dataclass(frozen=True)
class Strengths:
    """The strength of the couplings between a bundle's bins, measured on its icov.

    roots: (nfibre, hw + nwave + hw), 1 / sqrt of the diagonal, 0 where that is 0 and at both ends
    correlations: (ndf, nfibre, nwave), [d - 1, i] the largest |A_ij| / sqrt(A_ii A_jj) of every bin of fibre i with
        those of fibre j = i + d; anything where there is none
    factor: of the fibres' own blocks, see solve.simd_factor, if known already
    """

    roots: Array
    correlations: Array
    factor: Array | None = None

    def __post_init__(self) -> None:
        _check("correlations", self.correlations, (None, self.roots.shape[0], None))


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
            _check(name, getattr(self, name), (nfibre, nwave))

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
            _check(name, getattr(self, name), (shape[0], None, shape[1]) if name == "resolution" else shape)


@dataclass(frozen=True)
class Light:
    """The light of one instrument bundle after a pass, for the next pass.

    bright: (nfibre, nwave) photons per bin that its tails are made of (passes.variance.trusted); of size 0 without a
        tail
    model: (rows, columns) float32, its light on the pixels that the bundle's spots touch; corner: CCD pixel of [0, 0]
    expected: the same for x smoothed except at lines (passes.variance.smooth), for the variance
    tails: (rows, columns) float32, light of its spots beyond their stamps, as far as it reaches; of size 0 without a
        tail; tail_corner: CCD pixel of [0, 0]
    rejected: (n, 2) int64, y and x on the CCD of pixels that stood out from the model
    ran_away: whether the solution was not finite; the light is then 0 everywhere
    background: (n,) coefficients of a smooth background, contained only in `expected` (passes.background); empty
    without
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
        for name, array in (("wave", _real("wave", self.wave)), ("fibres", _whole("fibres", self.fibres))):
            _check(name, array, (None,))
            object.__setattr__(self, name, array)
        shape = (len(self.fibres), len(self.wave))
        self._check_rest()
        for name in (*OUTPUTS, "own_wave"):
            array = getattr(self, name)
            if array is not None or not hasattr(Frame, name):       # None is the default of optional arrays
                array = _plain(name, array, kinds="iu" if name in ("mask", "status") else "fiu")
                object.__setattr__(self, name, array)
                _check(name, array, (shape[0], None, shape[1]) if name == "resolution" else shape)
        if self.resolution.shape[1] % 2 == 0:
            raise InputError(f"resolution has {self.resolution.shape[1]} diagonals, must be an odd number: as many "
                             "above the main one as below")

    def _check_rest(self) -> None:
        """Raise InputError if the model, header, fibermap or notes have another type."""
        check_kind("fibermap of the frame", self.fibermap, FiberMap | None, _A_FIBERMAP)
        check_kind("notes of the frame", self.notes, Mapping, "a dictionary")
        check_kind("unit of the frame", self.unit, str, "a word, e.g. electron/Angstrom")
        object.__setattr__(self, "cards", as_cards(self.cards))
        if self.model is not None:
            object.__setattr__(self, "model", _plain("model", self.model))
            _check("model", self.model, (None, None))

    @property
    def ndiag(self) -> int:
        """Number of diagonals on each side of the resolution matrix's main one."""
        return self.resolution.shape[1] // 2
