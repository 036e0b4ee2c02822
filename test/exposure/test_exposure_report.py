"""The report after a night, from planted records."""
import logging

import pytest

from gpu_extract.cli.exposure_list import Entry
from gpu_extract.cli.exposure_report import log_summary, verdict
from gpu_extract.errors import ExitCode, InputError
from gpu_extract.exposure.frames import Outcome, State


def test_frames_per_hour_are_those_of_the_whole_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups, two frames: the first is done after 60 s, the second after 96 s, and both began 2 s after their
    processes started: 73 frames an hour, not the 120 of the first group's clock."""
    said: list[str] = []
    monkeypatch.setattr(logging.getLogger("gpu_extract"), "info", said.append)
    entries = [Entry(f"preproc-{n}.fits", "psf.fits", f"frame-{n}.fits") for n in range(2)]
    outcomes = [Outcome(n, State.DONE, group=n, seconds=50.0) for n in range(2)]
    records = [{"start_up": 2.0, "elapsed": elapsed, "peak_memory": 1e8, "start": {},
                "spans": [["exposure", 0, 0.0, elapsed, elapsed, 0]]} for elapsed in (60.0, 96.6)]
    log_summary(entries, outcomes, records)
    assert "2 frames: 2 done; 98.6 s with start-up; 73 frames per hour" in said


@pytest.mark.parametrize(("failed", "words"), [
    (20, "20 of 30 frames failed: frame-0.fits, .*, frame-19.fits; the reasons"),
    (22, "22 of 30 frames failed: frame-0.fits, .*, frame-19.fits and 2 more; the reasons")])
def test_the_last_line_names_no_more_than_can_be_read(failed: int, words: str) -> None:
    entries = [Entry(f"preproc-{n}.fits", "psf.fits", f"frame-{n}.fits") for n in range(30)]
    outcomes = [Outcome(n, State.FAILED if n < failed else State.DONE) for n in range(30)]
    with pytest.raises(InputError, match=words):
        verdict(entries, outcomes, ExitCode.INPUT)
