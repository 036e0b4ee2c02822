"""Values that stay on a rank are those that would arrive on another one."""
from enum import IntEnum

import numpy as np
import pytest

from gpu_extract.data import Rows, SpecMask
from gpu_extract.errors import InternalError
from gpu_extract.packing import pack, repack, same, unpack


class Colour(IntEnum):
    RED = 3


def test_what_is_repacked_is_what_would_arrive() -> None:
    """A type that does not survive JSON becomes plain, an array contiguous; numbers keep all bits."""
    some = np.arange(12.0).reshape(3, 4)
    rows = Rows((0, 3), some, some, np.zeros((3, 1, 4)), some, some, some.astype(np.uint32), some.astype(np.int8),
                notes={0: {"error": 0.1 + 0.2, "fibres": np.int64(3), "kind": Colour.RED, "lost": float("inf")}})
    plain = {"x": np.float32(0.1), "bits": SpecMask.NODATA}
    for value in (rows, [rows, None, (1, 2.5, "a", True)], plain, some[:, ::2]):
        text, arrays = pack(value)
        here, there = repack(value), unpack(text, arrays)
        assert same(here, there)
    assert type(repack(rows).notes[0]["kind"]) is int
    assert repack(some[:, ::2]).flags.c_contiguous and repack(some) is some


@pytest.mark.parametrize("value", [np.array([None]), {"a": object()}, 1j])
def test_what_cannot_be_sent_cannot_be_kept(value: object) -> None:
    for way in (pack, repack):
        with pytest.raises(InternalError, match="cannot travel between ranks"):
            way(value)
