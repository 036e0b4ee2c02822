"""What a file is, told without reading its pixels: by the sums in its headers, or by a sample of its bytes."""
import os
from hashlib import blake2b
from itertools import takewhile
from typing import BinaryIO

from gpu_extract.errors import FileName
from gpu_extract.io.cards import CARD, MOST_HDUS, Odd, layout_of
from gpu_extract.io.source import Source

_SAMPLES, _SAMPLE = 64, 4096                                # so many pieces of so many bytes, evenly spread
_GZIP = b"\x1f\x8b"
_SMALL = 4 << 20                                            # bytes of data that are read where they have no sum
_DIGITS = 16                                                # bytes of a digest
# change with every writing, also of the same content
_VOLATILE = b"CHECKSUM", b"DATASUM "


def stamp(path: FileName) -> str:
    """A text that differs where the files differ; empty where there is no such file. It fits on a header card.

    To open a pipe that nobody writes to would wait for ever.

    sums DIGEST: of all header cards and the DATASUM of every HDU, or its bytes where it has none and is small, as
        compressed masks are; the file may be copied, touched and moved
    gzip SIZE DIGEST: of a sample of the packed bytes, whose end holds the CRC of all that is in it
    file SIZE TIME DIGEST: of a sample of the bytes, where a larger HDU has no DATASUM; TIME in ns
    """
    if not os.path.isfile(path):
        return ""
    try:
        with open(path, "rb") as handle:
            status = os.fstat(handle.fileno())
            if handle.read(2) == _GZIP:
                return f"gzip {status.st_size} {_sample(handle, status.st_size)}"
            sums = _sums(Source(handle), status.st_size)
            if sums is not None:
                return f"sums {sums}"
            return f"file {status.st_size} {status.st_mtime_ns} {_sample(handle, status.st_size)}"
    except OSError:
        return ""


def _sample(handle: BinaryIO, size: int) -> str:
    """Digest of pieces spread over the file, its first and its last bytes among them."""
    digest = blake2b(digest_size=_DIGITS)
    last = max(size - _SAMPLE, 0)
    for number in range(_SAMPLES):
        handle.seek(last * number // (_SAMPLES - 1))
        digest.update(handle.read(_SAMPLE))
    return digest.hexdigest()


def _sums(source: Source, size: int) -> str | None:
    """Digest of all headers with the DATASUMs in them; None where one is missing or the file makes no sense."""
    digest = blake2b(digest_size=_DIGITS)
    end = 0
    for number in range(MOST_HDUS):
        header = source.header(end) or b""
        try:
            layout = layout_of(header, end, number)
        except Odd:
            return None
        start, end = layout.data, layout.end
        datasum = (layout.datasum or "").encode()
        if not datasum and layout.size > _SMALL:
            return None
        cards = takewhile(lambda card: card.rstrip() != b"END",
                          (header[n:n + CARD] for n in range(0, len(header), CARD)))
        digest.update(b"".join(card for card in cards if not card.startswith(_VOLATILE)))
        digest.update(datasum or source.read(start, start + layout.size))
        if end >= size:
            return digest.hexdigest() if end == size else None
    return None
