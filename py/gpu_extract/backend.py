"""The seam to what works on the bundles, as a type."""
from collections.abc import Callable
from typing import Protocol

from gpu_extract.bundle import Job
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Draft, Image, PsfModel, Rows
from gpu_extract.seams import Comm, Recorder


class Backend(Protocol):
    """What works on the bundles of a rank: cpu_frame.CpuFrames or device.frames.GpuFrames."""

    @property
    def name(self) -> str:
        """For the header."""

    @property
    def warm_bins(self) -> int:
        """Steps of wavelength whose extraction loads all kernels."""

    @property
    def warm(self) -> bool:
        """Whether the kernels are there without that."""

    @property
    def beside(self) -> bool:
        """Whether what makes the rows works beside this process, which can do something else meanwhile."""

    def get_ready(self, psf: PsfModel, config: ExtractConfig, comm: Comm, recorder: Recorder) -> bool:
        """Compile the kernels for such a problem that are not yet there; all ranks call this.

        False: that takes an extraction.
        """

    def rows(self, image: Image, job: Job, comm: Comm, recorder: Recorder, *,
             start: Draft | None = None, meanwhile: Callable[[], object] = lambda: None) -> list[tuple[int, Rows]]:
        """The rows of this rank's bundles, with numbers that grow with them.

        meanwhile: is done beside that where that can be
        """

    def watch(self, recorder: Recorder, *, ranges: bool = False) -> None:
        """Have the recorder told of the device's work."""

    def close(self) -> None:
        """Give back what is held."""
