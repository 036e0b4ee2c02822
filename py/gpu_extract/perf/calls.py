"""An MPI communicator that times its calls that move data or wait, by kind."""
from functools import wraps
from typing import Any

from gpu_extract.perf.clock import now
from gpu_extract.seams import Recorder

# calls that move data, of which the bytes of the first argument are counted
_MOVING = ("Send", "Recv", "Bcast", "Allgather", "Allgatherv", "Allreduce", "Gatherv", "Scatterv", "Reduce")
_WAITING = ("Barrier", "Split", "Split_type")


def timed(mpi: Any, comm: Any, recorder: Recorder) -> Any:
    """The same communicator, which reports each call to `recorder`; communicators split off from it also do.

    mpi: the module mpi4py.MPI. Bytes are those that this rank sends or receives. A request's time runs from the call to
    the test that finds it done. Agreements of ranks (mpi_ranks.py) use requests with almost no data, so that all of
    their time is waiting.
    """
    kinds: dict[str, Any] = {name: _timed(getattr(mpi.Intracomm, name), recorder) for name in (*_MOVING, *_WAITING)}
    start = mpi.Intracomm.Iallreduce

    def agree(self: Any, *args: Any, **options: Any) -> "TimedRequest":
        return TimedRequest(start(self, *args, **options), "Iallreduce", recorder)

    return type("TimedComm", (mpi.Intracomm,), {**kinds, "Iallreduce": agree})(comm)


class TimedRequest:
    """A request that reports to the recorder its time from the start until it was found done."""

    def __init__(self, request: Any, kind: str, recorder: Recorder):
        self._request, self._kind, self._recorder, self._start = request, kind, recorder, now()

    def Test(self) -> bool:
        """Whether it is done."""
        done = bool(self._request.Test())
        if done:
            self._recorder.call(self._kind, now() - self._start, waits=True)
        return done


def _timed(method: Any, recorder: Recorder) -> Any:
    kind: str = method.__name__
    waits = kind in _WAITING

    @wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        start = now()
        found = method(self, *args, **options)
        seconds = now() - start
        given = args[0] if args and not waits else None
        array = given[0] if isinstance(given, (list, tuple)) else given              # or [array, count, type]
        recorder.call(kind, seconds, int(getattr(array, "nbytes", 0)), waits=waits)
        return found

    return call
