"""Images taken out of a file during the first pass over it: read or unpacked, and converted to native order, at once.

Each piece is still in the cache when it is summed and byte-swapped, so that an image needs no memory except its own.
The bytes of a gzip file are kept nowhere else.
"""
from math import prod
from typing import Any, NamedTuple

import numpy as np

from gpu_extract.errors import InternalError
from gpu_extract.io.cards import Layout
from gpu_extract.io.checksum import fold, sum_of
from gpu_extract.io.source import Source

_ATTRIBUTE = "_gpu_extract_taken"


class Taken(NamedTuple):
    """An image in native byte order, and the sum of its numbers as stored in the file."""

    image: np.ndarray
    sum: int


def can_be_taken(layout: Layout) -> bool:
    """Whether an HDU is an image with two axes of unscaled floats."""
    return layout.kind == "IMAGE" and layout.bitpix < 0 and not layout.scaled and len(layout.axes) == 2 \
        and layout.size == prod(layout.axes) * -layout.bitpix // 8 > 0


def take_out(source: Source, layout: Layout) -> Taken:
    """The image of an HDU; if the file ends before, the rest is undefined."""
    size = -layout.bitpix // 8
    image = np.empty(layout.axes[::-1], f"f{size}")
    raw = image.reshape(-1).view(np.uint8)
    total = at = done = 0
    for piece in source.pieces(layout.data, layout.size):
        raw[at:at + len(piece)] = piece
        at += len(piece)
        block = raw[done:at - at % size]
        total = fold(total + sum_of(block))
        block.view(image.dtype).byteswap(inplace=True)
        done += len(block)
    return Taken(image, total)


def give(hdu: Any, taken: Taken) -> None:
    """Attach an image to its HDU."""
    setattr(hdu, _ATTRIBUTE, [taken.image])


def taken_of(hdu: Any) -> np.ndarray | None:
    """Detach the image of an HDU, for the caller to own. None if there is none; raises InternalError if it was already
    taken, since its bytes may be lost."""
    left = getattr(hdu, _ATTRIBUTE, None)
    if left is None:
        return None
    if not left:
        raise InternalError(f"the image of HDU {hdu.name} was already taken")
    return left.pop()
