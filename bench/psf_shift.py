"""How far from the truth are the traces that gpu_psf shift finds in a science frame, and how long does it take?

usage: psf_shift.py [--cameras r,z,b] [--by 0.37,-0.5] [--seeds 1] [--smallest]

Simulated dark exposures of whole cameras whose light lies --by pixels beside the given traces. Prints CPU seconds on
one core, the same in u (the time of a 2000 x 2000 dgemm of the same run), and the errors of all traces on the CCD: the
largest, the root mean square, and the largest that is claimed. --smallest is the camera tiny: to see that this runs.
"""
import argparse
import os
import sys
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))

import numpy as np  # noqa: E402
from yardstick import unit  # noqa: E402

from gpu_extract.perf.clock import cpu  # noqa: E402
from gpu_extract.simulate import SimConfig, simulate  # noqa: E402
from gpu_extract.spots import centres  # noqa: E402
from gpu_psf.shift.run import shift_psf  # noqa: E402


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cameras", default="r,z,b")
    parser.add_argument("--by", default="0.37,-0.5")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--smallest", action="store_true")
    args = parser.parse_args()
    dx, dy = (float(word) for word in args.by.split(","))
    for camera in ["tiny"] if args.smallest else args.cameras.split(","):
        for seed in range(1, args.seeds + 1):
            made = simulate(SimConfig(camera=camera, flexure=(dx, dy), seed=seed))
            shift_psf(made.image, made.psf)                     # compiled kernels are loaded
            u, start = unit(), cpu()
            found = shift_psf(made.image, made.psf)
            spent = cpu() - start
            wave = np.linspace(*made.psf.wavelength_range, 40)
            fibres = 0, made.psf.nfibre
            right = centres(made.true_psf, fibres, wave)
            on = (right[0] > 0) & (right[0] < made.psf.shape[0] - 1)
            errors = centres(found.psf, fibres, wave) - right
            words = [f"{axis}: largest {np.abs(error[on]).max():.4f}, rms {np.sqrt((error[on]**2).mean()):.4f}, "
                     f"claimed {shift.error():.4f}"
                     for axis, error, shift in zip("yx", errors, (found.y, found.x), strict=True)]
            print(f"{camera}, seed {seed}: {spent:.2f} s, {spent / u:.1f} u; {'; '.join(words)}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
