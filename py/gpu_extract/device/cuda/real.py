"""A GPU: memory, streams and pinned pools through cupy, kernels through numba-cuda and, in CUDA C++, through cupy."""
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cache
from math import prod
from typing import Any

import numpy as np

from gpu_extract.device.cuda.kernels import Kernel, argument
from gpu_extract.device.cuda.seam import Device, DeviceArray
from gpu_extract.device.cuda.text import OPTIONS, TextKernel, source
from gpu_extract.errors import InputError

_NUMBERS = {"f8": np.float64, "i8": np.int64}      # as a kernel in CUDA C++ takes them
_ELSEWHERE = "leave --gpu out, or use a machine with a GPU"


class CupyArray(DeviceArray):
    """Device memory; handle: the same memory as numba sees it."""

    def __init__(self, data: Any):
        from numba import cuda

        super().__init__(data)
        self.handle = cuda.as_cuda_array(data, sync=False)


class CupyDevice(Device):
    """CUDA device `number`.

    limit: bytes this process may take, None: all there is; several ranks share a device that way
    """

    def __init__(self, number: int = 0, limit: int | None = None):
        self._cupy = cupy = load_cupy()
        from numba import cuda

        cupy.cuda.Device(number).use()
        cuda.select_device(number)
        self.number = number
        properties = cupy.cuda.runtime.getDeviceProperties(number)
        text = properties["name"]
        self.name = text.decode() if isinstance(text, bytes) else str(text)
        self._pool = cupy.cuda.MemoryPool()
        self._pinned = cupy.cuda.PinnedMemoryPool()
        self._limit = None if limit is None else max(limit, 1)      # cupy takes 0 for no limit
        if self._limit is not None:
            self._pool.set_limit(size=self._limit)
        self._launches: dict[tuple[Kernel, int, int], Any] = {}
        self._texts: dict[TextKernel, Any] = {}

    def empty(self, shape: Sequence[int], dtype: Any = np.float64) -> CupyArray:
        size = max(prod(shape) * np.dtype(dtype).itemsize, 1)
        return CupyArray(self._cupy.ndarray(tuple(shape), dtype, self._pool.malloc(size)))

    def pinned(self, shape: Sequence[int], dtype: Any = np.float64) -> np.ndarray:
        size = max(prod(shape) * np.dtype(dtype).itemsize, 1)
        step = 1 << max(size.bit_length() - 4, 9)       # the pool gives memory again to the same size alone
        return np.frombuffer(self._pinned.malloc(-(-size // step) * step), dtype, prod(shape)).reshape(tuple(shape))

    def stream(self) -> Any:
        return self._cupy.cuda.Stream(non_blocking=True)

    def event(self) -> Any:
        return self._cupy.cuda.Event()

    def record(self, event: Any, stream: Any) -> None:
        event.record(stream)

    def wait(self, stream: Any, event: Any) -> None:
        stream.wait_event(event)

    def finish(self, event: Any) -> None:
        event.synchronize()

    def current(self, stream: Any) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = stream
        return context

    def mark(self) -> Any:
        event = self._cupy.cuda.Event()
        event.record(self._cupy.cuda.get_current_stream())
        return event

    def between(self, first: Any, second: Any) -> float:
        first.synchronize()
        second.synchronize()
        return 1e-3 * float(self._cupy.cuda.get_elapsed_time(first, second))

    def push(self, name: str) -> None:
        self._cupy.cuda.nvtx.RangePush(name)

    def pop(self) -> None:
        self._cupy.cuda.nvtx.RangePop()

    def upload(self, source: np.ndarray, target: Any, stream: Any) -> None:
        target.data.data.copy_from_host_async(source.ctypes.data, source.nbytes, stream)

    def download(self, source: Any, target: np.ndarray, stream: Any) -> None:
        source.data.data.copy_to_host_async(target.ctypes.data, target.nbytes, stream)

    def clear(self, array: Any, stream: Any) -> None:
        array.data.data.memset_async(0, array.data.nbytes, stream)

    def launch(self, kernel: Kernel | TextKernel, count: int, args: tuple[Any, ...], stream: Any) -> None:
        if isinstance(kernel, TextKernel):
            self._launch_text(kernel, count, args, stream)
        elif count > 0:
            values = tuple(value.handle if isinstance(value, CupyArray) else argument(kind, value)
                           for kind, value in zip(kernel.kinds, args, strict=True))
            self._configured(kernel, -(-count // kernel.block), stream)(count, values)

    def _launch_text(self, kernel: TextKernel, count: int, args: tuple[Any, ...], stream: Any) -> None:
        values = [value.data if isinstance(value, CupyArray) else _NUMBERS.get(kind, np.uintp)(value or 0)
                  for kind, value in zip(kernel.travelling, args, strict=True)]
        if kernel not in self._texts:
            module = self._cupy.RawModule(code=source(kernel), options=OPTIONS)
            self._texts[kernel] = module.get_function(kernel.entry)
        if count > 0:
            with stream:
                self._texts[kernel]((-(-count // kernel.block),), (kernel.block,), (np.int64(count), *values))

    def _configured(self, kernel: Kernel, grid: int, stream: Any) -> Any:
        """The kernel with its grid and stream, made once."""
        key = kernel, grid, stream.ptr
        if key not in self._launches:
            from numba import cuda

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")      # that a grid is small: other streams have work as well
                external = cuda.external_stream(stream.ptr)
                self._launches[key] = _compiled(kernel, self.number)[grid, kernel.block, external]
        return self._launches[key]

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

    def forget(self) -> None:
        self._launches.clear()

    def close(self) -> None:
        self._cupy.cuda.runtime.deviceSynchronize()
        self.forget()
        self._pool.free_all_blocks()
        self._pinned.free_all_blocks()


@cache
def _compiled(kernel: Kernel, number: int) -> Any:
    """The kernel for device `number`: compiled once in a process, and kept on disk by numba."""
    from numba import cuda

    return cuda.jit(kernel.signature(), cache=True)(kernel.function)


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
    """The module cupy, where it sees a device and numba-cuda is there; raises NoDevice, one line, where not."""
    try:
        import cupy
        import numba_cuda  # noqa: F401  (numba alone has a numba.cuda of its own, an old one)
    except ImportError as error:
        raise NoDevice(f"a GPU needs cupy and numba-cuda ({error})",
                       "install gpu_extract[cuda12] or [cuda13], or leave --gpu out") from error
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except RuntimeError as error:
        raise NoDevice(f"no CUDA device can be used ({error})", _ELSEWHERE) from error
    if count == 0:
        raise NoDevice("there is no CUDA device", _ELSEWHERE)
    return cupy
