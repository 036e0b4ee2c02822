"""gpu_simulate: makes a frame with known truth."""
import argparse
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from gpu_extract.cli.common import check_memory, check_threads, log, on_terminal, run_main, show_progress
from gpu_extract.cli.performance import facts
from gpu_extract.cli.simulate_options import build_parser
from gpu_extract.errors import ExitCode, InputError
from gpu_extract.io.atomic import check_targets, write_json

if TYPE_CHECKING:
    from gpu_extract.perf.recorder import Recorder
    from gpu_extract.simulate import SimConfig, Simulation

PROG, NONE = "gpu_simulate", "none"


def main(argv: Sequence[str] | None = None) -> int:
    """The command gpu_simulate; returns its exit code (errors.ExitCode)."""
    return run_main(build_parser, simulate_frame, argv)


def config_of(args: argparse.Namespace) -> "SimConfig":
    """The settings from the options. Raises ConfigError with every problem at once."""
    from gpu_extract.simulate import NO_DEFECTS, Defects, SimConfig

    defects = replace(NO_DEFECTS if args.no_defects else Defects(), **_given(Defects, args))
    return SimConfig(defects=defects, **_given(SimConfig, args))


def _given(kind: type, args: argparse.Namespace) -> dict[str, Any]:
    """The fields of a class for which options were given."""
    found = {field.name: getattr(args, field.name, None) for field in fields(kind)}
    return {name: value for name, value in found.items() if value is not None}


def _outputs(args: argparse.Namespace) -> dict[str, str | None]:
    """Paths of the files, checked before any work."""
    ending = next((ending for ending in (".fits.gz", ".fits") if args.output.endswith(ending)), "")
    stem, extension = args.output.removesuffix(ending), ending or ".fits"
    paths = {"image": args.output, "psf": args.psf_out or f"{stem}-psf{extension}",
             "truth": args.truth_out or f"{stem}-truth{extension}", "true_psf": args.true_psf, "raw": args.raw,
             "reference": args.reference, "perf": args.perf}
    wanted = {name: None if path == NONE else path for name, path in paths.items()}
    check_targets({name: path for name, path in wanted.items() if path is not None}, plain=("perf",))
    return wanted


def simulate_frame(args: argparse.Namespace) -> int:
    """After parsing: simulate, write, and report."""
    check_threads(args.threads)
    check_memory()
    config = config_of(args)
    paths = _outputs(args)
    grid = _reference_grid(args, config)
    from gpu_extract.cli.compiling import counted_compiling
    from gpu_extract.io.frame import write_frame
    from gpu_extract.perf.record import whole
    from gpu_extract.perf.recorder import Recorder
    from gpu_extract.simulate import simulate, write_simulation

    recorder = Recorder()
    with counted_compiling(0, args.loglevel, recorder):
        simulation = simulate(config, threads=args.threads, recorder=recorder, progress=_progress)
        with recorder.span("write"):
            write_simulation(simulation, str(paths["image"]), psf=paths["psf"], truth=paths["truth"],
                             true_psf=paths["true_psf"], raw=paths["raw"])
        if grid is not None:
            from gpu_extract.simulate.reference import reference_frame

            with recorder.span("reference"):
                write_frame(str(paths["reference"]), reference_frame(simulation, grid, progress=_progress))
    _summary(simulation, paths, recorder)
    if paths["perf"] is not None:
        write_json(paths["perf"], whole([recorder.record()], facts(PROG, config)))
    return ExitCode.DONE


def _progress(stage: str, done: int, total: int) -> None:
    """Show all steps on a terminal, a few elsewhere."""
    if on_terminal() or done == total or done % max(total // 4, 1) == 0:
        show_progress(f"{stage}: {done} of {total}", last=done == total)


def _reference_grid(args: argparse.Namespace, config: "SimConfig") -> tuple[float, float, float] | None:
    """The grid of the reference, None if none is requested. Raises InputError if it reaches beyond the PSF, or if -w is
    given without a reference."""
    if args.reference is None:
        if args.wavelength is not None:
            raise InputError("-w is the grid of the reference: give --reference FILE too, or leave -w out (--truth-grid"
                             " is the grid of the truth)")
        return None
    from gpu_extract.config import ExtractConfig
    from gpu_extract.io.presets import camera_preset
    from gpu_extract.simulate.instrument import DETECTORS

    grid: tuple[float, float, float] | None = args.wavelength or args.truth_grid
    preset = camera_preset(config.camera)
    if grid is None and preset is not None and config.band != "tiny":
        grid = preset.wavelength
    if grid is None:
        raise InputError("--reference needs a wavelength grid for this camera: give -w first,last,step, e.g. "
                         "6020,6090,0.8")
    low, high = DETECTORS[config.band].wave
    first, last, step = ExtractConfig(wavelength=grid).wavelength
    if first < low or last > high:
        raise InputError(f"the reference's grid {first:g} to {last:g} A reaches beyond the PSF, {low:g} to {high:g} A; "
                         "give -w within it")
    return first, last, step


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
    for name in ("image", "psf", "truth", "true_psf", "raw", "reference"):
        if paths[name]:
            log.info(f"{name.replace('_', ' ')}: {paths[name]}")


if __name__ == "__main__":
    raise SystemExit(main())
