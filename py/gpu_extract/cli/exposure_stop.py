"""Signals that ask a run to stop: it ends cleanly, and says by exit code 75 that it wants to be started again."""
import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from gpu_extract.cli.common import ENDING, complain, take_signals
from gpu_extract.cli.ranks import find_launch
from gpu_extract.errors import ExitCode

SIGNALS = (*ENDING, signal.SIGUSR1)     # Slurm's warning before the time limit is whatever --signal names, usually USR1
IN_TIME = 5.0        # seconds until what is still in work is dropped with all ranks
_timers: list[threading.Timer] = []


@contextmanager
def ends_on_signals(prog: str, numbers: tuple[signal.Signals, ...] = SIGNALS) -> Iterator[None]:
    """Outside of the work nothing has to be finished: a signal ends the run at once. Afterwards, when the exit code is
    settled, a rank is not disturbed any more (left to itself Python puts back, while it ends, what kills); where the
    program is a function of another one, what was there is put back until that ends.
    """
    before = {number: signal.getsignal(number) for number in numbers}
    leave_on_signals(prog, numbers)
    try:
        yield
    finally:
        for timer in _timers:
            timer.cancel()
        _timers.clear()
        take_signals(numbers, signal.SIG_IGN)
        if find_launch() is None:
            for number, handler in before.items():
                take_signals((number,), handler, always=True)
            atexit.register(take_signals, numbers, signal.SIG_IGN)


def leave_on_signals(prog: str, numbers: tuple[signal.Signals, ...] = SIGNALS) -> None:
    """From now on a signal ends the run at once."""
    take_signals(numbers, lambda *_: end_now(prog))


def ask_on_signals(prog: str, ask: Callable[[], None], clean: Callable[[], object],
                   numbers: tuple[signal.Signals, ...] = SIGNALS) -> None:
    """During the work: the first signal calls `ask`; what is not done in time is ended, after a call of `clean`."""
    asked = threading.Event()

    def late() -> None:
        with suppress(Exception):         # whatever keeps it from tidying up must not keep it from ending
            clean()
        end_now(prog)

    def heard(*_: object) -> None:
        if not asked.is_set():
            asked.set()
            timer = threading.Timer(IN_TIME, late)
            timer.daemon = True
            timer.start()
            _timers.append(timer)
            ask()

    take_signals(numbers, heard)


def end_now(prog: str) -> None:
    """End all ranks with the exit code that asks to be started again."""
    from gpu_extract.ranks.keeper import Mark, tell

    take_signals(SIGNALS, signal.SIG_IGN)
    launch = find_launch()
    if launch is None or launch.rank == 0:
        complain(prog, "stopped on request; unfinished frames are dropped; start again to continue")
    tell(Mark.ENDS_ALL, ExitCode.START_AGAIN)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ExitCode.START_AGAIN)
