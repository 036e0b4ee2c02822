"""The flow of many frames through one group of ranks."""
from dataclasses import replace
from threading import Event
from typing import Any

from gpu_extract.data import Frame, Image
from gpu_extract.errors import GpuExtractError, StoppedCleanly
from gpu_extract.exposure.frames import Extract, Loaded, Outcome, State, Work, as_error
from gpu_extract.exposure.threads import Group, Reader, Writer, failed
from gpu_extract.io.image import bare
from gpu_extract.packing import copied
from gpu_extract.perf.clock import now
from gpu_extract.perf.recorder import Recorder
from gpu_extract.ranks.comm import SERIAL
from gpu_extract.seams import NULL

INPUT, OUTPUT, WORK, ALL = "wait for input", "wait for output", "frame", "frames"     # spans of the first thread
# opened for every bundle on the CPU, for every frame on a GPU, under the agreement of all ranks that share it, so that
# an error raised here reaches them all
SAFE = "cut", "queue"


class Watch:
    """Receives a recorder's calls during an extraction, and lets a run stop between two bundles.

    detail: pass all spans on; otherwise none are kept, so that a record does not grow by a thousand spans per frame
    Opening a span of SAFE raises StoppedCleanly if the run has to stop.
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
        """The same, with the time on the device."""
        self._may_stop(name)
        return self._kept.device_span(name)

    def _may_stop(self, name: str) -> None:
        if name in SAFE and self._stop.is_set():
            raise StoppedCleanly("stopped on request; start again to continue")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kept, name)


def work_through(work: Work, group: Group, extract: Extract) -> list[Outcome]:
    """Let a group work on frames until there are no more, or the run has to stop; all its ranks call this.

    extract: run.extract with all arguments except image, psf, config, comm and recorder
    Returns the outcomes of the group's frames on its first rank; an empty list on the others.
    """
    # the first rank of a group reads and writes
    reader, writer = (Reader(work, group), Writer(work, group)) if group.comm.rank == 0 else (None, None)
    first = _next(group, reader)
    with group.recorder.span(ALL):
        while first is not None:
            number, loaded = first
            frame, outcome = _compute(group, extract, number, loaded)
            group.comm.release()
            if writer is not None:
                if frame is None:
                    work.release(number)
                    group.note(outcome)
                else:
                    outcome = replace(outcome, words=loaded.why)
                    with group.recorder.span(OUTPUT):
                        writer.put(outcome, replace(loaded, image=_header_only(loaded.image)), frame)
            del loaded, frame
            first = None if outcome.state == State.DROPPED else _next(group, reader)
    if group.stop.is_set():
        group.numbers.stop()
    if reader is not None and writer is not None:
        writer.close()
        reader.close()
    return group.outcomes


def _next(group: Group, reader: Reader | None) -> tuple[int, Loaded] | None:
    """The next frame, on all ranks of the group, with its image in shared memory."""
    with group.recorder.span(INPUT):
        if group.comm is SERIAL:
            return reader.next() if reader is not None else None
        own: list[tuple[int, Loaded]] = []

        def travelling() -> Any:
            found = reader.next() if reader is not None else None
            if found is None:
                return None
            own.append(found)
            loaded = found[1]
            return found[0], bare(loaded.image), loaded.psf, loaded.config

        shared = group.comm.share(travelling)
    if shared is None:
        return None
    number, image, psf, config = shared
    psf = copied(psf)      # because it may be kept from frame to frame
    if own:
        loaded = own[0][1]
        return number, replace(loaded, image=replace(loaded.image, pix=image.pix, ivar=image.ivar), psf=psf)
    return number, Loaded(image, psf, config)


def _compute(group: Group, extract: Extract, number: int, loaded: Loaded) -> tuple[Frame | None, Outcome]:
    """Extract one frame; a failure is an outcome, on which all ranks of the group agree."""
    start = now()
    watch = Watch(group.recorder, group.stop, group.detail)
    try:
        with group.recorder.span(WORK), group.comm.together():
            try:
                frame = extract(loaded.image, loaded.psf, loaded.config, comm=group.comm, recorder=watch)
            except GpuExtractError:
                raise
            except Exception as error:
                raise as_error(error) from error
    except StoppedCleanly:
        return None, Outcome(number, State.DROPPED)
    except GpuExtractError as error:
        return None, failed(number, error)
    return frame, Outcome(number, State.DONE, seconds=now() - start)


def _header_only(image: Image) -> Image:
    """An image without its pixels, to hold its header without its memory."""
    return replace(image, pix=image.pix[:0].copy(), ivar=image.ivar[:0].copy(), noise=None)
