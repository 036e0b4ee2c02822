"""Images that are taken out of a file while it is looked through: read, or unpacked, and made native in one go.

Each piece is still in the cache when it is summed up and its numbers are turned round, so that the only memory that an
image takes is its own; of a gzip file these bytes are kept nowhere else.
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
    """An image in native byte order, and the sum of its numbers as they lie in the file."""

    image: np.ndarray
    sum: int


def can_be_taken(layout: Layout) -> bool:
    """Whether an HDU is an image of two axes, of floats as they are."""
    return layout.kind == "IMAGE" and layout.bitpix < 0 and not layout.scaled and len(layout.axes) == 2 \
        and layout.size == prod(layout.axes) * -layout.bitpix // 8 > 0


def take_out(source: Source, layout: Layout) -> Taken:
    """The image of an HDU; where the file ends before, what is behind is anything."""
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
    """Leave an image with the HDU that it belongs to."""
    setattr(hdu, _ATTRIBUTE, [taken.image])


def taken_of(hdu: Any) -> np.ndarray | None:
    """The image that was left with an HDU: it is the caller's then. None where none was; InternalError where it is
    gone, since its bytes may be nowhere."""
    left = getattr(hdu, _ATTRIBUTE, None)
    if left is None:
        return None
    if not left:
        raise InternalError(f"the image of HDU {hdu.name} was already taken")
    return left.pop()
