"""What does the PSF of a whole camera take, from a simulated arc's file to the PSF's?

usage: psf_camera.py [--camera r] [--ranks 2] [--smallest]

gpu_psf fit as a program, all bundles on --ranks ranks with one thread each, traces off by 1 and -2 pixels. Prints
seconds of the wall clock and of all CPUs, and both in u: the time of a 2000 x 2000 dgemm, the mean of before and after.
On a machine with other work the CPU's are the ones to look at: divided by the ranks they are what the wall clock would
show.
--smallest is the camera tiny: to see that this runs.
"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import numpy as np
from parsing import parser_of
from psf_errors import cold, make_arc, uneven_lines
from yardstick import unit

from gpu_extract.io.image import write_image
from gpu_extract.io.psf import write_psf
from gpu_extract.perf.clock import now
from gpu_extract.simulate.instrument import psf_model
from ranks import ENVIRONMENT, launcher, program


def simulated(folder: str, camera: str) -> list[str]:
    """Make an arc and a PSF that is off; the options that say which they are."""
    arc, psf = (os.path.join(folder, name) for name in ("arc.fits", "arc-psf.fits"))
    words = [*program("gpu_simulate"), "-o", arc, "--camera", camera, "--flavor", "arc", "--exact-lines",
             "--flexure", "1,-2", "--threads", "1"]
    subprocess.run(words, check=True, env=ENVIRONMENT, capture_output=True)
    return ["-i", arc, "-p", psf]


def small(folder: str) -> list[str]:
    """The same of the camera tiny, in whose range the lamps have too few lines."""
    arc, psf, text = (os.path.join(folder, name) for name in ("arc.fits", "arc-psf.fits", "lines.txt"))
    true, lines = psf_model("tiny"), uneven_lines()
    image = make_arc(true, (0, true.nfibre), (lines.wave, lines.strength), 1)
    write_image(arc, image, mask=np.zeros(image.shape, np.int32), read_noise=image.noise)
    write_psf(psf, cold(true, 3, rough=0.1))
    Path(text).write_text("\n".join(f"{wave:.6f}" for wave in lines.wave), encoding="utf-8")
    return ["-i", arc, "-p", psf, "--lines", text]


def main() -> int:
    """Measure and print."""
    args = parser_of(__doc__, camera="r", ranks=2).parse_args()
    camera = "tiny" if args.smallest else args.camera
    with tempfile.TemporaryDirectory() as folder:
        inputs = small(folder) if args.smallest else simulated(folder, camera)
        fit = [*launcher(args.ranks), *program("gpu_psf"), "fit", *inputs, "-o", os.path.join(folder, "fitted.fits")]
        u, start, before = unit(), now(), os.times()
        done = subprocess.run(fit, check=False, env=ENVIRONMENT, capture_output=True, text=True)
        wall, after = now() - start, os.times()
        u = (u + unit()) / 2
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    print(done.stderr.strip().splitlines()[-1])
    print(f"{camera}, {args.ranks} ranks: {wall:.1f} s = {wall / u:.0f} u; CPU {spent:.1f} s = {spent / u:.0f} u, "
          f"{spent / u / args.ranks:.0f} u a rank; u {u:.3f} s")
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(main())
