"""Every kernel that is declared compiles for the GPUs of today, without one: to PTX, and from that to machine code.

Needs NVVM and NVRTC: the wheels nvidia-cuda-nvcc-cu12 and nvidia-cuda-nvrtc-cu12 of the extra `test`, Linux only. Those
of CUDA 13 do as well, but no longer know the V100.
"""
import subprocess
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_extract.decorrelate.banded import NARROW
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.device.cuda import eliminate, measure, poles
from gpu_extract.device.cuda.kernels import Kernel, declared

ARCHITECTURES = {"V100": (7, 0), "A100": (8, 0), "H200": (9, 0)}
KERNELS = {f"{kernel.name}{[int(kind[1:]) for kind in kernel.kinds if kind[0] == 'n'] or ''}": kernel
           for kernel in declared()}


@pytest.fixture(scope="module")
def cuda() -> Any:
    """numba's CUDA target with a compiler."""
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed (extra test, Linux only)")
    from numba import config, cuda

    if config.ENABLE_CUDASIM:
        pytest.skip("numba's simulator is switched on, which compiles nothing")
    try:
        cuda.cudadrv.nvrtc.get_supported_ccs()
        cuda.cudadrv.nvvm.NVVM()
    except Exception as error:
        pytest.skip(f"no CUDA compiler ({type(error).__name__}: {error}): install the wheels of the extra test")
    return cuda


def compiled(cuda: Any, kernel: Kernel, capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> str:
    """The kernel's PTX."""
    if capability not in cuda.cudadrv.nvrtc.get_supported_ccs():
        pytest.skip(f"this CUDA compiler does not know compute capability {capability}: the V100 needs CUDA 12")
    monkeypatch.setattr("numba.cuda.dispatcher.get_current_device",      # asked for nothing but this
                        lambda: SimpleNamespace(compute_capability=capability))
    text, _ = cuda.compile_ptx(kernel.function, kernel.signature(), cc=capability)
    return str(text)


def check(cuda: Any, kernel: Kernel, gpu: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile it, look at the PTX, and assemble that."""
    capability = ARCHITECTURES[gpu]
    text, number = compiled(cuda, kernel, capability, monkeypatch), f"sm_{capability[0]}{capability[1]}"
    assert f".target {number}" in text
    assert "atom." not in text and "red." not in text, "an atomic: sums would differ from run to run"
    assembler = Path(str(find_spec("nvidia.cuda_nvcc").submodule_search_locations[0])) / "bin" / "ptxas"
    source = folder / "kernel.ptx"
    source.write_text(text)
    done = subprocess.run([assembler, f"-arch={number}", source, "-o", folder / "kernel.cubin"], capture_output=True,
                          text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", KERNELS)
def test_compiles(cuda: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for gpu in ("A100", "H200"):     # one after the other: the second takes a tenth of the time
        check(cuda, KERNELS[name], gpu, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_compiles_for_the_v100(cuda: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(cuda, KERNELS[name], "V100", tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("half", [2, NARROW])
@pytest.mark.parametrize("gpu", ARCHITECTURES)
def test_other_half_bands(cuda: Any, gpu: str, half: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The narrowest and the broadest band that the device takes; beyond 255 registers they spill, but they compile."""
    halves = tuple(half + extra for extra in Limits().widen)
    for kernel in (poles.poles.sized(*halves, 8), measure.ask.sized(*halves), eliminate.factor.sized(half),
                   eliminate.factor_rest.sized(halves[-1]), eliminate.move.sized(halves[-1])):
        check(cuda, kernel, gpu, tmp_path, monkeypatch)


def test_there_are_kernels() -> None:
    assert len(KERNELS) > 20
