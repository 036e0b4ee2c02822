"""The frames of an exposure for the flow: whether one is done, reading it, writing it."""
import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gpu_extract.cli.common import log
from gpu_extract.cli.exposure_list import Entry
from gpu_extract.cli.job import Inputs, identity, make_config, read_job
from gpu_extract.exposure.frames import Loaded, State
from gpu_extract.io.atomic import check_target, make_folder
from gpu_extract.io.leftovers import remove_leftovers
from gpu_extract.io.whose import Claim, claim

if TYPE_CHECKING:
    from gpu_extract.data import Frame


class Files:
    """Frames from files to files (exposure.frames.Work)."""

    def __init__(self, entries: Sequence[Entry], args: argparse.Namespace):
        self._entries, self._args = entries, args
        self.core: str = args.core
        self._why: dict[int, str] = {}
        self._seen: dict[int, tuple[int, ...] | None] = {}
        self._claims: dict[int, Claim] = {}

    def is_done(self, number: int) -> bool:
        """Whether the output exists, complete and made from the same input with the same settings."""
        from gpu_extract.io.sources import NOT_THERE, why_again

        entry = self._entries[number]
        self._seen[number] = identity(entry.output)
        why = "--recompute" if self._args.recompute else \
            why_again(entry.output, {"IMG": entry.image, "PSF": entry.psf}, partial(make_config, self._args))
        self._why[number] = "" if self._seen[number] is None or why == NOT_THERE else why or ""
        return why is None

    def claim(self, number: int) -> State | None:
        """Claim an output for this run; see exposure.frames.Work."""
        if self._args.output is not None:       # the claim is a file in it
            make_folder(self._args.output)
        found = claim(self._entries[number].output)
        if found is None:
            return State.ELSEWHERE
        self._claims[number] = found
        if identity(self._entries[number].output) != self._seen.get(number) and self.is_done(number):
            self.release(number)
            return State.SKIPPED
        return None

    def release(self, number: int) -> None:
        """Release the claim on an output."""
        claimed = self._claims.pop(number, None)
        if claimed is not None:
            claimed.release()

    def tidy_up(self) -> None:
        """Before an early end: release everything, remove incomplete files."""
        for number in list(self._claims):
            self.release(number)
        remove_leftovers((entry.output for entry in self._entries), own=True)

    def read(self, number: int) -> Loaded:
        """Read a frame's input; all errors of input and output are raised here, before the work."""
        from gpu_extract.io.sources import check_replaceable

        entry = self._entries[number]
        check_target(entry.output, make=self._args.output)
        if self._seen.get(number) is not None:
            check_replaceable(entry.output)
        job = read_job(self._args, Inputs(entry.image, entry.psf))
        return Loaded(job.image, job.psf, job.config, (job.cards, job.fibermap), self._why.get(number, ""))

    def write(self, number: int, loaded: Loaded, frame: "Frame") -> None:
        """Write the frame, completely or not at all."""
        from gpu_extract.cli.report import warnings_of
        from gpu_extract.io.frame import write_frame

        for sentence in warnings_of(frame):
            log.warning(f"{self._entries[number].name}: {sentence}")
        cards, fibermap = loaded.extra
        write_frame(self._entries[number].output, replace(frame, fibermap=fibermap), cards=cards,
                    scores=not self._args.no_scores)
