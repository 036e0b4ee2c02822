"""Messages of a run, while it works and at its end."""
import sys
from typing import TYPE_CHECKING, TextIO

from gpu_extract.cli.common import log, show_progress
from gpu_extract.perf.record import Rank, is_communication, outside, parse_run
from gpu_extract.perf.recorder import COMPILE, Recorder, Span, peak_memory

if TYPE_CHECKING:
    from gpu_extract.data import Frame

_PIECE = "bundle"      # the span that ends with each bundle
START, COMMUNICATION, OTHER = "start-up", "communication", "other"
_LEAST = 0.0005        # shortest time that is shown, seconds


class Progress(Recorder):
    """A recorder that shows how many bundles are done: one line on a terminal, lines in the log elsewhere."""

    def __init__(self, rank: int = 0, stream: TextIO | None = None):
        super().__init__(rank)
        self._stream = stream
        self._done = 0
        self._total = 0
        self._what, self._more = _PIECE, ""

    def expect(self, turns: int, bundles: int, ranks: int) -> None:
        """Set the number of turns in which this process will do its share of the bundles."""
        self._total = turns
        if ranks > 1:
            self._what, self._more = "round", f" ({bundles} bundles on {ranks} ranks)"

    def warn(self, sentence: str) -> None:
        """Log a warning at once, on rank 0."""
        if self.rank == 0:
            log.warning(sentence)

    def close(self, row: Span) -> None:
        """End a span; the end of a bundle that was not interrupted advances the progress."""
        super().close(row)
        if row[0] == _PIECE and self._total and sys.exc_info()[0] is None:
            self._done += 1
            if self.rank == 0:
                show_progress(f"{self._what} {self._done} of {self._total}{self._more}, {self.elapsed():.1f} s",
                              last=self._done >= self._total, stream=self._stream)


def warnings_of(frame: "Frame") -> list[str]:
    """A sentence for each dropped fibre, and for everything else that the extraction noticed."""
    dropped = [f"fibre {fibre} is dropped: {reason}" for fibre, reason in frame.notes.get("dropped", {}).items()]
    if dropped:
        dropped.append("a dropped fibre is not modelled: its light, if any, may raise the flux of neighbouring fibres")
    return [*dropped, *frame.notes.get("warnings", ())]


def log_summary(frame: "Frame", recorder: Recorder, output: str) -> None:
    """Log bins, masked bins, chi2, fallbacks, time per stage, memory and file."""
    import numpy as np

    from gpu_extract.data import SpecMask, Status
    from gpu_extract.io.facts import count_bins, masked_pixels

    good = frame.mask == 0
    log.info(f"bins: {frame.flux.size} ({frame.flux.shape[0]} fibres x {frame.flux.shape[1]}), "
             f"{int((~good).sum())} masked, {int((frame.ivar == 0).sum())} without data")
    if good.any():
        log.info(f"chi2pix: median {np.median(frame.chi2pix[good]):.4f} over unmasked bins")
    if odd := masked_pixels(frame, "odd_pixels"):
        bins = int(np.count_nonzero(frame.mask & SpecMask.ODDPIX))
        log.info(f"odd pixels: {odd} treated as masked, in {bins} bins (--keep-odd uses them)")
    if frame.notes.get("passes", 1) > 1:
        bins = int(np.count_nonzero(frame.mask & SpecMask.COSMIC))
        log.info(f"passes: {frame.notes['passes']}, read noise from {frame.notes['read_noise']}; "
                 f"{masked_pixels(frame, 'rejected')} pixels stood out from the model and were masked, "
                 f"{bins} bins COSMIC (--keep-cosmics uses them)")
    levels = [notes["background_0"] for notes in frame.notes.get("bundles", {}).values() if "background_0" in notes]
    if levels:
        log.info(f"background: {min(levels):.4g} to {max(levels):.4g} electron per pixel, averaged over the rows of a "
                 "bundle (HDU BACKGROUND)")
    if frame.status is not None:
        counts = count_bins(frame.status, frame.mask)
        ways = ", ".join(f"{count} {each.name}" for each, count in counts.items() if isinstance(each, Status) and count)
        flags = ", ".join(f"{count} {each.name}" for each, count in counts.items() if isinstance(each, SpecMask))
        log.info(f"status: {ways}; flagged: {flags}")
    (rank,) = parse_run(recorder.record()).ranks
    log.info(f"time: {summary_line(rank)}")
    log.info(f"memory: {peak_memory() / 1e6:.0f} MB at most")
    log.info(f"file: {output}")


def summary(rank: Rank) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Seconds of the outermost stages, including the time before the first and between them; and seconds of their inner
    stages.

    Compilation is a separate stage, inside no other one.
    """
    outer: dict[str, float] = {START: rank.before}
    held: dict[str, dict[str, float]] = {}
    names: list[str] = []          # the outer and the inner stage of the current span
    for span in outside(s for s in rank.spans if not s.thread):
        del names[span.depth:]
        if span.name == COMPILE:
            outer[COMPILE] = outer.get(COMPILE, 0.0) + span.seconds
            if names:
                outer[names[0]] -= span.seconds
            if len(names) > 1:
                held[names[0]][names[1]] -= span.seconds
        elif is_communication(span):
            if span.depth == 0:
                outer[COMMUNICATION] = outer.get(COMMUNICATION, 0.0) + span.seconds
        elif span.depth < 2:
            sums = held.setdefault(names[0], {}) if names else outer
            sums[span.name] = sums.get(span.name, 0.0) + span.seconds
            names.append(span.name)
    return {**outer, OTHER: rank.unaccounted}, held


def summary_line(rank: Rank) -> str:
    """The summary in words."""
    outer, held = summary(rank)
    said = []
    for name, seconds in outer.items():
        inner = ", ".join(f"{n} {s:.3f} s" for n, s in held.get(name, {}).items() if s >= _LEAST)
        if seconds >= _LEAST:
            said.append(f"{name} {seconds:.3f} s{f' ({inner})' if inner else ''}")
    return f"{', '.join(said)}; {sum(outer.values()):.3f} s in all"
