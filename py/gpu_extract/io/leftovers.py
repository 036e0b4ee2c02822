"""Temporary files whose writers are gone: a killed process cannot take its own away, so the next start does."""
import os
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from gpu_extract.perf.clock import epoch

_TEMPORARY = re.compile(r"\.(?P<stem>.+)\.tmp-(?P<host>.+)-(?P<pid>\d+)-[0-9a-f]{8}(?P<extension>(\.[^.]+){0,2})")
_UNTOUCHED = 900.0       # seconds after which the file of another host, which cannot be asked, has no owner any more
_SLACK = 2.0             # seconds by which a process's start, counted in ticks since the machine's, may be wrong


def remove_leftovers(targets: Iterable[str | os.PathLike[str]], *, own: bool = False) -> list[Path]:
    """Remove the temporary files (io.atomic) of writers of `targets` that are gone; returns what was removed.

    A writer is gone where its process is not there, or has started after the file was last written to; of another
    host's, nothing is known, and a file must not have been touched for a quarter of an hour.
    own: remove those of this very process, and no others: before it ends in the middle of a write
    """
    removed = []
    wanted: dict[Path, set[str]] = {}
    for target in targets:
        path = Path(os.path.realpath(target))
        wanted.setdefault(path.parent, set()).add(path.name)
    for folder, names in wanted.items():
        for path in _temporaries(folder, names):
            with suppress(OSError):
                if _is_own(path) if own else _is_orphan(path):
                    path.unlink()
                    removed.append(path)
    return removed


def _temporaries(folder: Path, names: set[str]) -> list[Path]:
    """Temporary files in a folder that were to become files of these names (the start of it, where it was cut)."""
    found = []
    for path in folder.glob(".*.tmp-*") if folder.is_dir() else ():
        match = _TEMPORARY.fullmatch(path.name)
        if match is None:
            continue
        whole = match["stem"] + match["extension"]
        cut = len(os.fsencode(path.name)) == 255
        if whole in names or (cut and any(name.startswith(match["stem"]) for name in names)):
            found.append(path)
    return found


def _owner(path: Path) -> tuple[str, int]:
    """Host and process number in the name of a temporary file."""
    host, pid, _ = path.name.partition(".tmp-")[2].rsplit("-", 2)
    return host, int(pid)


def _is_own(path: Path) -> bool:
    return _owner(path) == (_host(), os.getpid())


def _is_orphan(path: Path) -> bool:
    host, pid = _owner(path)
    written = path.stat().st_mtime
    if host != _host():
        return epoch() - written > _UNTOUCHED
    start = process_start(pid)
    return start is None or start > written + _SLACK


def _host() -> str:
    return socket.gethostname().split(".")[0]


def process_start(pid: int) -> float | None:
    """When a process of this host was started, seconds since 1970; None where there is none, 0 where it is not told."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
    except FileNotFoundError:
        return 0.0
    return None if stat[0] == "Z" else int(boot.split()[1]) + int(stat[19]) / os.sysconf("SC_CLK_TCK")
