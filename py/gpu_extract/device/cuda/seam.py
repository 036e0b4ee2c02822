"""The seam: all that the backend asks of a device.

Two things implement it: `real.CupyDevice`, a GPU, and the simulated device of tests and benches
(bench/tools/simulated_device.py), which keeps "device" memory in numpy arrays. Work is queued on streams; a stream's
work runs in order, that of different streams in any order that events allow. No verb waits but `finish`, `between` and
`close`.
"""
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import Any, Protocol

import numpy as np

from gpu_extract.device.cuda.text import TextKernel
from gpu_extract.perf import recorder


class DeviceArray:
    """A C-contiguous array in device memory.

    data: the array itself (cupy.ndarray or numpy.ndarray)
    """

    def __init__(self, data: Any):
        self.data, self.shape, self.dtype = data, data.shape, data.dtype

    def part(self, first: int, last: int) -> "DeviceArray":
        """Rows first .. last - 1 along the first axis, in the same memory."""
        return type(self)(self.data[first:last])

    def seen_as(self, shape: Sequence[int], dtype: Any) -> "DeviceArray":
        """The beginning of the same memory as an array of another shape and type."""
        size = prod(shape) * np.dtype(dtype).itemsize
        return type(self)(self.data.reshape(-1).view(np.uint8)[:size].view(dtype).reshape(tuple(shape)))


class Device(recorder.Device, Protocol):
    """One device as one process sees it, and the recorder.

    name: for messages and the header
    """

    name: str

    def empty(self, shape: Sequence[int], dtype: Any = np.float64) -> DeviceArray:
        """Device memory that holds anything; raises what `is_out_of_memory` knows."""

    def pinned(self, shape: Sequence[int], dtype: Any = np.float64) -> np.ndarray:
        """Page-locked host memory that holds anything."""

    def stream(self) -> Any:
        """A new stream."""

    def record(self, stream: Any) -> Any:
        """An event that is reached when all that is on the stream so far is done."""

    def wait(self, stream: Any, event: Any) -> None:
        """What is put on the stream from now on begins after the event."""

    def finish(self, event: Any) -> None:
        """The host waits for an event."""

    def current(self, stream: Any) -> AbstractContextManager[Any]:
        """The stream that `mark` looks at, while this is open."""

    def upload(self, source: np.ndarray, target: DeviceArray, stream: Any) -> None:
        """Queue a copy of all of `source`, C-contiguous and pinned, to all of `target`."""

    def download(self, source: DeviceArray, target: np.ndarray, stream: Any) -> None:
        """Queue a copy of all of `source` to all of `target`, C-contiguous and pinned."""

    def clear(self, array: DeviceArray, stream: Any) -> None:
        """Queue the filling of an array with zero bytes."""

    def launch(self, kernel: TextKernel, count: int, args: tuple[Any, ...], stream: Any) -> None:
        """Queue lanes 0 .. count - 1 of a kernel; args: device arrays, ints and floats as it declares them, without the
        numbers that it is compiled for; None for an array is a null pointer."""

    def get_ready(self, work: Callable[[], None]) -> None:
        """Compile the kernels that work() launches; none of it is done.

        work: asks for copies, clearings and kernels alone
        """

    def capture(self, work: Callable[[], None], stream: Any) -> Any:
        """What work() puts on the stream, as one thing to be replayed; none of it is done now.

        work: asks for copies, clearings and kernels that were launched before, on this stream, and for nothing else
        Raises what the device raises where it cannot do that; the stream is as before then.
        """

    def replay(self, graph: Any, stream: Any) -> None:
        """Queue all that was captured, in its order, with the arguments and the memory of that time."""

    def free_memory(self) -> int:
        """Bytes that can still be had, what the pools hold unused included."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether an error means that device or pinned memory is exhausted."""

    def close(self) -> None:
        """Wait for everything, forget all arrays, give the pools' memory back."""
