"""Every declared kernel compiles for today's GPUs, without one, to machine code (bench/tools/gpu_code.py).

It needs NVRTC: the wheel nvidia-cuda-nvrtc-cu12 of the extra `test`, on Linux only. That of CUDA 13 works as well, but
no longer supports the V100.
"""
import gpu_code
import pytest
from gpu_code import SAMPLES, Code

from gpu_extract.decorrelate.banded import NARROW
from gpu_extract.device.cuda.lanes import couple_launches
from gpu_extract.device.cuda.text import FOLDER, TextKernel, all_kernels
from gpu_extract.device.device_tables import WIDEN


def check_texts(kernels: tuple[TextKernel, ...], capability: tuple[int, int]) -> dict[TextKernel, Code]:
    """Compile kernels in CUDA C++ with NVRTC."""
    try:
        return gpu_code.compiled_together(kernels, capability)
    except RuntimeError as error:
        if "no NVRTC here" in str(error):
            pytest.skip(str(error))
        raise


def check_spills(text: TextKernel, samples: list[tuple[int, ...]], capability: tuple[int, int]) -> None:
    """Teams of threads have room for all bands; one thread for bands up to 9, wider ones as well as it can."""
    sized = tuple(text.sized(*numbers) for numbers in samples)
    found = check_texts(sized if "n" in text.kinds else text.unit, capability)
    for kernel in sized:
        code, numbers = found[kernel], kernel.numbers
        assert code.registers <= 255
        broad = kernel.threads == 1 and numbers and numbers[0] > 9
        assert broad or (code.spills, code.stack) == (0, 0), (numbers, code)


@pytest.mark.parametrize("text", all_kernels(), ids=lambda text: text.function)
def test_no_recursion_spills(text: TextKernel) -> None:
    """With the usual and the largest numbers."""
    samples = SAMPLES.get(text.name, [()])
    check_spills(text, sorted({samples[0], max(samples)}), (9, 0))


@pytest.mark.slow
@pytest.mark.parametrize("capability", [(7, 0), (8, 0), (9, 0), (10, 0)])
@pytest.mark.parametrize("text", all_kernels(), ids=lambda text: text.function)
def test_no_recursion_spills_anywhere(text: TextKernel, capability: tuple[int, int]) -> None:
    """With all numbers that kernels are looked at with."""
    check_spills(text, SAMPLES.get(text.name, [()]), capability)


@pytest.mark.slow
@pytest.mark.parametrize("half", [2, NARROW])
@pytest.mark.parametrize("text", [one for one in all_kernels() if "n" in one.kinds and one.module != "spots"],
                         ids=lambda text: text.function)
def test_kernels_of_extreme_half_bands_compile(text: TextKernel, half: int) -> None:
    """The narrowest and the broadest band that the device supports."""
    sizes = [(half + extra, *(8 for _ in SAMPLES[text.name][0][1:])) for extra in WIDEN]
    if text.name == "normal.couple":
        sizes = [numbers for extra in WIDEN for numbers, _, _ in couple_launches(half + extra, 3, 11)]
    check_texts(tuple(text.sized(*numbers) for numbers in set(sizes)), (9, 0))


def test_no_atomics() -> None:
    """Sums would differ from run to run."""
    text = "".join(header.read_text(encoding="utf-8") for header in FOLDER.glob("*.h"))
    assert "LANE" in text and "atomic" not in text
