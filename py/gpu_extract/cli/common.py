"""What all programs share: parsing, logging, and how an error becomes one line and an exit code."""
import argparse
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from gpu_extract import __version__
from gpu_extract.errors import ExitCode, GpuExtractError, InputError

log = logging.getLogger("gpu_extract")
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "warn": logging.WARNING,
          "error": logging.ERROR, "critical": logging.CRITICAL}

Build = Callable[[], argparse.ArgumentParser]
Body = Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def __init__(self, prog: str, description: str, epilog: str = ""):
        super().__init__(prog=prog, description=description, epilog=epilog, allow_abbrev=False,
                         formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message: str) -> NoReturn:
        """Raise InputError in place of printing the usage."""
        raise InputError(f"{message}; see {self.prog} --help")


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """--loglevel, -v, --version."""
    group = parser.add_argument_group("messages")
    group.add_argument("--loglevel", metavar="LEVEL", default="info", type=_level,
                       help="debug, info (default), warning, error or critical; debug also shows tracebacks")
    group.add_argument("-v", "--verbose", action="store_const", const="debug", dest="loglevel",
                       help="the same as --loglevel debug")
    group.add_argument("--version", action="version", version=f"%(prog)s {__version__}")


def _level(text: str) -> str:
    if text.lower() not in LEVELS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a level; allowed are {', '.join(LEVELS)}")
    return text.lower()


def run_main(build: Build, body: Body, argv: Sequence[str] | None = None) -> int:
    """Parse, run `body`, and turn whatever goes wrong into one line and an exit code (see errors.ExitCode).

    build: makes the parser; its options include those of `add_common_options`
    body: the program; returns its exit code
    """
    parser = build()
    debug = False
    try:
        args = parser.parse_args(argv)
        debug = args.loglevel == "debug"
        start_logging(parser.prog, args.loglevel)
        return int(body(args))
    except SystemExit as leave:                  # --help, --version
        return int(leave.code or 0)
    except GpuExtractError as error:
        return _fail(parser.prog, str(error), error.code, debug)
    except KeyboardInterrupt:
        return _fail(parser.prog, "interrupted; files under their final names are whole, start again",
                     ExitCode.START_AGAIN, debug)
    except BrokenPipeError:
        with suppress(OSError):                  # whoever read our output has left: nobody to tell
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OUTPUT
    except MemoryError:
        return _fail(parser.prog, "out of memory; do less at once, or use a machine with more memory",
                     ExitCode.INTERNAL, debug)
    except Exception as error:
        return _fail(parser.prog, f"internal error: {type(error).__name__}: {error}; please report it with "
                     "the output of --loglevel debug", ExitCode.INTERNAL, debug)


def _fail(prog: str, message: str, code: ExitCode, debug: bool) -> int:
    """Say it in one line on standard error."""
    if debug:
        traceback.print_exc()
    print(f"{prog}: error: {' '.join(message.split())}", file=sys.stderr, flush=True)
    return code


class _Format(logging.Formatter):
    """INFO lines are the message; others say their level."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line = " ".join(record.getMessage().split("\n"))
        return line if record.levelno == logging.INFO else f"{record.levelname.lower()}: {line}"


def start_logging(prog: str, level: str) -> None:
    """Log to standard error, from `level` on, without touching anybody else's loggers."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Format())
    log.handlers[:] = [handler]
    log.propagate = False
    log.setLevel(LEVELS[level])
