"""From options to the inputs of an extraction: image, PSF, settings, and cards of provenance."""
import argparse
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from gpu_extract.cli.common import log
from gpu_extract.cli.options import spelt_out
from gpu_extract.config import FURTHER, ExtractConfig, check_background
from gpu_extract.errors import ConfigError, InputError
from gpu_extract.io.atomic import check_targets
from gpu_extract.io.leftovers import remove_leftovers
from gpu_extract.io.presets import Preset, camera_preset, find_preset

if TYPE_CHECKING:
    from gpu_extract.data import Card, FiberMap, Frame, Image, PsfModel

NO_FIBERMAP = "none"
ANY_GRID = (6000.0, 6001.0, 1.0)       # replaces a preset's grid when only the other settings are checked


@dataclass(frozen=True)
class Inputs:
    """Paths of the input files; truth is known for simulated frames only."""

    image: str
    psf: str
    truth: str | None = None


@dataclass(frozen=True)
class Job:
    """The complete input: what is extracted, how, and the cards of the header.

    fibermap: cut to the requested fibres
    cards: provenance, beyond the image's own header
    reference: the frame to compare with, if one was given
    """

    image: "Image"
    psf: "PsfModel"
    config: ExtractConfig
    fibermap: "FiberMap | None"
    cards: "Sequence[Card]"
    inputs: Inputs
    reference: "Frame | None" = None


def find_inputs(args: argparse.Namespace, there: Inputs | None = None) -> Inputs:
    """The files of -i and -p, or the embedded simulated frame if neither is given.

    there: paths of that frame, if it was just found to be intact
    """
    if args.input and args.psf:
        return Inputs(args.input, args.psf)
    if args.input or args.psf:
        given, missing = ("-i", "-p") if args.input else ("-p", "-i")
        raise InputError(f"{given} is given without {missing}; give both, or neither to extract the embedded simulated "
                         "frame")
    from gpu_extract.simulate.embedded import embedded_default

    log.info("no -i and -p: extracting the embedded simulated frame")
    if there is not None:
        return there
    files = embedded_default(args.specmin, args.nspec, log.info, threads=args.threads or 1)
    return Inputs(*(str(path) for path in files))


def identity(path: str) -> tuple[int, ...] | None:
    """The identity of a file, which changes if it is replaced or written to; None: no file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def image_options(args: argparse.Namespace) -> dict[str, bool]:
    """The options for reading a command's image, see io.image.read_image."""
    return {"check": not args.ignore_checksums, "fibermap": args.fibermap is None, "noise": args.passes > 1}


def read_job(args: argparse.Namespace, inputs: Inputs, read: "Callable[..., Image] | None" = None) -> Job:
    """Read the files and complete the job; all errors of the input are raised here.

    read: replaces io.image.read_image, see cli.early
    """
    from gpu_extract.fibermap import rows_for
    from gpu_extract.io.frame import read_frame
    from gpu_extract.io.image import read_image
    from gpu_extract.io.psf import read_psf
    from gpu_extract.io.sources import origin_cards, settings_cards, source_cards
    from gpu_extract.plan import make_plan

    check = not args.ignore_checksums
    table = None if args.fibermap in (None, NO_FIBERMAP) else args.fibermap
    sources = source_cards({"IMG": inputs.image, "PSF": inputs.psf, **({} if table is None else {"FMAP": table})})
    image = (read or read_image)(inputs.image, **image_options(args))
    psf = read_psf(inputs.psf, check=check)
    if table is not None:
        from gpu_extract.io.fibermap import read_fibermap

        image = replace(image, fibermap=read_fibermap(table, check=check))
    config = make_config(args, image)
    try:
        plan = make_plan(psf, config, 0)
    except InputError as error:
        raise InputError(f"{error}{_of_preset(args, image, psf)}") from error
    cards = [*sources, *origin_cards(psf), *settings_cards(config)]
    fibermap = rows_for(image, plan.fibres, psf.nfibre)
    if args.barycentric_correction and fibermap is not None:
        from gpu_extract.io.barycentre import with_factors

        fibermap = with_factors(fibermap, *_headers(image))
    reference = read_frame(args.test, check=check) if args.test else None
    return Job(replace(image, fibermap=None), psf, config, fibermap, cards, inputs, reference)


def check_all(args: argparse.Namespace) -> None:
    """Raise all errors that need no file to be read."""
    if args.qa:
        from gpu_extract.figures import check_picture

        check_picture(args.qa)
    ExtractConfig(args.wavelength or ANY_GRID, psferr=args.psferr, **_given(args))    # ConfigError, whatever the camera
    check_background(args.passes, args.background)
    check_files(args)


def settings_for(camera: str, args: argparse.Namespace) -> ExtractConfig:
    """The settings for an image of a camera, before there is an image."""
    preset = find_settings(args, camera)
    grid = args.wavelength or (preset.wavelength if preset else ANY_GRID)
    return ExtractConfig(grid, psferr=args.psferr, **_given(args))


def _given(args: argparse.Namespace) -> dict[str, Any]:
    """The settings from the options, except those that presets have."""
    names = {field.name for field in fields(ExtractConfig)} - {"wavelength", "psferr", "model"}
    return {name: value for name, value in vars(args).items() if name in names and value is not None}


def make_config(args: argparse.Namespace, image: "Image") -> ExtractConfig:
    """Settings from the options, and otherwise from the preset of the camera.

    Raises ConfigError with every problem at once.
    """
    preset = find_settings(args, image.get("CAMERA"))
    wavelength = args.wavelength or (preset.wavelength if preset else None)
    psferr = preset.psferr if args.psferr is None and preset else args.psferr
    if wavelength is None:
        raise ConfigError(f"no wavelength grid: the image's CAMERA is {image.get('CAMERA')!r}, which has no preset; "
                          "give -w first,last,step or --preset NAME")
    config = ExtractConfig(wavelength, psferr=psferr, **_given(args), model=bool(args.model or args.qa))
    if not args.barycentric_correction:
        return config
    from gpu_extract.io.barycentre import barycentric_factor

    return replace(config, wave_factor=barycentric_factor(*_headers(image)))


def _of_preset(args: argparse.Namespace, image: "Image", psf: "PsfModel") -> str:
    """The preset whose wavelengths are requested but not covered by the PSF, in words; "" if no preset is involved."""
    preset = None if args.wavelength else find_settings(args, image.get("CAMERA"))
    low, high = psf.wavelength_range
    if preset is None or (low <= preset.wavelength[0] and preset.wavelength[1] <= high):
        return ""
    chosen = "" if args.preset else f", as the image's CAMERA is {image.get('CAMERA')}"
    return f"; they come from the preset {preset.name}{chosen}: give -w first,last,step, or another --preset"


def _headers(image: "Image") -> "list[Sequence[Card]]":
    return [image.cards] + ([image.fibermap.cards] if image.fibermap else [])


def find_settings(args: argparse.Namespace, camera: object) -> Preset | None:
    """The requested preset, else that of the camera, else None."""
    return find_preset(args.preset, camera) if args.preset else camera_preset(camera)


def outputs(args: argparse.Namespace, *, plain: bool = True) -> dict[str, str]:
    """The files that a command makes, by option. plain: including those that are not FITS files"""
    named = {"-o": args.output, "-m": args.model, "--spectra": args.spectra,
             **({"--qa": args.qa, "--perf": args.perf, "--trace": args.trace} if plain else {})}
    return {option: path for option, path in named.items() if path}


def check_files(args: argparse.Namespace) -> None:
    """Check before any work that outputs can be written, and differ from each other and from the inputs. Leftovers of
    killed runs beside them are removed."""
    found = outputs(args)
    inputs = {option: path for option, path in (
        ("-i", args.input), ("-p", args.psf), ("-f", args.fibermap), ("-t", args.test)) if path}
    check_targets(found, inputs, plain=[*found.keys() - outputs(args, plain=False)])
    for path in found.values() if args.no_overwrite else ():
        if os.path.exists(path):
            raise InputError(f"{path}: exists, and --no-overwrite forbids replacing it; give another name")
    for left in remove_leftovers(found.values()):
        log.info(f"{left}: left behind by a run that was killed; removed")


def equivalent_command(args: argparse.Namespace, job: Job) -> str:
    """The command that gives this result, with every setting written out."""
    config = job.config
    further = dict.fromkeys(("passes", *FURTHER)) if config.passes == 1 else {}
    grid = ",".join(f"{number:.12g}" for number in config.wavelength)
    return shlex.join(["gpu_extract", *spelt_out({
        **vars(args), **config.as_dict(), **further, "input": job.inputs.image, "psf": job.inputs.psf,
        "wavelength": grid, "model": args.model, "preset": None, "no_overwrite": None})])
