"""Files that are made once and kept: a folder per content, complete or absent, verified on every use."""
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gpu_extract.errors import OutputError
from gpu_extract.io.atomic import temporary_name
from gpu_extract.io.leftovers import remove_leftovers
from gpu_extract.io.whose import claim
from gpu_extract.perf.clock import sleep

MANIFEST = "manifest.json"
_WAIT, _PAUSE = 900.0, 0.2      # longest wait for another process, and time between two checks, seconds


def kept_folder(root: Path, name: str, make: Callable[[Path], None], *,
                log: Callable[[str], None] = lambda line: None) -> Path:
    """The folder `root`/`name`, made by `make(folder)` if it is missing or has changed.

    Every file's size and SHA-256 are in the folder's manifest and verified. The folder is made under another
    name and then renamed; processes that need it at the same time wait for the one that makes it.

    Raises OutputError if it cannot be made.
    """
    folder = root / name
    if complaint_of(folder) is None:
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _only_one(folder, log):
            complaint = complaint_of(folder)
            if complaint is not None:
                if folder.exists():
                    log(f"{folder}: {complaint}; making it again")
                remove_leftovers([folder])
                _make(folder, make)
    except OSError as error:
        raise OutputError(f"{root}: the cache cannot be written ({error.strerror or error}); set XDG_CACHE_HOME to a "
                          "writable folder, or give the files by name") from error
    return folder


def complaint_of(folder: Path) -> str | None:
    """What is wrong with a folder; None if it is unchanged."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="ascii"))
        for name, entry in manifest["files"].items():
            if (folder / name).stat().st_size != entry["size"] or _sha256(folder / name) != entry["sha256"]:
                return f"{name} has changed"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "incomplete"
    return None


def _sha256(path: Path) -> str:
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _make(folder: Path, make: Callable[[Path], None]) -> None:
    """Fill a new folder, then replace an existing one with it."""
    new, old = temporary_name(folder), temporary_name(folder)
    new.mkdir()
    try:
        make(new)
        files = {path.name: {"size": path.stat().st_size, "sha256": _sha256(path)} for path in sorted(new.iterdir())}
        (new / MANIFEST).write_text(json.dumps({"files": files}, indent=1) + "\n", encoding="ascii")
        if folder.exists():
            os.rename(folder, old)
            shutil.rmtree(old, ignore_errors=True)
        os.rename(new, folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


@contextmanager
def _only_one(folder: Path, log: Callable[[str], None]) -> Iterator[None]:
    """Let one process pass at a time. If the other one hangs, continue, which costs time but not correctness."""
    with ExitStack() as stack:
        for attempt in range(int(_WAIT / _PAUSE)):
            mine = claim(folder)
            if mine is not None:
                stack.callback(mine.release)
                break
            if attempt == 0:
                log("another process is making it: waiting")
            sleep(_PAUSE)
        yield
