"""Extraction on the CPU: the bundles of a rank, one after another."""
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

from gpu_extract.assemble import rows_of, wanted
from gpu_extract.backend import Backend
from gpu_extract.bundle import Job, extract_bundle
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Draft, Image, PsfModel, Rows
from gpu_extract.decorrelate.narrow.simd_correct import HALF
from gpu_extract.first_use import Tell, get_ready, kernel_list
from gpu_extract.kernels.arena import forget
from gpu_extract.known import known
from gpu_extract.plan import TILE, turns
from gpu_extract.ranks.comm import SERIAL
from gpu_extract.seams import Comm, Recorder
from gpu_extract.several.bundles import extract_again
from gpu_extract.several.exchange import past_of


class CpuFrames(Backend):
    """The default backend of `run.extract`.

    tell: called with the progress, see first_use.Tell
    tile: wavelength bins per tile of the normal equations; it changes no bit
    keep: whether work space (130 MB) is kept from frame to frame; after a single frame, the next steps need the memory
    """

    name = "CPU"

    def __init__(self, *, keep: bool = True, tile: int = TILE, tell: Tell = lambda done, count, left: None):
        self._keep, self._tile, self.tell = keep, tile, tell
        self._ready: set[str] = set()

    def get_ready(self, psf: PsfModel, config: ExtractConfig, comm: Comm, recorder: Recorder) -> bool:
        mark = _mark(psf, config)
        if comm.size > 1 or mark not in self._ready:      # kernels that were loaded once are in this process's memory
            get_ready(lambda: kernels_for(psf, config), mark, comm, recorder, self.tell)
            self._ready.add(mark)
        return True

    def rows(self, image: Image, job: Job, comm: Comm, recorder: Recorder, *,
             start: Draft | None = None, meanwhile: Callable[[], object] = lambda: None) -> list[tuple[int, Rows]]:
        """The rows of this rank's bundles, by number; a group of ranks shares the last ones, and its first has them."""
        meanwhile()
        found, job = [], replace(job, tile=self._tile)
        past = past_of(image, job, comm, recorder, start) if job.config.passes > 1 or start is not None else None
        for turn in turns(len(job.plan.bundles), comm.size, comm.rank):
            group = SERIAL if turn.group is None else comm.split(turn.group)
            fibres = job.plan.bundles[turn.bundle]
            lo, hi = wanted(fibres, job.plan)
            with recorder.span("bundle"), group.together():
                if lo == hi:      # only its light was needed, which is in the past of others
                    continue
                if past is None:
                    result = extract_bundle(image, job, fibres, group=group, recorder=recorder)
                else:
                    result = extract_again(image, job, fibres, past(turn.bundle), group=group, recorder=recorder)
            if group.rank == 0:
                found.append((turn.bundle, rows_of(result, job.plan, job.dtype)))
        if not self._keep:
            forget()
        return found


def kernels_for(psf: PsfModel, config: ExtractConfig, *, every: bool = False) -> list[kernel_list.Kernel]:
    """The kernels for a problem. every: including those that only few frames need.

    Otherwise kernels of broad bands, which frames of such a PSF seldom need, are compiled by a frame that needs them
    (broader).
    """
    ndiag = max(psf.stamp[0] // 2 if config.ndiag is None else config.ndiag, HALF)
    uses = [kernel_list.EXTRACT, *([kernel_list.PASSES] if every or config.passes > 1 else []),
            *([kernel_list.SIMULATE, kernel_list.SOME] if every else [])]
    bands = set() if config.core == "dense" and not every else kernel_list.bands_of(psf, config)
    most = None if every else kernel_list.broader(psf, config)
    return [*kernel_list.listed(*uses), *kernel_list.for_bands(bands, ndiag, most)]


def _mark(psf: PsfModel, config: ExtractConfig) -> str:
    """The mark of a problem's kernels: their bands follow from the stamp, the camera and the step of wavelength."""
    problem = (psf.stamp, len(psf.cores), psf.tail is None, psf.wavelength_range, config.wavelength, config.core,
               config.ndiag, config.bundlesize, psf.nfibre,
               known(psf, ("broader", config.wavelength[2]), lambda: kernel_list.broader(psf, config)),
               *(("passes",) if config.passes > 1 else ()))
    return f"ready-{sha256(repr(problem).encode()).hexdigest()[:16]}"


CPU = CpuFrames()
