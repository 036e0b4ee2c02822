"""Making HDUs and writing them: native arrays in, big-endian on disk, checksums in every HDU."""
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from astropy.io import fits

from gpu_extract.data import Card
from gpu_extract.io.atomic import atomic
from gpu_extract.io.headers import header_of

# in place of the date that astropy would put there: equal content gives equal files
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
    hdu = fits.BinTableHDU(rows, header=header_of(cards), name=name)
    for number, column in enumerate(rows.dtype.names or (), start=1):
        if units and column in units:
            hdu.columns.change_unit(column, units[column])
        if comments and column in comments:
            hdu.header.comments[f"TTYPE{number}"] = comments[column]
    return hdu


def write_hdus(path: str | os.PathLike[str], hdus: Sequence[Any]) -> None:
    """Write a FITS file atomically, CHECKSUM and DATASUM in every HDU. Raises OutputError."""
    whole = fits.HDUList(list(hdus))
    whole.update_extend()                # changes the primary's header: before the sums, not in between
    for hdu in whole:
        hdu.add_checksum(when=_CHECKSUM_COMMENT)
    with atomic(path) as temporary:
        whole.writeto(temporary, output_verify="exception")
