"""An append-only file of JSON lines that survives a kill: the state of a campaign.

Each line is written with its newline and flushed to the disk before the call
returns. A writer killed in the middle leaves half a line at the end, which
readers skip and the next writer cuts off; whole lines are never touched again.
"""
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpu_extract.errors import InputError, OutputError, reading


class Journal:
    """The file, open for appending, held by one writer at a time.

    lines: its content when it was opened; belongs: see read_lines
    Raises InputError if another process holds it or a line in it is foreign,
    OutputError if it cannot be made or written.
    """

    def __init__(self, path: Path, belongs: Callable[[dict[str, Any]], bool]):
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise OutputError(f"{path} cannot be made: {error.strerror}; give a folder that can be written to") \
                from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.lines = list(read_lines(path, belongs))
            os.ftruncate(self._fd, path.read_bytes().rfind(b"\n") + 1)
        except BlockingIOError as error:
            os.close(self._fd)
            raise InputError(f"{path} is in use by another run: wait for it, or give another folder") \
                from error
        except InputError:
            os.close(self._fd)
            raise

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def write(self, line: Mapping[str, Any]) -> None:
        """Append one line, which is on the disk when this returns."""
        data = (json.dumps(line) + "\n").encode()
        try:
            while data:
                data = data[os.write(self._fd, data):]
            os.fsync(self._fd)
        except OSError as error:
            raise OutputError(f"{self.path} cannot be written: {error.strerror}; its previous content is safe; free "
                              "some space and start again") from error


def read_lines(path: Path, belongs: Callable[[dict[str, Any]], bool]) -> Iterator[dict[str, Any]]:
    """The complete lines of a file; each must be an object that `belongs` there.

    Raises InputError that names the first line that does not.
    """
    with reading(path):
        whole, _, _ = path.read_bytes().rpartition(b"\n")
    for number, text in enumerate(whole.splitlines(), 1):
        try:
            line = json.loads(text)
            known = belongs(line)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            known = False
        if not known:
            raise InputError(f"{path}, line {number}, does not belong there: nothing was changed; delete the line, or "
                             "give another folder")
        yield line
