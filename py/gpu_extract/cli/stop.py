"""Signals that stop a run: it ends cleanly, with exit code 75 as a request to be started again."""
import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from gpu_extract.cli import end_early
from gpu_extract.cli.common import ENDING, complain, take_signals
from gpu_extract.cli.ranks import find_launch
from gpu_extract.errors import ExitCode

IN_TIME = 5.0        # seconds until unfinished work is dropped and all ranks are ended
_timers: list[threading.Timer] = []


@contextmanager
def ends_on_signals(prog: str) -> Iterator[None]:
    """Context outside of the work, in which a signal ends the run at once. Afterwards, when the exit code is settled,
    signals are ignored (Python would restore the fatal handlers at its end). If the program is called as a function,
    the previous handlers are restored.
    """
    before = {number: signal.getsignal(number) for number in ENDING}
    leave_on_signals(prog)
    try:
        yield
    finally:
        for timer in _timers:
            timer.cancel()
        _timers.clear()
        take_signals(ENDING, signal.SIG_IGN)
        if find_launch() is None:
            for number, handler in before.items():
                if handler is not end_early:
                    take_signals((number,), handler, always=True)
            atexit.register(take_signals, ENDING, signal.SIG_IGN)


def leave_on_signals(prog: str) -> None:
    """Let signals end the run at once."""
    take_signals(ENDING, lambda *_: end_now(prog))


def ask_on_signals(prog: str, ask: Callable[[], None], clean: Callable[[], object]) -> None:
    """Context of the work: the first signal calls `ask`; work that is not done in time is ended, after a call of
    `clean`."""
    asked = threading.Event()

    def late() -> None:
        with suppress(Exception):         # an error of tidying up must not prevent the end
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

    take_signals(ENDING, heard)


def end_now(prog: str) -> None:
    """End all ranks with the exit code that requests a new start."""
    from gpu_extract.ranks.keeper import Mark, tell

    take_signals(ENDING, signal.SIG_IGN)
    launch = find_launch()
    if launch is None or launch.rank == 0:
        complain(prog, "stopped on request; unfinished frames are dropped; start again to continue")
    tell(Mark.ENDS_ALL, ExitCode.START_AGAIN)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ExitCode.START_AGAIN)
