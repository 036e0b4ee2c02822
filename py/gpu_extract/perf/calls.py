"""An MPI communicator that times itself: every call that moves or waits, by kind."""
from functools import wraps
from typing import Any

from gpu_extract.perf.clock import now
from gpu_extract.seams import Recorder

# calls that move data -> position of the buffer whose bytes are counted
_MOVING = {"Send": 0, "Recv": 0, "Bcast": 0, "Allgather": 0, "Allgatherv": 0, "Allreduce": 0, "Gatherv": 0,
           "Scatterv": 0, "Reduce": 0}
_WAITING = ("Barrier", "Split", "Split_type")


def timed(mpi: Any, comm: Any, recorder: Recorder) -> Any:
    """The same communicator, telling `recorder` of each call; those split off from it do, too.

    mpi: the module mpi4py.MPI. Bytes are those that this rank gives or gets. A request's time runs from the call to
    the test that finds it done: agreements of ranks (mpi_ranks.py) are made with those and carry next to nothing, so
    that all of it is waiting.
    """
    kinds: dict[str, Any] = {name: _moving(getattr(mpi.Intracomm, name), name, place, recorder)
                             for name, place in _MOVING.items()}
    kinds |= {name: _waiting(getattr(mpi.Intracomm, name), name, recorder) for name in _WAITING}
    start = mpi.Intracomm.Iallreduce

    def agree(self: Any, *args: Any, **options: Any) -> "TimedRequest":
        return TimedRequest(start(self, *args, **options), "Iallreduce", recorder)

    return type("TimedComm", (mpi.Intracomm,), {**kinds, "Iallreduce": agree})(comm)


class TimedRequest:
    """A request that tells the recorder how long it took from its start until it was found done."""

    def __init__(self, request: Any, kind: str, recorder: Recorder):
        self._request, self._kind, self._recorder, self._start = request, kind, recorder, now()

    def Test(self) -> bool:
        """Whether it is done."""
        done = bool(self._request.Test())
        if done:
            self._recorder.call(self._kind, now() - self._start, waits=True)
        return done


def nbytes_of(buffer: Any) -> int:
    """Bytes of an array, or of the first array in a list [array, count, type]."""
    array = buffer[0] if isinstance(buffer, (list, tuple)) else buffer
    return int(getattr(array, "nbytes", 0))


def _moving(method: Any, kind: str, place: int, recorder: Recorder) -> Any:
    @wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        start = now()
        found = method(self, *args, **options)
        recorder.call(kind, now() - start, nbytes_of(args[place]) if len(args) > place else 0)
        return found

    return call


def _waiting(method: Any, kind: str, recorder: Recorder) -> Any:
    @wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        start = now()
        found = method(self, *args, **options)
        recorder.call(kind, now() - start, waits=True)
        return found

    return call
