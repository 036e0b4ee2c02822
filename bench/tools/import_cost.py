"""What do the imports of a program take? Runs it, and writes the CPU seconds that its imports took into a file.

usage: import_cost.py RESULT PROGRAM [ARGUMENTS ...]

Whatever is imported counts, early or late, at the top of a module or in a function, with what it imports itself.
"""
import builtins
import importlib
import runpy
import sys
import time
from pathlib import Path
from typing import Any

_spent = [0.0]
_depth = [0]


def _counted(function: Any) -> Any:
    def call(*args: Any, **options: Any) -> Any:
        if _depth[0]:
            return function(*args, **options)
        start, _depth[0] = time.thread_time(), 1
        try:
            return function(*args, **options)
        finally:
            _depth[0] = 0
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
