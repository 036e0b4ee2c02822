"""Signals that ask an exposure to stop: it ends cleanly, and says by exit code 75 that it wants to be started again."""
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from gpu_extract.cli.common import complain
from gpu_extract.cli.ranks import find_launch
from gpu_extract.errors import ExitCode

# Slurm's warning before the time limit is whatever --signal names, usually USR1; SIGTERM comes with scancel and at the
# limit; SIGINT is Ctrl-C
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
IN_TIME = 5.0        # seconds until what is still in work is dropped with all ranks


def leave_on_signals(prog: str) -> None:
    """Before the work: nothing has to be finished, the run ends at once."""
    for number in SIGNALS:
        signal.signal(number, lambda *_: end_now(prog))


def ignore_signals() -> None:
    """After the work: the exit code is settled. (Left to itself Python puts back, while it ends, what kills.)"""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def ask_on_signals(prog: str, ask: Callable[[], None], clean: Callable[[], object]) -> None:
    """During the work: the first signal calls `ask`; what is not done in time is ended, after a call of `clean`."""
    asked = threading.Event()

    def late() -> None:
        with suppress(Exception):         # whatever keeps it from tidying up must not keep it from ending
            clean()
        end_now(prog)

    def heard(*_: object) -> None:
        if not asked.is_set():
            asked.set()
            ask()
            timer = threading.Timer(IN_TIME, late)
            timer.daemon = True
            timer.start()

    for number in SIGNALS:
        signal.signal(number, heard)


def end_now(prog: str) -> None:
    """End all ranks with the exit code that asks to be started again."""
    from gpu_extract.keeper import Mark, tell

    launch = find_launch()
    if launch is None or launch.rank == 0:
        complain(prog, "stopped on request; what was in work is dropped, start again to go on")
    tell(Mark.ENDS_ALL, ExitCode.START_AGAIN)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ExitCode.START_AGAIN)
