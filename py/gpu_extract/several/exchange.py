"""The exchange of ranks between two passes: the parts of models and tails that lie on other bundles' pixels.

A rank keeps the light of its own bundles. A bundle's window is the rectangle of its pixels. Parts of other bundles'
light are sent if they lie in that window.
"""
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from gpu_extract.bundle import Job
from gpu_extract.data import Draft, Image, Light
from gpu_extract.errors import InputError, InternalError
from gpu_extract.passes import Past
from gpu_extract.passes.crosstalk import Piece, Window, cut_piece
from gpu_extract.passes.read_noise import ReadNoise
from gpu_extract.plan import turns
from gpu_extract.ranks.comm import SERIAL
from gpu_extract.seams import Comm, Recorder
from gpu_extract.several.bundles import draft_bundle

PastOf = Callable[[int], Past]
Parts = list[tuple[int, int, Piece]]       # the bundle of the window, whether it is of tails, the light


class _Own(NamedTuple):
    """The light of a rank's bundles, by number, and those of them that this rank sends to others."""

    lights: Mapping[int, Light]
    told: Sequence[int]


def past_of(image: Image, job: Job, comm: Comm, recorder: Recorder, start: Draft | None = None) -> PastOf:
    """The result of all passes but the last: the past of each bundle of this rank, by number. All ranks call this.

    start: a draft that replaces the first pass
    """
    noise_alone = Past(noise_of(job))          # the knowledge before the first pass
    past: PastOf = (lambda bundle: noise_alone) if start is None else _started(job, start, image, comm)
    for _ in range(job.config.passes - 1 - (start is not None)):
        past = _after(_draft(image, job, past, comm, recorder), job, comm)
    return past


def make_draft(image: Image, job: Job, comm: Comm, recorder: Recorder, start: Draft | None = None) -> Draft:
    """All passes over an image but the last, at least one: their result, on all ranks."""
    before = replace(job, config=replace(job.config, passes=max(job.config.passes - 1, 1 + (start is not None))))
    own = _draft(image, job, past_of(image, before, comm, recorder, start), comm, recorder)
    lights = of_all(comm, {number: own.lights[number] for number in own.told})
    return Draft(tuple(lights), job.plan.bundles, image.shape, job.plan.extended, job.decay.beyond)


def noise_of(job: Job) -> ReadNoise:
    """The read noise of the job, which must exist with several passes."""
    if job.noise is None:
        raise InternalError("several passes without read noise")
    return job.noise


def _started(job: Job, start: Draft, image: Image, comm: Comm) -> PastOf:
    """The past from a draft, of all bundles on all ranks. Raises InputError if it belongs to another job."""
    if start.shape != image.shape or start.bundles != job.plan.bundles or \
            not np.array_equal(start.wave, job.plan.extended):
        raise InputError("the starting draft belongs to another image size, PSF or wavelength grid, or to an image "
                         f"whose masks need fewer bins beyond the ends ({start.pad}, now {job.decay.beyond}); make it "
                         "again, without a start, with the same PSF and settings")
    lights = dict(enumerate(start.lights))
    return _after(_Own(lights, list(lights) if comm.rank == 0 else []), job, comm)


def _draft(image: Image, job: Job, past: PastOf, comm: Comm, recorder: Recorder) -> _Own:
    """One pass over this rank's bundles. All ranks that share a bundle have its light; the first of them sends it."""
    lights, told = {}, []
    for turn in turns(len(job.plan.bundles), comm.size, comm.rank):
        group = SERIAL if turn.group is None else comm.split(turn.group)
        with recorder.span("draft"), group.together():
            lights[turn.bundle] = draft_bundle(image, job, job.plan.bundles[turn.bundle], past(turn.bundle),
                                               recorder=recorder)
        if group.rank == 0:
            told.append(turn.bundle)
    return _Own(lights, told)


def _after(own: _Own, job: Job, comm: Comm) -> PastOf:
    """The past of this rank's bundles after a pass; all ranks send what others need."""
    windows: list[Window] = of_all(comm, {n: (*map(int, own.lights[n].corner), *own.lights[n].model.shape)
                                        for n in own.told})
    pieces: list[Parts] = of_all(comm, {n: pieces_of(n, own.lights[n], windows) for n in own.told})
    noise = noise_of(job)

    def past(bundle: int) -> Past:
        return Past(noise, own.lights[bundle], [piece for told in pieces for n, _, piece in told if n == bundle])

    return past


def of_all(comm: Comm, own: Mapping[int, Any]) -> list[Any]:
    """The parts of all ranks for each bundle, in order of bundles, on all ranks."""
    parts = comm.gather(sorted(own.items()))
    return comm.share(lambda: parts or [])


def pieces_of(bundle: int, light: Light, windows: Sequence[Window]) -> Parts:
    """The parts of a bundle's model in the windows of others, and of its tails in all."""
    cuts = [(n, 0, cut_piece(light.model, light.corner, window)) for n, window in enumerate(windows) if n != bundle]
    far = () if light.tails.size == 0 else tuple(
        (n, 1, cut_piece(light.tails, light.tail_corner, window)) for n, window in enumerate(windows))
    return [(n, tail, piece) for n, tail, piece in (*cuts, *far) if piece is not None]
