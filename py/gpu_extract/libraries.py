"""The oldest versions of libraries that work, and the memory that they need. setup.cfg requires the same versions, but
a clone that is not installed uses whatever it finds.

Before numpy 2.0 a float64 number times a float32 array is float32, and results are off by its rounding. scipy before
1.13 was not made for that numpy, and astropy before 7.1 cannot read a packed MASK. numba's version is the one with
which all tests passed: 0.60 sometimes refused a kernel's arguments.
"""
import mmap
import os
import re
import threading
from types import ModuleType

OLDEST = {"numpy": (2, 0), "scipy": (1, 13), "numba": (0, 68), "astropy": (7, 1)}
_ROOM = 470 << 20                # bytes of address space that loading the libraries and a tiny frame take (measured)
_ROOM_OF_LAPACK = 96 << 20       # of these, bytes that scipy's LAPACK takes, with its OpenBLAS (64 MB, measured)
_ROOM_OF_THREAD = 90 << 20       # bytes that each further thread of numpy's and scipy's OpenBLAS takes (measured)
_further = [0]                   # threads of an OpenBLAS beyond the first, as far as known


class TooOldError(ImportError):
    """A library is too old."""


class NoRoomError(MemoryError):
    """The libraries do not fit into the memory that the process may use."""


def check_room(threads: int | None) -> None:
    """Raise NoRoomError if the libraries cannot be loaded with so much memory (ulimit -v), and RuntimeError if the
    system does not allow their threads, before they are loaded.

    While it is loaded, OpenBLAS asks for refused memory without end, or ends the process with exit code 1. For a thread
    that is refused it sends the process a SIGINT, as if a user had stopped it.

    threads: of OpenBLAS; None: one for each core, as it does by itself
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    _further[0] = min(threads or cores, cores) - 1           # it starts no more threads than there are cores
    _check(_ROOM + _further[0] * _ROOM_OF_THREAD)
    _start_threads(2 * _further[0])                          # those of numpy's and of scipy's


def check_room_of_lapack() -> None:
    """Raise NoRoomError if what was read meanwhile has left no room for scipy's LAPACK, just before it is loaded."""
    _check(_ROOM_OF_LAPACK + _further[0] * _ROOM_OF_THREAD // 2)


def _check(needed: int) -> None:
    """Raise NoRoomError if so many bytes are refused."""
    try:
        mmap.mmap(-1, needed, mmap.MAP_PRIVATE).close()
    except OSError as error:
        fewer = ", or use fewer threads (OPENBLAS_NUM_THREADS=1)" if _further[0] else ""
        raise NoRoomError(f"{needed >> 20} MB of address space, which the libraries need, are refused: raise the limit "
                          f"(ulimit -v, or the memory of the job){fewer}") from error


def _start_threads(count: int) -> None:
    """Have so many threads at once, for a moment."""
    over, started = threading.Event(), []
    try:
        for _ in range(count):
            started.append(threading.Thread(target=over.wait))
            started[-1].start()
    finally:
        over.set()
        for thread in started:
            if thread.ident is not None:
                thread.join()


def check_version(library: ModuleType) -> None:
    """Raise TooOldError if a library is too old; a version that cannot be parsed counts as new."""
    name, version = library.__name__, str(library.__version__)
    found, oldest = re.match(r"(\d+)\.(\d+)", version), OLDEST[name]
    if found and (int(found[1]), int(found[2])) < oldest:
        raise TooOldError(f"{name} is {version}, must be {oldest[0]}.{oldest[1]} or newer: install the package "
                          "(README.md) with its dependencies, or use a Python that has it", name=name)
