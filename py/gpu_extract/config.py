"""Settings: frozen, validated as a whole, and with a digest that names them."""
import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from types import UnionType
from typing import Any, get_args, get_origin

from gpu_extract.errors import Ranges, not_allowed, out_of_range, refuse

# raised with every change after which a frame of the same input and settings has other numbers: frames that are there
# are made again then (doc/architecture.md)
MATHEMATICS = 20
CORES = ("auto", "banded", "dense")
MOST_PASSES, MOST_RADIUS, MOST_DEGREE = 9, 1000.0, 8
FURTHER = ("keep_cosmics", "psferr_in_ivar", "tail_radius", "background")      # settings of further passes alone
MOST_SHOWN = 60              # characters of a value in a message
MOST_DIAGONALS = 64          # on each side, half of the highest stamp: the banded core has kernels of its own for each
MOST_BINS = 1_000_000        # of a spectrum: more than the pixels of any detector along a fibre
MOST_THREADS = 4096          # of a process: what they share is cut into so many pieces
LARGEST = 1e100              # of what is squared
_RANGES: Ranges = {
    "specmin": (0, math.inf, "be 0 or more"),
    **dict.fromkeys(("nspec", "bundlesize", "nsubbundles", "nwavestep"), (1, math.inf, "be 1 or more")),
    "passes": (1, MOST_PASSES, f"be 1 to {MOST_PASSES}: 2 is what is worth its time, 3 changes little"),
    "tail_radius": (0, MOST_RADIUS, f"lie between 0 and {MOST_RADIUS:g} pixels"),
    "background": (0, MOST_DEGREE, f"be a degree from 0 to {MOST_DEGREE}: 2 for scattered light"),
    "tolerance": (1e-14, 1e-2, "lie between 1e-14 and 1e-2"),
}

_WORDS: dict[Any, str] = {
    str: "a word", bool: "True or False", int: "a whole number", float: "a number",
    tuple[float, float, float]: "three numbers: first, last, step, in Angstrom",
    tuple[float, float]: "two numbers: x, y, in pixels", tuple[int, int]: "two whole numbers",
    tuple[int, ...]: "whole numbers"}


def _is_a(value: Any, kind: Any) -> bool:
    """Whether a value is of a setting's type: a whole number is a number, but True is none."""
    if isinstance(kind, UnionType):
        return any(_is_a(value, each) for each in get_args(kind))
    if get_origin(kind) is tuple:
        kinds = get_args(kind)
        kinds = kinds[:1] * len(value) if kinds[-1] is ... and isinstance(value, tuple) else kinds
        return isinstance(value, tuple) and len(value) == len(kinds) and all(map(_is_a, value, kinds))
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, kind) or (isinstance(value, int) and kind is float)


def _words(kind: Any) -> str:
    """What a setting of a type must be."""
    if isinstance(kind, UnionType):
        return " or ".join("None" if each is type(None) else _words(each) for each in get_args(kind))
    return _WORDS.get(kind) or f"a {kind.__name__}"


def _without_numpy(value: Any) -> Any:
    """Numbers and arrays of numpy as plain numbers, sequences as tuples."""
    value = value.tolist() if hasattr(value, "tolist") and not hasattr(value, "unit") else value
    return tuple(map(_without_numpy, value)) if isinstance(value, list | tuple) else value


def shown(value: Any) -> str:
    """A value on one line, in short."""
    text = " ".join(repr(value).split())
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} ..."


def plain(settings: Any) -> Iterator[str]:
    """Make numpy's numbers and sequences in settings plain ones, which a digest can name; what is not of its type is
    said."""
    for each in fields(settings):
        given = getattr(settings, each.name)
        value = _without_numpy(given)
        if not _is_a(value, each.type):
            yield f"{each.name} is {shown(given)}, must be {_words(each.type)}"
        object.__setattr__(settings, each.name, value)


@dataclass(frozen=True)
class ExtractConfig:
    """What to extract and how. Nothing here says on how many ranks, threads or devices.

    wavelength: (first, last, step) in Angstrom, both ends included
    specmin, nspec: fibre range; nspec None: all fibres from specmin on
    bundlesize: fibres per bundle where the PSF does not say
    psferr: fractional error of the PSF model; None: the PSF's own
    regularize: ridge in units of 1/photon, added squared to the diagonal (B&S sect. 2)
    core: "auto", "banded" or "dense"
    nsubbundles, nwavestep: how the dense core cuts a bundle: into so many groups of fibres (None: every fibre by
        itself, the fastest), and into stretches of so many bins
    tolerance: what padding may leave in the result, in units of the error
    ndiag: diagonals of the resolution matrix on each side; None: half the PSF's stamp height
    wave_factor: wavelengths are divided by this for the extraction, but stored undivided
    model: keep the model image A x; (first, last): columns first .. last - 1 of it at least, elsewhere it may be 0
    any_psf: extract although headers or light say that the PSF is another image's
    keep_odd: use pixels whose value or ivar makes no sense as they are, do not take them as masked
    passes: how often the image is solved: each time after the first with the variance that a model of the image from
        the time before expects, without pixels that stand out from it, and without other bundles' light
    keep_cosmics: use pixels that stand out from the model, do not take them as masked
    psferr_in_ivar: count the PSF's error in the variance of the pixels of further passes, too
    tail_radius: pixels up to which the PSF's tail is continued beyond the stamps in further passes
    background: degree in the row of the CCD of a smooth background that is fitted to each bundle together with its
        spectra, in all of several passes; None: there is none
    """

    wavelength: tuple[float, float, float]
    specmin: int = 0
    nspec: int | None = None
    bundlesize: int = 25
    psferr: float | None = None
    regularize: float = 0.0
    core: str = "auto"
    nsubbundles: int | None = None
    nwavestep: int = 50
    tolerance: float = 1e-8
    ndiag: int | None = None
    wave_factor: float = 1.0
    model: bool | tuple[int, int] = False
    any_psf: bool = False
    keep_odd: bool = False
    passes: int = 1
    keep_cosmics: bool = False
    psferr_in_ivar: bool = False
    tail_radius: float = 40.0
    background: int | None = None

    def __post_init__(self) -> None:
        refuse(list(plain(self)) or self._problems())

    def _problems(self) -> Iterator[str]:
        wmin, wmax, dw = self.wavelength
        if not all(math.isfinite(w) for w in self.wavelength):
            yield f"wavelength {wmin},{wmax},{dw} must be finite numbers"
        elif dw <= 0 or wmax <= wmin or wmin <= 0:
            yield (f"wavelength {wmin:g},{wmax:g},{dw:g} must ascend: first < last and step > 0, "
                   "in Angstrom, e.g. 5760,7620,0.8")
        elif wmax - wmin <= 0.5 * dw:
            yield (f"wavelength {wmin:g},{wmax:g},{dw:g} is a single bin, must be two at least: "
                   "lower the step or raise the last")
        elif (wmax - wmin) / MOST_BINS > dw:
            yield f"wavelength {wmin:g},{wmax:g},{dw:g} has more than {MOST_BINS} bins: raise the step"
        yield from not_allowed(self, {"core": CORES})
        if self.ndiag is not None and not 0 <= self.ndiag <= (MOST_BINS if self.core == "dense" else MOST_DIAGONALS):
            yield f"ndiag is {self.ndiag}, must lie between 0 and {MOST_DIAGONALS}; the dense core takes more"
        for name in ("psferr", "regularize"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= LARGEST:
                yield f"{name} is {value}, must lie between 0 and {LARGEST:g}"
        yield from out_of_range(self, _RANGES)
        if not isinstance(self.model, bool) and not 0 <= self.model[0] < self.model[1]:
            yield f"model is {self.model}, must be two columns that ascend from 0 on, e.g. (0, 100), or True or False"
        if not 0.9 < self.wave_factor < 1.1:
            yield f"wave_factor is {self.wave_factor!r}, must be close to 1 (a Doppler factor)"

    def as_dict(self) -> dict[str, Any]:
        """All settings, as plain values."""
        return asdict(self)

    def digest(self) -> str:
        """16 hex digits that name these settings; equal digests give equal spectra, with a model image or without.

        One pass has the digest that it had before there were further ones.
        """
        settings = {**self.as_dict(), "model": False}
        if self.passes == 1:
            settings = {name: value for name, value in settings.items() if name not in ("passes", *FURTHER)}
        text = json.dumps(settings, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]
