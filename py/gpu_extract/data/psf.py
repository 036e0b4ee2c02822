"""The PSF of a camera: Legendre series of all fibres, with the same fields for every family."""
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np

from gpu_extract.arrays import Array, IntArray
from gpu_extract.data.checked import check_shape, pair, real, whole
from gpu_extract.errors import InputError, check_kind

MOST_CORES = 2     # of a PSF
MOST_SIDE = 129    # pixels of a spot's stamp along an axis; larger ones would take hours


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
        object.__setattr__(self, "coeff", real("a series of the PSF", self.coeff).astype(np.float64, copy=False))
        if self.coeff.ndim < 2 or not self.coeff.shape[-1]:
            raise InputError(f"a series of the PSF has shape {self.coeff.shape}, must be (fibres, coefficients)")
        for name in ("wmin", "wmax"):
            number = real(f"{name} of a series of the PSF", getattr(self, name))
            check_shape(name, number, ())
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
    """A Gauss-Hermite component, or a tabulated one.

    sigma_x, sigma_y: pixels, series of (nfibre, ncoef); for a tabulated core the distance of its knots
    gh: series of (degy + 1, degx + 1, nfibre, ncoef): gh[j, i] belongs to He_i(x) He_j(y); of a tabulated core to the
        quintic B-splines around knots i and j, see spots.tables
    nsig: the component is 0 where (dx/sigma_x)^2 + (dy/sigma_y)^2 >= nsig^2; None: it is kept everywhere
    tabulated: whether it is a table, which has no nsig, no second component and no tail
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
            object.__setattr__(self, name, pair(name, getattr(self, name)))
        if max(self.stamp) > MOST_SIDE:
            raise InputError(f"stamp is {self.stamp}, must be at most {MOST_SIDE} pixels along an axis")
        offset = real("offset", self.offset)
        check_shape("offset", offset, (2,))
        if not ((offset >= 0) & (offset <= self.stamp)).all():
            raise InputError(f"offset is {self.offset}, must lie within the stamp of {self.stamp} pixels, (y, x)")
        object.__setattr__(self, "offset", tuple(offset.tolist()))
        self._check_fibres()
        if self.bundle is not None:
            object.__setattr__(self, "bundle", whole("bundle", self.bundle))
        psferr = real("psferr", self.psferr)
        if psferr.ndim or not 0 <= psferr < np.inf:
            raise InputError(f"psferr of the PSF is {self.psferr}, must be a finite number, 0 or more")

    def _check_fibres(self) -> None:
        """Raise InputError if there are more cores than kernels support, or a series does not have all fibres."""
        if not 1 <= len(self.cores) <= MOST_CORES:
            raise InputError(f"the PSF has {len(self.cores) or 'no'} core{'s' * (len(self.cores) > 1)}, must have one "
                             "or two")
        for name, series in _series_of(self):
            check_shape(f"{name} of the PSF", series.coeff, (*(None, None) * name.endswith(" gh"), self.nfibre, None))

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
