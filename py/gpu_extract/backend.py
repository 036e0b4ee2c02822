"""The interface to the backend, which extracts the bundles."""
from collections.abc import Callable

from gpu_extract.bundle import Job
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Draft, Image, PsfModel, Rows
from gpu_extract.seams import Comm, Recorder


class Backend:
    """Extracts the bundles of a rank: cpu_frame.CpuFrames or device.frames.GpuFrames.

    warm_bins: steps of wavelength whose extraction loads all kernels
    beside: whether the rows are made outside this process, which can do other work meanwhile
    """

    warm_bins = 4
    beside = False

    @property
    def name(self) -> str:
        """Its name for the header."""
        raise NotImplementedError

    @property
    def warm(self) -> bool:
        """Whether `get_ready` compiles all kernels, without an extraction of `warm_bins`."""
        return True

    def get_ready(self, psf: PsfModel, config: ExtractConfig, comm: Comm, recorder: Recorder) -> bool:
        """Compile the missing kernels for a problem; all ranks call this.

        Returns False if that needs an extraction.
        """
        raise NotImplementedError

    def rows(self, image: Image, job: Job, comm: Comm, recorder: Recorder, *,
             start: Draft | None = None, meanwhile: Callable[[], object] = lambda: None) -> list[tuple[int, Rows]]:
        """The rows of this rank's bundles, with ascending numbers.

        meanwhile: called at the same time, if possible
        """
        raise NotImplementedError

    def watch(self, recorder: Recorder, *, ranges: bool = False) -> None:
        """Report the device's work to the recorder, if there is a device."""

    def close(self) -> None:
        """Release all resources."""
