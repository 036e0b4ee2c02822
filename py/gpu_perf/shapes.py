"""Tests whether plain values from JSON have an expected shape: a file may be damaged, or belong to another program.

A shape is a type (bool is not an int), a predicate, None, a mapping of required names to shapes (other names are
allowed), a list with the shape of every element, or a tuple of alternative shapes.
"""
import math
from collections.abc import Mapping
from typing import Any

MOST = 1_000_000       # largest count: longer lists could not be made
LARGEST = 2**63        # of whole numbers


def number(value: Any) -> bool:
    """Whether it is a finite number."""
    return whole(value) or (isinstance(value, float) and math.isfinite(value))


def whole(value: Any) -> bool:
    """Whether it is a whole number of usual size."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST


def positive(value: Any) -> bool:
    """Whether it is one above 0."""
    return number(value) and value > 0


def count(value: Any) -> bool:
    """Whether it is a whole number, 0 or more, but not too many."""
    return whole(value) and 0 <= value <= MOST


def text(value: Any) -> bool:
    """Whether it is text that can be written again."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def fits(value: Any, shape: Any) -> bool:
    """Whether a value has a shape."""
    if shape is None:
        return value is None
    if isinstance(shape, tuple):
        return any(fits(value, each) for each in shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(each, shape[0]) for each in value)
    if isinstance(shape, Mapping):
        return isinstance(value, Mapping) and all(name in value and fits(value[name], each)
                                                  for name, each in shape.items())
    if isinstance(shape, type):
        return isinstance(value, shape) and isinstance(value, bool) <= (shape is bool)
    return bool(shape(value))
