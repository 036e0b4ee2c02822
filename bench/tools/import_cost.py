"""What do the imports of a program take? Runs it, and writes the CPU seconds that its imports took into a file.

usage: import_cost.py RESULT PROGRAM [ARGUMENTS ...]

Whatever is imported counts, early or late, at the top of a module or in a function, with what it imports itself.
"""
import builtins
import importlib
import runpy
import sys
import threading
import time
from pathlib import Path
from typing import Any

_spent = [0.0]
_inside = threading.local()        # imports of a thread nest; several threads may import at once


def _counted(function: Any) -> Any:
    def call(*args: Any, **options: Any) -> Any:
        if vars(_inside):
            return function(*args, **options)
        start, _inside.one = time.thread_time(), True
        try:
            return function(*args, **options)
        finally:
            del _inside.one
            _spent[0] += time.thread_time() - start
    return call


def main() -> None:
    """Run the program; its exit code is ours."""
    result, sys.argv = sys.argv[1], sys.argv[2:]
    builtins.__import__ = _counted(builtins.__import__)
    importlib.import_module = _counted(importlib.import_module)
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        Path(result).write_text(f"{_spent[0]}\n")


if __name__ == "__main__":
    main()
