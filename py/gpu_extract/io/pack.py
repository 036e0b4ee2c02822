"""Packing the content of a FITS file as gzip, and unpacking it again, on all cores that this process may use.

The stream is of one member (RFC 1952), which every reader takes; some stop behind the first of several. It is made of
pieces that do not refer to each other, each ended by a full flush (RFC 1951, an empty stored block), so that they can
be packed and unpacked side by side. Their size is fixed: the number of threads changes no bit.
"""
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

from isal import isal_zlib

from gpu_extract.errors import InputError

# its type hints call the class an object of it
Corrupt: type[Exception] = isal_zlib.error      # type: ignore[assignment]
PIECE = 1 << 20                  # bytes that are packed together: less loses ratio, more keeps threads waiting
_LEVEL = 1                       # noise does not pack better at others (bench/gz.py)
_RAW = -15                       # what zlib calls deflate without a wrapper, of the largest window
_HEAD = b"\x1f\x8b\x08" + bytes(4) + b"\0\4\xff"     # deflate, no name, no time, fastest, no system: equal from equal
_TAIL = struct.Struct("<II")     # CRC of the content, its size
_MOST_THREADS = 8
_T = TypeVar("_T")
_R = TypeVar("_R")


def write_packed(path: Path, content: memoryview) -> tuple[int, ...]:
    """Write `content` as a gzip file; returns the bytes that each of its pieces has in the file."""
    starts = range(0, max(len(content), 1), PIECE)

    def packed(start: int) -> bytes:
        packer = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _RAW)
        last = start == starts[-1]
        return packer.compress(content[start:start + PIECE]) + packer.flush(
            isal_zlib.Z_FINISH if last else isal_zlib.Z_FULL_FLUSH)

    sizes = []
    with path.open("wb") as handle:
        handle.write(_HEAD)
        for piece in _side_by_side(packed, starts):
            sizes.append(handle.write(piece))
        handle.write(_TAIL.pack(isal_zlib.crc32(content), len(content) & 0xFFFFFFFF))
    return tuple(sizes)


def check_packed(path: str | os.PathLike[str], content: memoryview, sizes: Sequence[int]) -> None:
    """Read a file of `write_packed` from the disk. Raises InputError where it does not hold `content`."""
    ends = list(accumulate(sizes, initial=len(_HEAD)))
    tail = _TAIL.pack(isal_zlib.crc32(content), len(content) & 0xFFFFFFFF)
    with open(path, "rb") as handle:
        def is_right(piece: int) -> bool:
            packed = os.pread(handle.fileno(), sizes[piece], ends[piece])
            meant = bytes(content[piece * PIECE:(piece + 1) * PIECE])
            return isal_zlib.decompressobj(_RAW).decompress(packed) == meant

        try:
            right = all([*_side_by_side(is_right, range(len(sizes)))])
        except Corrupt as error:
            raise InputError(f"{path}: its gzip stream is corrupt ({error})") from error
        around = os.pread(handle.fileno(), len(_HEAD), 0), os.pread(handle.fileno(), len(tail) + 1, ends[-1])
    if not right or around != (_HEAD, tail):
        raise InputError(f"{path}: its gzip stream is corrupt (head, content, size or CRC)")


def _side_by_side(work: Callable[[_T], _R], items: Iterable[_T]) -> Iterator[_R]:
    """What `work` gives for each item, in order; on one core without a thread."""
    threads = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1, _MOST_THREADS)
    if threads == 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(work, items)
