"""Makes HDUs and writes them: native arrays in, big-endian on disk, checksums in every HDU."""
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from astropy.io import fits
from astropy.io.fits.verify import VerifyWarning

from gpu_extract.data import Card, FiberMap
from gpu_extract.errors import FileName, InputError
from gpu_extract.io.atomic import FITS_ENDINGS, Commit, at_once, atomic, check_target
from gpu_extract.io.content import content_of
from gpu_extract.io.headers import header_of
from gpu_extract.io.pack import write_packed, write_plain
from gpu_extract.io.readback import keep_promise

# instead of astropy's date, so that equal content gives equal files
_CHECKSUM_COMMENT = "ones'-complement sum"


def image_hdu(array: np.ndarray | None, name: str, *, cards: Sequence[Card] = (), bunit: str = "",
              primary: bool = False) -> Any:
    """An image HDU; `array` None makes an empty primary."""
    header = header_of(cards)
    if name:
        header.set("EXTNAME", name, before=0 if len(header) else None)
    if bunit:
        header["BUNIT"] = bunit
    return fits.PrimaryHDU(array, header) if primary else fits.ImageHDU(array, header)


def table_hdu(rows: np.ndarray, name: str, *, units: Mapping[str, str] | None = None,
              cards: Sequence[Card] = (), comments: Mapping[str, str] | None = None) -> fits.BinTableHDU:
    """A binary table HDU of a structured array; `comments` describe the columns."""
    hdu = fits.BinTableHDU(header=header_of(cards), name=name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VerifyWarning)       # names of columns are unchanged
        # not as an argument, which would load astropy.table for a tenth of a second
        try:
            hdu.data = fits.FITS_rec.from_columns(fits.ColDefs(_without_int8(rows)))
        except (ValueError, fits.VerifyError) as error:
            raise InputError(f"{name}: a table of FITS cannot hold {_unfit(rows)}; leave it out, or convert it to "
                             "numbers or ASCII text") from error
    for number, column in enumerate(rows.dtype.names or (), start=1):
        if units and column in units:        # not by change_unit, which changes the header only while writing
            hdu.header.set(f"TUNIT{number}", units[column], after=f"TFORM{number}")
        if comments and column in comments:
            hdu.header.comments[f"TTYPE{number}"] = comments[column]
    return hdu


def _unfit(rows: np.ndarray) -> str:
    """The first column that astropy cannot write."""
    for column in rows.dtype.names or ():
        try:
            fits.FITS_rec.from_columns(fits.ColDefs(_without_int8(rows[[column]])))
        except (ValueError, fits.VerifyError):
            return f"column {column} of type {rows.dtype[column]}"
    return f"rows of type {rows.dtype}"


def table_hdus(name: str, table: tuple[np.ndarray, Mapping[str, str]] | None) -> list[fits.BinTableHDU]:
    """The HDU of some rows, with the meaning of each column as a comment; nothing for None."""
    return [] if table is None else [table_hdu(table[0], name, comments=table[1])]


def fibermap_hdus(table: FiberMap | None) -> list[fits.BinTableHDU]:
    """FIBERMAP, or nothing."""
    return [] if table is None else [table_hdu(table.rows, "FIBERMAP", units=table.units, cards=table.cards,
                                               comments=table.comments)]


def _without_int8(rows: np.ndarray) -> np.ndarray:
    """The same rows with int8 columns as int16, because astropy would write int8 as bool."""
    fields: Mapping[str, Any] = rows.dtype.fields or {}
    wider = {name: np.dtype((np.int16, dtype.shape)) if dtype.base == np.int8 else dtype
             for name, (dtype, *_) in fields.items()}
    return rows.astype(list(wider.items()))


def write_hdus(path: FileName, hdus: Sequence[Any], commit: Commit = at_once, *, read_back: bool = False) -> None:
    """Write a FITS file atomically (commit: see there), CHECKSUM and DATASUM in every HDU.

    read_back: read it back before it gets its name, see io.readback

    Raises OutputError, and InputError if the name is not that of a FITS file, gzipped or not.
    """
    check_target(path, endings=FITS_ENDINGS)
    whole = fits.HDUList(list(hdus))     # adds EXTEND to the primary, which must precede the sums
    for hdu in whole:
        hdu.add_checksum(when=_CHECKSUM_COMMENT)
    content = content_of(whole)
    with atomic(path, commit) as temporary:
        packed = write_packed(temporary, content) if temporary.suffix == ".gz" else None
        if packed is None:
            write_plain(temporary, content)
        if read_back:
            keep_promise(temporary, path, content, packed)
