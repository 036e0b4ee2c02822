"""What is raised when, and the exit code each error ends a program with.

A message is one line that says what was given, what is allowed and what to
do. The programs print it as it is; only ``--loglevel debug`` adds a traceback.
"""
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every program of this project."""

    DONE = 0
    CHECK_FAILED = 1     # a comparison or check failed
    INPUT = 2            # usage or input
    OUTPUT = 3           # the output could not be written
    INTERNAL = 4         # a rank was lost, or an internal error
    START_AGAIN = 75     # stopped cleanly; start again to go on (EX_TEMPFAIL)


class GpuExtractError(Exception):
    """Base of all errors that a program ends with, one line each.

    quiet: another rank says it; agreed_on: the ranks (a communicator) that raise this together
    """

    code = ExitCode.INTERNAL
    quiet = False
    agreed_on: object = None


class InputError(GpuExtractError):
    """An option, a file or its content cannot be used."""

    code = ExitCode.INPUT


class ConfigError(InputError):
    """Settings that do not fit together; the message lists every problem."""


class OutputError(GpuExtractError):
    """A result could not be written, or must not be (NaN, read-only, disk full)."""

    code = ExitCode.OUTPUT


class CheckFailed(GpuExtractError):
    """A comparison was made and judged to fail."""

    code = ExitCode.CHECK_FAILED


class InternalError(GpuExtractError):
    """A rank was lost, or the code contradicts itself."""

    code = ExitCode.INTERNAL


class StoppedCleanly(GpuExtractError):
    """Stopped on request with everything in order; starting again goes on."""

    code = ExitCode.START_AGAIN
