"""Every kernel that is declared compiles for the GPUs of today, without one: to PTX, and from that to machine code.

Kernels in CUDA C++ are compiled by NVRTC (bench/tools/gpu_code.py), the others to PTX by numba-cuda.

Needs NVVM and NVRTC: the wheels nvidia-cuda-nvcc-cu12 and nvidia-cuda-nvrtc-cu12 of the extra `test`, Linux only. Those
of CUDA 13 do as well, but no longer know the V100.
"""
import subprocess
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpu_code
import pytest
from gpu_code import Code

from gpu_extract.decorrelate.banded import NARROW
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.device.cuda.kernels import Kernel, declared
from gpu_extract.device.cuda.normal import together
from gpu_extract.device.cuda.text import TextKernel, declared_texts

ARCHITECTURES = {"V100": (7, 0), "A100": (8, 0), "H200": (9, 0)}
KERNELS = {kernel.name: kernel for kernel in declared()}


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


def check_text(kernel: TextKernel, capability: tuple[int, int]) -> Code:
    """Compile a kernel in CUDA C++ with NVRTC."""
    try:
        return gpu_code.compiled(kernel, capability, instructions=False)
    except RuntimeError as error:
        if "no NVRTC here" in str(error):
            pytest.skip(str(error))
        raise


@pytest.mark.parametrize("capability", [(9, 0), *(pytest.param(c, marks=pytest.mark.slow)
                                                  for c in ((7, 0), (8, 0), (10, 0)))])
@pytest.mark.parametrize("text", declared_texts(), ids=lambda text: text.function)
def test_no_recursion_spills(text: TextKernel, capability: tuple[int, int]) -> None:
    """In the bands that come first. A triangle of 13 rows and the right sides of a pole are more than there are
    registers: broader bands, which few fibres need, spill, and compile."""
    for numbers in text.samples:
        code = check_text(text.sized(*numbers), capability)
        assert code.registers <= 255
        assert (numbers and numbers[0] > 9) or (code.spills, code.stack) == (0, 0), (numbers, code)


@pytest.mark.slow
@pytest.mark.parametrize("half", [2, NARROW])
@pytest.mark.parametrize("text", [text for text in declared_texts() if text.samples[0]], ids=lambda text: text.function)
def test_other_half_bands(text: TextKernel, half: int) -> None:
    """The narrowest and the broadest band that the device takes."""
    for extra in Limits().widen:
        number = together(half + extra)[0] if text.name == "normal.couple" else half + extra
        check_text(text.sized(number, *(8 for _ in text.samples[0][1:])), (9, 0))


def test_there_are_kernels() -> None:
    """numba keeps what it has compiled under file, name and line of a function."""
    places = {(k.function.__code__.co_filename, k.function.__qualname__, k.function.__code__.co_firstlineno)
              for k in KERNELS.values()}
    assert len(places) == len(KERNELS) == len(declared())
