"""Opening FITS files, so that whatever is wrong with one is said in one line.

The only modules that know FITS are those of this folder.
"""
import io
import os
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
from astropy.io import fits
from astropy.utils.exceptions import AstropyWarning

from gpu_extract.errors import InputError
from gpu_extract.io.checksum import Extent, verify

# what astropy raises on content that it cannot make sense of
_UNREADABLE = (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError,
               MemoryError, zlib.error, fits.VerifyError)
_GZIP = b"\x1f\x8b"
_GZIP_FORMAT = 31            # what zlib calls it
_CHUNK = 1 << 20             # bytes unpacked at once


@contextmanager
def open_fits(path: str | os.PathLike[str], *, check: bool = True) -> Iterator[fits.HDUList]:
    """Open a FITS file, gzipped or not, for reading.

    check: compare CHECKSUM and DATASUM with the bytes where the file carries them

    Raises InputError: file missing, unreadable, empty, not FITS, truncated, or corrupt.
    """
    name = os.fspath(path)
    with _bytes_of(name) as handle, warnings.catch_warnings():
        # what these warnings say is found below, and said in our words
        warnings.simplefilter("ignore", AstropyWarning)
        extents = _extents(handle, name)
        if check:
            verify(handle, extents, name)
        handle.seek(0)
        yield fits.open(handle, memmap=False, lazy_load_hdus=False)


@contextmanager
def _bytes_of(name: str) -> Iterator[BinaryIO]:
    """The file's bytes, unpacked."""
    if not os.path.exists(name):
        raise InputError(f"{name}: no such file; check the path")
    if not os.path.isfile(name):
        raise InputError(f"{name}: not a regular file; give a FITS file, gzipped or not")
    if not os.access(name, os.R_OK):
        raise InputError(f"{name}: cannot be read: permission denied; check its permissions")
    with open(name, "rb") as handle:
        head = handle.read(2)
        handle.seek(0)
        if not head:
            raise InputError(f"{name}: the file is empty: it was never finished; make or fetch it again")
        yield _unpacked(handle, name) if head == _GZIP else handle


def _unpacked(handle: BinaryIO, name: str) -> BinaryIO:
    """The content of a gzip file of one member or more, with zeros behind them; never twice in memory."""
    whole, member = io.BytesIO(), zlib.decompressobj(_GZIP_FORMAT)
    try:
        while data := handle.read(_CHUNK):
            while data:
                if member.eof:
                    data = data.lstrip(b"\0")
                    if not data:
                        break
                    member = zlib.decompressobj(_GZIP_FORMAT)
                whole.write(member.decompress(data))
                data = member.unused_data
    except (OSError, zlib.error) as error:
        raise InputError(f"{name}: its gzip stream is corrupt ({error}); fetch it again") from error
    if not member.eof:
        raise InputError(f"{name}: truncated: its gzip stream breaks off; fetch it again")
    return whole


def _extents(handle: BinaryIO, name: str) -> list[Extent]:
    """Where the HDUs lie, after making sure that all of them are there as a whole."""
    size = handle.seek(0, os.SEEK_END)
    handle.seek(0)
    found = []
    try:
        hdus = fits.open(handle, memmap=False, lazy_load_hdus=False, disable_image_compression=True)
        for number, hdu in enumerate(hdus):
            info = hdu.fileinfo()
            found.append(Extent(hdu.name or str(number), info["hdrLoc"], info["datLoc"],
                                info["datLoc"] + info["datSpan"],
                                hdu.header.get("CHECKSUM"), hdu.header.get("DATASUM")))
    except _UNREADABLE as error:
        raise InputError(f"{name}: not a FITS file, or its header is corrupt ({_short(error)}); "
                         "give a FITS file, gzipped or not") from error
    if not found:
        raise InputError(f"{name}: holds no HDU; give a FITS file, gzipped or not")
    last = found[-1]
    if last.end > size:
        raise InputError(f"{name}: truncated: {size} bytes, but HDU {last.name} needs {last.end}; "
                         "fetch or make the file again")
    if last.end < size and _is_not_blank(handle, last.end, size):
        raise InputError(f"{name}: truncated or corrupt: what follows HDU {last.name} at byte {last.end} "
                         "is not a whole HDU; fetch or make the file again")
    return found


def _is_not_blank(handle: BinaryIO, start: int, stop: int) -> bool:
    handle.seek(start)
    return bool(handle.read(min(stop - start, 1 << 20)).strip(b"\0 "))


def _short(error: BaseException) -> str:
    """The first sentence of a message, on one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text.split(". ")[0].rstrip(".")[:120]


def find(hdus: fits.HDUList, name: str, path: str | os.PathLike[str]) -> Any:
    """The HDU called `name`; InputError that lists those there are."""
    hdu = find_optional(hdus, name)
    if hdu is None:
        there = ", ".join(h.name or "(no name)" for h in hdus)
        raise InputError(f"{path}: no HDU {name}; the file has {there}")
    return hdu


def find_optional(hdus: fits.HDUList, name: str) -> Any:
    """The HDU called `name`, or None."""
    return next((h for h in hdus if h.name.upper() == name.upper()), None)


def data_of(hdu: Any, path: str | os.PathLike[str]) -> np.ndarray:
    """The array or table of an HDU; InputError where it has none, or it cannot be unpacked."""
    try:
        data = hdu.data
    except _UNREADABLE as error:
        raise InputError(f"{path}: the data of HDU {hdu.name} cannot be read ({_short(error)}); "
                         "fetch or make the file again") from error
    if data is None:
        raise InputError(f"{path}: HDU {hdu.name} holds no data")
    return data


def image_of(hdu: Any, path: str | os.PathLike[str], ndim: int = 2) -> np.ndarray:
    """The image of an HDU in native byte order, C order, float32 and float64 kept as they are.

    It is the caller's: the HDU lets go of it (and reads it again where it is asked), and no copy is made.
    """
    data = data_of(hdu, path)
    if data.dtype.names is not None or data.ndim != ndim or data.size == 0:
        what = "a table" if data.dtype.names is not None else f"of shape {data.shape}"
        raise InputError(f"{path}: HDU {hdu.name} is {what}, needed is an image with {ndim} axes")
    del hdu.data
    if not data.dtype.isnative and data.flags.writeable and data.flags.c_contiguous:
        data.byteswap(inplace=True)
        data = data.view(data.dtype.newbyteorder("="))
    return native(data)


def native(array: np.ndarray) -> np.ndarray:
    """The same values in this machine's byte order, contiguous."""
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
