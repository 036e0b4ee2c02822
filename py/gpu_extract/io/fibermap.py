"""The fibermap: a table with one row per fibre, passed through from input to output.

Also the conversion of any table to a structured array.
"""
from typing import Any

import numpy as np
from astropy.io import fits

from gpu_extract.data import FiberMap
from gpu_extract.errors import FileName, InputError
from gpu_extract.io.fits import data_of, find, find_optional, native, open_fits
from gpu_extract.io.headers import cards_of

_USED = "FIBER", "TARGET_RA", "TARGET_DEC", "FIBER_RA", "FIBER_DEC"      # columns that are used
_ADVICE = "repair the table, give another one with -f FILE, or leave it out with -f none"


def read_fibermap(path: FileName, *, check: bool = True) -> FiberMap:
    """The HDU FIBERMAP of a file. Raises InputError if there is none or it cannot be read."""
    with open_fits(path, check=check) as hdus:
        return fibermap_of(find(hdus, "FIBERMAP"))


def optional_fibermap(hdus: fits.HDUList) -> FiberMap | None:
    """The HDU FIBERMAP of an open file, or None if it has none."""
    hdu = find_optional(hdus, "FIBERMAP")
    return None if hdu is None else fibermap_of(hdu)


def fibermap_of(hdu: Any) -> FiberMap:
    """A table HDU as a FiberMap. NaN and infinite values raise InputError, because they must not be passed on.

    Names of columns are not case-sensitive in FITS: those that are used are converted to capitals.
    """
    rows = rows_of(hdu)
    given = rows.dtype.names or ()
    capitals = [name.upper() for name in given]
    spelt = {name: large if large in _USED and capitals.count(large) == 1 else name
             for name, large in zip(given, capitals, strict=True)}
    rows.dtype.names = tuple(spelt.values())
    bad = not_finite(rows)
    if bad:
        raise InputError(f"{hdu.name} has NaN or infinite values in {', '.join(bad)}; {_ADVICE}")
    columns = [(number, column) for number, column in enumerate(hdu.columns, 1) if column.name in spelt]
    units = {spelt[c.name]: c.unit for _, c in columns if isinstance(c.unit, str) and c.unit}     # or a corrupt card
    comments = {spelt[c.name]: text for number, c in columns if (text := hdu.header.comments[f"TTYPE{number}"])}
    return FiberMap(rows, units, cards_of(hdu.header), comments)


def rows_of(hdu: Any) -> np.ndarray:
    """The rows of a table HDU as a structured array in native byte order."""
    table = data_of(hdu)
    if table.dtype.names is None:
        raise InputError(f"HDU {hdu.name} is an image, must be a table")
    columns = {}
    for name in hdu.columns.names:
        column = np.asarray(table[name])
        if column.dtype.kind == "O":
            raise InputError(f"column {name} of {hdu.name} has rows of different lengths; {_ADVICE}")
        if 0 in column.shape[1:]:        # TFORM 0J: it is empty, but would not be read back as empty
            continue
        if column.dtype.kind in "SU" and column.dtype.itemsize == 0:
            column = column.astype(f"{column.dtype.kind}1")
        columns[name] = native(column) if column.dtype.kind not in "SU" else column
    dtype = [(name, column.dtype, column.shape[1:]) for name, column in columns.items()]
    rows = np.empty(len(table), dtype)
    for name, column in columns.items():
        rows[name] = column
    return rows


def not_finite(rows: np.ndarray) -> list[str]:
    """Names of the columns with a NaN or an infinite value."""
    return [name for name in rows.dtype.names or ()
            if rows[name].dtype.kind in "fc" and not np.isfinite(rows[name]).all()]
