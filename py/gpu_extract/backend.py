"""The seam to what works on the bundles."""
from collections.abc import Callable

from gpu_extract.bundle import Job
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Draft, Image, PsfModel, Rows
from gpu_extract.seams import Comm, Recorder


class Backend:
    """What works on the bundles of a rank: cpu_frame.CpuFrames or device.frames.GpuFrames.

    warm_bins: steps of wavelength whose extraction loads all kernels
    beside: whether what makes the rows works beside this process, which can do something else meanwhile
    """

    warm_bins = 4
    beside = False

    @property
    def name(self) -> str:
        """For the header."""
        raise NotImplementedError

    @property
    def warm(self) -> bool:
        """Whether the kernels are there without an extraction of `warm_bins`: `get_ready` compiles them."""
        return True

    def get_ready(self, psf: PsfModel, config: ExtractConfig, comm: Comm, recorder: Recorder) -> bool:
        """Compile the kernels for such a problem that are not yet there; all ranks call this.

        False: that takes an extraction.
        """
        raise NotImplementedError

    def rows(self, image: Image, job: Job, comm: Comm, recorder: Recorder, *,
             start: Draft | None = None, meanwhile: Callable[[], object] = lambda: None) -> list[tuple[int, Rows]]:
        """The rows of this rank's bundles, with numbers that grow with them.

        meanwhile: is done beside that where that can be
        """
        raise NotImplementedError

    def watch(self, recorder: Recorder, *, ranges: bool = False) -> None:
        """Have the recorder told of the device's work, where there is a device."""

    def close(self) -> None:
        """Give back what is held."""
