"""The sequence of an extraction, and the public Python API."""
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from gpu_extract.assemble import assemble
from gpu_extract.backend import Backend
from gpu_extract.bundle import Job
from gpu_extract.checks.arguments import check_arguments, seam
from gpu_extract.checks.bundle_edges import too_close
from gpu_extract.checks.coarse import too_coarse
from gpu_extract.checks.masked_ends import beside_masks
from gpu_extract.checks.odd_pixels import check_unit, most_ivar
from gpu_extract.checks.probe import Decay, measure_decay, on_ccd, too_fine
from gpu_extract.checks.psf_check import BEYOND, check_psf, remaining
from gpu_extract.checks.sense import compare, misfits
from gpu_extract.config import ExtractConfig, check_background
from gpu_extract.cpu_frame import CPU
from gpu_extract.data import Draft, Frame, Image, PsfModel, Rows
from gpu_extract.decorrelate.weak import HIDDEN
from gpu_extract.errors import check_kind
from gpu_extract.fibermap import rows_for
from gpu_extract.known import known, unchanged
from gpu_extract.lapack import one_thread
from gpu_extract.own_wave import check_own, in_own_wavelengths
from gpu_extract.passes.crosstalk import add_pieces, cut_piece
from gpu_extract.passes.ends import told_of_ends
from gpu_extract.passes.read_noise import find_read_noise, too_quiet
from gpu_extract.perf.compiling import compiling
from gpu_extract.plan import make_plan, wavelength_grid
from gpu_extract.ranks.comm import SERIAL
from gpu_extract.seams import NULL, Comm, Recorder
from gpu_extract.several.exchange import make_draft


def extract(image: Image, psf: PsfModel, config: ExtractConfig, *, comm: Comm | None = SERIAL,
            recorder: Recorder | None = NULL, threads: int = 1, backend: Backend | None = CPU,
            dtype: DTypeLike = np.float64) -> Frame | None:
    """Extract the spectra of a CCD image.

    image: electrons and inverse variance, data.Image; psf: data.PsfModel; config: what to extract, and how
    comm: the ranks that share the work (comm.py); recorder: perf.recorder; threads: of this process
    backend: extracts the bundles, cpu_frame.CPU or a device.frames.GpuFrames
    (comm, recorder and backend may be None: one rank, no recorder, the CPU)
    dtype: of the frame's real numbers, float64 or, as in files, float32; all computation is in float64

    Returns the frame on rank 0, None on the others. Ranks and threads change only the run time. Raises InputError if
    fibres or wavelengths lie outside the PSF, no fibre of it can be used, image and PSF do not belong together, the
    fibermap contradicts the fibres, or a pixel or its ivar is invalid.
    """
    return _extract((image, psf, config), None, comm=comm, recorder=recorder, threads=threads, backend=backend,
                    dtype=dtype)


def extract_from(start: Draft, image: Image, psf: PsfModel, config: ExtractConfig, *, comm: Comm | None = SERIAL,
                 recorder: Recorder | None = NULL, threads: int = 1, dtype: DTypeLike = np.float64) -> Frame | None:
    """Extract the spectra of an image, starting from a `draft` of it, or of a similar image.

    start: replaces one pass; the same on all ranks. The other arguments are those of `extract`.
    Raises the errors of `extract`, and InputError if the draft belongs to another image size, PSF or wavelength grid.
    """
    return _extract((image, psf, config), start, comm=comm, recorder=recorder, threads=threads, backend=CPU,
                    dtype=dtype)


def _extract(what: tuple[Image, PsfModel, ExtractConfig], start: Draft | None, *, comm: Comm | None,
             recorder: Recorder | None, threads: int, backend: Backend | None, dtype: DTypeLike) -> Frame | None:
    image, psf, config = what
    with _together(comm, recorder) as (comm, recorder), unchanged(psf):
        backend = seam("backend", backend, CPU)
        check_arguments((*what, start), threads, dtype)
        config = config if start is None else replace(config, passes=max(config.passes, 2))    # one is there already
        check_background(config.passes, config.background)
        check_unit(image)
        check_own(psf, config)
        sentences = cache(partial(_compared, what, comm, recorder))
        if not (backend.beside and backend.warm):
            sentences()
        with recorder.span("warm up"):
            get_ready(image, psf, config, comm, recorder, backend)
        with recorder.span("plan"):
            job = _job(image, psf, config, threads, dtype, start)
            fibermap = rows_for(image, job.plan.asked, psf.nfibre)
        for said in (too_fine(job.psf, job.decay, config.wavelength, config.tolerance, HIDDEN),
                     too_coarse(job.psf, config.wavelength), too_quiet(job.noise), _unsearched(job, image)):
            if said:
                recorder.warn(said)
        edges = cache(lambda: _beside(psf, job) if comm.rank == 0 and config.passes == 1 else [])
        own = backend.rows(image, job, comm, recorder, start=start, meanwhile=lambda: (sentences(), edges()))
        with recorder.span("gather"):
            parts = comm.gather(own)
        if parts is None:
            return None
        own.clear()
        parts = [part for part in parts if part.fibres[0] < part.fibres[1]]     # not bundles that passes needed alone
        with recorder.span("assemble"):
            frame = assemble(parts, job.plan, image, notes_of(job, parts, backend), like=(job.ndiag, job.dtype))
        frame = in_own_wavelengths(frame, psf)
        warnings = [*sentences(), *misfits(frame), *doubts(frame), *edges()]
        notes = {**frame.notes, "warnings": tuple(warnings)} if warnings else frame.notes
        return replace(frame, fibermap=fibermap, notes=notes)


@contextmanager
def _together(comm: Comm | None, recorder: Recorder | None) -> Iterator[tuple[Comm, Recorder]]:
    """Context of an extraction: the ranks and the recorder, which for None are a single process and no recorder."""
    ranks = seam("comm", comm, SERIAL)
    with ranks.together():
        watcher = seam("recorder", recorder, NULL)
        with compiling(watcher), one_thread():
            yield ranks, watcher


def _compared(what: tuple[Image, PsfModel, ExtractConfig], comm: Comm, recorder: Recorder) -> list[str]:
    """Warnings of rank 0 about image and PSF: whether they belong together."""
    with recorder.span("compare"):
        return compare(*what) if comm.rank == 0 else []


def _beside(psf: PsfModel, job: Job) -> list[str]:
    """Warnings about the edges of bundles; psf: as given, of which the plan keeps some fibres."""
    plan = job.plan
    return known(psf, ("edges", plan.bundles, plan.kept.tobytes(), plan.extended.tobytes()),
                 lambda: too_close(job.psf, plan))


def draft(image: Image, psf: PsfModel, config: ExtractConfig, *, comm: Comm | None = SERIAL,
          recorder: Recorder | None = NULL, threads: int = 1, start: Draft | None = None) -> Draft:
    """Make all passes over an image but the last, on all ranks. The result is a start for `extract_from`, and `model`
    draws it.

    The arguments are those of `extract`; at least one pass is made, whatever config.passes. Raises the errors of
    `extract`.
    """
    with _together(comm, recorder) as (comm, recorder), unchanged(psf):
        check_arguments((image, psf, config, start), threads)
        check_unit(image)
        check_own(psf, config)
        for sentence in compare(image, psf, config) if comm.rank == 0 else ():
            recorder.warn(sentence)
        get_ready(image, psf, config, comm, recorder, CPU)
        job = _job(image, psf, replace(config, passes=max(config.passes, 2)), threads, np.float64, start)
        return make_draft(image, job, comm, recorder, start)


def _unsearched(job: Job, image: Image) -> str:
    """A warning that wide cosmic rays are not searched for in some bins, although they are asked for; or nothing."""
    if job.config.passes == 1 or job.config.keep_cosmics:
        return ""
    return told_of_ends(job.psf, job.plan, image.shape, job.decay.beyond)


def model(start: Draft) -> np.ndarray:
    """The light of a draft on the CCD: (ny, nx) electron, summed over all bundles, without tails beyond the stamps."""
    check_kind("start", start, Draft, "a Draft, which draft makes")
    image = np.zeros(start.shape)
    for light in start.lights:
        piece = cut_piece(light.model, light.corner, (0, 0, *start.shape))
        add_pieces(image, (0, 0), () if piece is None else (piece,))
    return image


def doubts(frame: Frame) -> list[str]:
    """Sentences on bundles whose further passes failed in part."""
    said = {"hopeless": "more pixels stand out from the model than cosmics can hit: none was rejected; check the PSF",
            "ran_away": "a pass gave no finite model: pixels are weighted by the read noise alone"}
    return [f"fibres {first} to {first + notes['fibres'] - 1}: {text}"
            for first, notes in sorted(frame.notes.get("bundles", {}).items()) for key, text in said.items()
            if notes.get(key, 0)]


def _job(image: Image, psf: PsfModel, config: ExtractConfig, threads: int, dtype: DTypeLike,
         start: Draft | None = None) -> Job:
    """The job from `prepare` and the image, with the pad of a starting draft, if that is longer."""
    job = prepare(psf, config, threads, dtype, image, 0 if start is None else start.pad)
    job = replace(job, most_ivar=None if config.keep_odd else most_ivar(image))
    return job if config.passes == 1 else replace(job, noise=find_read_noise(image, psf.shape))


def prepare(psf: PsfModel, config: ExtractConfig, threads: int = 1, dtype: DTypeLike = np.float64,
            image: Image | None = None, pad: int = 0) -> Job:
    """Check the PSF, measure its decay, plan the work. From here on the fibres are renumbered without the dropped ones.

    image: its masks may require a longer pad; pad: least number of bins
    """
    good, dropped, decay = _measured(psf, config, image, pad)
    plan = on_ccd(good, make_plan(psf, config, decay.beyond, dropped))
    psferr = psf.psferr if config.psferr is None else config.psferr
    ndiag = psf.stamp[0] // 2 if config.ndiag is None else config.ndiag
    return Job(good, config, plan, decay, dropped, psferr, ndiag, threads, dtype=np.dtype(dtype))


def _measured(psf: PsfModel, config: ExtractConfig, image: Image | None,
              pad: int) -> tuple[PsfModel, dict[int, str], Decay]:
    """The PSF of the fibres that are usable on all bins that are solved for, the others with reasons, and the decay."""
    beyond = BEYOND
    while True:
        dropped, decay = known(psf, ("decay", config.wavelength, config.wave_factor, config.tolerance, beyond),
                               partial(_of_good_pixels, psf, config, beyond))
        good = remaining(psf, dropped)
        if image is not None:
            decay = beside_masks(decay, image, good, config.wavelength, config.tolerance)
        decay = replace(decay, beyond=max(decay.beyond, pad))
        if decay.beyond <= beyond:
            return good, dict(dropped), decay
        beyond = decay.beyond


def _of_good_pixels(psf: PsfModel, config: ExtractConfig, beyond: int) -> tuple[dict[int, str], Decay]:
    """The unusable fibres, with reasons, and the decay of the others if all pixels are good."""
    dropped = check_psf(psf, wavelength_grid(config.wavelength) / config.wave_factor, beyond)
    return dropped, measure_decay(remaining(psf, dropped), config.wavelength, config.tolerance)


def warm_up(image: Image, psf: PsfModel, config: ExtractConfig, backend: Backend = CPU) -> None:
    """Extract a few bins of the first bundle, which compiles kernels and caches them for later runs."""
    first, last, step = config.wavelength
    few = first, min(first + backend.warm_bins * step, last), step
    job = prepare(psf, replace(config, wavelength=few, model=False, passes=1))
    backend.rows(image, replace(job, plan=replace(job.plan, bundles=job.plan.bundles[:1])), SERIAL, NULL)


def get_ready(image: Image, psf: PsfModel, config: ExtractConfig, comm: Comm, recorder: Recorder,
              backend: Backend) -> None:
    """Compile missing kernels; all ranks call this. Existing ones are loaded on use."""
    if not backend.get_ready(psf, config, comm, recorder) and comm.size > 1:       # else no rank waits for it
        number, _ = comm.on_node()
        comm.by_node(lambda: None if number or backend.warm else warm_up(image, psf, config, backend))


def notes_of(job: Job, parts: list[Rows], backend: Backend) -> dict[str, Any]:
    """Facts about how a frame was made, for its header and for the summary."""
    passes = {} if job.noise is None else {"passes": job.config.passes, "read_noise": job.noise.source,
                                           "rejected": np.concatenate([part.rejected for part in parts])}
    return {"core": job.config.core, "device": backend.name, "pad": job.decay.beyond, "patch_pad": job.decay.patch,
            "psferr": job.psferr, "dropped": dict(job.dropped),
            "digest": job.config.digest(), **passes,
            "bundles": {int(job.plan.kept[n]): dict(notes) for part in parts for n, notes in part.notes.items()}}
