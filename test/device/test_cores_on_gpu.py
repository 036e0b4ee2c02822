"""The cores on a GPU against the same on the simulated device; the device's libraries against LAPACK; MPS."""
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decorrelate.cases import EPS, MASKS, make_bundle
from device.pieces import decorrelate, shape_of, upload
from gpu_extract.data import Status
from gpu_extract.decorrelate.dense import Cuts
from gpu_extract.device.cuda import matrices as kernels
from gpu_extract.device.cuda.algebra import HostAlgebra
from gpu_extract.device.cuda.real import CupyDevice, load_cupy
from gpu_extract.device.cuda.simulated import SimulatedDevice
from gpu_extract.device.device_banded import BandedCore
from gpu_extract.device.device_dense import DenseCore
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


def makers() -> dict[str, Any]:
    return {"banded": lambda device, shape: BandedCore(device, shape),
            "dense": lambda device, shape: DenseCore(device, shape, Cuts(INNER, 25, 20, 2, 1e-6))}


@pytest.mark.parametrize("name", makers())
@pytest.mark.parametrize("mask", MASKS)
def test_as_simulated(gpu: Any, name: str, mask: str) -> None:
    case, simulated = make_bundle(5, 90, mask=mask, stamp=(7, 11), step=1.9), SimulatedDevice()
    shape = shape_of([case], INNER, NDIAG)
    found, wanted = (decorrelate(device, makers()[name](device, shape), [case], INNER, NDIAG)
                     for device in (gpu, simulated))
    np.testing.assert_array_equal(found.status, wanted.status)
    for fibre in np.nonzero((found.status == Status.GOOD).all(axis=1))[0]:
        bound = 1e-10 + 100 * EPS * case.oracle(fibre).cond
        error = (found.flux[fibre] - wanted.flux[fibre]) * np.sqrt(wanted.ivar[fibre])
        assert np.abs(error).max() <= bound
        np.testing.assert_allclose(found.ivar[fibre], wanted.ivar[fibre], rtol=bound)
        np.testing.assert_allclose(found.resolution[fibre], wanted.resolution[fibre], rtol=0, atol=bound)


@pytest.mark.parametrize("name", makers())
def test_the_same_bits_twice_and_in_any_piece(gpu: Any, name: str) -> None:
    cases = [make_bundle(5, 90, mask=mask, stamp=(7, 11), step=1.9) for mask in ("clean", "gap")]
    together = decorrelate(gpu, makers()[name](gpu, shape_of(cases, INNER, NDIAG)), cases, INNER, NDIAG)
    for _ in range(2):
        alone = [decorrelate(gpu, makers()[name](gpu, shape_of([case], INNER, NDIAG)), [case], INNER, NDIAG)
                 for case in cases]
        for array in NAMES:
            np.testing.assert_array_equal(getattr(together, array),
                                          np.concatenate([getattr(part, array) for part in alone]))


def test_libraries(gpu: Any) -> None:
    """Factors, eigenvectors in rows, products, and codes of the matrices that have no factor."""
    rng = np.random.default_rng(1)
    square = rng.normal(size=(8, 60, 60))
    spd = square @ square.transpose(0, 2, 1) + np.eye(60)
    broken = spd.copy()
    broken[3, 30, 30] = -1.0
    stream, done = gpu.stream(), gpu.event()
    factors, matrices = upload(gpu, broken, stream), upload(gpu, spd, stream)
    values, codes, squares = gpu.empty((8, 60)), gpu.empty((2, 8), np.int32), gpu.empty((8, 60, 60))
    gpu.call(lambda: gpu.linalg.cholesky(factors.data, codes.data[0]), stream)
    gpu.call(lambda: gpu.linalg.eigh(matrices.data, values.data, codes.data[1]), stream)
    gpu.launch(kernels.inner, squares.data.size, (squares, matrices), stream)
    arrays = []
    for there in (factors, matrices, values, codes, squares):
        arrays.append(gpu.pinned(there.shape, there.dtype))
        gpu.download(there, arrays[-1], stream)
    gpu.record(done, stream)
    gpu.finish(done)
    low, vectors, found, info, unit = arrays
    assert info[0, 3] == 31 and not np.delete(info[0], 3).any() and not info[1].any()
    host, host_codes = broken.copy(), np.zeros(8, np.int32)
    HostAlgebra().cholesky(host, host_codes)
    assert host_codes[3] == 31
    good = [n for n in range(8) if n != 3]
    np.testing.assert_allclose(np.tril(low)[good], np.tril(host)[good], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(vectors @ spd @ vectors.transpose(0, 2, 1), found[:, :, None] * np.eye(60), atol=1e-9)
    np.testing.assert_allclose(unit, np.broadcast_to(np.eye(60), unit.shape), atol=1e-11)


def test_mps(gpu: Any) -> None:
    """The real daemon starts, and a rank works under it; skipped, with its message, where it cannot be had."""
    if shutil.which("nvidia-cuda-mps-control") is None:
        pytest.skip("MPS unavailable: there is no nvidia-cuda-mps-control on the PATH")
    work = "import cupy; assert float(cupy.arange(1000.0).sum()) == 499500.0"
    done = subprocess.run([sys.executable, ROOT / "bin" / "mps_wrapper", "--require", sys.executable, "-c", work],
                          capture_output=True, text=True, check=False, timeout=120)
    if "MPS unavailable" in done.stderr or done.returncode == 4:
        pytest.skip(f"MPS unavailable: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
