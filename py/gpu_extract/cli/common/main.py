"""The frame of every program: from the command line to one line of an error and an exit code."""
import argparse
import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence

from gpu_extract.cli import ENDING, end_early
from gpu_extract.cli.common.messages import complain, let_go, start_logging, wait_for_readers
from gpu_extract.cli.common.process import drop_no_threads, settings_elsewhere, stop_when_asked, take_signals
from gpu_extract.errors import ExitCode, GpuExtractError, is_interruption
from gpu_extract.libraries import NoRoomError, TooOldError

_FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO      # of a write without a file name
NO_PROCESS = ("the system allows no further thread or process: raise the limit (ulimit -u, or pids of the job or "
              "container), or end other processes, and start again")
_NO_TEMPORARY = "No usable temporary directory", "MPLCONFIGDIR"      # of Python's tempfile, of matplotlib
_OF_NUMBA = ".numba_config.yaml"
_ROOT = os.path.realpath(f"{__file__}/../../../..")

Build = Callable[[], argparse.ArgumentParser]
Body = Callable[[argparse.Namespace], int]


def run_main(build: Build, body: Body, argv: Sequence[str] | None = None, *, speaks: bool = True,
             computes: bool = True) -> int:
    """Parse, run `body`, and turn any error into one line and an exit code (see errors.ExitCode).

    build: makes the parser; its options include those of `add_common_options`
    body: the program; returns its exit code
    speaks: False for a rank that leaves common error messages to another rank
    computes: False for a program that runs another one, whose environment stays as it is
    """
    parser = build()
    wait_for_readers()
    early = signal.getsignal(signal.SIGTERM) is end_early      # the program has no handlers of its own
    if os.path.realpath(sys.path[-1]) == _ROOT:      # bin/ of sources that are not installed; for subprocesses
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), _ROOT]))
    try:
        if early:
            stop_when_asked()
        args = parser.parse_args(argv)
        if computes:
            settings_elsewhere()
            drop_no_threads()
        start_logging(args.loglevel, args.log_times)
        return int(body(args))
    except SystemExit as leave:                  # --help, --version
        return int(leave.code or 0)
    except (Exception, KeyboardInterrupt) as error:
        message, code = explain(error)
        if not isinstance(error, GpuExtractError) or not (error.quiet if error.agreed_on else not speaks):
            complain(parser.prog, message, error)
        return code
    finally:
        if early:                                # the exit code is settled
            take_signals(ENDING, signal.SIG_IGN)
        let_go()


def explain(error: BaseException) -> tuple[str, ExitCode]:
    """The message of an error, and the exit code of the program."""
    if isinstance(error, GpuExtractError):
        return str(error), error.code
    if is_interruption(error):
        return "interrupted; files under their final names are complete; start again", ExitCode.START_AGAIN
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("gpu_"):
        return (f"{error.name} is not installed for {sys.executable}: install the package (README.md) with its "
                "dependencies, or use a Python that has it", ExitCode.INPUT)
    if isinstance(error, TooOldError):
        return f"{error} ({sys.executable})", ExitCode.INPUT
    if isinstance(error, NoRoomError):
        return str(error), ExitCode.INPUT
    if isinstance(error, MemoryError) or (isinstance(error, ImportError) and "failed to map segment" in str(error)):
        return "out of memory; do less at once, or use a machine with more memory", ExitCode.INTERNAL
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return NO_PROCESS, ExitCode.INTERNAL
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return f"{error.filename}: the file name is too long; give a shorter one", ExitCode.INPUT
    if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
        return (f"standard output cannot be written: {error.strerror}; files under their final names are complete",
                ExitCode.OUTPUT)
    if damaged := _damaged_code(error):
        return (f"{damaged}: the byte code of this module is damaged, as happens when a disk is full; remove the file, "
                "and start again", ExitCode.INPUT)
    if os.path.isfile(_OF_NUMBA) and any(frame.f_code.co_filename.endswith("numba/core/config.py")
                                         for frame, _ in traceback.walk_tb(error.__traceback__)):
        return (f"numba refuses its settings in {os.path.abspath(_OF_NUMBA)} ({error}); correct or remove this file, "
                "or start the program in another folder", ExitCode.INPUT)
    if isinstance(error, OSError) and any(word in str(error) for word in _NO_TEMPORARY):
        return ("no folder for temporary files can be written to (TMPDIR, else /tmp): make room there, or set TMPDIR "
                "to a folder of yours; files under their final names are complete", ExitCode.OUTPUT)
    if isinstance(error, FileNotFoundError) and error.filename is None:           # raised by os.getcwd
        return ("the current folder no longer exists; change to another one, or give names that begin with /",
                ExitCode.INPUT)
    return (f"internal error: {type(error).__name__}: {error}; please report it with the output of --loglevel debug",
            ExitCode.INTERNAL)


def _damaged_code(error: BaseException) -> str:
    """The file whose byte code Python could not load, or "". Python raises an EOFError, a ValueError or a TypeError
    without a name; a frame of its import has the name."""
    inner = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-2:]
    if not inner or inner[-1].f_code.co_name != "_compile_bytecode" or "importlib" not in inner[-1].f_code.co_filename:
        return ""
    return str(inner[0].f_locals.get("bytecode_path") or "a module")
