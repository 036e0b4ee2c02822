"""The options of a bench, which its docstring explains."""
import argparse
from typing import Any


def parser_of(text: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """A parser with a bench's docstring as its help: an option for each name, of its default's type, and --smallest.

    False: a switch; None: text that is not given
    """
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {**defaults, "smallest": False}.items():
        if default is False:
            parser.add_argument(f"--{name.replace('_', '-')}", action="store_true")
        else:
            parser.add_argument(f"--{name.replace('_', '-')}", type=str if default is None else type(default),
                                default=default)
    return parser
