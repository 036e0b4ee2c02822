"""Packs the content of a FITS file as gzip, and unpacks it, on all cores that this process may use.

The stream has one member (RFC 1952), which every reader accepts; some stop after the first of several. It consists of
independent pieces, each ended by a full flush (RFC 1951, an empty stored block), so that they can be packed and
unpacked in parallel. Their size is fixed, so that the number of threads changes no bit.
"""
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, TypeVar

from isal import isal_zlib

from gpu_extract.errors import FileName, InputError
from gpu_extract.io.content import Content
from gpu_extract.perf.recorder import usable_cores

# its type hints declare the class as an instance
Corrupt: type[Exception] = isal_zlib.error      # type: ignore[assignment]
PIECE = 1 << 20                  # bytes per piece: smaller pieces compress less, larger ones keep threads waiting
_LEVEL = 1                       # noise does not compress better at other levels (bench/gz.py)
_RAW = -15                       # zlib's code for raw deflate with the largest window
_HEAD = b"\x1f\x8b\x08" + bytes(4) + b"\0\4\xff"     # deflate, no name, no time, fastest, no system: equal from equal
_TAIL = struct.Struct("<II")     # CRC of the content, its size
_MOST_THREADS = 8
_T = TypeVar("_T")
_R = TypeVar("_R")


class Packed(NamedTuple):
    """The parts of a packed file: the size of each packed piece, and the tail."""

    sizes: tuple[int, ...]
    tail: bytes


def write_plain(path: Path, content: Content) -> None:
    """Write `content` unpacked."""
    with path.open("wb") as handle:
        for start in range(0, len(content), PIECE):
            handle.write(content.piece(start, start + PIECE).data)


def check_plain(path: FileName, content: Content) -> None:
    """Read a file of `write_plain` from the disk. Raises InputError if it does not hold `content`."""
    with open(path, "rb") as handle:
        for start in range(0, len(content) + 1, PIECE):        # the last one must find nothing more
            if handle.read(PIECE) != content.piece(start, start + PIECE).tobytes():
                raise InputError(f"it differs in the {PIECE} bytes from {start} on")


def write_packed(path: Path, content: Content) -> Packed:
    """Write `content` as a gzip file."""
    starts = range(0, max(len(content), 1), PIECE)

    def packed(start: int) -> tuple[bytes, int, int]:
        piece = content.piece(start, start + PIECE)
        packer = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _RAW)
        last = start == starts[-1]
        return packer.compress(piece) + packer.flush(isal_zlib.Z_FINISH if last else isal_zlib.Z_FULL_FLUSH), \
            isal_zlib.crc32(piece), len(piece)

    sizes, crc = [], 0
    with path.open("wb") as handle:
        handle.write(_HEAD)
        for piece, of_piece, length in _side_by_side(packed, starts):
            sizes.append(handle.write(piece))
            crc = isal_zlib.crc32_combine(crc, of_piece, length)
        tail = _TAIL.pack(crc, len(content) & 0xFFFFFFFF)
        handle.write(tail)
    return Packed(tuple(sizes), tail)


def check_packed(path: FileName, content: Content, packed: Packed) -> None:
    """Read a file of `write_packed` from the disk. Raises InputError if it does not hold `content`."""
    sizes = packed.sizes
    ends = list(accumulate(sizes, initial=len(_HEAD)))
    with open(path, "rb") as handle:
        def is_right(number: int) -> bool:
            found = isal_zlib.decompressobj(_RAW).decompress(os.pread(handle.fileno(), sizes[number], ends[number]))
            return found == content.piece(number * PIECE, (number + 1) * PIECE).tobytes()

        try:
            right = all([*_side_by_side(is_right, range(len(sizes)))])
        except Corrupt as error:
            raise InputError(f"its gzip stream is corrupt ({error})") from error
        around = os.pread(handle.fileno(), len(_HEAD), 0), os.pread(handle.fileno(), _TAIL.size + 1, ends[-1])
    if not right or around != (_HEAD, packed.tail):
        raise InputError("its gzip stream is corrupt (head, content, size or CRC)")


def _side_by_side(work: Callable[[_T], _R], items: Iterable[_T]) -> Iterator[_R]:
    """The results of `work` for each item, in order; without threads on one core."""
    threads = min(usable_cores(), _MOST_THREADS)
    if threads == 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(work, items)
