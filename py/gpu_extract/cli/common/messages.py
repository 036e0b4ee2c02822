"""What programs print: lines of the log, lines of standard output, and one line for an error."""
import logging
import os
import sys
import traceback
from contextlib import suppress
from typing import TextIO

from gpu_extract.errors import InputError, one_of
from gpu_extract.perf.clock import stamp

log = logging.getLogger("gpu_extract")
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "warn": logging.WARNING,
          "error": logging.ERROR, "critical": logging.CRITICAL}
WHEN = ("auto", "on", "off")       # when lines of the log begin with the time


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


class _Format(logging.Formatter):
    """INFO lines are the message alone; other lines begin with their level. times: whether the time comes first."""

    def __init__(self, *, times: bool):
        super().__init__()
        self._times = times

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line = printable(" ".join(record.getMessage().split("\n")))
        line = line if record.levelno == logging.INFO else f"{record.levelname.lower()}: {line}"
        return f"{stamp(record.created)}Z {line}" if self._times else line


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


def wait_for_readers() -> None:
    """Let standard output and standard error wait for a slow reader.

    They do not where another process that shares them has made them non-blocking. What does not fit into the pipe
    would then be an error, or be lost (PYTHONUNBUFFERED).
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):          # closed, or not a file
            if stream is not None:
                os.set_blocking(stream.fileno(), True)


def _to_nobody(stream: TextIO) -> None:
    """Discard everything that is and will be written to a stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def let_go() -> None:
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
