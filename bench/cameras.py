"""Are the spectra of b, r and z frames unbiased, with the errors that ivar says, and on the fast path?

usage: cameras.py [--nspec 50] [--from 0] [--smallest]

Simulated frames of three cameras, dark and bright, with cosmics and bad columns, then with 1 % of all pixels masked, a
dead amplifier, dead and broken fibres. Truth lies on the extraction's bins, ivar comes from the noiseless
expectation, so that pulls = (flux - R truth) sqrt(ivar) of unmasked bins are standard normal: their mean must lie
within 0.03 of 0 and their standard deviation within 0.02 of 1. Ends with exit code 1 where they do not.
--from: the first fibre; the edge of the CCD is at other wavelengths in the middle of the slit, and couplings differ.
"""
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import numpy as np
from parsing import parser_of

from gpu_extract.config import ExtractConfig
from gpu_extract.data import Array, Frame, Status
from gpu_extract.io.presets import presets
from gpu_extract.perf.recorder import Recorder
from gpu_extract.resolution import times_resolution
from gpu_extract.run import extract
from gpu_extract.simulate import Defects, SimConfig, simulate

WORSE = Defects(dead_amplifier="A", dead_fibres=(7,), broken_fibres=(12, 13), masked_fraction=0.01)
NDIAG = 30      # the core's R as far as it matters


def pulls_of(frame: Frame, truth: Array) -> Array:
    """(flux - R truth) sqrt(ivar) of the unmasked bins whose R is complete."""
    ndiag, nwave = frame.ndiag, len(frame.wave)
    good = (frame.mask == 0) & (frame.ivar > 0)
    good[:, :ndiag] = good[:, nwave - ndiag:] = False
    return ((frame.flux - times_resolution(frame.resolution, truth)) * np.sqrt(frame.ivar))[good]


def main() -> int:
    """Measure and print."""
    parser = parser_of(__doc__, nspec=50)
    parser.add_argument("--from", type=int, default=0, dest="first")
    args = parser.parse_args()
    print("camera program defects      bins  masked    mean      sd  status                      seconds")
    worst = 0
    for camera in ("r",) if args.smallest else ("b", "r", "z"):
        first, last, step = presets()[f"desi-{camera}"].wavelength
        # in the middle, where the dead amplifier ends
        wave = (first + 840.0, first + 1000.0, step) if args.smallest else (first, last, step)
        for program in ("dark",) if args.smallest else ("dark", "bright"):
            for name, defects in (("usual", Defects()), ("many", WORSE)):
                nspec, begin = (25, 0) if args.smallest else (args.nspec, args.first)
                made = simulate(SimConfig(camera=camera, nspec=begin + nspec, program=program, truth_grid=wave,
                                          defects=defects, crop=True))
                recorder = Recorder()
                with recorder.span("all"):
                    settings = ExtractConfig(wave, ndiag=NDIAG, specmin=begin, nspec=nspec)
                    frame = extract(made.image, made.psf, settings, recorder=recorder)
                start = int(np.argmin(np.abs(made.truth.wave - frame.wave[0])))
                pulls = pulls_of(frame, made.truth.flux[begin:, start:start + len(frame.wave)].astype(float))
                states = ", ".join(f"{Status(s).name} {100 * np.mean(frame.status == s):.1f}%"
                                   for s in np.unique(frame.status))
                mean, spread = float(pulls.mean()), float(pulls.std())
                noise = 3 / np.sqrt(len(pulls))
                bad = abs(mean) > 0.03 + noise * args.smallest or abs(spread - 1) > 0.02 + noise * args.smallest
                worst |= int(bad)
                print(f"{camera:6s} {program:7s} {name:7s} {len(pulls):9d} {100 * np.mean(frame.mask > 0):6.1f}% "
                      f"{mean:7.4f} {spread:7.4f}  {states:26s}  {recorder.seconds('all'):.1f}{'  BAD' if bad else ''}")
    return worst


if __name__ == "__main__":
    sys.exit(main())
