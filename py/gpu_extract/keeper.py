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
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import NoReturn

from gpu_extract.errors import ExitCode
from gpu_extract.perf.clock import sleep

STOPPED = 10.0       # seconds a rank may be stopped (SIGSTOP); more and it counts as lost
_LOOK = 0.25         # seconds between two looks at a rank that is stopped
_PATIENCE = 5.0      # seconds to wait for the launcher to end this process after it was told
_HEAD_START = 1.0    # seconds for the other ranks to find the same
_DIE_WITH_PARENT = 1          # Linux: prctl(PR_SET_PDEATHSIG, ...)
# from one keeper to others: end, here and now. Not SIGTERM, which may be meant for the ranks
END_NOW = signal.SIGRTMIN + 3 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2


class Mark(IntEnum):
    """What a rank tells its keeper; each may come with a code."""

    STARTS_MPI = 1       # from here on it is in MPI's hands
    MET = 2              # all ranks have met
    ENDS = 3             # it ends on purpose, with this exit code
    ENDS_ALL = 4         # it has all ranks ended with this exit code


Lost = Callable[[str, bool], int]
EndAll = Callable[[int], bool]
_pipe: list[int] = []         # in the child: where its keeper reads
_code = [int(ExitCode.INTERNAL)]     # in the keeper: what to end with when told to end


def keep(run: Callable[[], int], *, lost: Lost, end_all: EndAll, passes: Sequence[int] = ()) -> int:
    """Call `run` in a child process, and return there what it returns, which is the exit code it must end with.

    The keeper never returns: it ends with that code. Where the child ends in another way, or is stopped for more
    than 10 s (it is killed then), all ranks are ended.
    lost: is told how the child ended, and whether it had not yet come through the start of MPI; returns the exit code
    end_all: asks the launcher to end all ranks with an exit code; whether it will end the keeper, too
    passes: signals that the child knows how to take: they are passed on to it
    """
    reader, writer = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child != 0:
        os.close(writer)
        signal.signal(signal.SIGINT, signal.SIG_IGN)      # meant for the rank, which gets it too
        for number in (signal.SIGTERM, END_NOW):
            signal.signal(number, lambda *_: os._exit(_code[0]))
        for number in passes:
            signal.signal(number, lambda number, _: _pass_on(child, number))
        status = _wait(child)
        said = os.read(reader, 64)
        _leave(dict(zip(said[::2], said[1::2], strict=True)), os.waitstatus_to_exitcode(status), lost, end_all)
    os.close(reader)
    signal.signal(END_NOW, signal.SIG_IGN)           # its keeper ends, and it with it
    _die_with(parent)
    _pipe.append(writer)
    code = run()
    tell(Mark.ENDS, code)
    return code


def _pass_on(child: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, number)


def tell(mark: Mark, code: int = 0) -> None:
    """Tell the keeper of this process, where there is one."""
    for descriptor in _pipe:
        os.write(descriptor, bytes([mark, code]))


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


def _leave(said: dict[int, int], code: int, lost: Lost, end_all: EndAll) -> NoReturn:
    """End as the child ended, if that was what it said; else end all. code: negative for a signal."""
    on_purpose = said.get(Mark.ENDS) == code
    if on_purpose and (code == 0 or Mark.MET in said):
        os._exit(code)
    if Mark.ENDS_ALL in said:
        code = said[Mark.ENDS_ALL]
    elif not on_purpose:
        starting = Mark.STARTS_MPI in said and Mark.MET not in said and code > 0
        words = f"ended by signal {-code} ({signal.Signals(-code).name})" if code < 0 else \
            f"ended with exit code {code} before its work was done"
        code = lost(words, starting)
    _code[0] = code
    if Mark.MET not in said and code != ExitCode.INTERNAL:
        sleep(_HEAD_START)
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
