"""The checksums of the FITS standard (4.0, section 4.4.2.7 and appendix J), from the bytes of the file.

The sum is over big-endian 32-bit words in ones'-complement arithmetic. CHECKSUM is chosen
by the writer so that the sum of the whole HDU is all ones; DATASUM is the sum of the data.
Because it works on bytes, the result does not depend on parsing and formatting of headers.
"""
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

import numpy as np

from gpu_extract.errors import InputError
from gpu_extract.io.cards import Layout

_CHUNK = 1 << 20          # bytes read at once: a multiple of 4 that stays in the cache
_ALL_ONES = 0xFFFFFFFF


def pieces(handle: BinaryIO, start: int, count: int, size: int = _CHUNK) -> Iterator[np.ndarray]:
    """`count` bytes from `start` on, fewer if the file ends before; each piece is valid until the next."""
    handle.seek(start)
    buffer = np.empty(min(count, size), np.uint8)
    while count > 0 and (got := handle.readinto(buffer[:count].data)):      # type: ignore[attr-defined]
        yield buffer[:got]
        count -= got


def ones_complement(handle: BinaryIO, start: int, stop: int) -> int:
    """Sum of the 32-bit words between two byte offsets, with the carries added back."""
    total = 0
    for piece in pieces(handle, start, stop - start):
        total = fold(total + sum_of(piece))
    return total


def sum_of(words: np.ndarray) -> int:
    """Sum of 32-bit words, given as bytes."""
    return int(words.view(">u4").sum(dtype=np.uint64))


def fold(total: int) -> int:
    """Ones'-complement reduction of a sum to 32 bits."""
    while total >> 32:
        total = (total & _ALL_ONES) + (total >> 32)
    return total


def verify(handle: BinaryIO, layouts: Sequence[Layout], known: Mapping[int, tuple[int, int]]) -> None:
    """Raise InputError, naming every HDU whose CHECKSUM or DATASUM does not match its bytes.

    known: by the start of an HDU's data: the end of the summed bytes, and their sum
    """
    bad = [text for layout in layouts for text in _mismatch(handle, layout, known)]
    if bad:
        raise InputError(f"{'; '.join(bad)}: the file was changed after it was written, or is corrupt; fetch it again; "
                         "with --ignore-checksums, gpu_extract and gpu_compare read it as it is")


def _mismatch(handle: BinaryIO, hdu: Layout, known: Mapping[int, tuple[int, int]]) -> list[str]:
    """The mismatch in words: a wrong DATASUM, else a wrong CHECKSUM (which also covers the header)."""
    if not hdu.checksum and not hdu.datasum:
        return []
    start, sum_before = known.get(hdu.data, (hdu.data, 0))
    data = fold(sum_before + ones_complement(handle, start, hdu.end))
    if hdu.datasum and not (hdu.datasum.isdecimal() and int(hdu.datasum) == data):
        return [f"DATASUM of HDU {hdu.name} is {hdu.datasum}, its data give {data}"]
    if hdu.checksum:
        whole = fold(data + ones_complement(handle, hdu.header, hdu.data))
        if whole not in (0, _ALL_ONES):
            return [f"CHECKSUM of HDU {hdu.name} does not match its header and data"]
    return []
