"""Plain values of known shapes: a file may be damaged, or written by another program."""
from typing import Any

import pytest

from gpu_perf.shapes import LARGEST, MOST, count, fits, number, positive, text, whole

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(("shape", "fine", "wrong"), [
    (number, (0, -2, 1.5), (NAN, INF, True, "1", None, LARGEST)),
    (whole, (0, -2, LARGEST - 1), (True, 1.0, LARGEST, -LARGEST, "1")),
    (positive, (1, 0.5), (0, -1, True, NAN)),
    (count, (0, MOST), (-1, MOST + 1, 1.0, False)),
    (text, ("", "a\n\u00e5"), ("\ud800", "a\udfff", b"a", 1, None)),
    (None, (None,), (0, False, "", [])),
    (dict, ({}, {"a": 1}), ([], None)),
    (int, (1,), (True, 1.0)),
    (bool, (True, False), (1, 0, None)),
    ((whole, None), (1, None), (1.5, "")),
    ([whole], ([], [1, 2]), ([1, "2"], {}, "", (1,), None)),
    ({"a": whole, "b": [text]}, ({"a": 1, "b": []}, {"a": 1, "b": ["c"], "more": None}),
     ({"a": 1}, {"a": "1", "b": []}, {"a": 1, "b": [2]}, ["a", "b"], "ab", None))])
def test_values_of_a_shape(shape: Any, fine: tuple[Any, ...], wrong: tuple[Any, ...]) -> None:
    assert [value for value in fine if not fits(value, shape)] == []
    assert [value for value in wrong if fits(value, shape)] == []
