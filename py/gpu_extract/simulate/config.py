"""The settings of a simulation: frozen, validated as a whole."""
import hashlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any

from gpu_extract.config import plain
from gpu_extract.errors import Ranges, did_you_mean, not_allowed, out_of_range, refuse

BANDS = ("b", "r", "z", "tiny", "side")
TABLES = ("side",)            # cameras with tabulated spots
FLAVORS = ("science", "arc", "flat")
PROGRAMS = ("dark", "bright")
VARIANCES = ("model", "data")
AMPLIFIERS = {"A": 1.0, "B": 1.03, "C": 0.97, "D": 1.01}      # relative read noise of each
EXPTIME = {"dark": 1000.0, "bright": 300.0, "arc": 5.0, "flat": 120.0}      # seconds
_RANGES: Ranges = {
    "specmin": (0, math.inf, "be 0 or more"),
    "nspec": (1, math.inf, "be 1 or more"),
    "seed": (0, 2**63 - 1, "lie between 0 and 2^63 - 1"),
    "field_seed": (0, 2**63 - 1, "lie between 0 and 2^63 - 1"),
    "tails": (0, 0.1, "lie between 0 and 0.1"),
    "scattered": (0, 1e5, "lie between 0 and 1e5 electron"),
    "expid": (0, 10**8 - 1, "have at most 8 digits"),
    "truth_step": (0.02, 5, "lie between 0.02 and 5 Angstrom"),
}
_OF_DEFECTS: Ranges = {
    "bad_columns": (0, 10000, "lie between 0 and 10000"),
    "hot_pixels": (0, 10000, "lie between 0 and 10000"),
    "masked_fraction": (0, 1, "lie between 0 and 1"),
}
_CAMERA = re.compile(r"(b|r|z|tiny|side)([0-9]?)")


@dataclass(frozen=True)
class Defects:
    """Defects of the detector and the fibres.

    cosmics: cosmic rays at the rate of the camera's CCD
    bad_columns: their number per detector; hot_pixels: number of hot or dead pixels per detector. Where they
        are depends on the camera, not on the seed.
    dead_amplifier: "A" (low y, low x), "B" (low y, high x), "C" (high y, low x), "D", or None
    dead_fibres: fibres without any light; broken_fibres: fibres that pass a few per cent of it
    masked_fraction: share of pixels masked at random, in addition to all others
    hidden_cosmics: cosmic rays are not in the mask
    """

    cosmics: bool = True
    bad_columns: int = 6
    hot_pixels: int = 40
    dead_amplifier: str | None = None
    dead_fibres: tuple[int, ...] = ()
    broken_fibres: tuple[int, ...] = ()
    masked_fraction: float = 0.0
    hidden_cosmics: bool = False

    def __post_init__(self) -> None:
        refuse(plain(self))


NO_DEFECTS = Defects(cosmics=False, bad_columns=0, hot_pixels=0)


@dataclass(frozen=True)
class SimConfig:
    """What to simulate.

    camera: "b", "r", "z", "tiny" (a few short fibres, for tests) or "side" (60 fibres, tabulated spots), with the
        spectrograph's digit or without
    specmin, nspec: requested fibres; their whole bundles are made. nspec None: up to the camera's last
    seed: of sky, targets, noise and cosmics; the PSF, the fibres' throughput and bad pixels belong to the camera
    flavor: "science", "arc" or "flat"; program: "dark" or "bright" (moonlight, brighter targets)
    exptime: seconds; None: 1000 dark, 300 bright, 5 arc, 120 flat
    truth_step: the spectra live on bins of this width (Angstrom) over the PSF's whole range
    truth_grid: (first, last, step) of an extraction; the spectra live on its bins, continued over the PSF's whole range
    noise: False leaves out photon and read noise (and cosmics); ivar stays what it would be with them
    variance: "model": ivar from the noiseless expectation, as production pipelines approach it by a model of the
        image; "data": from the noisy pixels themselves
    crop: leave out the detector's columns after the last bundle made
    psf_error: share by which the output PSF is broader than the true one, in both directions
    tails: amplitude of a tail of all spots, which continues beyond their stamps; 0: none
    scattered: mean electrons of scattered light per pixel of the detector; it varies along the rows
    flexure: offset of the light from the traces of the output PSF in pixels (x, y)
    exact_lines: the lines of an arc are at their exact wavelengths; otherwise the adjacent bins share them, as the
        truth has them, which makes spots a little broader
    field_seed: of the targets, if exposures of one field differ in all else; None: seed
    """

    camera: str = "r0"
    specmin: int = 0
    nspec: int | None = None
    seed: int = 1
    flavor: str = "science"
    program: str = "dark"
    exptime: float | None = None
    truth_step: float = 0.2
    truth_grid: tuple[float, float, float] | None = None
    noise: bool = True
    variance: str = "model"
    defects: Defects = field(default_factory=Defects)
    crop: bool = False
    expid: int = 1
    night: int = 20250315
    psf_error: float = 0.0
    tails: float = 0.0
    scattered: float = 0.0
    flexure: tuple[float, float] = (0.0, 0.0)
    exact_lines: bool = False
    field_seed: int | None = None

    def __post_init__(self) -> None:
        refuse(list(plain(self)) or [*self._problems(), *_defect_problems(self.defects)])

    def _problems(self) -> Iterator[str]:
        if not _CAMERA.fullmatch(self.camera):
            yield (f"camera is {self.camera!r}, must be one of {', '.join(BANDS)}, with a digit (r5) or without"
                   + did_you_mean(self.camera, BANDS))
        yield from not_allowed(self, {"flavor": FLAVORS, "program": PROGRAMS, "variance": VARIANCES})
        yield from out_of_range(self, _RANGES)
        if not _is_night(self.night):
            yield f"night is {self.night}, must be a date from 1900 on, written YYYYMMDD"
        if self.exptime is not None and not 0 < self.exptime < 1e6:
            yield f"exptime is {self.exptime:g}, must be a number of seconds above 0 and below 1e6"
        if not -0.5 < self.psf_error < 0.5:
            yield f"psf_error is {self.psf_error:g}, must lie between -0.5 and 0.5"
        if self.tails and self.band in TABLES:
            yield f"tails is {self.tails:g}, but spots of camera {self.band} are tables, which have none: leave it out"
        if not all(-20 <= shift <= 20 for shift in self.flexure):
            yield f"flexure is {self.flexure[0]:g},{self.flexure[1]:g}, must lie between -20 and 20 pixels"
        if self.exact_lines and self.flavor != "arc":
            yield f"exact_lines is for arcs only, but flavor is {self.flavor}: leave it out, or simulate an arc"
        if self.truth_grid is not None:
            first, last, step = self.truth_grid
            if not (all(math.isfinite(w) for w in self.truth_grid) and 0 < first < last and 0.02 <= step <= 5):
                yield (f"truth_grid {first:g},{last:g},{step:g} must ascend with a step of 0.02 to 5 Angstrom, "
                       "e.g. 5760,7620,0.8")

    @property
    def band(self) -> str:
        """One of BANDS."""
        return self.camera.rstrip("0123456789")

    @property
    def spectrograph(self) -> int:
        """Number of the spectrograph, 0 if the camera's name has none."""
        return int(self.camera[len(self.band):] or 0)

    @property
    def number(self) -> int:
        """Number of the camera: cameras of one exposure share a seed, but have different noise and cosmic rays."""
        return 10 * {"b": 1, "z": 2}.get(self.band, 0) + self.spectrograph

    @property
    def field(self) -> int:
        """Seed of the targets."""
        return self.seed if self.field_seed is None else self.field_seed

    @property
    def seconds(self) -> float:
        """Exposure time."""
        if self.exptime is not None:
            return self.exptime
        return EXPTIME[self.program if self.flavor == "science" else self.flavor]

    def digest(self) -> str:
        """16 hex digits that identify these settings; equal settings give equal digests."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()[:16]

    def as_dict(self) -> dict[str, Any]:
        """All settings, as plain values."""
        return asdict(self)


def _is_night(night: int) -> bool:
    try:
        return date(night // 10000, night // 100 % 100, night % 100).year >= 1900
    except (ValueError, OverflowError):
        return False


def _defect_problems(defects: Defects) -> Iterator[str]:
    yield from out_of_range(defects, _OF_DEFECTS)
    if defects.dead_amplifier is not None and defects.dead_amplifier not in AMPLIFIERS:
        yield f"dead_amplifier is {defects.dead_amplifier!r}, must be one of {', '.join(AMPLIFIERS)}"
    for name in ("dead_fibres", "broken_fibres"):
        if any(f < 0 for f in getattr(defects, name)):
            yield f"{name} must be fibre numbers, 0 or more"
