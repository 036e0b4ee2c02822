"""Extraction on the CPU: the bundles of a rank, one after another."""
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu_extract.assemble import rows_of
from gpu_extract.backend.arena import forget
from gpu_extract.backend.kernel_mark import leave, mark_of
from gpu_extract.bundle import Job, extract_bundle
from gpu_extract.comm import SERIAL
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Image, PsfModel, Rows
from gpu_extract.plan import TILE, turns


class CpuFrames:
    """What `run.extract` works with where nothing else is asked for.

    name: for the header; warm_bins: steps of wavelength after which all kernels are there
    first_use: what to tell a user while they are not
    tile: wavelength bins that normal equations are made of at a time; it changes no bit
    keep: whether work space (130 MB) is kept from frame to frame; where there is one frame, what follows needs it more
    """

    name = "CPU"
    warm_bins = 4
    first_use = "first use with such a PSF and step: kernels are compiled, which takes up to a minute, and kept"

    def __init__(self, *, keep: bool = True, tile: int = TILE):
        self._keep, self._tile = keep, tile

    def warm(self, psf: PsfModel, config: ExtractConfig) -> bool:
        """Whether the kernels for such a problem have been compiled before, on this machine."""
        return _mark(psf, config).exists()

    def warmed(self, psf: PsfModel, config: ExtractConfig) -> None:
        """Remember that they have."""
        leave(_mark(psf, config))

    def rows(self, image: Image, job: Job, comm: Any, recorder: Any) -> list[tuple[int, Rows]]:
        """The rows of this rank's bundles, by number; a group of ranks shares the last ones, and its first has them."""
        found, job = [], replace(job, tile=self._tile)
        for turn in turns(len(job.plan.bundles), comm.size, comm.rank):
            group = SERIAL if turn.group is None else comm.split(turn.group)
            with recorder.span("bundle"), group.together():
                result = extract_bundle(image, job, job.plan.bundles[turn.bundle], group=group, recorder=recorder)
            if group.rank == 0:
                found.append((turn.bundle, rows_of(result, job.plan, job.dtype)))
        if not self._keep:
            forget()
        return found

    def watch(self, recorder: Any, *, ranges: bool = False) -> None:
        """There is no device to watch."""

    def close(self) -> None:
        """There is nothing to give back."""


def _mark(psf: PsfModel, config: ExtractConfig) -> Path:
    """What kernels are written out for: the bands follow from the stamp, the camera and the step of wavelength."""
    return mark_of(psf.stamp, len(psf.cores), psf.tail is None, psf.wavelength_range, config.wavelength[2], config.core,
                   config.ndiag)


CPU = CpuFrames()
