"""--gpu, --no-gpu and neither: which device is used, what is reported, and what a frame's header records."""
import platform
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from simulated_device import SimulatedDevice

from gpu_extract.cli.device import budget, choose_backend
from gpu_extract.cpu_frame import CpuFrames
from gpu_extract.device.cuda import real
from gpu_extract.device.frames import GpuFrames
from gpu_extract.errors import InputError
from gpu_extract.ranks.comm import SERIAL, Comm

FREE, TOTAL = 60 << 30, 80 << 30


class Rank(Comm):
    """One of several ranks: its place on its node, and what the others lack."""

    def __init__(self, place: tuple[int, int] = (0, 1), others: tuple[str, ...] = ()):
        self.place, self.others = place, others

    def on_node(self) -> tuple[int, int]:
        return self.place

    def gather(self, items: Any) -> Any:
        return [*self.others, *(value for _, value in items)]


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[int, int | None]]]:
    """Simulate so many GPUs; returns the list of those that are opened: number and limit."""
    def show(count: int, memory: int = 1 << 34) -> list[tuple[int, int | None]]:
        opened: list[tuple[int, int | None]] = []

        def device(number: int, limit: int | None) -> SimulatedDevice:
            opened.append((number, limit))
            return SimulatedDevice(memory)

        monkeypatch.setattr("gpu_extract.cli.device.find_spec", lambda name: object())
        monkeypatch.setattr(real, "count_devices", lambda: count)
        monkeypatch.setattr(real, "memory_of", lambda number: (FREE, TOTAL))
        monkeypatch.setattr(real, "CupyDevice", device)
        return opened
    return show


@pytest.fixture
def no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without cupy, even if it is installed here."""
    monkeypatch.setattr("gpu_extract.cli.device.find_spec", lambda name: None)

    def count() -> int:
        raise real.NoDevice("a GPU needs cupy", "install it")
    monkeypatch.setattr(real, "count_devices", count)


def on_cpu(gpu: bool | None, comm: Any) -> str:
    """What is reported of the CPU, which must be chosen."""
    backend, said = choose_backend(gpu, comm, many=False)
    assert isinstance(backend, CpuFrames)
    return said


def test_what_is_taken_without_a_gpu(no_cupy: None) -> None:
    assert on_cpu(None, SERIAL) == "CPU (cupy is not installed)"
    assert on_cpu(False, SERIAL) == "CPU (--no-gpu)"
    with pytest.raises(InputError, match=r"^--gpu: a GPU needs cupy: install it$"):
        choose_backend(True, SERIAL, many=False)


@pytest.mark.parametrize("gpu", [None, True])
def test_every_rank_must_have_one(gpu: bool | None, devices: Any) -> None:
    """Ranks on different devices would differ in their bits."""
    opened = devices(2)
    comm = Rank(others=("", "there is no CUDA device"))
    if gpu:
        with pytest.raises(InputError, match=r"^--gpu: there is no CUDA device$"):
            choose_backend(gpu, comm, many=True)
    else:
        assert on_cpu(gpu, comm) == "CPU (there is no CUDA device)"
    assert opened == []


@pytest.mark.parametrize("gpu", [None, True])
@pytest.mark.parametrize(("place", "count", "number", "ranks"), [
    ((0, 1), 1, 0, 1), ((5, 8), 4, 1, 2), ((2, 3), 2, 0, 2), ((7, 8), 1, 0, 8), ((3, 4), 8, 3, 1)])
def test_a_rank_s_device_and_its_part(gpu: bool | None, place: tuple[int, int], count: int, number: int, ranks: int,
                                      devices: Any) -> None:
    opened = devices(count)
    backend, said = choose_backend(gpu, Rank(place), many=True)
    assert opened == [(number, budget(TOTAL, FREE, ranks))]
    assert said == "simulated device" + (f", {ranks} ranks on it" if ranks > 1 else "")
    assert backend.name == "simulated device"


@pytest.mark.parametrize(("given", "cores", "others", "threads"), [
    (None, range(8), [], 8), (None, range(8), [range(8)], 4), (None, range(4), [range(4, 8)], 4), (3, range(8), [], 3)])
def test_the_threads_for_what_it_leaves(given: int | None, cores: Any, others: Any, threads: int, devices: Any,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """All cores of the process, or its share of those that other ranks of its node may also use; ranks of other nodes
    do not count."""
    class Among(Rank):
        def gather(self, items: Any) -> Any:
            mine = super().gather(items)
            if isinstance(mine[0], str):
                return mine
            return [("another node", list(cores)), *((platform.node(), list(own)) for own in others), *mine]

    devices(1)
    monkeypatch.setattr("gpu_extract.perf.recorder.which_cores", lambda: list(cores))
    backend, _ = choose_backend(True, Among(), many=True, threads=given)
    assert isinstance(backend, GpuFrames) and backend.threads == threads


def test_the_cpu_takes_over_and_the_header_says_so(extract: Any, files: Any, devices: Any) -> None:
    """A device without memory for one bundle: a warning, the same spectra, and BUNDLES with who made them.

    The self-test, which follows, judges what the same device makes in double precision.
    """
    devices(1, memory=10_000)
    done = extract("--gpu", "-t")
    assert done.code == 0 and "device: simulated device" in done.err and "oracle" in done.out
    assert done.err.count("has not enough free memory for one bundle: this rank works on the CPU") == 2
    with fits.open(files.output) as hdus:
        found = {name: hdus[name].data.copy() for name in ("FLUX", "IVAR", "RESOLUTION", "MASK", "CHI2PIX", "STATUS")}
        by_cpu = hdus["BUNDLES"].data["ON_CPU"].tolist()
        history = " ".join("".join(hdus[0].header["HISTORY"]).split())
    assert "device: simulated device" in history and by_cpu == [3, 3], "two bundles of three fibres"
    files.output.unlink()
    assert extract("--no-gpu").code == 0
    with fits.open(files.output) as hdus:
        for name, array in found.items():
            np.testing.assert_array_equal(array, hdus[name].data)
