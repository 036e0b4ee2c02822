"""A device that does nothing: it counts what it is asked for, so that the host's part of a frame can be looked at.

Arrays of the device have no memory; what comes down is zeros, which the host takes for bundles that converged.
"""
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from gpu_extract.config import ExtractConfig
from gpu_extract.data import Image
from gpu_extract.device.frames import GpuFrames
from gpu_extract.perf import clock
from gpu_extract.run import extract
from gpu_extract.simulate.instrument import psf_model

WAVE = (5760.0, 7620.0, 0.8)      # of the frame that bench/gpu_frame.py times: r, 2326 bins
SHAPE = 4128, 4114
PAGE = 4096


def paged(shape: Sequence[int], dtype: Any, fill: int) -> np.ndarray:
    """Host memory that begins where a page does, as pinned memory; fill: of its bytes."""
    size = prod(shape) * np.dtype(dtype).itemsize + PAGE
    block = np.full(size, fill, np.uint8) if fill else np.zeros(size, np.uint8)
    return np.ndarray(tuple(shape), dtype, block, -block.ctypes.data % PAGE)


class Launch(NamedTuple):
    """One launch as it was queued: kernel, lanes, its arguments (shapes of arrays, numbers), its stream's number.

    nodes: of the graph that begins with it when it is replayed, 0: it is a later one of a graph, None: of none
    """

    kernel: Any
    count: int
    args: tuple[Any, ...]
    stream: int
    nodes: int | None = None


class Graph(NamedTuple):
    """What was captured: launches, and bytes of each kind; nodes: these and copies and clearings."""

    launches: list[Launch]
    bytes: Counter[str]
    nodes: int


class StubArray:
    """Device memory that is not there."""

    data = None

    def __init__(self, shape: Sequence[int], dtype: Any):
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)

    def part(self, first: int, last: int) -> "StubArray":
        """See seam.DeviceArray."""
        return StubArray((last - first, *self.shape[1:]), self.dtype)

    def seen_as(self, shape: Sequence[int], dtype: Any) -> "StubArray":
        """See seam.DeviceArray."""
        return StubArray(shape, dtype)


class StubDevice:
    """See seam.Device. calls: how often each verb that reaches a driver was called; bytes: up, down, allocated."""

    name = "stub"

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self.calls: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self._streams = 0

    def empty(self, shape: Sequence[int], dtype: Any = np.float64) -> StubArray:
        """See seam.Device."""
        self.bytes["allocated"] += prod(shape) * np.dtype(dtype).itemsize
        return StubArray(shape, dtype)

    def pinned(self, shape: Sequence[int], dtype: Any = np.float64) -> np.ndarray:
        """See seam.Device."""
        return paged(shape, dtype, 0)

    def stream(self) -> int:
        """See seam.Device."""
        self._streams += 1
        return self._streams

    def record(self, stream: Any) -> Any:
        """See seam.Device."""
        self.calls["record"] += 1
        return object()

    def wait(self, stream: Any, event: Any) -> None:
        """See seam.Device."""
        self.calls["wait"] += 1

    def finish(self, event: Any) -> None:
        """See seam.Device."""
        self.calls["finish"] += 1

    def current(self, stream: Any) -> AbstractContextManager[Any]:
        """See seam.Device."""
        return nullcontext()

    def upload(self, source: np.ndarray, target: StubArray, stream: Any) -> None:
        """See seam.Device."""
        self.calls["upload"] += 1
        self.bytes["up"] += source.nbytes

    def download(self, source: StubArray, target: np.ndarray, stream: Any) -> None:
        """See seam.Device."""
        self.calls["download"] += 1
        self.bytes["down"] += target.nbytes

    def clear(self, array: StubArray, stream: Any) -> None:
        """See seam.Device."""
        self.calls["clear"] += 1
        self.bytes["cleared"] += prod(array.shape) * array.dtype.itemsize

    def launch(self, kernel: Any, count: int, args: tuple[Any, ...], stream: int) -> None:
        """See seam.Device."""
        self.calls["launch"] += 1
        if count > 0:
            self.launches.append(Launch(kernel, count, tuple(getattr(a, "shape", a) for a in args), stream))

    def get_ready(self, work: Any) -> None:
        """See seam.Device."""

    def capture(self, work: Any, stream: Any) -> Graph:
        """See seam.Device."""
        kept = self.launches, self.calls, self.bytes
        self.launches, self.calls, self.bytes = [], Counter(), Counter()
        try:
            work()
            nodes = sum(self.calls.values())
            launches = [launch._replace(nodes=0 if n else nodes) for n, launch in enumerate(self.launches)]
            return Graph(launches, self.bytes, nodes)
        finally:
            self.launches, self.calls, self.bytes = kept
            self.calls["capture"] += 1

    def replay(self, graph: Graph, stream: Any) -> None:
        """See seam.Device."""
        self.calls["replay"] += 1
        self.bytes.update(graph.bytes)
        self.launches += graph.launches     # on the stream on which they were captured

    def memory(self) -> int:
        """See seam.Device."""
        return self.bytes["allocated"]

    def facts(self) -> dict[str, Any]:
        """See seam.Device."""
        return {"name": self.name, "number": 0, "memory": 0}

    def free_memory(self) -> int:
        """See seam.Device."""
        return 1 << 40

    def is_out_of_memory(self, error: BaseException) -> bool:
        """See seam.Device."""
        return isinstance(error, MemoryError)

    def close(self) -> None:
        """See seam.Device."""


def warm_frame(nspec: int = 500, frames: int = 5) -> SimpleNamespace:
    """What a warm r frame asks of a device: launches, calls, bytes, pieces, and the host's own CPU seconds (the least
    of the frames; the stub's counting is in them)."""
    device, psf, image = StubDevice(), psf_model("r"), Image(np.zeros(SHAPE, np.float32), np.ones(SHAPE, np.float32))
    backend, seconds = GpuFrames(lambda: device), []
    config = ExtractConfig(WAVE, nspec=nspec)
    for _ in range(frames + 1):
        device.launches.clear()
        device.calls.clear()
        up, down = device.bytes["up"], device.bytes["down"]
        start = clock.cpu()
        extract(image, psf, config, backend=backend, dtype="float32")
        seconds.append(clock.cpu() - start)
    return SimpleNamespace(launches=list(device.launches), calls=dict(device.calls), up=device.bytes["up"] - up,
                           down=device.bytes["down"] - down, allocated=device.bytes["allocated"],
                           pieces=backend.flow.pieces, seconds=min(seconds[1:]))
