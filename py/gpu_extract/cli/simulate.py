"""gpu_simulate: make a frame with known truth."""
import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpu_extract.cli.common import Parser, add_common_options, log, run_main
from gpu_extract.errors import ExitCode, InputError

if TYPE_CHECKING:
    from gpu_extract.perf.recorder import Recorder
    from gpu_extract.simulate import SimConfig, Simulation

NONE = "none"
DESCRIPTION = """\
Simulate a CCD frame of a fibre spectrograph like DESI's, with known truth: curved traces
in bundles, a Gauss-Hermite PSF that changes with fibre and wavelength, the night sky's
real lines, stars, galaxies and quasars, photon and read noise, and what goes wrong.

Three files are written: the image (IMAGE, IVAR, MASK, READNOISE, FIBERMAP), the PSF
(GAUSS-HERMITE, version 3) and the truth (WAVELENGTH, FLUX, TARGETS). gpu_extract reads
the first two."""
EPILOG = """\
examples
  gpu_simulate -o preproc.fits
      a whole r frame, 500 fibres; also preproc-psf.fits and preproc-truth.fits
  gpu_simulate -o preproc.fits --camera z --nspec 50 --seed 7 --program bright --crop
      two bundles of another camera under moonlight; the image ends behind them
  gpu_simulate -o preproc.fits --camera tiny --truth-grid 6020,6090,0.8 --no-defects
      ten short fibres, with truth on the bins of an extraction: flux = R x truth
  gpu_simulate -o preproc.fits --camera tiny --reference reference.fits -w 6020,6090,0.8
      and the frame that an extraction of it must give, made the slow and obvious way

Equal seeds give equal frames, bit by bit; fibres are the same in a part of a frame as in
the whole: --specmin 100 --nspec 25 gives the pixels that fibres 100-124 have in a frame
of 500. Bad columns, hot pixels and the fibres' throughput belong to the camera, not to
the seed.

exit codes
  0 done   2 usage or input   3 output   4 internal error   75 interrupted, start again"""


def main(argv: Sequence[str] | None = None) -> int:
    """The command gpu_simulate; returns its exit code (errors.ExitCode)."""
    return run_main(build_parser, simulate_frame, argv)


def build_parser() -> Parser:
    """The parser of gpu_simulate."""
    parser = Parser("gpu_simulate", DESCRIPTION, EPILOG)
    _files(parser)
    _scene(parser)
    _defects(parser)
    add_common_options(parser)
    return parser


def _files(parser: Parser) -> None:
    add = parser.add_argument_group("files").add_argument
    add("-o", "--output", metavar="FILE", required=True, help="image to write (.fits); an existing file is replaced")
    add("--psf-out", metavar="FILE", help="PSF to write (default: OUTPUT-psf.fits; 'none' writes none)")
    add("--truth-out", metavar="FILE", help="truth to write (default: OUTPUT-truth.fits; 'none' writes none)")
    add("--reference", metavar="FILE",
        help="also extract the frame by the slow, independent reference code and write the result; "
             "seconds for the camera tiny, hours for a whole frame")
    add("-w", "--wavelength", metavar="WMIN,WMAX,DW", type=_grid,
        help="grid of the reference in Angstrom, both ends included (default: --truth-grid, else the camera's)")
    add("--perf", metavar="FILE.json", help="write where the time went")


def _scene(parser: Parser) -> None:
    add = parser.add_argument_group("what to simulate").add_argument
    add("--camera", default="r0", metavar="NAME",
        help="b, r, z or tiny, with the spectrograph's digit or without, e.g. r5 (default r0)")
    add("-s", "--specmin", metavar="N", type=int, default=0, help="first fibre (default 0)")
    add("-n", "--nspec", metavar="N", type=int,
        help="number of fibres; whole bundles are made (default: all of the camera; more than it has: "
             "detectors side by side)")
    add("--seed", metavar="N", type=int, default=1, help="seed of sky, targets, noise and cosmics (default 1)")
    add("--flavor", choices=("science", "arc", "flat"), default="science", help="kind of exposure (default science)")
    add("--program", choices=("dark", "bright"), default="dark",
        help="dark: faint targets; bright: brighter ones under moonlight (default dark)")
    add("--exptime", metavar="S", type=float, help="seconds (default: dark 1000, bright 300, arc 5, flat 120)")
    add("--expid", metavar="N", type=int, default=1, help="exposure number in the header (default 1)")
    add("--night", metavar="YYYYMMDD", type=int, default=20250315, help="night in the header (default 20250315)")
    grid = parser.add_argument_group("truth").add_mutually_exclusive_group()
    grid.add_argument("--truth-step", metavar="A", type=float, default=0.2,
                      help="the spectra live on bins of this width (default 0.2)")
    grid.add_argument("--truth-grid", metavar="WMIN,WMAX,DW", type=_grid,
                      help="the spectra live on the bins of this extraction, continued beyond both ends")
    parser.add_argument("--threads", metavar="N", type=int, default=1,
                        help="threads (default 1); any number gives the same bits")


def _defects(parser: Parser) -> None:
    group = parser.add_argument_group("noise and defects")
    add = group.add_argument
    add("--no-noise", action="store_true", help="no photon and read noise, no cosmics; IVAR as if there were")
    add("--variance", choices=("model", "data"), default="model",
        help="IVAR from the noiseless expectation (default) or from the noisy pixels themselves")
    add("--no-defects", action="store_true", help="no cosmics, bad columns, hot pixels")
    add("--no-cosmics", action="store_true", help="no cosmics")
    add("--bad-columns", metavar="N", type=int, help="bad columns per detector (default 6)")
    add("--hot-pixels", metavar="N", type=int, help="hot or dead pixels per detector (default 40)")
    add("--dead-amp", metavar="X", help="amplifier without light: A, B (lower left, right), C, D (upper)")
    add("--dead-fibres", metavar="I,J,...", type=_numbers, default=(), help="fibres without light")
    add("--broken-fibres", metavar="I,J,...", type=_numbers, default=(), help="fibres that pass 2-10 %% of the light")
    add("--masked-fraction", metavar="X", type=float, default=0.0, help="share of pixels masked at random (default 0)")
    add("--crop", action="store_true", help="end the image behind the last bundle made")


def _grid(text: str) -> tuple[float, float, float]:
    try:
        first, last, step = (float(word) for word in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a grid; give first,last,step in Angstrom, e.g. 5760,7620,0.8") from error
    return first, last, step


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of fibre numbers, e.g. 3,17") from error


def config_of(args: argparse.Namespace) -> "SimConfig":
    """The settings the options ask for. Raises ConfigError with every problem at once."""
    from gpu_extract.simulate import NO_DEFECTS, Defects, SimConfig

    usual = NO_DEFECTS if args.no_defects else Defects()
    number = {name: getattr(args, name) if getattr(args, name) is not None else getattr(usual, name)
              for name in ("bad_columns", "hot_pixels")}
    defects = Defects(cosmics=usual.cosmics and not args.no_cosmics, dead_amplifier=args.dead_amp,
                      dead_fibres=args.dead_fibres, broken_fibres=args.broken_fibres,
                      masked_fraction=args.masked_fraction, **number)
    same = ("camera", "specmin", "nspec", "seed", "flavor", "program", "exptime", "truth_step", "truth_grid",
            "variance", "crop", "expid", "night")
    return SimConfig(noise=not args.no_noise, defects=defects, **{name: getattr(args, name) for name in same})


def _outputs(args: argparse.Namespace) -> dict[str, str | None]:
    """Paths of the files, checked before any work."""
    from gpu_extract.io.atomic import check_target

    stem, extension = args.output, ".fits"
    for ending in (".fits.gz", ".fits"):
        if stem.endswith(ending):
            stem, extension = stem.removesuffix(ending), ending
            break
    paths = {"image": args.output, "psf": args.psf_out or f"{stem}-psf{extension}",
             "truth": args.truth_out or f"{stem}-truth{extension}", "reference": args.reference, "perf": args.perf}
    wanted = {name: None if path == NONE else path for name, path in paths.items()}
    seen: dict[str, str] = {}
    for name, path in wanted.items():
        if path is None:
            continue
        check_target(path)
        real = os.path.realpath(path)
        if real in seen:
            raise InputError(f"{path}: is to be {seen[real]} and {name} at once; give one of them another name")
        seen[real] = name
    return wanted


def simulate_frame(args: argparse.Namespace) -> int:
    """Parse is done: simulate, write, say what was made."""
    if args.threads < 1:
        raise InputError(f"--threads is {args.threads}, must be 1 or more")
    config = config_of(args)
    paths = _outputs(args)
    grid = _reference_grid(args, config)
    from gpu_extract.perf.recorder import Recorder
    from gpu_extract.simulate import simulate, write_simulation

    recorder = Recorder()
    simulation = simulate(config, threads=args.threads, recorder=recorder, progress=_progress)
    with recorder.span("write"):
        write_simulation(simulation, str(paths["image"]), psf=paths["psf"], truth=paths["truth"])
    if grid is not None:
        with recorder.span("reference"):
            _write_reference(simulation, grid, str(paths["reference"]))
    _summary(simulation, paths, recorder)
    _write_performance(paths["perf"], simulation, recorder)
    return ExitCode.DONE


def _progress(stage: str, done: int, total: int) -> None:
    """One line that moves on a terminal, a few log lines elsewhere."""
    if not log.isEnabledFor(20):
        return
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{stage}: {done} of {total}\x1b[K" + ("\n" if done == total else ""))
        sys.stderr.flush()
    elif done == total or done % max(total // 4, 1) == 0:
        log.info(f"{stage}: {done} of {total}")


def _reference_grid(args: argparse.Namespace, config: "SimConfig") -> tuple[float, float, float] | None:
    """The grid of the reference, None where none is wanted. Raises InputError where the PSF does not reach."""
    if args.reference is None:
        return None
    from gpu_extract.config import ExtractConfig
    from gpu_extract.io.presets import camera_preset
    from gpu_extract.simulate.instrument import DETECTORS

    grid: tuple[float, float, float] | None = args.wavelength or args.truth_grid
    preset = camera_preset(config.camera)
    if grid is None and preset is not None and config.band != "tiny":
        grid = preset.wavelength
    if grid is None:
        raise InputError("--reference needs a grid for this camera: give -w first,last,step, e.g. 6020,6090,0.8")
    low, high = DETECTORS[config.band].wave
    first, last, step = ExtractConfig(wavelength=grid).wavelength
    if first < low or last > high:
        raise InputError(f"the reference's grid {first:g} to {last:g} A reaches beyond the PSF, {low:g} to {high:g} A; "
                         "give -w within it")
    return first, last, step


def _write_reference(simulation: "Simulation", grid: tuple[float, float, float], path: str) -> None:
    from gpu_extract.io.frame import write_frame
    from gpu_extract.simulate.reference import reference_frame

    write_frame(path, reference_frame(simulation, grid, progress=_progress))


def _summary(simulation: "Simulation", paths: dict[str, str | None], recorder: "Recorder") -> None:
    import numpy as np

    from gpu_extract.perf.recorder import peak_memory

    truth, mask = simulation.truth, simulation.mask
    kinds = [target.kind for target in truth.targets]
    log.info(f"fibres {truth.fibres[0]}-{truth.fibres[-1]}: "
             + ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds))))
    log.info(f"image {mask.shape[1]} x {mask.shape[0]} pixels, {int(np.count_nonzero(mask))} masked, "
             f"brightest expected pixel {simulation.expected.max():.0f} electrons")
    stages = ", ".join(f"{name} {recorder.seconds(name):.1f} s"
                       for name in ("truth", "project", "noise", "defects", "write", "reference")
                       if recorder.seconds(name))
    log.info(f"{recorder.elapsed():.1f} s ({stages}), {peak_memory() / 1e9:.2f} GB")
    for name in ("image", "psf", "truth", "reference"):
        if paths[name]:
            log.info(f"{name}: {paths[name]}")


def _write_performance(path: str | None, simulation: "Simulation", recorder: "Recorder") -> None:
    if path is None:
        return
    import json

    from gpu_extract import __version__
    from gpu_extract.io.atomic import atomic

    record = {**recorder.record(), "program": "gpu_simulate", "version": __version__,
              "config": simulation.config.as_dict(), "digest": simulation.config.digest()}
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
