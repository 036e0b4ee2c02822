"""How well and how fast is the PSF of one bundle fitted to a simulated arc?

usage: psf_fit.py [--camera r] [--psf FILE] [--first 100] [--seeds 5] [--off 1,-2] [--cosmics 0] [--warm] [--smallest]

A cold start: traces off by --off pixels and bent, Gaussian spots of one width. Prints, for each seed, seconds on one
core and the same in u, the time of a 2000 x 2000 dgemm of the same run; chi squared; and the errors of the fitted PSF:
positions of spots (which is what traces are for) and stamps at 20 wavelengths in all fibres, shapes after positions
are matched, mean widths. Below stands what the noise must leave (Cramer and Rao), worked out from the information that
the pixels have about traces, widths and Gauss-Hermite terms together, fluxes unknown, and the ratio of the two.
--psf takes another true PSF than the simulator's. --smallest is one seed of the camera tiny: to see that this runs.
"""
import argparse
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))

import numpy as np  # noqa: E402
from psf_errors import Errors, Judge, cold, least_errors, make_arc, true_part, uneven_lines, whole_gh  # noqa: E402
from yardstick import unit  # noqa: E402

from gpu_extract.io.presets import camera_preset  # noqa: E402
from gpu_extract.io.psf import read_psf  # noqa: E402
from gpu_extract.perf.clock import cpu, now  # noqa: E402
from gpu_extract.perf.recorder import peak_memory  # noqa: E402
from gpu_extract.simulate.instrument import psf_model  # noqa: E402
from gpu_psf.data import FitConfig  # noqa: E402
from gpu_psf.fit import fit_bundle  # noqa: E402
from gpu_psf.lamp import shipped_lines  # noqa: E402
from gpu_psf.prepare import psf_of  # noqa: E402

COLUMNS = ("x", "y", "stamp", "shape", "width_x", "width_y", "farthest")


def row(label: str, values: dict[str, float]) -> None:
    """One line of the table."""
    print(f"{label:44s}" + "".join(f"{values[name]:>10.5f}" for name in COLUMNS))


def squares(errors: list[Errors]) -> dict[str, float]:
    """Root mean squares over runs, except for the widths, of which the mean is taken."""
    table = {name: np.array([asdict(each)[name] for each in errors]) for name in COLUMNS}
    return {name: float(values.mean() if name.startswith("width") else np.sqrt((values**2).mean()))
            for name, values in table.items()}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--camera", default="r")
    parser.add_argument("--psf", default=None)
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--off", default="1,-2")
    parser.add_argument("--cosmics", type=float, default=0.0, help="share of pixels with a cosmic ray, not masked")
    parser.add_argument("--warm", action="store_true", help="start with the true shapes")
    parser.add_argument("--smallest", action="store_true")
    args = parser.parse_args()
    if args.smallest:
        args.camera, args.first, args.seeds = "tiny", 0, 1
    true = whole_gh(read_psf(args.psf) if args.psf else psf_model(args.camera))
    fibres = (args.first, args.first + (5 if args.smallest else 25))
    ends = (6005.0, 6105.0) if args.smallest else camera_preset(f"{args.camera}0").wavelength[:2]
    lines = shipped_lines()
    if args.smallest:
        lines = uneven_lines()
    off = tuple(float(word) for word in args.off.split(","))
    start = cold(true, 3, off, gaussian=not args.warm)
    judge = Judge(true_part(true, fibres), np.linspace(*ends, 20))
    print(f"{'':44s}" + "".join(f"{name:>10s}" for name in COLUMNS))
    errors, units = [], []
    for seed in range(1, args.seeds + 1):
        image = make_arc(true, fibres, (lines.wave, lines.strength), seed)
        if args.cosmics:
            random = np.random.default_rng(seed + 1000)
            hit = random.random(image.pix.shape) < args.cosmics
            image.pix[hit] += 100 + random.exponential(2000, hit.sum())
        u, began, wall = unit(), cpu(), now()
        fit = fit_bundle([image], start, fibres, lines, FitConfig())
        spent, wall = cpu() - began, now() - wall
        units.append(spent / u)
        errors.append(judge.errors(psf_of(fit.frame, fit.state.now)))
        freedom = fit.state.npixel - len(fit.task.spots) - fit.state.now.vector().size
        row(f"seed {seed}: {spent:.2f} s ({wall:.2f} wall) {spent / u:.1f} u, chi2 {fit.state.chi2 / freedom:.4f}",
            asdict(errors[-1]))
    least = least_errors(replace(fit), true, judge)
    found, bound = squares(errors), squares(least)
    row("all seeds", found)
    row("Cramer-Rao", {**bound, **{name: float(np.std([asdict(e)[name] for e in least])) for name in COLUMNS
                                   if name.startswith("width")}})
    print("ratio" + " " * 39 + "".join(f"{found[name] / bound[name]:>10.3f}" if not name.startswith("width") else
                                       f"{'':>10s}" for name in COLUMNS))
    print(f"median {np.median(units):.1f} u; {int(fit.task.firm.sum())} spots, median S/N "
          f"{np.median((fit.state.flux / np.sqrt(fit.state.variance))[fit.task.firm]):.0f}; "
          f"peak memory {peak_memory() / 1e9:.2f} GB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
