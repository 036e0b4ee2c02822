"""Files appear under their name whole or not at all.

A file is written under a unique name in the same folder, with the same extension (so that
whoever looks at the extension is not misled), forced to disk, then renamed; the rename is
forced to disk too. A failure of any kind removes the temporary file and leaves what was there.
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
from gpu_extract.io.whose import NAME_MAX, held, host, this_process

FITS_ENDINGS = (".fits", ".fits.gz")
Commit = Callable[[], None]
Named = Iterable[tuple[str, str | None]]        # options and the files that they name


def at_once() -> None:
    """Nothing has to happen before a file gets its name."""


@contextmanager
def atomic(path: FileName, commit: Commit = at_once) -> Iterator[Path]:
    """Yield the temporary path to write to, an empty file; on leaving without an error it becomes `path`.

    commit: called when all is on disk, before the file gets its name; what it raises takes the file away
    Raises OutputError where the folder or the file cannot be written, or the disk is full.
    """
    check_target(path)
    target = Path(os.path.realpath(path))
    temporary = temporary_name(target)
    try:
        try:
            with held(temporary):
                yield temporary
                _to_disk(temporary)
                commit()
                os.replace(temporary, target)
            with suppress(OSError):          # some file systems cannot; the file is whole under its name all the same
                _to_disk(target.parent)
        except OSError as error:
            raise OutputError(f"{path}: cannot be written: {_why(error, target.parent)}; no file was "
                              "changed") from error
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_text(path: FileName, text: str) -> None:
    """Write a file of text, whole or not at all, in a folder that is made where it is missing. Raises OutputError."""
    make_folder(os.path.dirname(path) or ".")
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: FileName, content: object, indent: int | None = None) -> None:
    """The same of a file of JSON."""
    write_text(path, json.dumps(content, indent=indent) + "\n")


def make_folder(path: FileName) -> None:
    """Make a folder where it is missing, and those above it. Raises OutputError."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: the folder cannot be made ({error.strerror}); give another one") from error


def check_target(path: FileName, *, endings: tuple[str, ...] = (), make: str | None = None) -> None:
    """Raise OutputError where `path` could not become a file; costs nothing, so ask before the work.

    endings: what its name must end in, or InputError is raised; make: a folder that will be made where it is missing
    """
    target = Path(os.path.realpath(file_name(path)))
    kind = _kind(target, path)
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
    """Both of several outputs: check_target, and check_apart.

    outputs, inputs: by what messages call them; plain: outputs that are no FITS files
    """
    for name, path in outputs.items():
        check_target(path, endings=() if name in plain else FITS_ENDINGS)
    check_apart((inputs or {}).items(), outputs.items())


def check_apart(inputs: Named, outputs: Named) -> None:
    """Raise InputError where an output would take the place of an input, or of another output."""
    seen = {os.path.realpath(path): option for option, path in inputs if path}
    for option, path in outputs:
        if path and (real := os.path.realpath(path)) in seen:
            raise InputError(f"{path}: {option} is the same file as {seen[real]}; give it another name")
        if path:
            seen[real] = option


def check_folder(path: FileName) -> None:
    """Raise OutputError where `path` could not become a folder of files; costs nothing, so ask before the work."""
    target = Path(os.path.realpath(path))
    if _kind(target / "x", path) is None and not target.exists():
        check_local(os.fspath(path), "give the name of a local folder, and upload it afterwards")
    _check_writable(next(folder for folder in (target, *target.parents) if folder.exists()), path)


def _kind(target: Path, path: FileName) -> int | None:
    """The type of the file that has a name already, None where none has it.

    Raises OutputError where that cannot be known: a folder on the way may not be searched, or the name is too long.
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
    """Raise OutputError where nothing can be made in a folder for `path`."""
    if not folder.is_dir():
        raise OutputError(f"{path}: {folder} is not a folder; remove it, or give another name")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"{path}: the folder {folder} is not writable; change its permissions, or give another name")


def temporary_name(target: Path) -> Path:
    """A name next to `target` that no other process, host or call uses: .stem.tmp-host-where-start-pid-hex.ext

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
    """The system's words, or (astropy and numpy drop the number of a short write) the room there is."""
    if error.strerror:
        return error.strerror
    with suppress(OSError):
        free = shutil.disk_usage(folder).free
        return f"a write was incomplete; {free / 1e6:.1f} MB are free on the disk"
    return " ".join(str(error).split())
