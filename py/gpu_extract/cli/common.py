"""The common part of all programs: parsing, logging, and the conversion of errors to one line and an exit code."""
import argparse
import errno
import gc
import logging
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TextIO, TypeVar

from gpu_extract import __version__
from gpu_extract.config import MOST_THREADS
from gpu_extract.errors import ExitCode, GpuExtractError, InputError, did_you_mean, is_interruption, one_of
from gpu_extract.libraries import TooOldError
from gpu_extract.perf.clock import stamp

log = logging.getLogger("gpu_extract")
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "warn": logging.WARNING,
          "error": logging.ERROR, "critical": logging.CRITICAL}
WHEN = ("auto", "on", "off")       # when lines of the log begin with the time

# of the numerical libraries
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

# SIGTERM comes with scancel and at a time limit; SIGINT is Ctrl-C; SIGHUP comes when a terminal is closed
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO      # of a write without a file name

_ROOT = os.path.realpath(f"{__file__}/../../..")
_held: list[bool] = []            # whether garbage collection is suspended

T = TypeVar("T")
Build = Callable[[], argparse.ArgumentParser]
Body = Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, with suggestions for misspelt words."""

    _words: Sequence[str] = ()

    def __init__(self, prog: str, description: str, epilog: str = ""):
        super().__init__(prog=prog, description=description, epilog=epilog, allow_abbrev=False,
                         formatter_class=argparse.RawDescriptionHelpFormatter)
        self.values_with_minus(r"-\.?\d.*")           # -0.3,1.2 and -1e-3 are not options either

    def values_with_minus(self, pattern: str) -> None:
        """Set which words that begin with a minus are values; argparse by itself accepts only -1 and -0.5."""
        self._negative_number_matcher = re.compile(pattern)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and remember the words, because a wrong word may be reported as a missing one."""
        self._words = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(args, namespace)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Refuse an empty word, which a shell makes from an unset variable, and which would count as not given."""
        if "" in arg_strings and action.nargs not in (argparse.PARSER, argparse.REMAINDER) and action.default != "":
            raise argparse.ArgumentError(action, "its value is empty (an unset variable?); give a value, or leave the "
                                                 "option out")
        return super()._get_values(action, arg_strings)

    def _print_message(self, message: str, file: Any = None) -> None:
        say(message, end="")

    def error(self, message: str) -> NoReturn:
        """Raise InputError instead of printing the usage."""
        meant = _meant(message, self._words, _options(self, self._words))
        raise InputError(f"{message}{meant}; see {self.prog} --help")

    def commands(self) -> "Callable[..., Parser]":
        """A function that makes the parser of a command, from its name, its help, and the arguments of Parser."""
        parsers = self.add_subparsers(dest="command", metavar="COMMAND", required=True)

        def command(name: str, text: str, description: str = "", epilog: str = "") -> Parser:
            return parsers.add_parser(name, help=text, description=description or f"{text[0].upper()}{text[1:]}.",
                                      epilog=epilog)

        return command


def _options(parser: argparse.ArgumentParser, words: Sequence[str]) -> dict[str, argparse.Action]:
    """The options of a parser, and of those of its commands that occur among the words."""
    found = dict(parser._option_string_actions)
    for action in parser._actions:
        for name, command in (action.choices or {}).items() if isinstance(action, argparse._SubParsersAction) else ():
            found |= _options(command, words) if name in words else {}
    return found


def _meant(message: str, words: Sequence[str], options: Mapping[str, argparse.Action]) -> str:
    """Suggestions for unknown options, or for an unknown value of a choice."""
    choice = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)$", message)
    if choice:
        return did_you_mean(choice[1], re.findall(r"[^', ]+", choice[2]))
    if "arguments" not in message:
        return ""
    shown = [name for name, action in options.items() if action.help != argparse.SUPPRESS and len(name) > 2]
    given = [word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]{2}", word)]
    files = "-i" in options and any(map(os.path.isfile, message.partition("unrecognized arguments: ")[2].split()))
    return "".join(did_you_mean(f"-{word}" if f"-{word}" in options else word, shown, f" for {word}")
                   for word in given if word not in options) + "; files follow their options: -i FILE" * files


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """--loglevel, -v, --version."""
    group = parser.add_argument_group("messages")
    group.add_argument("--loglevel", metavar="LEVEL", default="info", type=str.lower, choices=LEVELS,
                       help="debug, info (default), warning, error or critical; debug also shows tracebacks")
    group.add_argument("-v", "--verbose", action="store_const", const="debug", dest="loglevel",
                       help="the same as --loglevel debug")
    group.add_argument("--log-times", metavar="WHEN", default=None, choices=WHEN,
                       help="start each line of the log with the time (UTC): on, off, or auto, which means on unless "
                            "the log goes to a terminal (default: GPU_EXTRACT_LOG_TIMES, else auto)")
    group.add_argument("--version", action="version", version=f"%(prog)s {__version__}")


def run_main(build: Build, body: Body, argv: Sequence[str] | None = None, *, speaks: bool = True) -> int:
    """Parse, run `body`, and turn any error into one line and an exit code (see errors.ExitCode).

    build: makes the parser; its options include those of `add_common_options`
    body: the program; returns its exit code
    speaks: False for a rank that leaves common error messages to another rank
    """
    parser = build()
    if os.path.realpath(sys.path[-1]) == _ROOT:      # bin/ of sources that are not installed; for subprocesses
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), _ROOT]))
    try:
        args = parser.parse_args(argv)
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
        _let_go()


def settings_elsewhere() -> None:
    """Use another folder for astropy's settings, which are not needed, if the home folder is not accessible.

    Otherwise loading astropy fails.
    """
    try:
        os.stat(os.path.expanduser("~/.astropy/config"))
    except PermissionError:
        os.environ.setdefault("ASTROPY_CONFIG_DIR", os.path.abspath(os.sep))
    except OSError:
        pass


@contextmanager
def loading() -> Iterator[None]:
    """Context without cyclic garbage collection until `loaded` is called: it takes a fifth of the time of loading
    libraries, and finds nothing."""
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


def drop_no_threads() -> None:
    """Ignore a NUMBA_NUM_THREADS that is 0 or not a number, with which numba does not even load."""
    if not _counts(os.environ.get("NUMBA_NUM_THREADS", "1")):
        del os.environ["NUMBA_NUM_THREADS"]


def _counts(text: str) -> bool:
    """Whether a text is a whole number above 0."""
    return text.isdecimal() and int(text) > 0


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
    if isinstance(error, MemoryError) or (isinstance(error, ImportError) and "failed to map segment" in str(error)):
        return "out of memory; do less at once, or use a machine with more memory", ExitCode.INTERNAL
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return f"{error.filename}: the file name is too long; give a shorter one", ExitCode.INPUT
    if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
        return (f"standard output cannot be written: {error.strerror}; files under their final names are complete",
                ExitCode.OUTPUT)
    if damaged := _damaged_code(error):
        return (f"{damaged}: the byte code of this module is damaged, as happens when a disk is full; remove the file, "
                "and start again", ExitCode.INPUT)
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


def say(text: str, end: str = "\n", *, error: bool = False) -> None:
    """Print on standard output, or standard error, at once.

    If the reader has left, as `head` does, the rest is discarded. The program continues, and ends with the exit code of
    its work."""
    stream = sys.stderr if error else sys.stdout
    try:
        if stream is not None:                  # closed before the start
            print(text, end=end, file=stream, flush=True)
    except BrokenPipeError:
        _to_nobody(stream)


def _to_nobody(stream: TextIO) -> None:
    """Discard everything that is and will be written to a stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _let_go() -> None:
    """Discard unwritten data of standard output and standard error: Python would try again at its end, and exit with
    120 on failure."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            _to_nobody(stream)


def complain(prog: str, message: str, error: BaseException | None = None) -> None:
    """Print one line on standard error, after the traceback if the log level is debug."""
    with suppress(OSError):                      # the message is lost, but the exit code remains
        if error is not None and log.isEnabledFor(logging.DEBUG):
            for line in "".join(traceback.format_exception(error)).splitlines():
                print(printable(line), file=sys.stderr)
        print(f"{prog}: error: {printable(' '.join(message.split()))}", file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """The text with control and invisible characters escaped: file names may contain them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def on_terminal(stream: TextIO | None = None) -> bool:
    """Whether a stream (default: standard error) is a terminal; a stream that was closed before the start is None."""
    stream = stream or sys.stderr
    return stream is not None and stream.isatty()


def show_progress(text: str, *, last: bool, stream: TextIO | None = None) -> None:
    """Show progress: one changing line on a terminal, lines of the log elsewhere. last: the final one"""
    stream = stream or sys.stderr
    if not on_terminal(stream):
        log.info(text)
    elif log.isEnabledFor(logging.INFO):
        with suppress(OSError):                  # the terminal has gone
            stream.write(f"\r{text}\x1b[K" + ("\n" if last else ""))
            stream.flush()


class _Format(logging.Formatter):
    """INFO lines are the message only; other lines include their level. times: with the time in front."""

    def __init__(self, *, times: bool):
        super().__init__()
        self._times = times

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line = printable(" ".join(record.getMessage().split("\n")))
        line = line if record.levelno == logging.INFO else f"{record.levelname.lower()}: {line}"
        return f"{stamp(record.created)}Z {line}" if self._times else line


def separated(convert: Callable[[str], T], what: str, *counts: int, by: str = ",") -> Callable[[str], tuple[T, ...]]:
    """The type of an option with values separated by commas, whose number `counts` limits; what: their description."""
    def parse(text: str) -> tuple[T, ...]:
        with suppress(ValueError):
            values = tuple(convert(word) for word in text.split(by))
            if not counts or len(values) in counts:
                return values
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")

    return parse


GRID = separated(float, "a grid; give first,last,step in Angstrom, e.g. 5760,7620,0.8", 3)
NAMES = separated(str, "a list of names separated by commas")
NUMBERS = separated(int, "a list of whole numbers; separate them by commas, e.g. 1,2,10")


def at_least(value: T, what: str, least: int = 1) -> T:
    """The number, or None; raises InputError if it is below `least`."""
    if isinstance(value, int) and value < least:
        raise InputError(f"{what} is {value}, must be {least} or more")
    return value


def check_threads(threads: int | None) -> None:
    """Raise InputError if the number is impossible."""
    at_least(threads, "--threads")
    if threads is not None and threads > MOST_THREADS:
        raise InputError(f"--threads is {threads}, must be {MOST_THREADS} or less")


def start_logging(level: str, when: str | None = None) -> None:
    """Log to standard error, from `level` on, without changing other loggers. when: out of WHEN, with times"""
    when = when or os.environ.get("GPU_EXTRACT_LOG_TIMES") or "auto"
    if when not in WHEN:
        raise InputError(one_of("GPU_EXTRACT_LOG_TIMES", when, WHEN))
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Format(times=when == "on" or (when == "auto" and not on_terminal())))
    log.handlers[:] = [handler]
    log.propagate = False
    log.setLevel(LEVELS[level])
