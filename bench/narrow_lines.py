"""Lines narrower than a bin, or hardly broader, anywhere between two: how far off each pass leaves them.

usage: narrow_lines.py [--frames 3] [--smallest]

Small frames with Gaussian lines of one width and charge (electrons) each, 14 bins apart, 0 to half a bin off a bin's
centre, on 20 electrons a bin. Their truth is on the two bins around each part of a line, in proportion, times R. For
each width (FWHM in bins) and charge a row for one pass with ivar from the expected light, one with ivar from the noisy
pixels, two passes and three: the furthest of the 14 bins of a line, in errors, median and largest of all lines; the sum
over them against R times the truth, root mean square, in per cent of the line; its error by ivar, in per cent.
The last rows are of fibres with 20 electrons a bin beside such that have narrow lines: their ivar against that of one
pass with the expected light, median and 1 %, and the spread of their pulls.
"""
import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

sys.path.insert(0, str(Path(__file__).resolve().parent))
import numpy as np

from gpu_extract.bundle import Job
from gpu_extract.data import Image
from gpu_extract.passes.read_noise import find_read_noise
from gpu_extract.resolution import times_resolution
from gpu_extract.simulate import Simulation
from gpu_extract.simulate.noise import add_noise
from gpu_extract.spots import add_to_image, make_spots
from passes import TINY, small, solved

WAYS = ("true variance", "one pass", "two passes", "three passes")
APART, BELOW = 14, 20.0
AROUND = np.arange(-6, 8)       # bins of a line


def scene(made: Simulation, job: Job, width: float, charge: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The expected light, the truth (fibre, bin) photons, and the bins before the lines; charge: of each fibre's."""
    wave = job.plan.extended
    at = np.arange(22, len(wave) - 20, APART)
    parts = np.linspace(-3, 3, 41) * width / 2.3548
    shape = np.exp(-0.5 * np.linspace(-3, 3, 41) ** 2)
    places = at[:, None] + np.linspace(0, 0.5, len(at))[:, None] + parts
    share = np.tile(shape / shape.sum(), (len(at), 1))
    first, order = np.floor(places).astype(int), np.argsort(places, axis=None)
    line = np.zeros(len(wave))
    np.add.at(line, first, share * (first + 1 - places))
    np.add.at(line, first + 1, share * (places - first))
    truth, light = BELOW + charge[:, None] * line, np.zeros(made.image.shape)
    for f in range(len(charge)):
        add_to_image(light, make_spots(made.psf, (f, f + 1), wave), np.full((1, len(wave)), BELOW))
        lines = make_spots(made.psf, (f, f + 1), wave[0] + TINY[2] * places.ravel()[order])
        add_to_image(light, lines, charge[f] * share.ravel()[order][None])
    return light, truth, at


def off(made: Simulation, jobs: list[Job], light: np.ndarray, truth: np.ndarray, seed: int) -> list[np.ndarray]:
    """(3, fibre, bin) flux less R times the truth and its error, in photons, and ivar; of each way."""
    pix, read = np.empty(light.shape, np.float32), made.read_noise.astype(float)
    add_noise(pix, light, made.read_noise, seed=seed)
    found = []
    for way, job in enumerate(jobs):
        image = Image(pix, 1 / (read**2 + np.maximum(pix if way else light, 0)), noise=made.read_noise)
        noise = find_read_noise(image, made.psf.shape) if way > 1 else None
        flux, ivar, _, r = solved(image, replace(job, noise=noise))
        apart = TINY[2] * flux - times_resolution(r, truth[:, job.plan.inner])
        found.append(np.stack([apart, TINY[2] / np.sqrt(ivar), ivar]))
    return found


def main() -> int:
    """Print a row for each kind of line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=3)
    parser.add_argument("--smallest", action="store_true")
    args = parser.parse_args()
    widths, charges = (0.1, 0.5, 1.0, 2.0, 3.0), (1e2, 1e3, 1e4, 3.2e4, 1e5, 1e6)
    if args.smallest:
        widths, charges, args.frames = (0.1,), (3.2e4,), 1
    made, jobs = small(1)[0], [small(n)[1] for n in (1, 1, 2, 3)]
    inner, fibres = jobs[0].plan.inner, made.psf.nfibre
    for width in widths:
        for charge in charges:
            light, truth, at = scene(made, jobs[0], width, np.full(fibres, charge))
            bins = (at - inner.start)[:, None] + AROUND
            bins = bins[(bins >= 12).all(axis=1) & (bins < inner.stop - inner.start - 12).all(axis=1)]
            frames = [off(made, jobs, light, truth, seed) for seed in range(1, 1 + args.frames)]
            for way, each in zip(WAYS, map(np.array, zip(*frames, strict=True)), strict=True):
                apart, error = each[:, 0][..., bins], each[:, 1][..., bins]
                far = np.abs(apart / error).max(axis=-1)
                print(f"FWHM {width:3.1f} bins, {charge:8.0f} e, {way:13s}: furthest bin {np.median(far):7.2f}, at "
                      f"most {far.max():7.2f} errors; sum "
                      f"{100 * np.sqrt(np.square(apart.sum(-1)).mean()) / charge:6.2f} %, error "
                      f" {100 * np.sqrt(np.square(error).sum(-1).mean()) / charge:6.2f} %", flush=True)
    for charge in charges[-2:]:
        lit = np.arange(fibres) % 3 == 1
        light, truth, _ = scene(made, jobs[0], 0.1, np.where(lit, charge, 0.0))
        best, *ways = off(made, jobs, light, truth, 1)
        for way, each in zip(WAYS[1:], ways, strict=True):
            ratio = (each[2] / best[2])[~lit, 12:-12]
            print(f"beside lines of {charge:.0f} e, {way:13s}: ivar {np.median(ratio):.3f}, "
                  f"{np.quantile(ratio, 0.01):.3f}; spread of pulls "
                  f"{(each[0] / each[1])[~lit, 12:-12].std():.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
