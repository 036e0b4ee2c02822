"""The ranks of MPI: the verbs of seams.Comm over an mpi4py communicator."""
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import numpy as np

from gpu_extract import errors
from gpu_extract.errors import ExitCode, GpuExtractError, InternalError, is_interruption
from gpu_extract.packing import as_bytes, layout, pack, repack, unpack
from gpu_extract.perf.calls import timed
from gpu_extract.perf.clock import now, sleep
from gpu_extract.perf.recorder import MPI
from gpu_extract.ranks import transport
from gpu_extract.ranks.hand_out import Asked, Served
from gpu_extract.seams import NULL, Comm, Numbers, Recorder, Told

T = TypeVar("T")
Report = Callable[[BaseException], None]

_FIRST_PAUSE, _LONGEST_PAUSE = 20e-6, 2e-3      # seconds between two checks of a pending agreement
_UNTIL_READ = 0.3                               # seconds for the launcher to pass on messages
_ALIGN = 64                                     # bytes
_ANY = 1 << 40                                  # the step of a rank that has failed
_VERBS = "together", "barrier", "split", "complete", "gather", "fill", "hand out", "release"


class MpiComm(Comm):
    """The ranks of an MPI communicator.

    one_copy: False after shared arrays had to be copied for every rank
    mpi: the module mpi4py.MPI; comm: its communicator
    report: reports an exception that ends all ranks to the user (default: a traceback on standard error)
    """

    def __init__(self, mpi: Any, comm: Any, report: Report | None = None):
        self._mpi, self._comm = mpi, comm
        self._report = report or (lambda error: traceback.print_exception(error))
        self.rank, self.size = int(comm.Get_rank()), int(comm.Get_size())
        self.library = str(mpi.get_vendor()[0])
        self.one_copy = True
        self._recorder: Recorder = NULL
        self._depth = 0           # of nested `together`
        self._parts: list[MpiComm] = []
        self._memory: transport.NodeMemory | None = None
        self._window: Any = None
        self._node: Any = None
        self._roots: Any = None

    def watch(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._comm = timed(self._mpi, self._comm, recorder)

    def split(self, color: int) -> "MpiComm":
        self._agree("split")
        with self._recorder.span(MPI + "split"):
            part = MpiComm(self._mpi, self._comm.Split(color, self.rank), self._report)
        part._recorder = self._recorder
        self._parts.append(part)
        return part

    @contextmanager
    def together(self) -> Iterator[None]:
        failure = None
        self._depth += 1
        try:
            yield
        except GpuExtractError as error:
            if error.agreed_on is self:
                raise
            failure = error
        except BaseException as error:
            self._abort(error)
        finally:
            self._depth -= 1
        self._agree("together", failure)

    def on_node(self) -> tuple[int, int]:
        self.barrier()
        node, _ = self._nodes()
        return node.Get_rank(), node.Get_size()

    def barrier(self) -> None:
        self._agree("barrier")

    def complete(self, array: np.ndarray, axis: int, bounds: Sequence[int]) -> None:
        self._agree("complete")
        with self._recorder.span(MPI + "complete"):
            front = np.moveaxis(array, axis, 0)
            own = np.ascontiguousarray(front[bounds[self.rank]:bounds[self.rank + 1]])
            whole = np.empty(front.shape, dtype=array.dtype)
            row = front[0].size
            element = self._mpi.BYTE.Create_contiguous(array.itemsize).Commit()
            self._comm.Allgatherv([own, own.size, element],
                                  [whole, np.diff(bounds) * row, np.array(bounds[:-1]) * row, element])
            element.Free()
            front[...] = whole

    def gather(self, items: Sequence[tuple[int, T]]) -> list[T] | None:
        self._agree("gather")
        with self._recorder.span(MPI + "gather"):
            items = sorted(items, key=lambda item: item[0])
            order = transport.owners(self._comm, [number for number, _ in items], self._mpi.INT64_T)
            if self.rank != 0:
                for _, value in items:
                    transport.send(self._comm, value, 0)
                return None
            own = (repack(value) for _, value in items)
            return [next(own) if owner == 0 else transport.receive(self._comm, owner) for owner in order]

    def share(self, make: Callable[[], T]) -> T:
        made: list[tuple[str, list[np.ndarray]]] = []
        with self.together():
            if self.rank == 0:
                made.append(pack(make()))
        text, arrays = made[0] if made else ("", [])
        with self._recorder.span(MPI + "share"):
            return self._spread(text, arrays)

    def _spread(self, text: str, arrays: list[np.ndarray]) -> Any:
        """The packed value of rank 0, on all ranks."""
        text = transport.broadcast_text(self._comm, text)
        kinds = layout(text)
        sizes = [int(dtype.itemsize * np.prod(shape, dtype=np.int64)) for dtype, shape in kinds]
        starts = np.cumsum([0] + [-(-size // _ALIGN) * _ALIGN for size in sizes])
        memory = self._node_memory(int(starts[-1]) or _ALIGN)
        for array, start in zip(arrays, starts, strict=False):
            memory[start:start + array.nbytes] = as_bytes(array)
        self._fill(memory)
        memory.flags.writeable = False
        places = zip(kinds, starts, strict=False)
        views = [np.ndarray(shape, dtype, memory, int(start)) for (dtype, shape), start in places]
        return unpack(text, views)

    def release(self) -> None:
        self._agree("release")
        for part in self._parts:
            for comm in (part._node, part._roots, part._comm):
                if comm is not None and comm != self._mpi.COMM_NULL:
                    comm.Free()
        self._parts.clear()
        if self._memory is not None:
            self._memory.take_back()

    def hand_out(self, count: int, told: Told = lambda number, state: None, *, takes: bool = True) -> Numbers:
        self._agree("hand out")
        if self._mpi.Query_thread() < self._mpi.THREAD_MULTIPLE:
            takers = np.empty(self.size, dtype=np.int64)
            self._comm.Allgather(np.array([takes], dtype=np.int64), takers)
            first = int(takers[:self.rank].sum())
            return Numbers(range(first, count if takes else first, int(takers.sum())), told)
        apart = self._mpi.Intracomm(self._comm).Dup()
        return Served(self._mpi, apart, count, told) if self.rank == 0 else Asked(apart)

    def asked(self, question: Callable[[], bool]) -> bool:
        node, _ = self._nodes()
        with self.together():
            yes = node.Get_rank() == 0 and question()
        with self._recorder.span(MPI + "asked"):
            answer = np.array([yes], dtype=np.int64)
            self._comm.Allreduce(self._mpi.IN_PLACE, answer, op=self._mpi.MAX)
        return bool(answer[0])

    def by_node(self, work: Callable[[], Any]) -> None:
        node, _ = self._nodes()
        lowest = np.array([self.rank], dtype=np.int64)
        node.Allreduce(self._mpi.IN_PLACE, lowest, op=self._mpi.MIN)
        for turn in (True, False):
            with self.together():
                if bool(lowest[0] == 0) is turn:
                    work()

    def _agree(self, verb: str, failure: GpuExtractError | None = None) -> None:
        """Wait for all ranks; raise the error of the first failed rank on all of them.

        Ranks that have not failed must all be at the same verb; otherwise the program is wrong, which is an error.
        """
        place = _VERBS.index(verb) + len(_VERBS) * self._depth
        mine = np.array([self.size, place, -place] if failure is None else [self.rank, _ANY, _ANY], dtype=np.int64)
        lowest = np.empty_like(mine)
        with self._recorder.span(MPI + "agree"):
            request = self._comm.Iallreduce(mine, lowest, op=self._mpi.MIN)
            pause = _FIRST_PAUSE
            while not request.Test():
                sleep(pause)
                pause = min(1.5 * pause, _LONGEST_PAUSE)
        speaker = int(lowest[0])
        if speaker == self.size:
            if lowest[1] != -lowest[2]:
                raise InternalError(f"ranks are at different steps; rank {self.rank} of {self.size}: {verb}")
            return
        said = json.dumps([_public_class(failure), str(failure)]) if speaker == self.rank else ""
        name, message = json.loads(transport.broadcast_text(self._comm, said, speaker))
        error = failure if failure is not None and speaker == self.rank else getattr(errors, name)(message)
        error.agreed_on, error.quiet = self, self.rank != 0
        raise error

    def _abort(self, error: BaseException) -> NoReturn:
        """End all ranks, here and now."""
        self._report(error)
        sys.stdout.flush()
        sys.stderr.flush()
        sleep(_UNTIL_READ)
        code = ExitCode.START_AGAIN if is_interruption(error) else ExitCode.INTERNAL
        self._mpi.COMM_WORLD.Abort(int(code))
        os._exit(int(code))        # Abort may return before the launcher acts

    def _nodes(self) -> tuple[Any, Any]:
        """The ranks of this node, and the first ranks of all nodes (None on the others)."""
        if self._node is None:
            with self._recorder.span(MPI + "nodes"):
                self._node = self._comm.Split_type(self._mpi.COMM_TYPE_SHARED, self.rank)
                color = 0 if self._node.Get_rank() == 0 else self._mpi.UNDEFINED
                self._roots = self._comm.Split(color, self.rank)
        return self._node, self._roots

    def _node_memory(self, size: int) -> np.ndarray:
        """Memory shared by all ranks of a node; separate for each rank if a node has too little shared memory."""
        node, _ = self._nodes()
        enough = np.array([transport.enough_room(size)], dtype=np.int64)
        self._comm.Allreduce(self._mpi.IN_PLACE, enough, op=self._mpi.MIN)
        self.one_copy = bool(enough[0])
        if not self.one_copy:
            return np.empty(size, dtype=np.uint8)
        if self._memory is None:
            self._memory = transport.NodeMemory(self._mpi, node)
        memory, self._window = self._memory.take(size)
        return memory

    def _fill(self, memory: np.ndarray) -> None:
        """Copy rank 0's bytes into the memory of all nodes, or of all ranks if each has its own."""
        _, roots = self._nodes()
        if not self.one_copy:
            transport.broadcast_bytes(self._comm, memory)
            return
        if roots != self._mpi.COMM_NULL:
            transport.broadcast_bytes(roots, memory)
        self._agree("fill")
        start = now()
        self._window.Fence()
        self._recorder.call("Fence", now() - start, waits=True)


def _public_class(error: BaseException | None) -> str:
    """The name of the error's first base class in errors.py."""
    names = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == errors.__name__]
    return names[0] if names else InternalError.__name__
