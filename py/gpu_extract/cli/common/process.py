"""The process that a program runs in: threads, signals, garbage collection, folders of settings."""
import gc
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from gpu_extract.cli import ENDING
from gpu_extract.config import MOST_THREADS
from gpu_extract.errors import InputError
from gpu_extract.libraries import check_room

# of the numerical libraries
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

_held: list[bool] = []            # whether garbage collection is suspended

T = TypeVar("T")


def settings_elsewhere() -> None:
    """Let astropy look for its settings where there are none.

    The user's own decide how files are read: with some of them no image can be read, or integers become fractions. If
    they are damaged, or the home folder is not accessible, loading astropy fails.
    """
    os.environ["ASTROPY_CONFIG_DIR"] = os.path.abspath(os.sep)


@contextmanager
def loading() -> Iterator[None]:
    """Context without cyclic garbage collection until `loaded` is called. While libraries load, collection takes a
    fifth of the time and finds nothing."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    _held.append(True)
    try:
        yield
    finally:
        loaded()


def loaded() -> None:
    """Exempt all present objects from garbage collection."""
    if _held:
        _held.clear()
        gc.freeze()
        gc.enable()


def stop_when_asked() -> None:
    """Treat SIGTERM, which a batch system sends, as an interruption from the keyboard, so that everything ends in
    order.

    Only the first signal counts: later ones (each rank and its keeper get one) do not disturb the ending.
    """
    def stop(*_: object) -> NoReturn:
        take_signals(ENDING, signal.SIG_IGN)
        raise KeyboardInterrupt

    take_signals(ENDING, stop)


def take_signals(numbers: Iterable[int], handler: Any, *, always: bool = False) -> None:
    """Install a handler of signals; ignored signals, as under nohup, stay ignored. Works only in the main thread."""
    for number in numbers if threading.current_thread() is threading.main_thread() else ():
        if always or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def set_threads(threads: int | None) -> None:
    """Set the threads of the numerical libraries, which read them only when they are loaded. None: one, unless the
    environment says otherwise."""
    check_threads(threads)
    given = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()       # a list is for nested regions
    usual = given if _counts(given) else "1"
    drop_no_threads()
    for variable in THREAD_VARIABLES:
        if threads is not None:
            os.environ[variable] = str(threads)
        else:
            os.environ.setdefault(variable, usual)
    check_memory()


def check_memory() -> None:
    """Raise NoRoomError if the numerical libraries do not fit into memory; to be called before they are loaded."""
    given = [os.environ.get(name, "") for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")]
    check_room(next((int(text) for text in given if _counts(text)), None))


def drop_no_threads() -> None:
    """Ignore a NUMBA_NUM_THREADS that is 0 or not a number, with which numba does not even load."""
    if not _counts(os.environ.get("NUMBA_NUM_THREADS", "1")):
        del os.environ["NUMBA_NUM_THREADS"]


def _counts(text: str) -> bool:
    """Whether a text is a whole number above 0."""
    return text.isdecimal() and int(text) > 0


def check_threads(threads: int | None) -> None:
    """Raise InputError if the number is impossible."""
    at_least(threads, "--threads")
    if threads is not None and threads > MOST_THREADS:
        raise InputError(f"--threads is {threads}, must be {MOST_THREADS} or less")


def at_least(value: T, what: str, least: int = 1) -> T:
    """The number, or None; raises InputError if it is below `least`."""
    if isinstance(value, int) and value < least:
        raise InputError(f"{what} is {value}, must be {least} or more")
    return value
