"""The camera settings that come with the package (etc/presets.ini)."""
import configparser
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from gpu_extract.errors import InputError, did_you_mean


@dataclass(frozen=True)
class Preset:
    """Settings of a camera.

    wavelength: (first, last, step), Angstrom, both ends included
    psferr: fractional error of the PSF model
    camera: letter of the cameras that this is the default of; empty: of none
    """

    name: str
    wavelength: tuple[float, float, float]
    psferr: float
    camera: str = ""


@cache
def presets() -> Mapping[str, Preset]:
    """All presets by name."""
    parser = configparser.ConfigParser()
    file = resources.files("gpu_extract").joinpath("etc", "presets.ini")
    parser.read_string(file.read_text(encoding="ascii"))
    return {name: _preset(name, parser[name]) for name in parser.sections()}


def _preset(name: str, section: configparser.SectionProxy) -> Preset:
    first, last, step = (float(word) for word in section["wavelength"].split(","))
    return Preset(name, (first, last, step), float(section["psferr"]), section.get("camera", ""))


def find_preset(name: str) -> Preset:
    """The preset called `name`. Raises InputError, naming all."""
    if name not in presets():
        raise InputError(f"no preset {name!r}; there are {', '.join(presets())}{did_you_mean(name, presets())}")
    return presets()[name]


def camera_preset(camera: object) -> Preset | None:
    """The preset for a header's CAMERA ("r5", "R", "z0 "), or None where there is none."""
    letter = str(camera or "").strip().lower()[:1]
    return next((p for p in presets().values() if p.camera and p.camera == letter), None)
