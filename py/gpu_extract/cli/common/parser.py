"""Parsers of options, whose errors are one line."""
import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from textwrap import fill
from typing import Any, NoReturn, TypeVar

from gpu_extract import __version__
from gpu_extract.cli.common.messages import LEVELS, WHEN, say
from gpu_extract.errors import InputError, did_you_mean

WIDTH = 80          # columns of a help text
T = TypeVar("T")


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
            said = description or fill(f"{text[0].upper()}{text[1:]}.", WIDTH)
            return parsers.add_parser(name, help=text, description=said, epilog=epilog)

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
