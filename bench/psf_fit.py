"""How well and how fast is the PSF of one bundle fitted to a simulated arc?

usage: psf_fit.py [--camera r] [--psf FILE] [--first 100] [--seeds 5] [--off 1,-2] [--cosmics 0] [--warm] [--extract]
                  [--smallest] [--keep FILE] [--seconds N]

A cold start: traces off by --off pixels and bent, Gaussian spots of one width. Prints, for each seed, seconds on one
core and the same in u, the time of a 2000 x 2000 dgemm of the same run; chi squared; and the errors of the fitted PSF:
positions of spots (which is what traces are for) and stamps at 20 wavelengths in all fibres, shapes after positions
are matched, mean widths. Below stands what the noise must leave (Cramer and Rao), worked out from the information that
the pixels have about traces, widths and Gauss-Hermite terms together, fluxes unknown, and the ratio of the two.
--psf takes another true PSF than the simulator's. --camera takes several, e.g. r,b,z. --smallest is one seed of the
camera tiny: to see that this runs.

--keep FILE (JSON) keeps each seed of each camera as it is done, under the options it was made with. The same command
takes those from there and goes on; --seconds N begins no seed after so many seconds. The end is of all
seeds that are there.

--extract: extract a simulated dark exposure of the bundle, too, with the fitted PSF and with the true one, both with an
error of 0.001. Prints the median difference of fluxes in standard deviations, and the means of chi2pix of both.
"""
import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import numpy as np
from parsing import parser_of
from psf_errors import Judge, add_cosmics, cold, least_errors, make_arc, true_part, uneven_lines, whole_gh
from yardstick import unit

from gpu_extract import ExtractConfig, extract
from gpu_extract.data import PsfModel
from gpu_extract.io.presets import camera_preset
from gpu_extract.io.psf import read_psf
from gpu_extract.perf.clock import cpu, now
from gpu_extract.perf.recorder import peak_memory
from gpu_extract.simulate import SimConfig, simulate
from gpu_extract.simulate.instrument import psf_model
from gpu_psf.data import FitConfig
from gpu_psf.fit import fit_bundle
from gpu_psf.lamp import shipped_lines
from gpu_psf.prepare import psf_of

COLUMNS = ("x", "y", "stamp", "shape", "width_x", "width_y", "farthest")


def row(label: str, values: dict[str, float]) -> None:
    """One line of the table."""
    print(f"{label:44s}" + "".join(f"{values[name]:>10.5f}" for name in COLUMNS))


def squares(errors: Sequence[dict[str, float]]) -> dict[str, float]:
    """Root mean squares over runs, except for the widths, of which the mean is taken."""
    table = {name: np.array([each[name] for each in errors]) for name in COLUMNS}
    return {name: float(values.mean() if name.startswith("width") else np.sqrt((values**2).mean()))
            for name, values in table.items()}


def extracted(camera: str, fibres: tuple[int, int], seed: int, psfs: tuple[PsfModel, PsfModel]) -> dict[str, float]:
    """A science frame of the bundle with the fitted and the true PSF (of the bundle's fibres)."""
    made = simulate(SimConfig(camera=camera, specmin=fibres[0], nspec=fibres[1] - fibres[0], seed=seed))
    grid = (6010.0, 6100.0, 0.8) if camera == "tiny" else camera_preset(f"{camera}0").wavelength
    config = ExtractConfig(wavelength=grid, bundlesize=fibres[1] - fibres[0], psferr=0.001)
    image = replace(made.image, fibermap=None)
    ours, right = (extract(image, replace(psf, bundle=None), config) for psf in psfs)
    good = (ours.mask == 0) & (right.mask == 0)
    apart = np.abs(ours.flux - right.flux) * np.sqrt(right.ivar)
    return {"apart": float(np.median(apart[good])), "ours": float(ours.chi2pix[good].mean()),
            "right": float(right.chi2pix[good].mean())}


class Kept:
    """Results of seeds in a file, by the options they were made with; in memory where no file is given."""

    def __init__(self, path: str | None):
        self._path = Path(path) if path else None
        self.all: dict[str, Any] = json.loads(self._path.read_text()) if self._path and self._path.exists() else {}

    def of(self, options: str) -> dict[str, Any]:
        """What is known with these options: "seeds" by their number, "bound" once there was one."""
        return self.all.setdefault(options, {"seeds": {}})

    def write(self) -> None:
        """Keep it, whole or not at all."""
        if self._path:
            new = self._path.with_suffix(".new")
            new.write_text(json.dumps(self.all, indent=1))
            new.replace(self._path)


def one_camera(camera: str, args: argparse.Namespace, known: dict[str, Any], keep: Callable[[], None],
               until: float) -> None:
    """The seeds of a camera that are not known yet, then the table of all."""
    true = whole_gh(read_psf(args.psf) if args.psf else psf_model(camera))
    fibres = (args.first, args.first + (5 if args.smallest else 25))
    ends = (6005.0, 6105.0) if args.smallest else camera_preset(f"{camera}0").wavelength[:2]
    lines = uneven_lines() if args.smallest else shipped_lines()
    off = tuple(float(word) for word in args.off.split(","))
    start = cold(true, 3, off, gaussian=not args.warm)
    judge = Judge(true_part(true, fibres), np.linspace(*ends, 20))
    print(f"{'camera ' + camera:44s}" + "".join(f"{name:>10s}" for name in COLUMNS))
    for seed in range(1, args.seeds + 1):
        if str(seed) not in known["seeds"]:
            if now() > until:
                continue
            image = make_arc(true, fibres, (lines.wave, lines.strength), seed)
            if args.cosmics:
                add_cosmics(image.pix, args.cosmics, seed + 1000)
            u, began, wall = unit(), cpu(), now()
            fit = fit_bundle([image], start, fibres, lines, FitConfig())
            spent, wall = cpu() - began, now() - wall
            freedom = fit.state.npixel - len(fit.task.spots) - fit.state.now.vector().size
            known["seeds"][str(seed)] = {"s": spent, "wall": wall, "u": spent / u, "chi2": fit.state.chi2 / freedom,
                                         **asdict(judge.errors(psf_of(fit.frame, fit.state.now)))}
            if args.extract:
                known["seeds"][str(seed)]["frame"] = extracted(
                    camera, fibres, seed, (psf_of(fit.frame, fit.state.now), true_part(true, fibres)))
            if "bound" not in known:
                known["bound"] = [asdict(each) for each in least_errors(fit, true, judge)]
                known["spots"] = int(fit.task.firm.sum())
                signal = fit.state.flux / np.sqrt(fit.state.variance)
                known["signal"] = float(np.median(signal[fit.task.firm]))
            keep()
        made = known["seeds"][str(seed)]
        row(f"seed {seed}: {made['s']:.2f} s ({made['wall']:.2f} wall) {made['u']:.1f} u, chi2 {made['chi2']:.4f}",
            made)
        if "frame" in made:
            print("    extracted: median difference {apart:.4f} sigma, chi2pix {ours:.4f}, with the true PSF "
                  "{right:.4f}".format(**made["frame"]))
    if known["seeds"]:
        pooled(known)


def pooled(known: dict[str, Any]) -> None:
    """All seeds, the bound, and the ratio of the two."""
    seeds = list(known["seeds"].values())
    found, bound = squares(seeds), squares(known["bound"])
    row(f"all {len(seeds)} seeds", found)
    row("Cramer-Rao", {**bound, **{name: float(np.std([each[name] for each in known["bound"]])) for name in COLUMNS
                                   if name.startswith("width")}})
    print("ratio" + " " * 39 + "".join(f"{found[name] / bound[name]:>10.3f}" if not name.startswith("width") else
                                       f"{'':>10s}" for name in COLUMNS))
    u, chi2 = (np.array([each[name] for each in seeds]) for name in ("u", "chi2"))
    print(f"median {np.median(u):.1f} u, chi2 {chi2.mean():.4f}; {known['spots']} spots, "
          f"median S/N {known['signal']:.0f}; peak memory {peak_memory() / 1e9:.2f} GB",
          flush=True)


def main() -> int:
    """Measure and print."""
    parser = parser_of(__doc__, camera="r", psf=None, first=100, seeds=5, off="1,-2", extract=False, seconds=np.inf)
    parser.add_argument("--cosmics", type=float, default=0.0, help="share of pixels with a cosmic ray, not masked")
    parser.add_argument("--warm", action="store_true", help="start with the true shapes")
    parser.add_argument("--keep", default=None, metavar="FILE")
    args = parser.parse_args()
    if args.smallest:
        args.camera, args.first, args.seeds = "tiny", 0, 1
    kept, until = Kept(args.keep), now() + args.seconds
    for camera in args.camera.split(","):
        options = " ".join(str(word) for word in (camera, args.psf, args.first, args.off, args.cosmics, args.warm))
        options += " extract" * args.extract
        one_camera(camera, args, kept.of(options), kept.write, until)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
