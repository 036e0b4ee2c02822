"""Are the errors right? Pulls of many noisy frames against R times the truth, and what the diagonals of R lose.

usage: pulls.py [--camera r] [--nspec 25] [--simulations 200] [--dense 10] [--small 1000] [--threads 1] [--smallest]

One sky and one set of targets, --simulations noises. pull = (flux - R truth) sqrt(ivar) of unmasked bins, R with
twelve diagonals on each side (beyond, 5e-5 sigma). Four cases: the truth lives on the extraction's bins or on bins of
0.2 Angstrom (then summed into the extraction's); ivar comes from the noiseless expectation or from the noisy pixels.
Only the first is what the method promises to get right: mean 0, spread 1 (a line that is narrower than a bin has no
place in it: the fit then misses by more than the noise where it is bright). The dense core does --dense of them; edge:
the two bins on both sides of where its patches of 50 bins meet. "bright" are bins above 30 sigma. The exit code is 1
where the first case is off by more than 0.03 in the mean or 0.02 in the spread (and 5 times its scatter).

--small: so many noises of small frames, all bins that their PSF has, with R in full; by class of bins: at the edges of
the CCD (some of the spot off it, or five bins from that), beside masks (a block, a column, rows but for one pixel,
0.2 % at random, elsewhere in each of five frames), clean. With ivar from the expectation, unflagged bins must have
mean 0 and spread 1 within 0.01 in each class (and 5 times the scatter); flagged ones are reported. --simulations 0:
these alone.
"""
import argparse
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import numpy as np
from parsing import parser_of

from gpu_extract.config import ExtractConfig
from gpu_extract.data import Frame, Image, SpecMask
from gpu_extract.resolution import times_resolution
from gpu_extract.run import extract
from gpu_extract.simulate import SimConfig, Simulation, simulate
from gpu_extract.simulate.config import NO_DEFECTS
from gpu_extract.simulate.noise import add_noise

WAVELENGTH = {"b": (3600.0, 5800.0, 0.8), "r": (5760.0, 7620.0, 0.8), "z": (7520.0, 9824.0, 0.8),
              "tiny": (6012.0, 6092.0, 0.8)}
DIAGONALS = 12       # on each side of the R that the truth is multiplied by
STEP = 50            # bins of a patch of the dense core
BRIGHT = 30.0        # errors
MEAN, SPREAD = 0.03, 0.02
EVERY = (6000.0, 6109.6, 0.8)        # all bins of the tiny camera's PSF: the first and the last are off the CCD
NEAR = 5                             # bins
SCENES = 5                           # small frames
CLOSE = 0.01                         # mean and spread of small frames
FLAGS = np.uint32(SpecMask.WEAKBIN | SpecMask.NODATA | SpecMask.BADFIBER | SpecMask.ODDPIX)


@dataclass(frozen=True)
class Case:
    """name; truth on the extraction's bins, or finer; ivar from the expectation, or from the pixels; which core."""

    name: str
    on_grid: bool
    from_model: bool
    core: str


CASES = (Case("truth on the grid, ivar of the model", True, True, "auto"),
         Case("the same, dense core", True, True, "dense"),
         Case("truth on the grid, ivar of the data", True, False, "auto"),
         Case("truth on 0.2 A, ivar of the model", False, True, "auto"),
         Case("truth on 0.2 A, ivar of the data", False, False, "auto"))


def in_bins(made: Simulation, wave: np.ndarray) -> np.ndarray:
    """The truth's photons per Angstrom in bins around `wave`: (nspec, nwave)."""
    electrons, step = made.truth.electrons(), made.truth.step
    edges = np.append(made.truth.wave - step / 2, made.truth.wave[-1] + step / 2)
    wanted = np.append(wave - np.gradient(wave) / 2, wave[-1] + np.gradient(wave)[-1] / 2)
    total = np.concatenate([np.zeros((len(electrons), 1)), np.cumsum(electrons, axis=1)], axis=1)
    light = np.array([np.interp(wanted, edges, row) for row in total])
    return np.diff(light, axis=1) / np.diff(wanted)


def noisy(made: Simulation, seed: int, from_model: bool) -> Image:
    """The frame with one noise; every pixel is good."""
    pix = np.empty(made.image.shape, np.float32)
    add_noise(pix, made.expected, made.read_noise, seed=seed)
    light = made.expected if from_model else pix
    return Image(pix, 1 / (made.read_noise.astype(float) ** 2 + np.maximum(light, 0)))


def run(image: Image, made: Simulation, config: ExtractConfig, threads: int) -> Frame:
    """One extraction."""
    frame = extract(image, made.psf, config, threads=threads)
    assert frame is not None
    return frame


def losses(made: Simulation, config: ExtractConfig, diagonals: tuple[int, ...], threads: int) -> None:
    """Without noise: flux against R times the truth, by the number of diagonals that are stored."""
    image = Image(made.expected, made.image.ivar)
    print("what R's stored diagonals lose, noiselessly, in sigma (truth on the grid):")
    for ndiag in diagonals:
        frame = run(image, made, replace(config, ndiag=ndiag), threads)
        inner = slice(30, -30)
        lost = np.abs(frame.flux - times_resolution(frame.resolution, in_bins(made, frame.wave))) * np.sqrt(frame.ivar)
        sums = times_resolution(frame.resolution, np.ones(frame.flux.shape))[:, inner]
        low, high = np.quantile(sums, [0.01, 0.99])
        print(f"  {ndiag:3d} on each side: median {np.median(lost[:, inner]):.1e}, "
              f"99 % {np.quantile(lost[:, inner], 0.99):.1e}, largest {lost[:, inner].max():.1e}; rows sum to "
              f"{low:.5f} to {high:.5f} (1-99 %)")


def pulls_of(case: Case, made: Simulation, config: ExtractConfig, *, simulations: int,
             threads: int) -> tuple[np.ndarray, np.ndarray]:
    """Pulls and expected signal to noise of all unmasked bins: (simulations, nspec, nwave), masked bins NaN."""
    pulls, signal = [], []
    for seed in range(simulations):
        frame = run(noisy(made, seed, case.from_model), made, replace(config, core=case.core), threads)
        expected = times_resolution(frame.resolution, in_bins(made, frame.wave))
        error = np.where(frame.mask == 0, np.sqrt(frame.ivar), np.nan)
        pulls.append(((frame.flux - expected) * error).astype(np.float32))
        signal.append((expected * error).astype(np.float32))
    # beyond both ends the columns of R that a frame does not store belong to bins that have light
    return np.array(pulls)[..., DIAGONALS:-DIAGONALS], np.array(signal)[..., DIAGONALS:-DIAGONALS]


def report(case: Case, pulls: np.ndarray, signal: np.ndarray) -> bool:
    """Print a line; whether mean and spread are those promised."""
    place = (np.arange(pulls.shape[2]) + DIAGONALS + 2) % STEP < 4
    good = np.isfinite(pulls)
    every = pulls[good]
    parts = {"all": every, "edge": pulls[..., place][good[..., place]], "bright": pulls[good & (signal > BRIGHT)]}
    text = "  ".join(f"{name} {p.mean():+.4f} {p.std():.4f}" if len(p) else f"{name}    -      -  "
                     for name, p in parts.items())
    low, middle, high = np.quantile(every, [0.1587, 0.5, 0.8413])
    print(f"{case.name:38s} {len(pulls):4d} frames {len(every):9d} pulls: {text}  "
          f"median {middle:+.3f}, half of 16-84 % {(high - low) / 2:.3f}, beyond 3 {(np.abs(every) > 3).mean():.2%}",
          flush=True)
    scatter = 5 / np.sqrt(len(every))
    return bool(abs(every.mean()) < max(MEAN, scatter) and abs(every.std() - 1) < max(SPREAD, scatter))


def small_scene(seed: int) -> tuple[Simulation, Image]:
    """Five fibres without noise, all pixels good; and the same with masks."""
    made = simulate(SimConfig(camera="tiny", nspec=5, truth_grid=EVERY, noise=False, defects=NO_DEFECTS))
    ivar, rng = 1 / (made.read_noise.astype(float) ** 2 + np.maximum(made.expected, 0)), np.random.default_rng(seed)
    masked = np.where(rng.random(ivar.shape) < 0.002, 0, ivar)
    places = rng.integers((20, 10), (150, 40), (3, 2)).tolist()
    for (y, x), height, width in zip(places, (25, 40, 18), (10, 1, None), strict=True):
        masked[y:y + height, slice(x, x + width) if width else slice(None)] = 0
    (y, x) = places[2]
    masked[y + 9, x] = ivar[y + 9, x]
    return replace(made, psf=replace(made.psf, bundle=None)), Image(made.expected, masked)


def touched(fraction: np.ndarray) -> np.ndarray:
    """Bins of whose light something is masked, and NEAR on both sides."""
    found = fraction > 1e-6
    for _ in range(NEAR):
        found[:, 1:-1] |= found[:, :-2] | found[:, 2:]
    return found


def small_pulls(seed: int, simulations: int) -> tuple[dict[str, np.ndarray], dict[str, tuple[np.ndarray, np.ndarray]]]:
    """One small frame: class -> its bins; core -> pulls (simulations, 5, nwave), NaN without data, and which bins are
    flagged."""
    made, expected = small_scene(seed)
    full = ExtractConfig(EVERY, nspec=5, bundlesize=5, core="dense", nwavestep=200, ndiag=137)
    reference, whole = (run(Image(made.expected, ivar), made, full, 1)
                        for ivar in (expected.ivar, np.ones(made.image.shape)))
    wanted = times_resolution(reference.resolution, made.truth.electrons() / EVERY[2])
    at_edge = touched(np.asarray(whole.pixmask_fraction))
    beside = touched(np.asarray(reference.pixmask_fraction - whole.pixmask_fraction)) & ~at_edge
    found, pix = {}, np.empty(made.image.shape, np.float32)
    for core in ("auto", "dense"):
        pulls = np.empty((simulations, *wanted.shape), np.float32)
        for noise in range(simulations):
            add_noise(pix, made.expected, made.read_noise, seed=1000 * seed + noise)
            frame = run(Image(pix, expected.ivar), made, replace(full, core=core, ndiag=5), 1)
            pulls[noise] = np.where(frame.ivar > 0, (frame.flux - wanted) * np.sqrt(frame.ivar), np.nan)
        found[core] = pulls, (frame.mask & FLAGS) > 0
    return {"at the edges": at_edge, "beside masks": beside, "clean": ~at_edge & ~beside}, found


def small_frames(simulations: int) -> bool:
    """Print a line for each class of bins and core; whether mean and spread are right."""
    scenes = min(SCENES, simulations)
    each = [small_pulls(seed, -(-simulations // scenes)) for seed in range(scenes)]
    right = True
    for core in ("auto", "dense"):
        for name in each[0][0]:
            good, bad = (np.concatenate([found[core][0][:, classes[name] & (found[core][1] == which)].ravel()
                                         for classes, found in each]) for which in (False, True))
            good, bad = good[np.isfinite(good)], bad[np.isfinite(bad)]
            also = f"; flagged: {bad.size} of mean {bad.mean():+.4f}, spread {bad.std():.4f}" if bad.size else ""
            print(f"small frames, {core:5s} {name:13s} {good.size:7d} pulls: mean {good.mean():+.4f}, "
                  f"spread {good.std():.4f}{also}", flush=True)
            scatter = 5 / np.sqrt(good.size)
            right &= bool(abs(good.mean()) < max(CLOSE, scatter) and abs(good.std() - 1) < max(CLOSE, scatter))
    return right


def large_frames(args: argparse.Namespace) -> bool:
    """Print what diagonals lose, and a line for each case; whether those are right that are promised."""
    config = ExtractConfig(WAVELENGTH[args.camera], nspec=args.nspec, ndiag=DIAGONALS, nwavestep=STEP)
    sim = SimConfig(camera=args.camera, nspec=args.nspec, noise=False, defects=NO_DEFECTS, crop=True)
    truths = {True: simulate(replace(sim, truth_grid=config.wavelength)), False: simulate(sim)}
    losses(truths[True], config, (5, DIAGONALS) if args.smallest else (5, 8, DIAGONALS, 24), args.threads)
    print("pulls, mean and spread (promised, for the first two lines: 0 and 1):")
    right = True
    for case in CASES:
        count = args.dense if case.core == "dense" else args.simulations
        pulls, signal = pulls_of(case, truths[case.on_grid], config, simulations=count, threads=args.threads)
        right &= report(case, pulls, signal) or not (case.on_grid and case.from_model)
    return right


def main() -> int:
    """Measure and print."""
    parser = parser_of(__doc__, nspec=25, simulations=200, dense=10, small=1000, threads=1)
    parser.add_argument("--camera", default="r", choices=tuple(WAVELENGTH))
    args = parser.parse_args()
    if args.smallest:
        args.camera, args.nspec, args.simulations, args.dense, args.small = "tiny", 5, 2, 1, 2
    right = large_frames(args) if args.simulations else True
    right &= small_frames(args.small)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
