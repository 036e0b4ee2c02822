"""Records compilations as separate stages, whatever needs them, and counts them."""
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpu_extract.perf.recorder import COMPILE
from gpu_extract.seams import Recorder

COMPILED = "compiled kernels"      # the counter
_recorders: list[Any] = [None]     # recorders of compilations


@contextmanager
def compiling(recorder: Recorder, told: Callable[[str], None] = lambda name: None) -> Iterator[None]:
    """Context in which each kernel that this process compiles is a span of the recorder, and is counted.

    told: called before with the kernel's name
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
