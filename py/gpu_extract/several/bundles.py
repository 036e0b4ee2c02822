"""One instrument bundle in a pass beside others: with the weight, without the outliers that its past tells of.

Ranks that share a bundle each solve all of it, since a model of the image needs all of its spots, and share the
decorrelation. So the last pass has the bits that one rank alone gives.
"""
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from gpu_extract.bundle import Job, Place, Solved, conclude, judge, locate, make_normal
from gpu_extract.checks.odd_pixels import touched
from gpu_extract.data import Array, Blocks, BundleResult, Image, Light, Normal, SpecMask
from gpu_extract.kernels.arena import Arena, borrowed
from gpu_extract.passes import ROUNDS, Past, Seen, Sight
from gpu_extract.passes.outliers import known_rows
from gpu_extract.passes.variance import smooth
from gpu_extract.quality import light_of
from gpu_extract.ranks.comm import SERIAL
from gpu_extract.seams import Comm, Recorder
from gpu_extract.solve import Solution, solve


class _Pass(NamedTuple):
    """A bundle that is solved: where it lies, its spots, normal equations and solution, and its pixels as they were
    seen."""

    place: Place
    blocks: Blocks
    normal: Normal
    solution: Solution
    sight: Sight

    def light(self, x: Array, arena: Arena) -> np.ndarray:
        """A model of the bundle on its cut-out, (rows, columns) float32."""
        rows, columns = self.place.cut.root.shape
        return light_of(self.blocks, (rows, columns), x, arena).astype(np.float32)


def _solve(image: Image, job: Job, fibres: tuple[int, int], past: Past, arenas: tuple[Arena, Arena],
           recorder: Recorder) -> _Pass:
    """Solve a bundle, anew as long as pixels of it stand out from what came of it, ROUNDS times at most."""
    lasting, passing = arenas
    with recorder.span("cut"):
        place = locate(image, job, fibres, lasting)        # the core may ask for the pixels as they were seen
    with recorder.span("weigh"):
        bins, spots = slice(len(job.plan.extended)), place.spots        # the recipe repeats the last one
        rows = known_rows(place.cut, spots.y0[:, bins], spots.x0[:, bins], job.psf.stamp, place.bands[1])
        sight = Sight(place.cut, past, job.config, job.psferr, job.shape, rows)
    known = 0 if past.before is None else len(past.before.rejected)
    for left in reversed(range(ROUNDS)):
        blocks, normal = make_normal(job, place, group=SERIAL, recorder=recorder, arenas=arenas)
        with recorder.span("solve"):
            solution = solve(normal, passing, lasting)
        done = _Pass(place, blocks, normal, solution, sight)
        if len(sight.rejected) == known or left == 0:
            break
        known = len(sight.rejected)
        with recorder.span("weigh"):
            if not sight.look(done.light(solution.x, passing)):
                break
    return done


def _only_noise(past: Past) -> float | None:
    """The read noise squared where a pass weighs pixels by it alone, else None."""
    return float(np.median(past.noise.values)) ** 2 if past.before is None else None


def draft_bundle(image: Image, job: Job, fibres: tuple[int, int], past: Past, *, recorder: Recorder) -> Light:
    """A pass that is not the last: what it leaves of a bundle to the next."""
    with borrowed() as lasting, borrowed() as passing:
        done = _solve(image, job, fibres, past, (lasting, passing), recorder)
        x, cut = done.solution.x, done.place.cut
        fine = bool(np.isfinite(x).all())
        if not fine:
            x = np.zeros_like(x)
        with recorder.span("smooth"):
            spectrum = smooth(done.normal, x, _only_noise(past))
        with recorder.span("project"):
            model, expected = done.light(x, passing), done.light(spectrum, passing)
        scale = done.blocks.scale.reshape(len(x), -1)[:, :x.shape[1]]
        tails = spectrum * scale if job.psf.tail is not None and job.config.tail_radius > 0 else x[:, :0].copy()
        return Light(x, model, expected, (cut.y0, cut.x0), tails, done.sight.rejected, int(not fine))


def extract_again(image: Image, job: Job, fibres: tuple[int, int], past: Past, *, group: Comm,
                  recorder: Recorder) -> BundleResult:
    """The last pass: as bundle.extract_bundle, with the variance, the outliers and the crosstalk of the past."""
    with borrowed() as lasting:
        with borrowed() as passing:
            done = _solve(image, job, fibres, past, (lasting, passing), recorder)
            sight, solution = done.sight, done.solution
            counted = replace(job, psferr=0.0) if job.config.psferr_in_ivar else job
            with recorder.span("quality"):
                quality = judge(done.blocks, done.place, solution.x, counted, group=SERIAL, arena=passing)
        seen: Any = Seen(sight.cut, image.shape)
        result = conclude(seen, job, fibres, Solved(done.place, done.normal, solution, quality), group=group,
                          recorder=recorder)
    if len(sight.rejected):
        _mark(result, sight.rejected, (done.place.spots.y0, done.place.spots.x0), job)
    told = {"passes": job.config.passes, "rejected": len(sight.rejected), "hopeless": int(sight.hopeless),
            "ran_away": 0 if past.before is None else past.before.ran_away}
    return replace(result, notes={**result.notes, **told})


def _mark(result: BundleResult, rejected: np.ndarray, corners: tuple[np.ndarray, np.ndarray], job: Job) -> None:
    """Mark the bins that have a rejected pixel in the core of their spot."""
    high, wide = job.shape.core
    middle = job.psf.stamp[0] // 2 - high, job.psf.stamp[1] // 2 - wide
    y0, x0 = (first[:, job.plan.inner] + apart for first, apart in zip(corners, middle, strict=True))
    bins = touched(rejected, y0, x0, (2 * high + 1, 2 * wide + 1))
    result.mask[bins] |= np.uint32(SpecMask.COSMIC)
