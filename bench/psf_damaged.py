"""Is a PSF fitted, and are fibres flagged, where a start is far off and an arc is damaged?

usage: psf_damaged.py [--cameras r,b,z] [--seeds 1] [--first 100] [--only CASE] [--smallest]

One bundle of 25 fibres, from Gaussian spots of one width. Cases: traces that are off by 3 and 5 pixels; an amplifier (a
quarter of the CCD) that is dead, with a mask and without; two dead fibres and one with 5 % of the light; cosmic rays on
0.5 % of the pixels, which nobody masked; and all of them together. Prints the errors at 20 wavelengths of what is left
(lit rows, fibres that are said to be fitted or that only lack the amplifier), and their ratio to what noise must leave
there (Cramer and Rao, see psf_fit.py).

A case is right where fibres are flagged as they must be (dead: 2; the others 1 if half of their lines are gone, else 0,
the faint one 0 or 1) and the errors of positions, stamps and shapes are at most 1.3 times the bound: of one seed, 1.3
is the bar for 20 of them and 3 standard deviations of such a root mean square of 150 or more traces' coefficients.
The exit code is 1 where a case is not right. --smallest: all together on the camera tiny.
"""
import os
import sys
from pathlib import Path

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
from parsing import parser_of
from psf_damage import CASES, STATUS_OF, Case, judged, make_case
from psf_errors import root

from gpu_extract.simulate.instrument import psf_model
from gpu_psf.data import FitConfig
from gpu_psf.fit import fit_bundle

MOST = 1.3
NAMES = "x", "y", "stamp", "shape"


def one(case: Case) -> bool:
    """Fit a case and print how it went; whether it is right."""
    fit = fit_bundle([case.arc.image], case.arc.start, case.arc.fibres, case.arc.lines, FitConfig())
    found, least = judged(case, fit)
    ratios = [getattr(found, name) / root(least, name) for name in NAMES]
    flagged = all(state in STATUS_OF[kind] for state, kind in zip(fit.status, case.kinds, strict=True))
    right = flagged and max(ratios) <= MOST
    states = " ".join(str(state) for state in fit.status)
    print(f"{case.name:34s}" + "".join(f"{getattr(found, name):9.5f}" for name in NAMES)
          + "".join(f"{ratio:7.2f}" for ratio in ratios) + f"{100 * found.width_x:9.3f}{100 * found.width_y:9.3f}"
          + f"  {'right' if right else 'NOT RIGHT'}; status {states}", flush=True)
    return right


def main() -> int:
    """Measure and print."""
    parser = parser_of(__doc__, cameras="r,b,z", seeds=1, first=100)
    parser.add_argument("--only", choices=CASES)
    args = parser.parse_args()
    right = True
    for camera in ["tiny"] if args.smallest else args.cameras.split(","):
        print(f"{'camera ' + camera:34s}" + "".join(f"{name:>9s}" for name in NAMES)
              + "".join(f"{'/' + name:>7s}" for name in NAMES) + "  width x, width y (%)")
        fibres = (0, 5) if args.smallest else (args.first, args.first + 25)
        cases = [args.only] if args.only else ["together"] if args.smallest else CASES
        for seed in range(1, args.seeds + 1):
            for name in cases:
                right &= one(make_case(name, camera, psf_model(camera), fibres, seed))
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
