"""Removes temporary files of killed processes, at the next start."""
import os
import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from gpu_extract.errors import FileName
from gpu_extract.io.whose import NAME_MAX, Writer, is_gone, is_held, this_process
from gpu_extract.perf.clock import epoch

_TEMPORARY = re.compile(r"\.(?P<stem>.+)\.tmp-(?P<host>.+?)(-(?P<where>[0-9a-f]{8})-(?P<start>\d+))?-(?P<pid>\d+)-"
                        r"[0-9a-f]{8}(?P<extension>(\.[^.]+){0,2})")
_UNTOUCHED = 900.0       # seconds since the last write of a file whose writer cannot be checked


def remove_leftovers(targets: Iterable[FileName], *, own: bool = False) -> list[Path]:
    """Remove temporary files and folders (io.atomic) whose writers are gone; returns the removed ones.

    It looks at files of this user in the folders of `targets`. A writer on this machine is gone if no process has its
    number and its start time. A writer that cannot be checked (another machine, another container, another boot of this
    machine, an older version) loses only files that were to become one of `targets`, that can be locked, and that have
    not been written to for a quarter of an hour.
    own: remove only those of this process, before it ends in the middle of a write
    """
    removed = []
    wanted: dict[Path, set[str]] = {}
    for target in targets:
        path = Path(os.path.realpath(target))
        wanted.setdefault(path.parent, set()).add(path.name)
    me, user = this_process(), os.geteuid()
    for folder, names in wanted.items():
        for path in folder.glob(".*.tmp-*") if folder.is_dir() else ():
            match = _TEMPORARY.fullmatch(path.name)
            if match is None:
                continue
            writer = Writer(match["where"] or "", int(match["start"] or 0), int(match["pid"]))
            with suppress(OSError):
                status = path.stat()
                gone = writer == me if own else status.st_uid == user and _is_left(path, match, names, writer)
                if gone:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                    removed.append(path)
    return removed


def _is_left(path: Path, match: re.Match[str], names: set[str], writer: Writer) -> bool:
    """Whether a temporary file certainly has no writer any more."""
    gone = is_gone(writer)
    if gone is not None:
        return gone
    whole = match["stem"] + match["extension"]
    cut = len(os.fsencode(path.name)) == NAME_MAX
    if whole not in names and not (cut and any(name.startswith(match["stem"]) for name in names)):
        return False
    return epoch() - path.stat().st_mtime > _UNTOUCHED and is_held(path) is False
