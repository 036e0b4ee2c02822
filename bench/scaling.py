"""Does the time grow linearly with fibres and with bins?

usage: scaling.py [--repeat 3] [--plot FILE.png] [--smallest]

One process, simulated frames in memory: fibres 25 ... 500 of the r camera at 2326 bins, and bins 500 ... 5000 of one
bundle of the z camera, whose range is the longest, in steps of 0.46 Angstrom. Prints seconds per unit, and the largest
departure from the straight line through the points that departs least from them, relative to each.
"""
import argparse
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from gpu_extract.config import ExtractConfig
from gpu_extract.perf.recorder import Recorder
from gpu_extract.run import extract
from gpu_extract.simulate import SimConfig, simulate

STEP = 0.46      # Angstrom


def seconds(made: object, config: ExtractConfig, repeat: int) -> float:
    """Best CPU seconds of an extraction."""
    best = np.inf
    for _ in range(repeat):
        recorder = Recorder()
        with recorder.span("all"):
            extract(made.image, made.psf, config, recorder=recorder)     # type: ignore[attr-defined]
        best = min(best, next(s[4] for s in recorder.record()["spans"] if s[0] == "all"))
    return float(best)


def report(name: str, sizes: list[int], times: list[float]) -> None:
    """A table, and how straight the line is."""
    line = np.polynomial.Polynomial.fit(sizes, times, 1, w=1 / np.array(times))
    print(f"{name:>8}  seconds  us per unit")
    for size, time in zip(sizes, times, strict=True):
        print(f"{size:8d} {time:8.3f} {1e6 * time / size:12.1f}")
    worst = max(abs(line(s) / t - 1) for s, t in zip(sizes, times, strict=True))
    print(f"largest departure from a straight line: {worst:.1%}")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--plot")
    parser.add_argument("--smallest", action="store_true")
    args = parser.parse_args()
    fibres, lengths = [25, 50, 100, 200, 350, 500], [500, 1000, 2000, 3500, 5000]
    grid = (5760.0, 7620.0, 0.8)
    if args.smallest:
        fibres, lengths, grid, args.repeat = [25, 50], [50, 100], (5760.0, 5800.0, 0.8), 1
    made = simulate(SimConfig(camera="r", nspec=max(fibres), crop=True))
    extract(made.image, made.psf, ExtractConfig(grid, nspec=25))
    by_fibres = [seconds(made, ExtractConfig(grid, nspec=n), args.repeat) for n in fibres]
    report("fibres", fibres, by_fibres)
    made = simulate(SimConfig(camera="z", nspec=25, crop=True))
    step = 0.8 if args.smallest else STEP
    grids = [(7521.0, 7521.0 + step * (n - 1), step) for n in lengths]
    extract(made.image, made.psf, ExtractConfig(grids[-1], nspec=25))
    by_bins = [seconds(made, ExtractConfig(grid, nspec=25), args.repeat) for grid in grids]
    report("bins", lengths, by_bins)
    if args.plot:
        from gpu_extract.figures.lines import line_plot
        line_plot(args.plot, {"fibres": (fibres, by_fibres), "bins": (lengths, by_bins)}, ylabel="CPU seconds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
