"""Settings: frozen, validated as a whole, and identified by a digest."""
import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from types import UnionType
from typing import Any, get_args, get_origin

from gpu_extract.errors import ConfigError, Ranges, not_allowed, out_of_range, refuse

# raised with every change that gives a frame of the same input and settings other numbers, so that existing frames are
# made again (doc/architecture.md)
MATHEMATICS = 24
CORES = ("auto", "banded", "dense")
MOST_PASSES, MOST_RADIUS, MOST_DEGREE = 9, 1000.0, 8
FURTHER = ("keep_cosmics", "psferr_in_ivar", "tail_radius", "background")      # settings of further passes only
MOST_SHOWN = 60              # characters of a value in a message
MOST_DIAGONALS = 64          # on each side, half of the highest stamp: the banded core has separate kernels for each
MOST_BINS = 1_000_000        # of a spectrum: more than the pixels of any detector along a fibre
MOST_THREADS = 4096          # of a process, whose work is cut into this many pieces
LARGEST = 1e100              # of numbers that are squared
_RANGES: Ranges = {
    "specmin": (0, math.inf, "be 0 or more"),
    **dict.fromkeys(("nspec", "bundlesize", "nsubbundles", "nwavestep"), (1, math.inf, "be 1 or more")),
    "passes": (1, MOST_PASSES, f"be 1 to {MOST_PASSES}: use 2, since a third pass changes little"),
    "tail_radius": (0, MOST_RADIUS, f"lie between 0 and {MOST_RADIUS:g} pixels"),
    "background": (0, MOST_DEGREE, f"be a degree from 0 to {MOST_DEGREE}: use 2 for scattered light"),
    "tolerance": (1e-14, 1e-2, "lie between 1e-14 and 1e-2"),
}

_WORDS: dict[Any, str] = {
    str: "a word", bool: "True or False", int: "a whole number", float: "a number",
    tuple[float, float, float]: "three numbers: first, last, step, in Angstrom",
    tuple[float, float]: "two numbers: x, y, in pixels", tuple[int, int]: "two whole numbers",
    tuple[int, ...]: "whole numbers"}


def _is_a(value: Any, kind: Any) -> bool:
    """Whether a value has a setting's type: whole numbers count as numbers, but True does not."""
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
    """The description of a setting's type for messages."""
    if isinstance(kind, UnionType):
        return " or ".join("None" if each is type(None) else _words(each) for each in get_args(kind))
    return _WORDS.get(kind) or f"a {kind.__name__}"


def _without_numpy(value: Any) -> Any:
    """Numbers and arrays of numpy as plain numbers, sequences as tuples."""
    value = value.tolist() if hasattr(value, "tolist") and not hasattr(value, "unit") else value
    return tuple(map(_without_numpy, value)) if isinstance(value, list | tuple) else value


def shown(value: Any) -> str:
    """A value on one short line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} ..."


def plain(settings: Any) -> Iterator[str]:
    """Convert numpy's numbers and sequences in settings to plain ones, for the digest. Wrong types raise an error."""
    for each in fields(settings):
        given = getattr(settings, each.name)
        value = _without_numpy(given)
        if not _is_a(value, each.type):
            yield f"{each.name} is {shown(given)}, must be {_words(each.type)}"
        object.__setattr__(settings, each.name, value)


@dataclass(frozen=True)
class ExtractConfig:
    """What to extract and how, independent of ranks, threads and devices.

    wavelength: (first, last, step) in Angstrom, both ends included
    specmin, nspec: fibre range; nspec None: all fibres from specmin on
    bundlesize: fibres per bundle if the PSF has no BUNDLE
    psferr: fractional error of the PSF model; None: the PSF's own
    regularize: ridge in units of 1/photon, added squared to the diagonal (B&S sect. 2)
    core: "auto", "banded" or "dense"
    nsubbundles, nwavestep: how the dense core cuts a bundle: number of groups of fibres (None: every fibre by
        itself, the fastest), and bins per patch
    tolerance: largest error of the result from padding, in units of its sigma
    ndiag: diagonals of the resolution matrix on each side; None: half the PSF's stamp height
    wave_factor: wavelengths are divided by this for the extraction, but stored undivided
    model: keep the model image A x; (first, last): at least its columns first .. last - 1, elsewhere it may be 0
    any_psf: extract even if headers or light show that the PSF belongs to another image
    keep_odd: use odd pixels, whose value or ivar makes no sense, instead of treating them as masked
    passes: number of passes. Each pass after the first uses the variance from the previous pass's model of the image,
        without pixels that stand out from it, and without other bundles' light
    keep_cosmics: use pixels that stand out from the model, instead of treating them as masked
    psferr_in_ivar: include the PSF's error in the variance of the pixels in further passes
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
            yield (f"wavelength {wmin:g},{wmax:g},{dw:g} is a single bin, must be at least two: lower the step, or "
                   "raise the last wavelength")
        elif (wmax - wmin) / MOST_BINS > dw:
            yield f"wavelength {wmin:g},{wmax:g},{dw:g} has more than {MOST_BINS} bins: raise the step"
        yield from not_allowed(self, {"core": CORES})
        if self.ndiag is not None and not 0 <= self.ndiag <= (MOST_BINS if self.core == "dense" else MOST_DIAGONALS):
            yield f"ndiag is {self.ndiag}, must lie between 0 and {MOST_DIAGONALS}; only the dense core takes more"
        for name in ("psferr", "regularize"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= LARGEST:
                yield f"{name} is {value}, must lie between 0 and {LARGEST:g}"
        yield from out_of_range(self, _RANGES)
        if not isinstance(self.model, bool) and not 0 <= self.model[0] < self.model[1]:
            yield f"model is {self.model}, must be two ascending columns from 0 on, e.g. (0, 100), or True or False"
        if not 0.9 < self.wave_factor < 1.1:
            yield f"wave_factor is {self.wave_factor!r}, must be close to 1 (a Doppler factor)"

    def as_dict(self) -> dict[str, Any]:
        """All settings, as plain values."""
        return dict(vars(self))

    def digest(self) -> str:
        """16 hex digits that identify these settings; equal digests give equal spectra, with or without a model image.

        Settings of further passes do not affect the digest of a single pass.
        """
        settings = {**self.as_dict(), "model": False}
        if self.passes == 1:
            settings = {name: value for name, value in settings.items() if name not in ("passes", *FURTHER)}
        text = json.dumps(settings, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_background(passes: int, degree: int | None) -> None:
    """Raise ConfigError if one pass is to fit a background.

    The other settings of further passes do no harm where there are none. Without a background, scattered light would
    stay in the spectra.
    """
    if passes == 1 and degree is not None:
        raise ConfigError(f"background is {degree}, but a single pass fits none: set passes to 2, or leave background "
                          "out")
