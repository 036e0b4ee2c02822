"""The cores' kernels under numba's CUDA simulator, which launches them as a GPU would: blocks, threads, grids.

What they compute is tested at full size elsewhere (test/device); here it is that every kernel's lanes are those
that its launch means, none left out and none beyond the end.
"""
import numpy as np
import pytest
from numba import config

from decorrelate.cases import Bundle, make_bundle
from device.pieces import decorrelate, shape_of
from gpu_extract.data import Status
from gpu_extract.decorrelate import banded
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.device.cuda.kernels import DECLARED
from gpu_extract.device.cuda.simulated import SimulatedDevice
from gpu_extract.device.device_banded import BandedCore

if not config.ENABLE_CUDASIM:
    pytest.skip("needs NUMBA_ENABLE_CUDASIM=1 before numba is loaded: test/device/test_cudasim.py sees to that",
                allow_module_level=True)

INNER, NDIAG = slice(1, 9), 1
LIMITS = Limits(widen=(0, 1, 1, 2))
OURS = ("eliminate", "complement", "measure", "decide", "poles")
LAUNCHED: set[str] = set()


def case(mask: str = "block") -> Bundle:
    """Three fibres that touch each other."""
    return make_bundle(3, 10, mask=mask, stamp=(3, 15), step=2.5)


def test_banded() -> None:
    bundle, device = case("clean"), SimulatedDevice(compiled=False)
    core = BandedCore(device, shape_of([bundle], INNER, NDIAG), LIMITS)
    found = decorrelate(device, core, [bundle], INNER, NDIAG)
    LAUNCHED.update(device.launched)
    wanted = banded.decorrelate(bundle.normal, bundle.x, (0, 3), ndiag=NDIAG, options=banded.Options(limits=LIMITS))
    good = (found.status == Status.GOOD).all(axis=1)
    assert good.any()
    neighbours = banded.Neighbours(bundle.normal, bundle.x, LIMITS)       # what may hold weak bins is the CPU's
    open_ = [neighbours.complement(i).facts.may_be_weak for i in range(3)]
    np.testing.assert_array_equal(good, (wanted.status == Status.GOOD).all(axis=1) & ~np.array(open_))
    np.testing.assert_allclose(found.flux[good], wanted.flux[good][:, INNER], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found.ivar[good], wanted.ivar[good][:, INNER], rtol=1e-9)


def test_broad_band() -> None:
    bundle, device = make_bundle(1, 20, stamp=(18, 9), step=1.0), SimulatedDevice(compiled=False)
    found = decorrelate(device, BandedCore(device, shape_of([bundle], INNER, NDIAG)), [bundle], INNER, NDIAG)
    assert (found.status == Status.FAILED).all() and not found.flux.any()
    LAUNCHED.update(device.launched)


def test_every_kernel_was_launched() -> None:
    declared = {kernel.name for kernel in DECLARED if kernel.name.split(".")[0] in OURS}
    assert declared - LAUNCHED == set()
