"""Functions that make faults of the environment: file systems that fill up, system calls that fail."""
import contextlib
import errno
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

Around = Callable[[Path], AbstractContextManager[None]]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size` bytes."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, before)


def grows_to(size: int) -> Around:
    """No file may grow larger."""
    return lambda _: largest_file(size)


def room_for(size: str) -> Around:
    """The output is on a file system of this size."""
    @contextmanager
    def around(folder: Path) -> Iterator[None]:
        there = {path.name: path.read_bytes() for path in folder.iterdir()}
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True,
                              check=False)
        if made.returncode:
            pytest.skip("cannot mount a small file system")
        try:
            for name, content in there.items():
                (folder / name).write_bytes(content)
            yield
            left = {path.name: path.read_bytes() for path in folder.iterdir()}
        finally:
            subprocess.run(["umount", str(folder)], check=True)
        assert left == there

    return around


def fails(name: str, number: int, *, call: int = 1) -> Around:
    """A function of os fails in its n-th call with something in the folder."""
    @contextmanager
    def around(folder: Path) -> Iterator[None]:
        original, count = getattr(os, name), [0]

        def failing(*args: object, **options: object) -> object:
            place = os.readlink(f"/proc/self/fd/{args[0]}") if isinstance(args[0], int) else str(args[0])
            count[0] += str(folder) in place
            if count[0] == call and str(folder) in place:
                raise OSError(number, os.strerror(number), *([] if isinstance(args[0], int) else [args[0]]))
            return original(*args, **options)

        with patch.object(os, name, failing):
            yield
        assert count[0] >= call, f"os.{name} was not called so often"

    return around


@contextmanager
def goes_away(folder: Path) -> Iterator[None]:
    """The folder is renamed when the file is about to get its name, and back afterwards."""
    original, away = os.replace, folder.with_name("elsewhere")

    def gone(source: Path, target: Path) -> None:
        with contextlib.suppress(OSError):
            os.rename(folder, away)
        original(source, target)

    with patch.object(os, "replace", gone):
        yield
    os.rename(away, folder)
    for path in folder.glob(".*"):        # nobody can remove what he does not find
        path.unlink()


FULL, BROKEN, FORBIDDEN, OTHER_DISK = errno.ENOSPC, errno.EIO, errno.EACCES, errno.EXDEV
CANNOT = errno.EINVAL
