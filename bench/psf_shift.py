"""How far from the truth are the traces that gpu_psf shift finds in a science frame, and how long does it take?

usage: psf_shift.py [--cameras r,z,b] [--by 0.37,-0.5] [--seeds 1] [--program dark] [--exptime S] [--smallest]

Simulated exposures of whole cameras whose light lies --by pixels beside the given traces; --program bright is under the
moon. Prints CPU seconds on one core, the same in u (the time of a 2000 x 2000 dgemm of the same run), and the errors of
all traces on the CCD: the largest, the root mean square, and the largest that is claimed. For y also what the noise
must leave (Cramer and Rao) of a surface with these terms: the root mean square and the largest, from every sky line on
the CCD in every fibre, each known in wavelength, as bright as it is, over a flat continuum. --smallest is the camera
tiny: to see that this runs.
"""
import os
import sys
from pathlib import Path

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import numpy as np
from parsing import parser_of
from scipy.ndimage import median_filter
from scipy.special import ndtr
from yardstick import unit

from gpu_extract.io.lines import night_sky
from gpu_extract.perf.clock import cpu
from gpu_extract.simulate import SimConfig, Simulation, simulate
from gpu_extract.simulate.spectra import FIBRE_SKY, electrons_per_unit
from gpu_extract.spots import centres
from gpu_psf.series import series_at
from gpu_psf.shift.run import shift_psf
from gpu_psf.shift.surface import Surface, level


def least_errors(made: Simulation, shift: Surface) -> tuple[float, float]:
    """Root mean square and largest error in y that noise must leave, over the camera, pixels.

    A line's row profile is the normal one of its spot's width. Its position has the information sum of
    (electrons slope)^2 / variance over the rows; the variance is that of its light, of the continuum and of the read
    noise under the best weights across the fibre (2 sqrt(pi) widths).
    """
    psf, truth, sky = made.true_psf, made.truth, night_sky()
    low, high = psf.wavelength_range
    inside = (sky.lines > low) & (sky.lines < high)
    wave, strength = sky.lines[inside], sky.strengths[inside]
    fibres = 0, psf.nfibre
    y, after = (centres(psf, fibres, wave + by)[0] for by in (0.0, 0.5))
    on = (y > 0) & (y < psf.shape[0] - 1)
    wide_x, wide_y = (series_at(series, slice(*fibres), wave) for series in
                      (psf.cores[0].sigma_x, psf.cores[0].sigma_y))
    smooth = median_filter(truth.flux, size=(1, int(30 / truth.step)))
    at = np.clip(np.rint((wave - truth.wave[0]) / truth.step).astype(int), 0, len(truth.wave) - 1)
    continuum = smooth[:, at] / (2 * np.abs(after - y))
    light = truth.throughput[:, np.newaxis] * FIBRE_SKY * strength * electrons_per_unit(made.config, wave)
    read = float(np.median(made.read_noise)) ** 2 * 2 * np.sqrt(np.pi) * wide_x
    known = np.zeros(light.shape)
    for row in range(-7, 8):
        ends = [(row + side) / wide_y for side in (-0.5, 0.5)]
        share = ndtr(ends[1]) - ndtr(ends[0])
        slope = (np.exp(-ends[0] ** 2 / 2) - np.exp(-ends[1] ** 2 / 2)) / np.sqrt(2 * np.pi) / wide_y
        known += (light * slope) ** 2 / (continuum + read + light * share)
    terms = shift.basis(np.repeat(np.arange(psf.nfibre), len(wave)), np.tile(wave, psf.nfibre))
    covariance = np.linalg.inv(terms.T @ (terms * np.where(on, known, 0.0).ravel()[:, np.newaxis])
                               + np.linalg.inv(level(psf.nfibre, shift.ends, int(shift.orders.max())).covariance))
    variance = np.einsum("ni,ij,nj->n", shift.grid(), covariance, shift.grid())
    return float(np.sqrt(variance.mean())), float(np.sqrt(variance.max()))


def main() -> int:
    """Measure and print."""
    parser = parser_of(__doc__, cameras="r,z,b", by="0.37,-0.5", seeds=1, program="dark")
    parser.add_argument("--exptime", type=float, default=None)
    args = parser.parse_args()
    dx, dy = (float(word) for word in args.by.split(","))
    for camera in ["tiny"] if args.smallest else args.cameras.split(","):
        for seed in range(1, args.seeds + 1):
            made = simulate(SimConfig(camera=camera, flexure=(dx, dy), seed=seed, program=args.program,
                                      exptime=args.exptime))
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
            least = "y, Cramer-Rao: rms {:.4f}, largest {:.4f}".format(*least_errors(made, found.y))
            print(f"{camera}, seed {seed}: {spent:.2f} s, {spent / u:.1f} u; {'; '.join([*words, least])}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
