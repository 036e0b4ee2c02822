"""The flow of an extraction, and the public Python API."""
from typing import Any

from gpu_extract.assemble import assemble
from gpu_extract.bundle import Job, extract_bundle
from gpu_extract.comm import SERIAL
from gpu_extract.config import ExtractConfig
from gpu_extract.data import BundleResult, Frame, Image, PsfModel
from gpu_extract.perf.recorder import NULL
from gpu_extract.plan import make_plan, wavelength_grid
from gpu_extract.probe import measure_decay
from gpu_extract.psf_check import check_psf


def extract(image: Image, psf: PsfModel, config: ExtractConfig, *, comm: Any = SERIAL, recorder: Any = NULL,
            threads: int = 1) -> Frame | None:
    """Extract the spectra of a CCD image.

    image: electrons and inverse variance, data.Image; psf: data.PsfModel; config: what to extract, and how
    comm: the ranks that share the work (comm.py); recorder: perf.recorder; threads: of this process
    Returns the frame on rank 0, None on the others. Ranks and threads change the time it takes and nothing else.
    Raises InputError where fibres or wavelengths lie outside the PSF, or no fibre of it can be used.
    """
    with recorder.span("plan"):
        job = prepare(psf, config, threads)
    results = []
    for fibres in job.plan.bundles:
        with recorder.span("bundle"):
            results.append(extract_bundle(image, job, fibres, group=comm, recorder=recorder))
    if comm.rank != 0:
        return None
    with recorder.span("assemble"):
        return assemble(results, job.plan, image, notes_of(job, results))


def prepare(psf: PsfModel, config: ExtractConfig, threads: int = 1) -> Job:
    """Check the PSF, measure its decay, plan the work."""
    psf, dropped = check_psf(psf, wavelength_grid(config.wavelength) / config.wave_factor)
    decay = measure_decay(psf, config.wavelength, config.tolerance)
    plan = make_plan(psf, config, decay.beyond)
    psferr = psf.psferr if config.psferr is None else config.psferr
    ndiag = psf.stamp[0] // 2 if config.ndiag is None else config.ndiag
    return Job(psf, config, plan, decay, dropped, psferr, ndiag, threads)


def notes_of(job: Job, results: list[BundleResult]) -> dict[str, Any]:
    """Facts about how a frame was made, for its header and for the summary."""
    return {"core": job.config.core, "pad": job.decay.beyond, "patch_pad": job.decay.patch,
            "psferr": job.psferr, "dropped": dict(job.dropped),
            "digest": job.config.digest(), "bundles": {r.fibres[0]: dict(r.notes) for r in results}}
