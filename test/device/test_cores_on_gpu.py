"""The core on a GPU, compared with the simulated device; MPS."""
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated_device import SimulatedDevice

from decorrelate.cases import EPS, MASKS, make_bundle
from device.pieces import decorrelate, shape_of
from gpu_extract.data import Status
from gpu_extract.device.cuda.real import CupyDevice, load_cupy
from gpu_extract.device.device_banded import BandedCore
from gpu_extract.errors import InputError

pytestmark = pytest.mark.gpu
INNER, NDIAG = slice(9, 82), 3
NAMES = ("flux", "ivar", "resolution", "status")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def gpu() -> Iterator[Any]:
    """The first GPU."""
    try:
        load_cupy()
    except InputError as error:
        pytest.skip(str(error))
    device = CupyDevice(0)
    yield device
    device.close()


@pytest.mark.parametrize("mask", MASKS)
def test_a_gpu_decorrelates_like_the_simulated_device(gpu: Any, mask: str) -> None:
    case, simulated = make_bundle(5, 90, mask=mask, stamp=(7, 11), step=1.9), SimulatedDevice()
    shape = shape_of([case], INNER, NDIAG)
    found, wanted = (decorrelate(device, BandedCore(device, shape), [case], INNER, NDIAG)
                     for device in (gpu, simulated))
    np.testing.assert_array_equal(found.status, wanted.status)
    for fibre in np.nonzero((found.status == Status.GOOD).all(axis=1))[0]:
        bound = 1e-10 + 100 * EPS * case.oracle(fibre).cond
        error = (found.flux[fibre] - wanted.flux[fibre]) * np.sqrt(wanted.ivar[fibre])
        assert np.abs(error).max() <= bound
        np.testing.assert_allclose(found.ivar[fibre], wanted.ivar[fibre], rtol=bound)
        np.testing.assert_allclose(found.resolution[fibre], wanted.resolution[fibre], rtol=0, atol=bound)


def test_the_same_bits_twice_and_in_any_piece(gpu: Any) -> None:
    cases = [make_bundle(5, 90, mask=mask, stamp=(7, 11), step=1.9) for mask in ("clean", "gap")]
    together = decorrelate(gpu, BandedCore(gpu, shape_of(cases, INNER, NDIAG)), cases, INNER, NDIAG)
    for _ in range(2):
        alone = [decorrelate(gpu, BandedCore(gpu, shape_of([case], INNER, NDIAG)), [case], INNER, NDIAG)
                 for case in cases]
        for array in NAMES:
            np.testing.assert_array_equal(getattr(together, array),
                                          np.concatenate([getattr(part, array) for part in alone]))


def test_a_rank_works_under_the_mps_daemon(gpu: Any) -> None:
    """The real daemon starts, and a rank works under it; skipped, with its message, if it is unavailable."""
    if shutil.which("nvidia-cuda-mps-control") is None:
        pytest.skip("MPS unavailable: nvidia-cuda-mps-control is not on the PATH")
    work = "import cupy; assert float(cupy.arange(1000.0).sum()) == 499500.0"
    done = subprocess.run([sys.executable, ROOT / "bin" / "mps_wrapper", "--require", sys.executable, "-c", work],
                          capture_output=True, text=True, check=False, timeout=120)
    if "MPS unavailable" in done.stderr or done.returncode == 4:
        pytest.skip(f"MPS unavailable: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
