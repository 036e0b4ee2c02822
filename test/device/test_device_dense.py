"""The dense core on a (simulated) device against that of the CPU, with the same cuts."""
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from decorrelate.cases import EPS, Bundle, make_bundle
from device.pieces import decorrelate, shape_of
from gpu_extract.bundle import clear_corners
from gpu_extract.data import Decorrelated, Status
from gpu_extract.decorrelate import dense
from gpu_extract.device.cuda.algebra import HostAlgebra
from gpu_extract.device.cuda.simulated import SimulatedDevice
from gpu_extract.device.device_dense import DenseCore, NoCore, closest_allowed
from gpu_extract.perf.recorder import Recorder
from gpu_extract.plan import enough_neighbours

INNER, NDIAG = slice(9, 82), 3
CUTS = dense.Cuts(INNER, 25, 20, 2, 1e-6)


@cache
def bundle(mask: str, nfibre: int = 5) -> Bundle:
    return make_bundle(nfibre, 90, mask=mask, stamp=(7, 11), step=1.9)


def on_device(*bundles: Bundle, cuts: dense.Cuts = CUTS, count: int = 7,
              algebra: HostAlgebra | None = None) -> Decorrelated:
    device = SimulatedDevice()
    device.linalg = algebra or device.linalg
    return decorrelate(device, DenseCore(device, shape_of(bundles, INNER, NDIAG), cuts, count=count), bundles, INNER,
                       NDIAG)


def on_cpu(case: Bundle, cuts: dense.Cuts = CUTS) -> Decorrelated:
    parts = [dense.decorrelate(case.normal, case.x, (i, i + 1), ndiag=NDIAG, cuts=cuts) for i in range(len(case.x))]
    whole = Decorrelated(*(np.concatenate([getattr(part, name) for part in parts])
                           for name in ("flux", "ivar", "resolution", "status", "weak")))
    clear_corners(whole.resolution)
    return whole


@pytest.mark.parametrize("mask", ["clean", "column", "gap"])
def test_as_the_cpu(mask: str) -> None:
    """Both leave 1e-6 sigma at most to padding; where no patch ends differently, they differ by rounding."""
    case = bundle(mask)
    found, wanted = on_device(case), on_cpu(case)
    good = found.status == Status.GOOD
    assert good.mean() > 0.7, "masks may ask for more neighbours, but not everywhere"
    np.testing.assert_array_equal(found.status[good], wanted.status[good])
    assert np.isin(found.status[~good], (Status.FAILED, Status.EMPTY)).all()
    for fibre in range(len(case.x)):
        bound = 2e-6 + 100 * EPS * case.oracle(fibre).cond
        kept = good[fibre]
        error = (found.flux[fibre] - wanted.flux[fibre]) * np.sqrt(wanted.ivar[fibre])
        assert np.abs(error[kept]).max(initial=0.0) <= bound
        np.testing.assert_allclose(found.ivar[fibre, kept], wanted.ivar[fibre, kept], rtol=bound)
        np.testing.assert_allclose(found.resolution[fibre][:, kept], wanted.resolution[fibre][:, kept], rtol=0,
                                   atol=bound)
    assert not found.flux[~good].any() and not found.ivar[~good].any()


def test_to_rounding_without_cuts() -> None:
    """One patch holds all bins and all fibres: nothing is left to padding."""
    case, cuts = bundle("clean"), dense.Cuts(INNER, 73, 40, 4, 1e-8)
    found, wanted = on_device(case, cuts=cuts, count=3), on_cpu(case, cuts)
    assert (found.status == Status.GOOD).all()
    assert np.abs((found.flux - wanted.flux) * np.sqrt(wanted.ivar)).max() <= 1e-10
    np.testing.assert_allclose(found.ivar, wanted.ivar, rtol=1e-11)
    np.testing.assert_allclose(found.resolution, wanted.resolution, rtol=0, atol=1e-11)


def test_any_number_at_a_time_and_any_piece_give_the_same_bits() -> None:
    cases = bundle("clean"), bundle("column")
    together, other = on_device(*cases, count=64), on_device(*cases, count=5)
    alone = [on_device(case, count=64) for case in cases]
    for name in ("flux", "ivar", "resolution", "status", "weak"):
        array = getattr(together, name)
        np.testing.assert_array_equal(array, getattr(other, name))
        np.testing.assert_array_equal(array, np.concatenate([getattr(part, name) for part in alone]))


def test_a_mask_that_asks_for_more_neighbours_is_left_to_the_cpu() -> None:
    found = on_device(bundle("gap"), cuts=replace(CUTS, neighbours=1, tolerance=1e-12))
    assert (found.status == Status.FAILED).any()


def test_the_most_that_neighbours_allow() -> None:
    for neighbours in (1, 2, 3):
        limit = closest_allowed(neighbours, 1e-8)
        assert enough_neighbours(np.array([limit]), 1e-8) <= neighbours
        assert enough_neighbours(np.array([limit * (1 + 1e-9)]), 1e-8) > neighbours


def test_not_definite_is_failed() -> None:
    """The library's code is read: the CPU's core then asks the pixels."""
    case = bundle("clean", 7)
    icov = case.normal.icov.copy()
    icov[2, 0, 40, icov.shape[3] // 2] *= 1e-3
    found = on_device(Bundle(replace(case.normal, icov=icov), case.x, case.dense))
    assert (found.status[2, 25:35] == Status.FAILED).all() and not found.flux[2, 25:35].any()
    assert (found.status[6] == Status.GOOD).all()


def test_a_range_for_every_batch_of_patches() -> None:
    """NVTX ranges come from the recorder where it is asked for them, and nowhere else."""
    case, device, recorder = bundle("clean"), SimulatedDevice(), Recorder()
    core = DenseCore(device, shape_of([case], INNER, NDIAG), CUTS, count=7)
    decorrelate(device, core, [case], INNER, NDIAG, recorder=recorder)
    assert device.ranges == []
    recorder.watch(device, ranges=True)
    decorrelate(device, core, [case], INNER, NDIAG, recorder=recorder)
    assert device.ranges == ["patches"] * 3, "15 patches, 7 at a time"


class WrongVectors(HostAlgebra):
    """A solver that says it is done, with vectors that are none: it happened."""

    def eigh(self, matrices: np.ndarray, values: np.ndarray, codes: np.ndarray) -> None:
        super().eigh(matrices, values, codes)
        matrices[1, 10] = matrices[1, 11]


class WrongCode(HostAlgebra):
    """A solver that did not converge and says so, although its numbers would do."""

    def eigh(self, matrices: np.ndarray, values: np.ndarray, codes: np.ndarray) -> None:
        super().eigh(matrices, values, codes)
        codes[1] = 7


@pytest.mark.parametrize("algebra", [WrongVectors, WrongCode])
def test_a_solver_is_not_trusted(algebra: type[HostAlgebra]) -> None:
    found = on_device(bundle("clean"), count=64, algebra=algebra())
    assert (found.status[0, 25:50] == Status.FAILED).all(), "patch 1 of fibre 0"
    assert (np.delete(found.status.reshape(5, -1), slice(25, 50), axis=1) == Status.GOOD).all()


def test_bins_without_weight() -> None:
    found = on_device(bundle("gap"))
    dark = bundle("gap").normal.weight[:, INNER] == 0
    assert dark.any()
    assert not found.flux[dark].any() and not found.ivar[dark].any()


def test_everything_is_left_to_the_cpu_where_asked() -> None:
    case, device = bundle("clean"), SimulatedDevice()
    found = decorrelate(device, NoCore(device, shape_of([case], INNER, NDIAG)), [case], INNER, NDIAG)
    assert (found.status == Status.FAILED).all() and not found.resolution.any()
