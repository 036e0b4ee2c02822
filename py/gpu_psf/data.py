"""The data of a fit, frozen: pixels of a bundle, spots of lines, parameters."""
from dataclasses import dataclass, field

import numpy as np

from gpu_extract.data import Array, IntArray, PsfModel
from gpu_extract.errors import Ranges, not_allowed, out_of_range, refuse
from gpu_extract.io.psf_tables import POSITIONS

SPOTS = "gauss-hermite", "tables"
CONTINUUM = "between", "under", "none"
TAIL = 1.0, 1.0, 1.0, 2.0           # default tail: core (pixels), scales in x and y, index
_TAIL_NAMES = "core", "scale in x", "scale in y", "index"
_RANGES: Ranges = {name: (low, high, f"be {low} to {high}") for name, low, high in (
    ("degree_gh", 0, 10), ("degree_wave", 0, 8), ("degree_across", 0, 4), ("degree_trace", 1, 12),
    ("saturation", 1, 1e12), ("specmin", 0, 10**6), ("nspec", 1, 10**6), ("positions", *POSITIONS))}
_TAIL_LIMITS = (0.1, 100), (0.01, 100), (0.01, 100), (0, 10)


@dataclass(frozen=True)
class FitConfig:
    """What to fit.

    degree_gh: of the Gauss-Hermite terms in x and y; degree_wave, degree_across: of their polynomials in wavelength
        and across the fibres of a bundle; degree_trace: of the traces in wavelength, None: as in the starting PSF
    reach: how far the starting traces may be off, pixels (x, y)
    saturation: electrons; spots with a brighter pixel are left out
    specmin, nspec: fibres to fit, in whole bundles; nspec None: all
    spots: "gauss-hermite", or "tables" made from their residuals; positions: of tables, per pixel along each axis
    tail: None: the starting PSF's tail is kept; otherwise its amplitude is fitted. (core, scale in x, scale in y,
        index) is its shape; an empty tuple: that of the starting PSF, TAIL where it has none
    continuum: light under the spots that is not of lines, "between" them: fitted to the pixels away from lines; "under"
        them: then to all pixels, together with the fluxes; or "none"
    """

    degree_gh: int = 6
    degree_wave: int = 3
    degree_across: int = 1
    degree_trace: int | None = None
    reach: tuple[int, int] = (4, 10)
    saturation: float = 6e4
    specmin: int = 0
    nspec: int | None = None
    spots: str = SPOTS[0]
    positions: int = 3
    tail: tuple[float, ...] | None = None
    continuum: str = CONTINUUM[0]

    def __post_init__(self) -> None:
        problems = [*out_of_range(self, _RANGES)]
        problems += [f"reach in {axis} is {value}, must be 0 to {most}" for axis, value, most in
                     zip("xy", self.reach, (100, 1000), strict=True) if not 0 <= value <= most]
        problems += not_allowed(self, {"spots": SPOTS, "continuum": CONTINUUM})
        if self.tail:
            problems += [f"{name} of the tail is {value:g}, must be {low:g} to {high:g}" for name, value, (low, high) in
                         zip(_TAIL_NAMES, self.tail, _TAIL_LIMITS, strict=True) if not low <= value <= high]
        refuse(problems)


@dataclass(frozen=True)
class Lines:
    """Lines of a lamp, ascending.

    wave: (nline,) Angstrom, in the unit (air or vacuum) that the PSF's traces shall have
    strength: (nline,) expected electrons, on any scale
    fibre, listed: where fibres have wavelengths of their own, `wave` is their common coordinate, and these are (nline,)
        the one fibre that a line is on, and its number in the list that was given
    """

    wave: Array
    strength: Array
    fibre: IntArray | None = None
    listed: IntArray | None = None

    def __post_init__(self) -> None:
        if self.wave.shape != self.strength.shape or self.wave.ndim != 1:
            raise ValueError("wavelengths and strengths of lines must be equal in number")
        if any(part is not None and part.shape != self.wave.shape for part in (self.fibre, self.listed)):
            raise ValueError("fibres and numbers of lines must be equal in number to the wavelengths")

    def on(self, chosen: IntArray, fibre: IntArray) -> np.ndarray:
        """Whether the lines `chosen` fall on fibres of the camera, element by element (any shape)."""
        return np.ones(chosen.shape, bool) if self.fibre is None else np.asarray(self.fibre[chosen] == fibre)


@dataclass(frozen=True)
class Pixels:
    """The pixels of a bundle in all exposures, with a rim around so that every stamp lies inside.

    value: (nexposure, ny, nx) electron; read_variance: the same shape, electron^2, infinite where masked
    x0: column of value[..., 0] on the CCD; y0: row of stored[0] on the CCD
    stored: for each row of the CCD from y0 on, where it stands in `value`; rows away from all spots share a masked one
    """

    value: Array
    read_variance: Array
    x0: int
    y0: int
    stored: IntArray

    def rows(self, needed: np.ndarray) -> "Pixels":
        """The same with some of the rows (needed: a bool for each), and one masked row in place of all others."""
        kept = self.stored[needed]
        value = np.concatenate([self.value[:, kept], np.zeros_like(self.value[:, :1])], axis=1)
        variance = np.concatenate([self.read_variance[:, kept], np.full_like(self.value[:, :1], np.inf)], axis=1)
        stored = np.full(len(needed), len(kept))
        stored[needed] = np.arange(len(kept))
        return Pixels(value, variance, self.x0, self.y0, stored)


@dataclass(frozen=True)
class Spots:
    """The spots to fit: one for each exposure, line and fibre that shows the line.

    exposure, line, fibre: (n,) numbers, fibre counted in the bundle; wave: (n,) Angstrom
    trace: (n, ntrace) Legendre polynomials of the traces; shape: (n, nshape) those of the shapes, wavelength times
        place across the bundle
    """

    exposure: IntArray
    line: IntArray
    fibre: IntArray
    wave: Array
    trace: Array
    shape: Array

    def __len__(self) -> int:
        return len(self.wave)

    def cut(self, chosen: np.ndarray) -> "Spots":
        """A subset of the spots."""
        return Spots(*(part[chosen] for part in vars(self).values()))


@dataclass(frozen=True)
class Frame:
    """What the parameters of a bundle mean.

    first, nfibre: the bundle's fibres; x_range, range: wavelengths of the Legendre series of traces and shapes
    degree: of the Gauss-Hermite terms; wave, across: of the shapes' polynomials; trace: of the traces
    stamp, offset: see gpu_extract.data.PsfModel; start: the PSF that the fit starts from, with the tail that is kept,
        or whose shape is
    tail: whether the tail's amplitude is fitted
    """

    first: int
    nfibre: int
    x_range: tuple[float, float]
    range: tuple[float, float]
    degree: int
    wave: int
    across: int
    trace: int
    start: PsfModel
    tail: bool = False

    @property
    def orders(self) -> tuple[tuple[int, int], ...]:
        """Polynomials of a shape, (order across, order in wavelength): each order across has two wavelength orders
        fewer than the one before. In the PSF of a DESI camera the others add only noise."""
        return tuple((a, k) for a in range(self.across + 1) for k in range(max(self.wave + 1 - 2 * a, 1)))

    @property
    def nshape(self) -> int:
        """Polynomials of a shape."""
        return len(self.orders)

    @property
    def nterm(self) -> int:
        """Parameters of a shape: two widths, and all Gauss-Hermite terms but GH-0-0."""
        return 1 + (self.degree + 1) ** 2

    @property
    def ntrace(self) -> int:
        """Coefficients of all traces."""
        return 2 * self.nfibre * (self.trace + 1)


@dataclass(frozen=True)
class Parameters:
    """Traces and shapes of a bundle, and amounts of light that is spread over many pixels.

    x, y: (nfibre, ntrace) Legendre coefficients, pixels
    shape: (nterm, nshape) coefficients of sigma x, sigma y (pixels), then GH-i-j without GH-0-0, j slowly
    ground: where they are fitted: (nshape,) coefficients of the tail's amplitude, then what continuum and stray light
        have more than the background of the task, see background.columns_of; as many as are free, or
        more, which stay as they are
    """

    x: Array
    y: Array
    shape: Array
    ground: Array = field(default_factory=lambda: np.zeros(0))

    def vector(self) -> Array:
        """All of them in a row."""
        return np.concatenate([self.x.ravel(), self.y.ravel(), self.shape.ravel(), self.ground])

    def moved(self, step: Array) -> "Parameters":
        """The parameters after a step, which may be as long as the vector or as its first part."""
        n, vector = self.x.size, self.vector()
        vector[:len(step)] += step
        end = 2 * n + self.shape.size
        return Parameters(vector[:n].reshape(self.x.shape), vector[n:2 * n].reshape(self.y.shape),
                          vector[2 * n:end].reshape(self.shape.shape), vector[end:])
