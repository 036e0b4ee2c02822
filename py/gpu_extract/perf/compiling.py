"""Compilations are stages of their own, whatever needs them, and are counted."""
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpu_extract.perf.recorder import COMPILE
from gpu_extract.seams import Recorder

COMPILED = "compiled kernels"      # the counter
_recorders: list[Any] = [None]     # those that are told


@contextmanager
def compiling(recorder: Recorder, told: Callable[[str], None] = lambda name: None) -> Iterator[None]:
    """Under this each kernel that this process compiles is a span of the recorder, and counted.

    told: called with the kernel's name before
    """
    from gpu_extract.kernels.kernel_cache import watched

    if recorder is _recorders[-1]:
        yield
        return

    @contextmanager
    def watch(name: str) -> Iterator[None]:
        told(name)
        recorder.count(COMPILED)
        with recorder.span(COMPILE):
            yield

    _recorders.append(recorder)
    try:
        with watched(watch):
            yield
    finally:
        _recorders.remove(recorder)
