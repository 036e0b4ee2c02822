"""Packs values as a line of text and plain arrays, for transport between ranks without pickle.

The text (JSON) holds everything that is not an array, and for each array its type and shape.
"""
import dataclasses
import json
from ast import literal_eval
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from gpu_extract.errors import InternalError

_PACKAGE = __name__.split(".", maxsplit=1)[0]
_PLAIN = frozenset((str, int, float, bool, type(None)))


def pack(value: Any) -> tuple[str, list[np.ndarray]]:
    """Text and arrays from which `unpack` makes the value.

    value: arrays, numbers, strings, None, and tuples, lists, mappings (as dicts), this package's dataclasses of those
    Raises InternalError for other content.
    """
    arrays: list[np.ndarray] = []
    tree = _pack(value, arrays)
    return json.dumps({"value": tree, "arrays": [[_describe(a.dtype), a.shape] for a in arrays]}), arrays


def unpack(text: str, arrays: Sequence[np.ndarray]) -> Any:
    """The value that was packed, with `arrays` in it, not copied."""
    return _unpack(json.loads(text)["value"], arrays)


def repack(value: Any) -> Any:
    """The value as it would arrive on another rank, so that local and sent values do not differ."""
    arrays: list[np.ndarray] = []
    tree = _pack(value, arrays)
    for array in arrays:
        _describe(array.dtype)
    return _unpack(tree, arrays)


def copied(value: Any) -> Any:
    """The value with copies of its arrays."""
    text, arrays = pack(value)
    return unpack(text, [array.copy() for array in arrays])


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal to the last bit."""
    if type(one) is not type(other):
        return False
    if type(one) in _PLAIN:       # first, as most values in a PSF are of these
        return repr(one) == repr(other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and np.array_equal(_words(one), _words(other))
    names = _names(type(one))       # type: ignore[arg-type]
    if names is not None:
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, Mapping):
        return same([*one.items()], [*other.items()])
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)


def _words(array: np.ndarray) -> np.ndarray:
    """An array's bytes, eight at a time where they are as many: that is quicker to compare."""
    found = as_bytes(np.asarray(array, order="C"))
    return found.view(np.int64) if found.size % 8 == 0 else found


def layout(text: str) -> list[tuple[np.dtype, tuple[int, ...]]]:
    """Type and shape of each array that belongs to a packed value."""
    return [(np.lib.format.descr_to_dtype(literal_eval(described)), tuple(shape))
            for described, shape in json.loads(text)["arrays"]]


def as_bytes(array: np.ndarray) -> np.ndarray:
    """The bytes of a contiguous array, as an array over the same memory."""
    return array.reshape(-1).view(np.uint8)


def _pack(value: Any, arrays: list[np.ndarray]) -> Any:
    if type(value) in _PLAIN:       # first, as most values in a frame's notes are of these
        return value
    if isinstance(value, np.ndarray):
        arrays.append(np.asarray(value, order="C"))
        return {"array": len(arrays) - 1}
    if isinstance(value, np.generic):
        return value.item()
    names = _names(type(value))       # type: ignore[arg-type]
    if names is not None:
        return {"type": _name(type(value)), "fields": {name: _pack(getattr(value, name), arrays) for name in names}}
    if isinstance(value, tuple):
        return {"tuple": [_pack(v, arrays) for v in value]}
    if isinstance(value, list):
        return [_pack(v, arrays) for v in value]
    if isinstance(value, Mapping):
        return {"items": [[_pack(k, arrays), _pack(v, arrays)] for k, v in value.items()]}
    if isinstance(value, (str, int, float)):       # of a subclass: the plain value
        return json.loads(json.dumps(value))
    raise InternalError(f"a {type(value).__name__} cannot travel between ranks")


@cache
def _names(kind: type) -> tuple[str, ...] | None:
    """Names of the fields of a dataclass or named tuple."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return getattr(kind, "_fields", None) if issubclass(kind, tuple) else None


def _unpack(tree: Any, arrays: Sequence[np.ndarray]) -> Any:
    if isinstance(tree, list):
        return [_unpack(t, arrays) for t in tree]
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        return arrays[tree["array"]]
    if "tuple" in tree:
        return tuple(_unpack(t, arrays) for t in tree["tuple"])
    if "items" in tree:
        return {_unpack(k, arrays): _unpack(v, arrays) for k, v in tree["items"]}
    module, name = tree["type"].split(":")
    kind = getattr(import_module(module), name)
    return kind(**{key: _unpack(t, arrays) for key, t in tree["fields"].items()})


def _name(kind: type) -> str:
    """The name by which a class is found again; only classes of this package can be sent."""
    if kind.__module__.split(".")[0] != _PACKAGE or "." in kind.__qualname__:
        raise InternalError(f"a {kind.__qualname__} cannot travel between ranks")
    return f"{kind.__module__}:{kind.__qualname__}"


def _describe(dtype: np.dtype) -> str:
    if dtype.hasobject:
        raise InternalError(f"an array of type {dtype} cannot travel between ranks")
    return repr(np.lib.format.dtype_to_descr(dtype))
