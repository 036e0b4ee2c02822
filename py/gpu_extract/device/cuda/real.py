"""A GPU through cupy: memory, streams, pinned pools, kernels."""
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from math import prod
from typing import Any

import numpy as np

from gpu_extract.device.cuda.seam import Device, DeviceArray
from gpu_extract.device.cuda.text import OPTIONS, TextKernel, source
from gpu_extract.errors import InputError
from gpu_extract.perf.recorder import usable_cores

_NUMBERS = {"f8": np.float64, "i8": np.int64}      # as a kernel in CUDA C++ takes them
_ELSEWHERE = "leave --gpu out, or use a machine with a GPU"


class CupyDevice(Device):
    """CUDA device `number`.

    limit: bytes this process may take, None: all there is; several ranks share a device that way
    """

    def __init__(self, number: int = 0, limit: int | None = None):
        self._cupy = cupy = load_cupy()
        cupy.cuda.Device(number).use()
        self.number = number
        properties = cupy.cuda.runtime.getDeviceProperties(number)
        text = properties["name"]
        self.name = text.decode() if isinstance(text, bytes) else str(text)
        self._pool = cupy.cuda.MemoryPool()
        self._pinned = cupy.cuda.PinnedMemoryPool()
        self._limit = None if limit is None else max(limit, 1)      # cupy takes 0 for no limit
        if self._limit is not None:
            self._pool.set_limit(size=self._limit)
        self._kernels: dict[TextKernel, Any] = {}
        self._wanted: set[TextKernel] | None = None       # while kernels are looked for, nothing is done

    def empty(self, shape: Sequence[int], dtype: Any = np.float64) -> DeviceArray:
        size = max(prod(shape) * np.dtype(dtype).itemsize, 1)
        return DeviceArray(self._cupy.ndarray(tuple(shape), dtype, self._pool.malloc(size)))

    def pinned(self, shape: Sequence[int], dtype: Any = np.float64) -> np.ndarray:
        size = max(prod(shape) * np.dtype(dtype).itemsize, 1)
        step = 1 << max(size.bit_length() - 4, 9)       # the pool gives memory again to the same size alone
        return np.frombuffer(self._pinned.malloc(-(-size // step) * step), dtype, prod(shape)).reshape(tuple(shape))

    def stream(self) -> Any:
        return self._cupy.cuda.Stream(non_blocking=True)

    def record(self, stream: Any) -> Any:
        event = self._cupy.cuda.Event()
        event.record(stream)
        return event

    def wait(self, stream: Any, event: Any) -> None:
        stream.wait_event(event)

    def finish(self, event: Any) -> None:
        event.synchronize()

    def current(self, stream: Any) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = stream
        return context

    def mark(self) -> Any:
        return self.record(self._cupy.cuda.get_current_stream())

    def between(self, first: Any, second: Any) -> float:
        first.synchronize()
        second.synchronize()
        return 1e-3 * float(self._cupy.cuda.get_elapsed_time(first, second))

    def push(self, name: str) -> None:
        self._cupy.cuda.nvtx.RangePush(name)

    def pop(self) -> None:
        self._cupy.cuda.nvtx.RangePop()

    def upload(self, source: np.ndarray, target: Any, stream: Any) -> None:
        self._copy(target.data.data.ptr, source.ctypes.data, source.nbytes, "memcpyHostToDevice", stream)

    def download(self, source: Any, target: np.ndarray, stream: Any) -> None:
        self._copy(target.ctypes.data, source.data.data.ptr, target.nbytes, "memcpyDeviceToHost", stream)

    def _copy(self, target: int, source: int, size: int, way: str, stream: Any) -> None:
        """The runtime's own: cupy's copies from and to the host refuse to be captured."""
        runtime = self._cupy.cuda.runtime
        if self._wanted is None:
            runtime.memcpyAsync(target, source, size, getattr(runtime, way), stream.ptr)

    def clear(self, array: Any, stream: Any) -> None:
        if self._wanted is None:
            array.data.data.memset_async(0, array.data.nbytes, stream)

    def launch(self, kernel: TextKernel, count: int, args: tuple[Any, ...], stream: Any) -> None:
        if self._wanted is not None:
            self._wanted.add(kernel)
            return
        values = [value.data if isinstance(value, DeviceArray) else np.uintp(0) if value is None else
                  _NUMBERS[kind](value) for kind, value in zip(kernel.travelling, args, strict=True)]
        if kernel not in self._kernels:
            self._kernels |= self._compiled(kernel.unit)
        if count > 0:
            with stream:
                self._kernels[kernel]((kernel.grid(count),), (kernel.block,), (np.int64(count), *values))

    def get_ready(self, work: Callable[[], None]) -> None:
        self._wanted = set()
        try:
            work()
        finally:
            wanted, self._wanted = self._wanted, None
        # a second each, and the compiler lets other threads go on
        with ThreadPoolExecutor(usable_cores()) as pool:
            for made in pool.map(self._compiled, {kernel.unit for kernel in wanted - self._kernels.keys()}):
                self._kernels |= made

    def _compiled(self, unit: tuple[TextKernel, ...]) -> dict[TextKernel, Any]:
        """The kernels of a unit, for this device; called by any thread."""
        self._cupy.cuda.Device(self.number).use()
        module = self._cupy.RawModule(code=source(*unit), options=OPTIONS)
        return {one: module.get_function(one.entry) for one in unit}

    def capture(self, work: Callable[[], None], stream: Any) -> Any:
        """cupy captures in the relaxed mode: what a library allocates meanwhile breaks nothing."""
        stream.begin_capture()
        try:
            work()
        except BaseException:
            with suppress(Exception):       # the first error tells more
                stream.end_capture()
            raise
        return stream.end_capture()

    def replay(self, graph: Any, stream: Any) -> None:
        graph.launch(stream)

    def memory(self) -> int:
        return int(self._pool.total_bytes())

    def facts(self) -> dict[str, Any]:
        free, total = self._cupy.cuda.Device(self.number).mem_info
        return {"name": self.name, "number": self.number, "memory": int(total), "free": int(free)}

    def free_memory(self) -> int:
        free = int(self._cupy.cuda.Device(self.number).mem_info[0]) + int(self._pool.free_bytes())
        return free if self._limit is None else min(free, self._limit - int(self._pool.used_bytes()))

    def is_out_of_memory(self, error: BaseException) -> bool:
        text = f"{type(error).__name__} {error}"
        return isinstance(error, MemoryError) or any(
            word in text for word in ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "ALLOC_FAILED"))

    def close(self) -> None:
        self._cupy.cuda.runtime.deviceSynchronize()
        self._pool.free_all_blocks()
        self._pinned.free_all_blocks()


class NoDevice(InputError):
    """No GPU can be used; reason: why, without what to do about it."""

    def __init__(self, reason: str, remedy: str):
        super().__init__(f"{reason}: {remedy}")
        self.reason = reason


def count_devices() -> int:
    """How many devices this process sees; raises NoDevice where there is none."""
    return int(load_cupy().cuda.runtime.getDeviceCount())


def memory_of(number: int) -> tuple[int, int]:
    """Bytes of a device: (not taken by anybody, all)."""
    free, total = load_cupy().cuda.Device(number).mem_info
    return int(free), int(total)


def load_cupy() -> Any:
    """The module cupy, where it sees a device; raises NoDevice, one line, where not."""
    try:
        import cupy
    except ImportError as error:
        raise NoDevice(f"a GPU needs cupy ({error})",
                       "install gpu_extract[cuda12] or [cuda13], or leave --gpu out") from error
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except RuntimeError as error:
        raise NoDevice(f"no CUDA device can be used ({error})", _ELSEWHERE) from error
    if count == 0:
        raise NoDevice("there is no CUDA device", _ELSEWHERE)
    return cupy
