"""The part of cupy that device.cuda.real uses, on numpy: everything happens at once, so only requests are tested.

Pools provide memory that holds garbage, count what is in use, and respect a limit; a name that cupy does not have is an
error.
"""
import ctypes
import re
import sys
import weakref
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from host_text import run_lanes

from gpu_extract.device.cuda import text

CALLS: list[str] = []


def kernel_of(entry: str) -> text.TextKernel:
    """The kernel with this entry."""
    for kernel in text.all_kernels():
        found = re.fullmatch("_".join(("all", kernel.function, *kernel.real.split())) + r"((?:_\d+)*)", entry)
        numbers = [int(number) for number in found[1].split("_")[1:]] if found else []
        if found and len(numbers) == kernel.kinds.count("n"):
            return kernel.sized(*numbers)
    raise KeyError(entry)


class OutOfMemoryError(MemoryError):
    """As cupy.cuda.memory.OutOfMemoryError."""


class Pointer:
    """As cupy.cuda.MemoryPointer: bytes from `memory` on."""

    def __init__(self, memory: np.ndarray):
        self.memory = memory
        self.ptr = memory.ctypes.data

    def _bytes(self, size: int) -> np.ndarray:
        return self.memory.reshape(-1).view(np.uint8)[:size]

    def memset_async(self, value: int, size: int, stream: Any) -> None:
        stream.put(lambda: self._bytes(size).fill(value))


def memcpy_async(target: int, source: int, size: int, kind: int, stream: int) -> None:
    """As cupy.cuda.runtime.memcpyAsync. A pointer's own copies are missing: cupy does not capture them."""
    assert kind in (1, 2)
    Stream.every[stream].put(lambda: np.copyto(bytes_at(target, size), bytes_at(source, size)))


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
    """As cupy.cuda.PinnedMemoryPool: it provides buffers."""

    def malloc(self, size: int) -> Any:
        return super().malloc(size).memory


class Stream:
    """As cupy.cuda.Stream. `put` executes a call, or keeps it for a graph."""

    current: ClassVar[list["Stream"]] = []
    every: ClassVar[dict[int, "Stream"]] = {}

    def __init__(self, null: bool = False, non_blocking: bool = False):
        assert non_blocking, "a blocking stream waits for the default one"
        self.ptr = id(self)
        Stream.every[self.ptr] = self
        self.captured: list[Any] | None = None

    def put(self, thing: Any) -> None:
        if self.captured is None:
            thing()
        else:
            self.captured.append(thing)

    def begin_capture(self) -> None:
        assert self.captured is None
        CALLS.append("begin_capture")
        self.captured = []

    def end_capture(self) -> "Graph":
        assert self.captured is not None
        things, self.captured = self.captured, None
        return Graph(things)

    def wait_event(self, event: "Event") -> None:
        assert isinstance(event, Event)

    def __enter__(self) -> "Stream":
        Stream.current.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        Stream.current.pop()


class Graph:
    """As cupy.cuda.Graph."""

    def __init__(self, things: list[Any]):
        self._things = things

    def launch(self, stream: Stream) -> None:
        assert isinstance(stream, Stream)
        CALLS.append(f"graph of {'many' if len(self._things) > 100 else 'few'}")
        for thing in self._things:
            stream.put(thing)


class Event:
    """As cupy.cuda.Event."""

    def record(self, stream: Any = None) -> None:
        assert stream is None or isinstance(stream, Stream)

    def synchronize(self) -> None:
        CALLS.append("event.synchronize")


class RawModule:
    """As cupy.RawModule: the text is compiled for the host; a launch runs all lanes of its grid, including those beyond
    the end, which the text skips."""

    def __init__(self, *, code: str, options: tuple[str, ...]):
        assert options == text.OPTIONS and "--fmad=false" in options, "a GPU would round otherwise"
        self._code = code

    def get_function(self, name: str) -> Any:
        kernel = kernel_of(name)
        assert text.source(*kernel.unit) == self._code

        def launch(grid: tuple[int], block: tuple[int], args: tuple[Any, ...]) -> None:
            count, values = int(args[0]), args[1:]
            assert Stream.current, "a launch outside of a stream goes to the default one"
            assert grid[0] > 0, "a GPU refuses a grid of no block"
            lanes = block[0] // kernel.threads
            assert grid[0] * lanes >= count > (grid[0] - 1) * lanes and block[0] == kernel.block
            assert all(isinstance(value, Array | np.float64 | np.int64 | np.uintp) for value in args)
            Stream.current[-1].put(lambda: run_lanes(kernel, count, -1, values))
        return launch


class RawKernel:
    """As cupy.RawKernel, of unknown content."""

    def __init__(self, code: str, name: str):
        assert f"__global__ void {name}(" in code
        self._name = name

    def __call__(self, grid: tuple[int], block: tuple[int], args: tuple[Any, ...]) -> None:
        assert Stream.current, "a launch outside of a stream goes to the default one"
        CALLS.append(self._name)


@contextmanager
def using_allocator(allocator: Any) -> Any:
    yield


def install(monkeypatch: Any) -> None:
    """Make `import cupy` find this."""
    CALLS.clear()
    runtime = SimpleNamespace(getDeviceCount=lambda: 1, getDeviceProperties=lambda n: {"name": b"Stand-in"},
                              deviceSynchronize=lambda: CALLS.append("deviceSynchronize"),
                              memcpyAsync=memcpy_async, memcpyHostToDevice=1, memcpyDeviceToHost=2)
    nvtx = SimpleNamespace(RangePush=lambda name: CALLS.append(f"push {name}"), RangePop=lambda: CALLS.append("pop"))
    part = SimpleNamespace(
        runtime=runtime, nvtx=nvtx, MemoryPool=Pool, PinnedMemoryPool=PinnedPool, Stream=Stream, Event=Event,
        using_allocator=using_allocator, get_elapsed_time=lambda a, b: 1.0,
        get_current_stream=lambda: Stream.current[-1] if Stream.current else None,
        Device=lambda number: SimpleNamespace(use=lambda: None, mem_info=(1 << 34, 1 << 35)))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=part, ndarray=Array, RawModule=RawModule,
                                                             RawKernel=RawKernel))
