"""What was written is read back from the file before it gets its name: the last look at what others will trust."""
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from gpu_extract.errors import FileName, InputError, OutputError
from gpu_extract.io.cards import Layout
from gpu_extract.io.checksum import pieces
from gpu_extract.io.content import Content
from gpu_extract.io.fits import layouts
from gpu_extract.io.pack import Packed, check_packed

# by the size of a number: the bits, as they lie in the file, that are all set where it is NaN or infinite
_EXPONENT: dict[int, Any] = {4: np.frombuffer(b"\x7f\x80" + bytes(2), np.uint32),
                             8: np.frombuffer(b"\x7f\xf0" + bytes(6), np.uint64)}
_FLOATS = {"E": (4, 1), "C": (4, 2), "D": (8, 1), "M": (8, 2)}       # column types: bytes of a number, numbers


def keep_promise(written: Path, path: FileName, *, axes: Sequence[tuple[int, ...]], content: Content,
                 nodata: int = 0, packed: Packed | None = None) -> None:
    """Read `written`, which is to become `path`, and raise OutputError where it does not hold what was promised.

    Checksums are right, axes are those of the arrays, no number is NaN or infinite, ivar is 0 where there are no data.

    axes: of each HDU, as NAXIS1, NAXIS2, ...
    content: the file's bytes; packed: how it is packed, if it is, see io.pack
    nodata: bits of an HDU MASK (or X_MASK) where IVAR (or X_IVAR) is exactly 0
    """
    try:
        if packed is not None:
            check_packed(written, content, packed)
        unpacked = None if packed is None else cast(BinaryIO, content)
        with layouts(os.fspath(written), content=unpacked) as (source, found):
            wrong = list(_broken(source.handle, found, axes, nodata))
    except InputError as error:
        wrong = [str(error)]
    if wrong:
        raise OutputError(f"{path}: not written: read back from the disk it is not what was to be written "
                          f"({'; '.join(wrong)}); check the disk, then start again; please report it if it stays so")


def _broken(handle: BinaryIO, found: Sequence[Layout], axes: Sequence[tuple[int, ...]], nodata: int) -> Iterator[str]:
    """What does not hold, in words."""
    if [layout.axes for layout in found] != list(axes):
        yield f"the HDUs have axes {[layout.axes for layout in found]}, meant were {list(axes)}"
        return
    for layout in found:
        if not (layout.checksum and layout.datasum):
            yield f"HDU {layout.name} has no checksum"
        if _not_finite(handle, layout):
            yield f"HDU {layout.name} has NaN or infinite values"
    images = {layout.name: layout for layout in found}
    for name, mask in images.items():
        ivar = images.get(name.removesuffix("MASK") + "IVAR") if nodata and name.endswith("MASK") else None
        if ivar is not None and _known(handle, ivar, mask, nodata):
            yield f"{ivar.name} is not 0 where {name} says that there are no data"


def _not_finite(handle: BinaryIO, layout: Layout) -> bool:
    """Whether an HDU holds a NaN or an infinite number."""
    if layout.columns:
        handle.seek(layout.data)
        rows = np.frombuffer(handle.read(layout.axes[0] * layout.axes[1]), np.uint8).reshape(-1, layout.axes[0])
        for column in (c for c in layout.columns if c.code in _FLOATS and c.repeat):
            size, count = _FLOATS[column.code]
            numbers = rows[:, column.start:column.start + size * count * column.repeat]
            if _stands_out(np.ascontiguousarray(numbers).reshape(-1), size):
                return True
        return False
    return layout.bitpix < 0 and any(_stands_out(piece, -layout.bitpix // 8)
                                     for piece in pieces(handle, layout.data, layout.size))


def _stands_out(data: np.ndarray, size: int) -> bool:
    """Whether big-endian floating-point numbers of so many bytes have one whose exponent is all ones."""
    bits = _EXPONENT[size]
    return bool(((data.view(bits.dtype) & bits) == bits).any())


def _known(handle: BinaryIO, ivar: Layout, mask: Layout, nodata: int) -> bool:
    """Whether an ivar is not 0 (nor -0) although its mask has one of these bits."""
    bits, value = (_words(handle, layout) for layout in (mask, ivar))
    return bool((value[(bits & np.array(nodata, bits.dtype.newbyteorder("="))) != 0] != 0).any())


def _words(handle: BinaryIO, layout: Layout) -> np.ndarray:
    handle.seek(layout.data)
    kind = f">{'f' if layout.bitpix < 0 else 'u'}{abs(layout.bitpix) // 8}"
    return np.frombuffer(handle.read(layout.size), kind)
