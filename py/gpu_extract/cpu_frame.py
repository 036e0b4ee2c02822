"""Extraction on the CPU: the bundles of a rank, one after another."""
from typing import Any

from gpu_extract.assemble import rows_of
from gpu_extract.backend.arena import forget
from gpu_extract.bundle import Job, extract_bundle
from gpu_extract.comm import SERIAL
from gpu_extract.data import Image, Rows
from gpu_extract.plan import turns


class CpuFrames:
    """What `run.extract` works with where nothing else is asked for.

    name: for the header; warm: whether kernels are there; nobody knows, and to see costs little
    warm_bins: steps of wavelength after which all of them are
    """

    name = "CPU"
    warm = False
    warm_bins = 4

    def rows(self, image: Image, job: Job, comm: Any, recorder: Any) -> list[tuple[int, Rows]]:
        """The rows of this rank's bundles, by number; a group of ranks shares the last ones, and its first has them."""
        found = []
        for turn in turns(len(job.plan.bundles), comm.size, comm.rank):
            group = SERIAL if turn.group is None else comm.split(turn.group)
            with recorder.span("bundle"), group.together():
                result = extract_bundle(image, job, job.plan.bundles[turn.bundle], group=group, recorder=recorder)
            if group.rank == 0:
                found.append((turn.bundle, rows_of(result, job.plan)))
        forget()
        return found

    def watch(self, recorder: Any, *, ranges: bool = False) -> None:
        """There is no device to watch."""

    def close(self) -> None:
        """There is nothing to give back."""


CPU = CpuFrames()
