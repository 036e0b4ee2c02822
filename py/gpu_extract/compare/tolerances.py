"""The limits of all comparisons, with their reasons, from etc/tolerances.json."""
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from gpu_extract.errors import InputError, did_you_mean

FIELDS = ("flux", "ivar", "resolution", "chi2pix", "mask", "status")


@dataclass(frozen=True)
class Limit:
    """Bounds on the median, the 99 % point and the largest of the differences (None: not bounded)."""

    median: float | None
    p99: float | None
    maximum: float | None
    why: str


@dataclass(frozen=True)
class Limits:
    """The limits of one kind of comparison.

    ends: bins left out at both ends of the reference; mask_bits: the bits of MASK that are compared
    fields: limit of each of FIELDS that is judged
    """

    name: str
    about: str
    ends: int
    mask_bits: int
    fields: Mapping[str, Limit]


def load_limits(name: str) -> Limits:
    """Limits by name, or from a JSON file that holds one entry in the layout of etc/tolerances.json.

    Raises InputError if there is neither, or the file does not have that layout.
    """
    there = shipped()
    if name in there:
        return _limits(name, there[name])
    path = Path(name)
    if not path.is_file():
        raise InputError(f"limits {name!r} are neither a file nor one of {', '.join(there)}: give one of them"
                         + did_you_mean(name, there))
    try:
        return _limits(path.stem, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(f"{name}: not a file of limits ({error}); use an entry of etc/tolerances.json as a "
                         "template") from error


def shipped() -> dict[str, Any]:
    """The entries of etc/tolerances.json: name of a kind of comparison -> its limits."""
    text = resources.files("gpu_extract").joinpath("etc/tolerances.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def _limits(name: str, entry: Mapping[str, Any]) -> Limits:
    fields = {}
    for field, limit in entry["fields"].items():
        if field not in FIELDS:
            raise ValueError(f"field {field!r} is not one of {', '.join(FIELDS)}")
        bounds = (limit.get(each) for each in ("median", "p99", "max"))
        median, p99, most = (None if bound is None else float(bound) for bound in bounds)
        fields[field] = Limit(median, p99, most, str(limit["why"]))
    return Limits(name, str(entry["about"]), int(entry["ends"]), int(entry["mask_bits"]), fields)
