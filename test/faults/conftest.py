"""The results of changes that are no faults."""
from collections.abc import Callable

import pytest
from case import Change
from changes import nothing
from running import run

from gpu_extract.data import Frame


@pytest.fixture(scope="session")
def frame_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Change], Frame]:
    """The result of a change that is no fault; each is made once."""
    known: dict[Change, Frame] = {}

    def made(change: Change) -> Frame:
        if change not in known:
            outcome = run(change, tmp_path_factory.mktemp("good"))
            assert outcome.frame is not None, outcome.said
            known[change] = outcome.frame
        return known[change]

    return made


@pytest.fixture(scope="session")
def good(frame_of: Callable[[Change], Frame]) -> Frame:
    """The frame without a fault."""
    return frame_of(nothing)
