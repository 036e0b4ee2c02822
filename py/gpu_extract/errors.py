"""The errors of the package, and the exit code of each.

A message is one line that says what was given, what is allowed and what to do. The programs print it unchanged; only
``--loglevel debug`` adds a traceback.
"""
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

Ranges = Mapping[str, tuple[float, float, str]]       # name -> least, most, and what the value must
FileName = str | os.PathLike[str]                       # Python's types for file names


class ExitCode(IntEnum):
    """Exit codes of every program of this project."""

    DONE = 0
    CHECK_FAILED = 1     # a comparison or check failed
    INPUT = 2            # usage or input
    OUTPUT = 3           # the output could not be written
    INTERNAL = 4         # a rank was lost, or an internal error
    START_AGAIN = 75     # stopped cleanly; start again to continue (EX_TEMPFAIL)


def is_interruption(error: BaseException) -> bool:
    """Whether a signal caused an error: one that arrives while a kernel returns is the cause of a SystemError."""
    return isinstance(error, KeyboardInterrupt) or (isinstance(error, SystemError)
                                                    and isinstance(error.__cause__, KeyboardInterrupt))


class GpuExtractError(Exception):
    """Base of all errors that end a program with one line.

    quiet: another rank reports it; agreed_on: the ranks (a communicator) that raise it together
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
    """A comparison failed."""

    code = ExitCode.CHECK_FAILED


class InternalError(GpuExtractError):
    """A rank was lost, or the program is inconsistent."""


class StoppedCleanly(GpuExtractError):
    """Stopped cleanly on request; a new start continues."""

    code = ExitCode.START_AGAIN


def did_you_mean(word: str, known: Iterable[str], place: str = "") -> str:
    """The end of a message about an unknown word: the most similar known word, if any.

    A known word that begins with it has precedence.
    """
    from difflib import get_close_matches

    names = list(known)
    begun = [name for name in names if word.strip("-") and name.startswith(word)]
    near = get_close_matches(word, begun, 1, 0.0) if begun else get_close_matches(word, names, 1)
    return f"; did you mean {near[0]}{place}?" if near else ""


def refuse(problems: Iterable[str]) -> None:
    """Raise ConfigError with all problems of some settings, if there are any."""
    said = "; ".join(problems)
    if said:
        raise ConfigError(said)


def one_of(what: str, value: str, allowed: Iterable[str]) -> str:
    """The message about a value that is not one of those allowed."""
    names = list(allowed)
    return f"{what} is {value!r}, must be one of {', '.join(names)}{did_you_mean(value, names)}"


def not_allowed(settings: object, choices: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Messages about settings that are not among their choices."""
    for name, allowed in choices.items():
        if getattr(settings, name) not in allowed:
            yield one_of(name, getattr(settings, name), allowed)


def out_of_range(settings: object, ranges: Ranges) -> Iterator[str]:
    """Messages about settings that are not None and do not lie in their range."""
    for name, (least, most, words) in ranges.items():
        value = getattr(settings, name)
        if value is not None and not least <= value <= most:
            yield f"{name} is {f'{value:g}' if isinstance(value, float) else value}, must {words}"


def check_kind(name: str, given: object, kind: Any, wanted: str) -> None:
    """Raise InputError if an argument has the wrong type. wanted: what it must be, in words"""
    if not isinstance(given, kind):
        raise InputError(f"{name} is of type {type(given).__name__}, must be {wanted}")


def check_flags(**flags: object) -> None:
    """Raise InputError if an argument is neither True nor False: words such as "no" would count as True."""
    for name, given in flags.items():
        if type(given).__name__ not in ("bool", "bool_"):       # numpy's bool, without loading numpy
            raise InputError(f"{name} is of type {type(given).__name__}, must be True or False")


def file_name(path: object) -> str:
    """A path as text. Raises InputError if it cannot be a file name."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str):
        raise InputError(f"path is of type {type(path).__name__}, must be the name of a file: a str or a Path")
    if not name:
        raise InputError("path is empty, must be the name of a file")
    if "\0" in name:
        raise InputError(f"{name!r}: a file name cannot contain a zero byte; give another name")
    return name


def check_local(name: str, remedy: str = "download it, and give the name of the copy") -> None:
    """Raise InputError if the name of a missing file is an address (s3://..., https://...)."""
    from re import search

    found = search(r"(?:^|/)([A-Za-z][A-Za-z0-9+.-]+):/+[^/]", name)
    if found:
        raise InputError(f"{name}: is an address ({found[1]}://), not a file: {remedy}")


@contextmanager
def about(name: str) -> Iterator[None]:
    """Context in which an InputError gets the name of the file as prefix."""
    try:
        yield
    except InputError as error:
        if str(error).startswith(f"{name}: "):
            raise
        raise type(error)(f"{name}: {error}") from error


@contextmanager
def reading(path: object, what: str = "", remedy: str = "") -> Iterator[None]:
    """Context in which an InputError says which file cannot be read, and why; what: kind of the file, followed by a
    blank.

    It applies only to errors of the system: errors without a number come from a library, about the content.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        check_local(str(path))
        raise InputError(f"{path}: {what}cannot be read: {error.strerror}{remedy}") from error
