"""Checks when a value is made: shapes, types, units, and arrays in the form for kernels."""
from typing import Any

import numpy as np

from gpu_extract.arrays import IntArray
from gpu_extract.errors import InputError


def check_shape(name: str, array: np.ndarray, shape: tuple[int | None, ...]) -> None:
    """Raise InputError if an array has another shape. None: any number."""
    fits = array.shape == shape or (array.ndim == len(shape) and all(n is None or n == m for n, m
                                                                     in zip(shape, array.shape, strict=True)))
    if not fits:
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise InputError(f"{name} has shape {array.shape}, must be ({wanted})")


def plain(name: str, array: Any, units: tuple[str, ...] = (), kinds: str = "fiu") -> np.ndarray:
    """A plain array of real numbers, or of these kinds. Masks and units, which would be lost, raise an error.

    units: allowed units, in astropy's spelling
    """
    unit = getattr(array, "unit", None)
    if unit is not None and not any(unit == word for word in ("", *units)):
        raise InputError(f"{name} is in {unit}, must be in {' or '.join(units) or 'no unit'}: convert it, and give "
                         "plain numbers")
    if getattr(array, "mask", None) is not None:
        raise InputError(f"{name} is a masked array, must be a plain one: give its data, and an ivar that is 0 where "
                         "it is masked")
    try:
        array = np.asarray(array)
    except ValueError as error:
        raise InputError(f"{name} is not an array: its rows differ in length") from error
    if array.dtype.kind not in kinds:
        raise InputError(f"{name} is of type {array.dtype}, must be "
                         + ("real numbers, float32 or float64" if "f" in kinds else "whole numbers"))
    return array


def real(name: str, array: Any, units: tuple[str, ...] = ()) -> np.ndarray:
    """An array for kernels: float32 or float64 in the byte order of the machine, other real numbers as float64.

    FITS files, and astropy's arrays from them, have the other byte order. See `plain`.
    """
    array = plain(name, array, units)
    native = array.dtype.newbyteorder("=")
    return array.astype(native if native in (np.float32, np.float64) else np.float64, copy=False)


def whole(name: str, given: Any) -> IntArray:
    """Whole numbers in a row, of whatever type."""
    array = np.asarray(given)
    check_shape(name, array, (None,))
    if array.dtype.kind in "iu":
        return array
    array = real(name, array)
    if not (np.isfinite(array).all() and (array == np.rint(array)).all()):
        raise InputError(f"{name} must be whole numbers, one for each fibre")
    return array.astype(np.int64)


def pair(name: str, given: Any) -> tuple[int, int]:
    """Two whole numbers of pixels above 0, (y, x)."""
    pair = whole(name, given)
    check_shape(name, pair, (2,))
    if pair.min() < 1:
        raise InputError(f"{name} is {given}, must be two whole numbers, (y, x), 1 or more")
    return int(pair[0]), int(pair[1])
