"""The keeper of a rank: a small process that waits for the rank, and ends all ranks when it is lost.

A rank that is killed, stopped or ends without a message leaves the others waiting in MPI for ever, or until the
launcher ends them, with an arbitrary exit code. Therefore a rank is the child of a process that does not use MPI: the
keeper sees how the child ends, and itself ends in a way that every launcher understands. It needs no time, no device
and a few MB.
"""
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import NoReturn

from gpu_extract.errors import ExitCode
from gpu_extract.perf.clock import children_count_as_this, process_state, sleep

STOPPED = 10.0       # seconds that a rank or a keeper may be stopped alone (SIGSTOP) before the rank counts as lost
ASKED = 10.0         # seconds for a rank to end after a signal
_LOOK = 0.25         # seconds between two checks of a stopped rank
_SELDOM = 1.0        # seconds between two checks of the keeper
_PATIENCE = 5.0      # seconds to wait for the launcher to end this process on request
_HEAD_START = 1.0    # seconds for the other ranks to find the same error
_TELL_OF_PARENT = 1           # Linux: prctl(PR_SET_PDEATHSIG, ...)
# from one keeper to others: end, here and now (not SIGTERM, which may be meant for the ranks); from the system to a
# keeper: its parent has ended
END_NOW, _ORPHANED = (signal.SIGRTMIN + 3, signal.SIGRTMIN + 4) if hasattr(signal, "SIGRTMIN") else \
    (int(signal.SIGURG), int(signal.SIGIO))


class Mark(IntEnum):
    """Messages of a rank to its keeper; each may have a code."""

    STARTS_MPI = 1       # it begins to start MPI
    MET = 2              # all ranks have met
    ENDS = 3             # it ends intentionally, with this exit code
    ENDS_ALL = 4         # it ends all ranks with this exit code


Lost = Callable[[str, bool, bool], int]
EndAll = Callable[[int], bool]
Beside = Callable[[int], Callable[[bool], None]]
_pipe: list[int] = []         # in the child: the pipe to its keeper
_code = [int(ExitCode.INTERNAL)]     # in the keeper: the exit code for an end on request
_asked: list[int] = []        # in the keeper: received signals to end


def keep(run: Callable[[], int], *, ending: Sequence[int], lost: Lost, end_all: EndAll,
         beside: Beside = lambda child: lambda well: None,
         no_process: Callable[[], int] = lambda: int(ExitCode.INTERNAL)) -> int:
    """Call `run` in a child process, and return its result there, which is the exit code it must end with.

    The keeper never returns: it ends with that code. Where the child ends in another way, or is stopped for more
    than 10 s (it is killed then), all ranks are ended. Signals to end, and the end of the launcher, are passed on to
    the child (a signal that was ignored stays so); it is killed where it does not end within 10 s, and all ranks
    are ended. The child ends with its keeper: the system sees to it, since MPI may hold all threads of the child until
    all ranks have met. It looks after the keeper in turn: one that is stopped for more than 10 s ends all ranks, too.
    ending: signals that ask the child to end
    lost: called with how the child ended, whether MPI was still starting, and whether a signal had
        asked for an end; returns the exit code
    end_all: asks the launcher to end all ranks with an exit code; returns whether it will also end the keeper
    beside: called in the keeper with the child's number; what it returns is told whether the child has ended as it
        should, or, where all are ended, before this process ends
    no_process: called where the system allows no child; returns the exit code with which all ranks end
    """
    children_count_as_this()
    reader, writer = os.pipe()
    launcher, parent = os.getppid(), os.getpid()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*ending, END_NOW))       # until somebody takes them
    try:
        child = os.fork()
    except OSError:
        _give_up(no_process(), end_all)
    if child != 0:
        os.close(writer)
        ended = beside(child)
        _take_signals(child, launcher, ending, ended)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        status = _wait(child)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number in ending:
            signal.signal(number, _end_with_code)
        os.set_blocking(reader, False)                    # processes started by the child may still hold the other end
        said = os.read(reader, 64)
        marks, code = dict(zip(said[::2], said[1::2], strict=True)), os.waitstatus_to_exitcode(status)
        if marks.get(Mark.ENDS) == code and (code == 0 or Mark.MET in marks):
            ended(True)
            os._exit(code)
        ended(False)
        _leave(marks, code, lost, end_all)
    os.close(reader)
    signal.signal(END_NOW, signal.SIG_IGN)           # its keeper ends, and it with it
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    _have_told_of_end(parent, signal.SIGKILL)
    _pipe.append(writer)
    with suppress(RuntimeError):                     # the system allows no thread: nobody looks after the keeper
        threading.Thread(target=_watch_keeper, args=(parent, lost), name="keeper's keeper", daemon=True).start()
    code = run()
    tell(Mark.ENDS, code)
    if _is_stopped(parent):
        _pass_on(parent, signal.SIGCONT)             # nothing is lost, as all is done
    return code


def _take_signals(child: int, launcher: int, ending: Sequence[int], ended: Callable[[bool], None]) -> None:
    """Handle signals to the keeper, which are meant for the rank."""
    def ask(number: int, _: object) -> None:
        _pass_on(child, number)
        if not _asked:
            _asked.append(number)
            signal.setitimer(signal.ITIMER_REAL, ASKED)

    def alarm(number: int, _: object) -> None:
        if _asked:                           # the time is over
            _pass_on(child, signal.SIGKILL)
        elif signal.SIGALRM in ending:       # another's alarm
            ask(number, None)

    def orphaned(*_: object) -> None:
        if os.getppid() != launcher:         # else only the thread of it that started this process
            ask(signal.SIGTERM, None)

    def end(*_: object) -> NoReturn:
        ended(False)
        _end_with_code()

    for number in ending:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, ask)
    signal.signal(signal.SIGALRM, alarm)          # also where it was ignored
    signal.signal(END_NOW, end)
    signal.signal(_ORPHANED, orphaned)
    _have_told_of_end(launcher, _ORPHANED)


def _end_with_code(*_: object) -> NoReturn:
    os._exit(_code[0])


def _pass_on(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _watch_keeper(keeper: int, lost: Lost) -> None:
    """In the rank: end where the keeper is stopped, and wake it, so that it ends all ranks. Looks are counted, not
    timed: a job that is suspended as a whole does not count them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())       # they are the main thread's
    stopped = 0
    while stopped * _SELDOM < STOPPED:
        sleep(_SELDOM)         # and not sigtimedwait, which makes up a signal where a suspended job goes on
        stopped = stopped + 1 if _is_stopped(keeper) else 0
    tell(Mark.ENDS_ALL, lost(f"had its keeper (process {keeper}) stopped for more than {STOPPED:.0f} s", False, False))
    sys.stderr.flush()
    _pass_on(keeper, signal.SIGCONT)
    os._exit(ExitCode.INTERNAL)


def _is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal, if the system reports it."""
    return process_state(pid)[:1] == ["T"]


def tell(mark: Mark, code: int = 0) -> None:
    """Send a message to the keeper of this process, if there is one."""
    for descriptor in _pipe:
        os.write(descriptor, bytes([mark, code]))


def _wait(child: int) -> int:
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
    """End all ranks, after a child that ended abnormally. code: negative for a signal."""
    on_purpose = said.get(Mark.ENDS) == code
    if Mark.ENDS_ALL in said:
        code = said[Mark.ENDS_ALL]
    elif not on_purpose:
        starting = Mark.STARTS_MPI in said and Mark.MET not in said and code > 0
        words = f"ended by signal {-code} ({signal.Signals(-code).name})" if code < 0 else \
            f"ended with exit code {code} before its work was done"
        code = lost(words, starting, bool(_asked))
    _code[0] = code            # another keeper may end this process during the head start
    if Mark.MET not in said and code != ExitCode.INTERNAL:
        sleep(_HEAD_START)
    _give_up(code, end_all)


def _give_up(code: int, end_all: EndAll) -> NoReturn:
    """End all ranks with this exit code."""
    _code[0] = code
    if end_all(code):
        sleep(_PATIENCE)
    os._exit(code)


def _have_told_of_end(parent: int, number: int) -> None:
    """Let the system send this process a signal when its parent ends, on Linux."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_TELL_OF_PARENT, number, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), number)
