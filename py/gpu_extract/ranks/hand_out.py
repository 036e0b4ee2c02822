"""Numbers of pieces of work, handed out one by one to whichever rank asks next, from any thread.

Who prepares a piece before it begins it takes its number as held. Where nothing is left, another rank may borrow what
is held and not yet begun; whoever begins it first has it.

One thread of rank 0 answers the other ranks over a communicator of its own; nobody
else has to come to a certain place for it, so a rank that computes for minutes keeps
nobody waiting. Nothing here imports MPI: its module is handed over.
"""
import threading
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np

from gpu_extract.perf.clock import sleep

Told = Callable[[int, int], None]
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


class Numbers:
    """The numbers 0 .. count - 1, each given out once.

    told: called with (number, state) for what `tell` is told, on rank 0, by any of its threads
    """

    def __init__(self, count: int, told: Told = lambda number, state: None):
        self._left = iter(range(count))
        self._told = told
        self._lock = threading.Lock()
        self._stopped = False
        self._held: dict[int, int] = {}        # number -> rank that holds it; not what was lent or begun
        self._begun: set[int] = set()

    def take(self) -> int | None:
        """The next number, None where there is no more."""
        with self._lock:
            return None if self._stopped else next(self._left, None)

    def hold(self) -> int | None:
        """The next number, to be prepared and begun later; None where there is no more."""
        return self._hold(0)

    def borrow(self) -> int | None:
        """A number that another rank holds and has not begun, None where there is none; each is lent once."""
        return self._borrow(0)

    def _hold(self, rank: int) -> int | None:
        number = self.take()
        if number is not None:
            with self._lock:
                self._held[number] = rank
        return number

    def _borrow(self, rank: int) -> int | None:
        with self._lock:
            # the one held last: its holder has begun another piece just then, and will be the last to come to it
            others = [number for number, holder in self._held.items() if holder != rank and not self._stopped]
            if not others:
                return None
            del self._held[others[-1]]
            return others[-1]

    def begin(self, number: int) -> bool:
        """Whether a number that was held or borrowed is this rank's to do: false where another has begun it."""
        with self._lock:
            self._held.pop(number, None)
            fresh = number not in self._begun
            self._begun.add(number)
            return fresh

    def tell(self, number: int, state: int) -> None:
        """Say what came of a number."""
        with self._lock:
            self._told(number, state)

    def stop(self) -> None:
        """Give out no more, to nobody."""
        self._stopped = True

    def close(self) -> None:
        """Every rank calls this once, when it will not take, tell or stop any more."""


class Served(Numbers):
    """The same on rank 0 of several ranks: a thread of it answers the others."""

    def __init__(self, mpi: Any, comm: Any, count: int, told: Told):
        super().__init__(count, told)
        self._mpi, self._comm = mpi, comm
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait until all other ranks have closed."""
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
            if word == _Word.TAKE:
                self._answer(source, self.take())
            elif word == _Word.HOLD:
                self._answer(source, self._hold(source))
            elif word == _Word.BORROW:
                self._answer(source, self._borrow(source))
            elif word == _Word.BEGIN:
                self._answer(source, self.begin(number))
            elif word == _Word.TELL:
                self.tell(number, state)
            elif word == _Word.STOP:
                self.stop()
            else:
                there -= 1

    def _answer(self, rank: int, given: int | None) -> None:
        self._comm.Send(np.array([_NONE if given is None else given], dtype=np.int64), rank, _ANSWER)


class Asked(Numbers):
    """The same on the other ranks."""

    def __init__(self, comm: Any):
        super().__init__(0)
        self._comm = comm

    def take(self) -> int | None:
        """The next number, None where there is no more."""
        return self._ask(_Word.TAKE)

    def hold(self) -> int | None:
        """The next number, to be prepared and begun later; None where there is no more."""
        return self._ask(_Word.HOLD)

    def borrow(self) -> int | None:
        """A number that another rank holds and has not begun, None where there is none."""
        return self._ask(_Word.BORROW)

    def begin(self, number: int) -> bool:
        """Whether a number that was held or borrowed is this rank's to do."""
        return self._ask(_Word.BEGIN, number) == 1

    def tell(self, number: int, state: int) -> None:
        """Say what came of a number."""
        with self._lock:
            self._say(_Word.TELL, number, state)

    def stop(self) -> None:
        """Give out no more, to nobody."""
        with self._lock:
            self._say(_Word.STOP)

    def close(self) -> None:
        """Every rank calls this once, when it will not take, tell or stop any more."""
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


class Fixed(Numbers):
    """Every rank's own share of the numbers, where MPI does not let several threads use it: first, first + step, ..."""

    def __init__(self, numbers: range, told: Told):
        super().__init__(0, told)
        self._left = iter(numbers)
