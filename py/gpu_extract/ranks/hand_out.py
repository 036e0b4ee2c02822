"""Assigns numbers of pieces of work (seams.Numbers) one by one to the next rank that asks.

One thread of rank 0 answers the other ranks over a separate communicator. No other rank takes part, so that a rank that
computes for minutes delays nobody. Nothing here imports MPI: its module is an argument.
"""
import threading
from typing import Any

import numpy as np

from gpu_extract.perf.clock import sleep
from gpu_extract.seams import Numbers, Told

_PAUSE = 2e-3            # seconds between two checks for a message
_NONE = -1               # instead of a number: there are no more
_ASK, _ANSWER = 1, 2     # tags
_VERBS = "take", "hold", "borrow", "begin", "tell", "stop", "leave"      # requests of a rank to rank 0


class Served(Numbers):
    """Numbers on rank 0 of several ranks, one of whose threads answers the others."""

    def __init__(self, mpi: Any, comm: Any, count: int, told: Told):
        super().__init__(range(count), told)
        self._mpi, self._comm = mpi, comm
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:         # once all other ranks have closed
        self._thread.join()
        self._comm.Free()

    def _serve(self) -> None:
        there = self._comm.Get_size() - 1
        status = self._mpi.Status()
        said = np.empty(3, dtype=np.int64)
        while there:
            if not self._comm.Iprobe(self._mpi.ANY_SOURCE, _ASK, status):
                sleep(_PAUSE)
                continue
            rank = status.Get_source()
            self._comm.Recv(said, rank, _ASK)
            verb, number, state = (int(n) for n in said)
            if _VERBS[verb] == "leave":
                there -= 1
            else:
                self._answer(rank, _VERBS[verb], number, state)

    def _answer(self, rank: int, verb: str, number: int, state: int) -> None:
        asked: dict[str, Any] = {
            "take": self.take, "hold": lambda: self.hold(rank), "borrow": lambda: self.borrow(rank), "stop": self.stop,
            "begin": lambda: self.begin(number), "tell": lambda: self.tell(number, state)}
        given = asked[verb]()
        self._comm.Send(np.array([_NONE if given is None else given], dtype=np.int64), rank, _ANSWER)


class Asked(Numbers):
    """Numbers on the other ranks."""

    def __init__(self, comm: Any):
        super().__init__(range(0))
        self._comm = comm

    def take(self) -> int | None:
        return self._ask("take")

    def hold(self, rank: int = 0) -> int | None:
        return self._ask("hold")

    def borrow(self, rank: int = 0) -> int | None:
        return self._ask("borrow")

    def begin(self, number: int) -> bool:
        return self._ask("begin", number) == 1

    def tell(self, number: int, state: int) -> None:
        self._ask("tell", number, state)

    def stop(self) -> None:
        self._ask("stop")

    def close(self) -> None:
        with self._lock:
            self._say("leave")
        self._comm.Free()

    def _ask(self, verb: str, number: int = 0, state: int = 0) -> int | None:
        """Send a request, and sleep until the answer."""
        with self._lock:
            self._say(verb, number, state)
            answer = np.empty(1, dtype=np.int64)
            request = self._comm.Irecv(answer, 0, _ANSWER)
            while not request.Test():
                sleep(_PAUSE)
        return None if answer[0] == _NONE else int(answer[0])

    def _say(self, verb: str, number: int = 0, state: int = 0) -> None:
        self._comm.Send(np.array([_VERBS.index(verb), number, state], dtype=np.int64), 0, _ASK)
