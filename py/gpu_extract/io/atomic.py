"""Atomic writing: a file appears under its name complete, or not at all.

A file is written under a unique name in the same folder, with the same extension (so that
whoever looks at the extension is not misled), forced to disk, then renamed; the rename is
forced to disk too. A failure of any kind removes the temporary file and leaves an existing file unchanged. What a
killed process has left is removed by the next one that writes into the folder.
"""
import errno
import json
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gpu_extract.errors import FileName, InputError, OutputError, check_local, file_name
from gpu_extract.io.leftovers import remove_leftovers
from gpu_extract.io.whose import NAME_MAX, held, host, this_process

FITS_ENDINGS = (".fits", ".fits.gz")
Commit = Callable[[], None]
Named = Iterable[tuple[str, str | None]]        # options and their files
_tidied: set[Path] = set()         # folders from which this process has removed what killed runs left


def at_once() -> None:
    """Default of `commit`: nothing happens before a file gets its name."""


@contextmanager
def atomic(path: FileName, commit: Commit = at_once) -> Iterator[Path]:
    """Yield the temporary path to write to, an empty file; on leaving without an error it becomes `path`.

    commit: called when all is on disk, before the file gets its name; if it raises, the file is removed
    Raises OutputError if the folder or the file cannot be written, or the disk is full.
    """
    check_target(path)
    target = Path(os.path.realpath(path))
    temporary = temporary_name(target)
    if target.parent not in _tidied:
        _tidied.add(target.parent)
        with suppress(OSError):
            remove_leftovers([target])
    try:
        try:
            with held(temporary):
                yield temporary
                _to_disk(temporary)
                commit()
                os.replace(temporary, target)
            with suppress(OSError):          # some file systems cannot; the file is complete all the same
                _to_disk(target.parent)
        except OSError as error:
            raise OutputError(f"{path}: cannot be written: {_why(error, target.parent)}; no file was "
                              "changed") from error
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_text(path: FileName, text: str) -> None:
    """Write a text file, completely or not at all, in a folder that is made if missing. Raises OutputError."""
    make_folder(os.path.dirname(path) or ".")
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: FileName, content: object, indent: int | None = None) -> None:
    """The same for a JSON file."""
    write_text(path, json.dumps(content, indent=indent) + "\n")


def make_folder(path: FileName) -> None:
    """Make a folder and its parents, if missing. Raises OutputError."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: the folder cannot be made ({error.strerror}); give another one") from error


def check_target(path: FileName, *, endings: tuple[str, ...] = (), make: str | None = None) -> None:
    """Raise OutputError if `path` could not become a file; it is cheap, so call it before the work.

    endings: allowed endings of the name, else InputError is raised; make: a folder that will be made if missing
    """
    target = Path(os.path.realpath(file_name(path)))
    kind = _kind(Path(path), path)           # not of the target: where /dev/stdout is a pipe, it leads to no name
    if kind == stat.S_IFDIR:
        raise OutputError(f"{path}: is a folder; give the name of a file in it")
    if kind not in (None, stat.S_IFREG):
        raise OutputError(f"{path}: exists and is not a regular file; give another name")
    folder = target.parent
    if make is not None and folder == Path(os.path.realpath(make)):
        folder = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not folder.exists():
        check_local(os.fspath(path), "give the name of a local file, and upload it afterwards")
        raise OutputError(f"{path}: the folder {folder} does not exist; make it, or give another name")
    _check_writable(folder, path)
    if endings and not (target.name.endswith(endings) and os.fspath(path).endswith(endings)):
        raise InputError(f"{path}: the name of a FITS file must end in {' or '.join(endings)}; give another name")


def check_targets(outputs: Mapping[str, str], inputs: Mapping[str, str | None] | None = None, *,
                  plain: Sequence[str] = ()) -> None:
    """Call check_target and check_apart for several outputs.

    outputs, inputs: by their names in messages; plain: outputs that are not FITS files
    """
    for name, path in outputs.items():
        check_target(path, endings=() if name in plain else FITS_ENDINGS)
    check_apart((inputs or {}).items(), outputs.items())


def check_apart(inputs: Named, outputs: Named) -> None:
    """Raise InputError if an output would replace an input, or another output."""
    seen = {os.path.realpath(path): option for option, path in inputs if path}
    for option, path in outputs:
        if path and (real := os.path.realpath(path)) in seen:
            raise InputError(f"{path}: {option} is the same file as {seen[real]}; give it another name")
        if path:
            seen[real] = option


def check_folder(path: FileName) -> None:
    """Raise OutputError if `path` could not become a folder of files; it is cheap, so call it before the work."""
    target = Path(os.path.realpath(path))
    if _kind(target / "x", path) is None and not target.exists():
        check_local(os.fspath(path), "give the name of a local folder, and upload it afterwards")
    _check_writable(next(folder for folder in (target, *target.parents) if folder.exists()), path)


def _kind(target: Path, path: FileName) -> int | None:
    """The type of the existing file of a name, None if there is none.

    Raises OutputError if that cannot be known: a folder on the path is not accessible, or the name is too long.
    """
    try:
        return stat.S_IFMT(os.stat(target).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:           # a link to itself is replaced
            return None
        raise OutputError(f"{path}: cannot be written: {error.strerror}; change the permissions, or give another "
                          "name") from error


def _check_writable(folder: Path, path: FileName) -> None:
    """Raise OutputError if nothing can be made in a folder for `path`."""
    if not folder.is_dir():
        raise OutputError(f"{path}: {folder} is not a folder; remove it, or give another name")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"{path}: the folder {folder} is not writable; change its permissions, or give another name")


def temporary_name(target: Path) -> Path:
    """A unique name next to `target` for this process, host and call: .stem.tmp-host-where-start-pid-hex.ext

    where, start: see io.whose.Writer
    """
    extension = "".join(target.suffixes[-2:]) if target.suffix == ".gz" else target.suffix
    me = this_process()
    tag = f".tmp-{host()}-{me.where}-{me.start}-{me.pid}-{uuid.uuid4().hex[:8]}{extension}"
    stem = target.name.removesuffix(extension)
    room = NAME_MAX - len(os.fsencode(tag)) - 1
    while len(os.fsencode(stem)) > room:
        stem = stem[:-1]
    return target.with_name(f".{stem}{tag}")


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _why(error: OSError, folder: Path) -> str:
    """The system's message or, for a short write, whose error number astropy and numpy drop, the free space."""
    if error.strerror:
        return error.strerror
    with suppress(OSError):
        free = shutil.disk_usage(folder).free
        return f"a write was incomplete; {free / 1e6:.1f} MB are free on the disk"
    return " ".join(str(error).split())
