"""A keeper for a rank: a small process that waits for it, and has all ranks ended when it is lost.

A rank that is killed, stopped or gone without a word leaves the others waiting
in MPI for ever, or as long as the launcher likes, and with whatever exit code
the launcher finds. So a rank is made a child of a process that knows nothing
of MPI: the keeper sees how the child ends, and ends in a way that every
launcher understands. It takes no time, no device and a few MB.
"""
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from gpu_extract.errors import ExitCode
from gpu_extract.perf.clock import sleep

STOPPED = 10.0       # seconds a rank may be stopped (SIGSTOP); more and it counts as lost
_LOOK = 0.25         # seconds between two looks at a rank that is stopped
_PATIENCE = 5.0      # seconds to wait for the launcher to end this process after it was told
_HEAD_START = 1.0    # seconds for the other ranks to say the same
_UNTIL_READ = 0.3    # seconds for the launcher to pass on what was said
_DIE_WITH_PARENT = 1          # Linux: prctl(PR_SET_PDEATHSIG, ...)

Lost = Callable[[str], None]
EndAll = Callable[[int], bool]
_done: list[int] = []         # in the child: the pipe to its keeper


def keep(run: Callable[[], int], *, lost: Lost, end_all: EndAll) -> int:
    """Call `run` in a child process, and return there what it returns, which is the exit code it must end with.

    The keeper never returns: it ends with that code. Where the child ends in another way, or is stopped for more
    than 10 s (it is killed then), the keeper calls `lost` with a few words and ends with code 4.
    end_all: asks the launcher to end all ranks with an exit code; False where it cannot be asked
    """
    reader, writer = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child != 0:
        os.close(writer)
        signal.signal(signal.SIGINT, signal.SIG_IGN)      # meant for the rank, which gets it too
        status = _wait(child)
        _leave(os.read(reader, 2), status, lost, end_all)
    os.close(reader)
    _die_with(parent)
    _done.append(writer)
    code = run()
    say_code(code)
    return code


def say_code(code: int) -> None:
    """Tell the keeper, where there is one, that this process ends on purpose with this code, and if MPI is there."""
    while _done:
        descriptor = _done.pop()
        os.write(descriptor, bytes([code, "mpi4py.MPI" in sys.modules]))
        os.close(descriptor)


def _wait(child: int) -> int:
    """Wait for the child's end; its wait status."""
    while True:
        _, status = os.waitpid(child, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return status
        for _ in range(int(STOPPED / _LOOK)):         # counted, not timed: the keeper may be stopped as well
            sleep(_LOOK)
            changed, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if changed and os.WIFCONTINUED(status):
                break
            if changed and not os.WIFSTOPPED(status):
                return status
        else:
            os.kill(child, signal.SIGKILL)


def _leave(said: bytes, status: int, lost: Lost, end_all: EndAll) -> NoReturn:
    """End as the child ended, if that was what it said."""
    code = os.waitstatus_to_exitcode(status)
    if said and code == said[0] and (code == 0 or said[1]):
        os._exit(code)
    if said and code == said[0]:             # before it met the others: they may wait for it
        sleep(_HEAD_START)
    else:
        lost(f"ended by signal {-code} ({signal.Signals(-code).name})" if code < 0 else
             f"ended with exit code {code} before its work was done")
        code = int(ExitCode.INTERNAL)
    sys.stderr.flush()
    sleep(_UNTIL_READ)
    if end_all(code):
        sleep(_PATIENCE)
    os._exit(code)


def _die_with(parent: int) -> None:
    """Have this process killed when its parent ends, on Linux."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(ExitCode.INTERNAL)
