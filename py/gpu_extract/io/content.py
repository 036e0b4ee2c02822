"""The bytes of a FITS file to write, made on demand, so that the whole file is never in memory.

An array's bytes are its big-endian numbers. They are made in pieces that stay in the cache, by any thread.
"""
import io
import os
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from astropy.io import fits

from gpu_extract.io.cards import BLOCK


class Content(io.RawIOBase):
    """A readable file of consecutive parts: flat native arrays and bytes.

    Reading with `fill` has no state, so that several threads may do it.
    """

    def __init__(self, parts: Sequence[np.ndarray | bytes]):
        self._parts = [np.frombuffer(part, np.uint8) if isinstance(part, bytes) else part.reshape(-1) for part in parts]
        self._starts = list(accumulate((part.nbytes for part in self._parts), initial=0))
        self._at = 0

    def __len__(self) -> int:
        return self._starts[-1]

    def piece(self, start: int, stop: int) -> np.ndarray:
        """The bytes from `start` to `stop`, fewer if the file ends before, in new memory."""
        found = np.empty(max(min(stop, len(self)) - start, 0), np.uint8)
        self.fill(start, found)
        return found

    def fill(self, start: int, into: np.ndarray) -> None:
        """Put the bytes from `start` on into an array of bytes, which the file must be able to fill."""
        done, number = 0, bisect_right(self._starts, start) - 1
        while done < len(into):
            part, first = self._parts[number], start + done - self._starts[number]
            count = min(part.nbytes - first, len(into) - done)
            into[done:done + count] = _bytes_of(part, first, first + count)
            done, number = done + count, number + 1

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position of the next byte to read."""
        self._at = offset + (0, self._at, len(self))[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read as many bytes as exist and fit into the buffer."""
        into = np.frombuffer(buffer, np.uint8)[:max(len(self) - self._at, 0)]
        self.fill(self._at, into)
        self._at += len(into)
        return len(into)


def _bytes_of(part: np.ndarray, first: int, last: int) -> np.ndarray:
    size = part.itemsize
    numbers = part[first // size:-(-last // size)]
    swapped: np.ndarray = numbers.astype(part.dtype.newbyteorder(">")).view(np.uint8)
    return swapped[first % size:first % size + last - first]


def content_of(hdus: fits.HDUList) -> Content:
    """The file that astropy would write from HDUs with checksums, byte for byte. Tables are written by astropy."""
    hdus.verify(option="exception")
    parts: list[np.ndarray | bytes] = []
    for hdu in hdus:
        if isinstance(hdu, fits.BinTableHDU):
            written = io.BytesIO()
            hdu.writeto(written)
            parts.append(written.getvalue()[BLOCK:])         # without the primary HDU that astropy adds
            continue
        data = _numbers(hdu.data)
        parts += [hdu.header.tostring().encode("ascii"), data, bytes(-data.nbytes % BLOCK)]
    return Content(parts)


def _numbers(data: np.ndarray | None) -> np.ndarray:
    """An image's numbers as stored: unsigned ones of several bytes minus half their range (4.4.2.5)."""
    if data is None:
        return np.empty(0, np.uint8)
    data = np.ascontiguousarray(data)
    if data.dtype.kind == "u" and data.itemsize > 1:
        return (data ^ data.dtype.type(1 << 8 * data.itemsize - 1)).view(f"i{data.itemsize}")
    return data
