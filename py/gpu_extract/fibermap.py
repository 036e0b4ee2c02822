"""Assigns the rows of a fibermap to fibres, by its column FIBER or, without one, by position."""
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from gpu_extract.data import Card, FiberMap, Image, IntArray
from gpu_extract.errors import InputError

FIBRES_PER_SPECTROGRAPH = 500
_REPAIR = "repair the table, give another one with -f FILE, or leave it out with -f none"
_EACH = "give a table with a row for each fibre with -f FILE, or leave it out with -f none"


def spectrograph_of(cards: Iterable[Card]) -> int | None:
    """The spectrograph's number: the digit of CAMERA ("r5"), else SPECGRPH, else None."""
    values = {card.key: card.value for card in reversed(list(cards))}
    match = re.fullmatch(r"[A-Za-z](\d)", str(values.get("CAMERA") or "").strip())
    if match:
        return int(match[1])
    number = values.get("SPECGRPH")
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def rows_for(image: Image, fibres: tuple[int, int], nfibre: int) -> FiberMap | None:
    """The rows of the fibres lo .. hi - 1 in an image's fibermap, see `cut_fibermap`; None if it has none."""
    return image.fibermap and cut_fibermap(image.fibermap, np.arange(*fibres), nfibre,
                                           spectrograph=spectrograph_of(image.cards))


def cut_fibermap(fibermap: FiberMap, fibres: IntArray, nfibre: int, *, spectrograph: int | None = None) -> FiberMap:
    """The rows of the fibres `fibres`, numbers within a camera of `nfibre` fibres, in their order.

    The column FIBER counts through the spectrographs, 500 or `nfibre` fibres each. The spectrograph is `spectrograph`,
    else that of the table, if it has no more rows than the camera has fibres. Rows may be in any order, and other rows
    may be missing. A table without FIBER is assigned by position.

    Raises InputError if rows are missing, differ for one fibre, or belong to another spectrograph.
    """
    rows = fibermap.rows
    if "FIBER" not in (rows.dtype.names or ()):
        if len(rows) > nfibre:
            raise InputError(f"the fibermap has {len(rows)} rows for {nfibre} fibres, and no column FIBER to assign "
                             f"them; give a table of {nfibre} rows with -f FILE")
        if fibres.max() >= len(rows):
            raise InputError(f"the fibermap has {len(rows)} rows and no column FIBER, but fibres "
                             f"{fibres.min()}-{fibres.max()} are requested; {_EACH}")
        return replace(fibermap, rows=rows[fibres])
    numbers = _numbers(rows["FIBER"])
    if not len(numbers):
        raise InputError(f"the fibermap has no rows; {_EACH}")
    if spectrograph is None and len(rows) > nfibre:
        raise InputError(f"the fibermap has {len(rows)} rows for {nfibre} fibres, and the image has no CAMERA to tell "
                         f"which FIBER are its own; give a table of {nfibre} rows with -f FILE")
    there = {n: np.isin(n + fibres, numbers) for n in dict.fromkeys(_firsts(numbers, nfibre, spectrograph))}
    first = max(there, key=lambda n: np.count_nonzero(there[n]))
    wanted = first + fibres
    missing = wanted[~there[first]]
    if len(missing) == len(wanted):
        of = "" if spectrograph is None else f" of spectrograph {spectrograph}, which the image names,"
        raise InputError(f"the fibermap has FIBER {numbers.min()} to {numbers.max()}, but fibres {wanted[0]} to "
                         f"{wanted[-1]}{of} are requested; choose others with -s and -n, or give this image's "
                         "table with -f FILE")
    if len(missing):
        raise InputError(f"the fibermap has no row for {len(missing)} fibres (first FIBER {missing[0]}); {_EACH}")
    return replace(fibermap, rows=rows[_places(rows, numbers, wanted)])


def _numbers(column: np.ndarray) -> IntArray:
    """FIBER as integers."""
    kind = column.dtype.kind
    if column.ndim == 1 and (kind in "iu" or (kind == "f" and np.array_equal(column, np.rint(column)))):
        return column.astype(np.int64)
    raise InputError(f"FIBER of the fibermap is of type {column.dtype}, must be whole numbers; {_REPAIR}")


def _firsts(numbers: IntArray, nfibre: int, spectrograph: int | None) -> list[int]:
    """Possible values of FIBER for the camera's fibre 0: spectrographs have 500 numbers, or as many as the camera has
    fibres.

    Cameras of another number of fibres than 500 may count their own from 0, whatever their name.
    """
    sizes = FIBRES_PER_SPECTROGRAPH, nfibre
    if spectrograph is not None:
        own = [0] if nfibre != FIBRES_PER_SPECTROGRAPH and numbers.max() < nfibre else []
        return [*(spectrograph * size for size in sizes), *own]
    return [int(numbers.min()) // size * size for size in sizes]


def _places(rows: np.ndarray, numbers: IntArray, wanted: IntArray) -> IntArray:
    """The row of each requested number. Raises InputError if several rows of one differ."""
    if (numbers[1:] > numbers[:-1]).all():
        return np.searchsorted(numbers, wanted)
    order = np.argsort(numbers, kind="stable")
    found: IntArray = order[np.searchsorted(numbers, wanted, sorter=order)]
    if len(np.unique(numbers)) < len(numbers):
        for number, place in zip(wanted.tolist(), found.tolist(), strict=True):
            same = [_plain(row) == _plain(rows[place]) for row in rows[numbers == number]]
            if not all(same):
                raise InputError(f"the fibermap has {len(same)} different rows of FIBER {number}; {_REPAIR}")
    return found


def _plain(row: Any) -> list[bytes]:
    """A row as the values of its columns."""
    return [np.asarray(row[name]).tobytes() for name in row.dtype.names]
