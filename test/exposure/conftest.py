"""Signals are as they were before a test."""
import signal
from collections.abc import Iterator

import pytest

from gpu_extract.cli.common import ENDING


@pytest.fixture(autouse=True)
def signals_as_they_were() -> Iterator[None]:
    """The program sets signal handlers, also when called as a function."""
    kept = {number: signal.getsignal(number) for number in ENDING}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)
