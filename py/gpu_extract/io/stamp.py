"""What a file is, told without reading its pixels: by the sums in its headers, or by a sample of its bytes."""
import os
from hashlib import blake2b
from typing import BinaryIO

_BLOCK, _CARD = 2880, 80
_MOST_HDUS, _MOST_BLOCKS, _MOST_AXES = 1000, 1000, 999      # what has more is told by a sample
_SAMPLES, _SAMPLE = 64, 4096                                # so many pieces of so many bytes, evenly spread
_GZIP = b"\x1f\x8b"
_SMALL = 4 << 20                                            # bytes of data that are read where they have no sum
_DIGITS = 16                                                # bytes of a digest
# change with every writing, also of the same content
_VOLATILE = b"CHECKSUM", b"DATASUM "


def stamp(path: str | os.PathLike[str]) -> str:
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
            sums = _sums(handle, status.st_size)
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


def _sums(handle: BinaryIO, size: int) -> str | None:
    """Digest of all headers with the DATASUMs in them; None where one is missing or the file makes no sense."""
    digest = blake2b(digest_size=_DIGITS)
    offset = 0
    for _ in range(_MOST_HDUS):
        cards, start = _header(handle, offset)
        length = _length_of_data(cards)
        if length is None:
            return None
        datasum = next((_value(card) for card in cards if card.startswith(b"DATASUM ")), b"")
        if not datasum and length > 0:
            if length > _SMALL:
                return None
            handle.seek(start)
            datasum = handle.read(length)
        digest.update(b"".join(card for card in cards if not card.startswith(_VOLATILE)) + datasum)
        offset = start + -(-length // _BLOCK) * _BLOCK
        if offset >= size:
            return digest.hexdigest() if offset == size else None
    return None


def _header(handle: BinaryIO, offset: int) -> tuple[list[bytes], int]:
    """The cards of the header at an offset, and where it ends; no cards where there is none."""
    handle.seek(offset)
    cards: list[bytes] = []
    for number in range(1, _MOST_BLOCKS + 1):
        block = handle.read(_BLOCK)
        if len(block) < _BLOCK:
            break
        new = [block[n:n + _CARD] for n in range(0, _BLOCK, _CARD)]
        end = next((n for n, card in enumerate(new) if card.rstrip() == b"END"), None)
        cards += new[:end]
        if end is not None:
            return cards, offset + number * _BLOCK
    return [], offset


def _length_of_data(cards: list[bytes]) -> int | None:
    """Bytes of an HDU's data, without padding; None where the header makes no sense."""
    if not cards or not cards[0].startswith((b"SIMPLE  =", b"XTENSION=")):
        return None
    values = {card[:8].strip(): _value(card) for card in reversed(cards) if card[8:10] == b"= "}     # the first counts
    try:
        axes = int(values[b"NAXIS"])
        if not 0 <= axes <= _MOST_AXES:
            return None
        shape = [int(values[b"NAXIS%d" % n]) for n in range(1, axes + 1)]
        width, heap, groups = abs(int(values[b"BITPIX"])), int(values.get(b"PCOUNT", 0)), int(values.get(b"GCOUNT", 1))
    except (KeyError, ValueError):
        return None
    if min(*shape, heap, groups, 0) < 0:
        return None
    elements = 1 if shape else 0
    for length in shape:
        elements *= length
    return width * groups * (heap + elements) // 8


def _value(card: bytes) -> bytes:
    """The value of a card, without quotes and comment."""
    text = card[10:].lstrip()
    if text.startswith(b"'"):
        return text[1:].partition(b"'")[0].strip()
    return text.partition(b"/")[0].strip()
