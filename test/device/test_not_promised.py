"""What a GPU does not guarantee: the content of new memory, and the order of lanes.

Once, an empty fibre's share in its neighbours' verdict had never been written.
"""
import numpy as np
import pytest
from simulated_device import SimulatedDevice

from decorrelate.cases import Bundle, make_bundle
from device.device_case import with_device
from device.pieces import decorrelate, shape_of
from extraction import assert_same_bits
from gpu_extract.data import Decorrelated, Normal, Status
from gpu_extract.device.cuda import lanes
from gpu_extract.device.device_banded import BandedCore

INNER, NDIAG = slice(9, 52), 3
HELD = 0x00, 0x7F, 0xFF, 0xFB      # zeros, huge numbers, NaN, huge negative ones


def with_an_empty_fibre() -> Bundle:
    """Fibres that touch the next ones and those after them; the middle one has no light."""
    case = make_bundle(5, 60, mask="clean", wing=0.005, stamp=(7, 17), step=1.9)
    normal = case.normal
    assert normal.icov.shape[1] > 2
    icov, weight = normal.icov.copy(), normal.weight.copy()
    for f, d in ((2, 0), (2, 1), (2, 2), (1, 1), (0, 2)):
        icov[f, d] = 0.0
    weight[2] = 0.0
    return Bundle(Normal(icov, normal.rhs, weight, normal.given_up), case.x, case.dense)


def found(held: int, order: float | None = None) -> Decorrelated:
    case, device = with_an_empty_fibre(), SimulatedDevice(garbage=held, order=order)
    return decorrelate(device, BandedCore(device, shape_of([case], INNER, NDIAG)), [case], INNER, NDIAG)


def test_bits_do_not_depend_on_memory_or_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "TILE", 16)
    first, *others = (found(held) for held in HELD)
    np.testing.assert_array_equal(first.status.max(axis=1), [Status.GOOD] * 2 + [Status.EMPTY] + [Status.GOOD] * 2)
    others += [found(HELD[0], order) for order in (0.0, 0.382, 0.5)]
    for other in others:
        for name in ("flux", "ivar", "resolution", "status"):
            np.testing.assert_array_equal(getattr(other, name), getattr(first, name))


def test_bits_of_a_frame_depend_neither_on_old_memory_nor_on_order() -> None:
    """Of all kernels of the flow, including image and mask."""
    first, *others = (with_device(SimulatedDevice(garbage=held, order=order)) for held, order in (
        (HELD[0], None), (HELD[1], 0.0), (HELD[2], 0.382)))
    for other in others:
        assert_same_bits(other, first)
        np.testing.assert_array_equal(other.model, first.model)
