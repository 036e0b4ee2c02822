"""What the device could not do, done by the CPU: whole bundles, or some fibres' decorrelation."""
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gpu_extract.assemble import BY_BIN, held, wanted
from gpu_extract.bundle import Job, banded_part, clear_corners, extract_bundle, locate, make_normal
from gpu_extract.data import BundleResult, Image, Rows, SpecMask
from gpu_extract.decorrelate.dense.patch_pixels import PatchPixels
from gpu_extract.quality import bin_status, stands_out
from gpu_extract.ranks.comm import SERIAL
from gpu_extract.seams import Recorder
from gpu_extract.solve import solve


def on_cpu(image: Image, job: Job, number: int, recorder: Recorder) -> BundleResult:
    """A bundle of the job as the CPU makes it."""
    result = extract_bundle(image, job, job.plan.bundles[number], group=SERIAL, recorder=recorder)
    return replace(result, notes={**result.notes, "on_cpu": len(result.flux)})


def put(rows: Rows, part: Rows) -> None:
    """Write a part of the rows where it belongs; models and notes are left."""
    place = slice(part.fibres[0] - rows.fibres[0], part.fibres[1] - rows.fibres[0])
    for name in BY_BIN:
        getattr(rows, name)[place] = getattr(part, name)


def put_fibres(rows: Rows, lost: Sequence[int], job: Job, *, image: Image, recorder: Recorder,
               fibres: tuple[int, int], kept: Mapping[str, np.ndarray]) -> None:
    """Write what the CPU makes of some fibres of a bundle, from normal equations of their own, and the bundle's
    mask, which depends on all of its fibres.

    lost: numbers of the fibres within the bundle lo .. hi - 1 `fibres`; kept: of the bundle (memory.kept_arrays)
    """
    place = locate(image, job, fibres)
    _, normal = make_normal(job, place, group=SERIAL, recorder=recorder)
    solution, step = solve(normal), np.gradient(job.plan.wave)
    normal, x = replace(normal, lifted=solution.lifted), solution.x      # strengths lie in memory that is used again
    pixels = PatchPixels(image, job.psf, fibres, job.plan.extended, place.odd)
    lo, hi = wanted(fibres, job.plan)
    nothing = np.uint32(SpecMask.NODATA)
    bits = kept["bits"]
    for n in lost:
        with recorder.span("decorrelate"):
            part = banded_part(normal, x, job, (n, n + 1), pixels)
        clear_corners(part.resolution)
        bits[n] &= ~nothing
        bits[n, part.ivar[0] == 0.0] |= nothing
        bits[n, part.weak[0]] |= np.uint32(SpecMask.WEAKBIN)
        if lo <= fibres[0] + n < hi:
            row = fibres[0] + n - rows.fibres[0]
            with np.errstate(over="ignore"):
                rows.flux[row], rows.ivar[row] = part.flux[0] / step, part.ivar[0] * step**2
            rows.resolution[row], rows.status[row] = part.resolution[0], bin_status(part.status[0], bits[n])
    bits[stands_out(kept["chi2pix"], bits == 0)] |= np.uint32(SpecMask.BAD2DFIT)
    own = slice(lo - rows.fibres[0], hi - rows.fibres[0])
    rows.mask[own] = bits[lo - fibres[0]:hi - fibres[0]]
    held(Rows((lo, hi), **{name: getattr(rows, name)[own] for name in BY_BIN}))     # in place; not known of `bits`
