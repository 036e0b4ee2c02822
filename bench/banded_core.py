"""What does the banded core agree with, and what do its checks cost?

usage: banded_core.py [--image FILE --psf FILE] [--broad-image FILE --broad-psf FILE]
                      [--broad-range 6500,6700,1.0] [--repeat 3] [--smallest]

One bundle of 25 fibres; without files a simulated r frame. Prints
- the difference to the dense core with a pad of 60 bins, in sigma: the share of bins within 1e-7, and the largest;
- the time of the self-checks (residual of x with all of icov; Q against S) as a share of the whole extraction;
- with --broad-*: the time of a broad PSF with strong tails (GAUSS-HERMITE2), in u, scaled to 25 x 2326 bins.
u is the time of a 2000x2000 float64 dgemm on one core of the same run; CPU seconds, best of the repeats.
"""
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import numpy as np
from parsing import parser_of
from yardstick import cpu_seconds, unit

from gpu_extract import solve as solver
from gpu_extract.bundle import dense_part, locate, make_normal
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Image, PsfModel
from gpu_extract.decorrelate import banded
from gpu_extract.decorrelate.narrow import simd_finish
from gpu_extract.io.image import read_image
from gpu_extract.io.psf import read_psf
from gpu_extract.perf.clock import cpu
from gpu_extract.perf.recorder import NULL
from gpu_extract.ranks.comm import SERIAL
from gpu_extract.run import extract, prepare
from gpu_extract.simulate import SimConfig, simulate
from gpu_extract.solve import simd_strengths, simd_substitute

PAD = 60


def against_dense(image: Image, psf: PsfModel, config: ExtractConfig) -> None:
    """The banded core's flux and that of dense patches with a wide pad, on the same x."""
    job = prepare(psf, config)
    job = replace(job, decay=replace(job.decay, patch=PAD))
    fibres = job.plan.bundles[0]
    _, normal = make_normal(job, locate(image, job, fibres), group=SERIAL, recorder=NULL)
    x, inner = solver.solve(normal).x, job.plan.inner
    fast = banded.decorrelate(normal, x, fibres, ndiag=job.ndiag)
    slow = dense_part(normal, x, job, fibres)
    sigma = np.abs(fast.flux[:, inner] - slow.flux) * np.sqrt(slow.ivar)
    print(f"against the dense core with a pad of {PAD}: {sigma.size} bins, {100 * np.mean(sigma <= 1e-7):.2f} % within "
          f"1e-7 sigma, median {np.median(sigma):.1e}, largest {sigma.max():.1e}")


class Timed:
    """A function that adds up its CPU seconds."""

    def __init__(self, function: Callable[..., object]):
        self.function, self.seconds = function, 0.0

    def __call__(self, *args: object) -> object:
        """Call it."""
        start = cpu()
        result = self.function(*args)
        self.seconds += cpu() - start
        return result


def cost_of_checks(image: Image, psf: PsfModel, config: ExtractConfig, repeat: int) -> None:
    """Time of what checks.

    The residual's pass also notes how strongly bins are coupled, and `finish_narrow` makes flux, ivar and R: that
    counts against us here.
    """
    whole = cpu_seconds(lambda: extract(image, psf, config), repeat)
    names = (simd_strengths, "multiply"), (simd_substitute, "size_of"), (simd_finish, "finish_narrow")
    shares = np.full(len(names), np.inf)
    for _ in range(repeat):
        timed = [Timed(getattr(module, name)) for module, name in names]
        originals = [t.function for t in timed]
        for (module, name), stand_in in zip(names, timed, strict=True):
            setattr(module, name, stand_in)
        try:
            extract(image, psf, config)
        finally:
            for (module, name), original in zip(names, originals, strict=True):
                setattr(module, name, original)
        shares = np.minimum(shares, [t.seconds / whole for t in timed])
    print("self-checks: residual of x {:.1f} %, its size {:.1f} %, Q against S (with flux, ivar, R) {:.1f} %, "
          "together {:.1f} % of the extraction".format(*(100 * shares), 100 * shares.sum()))


def broad(image: Image, psf: PsfModel, wavelength: tuple[float, float, float], u: float, repeat: int) -> None:
    """The broad PSF's time."""
    config = ExtractConfig(wavelength, nspec=25)
    frame = extract(image, psf, config)
    seconds = cpu_seconds(lambda: extract(image, psf, config), repeat)
    solved = 25 * len(prepare(psf, config).plan.extended)     # a short range has wide pads: they are work as well
    print(f"broad PSF: {frame.flux.size} bins ({solved} solved for) in {seconds:.2f} s, "
          f"{seconds / u * 25 * 2326 / solved:.1f} u scaled to 25 x 2326 bins")


def main() -> int:
    """Measure and print."""
    parser = parser_of(__doc__, broad_range="6500,6700,1.0", repeat=3)
    for name in ("--image", "--psf", "--broad-image", "--broad-psf"):
        parser.add_argument(name)
    args = parser.parse_args()
    config = ExtractConfig((5760.0, 5800.0 if args.smallest else 7620.0, 0.8), nspec=5 if args.smallest else 25)
    if args.image:
        image, psf = read_image(args.image), read_psf(args.psf)
    else:
        made = simulate(SimConfig(camera="r", nspec=config.nspec, crop=True))
        image, psf = made.image, made.psf
    repeat = 1 if args.smallest else args.repeat
    extract(image, psf, config)
    u = unit(repeat)
    print(f"u: {1e3 * u:.0f} ms")
    against_dense(image, psf, config)
    cost_of_checks(image, psf, config, repeat)
    if args.broad_image:
        first, last, step = (float(value) for value in args.broad_range.split(","))
        broad(read_image(args.broad_image), read_psf(args.broad_psf), (first, last, step), u, repeat)
    return 0


if __name__ == "__main__":
    sys.exit(main())
