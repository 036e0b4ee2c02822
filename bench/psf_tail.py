"""How well are a tail's amplitude and a continuum found by gpu_psf fit?

usage: psf_tail.py [--camera z] [--first 100] [--seeds 3] [--amplitude 0.005] [--continuum 3] [--smallest]

One bundle of 25 fibres, from Gaussian spots of one width without a tail. The light has a tail (core 3, index 1.8) whose
amplitude grows by half along the range, in the stamps and beyond, as far as 60 pixels, and a continuum of so many
electrons in a row of a fibre, which falls by half. Prints for each seed the mean and the scatter of (amplitude found /
true - 1) over fibres and wavelengths and what noise must leave of both (Cramer and Rao, of all shapes and traces
together, fluxes unknown); the same of the continuum, without a bound; chi squared, and errors of positions and stamps
beside theirs, which are those of psf_fit.py. Under "none": the same fit without --tail. --smallest: the camera tiny.
"""
import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import numpy as np
from parsing import parser_of
from psf_errors import Errors, Judge, cold, least_errors, root, true_part, uneven_lines, whole_gh
from psf_tails import CORE, INDEX, rising_tail, tailed_arc

from gpu_extract.data import Array, PsfModel
from gpu_extract.io.presets import camera_preset
from gpu_extract.simulate.instrument import psf_model
from gpu_extract.spots import evaluate
from gpu_psf.data import FitConfig
from gpu_psf.fit import fit_bundle
from gpu_psf.lamp import shipped_lines
from gpu_psf.prepare import psf_of
from gpu_psf.series import legendre


class Tails:
    """Judges positions and stamps, and amplitudes of tails."""

    def __init__(self, true: PsfModel, wave: Array):
        self.judge, self.wave, self.true, self.found = Judge(true, wave), wave, self.of(true, wave), []

    @staticmethod
    def of(psf: PsfModel, wave: Array) -> Array:
        """(nfibre, nwave) amplitudes."""
        return evaluate(psf.tail.amp, (0, psf.nfibre), wave)

    def errors(self, psf: PsfModel) -> Errors:
        """See Judge; the amplitudes are kept."""
        self.found.append(self.of(psf, self.wave) / self.true - 1)
        return self.judge.errors(psf)


def one(true: PsfModel, fibres: tuple[int, int], args: argparse.Namespace, seed: int) -> None:
    """Fit an arc in both ways and print."""
    tiny = args.camera == "tiny"
    lines = uneven_lines() if tiny else shipped_lines()
    wave = np.linspace(*(6010.0, 6100.0) if tiny else camera_preset(f"{args.camera}0").wavelength[:2], 20)
    image, light = tailed_arc(true, fibres, lines, args.continuum, seed)
    start = replace(cold(true, 3, rough=0.1 if tiny else 0.2), tail=None)
    judge = Tails(true_part(true, fibres), wave)
    for label, config in (("tail", FitConfig(tail=(CORE, 1.0, 1.0, INDEX))),
                          ("none", FitConfig())):
        fit = fit_bundle([image], start, fibres, lines, config)
        psf = psf_of(fit.frame, fit.state.now)
        found = judge.judge.errors(psf)
        chi2 = fit.state.chi2 / (fit.state.npixel - len(fit.task.spots))
        glow = fit.continuum @ legendre(wave, fit.frame.range, fit.frame.wave).T / light(wave) - 1
        words = [f"seed {seed}, {label}: chi2 {chi2:.4f}; x {found.x:.5f}, y {found.y:.5f}, stamp {found.stamp:.5f}, "
                 f"shape {found.shape:.5f}; continuum {glow.mean():+.2%}, scatter {glow.std():.2%}"]
        if fit.frame.tail:
            away = judge.of(psf, wave) / judge.true - 1
            judge.found.clear()
            least = least_errors(fit, true, judge)
            words.append(f"amplitude {away.mean():+.2%}, rms {np.sqrt((away**2).mean()):.2%}; Cramer-Rao: "
                         f"{np.std([a.mean() for a in judge.found]):.2%}, "
                         f"{np.sqrt(np.mean(np.square(judge.found))):.2%}, " +
                         ", ".join(f"{name} {root(least, name):.5f}" for name in ("x", "y", "stamp", "shape")))
        print("; ".join(words), flush=True)


def main() -> int:
    """Measure and print."""
    args = parser_of(__doc__, camera="z", first=100, seeds=3, amplitude=0.005, continuum=3.0).parse_args()
    if args.smallest:
        args.camera, args.first, args.seeds = "tiny", 0, 1
    fibres = (args.first, args.first + (5 if args.smallest else 25))
    true = rising_tail(whole_gh(psf_model(args.camera)), args.amplitude)
    for seed in range(1, args.seeds + 1):
        one(true, fibres, args, seed)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
