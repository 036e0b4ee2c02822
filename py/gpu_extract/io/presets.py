"""The camera settings of the package (etc/presets.ini), and of a user's own files."""
import configparser
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from gpu_extract.errors import FileName, InputError, check_local, did_you_mean, reading


@dataclass(frozen=True)
class Preset:
    """Settings of a camera.

    wavelength: (first, last, step), Angstrom, both ends included
    psferr: fractional error of the PSF model
    camera: letter of the cameras for which this is the default; empty: none
    """

    name: str
    wavelength: tuple[float, float, float]
    psferr: float
    camera: str = ""


@cache
def presets() -> Mapping[str, Preset]:
    """All presets by name."""
    with resources.as_file(resources.files("gpu_extract").joinpath("etc", "presets.ini")) as path:
        return _read(path)


def find_preset(name: str, camera: object = "") -> Preset:
    """The preset called `name`, from the package or a file: FILE.ini:NAME, or FILE.ini for the one of the camera.

    Raises InputError, which lists all presets, if there is none, and for an invalid file.
    """
    file, ending, chosen = name.rpartition(".ini")
    if not ending or (chosen and chosen[0] != ":"):
        if name not in presets():
            check_local(name)
            raise InputError(f"no preset {name!r}; known: {', '.join(presets())}; or give a file "
                             f"(FILE.ini){did_you_mean(name, presets())}")
        return presets()[name]
    path, own = file + ending, _read(file + ending)
    if chosen:
        found = own.get(chosen.removeprefix(":"))
        if found is None:
            raise InputError(f"{path}: no preset {chosen.removeprefix(':')!r}; known: "
                             f"{', '.join(own)}{did_you_mean(chosen.removeprefix(':'), own)}")
        return found
    fitting = [p for p in own.values() if p.camera and p.camera == _letter(camera)] or (
        list(own.values()) if len(own) == 1 else [])
    if len(fitting) != 1:
        raise InputError(f"{path}: {len(fitting)} presets are for camera {str(camera or '').strip()!r}; choose one: "
                         + ", ".join(f"{path}:{other}" for other in own))
    return fitting[0]


def read_ini(path: FileName, wrong: str, comments: str | None = None) -> configparser.ConfigParser:
    """The sections of a file; wrong: the message for other content; comments: prefix of comments after a value.

    Raises InputError.
    """
    parser = configparser.ConfigParser(interpolation=None, inline_comment_prefixes=comments)
    try:
        with reading(path), open(path, encoding="utf-8-sig") as lines:
            parser.read_file(lines)
    except (configparser.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {wrong}: {' '.join(str(error).split())}") from error
    return parser


def _read(path: FileName) -> dict[str, Preset]:
    parser = read_ini(path, "is not a file of presets")
    found = {}
    for name, section in ((name, parser[name]) for name in parser.sections()):
        unknown = set(section) - {"wavelength", "psferr", "camera"}
        try:
            first, last, step = (float(word) for word in section["wavelength"].split(","))
            found[name] = Preset(name, (first, last, step), float(section.get("psferr", "0.01")),
                                 section.get("camera", "").lower())
        except (KeyError, ValueError) as error:
            raise InputError(f"{path}: preset {name} needs wavelength = FIRST, LAST, STEP; psferr, if given, must be a "
                             "number") from error
        if unknown:
            raise InputError(f"{path}: preset {name} has {', '.join(sorted(unknown))}, must have only wavelength, "
                             "psferr and camera")
    if not found:
        raise InputError(f"{path}: has no preset; a line [NAME] begins one")
    return found


def camera_preset(camera: object) -> Preset | None:
    """The preset for a header's CAMERA ("r5", "R", "z0 "), or None if there is none."""
    return next((p for p in presets().values() if p.camera and p.camera == _letter(camera)), None)


def _letter(camera: object) -> str:
    return str(camera or "").strip().lower()[:1]
