"""The store of compiled kernels: files that are verified before they are used.

Because kernels are executed, a folder or a file counts only if nobody else may write to it: its owner is the user,
root, or the owner of this program, and neither group nor others may write. A file holds the SHA-256 of its content and
of its key. A file that does not match counts as absent, and is made again.

Files appear complete, by a rename. There is no index, no lock, and nothing that two writers could corrupt: both write
the same.
"""
import hashlib
import logging
import os
import stat
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from numba.core import config

from gpu_extract.user_cache import cache_folder, temporary_folder

ENDING = ".kernel"
TEMPORARY = ".tmp-"
_MAGIC = b"gpu_extract kernel\n"
_SUM = hashlib.sha256().digest_size

log = logging.getLogger("gpu_extract")


def trusted(found: os.stat_result) -> bool:
    """Whether only the user, root or the owner of this program can have written the content."""
    owners = os.geteuid(), 0, os.stat(__file__).st_uid
    return found.st_uid in owners and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def places() -> list[Path]:
    """Possible folders for kernels, the best first: $NUMBA_CACHE_DIR, the user's cache, a private folder in /tmp."""
    given = [Path(config.CACHE_DIR) / "gpu_extract-kernels"] if config.CACHE_DIR else []
    user = cache_folder()
    return [*given, *([user / "kernels"] if user else []),
            temporary_folder() / f"gpu_extract-kernels-{os.geteuid()}"]


class Store:
    """The kernels of one digest, in the first writable of some folders, and in those before it.

    folder: for new ones; None if they cannot be stored
    """

    def __init__(self, digest: str, roots: Sequence[Path], say: Callable[[str], None] = log.warning):
        self.digest, self.folder = digest, None
        self._readable: list[Path] = []
        self._fetched: dict[str, bytes] = {}
        self._say, self._said_damaged, self._why = say, False, ""
        for root in roots:
            folder = root / digest[:20]
            reason = _usable(root, folder)
            if reason and os.path.isdir(folder) and not reason.startswith(_NOT_OURS):
                self._readable.append(folder)
            if not reason:
                self._readable.append(folder)
                self.folder = folder
                break
            if reason.startswith(_NOT_OURS):
                say(f"{root}: {reason}; it is not used for kernels")
            self._why = self._why or f"{root} {reason}"

    def has(self, name: str) -> bool:
        """Whether there is a valid entry; its content is kept in memory for `load`."""
        if name not in self._fetched:
            content = self._read(name)
            if content is None:
                return False
            self._fetched[name] = content
        return True

    def load(self, name: str) -> bytes | None:
        """The content saved under a name; None if there is none, or it is invalid."""
        return self._fetched.pop(name, None) or self._read(name)

    def save(self, name: str, content: bytes) -> None:
        """Save content under a name; a failure is logged once, and work continues."""
        if self.folder is None:
            if self._why:
                self._say(f"kernels cannot be cached ({self._why}): each process compiles them again; set "
                          "NUMBA_CACHE_DIR to a writable folder that you own")
                self._why = ""
            return
        if self._why:
            log.info(f"{self._why}: kernels are cached in {self.folder}")
            self._why = ""
        temporary = self.folder / f".{name}{TEMPORARY}{os.getpid()}-{uuid.uuid4().hex[:8]}"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            with open(descriptor, "wb") as file:
                file.write(_MAGIC + self._sum(name, content) + content)
            os.replace(temporary, self.folder / name)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            self._say(f"{self.folder}: a kernel cannot be cached ({error.strerror}): from now on each process compiles "
                      "its own")
            self.folder = None

    def marked(self, mark: str) -> bool:
        """Whether a mark was left here, or in a read-only folder."""
        return any(os.path.exists(folder / mark) for folder in self._readable)

    def leave(self, mark: str) -> None:
        """Leave a mark, if possible."""
        if self.folder is not None:
            with suppress(OSError):
                (self.folder / mark).touch(mode=0o644)

    def discard(self, name: str, why: str = "it cannot be loaded") -> None:
        """Log, once in a process, that an entry is invalid, and the consequence."""
        if not self._said_damaged:
            self._said_damaged = True
            self._say(f"{name} in {' and '.join(map(str, self._readable))}: {why}; it is compiled again, like any "
                      "other damaged kernel there")

    def _read(self, name: str) -> bytes | None:
        for folder in self._readable:
            try:
                with open(folder / name, "rb", opener=_at_once) as file:
                    status = os.fstat(file.fileno())
                    ours, found = trusted(status), file.read() if stat.S_ISREG(status.st_mode) else b""
            except FileNotFoundError:
                continue
            except OSError as error:
                self.discard(name, f"it cannot be read ({error.strerror})")
                continue
            start, content = len(_MAGIC) + _SUM, found[len(_MAGIC) + _SUM:]
            if not ours:
                self.discard(name, "other users may have written it")
            elif found[:start] != _MAGIC + self._sum(name, content):
                self.discard(name, "it is damaged, or was made by another machine or version")
            else:
                return content
        return None

    def _sum(self, name: str, content: bytes) -> bytes:
        """The checksum of an entry: of its content, its name and everything that it is made from."""
        return hashlib.sha256(f"{self.digest} {name}\n".encode() + content).digest()


def _at_once(name: str, flags: int) -> int:
    """Open a file without waiting: a pipe would wait for a writer."""
    return os.open(name, flags | os.O_NONBLOCK)


_NOT_OURS = "belongs to another user, or is writable by others"


def _usable(root: Path, folder: Path) -> str:
    """Why a folder, which is made if absent, is not writable or must not be used; "" if it is usable."""
    try:
        root.mkdir(0o755, parents=True, exist_ok=True)
        os.mkdir(folder, 0o755)
    except FileExistsError:
        pass
    except OSError as error:
        if not os.path.isdir(folder):        # Path.is_dir raises if a folder on the path is not accessible
            return f"cannot be made ({error.strerror})"
    try:
        if not (trusted(os.stat(root)) and trusted(os.stat(folder))):
            return _NOT_OURS
    except OSError as error:
        return f"cannot be accessed ({error.strerror})"
    return "" if os.access(folder, os.W_OK | os.X_OK) else "is not writable"
