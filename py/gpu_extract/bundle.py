"""One instrument bundle, from pixels to spectra: spots -> normal equations -> x -> quality -> decorrelation.

A group of ranks may share a bundle. Each rank computes some tiles and decorrelates some fibres, and all exchange the
input of the next step. Only the settings determine the division into tiles and fibres, so that the size of the group
changes no bit.
"""
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from gpu_extract.checks import odd_pixels
from gpu_extract.data import (
    FACTS,
    Array,
    Blocks,
    Decorrelated,
    Image,
    IntArray,
    Normal,
    Recipe,
    Rows,
    SpecMask,
    Spots,
    Status,
)
from gpu_extract.decorrelate import banded, dense, room_for
from gpu_extract.decorrelate.dense.patch_pixels import PatchPixels
from gpu_extract.job import Job, Place, Solved
from gpu_extract.kernels.arena import Arena, borrowed
from gpu_extract.normal import add_tile, empty_sums, faint, give_up, half_bands, make_cut, place_blocks
from gpu_extract.plan import bounds, fibre_groups, halo, tiles
from gpu_extract.quality import bin_quality, bin_status, mask_bits
from gpu_extract.seams import Comm, Recorder
from gpu_extract.solve import closest, solve
from gpu_extract.spots import add_to_image, centres, corners, make_spots, recipe, stretch


def extract_bundle(image: Image, job: Job, fibres: tuple[int, int], *, group: Comm, recorder: Recorder) -> Rows:
    """Extract all fibres lo .. hi - 1 of one instrument bundle at the requested wavelengths.

    group: the ranks that share the bundle (comm.py's verbs); all of them call this and get the same result,
    except for the model image, which is made on its rank 0.
    """
    with borrowed() as lasting:
        with borrowed() as passing:     # the core reuses the memory of the spots, which are not needed any more
            with recorder.span("cut"):
                place = locate(image, job, fibres, passing)
            blocks, normal = make_normal(job, place, group=group, recorder=recorder, arenas=(lasting, passing),
                                         most_ivar=place.most_ivar)
            with recorder.span("solve"):
                solution = solve(normal, passing, lasting)
            with recorder.span("quality"):
                quality = judge(blocks, place, solution.x, job, group=group, arena=passing)
        return conclude(image, job, fibres, Solved(place, normal, solution, quality), group=group, recorder=recorder)


def conclude(image: Image, job: Job, fibres: tuple[int, int], solved: Solved, *, group: Comm,
             recorder: Recorder) -> Rows:
    """From the solution of a bundle to its spectra; image: for the pixels of patches, as seen by the solution.

    The pixels of the cut no longer exist (`Solved`): code that needs them belongs into `judge`. The normal equations
    and the solution lie in an arena that is given back afterwards, so that a result holds copies of them.
    """
    place, normal, solution = solved.place, solved.normal, solved.solution
    with recorder.span("decorrelate"):
        normal = replace(normal, strengths=solution.strengths, lifted=solution.lifted)
        pixels = PatchPixels(image, job.psf, fibres, job.plan.extended, place.odd)
        result = decorrelate(normal, solution.x, job, group, pixels)
    coupling = closest(solution.strengths)
    wanted = job.config.model and group.rank == 0
    models = (project_model(image, job, fibres, solution.x, job.config.model),) if wanted else ()
    given_up, (chi2pix, fraction) = normal.given_up[:, job.plan.inner], solved.quality
    mask = mask_bits(result.ivar, chi2pix, fraction, result.weak | given_up | faint(normal, job.plan.inner))
    add_odd_bits(mask, place.odd, (place.spots.y0, place.spots.x0), job)
    notes = {"fibres": len(solution.x), "iterations": solution.iterations, "error": solution.error,
             "halfband": place.bands[1], "ownband": place.bands[2], "neighbours": place.bands[0], "coupling": coupling,
             **dict(zip(FACTS, result.facts.max(axis=0).tolist(), strict=True)),
             "given_up": int(np.count_nonzero(given_up))}
    return Rows(fibres, result.flux, result.ivar, result.resolution, chi2pix, fraction, mask,
                bin_status(result.status, mask), models, {fibres[0]: odd_pixels.in_notes(notes, place.odd)})


def add_odd_bits(bits: np.ndarray, odd: IntArray, corners: Sequence[IntArray], job: Job) -> None:
    """Mark in the mask of a bundle's requested bins those that touch odd pixels; corners: y0, x0 of all bins."""
    if len(odd):
        y0, x0 = (first[:, job.plan.inner] for first in corners)
        bits[odd_pixels.touched(odd, y0, x0, job.psf.stamp)] |= np.uint32(SpecMask.ODDPIX)


def locate(image: Image, job: Job, fibres: tuple[int, int], arena: Arena | None = None) -> Place:
    """Determine the place of the spots of fibres lo .. hi - 1."""
    spots = recipe(job.psf, fibres, job.plan.extended, arena)
    bins = slice(len(job.plan.extended))       # the recipe repeats the last one
    bands = half_bands(spots.y0[:, bins], spots.x0[:, bins], job.psf.stamp, image.shape)
    looked = job.columns(image, fibres)
    cut = make_cut(image, spots.y0, spots.x0, job.psf.stamp, arena)
    none = odd_pixels.none_odd(image, looked, job.most_ivar, cut.inside, cut.seen)
    odd = odd_pixels.NO_PIXELS if none else job.odd_in(image, looked)
    odd_pixels.mask_pixels(cut.root, cut.light, odd, (cut.y0, cut.x0))
    return Place(spots, cut, bands, odd, _most_ivar(job, spots, looked, image.shape[1]))


def _most_ivar(job: Job, spots: Recipe, looked: slice, width: int) -> float:
    """The largest ivar that a spot's pixel may have after odd pixels are masked; looked: the columns that were
    searched.

    A trace that bends between its samples may leave those columns; then there is no limit.
    """
    first, last = int(spots.x0.min()), int(spots.x0.max()) + job.psf.stamp[1]
    known = looked.start <= max(first, 0) and min(last, width) <= looked.stop
    return job.most_ivar if known and job.most_ivar is not None else math.inf


def make_normal(job: Job, place: Place, *, group: Comm, recorder: Recorder,
                arenas: tuple[Arena, Arena] | None = None, most_ivar: float = math.inf) -> tuple[Blocks, Normal]:
    """The normal equations, tile by tile, and the spots of this rank's tiles (and around) in single precision.

    arenas: for the equations, and for the spots; most_ivar: upper limit of the ivar of the cut's pixels
    """
    lasting, passing = arenas or (Arena(), Arena())
    nwave, cut = len(job.plan.extended), place.cut
    ranges = tiles(nwave, job.tile)
    starts = bounds(ranges, group.size)
    own = halo(starts[group.rank], starts[group.rank + 1], place.bands[1], nwave)
    spots = stretch(place.spots, own)
    blocks = place_blocks(spots, cut, passing)
    sums = empty_sums(len(spots.x0), nwave, place.bands, lasting)

    def make(piece: tuple[int, int]) -> None:
        with recorder.span("normal"):
            add_tile(sums, spots, blocks, cut, (*piece, own[0]))

    # each thread's tiles at once, because spots at the border of two tiles are made twice
    first, last = group.rank * job.threads, (group.rank + 1) * job.threads
    edges = bounds(ranges, group.size * job.threads)[first:last + 1]
    job.map(make, [piece for piece in pairwise(edges) if piece[0] < piece[1]])
    with recorder.span("exchange"):
        group.complete(sums.icov, 2, starts)
        group.complete(sums.rhs, 1, starts)
        group.complete(sums.weight, 1, starts)
    return blocks, give_up(sums, job.config.regularize, math.prod(job.psf.stamp) * most_ivar)


def decorrelate(normal: Normal, x: Array, job: Job, group: Comm, pixels: PatchPixels) -> Decorrelated:
    """Decorrelate the requested wavelengths of all fibres of a bundle; the dense core does fibres that the banded one
    gives up."""
    out = room_for(len(x), len(job.plan.wave), job.ndiag)
    by_dense = job.config.core == "dense"
    groups = fibre_groups(len(x), job.config.nsubbundles if by_dense else None)
    starts = bounds(groups, group.size)

    def work(fibres: tuple[int, int]) -> None:
        part = Decorrelated(*(array[slice(*fibres)] for array in astuple(out)))
        if by_dense:
            copy(dense_part(normal, x, job, fibres, pixels), part)
        else:
            banded_part(normal, x, job, fibres, pixels, out=part)

    first, last = starts[group.rank], starts[group.rank + 1]
    mine = [g for g in groups if first <= g[0] < last]
    if not by_dense and mine:    # the banded core shares work between fibres, hence one call per thread
        mine = [(first + lo, first + hi) for lo, hi in fibre_groups(last - first, job.threads)]
    job.map(work, mine)
    for array in astuple(out):
        group.complete(array, 0, starts)
    clear_corners(out.resolution)
    return out


def dense_part(normal: Normal, x: Array, job: Job, fibres: tuple[int, int],
               pixels: PatchPixels | None = None) -> Decorrelated:
    """Fibres lo .. hi - 1 at the requested wavelengths by the dense core."""
    cuts = dense.Cuts(job.plan.inner, job.config.nwavestep, job.decay.patch, job.neighbours, job.config.tolerance)
    return dense.decorrelate(normal, x, fibres, ndiag=job.ndiag, cuts=cuts, pixels=pixels)


def banded_part(normal: Normal, x: Array, job: Job, fibres: tuple[int, int], pixels: PatchPixels | None = None, *,
                out: Decorrelated | None = None) -> Decorrelated:
    """The same by the banded core or, if its form does not hold and the core is "auto", by the dense one.

    out: the arrays to write to
    """
    part = banded.decorrelate(normal, x, fibres, ndiag=job.ndiag, bins=job.plan.inner, out=out)
    if job.config.core == "auto":
        for n in np.nonzero((part.status == Status.FAILED).any(axis=1))[0].tolist():
            instead = dense_part(normal, x, job, (fibres[0] + n, fibres[0] + n + 1), pixels)
            instead.status[instead.status == Status.GOOD] = Status.DENSE
            copy(instead, Decorrelated(*(array[n:n + 1] for array in astuple(part))))
    return part


def copy(part: Decorrelated, out: Decorrelated) -> None:
    """Write one result into another's arrays."""
    for array, values in zip(astuple(out), astuple(part), strict=True):
        array[:] = values


def astuple(part: Decorrelated) -> tuple[np.ndarray, ...]:
    """The arrays, in the order of the fields (dataclasses.astuple would copy them)."""
    return part.flux, part.ivar, part.resolution, part.status, part.weak, part.facts


def clear_corners(resolution: Array) -> None:
    """Zero the entries of rows beyond both ends of the requested wavelengths, which a dia_matrix would not show."""
    ndiag, nwave = resolution.shape[1] // 2, resolution.shape[2]
    for k in range(ndiag):
        resolution[:, k, :min(ndiag - k, nwave)] = 0.0
        resolution[:, 2 * ndiag - k, max(nwave - ndiag + k, 0):] = 0.0


def judge(blocks: Blocks, place: Place, x: Array, job: Job, *, group: Comm,
          arena: Arena | None = None) -> tuple[Array, Array]:
    """chi2pix and pixmask_fraction of the requested bins; every rank does the bins of its own tiles."""
    nwave, inner = len(job.plan.extended), job.plan.inner
    starts = bounds(tiles(nwave, job.tile), group.size)
    start, stop = halo(starts[group.rank], starts[group.rank + 1], place.bands[1], nwave)
    wanted = halo(inner.start, inner.stop, place.bands[1], nwave)
    part = bin_quality(blocks, (place.cut.root, place.cut.light), x[:, start:stop], job.psferr, arena,
                       (wanted[0] - start, wanted[1] - start))
    starts = [min(max(n, inner.start), inner.stop) - inner.start for n in starts]      # within the requested bins
    first, last = starts[group.rank], starts[group.rank + 1]
    both = np.empty((2, len(x), inner.stop - inner.start))
    for array, values in zip(both, part, strict=True):
        array[:, first:last] = values[:, first + inner.start - start:last + inner.start - start]
    group.complete(both, 2, starts)
    return both[0], both[1]


def project_model(image: Image, job: Job, fibres: tuple[int, int], x: Array,
                  seen: bool | tuple[int, int] = True) -> tuple[Array, tuple[int, int]]:
    """The bundle's A x, including bins beyond the requested range: (ny, columns) electron, and its first pixel on the
    CCD.

    Columns that none of its spots touch are left out, so that a frame's bundles together are hardly more than one
    image.
    seen: columns first .. last - 1 of the CCD, if given: fibres that touch none of them are left out
    """
    _, x0 = corners(job.psf, centres(job.psf, fibres, job.plan.extended))
    edges = (0, image.shape[1]) if isinstance(seen, bool) else seen
    touching = np.flatnonzero((x0.min(axis=1) < edges[1]) & (x0.max(axis=1) + job.psf.stamp[1] > edges[0]))
    if len(touching) == 0:
        return np.zeros((image.shape[0], 0)), (0, 0)
    some = slice(int(touching[0]), int(touching[-1]) + 1)
    fibres, x, x0 = (fibres[0] + some.start, fibres[0] + some.stop), x[some], x0[some]
    first, last = np.clip([x0.min(), x0.max() + job.psf.stamp[1]], 0, image.shape[1])
    model = np.zeros((image.shape[0], max(last - first, 0)))
    for start, stop in tiles(len(job.plan.extended), job.tile):
        spots = make_spots(job.psf, fibres, job.plan.extended[start:stop])
        add_to_image(model, Spots(spots.stamps, spots.x0 - first, spots.y0), x[:, start:stop])
    return model, (0, int(first))
