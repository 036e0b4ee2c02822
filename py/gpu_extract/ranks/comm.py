"""Ranks: one process or many behind the same verbs, and the only import of mpi4py.

A verb is called by all ranks of a communicator, also by those that have no
work: they take part with empty arrays. Each verb starts with an agreement that
nobody has failed, so that an error on some ranks is raised on all of them,
wherever each of them is, as long as the work runs under `together`:

    with comm.together():
        image = comm.share(lambda: read_image(path))

An agreement waits asleep: ranks without work leave the cores to the others.
"""
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from gpu_extract.errors import InputError
from gpu_extract.ranks.hand_out import Numbers, Told
from gpu_extract.ranks.mpi_ranks import MpiComm, Report
from gpu_extract.ranks.packing import repack
from gpu_extract.seams import Recorder

T = TypeVar("T")


class SerialComm:
    """One process."""

    rank = 0
    size = 1
    library = ""
    one_copy = True

    def watch(self, recorder: Recorder) -> None:
        """Have the recorder told of all communication from now on."""

    def split(self, color: int) -> "SerialComm":
        """The ranks of the same colour."""
        return self

    @contextmanager
    def together(self) -> Iterator[None]:
        """What one rank raises under this, all ranks raise."""
        yield

    def on_node(self) -> tuple[int, int]:
        """This rank's number among those on its node, and how many they are."""
        return 0, 1

    def barrier(self) -> None:
        """Wait for all ranks."""

    def complete(self, array: np.ndarray, axis: int, bounds: Sequence[int]) -> None:
        """Fill in what the other ranks made: rank r has written bounds[r] .. bounds[r + 1] - 1 along `axis`."""

    def gather(self, items: Sequence[tuple[int, T]]) -> list[T] | None:
        """Numbered values of all ranks, in the order of their numbers, on rank 0; None elsewhere.

        Each number is given by one rank; for what a value can be see packing.pack.
        """
        return [repack(value) for _, value in sorted(items, key=lambda item: item[0])]

    def share(self, make: Callable[[], T]) -> T:
        """What `make` returns on rank 0 (no other rank calls it), on all ranks; for what it can be see packing.pack.

        With several ranks the arrays in it are read-only, and one copy on each node serves all its ranks.
        """
        return make()

    def release(self) -> None:
        """Take back the memory that was shared and the groups that were split off: nobody uses them any more."""

    def hand_out(self, count: int, told: Told = lambda number, state: None, *, takes: bool = True) -> Numbers:
        """The numbers 0 .. count - 1, each given once to whoever asks: any rank, from any thread of it.

        All ranks call this, those too that will take none (takes=False), and `close` what they get when they are
        done. `told` is called on rank 0, by one of its threads, with what any rank tells of a number.
        Needs get_comm(..., threads=True); where MPI does not let several threads use it, every rank that takes gets a
        fixed share, and hears of its own numbers only.
        """
        return Numbers(count, told)

    def asked(self, question: Callable[[], bool]) -> bool:
        """Whether the answer is yes on some node; it is asked on one rank of each."""
        return question()

    def by_node(self, work: Callable[[], Any]) -> None:
        """Do something on all ranks of rank 0's node, then on those of all others, while the rest wait asleep."""
        work()

    def first(self, work: Callable[[], Any]) -> None:
        """Do something on rank 0, then on one rank of every other node, while the others wait.

        For what fills a cache; where nobody else waits for it, nothing is done.
        """


Comm = SerialComm | MpiComm
SERIAL = SerialComm()


def get_comm(mpi: bool, report: Report | None = None, *, threads: bool = False) -> Comm:
    """All ranks of MPI's world, or SERIAL where MPI is not wanted; MPI is imported here or never.

    report: tells the user of an exception that ends all ranks (default: a traceback on standard error)
    threads: several threads of a rank will use it (see hand_out)
    Raises InputError where MPI cannot be loaded.
    """
    if not mpi:
        return SERIAL
    MPI = _load(threads)
    return MpiComm(MPI, MPI.COMM_WORLD, report)


def wrap(comm: Any) -> MpiComm:
    """The ranks of a communicator of mpi4py that another program has made; all of them call this."""
    return MpiComm(_load(threads=False), comm)


def _load(threads: bool) -> Any:
    """The module mpi4py.MPI. Raises InputError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")     # mpi4py guesses at what the programs check, and say in one line
            import mpi4py
            mpi4py.rc.thread_level = "multiple" if threads else "funneled"
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise InputError(f"MPI cannot be loaded ({error}); pip install mpi4py mpich, or run without --mpi and "
                         "without a launcher") from error
    return MPI
