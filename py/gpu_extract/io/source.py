"""The bytes of a file, unpacked if it is gzipped, on demand and up to a limit."""
import os
import stat
import tempfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import BinaryIO

from isal import igzip

from gpu_extract.errors import InputError, check_local, reading
from gpu_extract.io.cards import BLOCK, MOST_BLOCKS, end_of
from gpu_extract.io.checksum import pieces
from gpu_extract.io.pack import Corrupt

LARGEST = 16 << 30                       # bytes of a file, unpacked
UNPACKED_LARGEST = 256 << 20             # bytes that any gzip file may unpack to,
UNPACKED_RATIO = 20                      # or this many times its own size
BEHIND_LARGEST = 64 << 20                # bytes of padding after the last HDU
GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20                         # bytes read, and unpacked, at once
_AHEAD = 4                               # pieces that are unpacked ahead
_LOOKED_AT = 1 << 20                     # bytes after the last HDU that must be blank


class Source:
    """A file with random access: `handle` holds at least the requested bytes."""

    def __init__(self, handle: BinaryIO):
        self.handle = handle
        self._size = handle.seek(0, os.SEEK_END)
        self.limit = LARGEST

    def reach(self, stop: int) -> int:
        """Provide the bytes up to `stop`; returns their number, fewer if the file ends before."""
        return self._size

    def may_reach(self, stop: int) -> bool:
        """Whether there can be this many bytes, as far as known without unpacking."""
        return stop <= self._size

    def read(self, start: int, stop: int) -> bytes:
        """These bytes, fewer if the file ends before."""
        self.reach(stop)
        self.handle.seek(start)
        return self.handle.read(stop - start)

    def header(self, start: int) -> bytes | None:
        """The blocks of a header from byte `start` on; None if it has no end."""
        header, blocks = b"", 8
        while len(header) < MOST_BLOCKS * BLOCK:
            header = self.read(start, start + blocks * BLOCK)
            end = end_of(header)
            if end is not None:
                return header[:end] if len(header) >= end else None
            if len(header) < blocks * BLOCK:
                return None
            blocks *= 4
        return None

    def pieces(self, start: int, count: int) -> Iterator[memoryview]:
        """`count` bytes from `start` on, fewer if the file ends before; each piece is valid until the next.

        The pieces may not be kept anywhere, and cannot be read again.
        """
        yield from (piece.data for piece in pieces(self.handle, start, count, _CHUNK))

    def is_blank_from(self, start: int) -> bool:
        """Whether only padding follows."""
        return not self.read(start, start + _LOOKED_AT).strip(b"\0 ")


class Unpacked(Source):
    """The content of a gzip file of one or more members, possibly followed by zeros; unpacked on demand.

    The content is held once, up to the requested bytes and a few pieces. A file whose header claims more than `limit`
    is refused before anything is held. `ahead`, with one thread, unpacks pieces while earlier ones are processed.
    """

    def __init__(self, handle: BinaryIO, ahead: ThreadPoolExecutor):
        super().__init__(handle)
        self.limit = min(LARGEST, max(UNPACKED_LARGEST, UNPACKED_RATIO * self._size))
        handle.seek(0)
        self._unpacking, self._ahead = igzip.open(handle), ahead
        self._coming = deque(ahead.submit(self._unpacking.read, _CHUNK) for _ in range(_AHEAD))
        self._size = 0
        self.handle = _memory()

    def reach(self, stop: int) -> int:
        """Unpack up to `stop`."""
        while self._size < stop and (piece := self._next()):
            self._size += os.pwrite(self.handle.fileno(), piece, self._size)
        return self._size

    def may_reach(self, stop: int) -> bool:
        """Whether this much would be unpacked."""
        return stop <= self.limit

    def pieces(self, start: int, count: int) -> Iterator[memoryview]:
        """First the unpacked part, then further pieces, which are not kept."""
        stop = start + count
        there = self.handle.fileno(), min(self._size, stop) - start, start
        if there[1] > 0:
            yield memoryview(os.pread(*there))
        while self._size < stop and (piece := self._next()):
            wanted = stop - self._size
            yield memoryview(piece)[:wanted]
            os.pwrite(self.handle.fileno(), piece[wanted:], stop)
            self._size += len(piece)
        os.ftruncate(self.handle.fileno(), self._size)

    def is_blank_from(self, start: int) -> bool:
        """Unpack the rest without keeping it: its end shows whether the stream is intact."""
        blank = not self.read(start, self._size).strip(b"\0 ")
        os.ftruncate(self.handle.fileno(), min(start, self._size))
        behind = self._size - start
        while piece := self._next():
            behind += len(piece)
            blank = blank and not piece.strip(b"\0 ")
            if behind > BEHIND_LARGEST:
                raise InputError(f"unpacks to more than {BEHIND_LARGEST} bytes after its last HDU; fetch or make the "
                                 "file again")
        return blank

    def _next(self) -> bytes:
        """The next piece, empty after the last."""
        try:
            piece = self._coming[0].result()
        except EOFError as error:
            raise InputError("truncated: its gzip stream breaks off, or other bytes follow its end; fetch it again") \
                from error
        except (OSError, Corrupt) as error:
            raise InputError(f"its gzip stream is corrupt ({error}); fetch it again") from error
        if piece:
            self._coming.popleft()
            self._coming.append(self._ahead.submit(self._unpacking.read, _CHUNK))
        return piece


@contextmanager
def source_of(name: str) -> Iterator[Source]:
    """A file's bytes, unpacked. Raises InputError if they cannot be read."""
    try:
        kind = os.stat(name).st_mode
    except PermissionError as error:
        raise InputError("cannot be accessed: permission denied for a folder on its path; check the permissions of its "
                         "folders") from error
    except (OSError, ValueError) as error:
        check_local(name)
        raise InputError("no such file; check the path") from error
    if not stat.S_ISREG(kind):
        raise InputError("not a regular file; give a FITS file, gzipped or not")
    if not os.access(name, os.R_OK):
        raise InputError("cannot be read: permission denied; check its permissions")
    with reading(name, remedy="; fetch the file again, or read it from another disk"), open(name, "rb") as handle:
        head = handle.read(2)
        if not head:
            raise InputError("the file is empty, as it was never finished; make or fetch it again")
        if head != GZIP:
            yield Source(handle)
            return
        with ThreadPoolExecutor(1) as ahead:
            unpacked = Unpacked(handle, ahead)
            with unpacked.handle:
                yield unpacked


def _memory() -> BinaryIO:
    """A file in memory, or an unnamed one if the system has none, from which numpy reads arrays without a copy."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("unpacked"), "rb")
    with tempfile.TemporaryFile() as unnamed:
        return os.fdopen(os.dup(unnamed.fileno()), "rb")
