"""What do tabulated spots cost beside Gauss-Hermite spots, and how far are the spectra apart?

usage: tabulated.py [--psf FILE] [--waves 6] [--positions 2] [--repeat 5] [--smallest]

One bundle of 25 fibres of a simulated r frame, one thread, extracted by turns with the PSF that made the frame and
with a table of it: CPU seconds of the spots alone and of the whole extraction, the best of each. Differences are in
units of the error. --psf takes the spots of a real PSF, for the comparison of spots alone.
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
from gpu_extract.data import PsfModel
from gpu_extract.io.psf import read_psf
from gpu_extract.perf.recorder import Recorder
from gpu_extract.run import extract
from gpu_extract.simulate import SimConfig, simulate
from gpu_extract.spots import make_spots, select
from gpu_extract.spots.tables import tabulated

WAVES = np.linspace(5760.0, 7620.0, 101)


def compare_spots(psf: PsfModel, table: PsfModel) -> None:
    """Print how far spots are apart, in shares of the peak."""
    pair = [make_spots(p, (0, p.nfibre), WAVES).stamps for p in (psf, table)]
    apart = np.abs(pair[1] - pair[0]).max(axis=(2, 3)) / pair[0].max(axis=(2, 3))
    print(f"spots: largest difference in shares of the peak, median {np.median(apart):.2e}, most {apart.max():.2e}")


def main() -> None:
    """Measure and print."""
    args = parser_of(__doc__, psf=None, waves=6, positions=2, repeat=5).parse_args()
    if args.psf:
        psf = select(read_psf(args.psf), range(3 if args.smallest else 25))
        compare_spots(psf, tabulated(psf, args.waves, (args.positions, args.positions)))
        return
    made = simulate(SimConfig(camera="r", nspec=25, crop=True))
    config = ExtractConfig((5760.0, 5840.0 if args.smallest else 7620.0, 0.8), nspec=25)
    psfs = {"Gauss-Hermite": made.psf, "table": tabulated(made.psf, args.waves, (args.positions, args.positions))}
    wave = np.arange(5760.0, config.wavelength[1], 0.8)
    compare_spots(*(select(psf, range(25)) for psf in psfs.values()))
    recorder, frames = Recorder(), {}
    for turn in range(args.repeat + 1):
        for name, psf in psfs.items():
            warm = " (first)" if turn == 0 else ""
            with recorder.span(f"{name}: spots{warm}"):
                make_spots(psf, (0, 25), wave)
            with recorder.span(f"{name}: all{warm}"):
                frames[name] = extract(made.image, psf, config)
    for what in ("spots", "all"):
        best = [min(span[4] for span in recorder.record()["spans"] if span[0] == f"{name}: {what}") for name in psfs]
        print(f"{what}: {best[0]:.3f} s of CPU with Gauss-Hermite, {best[1]:.3f} s with the table, "
              f"ratio {best[1] / best[0]:.2f}")
    one, other = frames.values()
    apart = np.abs(one.flux - other.flux) * np.sqrt(one.ivar)
    signal = np.median(one.flux * np.sqrt(one.ivar))
    print(f"spectra: median {np.median(apart):.4f}, most {apart.max():.3f} sigma at a median S/N of {signal:.0f}; "
          f"chi2pix {np.median(other.chi2pix / one.chi2pix):.4f} of the other's")


if __name__ == "__main__":
    main()
