"""The input beside the PSF: an image, its header and its fibermap."""
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from gpu_extract.data.checked import check_shape, real
from gpu_extract.errors import InputError, check_kind

_UNITS = ("electron", "ph"), ("1 / electron2", "1 / ph2")      # of an image, and of its ivar
A_FIBERMAP = ("a FiberMap: FiberMap(rows) of gpu_extract.data makes one from a structured array, e.g. a Table's "
              "as_array()")


class Card(NamedTuple):
    """One header keyword with its value and comment, independent of FITS."""

    key: str
    value: Any
    comment: str = ""


def as_cards(given: Any) -> tuple[Card, ...]:
    """Header cards: those of a FITS header, of a dictionary, or (key, value) and (key, value, comment)."""
    found = getattr(given, "cards", given)
    try:
        return tuple(card if isinstance(card, Card) else Card(*card)
                     for card in (found.items() if hasattr(found, "items") else found))
    except TypeError as error:
        raise InputError(f"cards is {type(given).__name__}, must be (key, value) or (key, value, comment) for each of "
                         "them, or a FITS header") from error


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
    read_noise: electron, that of the quietest amplifier, if known: no ivar is much larger than 1 / read_noise^2
    noise: (ny, nx) electron, the read noise of every pixel, if known, for further passes
    ivar_unit: the unit of ivar in the file; any other than 1/electron2 causes a warning
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
            object.__setattr__(self, name, real(name, getattr(self, name), _UNITS[name == "ivar"]))
            check_shape(name, getattr(self, name), (None, None) if name == "pix" else self.pix.shape)
        if self.read_noise is not None:
            number = real("read_noise", self.read_noise, _UNITS[0])
            check_shape("read_noise", number, ())
            if not 0 <= number < np.inf:
                raise InputError(f"read_noise is {number}, must be a finite number of electrons, 0 or more")
            object.__setattr__(self, "read_noise", float(number))
        check_kind("fibermap", self.fibermap, FiberMap | None, A_FIBERMAP)
        object.__setattr__(self, "cards", as_cards(self.cards))

    @property
    def shape(self) -> tuple[int, int]:
        """(ny, nx)"""
        return self.pix.shape[0], self.pix.shape[1]

    def get(self, key: str, default: Any = None) -> Any:
        """Value of header keyword `key`, or `default`."""
        return next((c.value for c in self.cards if c.key == key), default)
