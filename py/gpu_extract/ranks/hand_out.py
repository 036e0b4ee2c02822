"""Numbers of pieces of work (seams.Numbers), handed out one by one to whichever of several ranks asks next.

One thread of rank 0 answers the other ranks over a communicator of its own; nobody
else has to come to a certain place for it, so a rank that computes for minutes keeps
nobody waiting. Nothing here imports MPI: its module is handed over.
"""
import threading
from enum import IntEnum
from typing import Any

import numpy as np

from gpu_extract.perf.clock import sleep
from gpu_extract.seams import Numbers, Told

_PAUSE = 2e-3            # seconds between two looks for a message
_NONE = -1               # in place of a number: there is no more
_ASK, _ANSWER = 1, 2     # tags


class _Word(IntEnum):
    """What a rank says to rank 0, with a number and a state."""

    TAKE = 0
    TELL = 1
    STOP = 2
    LEAVE = 3
    HOLD = 4
    BORROW = 5
    BEGIN = 6


class Served(Numbers):
    """The same on rank 0 of several ranks: a thread of it answers the others."""

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
            source = status.Get_source()
            self._comm.Recv(said, source, _ASK)
            word, number, state = (int(n) for n in said)
            if word == _Word.LEAVE:
                there -= 1
            elif word == _Word.TELL:
                self.tell(number, state)
            elif word == _Word.STOP:
                self.stop()
            else:
                self._answer(source, _Word(word), number)

    def _answer(self, rank: int, word: _Word, number: int) -> None:
        verbs = {_Word.TAKE: self.take, _Word.HOLD: lambda: self.hold(rank),
                 _Word.BORROW: lambda: self.borrow(rank), _Word.BEGIN: lambda: self.begin(number)}
        given = verbs[word]()
        self._comm.Send(np.array([_NONE if given is None else given], dtype=np.int64), rank, _ANSWER)


class Asked(Numbers):
    """The same on the other ranks."""

    def __init__(self, comm: Any):
        super().__init__(range(0))
        self._comm = comm

    def take(self) -> int | None:
        return self._ask(_Word.TAKE)

    def hold(self, rank: int = 0) -> int | None:
        return self._ask(_Word.HOLD)

    def borrow(self, rank: int = 0) -> int | None:
        return self._ask(_Word.BORROW)

    def begin(self, number: int) -> bool:
        return self._ask(_Word.BEGIN, number) == 1

    def tell(self, number: int, state: int) -> None:
        with self._lock:
            self._say(_Word.TELL, number, state)

    def stop(self) -> None:
        with self._lock:
            self._say(_Word.STOP)

    def close(self) -> None:
        with self._lock:
            self._say(_Word.LEAVE)
        self._comm.Free()

    def _ask(self, word: _Word, number: int = 0) -> int | None:
        """Say something, and wait asleep for the answer."""
        with self._lock:
            self._say(word, number)
            answer = np.empty(1, dtype=np.int64)
            request = self._comm.Irecv(answer, 0, _ANSWER)
            while not request.Test():
                sleep(_PAUSE)
        return None if answer[0] == _NONE else int(answer[0])

    def _say(self, word: _Word, number: int = 0, state: int = 0) -> None:
        self._comm.Send(np.array([word, number, state], dtype=np.int64), 0, _ASK)
