"""The programs: options, a call, an exit code; one file for each program.

A program has its own handlers of signals only after a tenth of a second of imports. Until then, a signal to end would
end it with a traceback, or without a message. Therefore this package, which every program imports first, ends it.
"""
import os
import signal
import sys
import threading
from typing import NoReturn

# SIGTERM comes with scancel and at a time limit; SIGINT is Ctrl-C; SIGHUP comes when a terminal is closed. Batch
# systems announce a limit by SIGUSR1 or SIGUSR2, the system a limit on CPU time by SIGXCPU, and an alarm that was set
# before the program was started comes as SIGALRM
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGALRM)
START_AGAIN = 75      # errors.ExitCode, which is not loaded yet
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")      # variables of launchers


def end_early(*_: object) -> NoReturn:
    """End before any work, with the exit code that requests a new start; one of several ranks says so."""
    if next((os.environ[name] for name in _RANKS if name in os.environ), "0") == "0":
        os.write(2, f"{os.path.basename(sys.argv[0])}: error: stopped on request before any work; start again\n"
                 .encode(errors="replace"))
    os._exit(START_AGAIN)


def _is_program() -> bool:
    """Whether a program of this project is starting, and not one that imports it."""
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    return (name.startswith("gpu_") and "." not in name) or name == "mps_wrapper"


if _is_program() and threading.current_thread() is threading.main_thread():
    for _number in ENDING:
        if signal.getsignal(_number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(_number, end_early)
