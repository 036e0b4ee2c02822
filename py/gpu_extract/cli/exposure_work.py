"""The frames of an exposure as the flow wants them: is it done, read it, write it."""
import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_extract.cli.common import log
from gpu_extract.cli.exposure_list import Entry
from gpu_extract.cli.job import Inputs, make_config, read_job
from gpu_extract.errors import OutputError

if TYPE_CHECKING:
    from gpu_extract.data import Frame, Image
    from gpu_extract.exposure.frames import Loaded


def make_folder(path: str) -> None:
    """The folder of the frames. Raises OutputError where it cannot be made."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: the folder cannot be made ({error.strerror}); give another one") from error


class Files:
    """Frames from files to files (exposure.frames.Work)."""

    def __init__(self, entries: Sequence[Entry], args: argparse.Namespace):
        self._entries, self._args = entries, args
        self.core: str = args.core

    def is_done(self, number: int) -> bool:
        """Whether the output is there, whole and made of the same input with the same settings."""
        from gpu_extract.io.complete import frame_is_there

        entry = self._entries[number]
        return not self._args.recompute and frame_is_there(entry.output, (entry.image, entry.psf), self._digest)

    def _digest(self, image: "Image") -> str:
        return make_config(self._args, image).digest()

    def read(self, number: int) -> "Loaded":
        """Everything that can be wrong with input and output is found here, before the work."""
        from gpu_extract.exposure.frames import Loaded
        from gpu_extract.io.atomic import check_target

        entry = self._entries[number]
        check_target(entry.output, make=self._args.output)
        job = read_job(self._args, Inputs(entry.image, entry.psf))
        return Loaded(job.image, job.psf, job.config, (job.cards, job.fibermap))

    def write(self, number: int, loaded: "Loaded", frame: "Frame") -> None:
        """Write the frame, whole or not at all."""
        from gpu_extract.io.frame import write_frame

        for sentence in frame.notes.get("warnings", ()):
            log.warning(f"{self._entries[number].name}: {sentence}")
        if self._args.output is not None:
            make_folder(self._args.output)
        cards, fibermap = loaded.extra
        write_frame(self._entries[number].output, replace(frame, fibermap=fibermap), cards=cards,
                    scores=not self._args.no_scores)
