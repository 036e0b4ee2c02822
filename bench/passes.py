"""What two passes over an image are worth: a row of figures for each question.

usage: passes.py [--frames 2000] [--cosmics 4] [--turns 7] [--smallest]
                 [--only pulls,lines,sky,fine,part,cosmics,psf,crosstalk,background,cost] [--first 1]
                 [--keep FILE.json]

pulls: constant spectra of 10 to 10 000 electron a bin on --frames noises of a small frame whose ivar is made from the
noisy pixels: mean and spread of (flux - truth) sqrt(ivar), correlation of neighbouring bins, in one pass and in two.
The mean is also given against the same noise weighed by the true light: that is linear in the pixels, so its mean is 0,
and what is left scatters 30 times less. Beside it the theory's -p sigma / (2 w f), see doc/method.md.
lines: the same with lines of one bin on them, each apart, in other bins than the lines of other fibres, in two passes
and in three, against -1 / (2 sqrt(electrons)).
sky: r and z frames of sky, galaxies and stars, --frames / 200 noises: the mean pull in two passes and in three against
the same noise weighed by the true light, on lines and between; how much of it is of the flux, in true errors; how far
off a mean over frames is that is weighed by ivar; the theory's -p sigma / (2 w f) with w = 15.
fine: bins of half the usual width in r, of three quarters in z: pulls, and ivar over that of the true variance, in two
passes and in three, of unflagged bins, on --frames / 1000 noises.
part: passes over 400 Angstrom of an r bundle, against the same bins of the whole range: flux in sigma, and ivar, of
unflagged bins.
cosmics: --cosmics bundles of an r frame whose MASK knows no cosmic: bins that move by more than 5 sigma against the
same noise without cosmics, and how many of them are neither back within 3 sigma nor flagged; flags on bins that no
cosmic's pixel lies on; on every fourth bundle, pixels rejected where there is no cosmic, and bins moved by one pass.
psf: the PSF that is given is 1 per cent too broad, sky lines, arc lines: what rejection changes, without any cosmic.
crosstalk: a star near full well in the last fibre of a bundle, PSF with tails, no noise: the next bundle's first fibre
against R times the truth.
background: scattered light on a bundle of an r frame: what two passes leave of it with --background and without.
With --keep, pulls and cosmics add to what runs before have found of other seeds (--first is the lowest), so that 10 000
frames, or cosmics of 100 (2000 bundles), can be had in parts.
cost: CPU seconds of two passes over those of one, by turns, the median, PSF without tails and with; the exit code is 1
where a bar is missed.
"""
import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import numpy as np
from parsing import parser_of

from gpu_extract.bundle import Job, project_model
from gpu_extract.checks.odd_pixels import touched
from gpu_extract.config import ExtractConfig
from gpu_extract.cpu_frame import CPU
from gpu_extract.data import Frame, Image, SpecMask
from gpu_extract.passes.background import background_of
from gpu_extract.passes.read_noise import find_read_noise
from gpu_extract.passes.variance import WIDTHS
from gpu_extract.perf.recorder import NULL
from gpu_extract.ranks.comm import SERIAL
from gpu_extract.resolution import times_resolution
from gpu_extract.run import extract, prepare
from gpu_extract.simulate import SimConfig, Simulation, simulate
from gpu_extract.simulate.config import NO_DEFECTS, Defects
from gpu_extract.simulate.frame import project
from gpu_extract.simulate.noise import add_noise
from gpu_extract.simulate.troubles import RADIUS, add_troubles, scattered
from gpu_extract.spots import centres, corners, select

TINY = 6020.0, 6090.0, 0.8
FINER = (("r", (6200.0, 6400.0, 0.4)), ("z", (8200.0, 8500.0, 0.6)))
PARTS = (6000.0, 6400.0, 0.8), (6800.0, 7200.0, 0.8)
RANGE = {"r": (5760.0, 7620.0, 0.8), "z": (7520.0, 9824.0, 0.8)}
LEVELS = np.array([10, 25, 60, 120, 250, 1000, 3000, 10000, 25, 10], dtype=float)      # of the tiny camera's fibres
DIAGONALS = 12       # of R on each side: beyond, 5e-5 sigma
APART = 14           # bins from line to line
ASIDE = 3            # bins by which the lines of the next fibre lie aside
STANDS_OUT = 1.3     # times the median of 51 bins: a bin of a line
BARS = {"mean at 10": 0.02, "mean": 0.01, "spread": 0.01, "correlation": 0.01, "lost": 0.01, "far": 1e-4,
        "false": 1e-5, "crosstalk": 0.1, "background": 0.02, "cost": 2.0, "sky": 0.01}


class Report:
    """Prints rows, and remembers whether a bar was missed."""

    missed = 0

    def row(self, text: str, value: float | None = None, bar: str = "", slack: float = 0.0) -> None:
        """A line; value: what is held against a bar, give or take its scatter."""
        verdict = ""
        if value is not None:
            fine = abs(value) <= BARS[bar] + slack
            self.missed += not fine
            verdict = f"   {'within' if fine else 'BEYOND'} {BARS[bar]:g}"
        print(text + verdict, flush=True)


def pooled(keep: str | None, name: str, sums: list[float]) -> list[float]:
    """Sums and those of the same name in a file, which has them then."""
    if keep is None:
        return sums
    path = Path(keep)
    known = json.loads(path.read_text(encoding="ascii")) if path.exists() else {}
    known[name] = [float(a + b) for a, b in zip(sums, known.get(name, [0.0] * len(sums)), strict=True)]
    path.write_text(json.dumps(known), encoding="ascii")
    return list(known[name])


def small(passes: int) -> tuple[Simulation, Job]:
    """A small camera, and a job on it."""
    made = simulate(SimConfig(camera="tiny", truth_grid=TINY, defects=NO_DEFECTS))
    return made, prepare(made.psf, ExtractConfig(TINY, passes=passes, keep_odd=True, ndiag=DIAGONALS))


def noisy_pulls(x: np.ndarray, frames: int, passes: tuple[int, ...], first: int = 1) -> dict[int, np.ndarray]:
    """(frames, fibre, bin) pulls of spectra x on all bins that are solved for, against R x; NaN in flagged bins.

    passes: 0 for one pass with the variance of the true light
    """
    found: dict[int, list[np.ndarray]] = {n: [] for n in passes}
    made, _ = small(1)
    jobs = {n: small(max(n, 1))[1] for n in passes}
    job = jobs[passes[0]]
    expected, step = drawn(made, job, x), TINY[2]
    best = (1 / (made.read_noise.astype(float) ** 2 + expected)).astype(np.float32)
    for seed in range(first, first + frames):
        pix = np.empty(expected.shape, np.float32)
        add_noise(pix, expected, made.read_noise, seed=seed)
        ivar = 1 / (made.read_noise.astype(float) ** 2 + np.maximum(pix, 0))
        image = Image(pix, ivar.astype(np.float32), noise=made.read_noise)
        noise = find_read_noise(image, made.psf.shape)
        for n, each in jobs.items():
            each = replace(each, noise=noise if n > 1 else None)
            flux, ivar, mask, r = solved(image if n else Image(pix, best), each)
            truth = times_resolution(r, x[:, job.plan.inner]) / step
            keep = (mask & ~np.uint32(SpecMask.BAD2DFIT)) == 0
            keep[:, :job.ndiag] = keep[:, -job.ndiag:] = False        # R times the truth needs bins beyond the ends
            found[n].append(np.where(keep, (flux - truth) * np.sqrt(ivar), np.nan))
    return {n: np.array(values) for n, values in found.items()}


def drawn(made: Simulation, job: Job, x: np.ndarray) -> np.ndarray:
    """The light of spectra x on the pixels."""
    expected = np.zeros(made.image.shape)
    for bundle in job.plan.bundles:
        light, (_, column) = project_model(made.image, job, bundle, x[slice(*bundle)])
        expected[:, column:column + light.shape[1]] += light
    return expected


def solved(image: Image, job: Job) -> tuple[np.ndarray, ...]:
    """flux, ivar, mask and R of all fibres."""
    rows = [part for _, part in CPU.rows(image, job, SERIAL, NULL)]
    return tuple(np.concatenate([getattr(part, name) for part in rows])
                 for name in ("flux", "ivar", "mask", "resolution"))


def theory(x: np.ndarray) -> np.ndarray:
    """(fibre,) the mean pull that two passes are expected to leave: -p sigma / (2 w f), medians along the spectra."""
    made, job = small(1)
    light, dark = (1 / (made.read_noise.astype(float) ** 2 + part * drawn(made, job, x)) for part in (1.0, 0.0))
    ivar, most = (solved(Image(made.image.pix, each.astype(np.float32)), job)[1] for each in (light, dark))
    sigma, p = TINY[2] / np.sqrt(ivar), 1 - ivar / most
    return np.median(-p * sigma / (2 * WIDTHS[-1] * x[:, job.plan.inner]), axis=1)


def pulls(report: Report, args: argparse.Namespace) -> None:
    """Constant spectra."""
    x = np.repeat(LEVELS[:, None], len(small(1)[1].plan.extended), 1)
    expected, found = theory(x), noisy_pulls(x, args.frames, (0, 1, 2), args.first)
    for level in np.unique(LEVELS):
        apart = (found[2] - found[0])[:, level == LEVELS]
        count, total, squares = pooled(args.keep, f"apart {level:g}", [
            np.isfinite(apart).sum(), np.nansum(apart),
            np.square(np.nansum(apart, axis=(1, 2))).sum()])
        error = math.sqrt(squares) / count          # bins near each other share their variance: by frames
        report.row(f"pulls, 2 passes, {level:6.0f} e a bin, against the true variance: mean {total / count:+.5f} +- "
                   f"{error:.5f}, theory {expected[level == LEVELS].mean():+.5f}", total / count,
                   "mean at 10" if level == 10 else "mean")
    for n, all_of in found.items():
        for level in np.unique(LEVELS):
            some = all_of[:, level == LEVELS]
            left, right = some[..., 1:], some[..., :-1]
            both = np.isfinite(left + right)
            count, total, squares, pairs, sums, products = pooled(args.keep, f"pulls {n} {level:g}", [
                np.isfinite(some).sum(), np.nansum(some), np.nansum(some**2), both.sum(), (left + right)[both].sum(),
                (left * right)[both].sum()])
            mean = total / count
            spread = math.sqrt(squares / count - mean**2)
            near = ((products - mean * sums) / pairs + mean**2) / spread**2
            error = 1 / np.sqrt(count)
            text = f"pulls, {f'{n} pass' if n else 'true variance'}{'es' * (n > 1)}, {level:6.0f} e a bin: "
            if n < 2:
                report.row(f"{text}mean {mean:+.4f} +- {error:.4f}, spread {spread:.4f}, neighbours {near:+.4f}")
                continue
            bar = "mean at 10" if level == 10 else "mean"
            report.row(f"{text}mean {mean:+.4f} +- {error:.4f}", mean, bar, 2 * error)
            report.row(f"{text}spread {spread:.4f} +- {error / np.sqrt(2):.4f}", spread - 1, "spread", 2 * error)
            report.row(f"{text}neighbours {near:+.4f} +- {error:.4f}", near, "correlation", 2 * error)


def lines(report: Report, args: argparse.Namespace) -> None:
    """Lines of one bin, each apart, as bright as the fibre's level, on 20 electron a bin."""
    job = small(1)[1]
    x, last = np.full((len(LEVELS), len(job.plan.extended)), 20.0), job.plan.inner.stop - job.plan.inner.start
    places = [np.arange(2 + ASIDE * (fibre % 5), x.shape[1], APART) for fibre in range(len(x))]      # five in a bundle
    for row, level, at in zip(x, LEVELS, places, strict=True):
        row[at] += 10 * level
    values = noisy_pulls(x, args.frames // 4 + 1, (0, 2, 3))
    inner = [[j for j in at - job.plan.inner.start if 0 <= j < last] for at in places]
    for level in np.unique(LEVELS):
        best, *some = (np.concatenate([values[n][:, fibre, inner[fibre]] for fibre in np.flatnonzero(level == LEVELS)],
                                      axis=1) for n in (0, 2, 3))
        fibre = int(np.argmax(level == LEVELS))
        of_flux, of_root = line_theory(x, places[fibre], fibre)
        for n, each in zip((2, 3), some, strict=True):
            apart = each - best
            error = np.nanstd(apart) / np.sqrt(np.isfinite(apart).sum())
            expected = of_root + (of_flux if n == 2 else 0.0)
            report.row(f"lines, {n} passes, {10 * level:6.0f} e in a line, against the true variance: mean "
                       f"{np.nanmean(apart):+.4f} +- {error:.4f}, theory {expected:+.4f}; -1 / (2 sqrt N) = "
                       f"{-0.5 / np.sqrt(10 * level):+.4f}")


def line_theory(x: np.ndarray, at: np.ndarray, fibre: int) -> tuple[float, float]:
    """Mean pull on a line in two passes, to first order: the parts of flux, and of ivar and R; see doc/method.md.

    Of one fibre by itself, a stretch around the line in the middle, dense. at: bins of the lines
    """
    made, job = small(1)
    middle, reach = int(at[len(at) // 2]), 2 * APART
    stretch = np.arange(middle - reach, middle + reach + 1)
    light = []
    for j in stretch:
        one = np.zeros_like(x)
        one[fibre, j] = 1.0
        light.append(drawn(made, job, one).ravel())
    there = np.any(light, axis=0)
    a = np.array(light)[:, there].T
    noise = made.read_noise.astype(float).ravel()[there]**2
    variance = noise + drawn(made, job, x).ravel()[there]
    smooth = _smoothing(abs(stretch[:, None] - at).min(axis=1) <= 3)
    first, best = (np.linalg.solve(a.T @ (a / v[:, None]), (a / v[:, None]).T) for v in (noise, variance))
    root = _root(a, variance)
    shared = np.einsum("pj,jp->p", a @ smooth, first - first @ a @ best) / variance       # / variance^2, times it
    of_flux = -root @ np.linalg.solve(a.T @ (a / variance[:, None]), a.T @ shared)
    steps = 1e-3 * np.maximum(x[fibre, stretch], 20.0)
    up, down = (np.array([_root(a, variance + sign * (a @ smooth[:, j]) * step)[reach]
                          for j, step in enumerate(steps)]) for sign in (1, -1))
    moved = (up - down) / (2 * steps[:, None])              # the row of the root, by the light of each bin
    return float(of_flux[reach]), float(np.sum(moved * np.linalg.inv(root @ root)))


def _smoothing(kept: np.ndarray) -> np.ndarray:
    """What makes a smooth spectrum of one, as a matrix: bins that are kept stay, and are no part of the averages."""
    bins = np.arange(len(kept))
    box = (abs(bins[:, None] - bins) <= WIDTHS[-1] // 2) & ~kept
    return np.where(kept[:, None], np.eye(len(kept)), box / np.maximum(box.sum(axis=1, keepdims=True), 1))


def _root(a: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """The square root of icov, whose rows' sums are sqrt(ivar)."""
    values, vectors = np.linalg.eigh(a.T @ (a / variance[:, None]))
    return (vectors * np.sqrt(values)) @ vectors.T


def sky(report: Report, args: argparse.Namespace) -> None:
    """Whole bundles, their sky lines and objects."""
    for camera in ("r",) if args.smallest else ("r", "z"):
        made = simulate(SimConfig(camera=f"{camera}0", nspec=25, crop=True, noise=False, defects=NO_DEFECTS,
                                  truth_grid=RANGE[camera]))
        made = replace(made, psf=select(made.psf, range(25)))
        noise, found = made.read_noise.astype(float) ** 2, []
        for seed in range(args.first, args.first + max(args.frames // 200, 1)):
            pix = np.empty(made.expected.shape, np.float32)
            add_noise(pix, made.expected, made.read_noise, seed=seed)
            image, best, dark = (Image(pix, (1 / (noise + light)).astype(np.float32), noise=made.read_noise)
                                 for light in (np.maximum(pix, 0), made.expected, 0.0))
            true = sky_of(best, made, camera, 1)
            light = 1 - true[1] / sky_of(dark, made, camera, 1)[1]         # its share in the variance
            found.append([*(against(sky_of(image, made, camera, n), true) for n in (2, 3)),
                          [-light / (2 * WIDTHS[-1] * true[2] * np.sqrt(true[1]))]])
        padded = np.pad(true[2], ((0, 0), (25, 25)), mode="reflect")
        lines = true[2] > STANDS_OUT * np.median(np.lib.stride_tricks.sliding_window_view(padded, 51, axis=1), axis=2)
        for kind, bins in (("all", lines | ~lines), ("lines", lines), ("between", ~lines)):
            expected = np.nanmean([each[2][0][bins] for each in found])
            for place, n in enumerate((2, 3)):
                pull, flux, mean = (np.array([np.nanmean(each[place][k][bins]) for each in found]) for k in range(3))
                report.row(f"sky, {camera}, {n} passes, {kind}: mean pull {pull.mean():+.4f} +- "
                           f"{pull.std() / np.sqrt(len(pull)):.4f}, theory {expected:+.4f}, of the flux "
                           f"{flux.mean():+.4f}; mean weighed by ivar {mean.mean():+.4f}", pull.mean(), "sky")


def sky_of(image: Image, made: Simulation, camera: str, passes: int) -> list[np.ndarray]:
    """Error of the flux, ivar, and R times the truth, without the ends, of an extracted frame; NaN in flagged bins."""
    frame = extract(image, made.psf, ExtractConfig(RANGE[camera], nspec=25, ndiag=DIAGONALS, passes=passes))
    assert frame is not None
    first = int(np.argmin(abs(made.truth.wave - frame.wave[0])))
    light = made.truth.electrons()[:, first:first + len(frame.wave)] / RANGE[camera][2]
    truth = times_resolution(frame.resolution, light)
    good = (frame.mask & ~np.uint32(SpecMask.BAD2DFIT)) == 0
    return [array[:, DIAGONALS + 1:-DIAGONALS - 1] for array in (
        np.where(good, frame.flux - truth, np.nan), frame.ivar, truth)]


def against(some: list[np.ndarray], true: list[np.ndarray]) -> list[np.ndarray]:
    """Pulls less those with the true variance; the same in true errors; errors weighed by ivar, in true errors."""
    (off, ivar, _), (best, least, _), root = some, true, np.sqrt(true[1])
    return [off * np.sqrt(ivar) - best * root, (off - best) * root, (off * ivar / least - best) * root]


def fine(report: Report, args: argparse.Namespace) -> None:
    """Bins whose spots overlap by far."""
    for camera, grid in FINER[:1 if args.smallest else None]:
        pulls_of: dict[int, list[np.ndarray]] = {1: [], 2: [], 3: []}
        ratios: dict[int, list[np.ndarray]] = {2: [], 3: []}
        for seed in range(args.first, args.first + max(args.frames // 1000, 1)):
            made = simulate(SimConfig(camera=f"{camera}0", nspec=25, crop=True, variance="data", defects=NO_DEFECTS,
                                      truth_grid=grid, seed=seed))
            made = replace(made, psf=select(made.psf, range(25)))
            ivar = (1 / (made.read_noise.astype(float) ** 2 + made.expected)).astype(np.float32)
            best = None
            for n in pulls_of:
                found = extract(replace(made.image, ivar=ivar) if best is None else made.image, made.psf,
                                ExtractConfig(grid, nspec=25, ndiag=2 * DIAGONALS, passes=n))
                assert found is not None
                best = found if best is None else best
                first = int(np.argmin(abs(made.truth.wave - found.wave[0])))
                light = made.truth.electrons()[:, first:first + len(found.wave)] / grid[2]
                inner = np.s_[:, 2 * DIAGONALS + 1:-2 * DIAGONALS - 1]
                off = (found.flux - times_resolution(found.resolution, light)) * np.sqrt(found.ivar)
                pulls_of[n].append(off[inner][found.mask[inner] == 0])
                if n > 1:
                    ratios[n].append((found.ivar / best.ivar)[inner][found.mask[inner] == 0])
        for n, some in pulls_of.items():
            pull, ratio = np.concatenate(some), np.concatenate(ratios.get(n, [np.ones(1)]))
            report.row(f"fine, {camera}, {grid[2]:g} A, {f'{n} passes' if n > 1 else 'true variance'}: mean "
                       f"{pull.mean():+.4f} +- {1 / np.sqrt(len(pull)):.4f}, spread {pull.std():.4f}, furthest "
                       f"{np.abs(pull).max():.1f}; ivar {ratio.min():.2f} to {ratio.max():.2f} times the true one",
                       *((pull.std() - 1, "spread", 2 / np.sqrt(2 * len(pull))) if n > 1 else ()))


def part(report: Report, args: argparse.Namespace) -> None:
    """What the requested range has to do with its bins. Lines of one bin, and finer ones, which bins cannot form."""
    for kind, grid in (("lines of a bin", RANGE["r"]), ("finer lines", None)):
        made = of_r(seed=3, truth_grid=grid, defects=Defects(hidden_cosmics=True))
        for passes in (1, 2, 3):
            whole, off, ratio = frame_of(made.image, made, passes=passes), [], []
            for wanted in PARTS[:1 if args.smallest else None]:
                found = extract(made.image, made.psf, ExtractConfig(wanted, nspec=25, passes=passes))
                assert found is not None
                first = int(np.argmin(abs(whole.wave - found.wave[0])))
                same = np.s_[:, first:first + len(found.wave)]
                good = (whole.mask[same] == 0) & (found.mask == 0)
                off.append(np.abs((found.flux - whole.flux[same]) * np.sqrt(whole.ivar[same]))[good])
                ratio.append(np.abs(found.ivar[good] / whole.ivar[same][good] - 1))
            sigma, share = (np.quantile(np.concatenate(some), (0.5, 0.99, 1.0)) for some in (off, ratio))
            report.row(f"part, {kind}, {passes} pass{'es' * (passes > 1)}: flux off by {sigma[0]:.2g} sigma (median), "
                       f"{sigma[1]:.2g} (99 %), {sigma[2]:.2g} (largest); ivar by {share[0]:.2g}, {share[1]:.2g}, "
                       f"{share[2]:.2g}")


def of_r(**settings: object) -> Simulation:
    """A bundle of an r frame with ivar from the noisy pixels, whose PSF has no other bundle."""
    made = simulate(SimConfig(camera="r0", nspec=25, crop=True, variance="data", **settings))      # type: ignore[arg-type]
    return replace(made, psf=select(made.psf, range(25)))


def frame_of(image: Image, made: Simulation, **settings: object) -> Frame:
    """It extracted."""
    found = extract(image, made.psf, ExtractConfig(RANGE["r"], nspec=25, **settings))      # type: ignore[arg-type]
    assert found is not None
    return found


def rejected(frame: Frame) -> int:
    """Pixels that were."""
    return sum(int(notes["rejected"]) for notes in frame.notes["bundles"].values())


def cosmics(report: Report, args: argparse.Namespace) -> None:
    """Against the same noise without cosmics."""
    moved = lost = far = bins = false = pixels = one = looked = 0
    for seed in range(args.first, args.first + args.cosmics):
        made = of_r(seed=seed, defects=Defects(bad_columns=0, hot_pixels=0, hidden_cosmics=True))
        pix = made.image.pix - made.charge
        ivar = np.where(made.image.ivar > 0, 1 / (made.read_noise**2 + np.maximum(pix, 0)), 0).astype(np.float32)
        clean = replace(made.image, pix=pix, ivar=ivar)
        truth, kept, found = (frame_of(image, made, passes=2, keep_cosmics=keep) for image, keep in (
            (clean, True), (made.image, True), (made.image, False)))
        apart = [(each.flux - truth.flux) * np.sqrt(truth.ivar) for each in (kept, found)]
        flagged = (found.mask & SpecMask.COSMIC) > 0
        hit = np.abs(apart[0]) > 5
        if seed % 4 == 1:       # these shares need fewer bundles
            once, none = frame_of(made.image, made), frame_of(clean, made, passes=2)
            one += int((np.abs((once.flux - truth.flux) * np.sqrt(truth.ivar)) > 5).sum())
            looked, false, pixels = looked + int(hit.sum()), false + rejected(none), pixels + made.image.pix.size
        moved, lost = moved + int(hit.sum()), lost + int((hit & ~flagged & (np.abs(apart[1]) >= 3)).sum())
        y0, x0 = corners(made.psf, centres(made.psf, (0, 25), truth.wave))
        reached = touched(np.argwhere(made.charge > 0), y0, x0, made.psf.stamp)
        far, bins = far + int((flagged & ~reached).sum()), bins + int((~reached).sum())
    bundles, moved, lost, far, bins, false, pixels, one, looked = map(int, pooled(
        args.keep, "cosmics", [args.cosmics, moved, lost, far, bins, false, pixels, one, looked]))
    report.row(f"cosmics, {bundles} bundles: {moved} bins moved by > 5 sigma (by one pass {one / max(looked, 1):.2f} "
               f"times as many), {lost} of them neither back within 3 sigma nor flagged", lost / max(moved, 1), "lost")
    report.row(f"cosmics: {far} flags on {bins} bins that no cosmic reaches", far / max(bins, 1), "far",
               2.0 * math.sqrt(BARS["far"] / max(bins, 1)))
    report.row(f"cosmics: {false} of {pixels} pixels rejected where there is none", false / max(pixels, 1), "false")


def psf(report: Report, args: argparse.Namespace) -> None:
    """Nothing of a line is eaten."""
    for flavour in ("science", "arc"):
        made = of_r(psf_error=0.01, flavor=flavour, defects=NO_DEFECTS, exptime=130.0 if flavour == "arc" else 3000.0)
        with_it, without = (frame_of(made.image, made, passes=2, keep_cosmics=keep) for keep in (False, True))
        change = np.abs(with_it.flux - without.flux)
        allowed = 0.1 + 0.001 * np.abs(without.flux) * np.sqrt(without.ivar)
        beyond = int((change * np.sqrt(without.ivar) > allowed).sum())
        best = float((without.flux * np.sqrt(without.ivar)).max())
        count = rejected(with_it)
        report.row(f"psf 1 % too broad, {flavour}, lines up to {best:.0f} sigma: {count} pixels rejected, {beyond} "
                   "bins change by more than 0.1 sigma + 0.1 %", beyond / change.size, "false")


def crosstalk(report: Report, args: argparse.Namespace) -> None:
    """The last fibre of the first bundle is a star near full well; all else is 100 electron a bin."""
    config = SimConfig(camera="r0", nspec=50, crop=True, tails=0.002, truth_grid=RANGE["r"], defects=NO_DEFECTS)
    made = simulate(replace(config, noise=False))
    flux = np.full(made.truth.flux.shape, 125.0, np.float32)
    flux[24] = 250000.0
    truth = replace(made.truth, flux=flux)
    expected = project(made.psf, truth, ncolumn=made.image.shape[1])
    add_troubles(expected, config, made.psf, truth)
    image = replace(made.image, pix=expected, ivar=1 / (made.read_noise.astype(float) ** 2 + expected))
    for passes in (1, 2, 3):
        found = extract(image, made.psf, ExtractConfig(RANGE["r"], nspec=50, passes=passes, tail_radius=RADIUS))
        assert found is not None
        off = (found.flux[25] - 125.0) * np.sqrt(found.ivar[25])
        inner = off[20:-20]
        text = (f"crosstalk, {passes} pass{'es' * (passes > 1)}, star of {expected.max():.0f} e in a pixel: next "
                f"bundle's first fibre {inner.mean():+.3f} sigma, {np.abs(inner).max():.3f} at most")
        report.row(text, *((float(np.abs(inner).max()), "crosstalk") if passes > 1 else ()))


def background(report: Report, args: argparse.Namespace) -> None:
    """Scattered light of 20 electron a pixel, without noise and with: against the same frame without it."""
    for noise in (False, True):
        lit, dark = (of_r(scattered=level, noise=noise, defects=NO_DEFECTS) for level in (20.0, 0.0))
        image = replace(lit.image, ivar=(1 / (lit.read_noise.astype(float) ** 2 + lit.expected)).astype(np.float32))
        truth = frame_of(replace(dark.image, ivar=image.ivar), dark, passes=2)
        for degree in (None, 2):
            found = frame_of(image, lit, passes=2, background=degree)
            off = ((found.flux - truth.flux) * np.sqrt(truth.ivar))[found.mask == 0]
            light = ""
            if degree is not None:
                rows = background_of(found, image.shape[0])[0]
                true = 20.0 * scattered(image.shape[0])
                known = rows != 0
                light = (f"; background {rows[known].mean():.3f} on the average, truth {true[known].mean():.3f}, "
                         f"off by {np.abs(rows - true)[known].max():.3f} at most")
            kind = f"{'noise' if noise else 'no noise'}, {'fitted' if light else 'not fitted'}"
            report.row(f"background, {kind}: fluxes {np.median(off):+.3f} sigma, 1 to 99 % "
                       f"{np.quantile(off, 0.01):+.3f} to {np.quantile(off, 0.99):+.3f}{light}",
                       *((float(np.median(off)), "background") if light and not noise else ()))


def cost(report: Report, args: argparse.Namespace) -> None:
    """By turns."""
    for tails in (0.0,) if args.smallest else (0.0, 0.002):       # to simulate tails takes 15 s
        made, spent = of_r(tails=tails), []
        for turn in range(args.turns + 1):
            seconds = []
            for passes in (1, 2):
                start = time.process_time()
                frame_of(made.image, made, passes=passes)
                seconds.append(time.process_time() - start)
            spent += [seconds] if turn else []
        one, two = np.median(np.array(spent), axis=0)
        ratio = float(np.median([b / a for a, b in spent]))
        report.row(f"cost, {'tails' if tails else 'no tails'}: one pass {one:.3f} s, two {two:.3f} s: {ratio:.2f} "
                   "times", ratio, "cost")


QUESTIONS: dict[str, Callable[[Report, argparse.Namespace], None]] = {
    "pulls": pulls, "lines": lines, "sky": sky, "fine": fine, "part": part, "cosmics": cosmics, "psf": psf,
    "crosstalk": crosstalk, "background": background, "cost": cost}


def main() -> int:
    """Parse, ask, say."""
    parser = parser_of(__doc__, frames=2000, cosmics=4, turns=7, first=1, keep=None)
    parser.add_argument("--only", default=",".join(QUESTIONS))
    args = parser.parse_args()
    if args.smallest:
        args.frames, args.cosmics, args.turns = 4, 1, 1
        if args.only == parser.get_default("only"):
            args.only = "pulls,lines,sky,cosmics,psf,cost"      # the others, a minute long, have tests
        RANGE["r"] = 6000.0, 6500.0, 0.8
        BARS["cost"] = 10.0          # a busy machine and two turns tell nothing
    report = Report()
    for question in args.only.split(","):
        QUESTIONS[question](report, args)
    print(f"{report.missed} bars missed")
    return int(report.missed > 0)


if __name__ == "__main__":
    sys.exit(main())
