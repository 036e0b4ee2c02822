"""One instrument bundle in one of several passes: with the weights, and without the outliers, of its past.

Ranks that share a bundle each solve all of it, since a model of the image needs all of its spots, and share the
decorrelation. The last pass therefore has the same bits as on a single rank.
"""
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from gpu_extract.bundle import Job, Place, Solved, conclude, judge, locate, make_normal
from gpu_extract.checks.odd_pixels import touched
from gpu_extract.data import Array, Blocks, Image, IntArray, Light, Normal, Rows, SpecMask
from gpu_extract.kernels.arena import Arena, borrowed
from gpu_extract.normal import Cut
from gpu_extract.passes import ROUNDS, Past, Seen, Sight
from gpu_extract.passes.background import Background, added, background, in_notes, prepare, sum_under
from gpu_extract.passes.crosstalk import EVERY, ROUGH, Piece, add_pieces, cut_piece, tails_of
from gpu_extract.passes.fine_bins import FINE, shown
from gpu_extract.passes.outliers import known_rows
from gpu_extract.passes.shared_lines import share_good, shared_lines
from gpu_extract.passes.sides import leave_out, own_columns
from gpu_extract.passes.variance import bands_of, smooth, trusted
from gpu_extract.quality import light_of
from gpu_extract.ranks.comm import SERIAL
from gpu_extract.seams import Comm, Recorder
from gpu_extract.solve import Solution, solve

MOST = 1e30          # photons in a bin: a larger model has diverged, and exceeds single precision


class _Pass(NamedTuple):
    """A solved bundle: its place, spots, normal equations and solution, its pixels as seen by the pass, and the
    background's fit with its coefficients; None and empty without a background."""

    place: Place
    blocks: Blocks
    normal: Normal
    solution: Solution
    sight: Sight
    background: Background | None
    smooth: Array
    shown: tuple[Array, np.ndarray] | None = None       # a spectrum and the model of it

    def light(self, x: Array, arena: Arena) -> np.ndarray:
        """A model of the bundle on its cut-out, (rows, columns) float32."""
        if self.shown is not None and self.shown[0] is x:
            return self.shown[1]
        rows, columns = self.place.cut.root.shape
        return light_of(self.blocks, (rows, columns), x, arena).astype(np.float32)

    @property
    def sound(self) -> bool:
        """Whether a model can be made from the solution."""
        return bool((np.abs(self.solution.x) < MOST).all() and (np.abs(self.smooth) < MOST).all())

    @property
    def scale(self) -> Array:
        """(nfibre, nwave) factors that make the sum of each stamp 1, including its tail."""
        nfibre, nwave = self.solution.x.shape
        return self.blocks.scale.reshape(nfibre, -1)[:, :nwave]

    @property
    def share(self) -> Array:
        """(nfibre, nwave) of each spot's light on good pixels."""
        good = (self.place.cut.root > 0).astype(np.float64)
        return sum_under(self.blocks, good, self.solution.x.shape[1])

    def bright(self, x: Array) -> Array:
        """(nfibre, nwave) photons for tails: the part of a spectrum that good pixels determine."""
        return trusted(self.normal, x, self.share)

    def good(self, job: Job) -> Array:
        """(nfibre, nwave) share of good pixels in the core of each spot."""
        cut, (high, wide), nwave = self.place.cut, job.shape.core, self.solution.x.shape[1]
        first = (job.psf.stamp[0] // 2 - high - cut.y0, job.psf.stamp[1] // 2 - wide - cut.x0)
        y0, x0 = (corner[:, :nwave] + apart       # the recipe repeats the last one
                  for corner, apart in zip((self.place.spots.y0, self.place.spots.x0), first, strict=True))
        return share_good(cut, (y0, x0), (2 * high + 1, 2 * wide + 1))


def _solve(image: Image, job: Job, fibres: tuple[int, int], past: Past, arenas: tuple[Arena, Arena],
           recorder: Recorder) -> _Pass:
    """Solve a bundle, repeatedly while pixels stand out from its model, at most ROUNDS times."""
    lasting, passing = arenas
    with recorder.span("cut"):
        place = locate(image, job, fibres, lasting)        # the core may need the pixels as seen by the pass
    with recorder.span("weigh"):
        bins, spots = slice(len(job.plan.extended)), place.spots        # the recipe repeats the last one
        cut, y0, x0 = place.cut, spots.y0[:, bins], spots.x0[:, bins]
        ny = max(image.shape[0], job.psf.shape[0])
        rows = known_rows(cut, y0, x0, job.psf.stamp, place.bands[1], ny)
        leave_out(cut, own_columns(job.psf, fibres, (cut.y0, cut.x0, *cut.root.shape), y0, x0))   # type: ignore[arg-type]
        sight = Sight(cut, past, job.config, job.psferr, job.shape, rows)
    for left in reversed(range(ROUNDS if sight.open else 1)):
        blocks, normal = make_normal(job, place, group=SERIAL, recorder=recorder, arenas=arenas)
        with recorder.span("solve"):
            solution = solve(normal, passing, lasting)
        done = _told_apart(_Pass(place, blocks, normal, solution, sight, None, np.zeros(0)), job, recorder)
        if left == 0 or not done.sound:
            break
        with recorder.span("weigh"):
            x = done.solution.x
            done = done._replace(shown=(x, done.light(x, passing)))
            if not sight.look(done.light(x, passing), done.smooth):
                break
    return done


def _told_apart(done: _Pass, job: Job, recorder: Any) -> _Pass:
    """The solved bundle with the background separated from the spectra, if one is requested."""
    if job.config.background is None:
        return done
    sight, solution = done.sight, done.solution
    with recorder.span("background"):
        equations = done.blocks, done.normal, lambda sums: _answer(done.normal, sums)
        found = prepare(sight.cut, sight.rows, job.config.background, equations)
        cut = sight.cut
        pixels = np.divide(cut.light, cut.root, out=np.zeros(cut.root.shape), where=cut.root > 0)
        x, smooth = found.part(solution.x, pixels)
    return done._replace(solution=replace(solution, x=x), background=found, smooth=smooth)


def _answer(normal: Normal, sums: Array) -> Array:
    """The solution of the normal equations for another right-hand side (nfibre, nwave)."""
    with borrowed() as room:
        return solve(replace(normal, rhs=np.where(normal.weight > 0, sums, 0.0)), room, room).x


def _with_tails(done: _Pass, job: Job, fibres: tuple[int, int], past: Past) -> tuple[_Pass, Piece]:
    """A solution without the light of the bundle's own tails on its pixels, and the tails.

    The first pass attributes that light to the spots there: a star and its tails become too bright by the share of its
    light in the tails, about 1 %. The excess is solved for with the same equations. It has the same relative error,
    which leaves 1e-4 of the star.
    """
    done = _tails_of_now(done, job, fibres, past)
    if job.psf.tail is None or job.config.tail_radius == 0:
        return done, Piece(np.zeros((0, 0), np.float32), (done.place.cut.y0, done.place.cut.x0))
    x = done.solution.x
    tails = _tails(done, job, fibres, done.bright(x), EVERY)
    if past.before is not None:
        return done, tails
    less = _without(done, tails)
    change = _tails(done, job, fibres, done.bright(less.solution.x - x), ROUGH)
    return less, Piece(tails.light + change.light, tails.corner)


def _tails(done: _Pass, job: Job, fibres: tuple[int, int], bright: Array, every: int) -> Piece:
    """The tails of a spectrum that _Pass.bright gives, on the bundle's pixels and around them; every: see tails_of."""
    cut = done.place.cut
    window = cut.y0, cut.x0, cut.root.shape[0], cut.root.shape[1]
    return tails_of(job.psf, (fibres, job.plan.extended), bright * done.scale, job.config.tail_radius, window, every)


def _tails_of_now(done: _Pass, job: Job, fibres: tuple[int, int], past: Past) -> _Pass:
    """The solution with tails of its own light in place of the previous pass's; that of a first pass is unchanged.

    The previous pass may have taken other bundles' tails for light of this bundle. The pixels are corrected in place.
    """
    if past.before is None or past.before.tails.size == 0 or not done.sound:
        return done
    more = _tails(done, job, fibres, done.bright(done.solution.x) - past.before.bright, ROUGH)
    less, cut = _without(done, more), done.place.cut
    cut.light[:] -= cut.root * _on(cut, more)
    return less


def _without(done: _Pass, tails: Piece) -> _Pass:
    """The solution and the right-hand side for pixels without the light of some tails."""
    light, solution, smooth = _on(done.place.cut, tails), done.solution, done.smooth
    sums = sum_under(done.blocks, np.square(done.place.cut.root) * light, solution.x.shape[1])
    sums[done.normal.weight <= 0] = 0.0
    more = _answer(done.normal, sums)
    if done.background is not None:
        more, of_tails = done.background.part(more, light)
        smooth = smooth - of_tails
    return done._replace(solution=replace(solution, x=solution.x - more), smooth=smooth,
                         normal=replace(done.normal, rhs=done.normal.rhs - sums))


def _on(cut: Cut, tails: Piece) -> Array:
    """A piece on the pixels of a cut-out."""
    light = np.zeros(cut.root.shape)
    own = cut_piece(tails.light, tails.corner, (cut.y0, cut.x0, cut.root.shape[0], cut.root.shape[1]))
    add_pieces(light, (cut.y0, cut.x0), () if own is None else (own,))
    return light


def draft_bundle(image: Image, job: Job, fibres: tuple[int, int], past: Past, *, recorder: Recorder) -> Light:
    """A pass that is not the last: the light of a bundle for the next pass."""
    with borrowed() as lasting, borrowed() as passing:
        done = _solve(image, job, fibres, past, (lasting, passing), recorder)
        fine = done.sound
        if not fine:
            done = done._replace(solution=replace(done.solution, x=np.zeros_like(done.solution.x)),
                                 smooth=np.zeros_like(done.smooth))
        with recorder.span("smooth"):
            done, tails = _with_tails(done, job, fibres, past)
            share = done.share if past.before is None else None       # read noise alone determines the weights
            bands = bands_of(done.normal, done.solution.x.shape[1])
            x = done.solution.x if job.shape.least >= FINE else shown(done.normal, done.solution.x, bands)
            shared = shared_lines(done.normal, x, share, done.good(job), bands)
            spectrum = smooth(done.normal, x, share, shared, bands)
            bright = done.bright(done.solution.x) if tails.light.size else np.zeros((0, 0))
        with recorder.span("project"):
            model, expected = done.light(done.solution.x, passing), done.light(spectrum, passing)
        if len(done.smooth):
            expected = (expected + background(done.smooth, model.shape)).astype(np.float32)   # type: ignore[arg-type]
        return Light(bright, model, expected, (done.place.cut.y0, done.place.cut.x0), tails.light,
                     tails.corner, done.sight.rejected, int(not fine), done.smooth)


def extract_again(image: Image, job: Job, fibres: tuple[int, int], past: Past, *, group: Comm,
                  recorder: Recorder) -> Rows:
    """The last pass: like bundle.extract_bundle, with the variance, the outliers and the crosstalk of the past."""
    with borrowed() as lasting:
        with borrowed() as passing:
            done = _solve(image, job, fibres, past, (lasting, passing), recorder)
            with recorder.span("weigh"):
                done = _without_background(_tails_of_now(done, job, fibres, past))
            sight, solution = done.sight, done.solution
            counted = replace(job, psferr=0.0) if job.config.psferr_in_ivar else job
            with recorder.span("quality"):
                quality = judge(done.blocks, done.place, solution.x, counted, group=SERIAL, arena=passing)
        seen: Any = Seen(sight.cut, image.shape)
        result = conclude(seen, job, fibres, Solved(done.place, done.normal, solution, quality), group=group,
                          recorder=recorder)
    mark_rejected(result.mask, sight.rejected, (done.place.spots.y0, done.place.spots.x0), job)
    told = {"passes": job.config.passes, "rejected": len(sight.rejected), "hopeless": int(sight.hopeless),
            "ran_away": 0 if past.before is None else past.before.ran_away,
            **in_notes(done.smooth, sight.cut)}
    return replace(result, notes={fibres[0]: {**result.notes[fibres[0]], **told}}, rejected=sight.rejected)


def _without_background(done: _Pass) -> _Pass:
    """The solved bundle with the background also subtracted from the pixels and the right-hand side."""
    if done.background is None:
        return done
    cut, smooth = done.place.cut, done.smooth
    cut.light[:] -= cut.root * background(smooth, (cut.root.shape[0], cut.root.shape[1]))
    return done._replace(normal=replace(done.normal, rhs=done.normal.rhs - added(smooth, done.background.moved)))


def mark_rejected(mask: np.ndarray, rejected: IntArray, corners: tuple[IntArray, IntArray], job: Job) -> None:
    """Mark in the mask of requested bins those with a rejected pixel in their spot's core; corners: of all bins."""
    if len(rejected):
        high, wide = job.shape.core
        middle = job.psf.stamp[0] // 2 - high, job.psf.stamp[1] // 2 - wide
        y0, x0 = (first[:, job.plan.inner] + apart for first, apart in zip(corners, middle, strict=True))
        mask[touched(rejected, y0, x0, (2 * high + 1, 2 * wide + 1))] |= np.uint32(SpecMask.COSMIC)
