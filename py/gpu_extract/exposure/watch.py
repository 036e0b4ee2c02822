"""A recorder's stand-in that lets a run stop between two bundles, and keeps as much as was asked for."""
from threading import Event
from typing import Any

from gpu_extract.errors import StoppedCleanly
from gpu_extract.seams import NULL, Recorder

# opened for every bundle on the CPU, for every frame on a GPU, each under the agreement of all ranks that share it: an
# error raised here reaches them all
SAFE = "cut", "queue"


class Watch:
    """Takes a recorder's calls during an extraction.

    detail: pass all of them on; else nothing is kept, so that a record does not grow by a thousand spans a frame
    Opening a span of SAFE raises StoppedCleanly where the run is to stop.
    """

    def __init__(self, recorder: Recorder, stop: Event, detail: bool):
        self.rank = recorder.rank
        self._stop = stop
        self._kept = recorder if detail else NULL

    def span(self, name: str) -> Any:
        """A context manager that times what runs under it."""
        self._may_stop(name)
        return self._kept.span(name)

    def device_span(self, name: str) -> Any:
        """The same with the time on the device."""
        self._may_stop(name)
        return self._kept.device_span(name)

    def _may_stop(self, name: str) -> None:
        if name in SAFE and self._stop.is_set():
            raise StoppedCleanly("stopped on request; start again to go on")

    def __getattr__(self, name: str) -> Any:
        """Everything else a recorder can do."""
        return getattr(self._kept, name)
