"""gpu_extract_exposure with a fault planted: faulty.py KIND RANK -- options of gpu_extract_exposure.

KIND: "crash" (the second frame of rank RANK ends in an exception that is not one of ours), "hang" (writing on rank
RANK never returns; a half-written temporary file is there), "funneled" (MPI lets one thread use it only), "slow"
(every bundle takes half a second more), "lame" (two seconds, on rank RANK only).
"""
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gpu_extract import run
from gpu_extract.cli import exposure
from gpu_extract.io import atomic, frame
from gpu_extract.ranks import mpi_ranks


def rank() -> int:
    """This process's rank."""
    return next(int(os.environ[name]) for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK") if name in os.environ)


def crashing(extract: Callable[..., Any]) -> Callable[..., Any]:
    """Fails in its second call."""
    calls: list[int] = []

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise ZeroDivisionError("planted")
        return extract(*args, **kwargs)

    return wrapped


def slow(span: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    """Delays each call."""
    def wrapped(self: Any, name: str) -> Any:
        time.sleep(seconds * (name == "cut"))
        return span(self, name)

    return wrapped


def hanging(path: str, *_: Any, **__: Any) -> None:
    """Writes half of a file, then hangs."""
    atomic.temporary_name(Path(path)).write_bytes(b"half")
    time.sleep(600)


if __name__ == "__main__":
    kind, victim = sys.argv[1], int(sys.argv[2])
    if kind == "crash" and rank() == victim:
        run.extract = crashing(run.extract)
    if kind == "hang" and rank() == victim:
        frame.write_frame = hanging
    if kind == "slow" or (kind == "lame" and rank() == victim):
        from gpu_extract.exposure.flow import Watch  # not above: it imports run.extract as it is now

        Watch.span = slow(Watch.span, 0.5 if kind == "slow" else 2.0)
    if kind == "funneled":
        whole = mpi_ranks.MpiComm.hand_out

        def hand_out(self: Any, *args: Any, **kwargs: Any) -> Any:
            """As with a library that was started for one thread."""
            kept = self._mpi
            self._mpi = SimpleNamespace(**{**vars(kept), "Query_thread": lambda: kept.THREAD_FUNNELED})
            try:
                return whole(self, *args, **kwargs)
            finally:
                self._mpi = kept

        mpi_ranks.MpiComm.hand_out = hand_out
    raise SystemExit(exposure.main(sys.argv[sys.argv.index("--") + 1:]))
