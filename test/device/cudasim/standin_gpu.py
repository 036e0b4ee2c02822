"""What device.cuda.real uses of cupy, on numpy: everything happens at once, so that only what is asked for is tested.

Pools hand out memory that holds garbage and count what is out; a limit is kept; what is not cupy's name is an error.
"""
import ctypes
import sys
import weakref
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from numba import cuda

from gpu_extract.device.cuda import text
from gpu_extract.device.cuda.host_text import run_lanes

CALLS: list[str] = []
KERNELS = [kernel.sized(half, *more) for kernel in text.declared_texts() for half in range(1, 40)
           for more in ([()] if len(kernel.samples[0]) == 1 else [(ndiag,) for ndiag in range(1, 12)])]


class OutOfMemoryError(MemoryError):
    """As cupy.cuda.memory.OutOfMemoryError."""


class Pointer:
    """As cupy.cuda.MemoryPointer: bytes from `memory` on."""

    def __init__(self, memory: np.ndarray):
        self.memory = memory
        self.ptr = memory.ctypes.data

    def copy_from_host_async(self, mem: int, size: int, stream: Any = None) -> None:
        self.memory.reshape(-1).view(np.uint8)[:size] = bytes_at(mem, size)

    def copy_to_host_async(self, mem: int, size: int, stream: Any = None) -> None:
        bytes_at(mem, size)[:] = self.memory.reshape(-1).view(np.uint8)[:size]

    def memset_async(self, value: int, size: int, stream: Any = None) -> None:
        self.memory.reshape(-1).view(np.uint8)[:size] = value


def bytes_at(place: int, size: int) -> np.ndarray:
    return np.frombuffer((ctypes.c_uint8 * size).from_address(place), np.uint8)


class Array(np.ndarray):
    """As cupy.ndarray(shape, dtype, memptr); `data` is a pointer."""

    def __new__(cls, shape: Any, dtype: Any, memptr: Any) -> "Array":
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        return memptr.memory[:size].view(dtype).reshape(shape).view(cls)

    @property
    def data(self) -> Pointer:      # type: ignore[override]
        return Pointer(self.view(np.ndarray))


class Pool:
    """As cupy.cuda.MemoryPool."""

    def __init__(self) -> None:
        self.limit, self.out, self.idle = 0, 0, 0

    def set_limit(self, size: int) -> None:
        self.limit = size

    def malloc(self, size: int) -> SimpleNamespace:
        if self.limit and self.out + size > self.limit:
            raise OutOfMemoryError(f"Out of memory allocating {size} bytes")
        memory = np.full(size, 0xFB, np.uint8)
        self.out += size
        weakref.finalize(memory, self._back, size)
        return SimpleNamespace(memory=memory)

    def _back(self, size: int) -> None:
        self.out -= size
        self.idle += size

    def total_bytes(self) -> int:
        return self.out + self.idle

    def free_bytes(self) -> int:
        return self.idle

    def used_bytes(self) -> int:
        return self.out

    def free_all_blocks(self) -> None:
        CALLS.append("free_all_blocks")
        self.idle = 0


class PinnedPool(Pool):
    """As cupy.cuda.PinnedMemoryPool: what it gives is a buffer."""

    def malloc(self, size: int) -> Any:
        return super().malloc(size).memory


class Stream:
    """As cupy.cuda.Stream."""

    current: ClassVar[list["Stream"]] = []
    made = 0

    def __init__(self, null: bool = False, non_blocking: bool = False):
        assert non_blocking, "a blocking stream waits for the default one"
        Stream.made += 1
        self.ptr = 64 * Stream.made

    def wait_event(self, event: "Event") -> None:
        assert isinstance(event, Event)

    def __enter__(self) -> "Stream":
        Stream.current.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        Stream.current.pop()


class Event:
    """As cupy.cuda.Event."""

    def record(self, stream: Any = None) -> None:
        assert stream is None or isinstance(stream, Stream)

    def synchronize(self) -> None:
        CALLS.append("event.synchronize")


class RawModule:
    """As cupy.RawModule: the text is compiled for the host; a launch runs all lanes of its grid, those beyond the end
    too, which the text leaves out."""

    def __init__(self, *, code: str, options: tuple[str, ...]):
        assert options == text.OPTIONS
        self._code = code

    def get_function(self, name: str) -> Any:
        kernel = next(kernel for kernel in KERNELS if kernel.entry == name and text.source(kernel) == self._code)

        def launch(grid: tuple[int], block: tuple[int], args: tuple[Any, ...]) -> None:
            count, values = int(args[0]), args[1:]
            assert Stream.current, "a launch outside of a stream goes to the default one"
            assert grid[0] * block[0] >= count > (grid[0] - 1) * block[0] and block[0] == kernel.block
            assert all(isinstance(value, Array | np.float64 | np.int64) for value in args)
            run_lanes(kernel, count, -1, values)
        return launch


@contextmanager
def using_allocator(allocator: Any) -> Any:
    yield


def install(monkeypatch: Any) -> None:
    """Make `import cupy` find this, and numba take its arrays for a device's."""
    CALLS.clear()
    runtime = SimpleNamespace(getDeviceCount=lambda: 1, getDeviceProperties=lambda n: {"name": b"Stand-in"},
                              deviceSynchronize=lambda: CALLS.append("deviceSynchronize"))
    nvtx = SimpleNamespace(RangePush=lambda name: CALLS.append(f"push {name}"), RangePop=lambda: CALLS.append("pop"))
    part = SimpleNamespace(
        runtime=runtime, nvtx=nvtx, MemoryPool=Pool, PinnedMemoryPool=PinnedPool, Stream=Stream, Event=Event,
        using_allocator=using_allocator, get_elapsed_time=lambda a, b: 1.0,
        get_current_stream=lambda: Stream.current[-1] if Stream.current else None,
        Device=lambda number: SimpleNamespace(use=lambda: None, mem_info=(1 << 34, 1 << 35)))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=part, ndarray=Array, RawModule=RawModule))
    monkeypatch.setattr(cuda, "as_cuda_array", lambda data, sync: data.view(np.ndarray), raising=False)
    monkeypatch.setattr(cuda, "external_stream", lambda place: place)
