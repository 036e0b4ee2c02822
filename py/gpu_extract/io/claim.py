"""One run at a time works on an output: a lock on a file beside it, which ends with the run however that ends."""
import os
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from gpu_extract.errors import FileName
from gpu_extract.io.whose import lock

_NAME_MAX = 255


class Claim:
    """An output that is this run's to make, until `release`."""

    def __init__(self, path: Path, descriptor: int | None):
        self._path, self._descriptor = path, descriptor

    def release(self) -> None:
        """Leave it to others; nothing stays behind."""
        if self._descriptor is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)           # first: what is locked is never a file without a name
            os.close(self._descriptor)
            self._descriptor = None


def claim(target: FileName) -> Claim | None:
    """Claim an output; None where another run has. Where files cannot be made or locked, every run has all of them."""
    path = lock_name(target)
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            return Claim(path, None)
        if lock(descriptor) is False:
            os.close(descriptor)
            return None
        if _is_at(path, descriptor):
            return Claim(path, descriptor)
        os.close(descriptor)             # who had it has removed it between the two calls


def remove_unclaimed(targets: Iterable[FileName]) -> None:
    """Remove the locks of outputs that nobody holds: left by runs that were killed."""
    for target in targets:
        if os.path.exists(lock_name(target)):
            left = claim(target)
            if left is not None:
                left.release()


def lock_name(target: FileName) -> Path:
    """The file whose lock says that somebody makes `target`."""
    path = Path(os.path.realpath(target))
    name = f".{path.name}.lock"
    if len(os.fsencode(name)) > _NAME_MAX:
        name = f".{blake2b(os.fsencode(path.name), digest_size=16).hexdigest()}.lock"
    return path.with_name(name)


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether an open file is what has this name."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError:
        return False
