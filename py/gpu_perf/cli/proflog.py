"""proflog, a command of gpu_perf and of gpu_stress: prints the record of Python's own profiler."""
import argparse
from collections.abc import Callable

from gpu_extract.cli.common import Parser, at_least, say
from gpu_extract.errors import InputError, reading

_DICTIONARY = b"{", b"\xfb"      # first bytes of marshal's dictionaries, the second if one refers to itself


def add_proflog(command: Callable[..., Parser]) -> None:
    """Add the command; command: of Parser.commands."""
    add = command("proflog", "print a cProfile dump sorted by cumulative time").add_argument
    add("file", metavar="FILE", help="made by python -m cProfile -o FILE ...")
    add("-n", "--top", type=int, metavar="N", help="print only the first N lines")


def print_profile(args: argparse.Namespace) -> None:
    """Print a dump, sorted by cumulative time. Raises InputError if the file is not one."""
    import pstats
    from io import StringIO

    top, lines = at_least(args.top, "the number of lines"), StringIO()
    try:
        with reading(args.file):
            with open(args.file, "rb") as dump:
                if dump.read(1)[:1] not in _DICTIONARY:       # marshal would trust a size in any other file
                    raise ValueError
            stats = pstats.Stats(args.file, stream=lines)
    except (EOFError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{args.file} is not a profile: make one with python -m cProfile -o FILE ...") from error
    stats.strip_dirs().sort_stats(pstats.SortKey.CUMULATIVE).print_stats(*([] if top is None else [top]))
    say(lines.getvalue(), end="")
