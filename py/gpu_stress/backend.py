"""The two array modules behind one interface; the only place of the stressor that imports cupy.

A module keeps one queue of work (a CUDA stream; in numpy everything is done when
a call returns). `Timeline` marks moments in that queue and gives the seconds
between them: device events on the GPU, the process's clock on the CPU.
"""
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from gpu_extract.errors import InputError
from gpu_extract.perf.clock import now
from gpu_stress.machine import cpu_name


class NoDevice(InputError):
    """There is no GPU, or no cupy to use it with; need: what is missing, without the advice."""

    def __init__(self, need: str, advice: str):
        super().__init__(f"the cupy module needs {need}: {advice}")
        self.need = need


class Timeline:
    """Marks in the queue of work; here of the CPU, by the process's clock."""

    def __init__(self) -> None:
        self._marks: list[float] = []

    def mark(self) -> None:
        """Mark the moment at which all work queued so far is done."""
        self._marks.append(now())

    def seconds(self) -> list[float]:
        """Wait for the last mark; returns the seconds between successive marks, which are then cleared."""
        marks, self._marks = self._marks, []
        return [b - a for a, b in pairwise(marks)]


class Module:
    """The array library as a test uses it; here numpy, whose "device" is another array in the same memory.

    xp: the array namespace, numpy or cupy
    """

    name = "numpy"
    xp: Any = np

    def host(self, shape: Sequence[int], dtype: Any, *, pinned: bool) -> np.ndarray:
        """An uninitialised array in host memory."""
        return np.empty(tuple(shape), dtype)

    def upload(self, source: np.ndarray, target: Any) -> None:
        """Queue a copy from host to device."""
        np.copyto(target, source)

    def download(self, source: Any, target: np.ndarray) -> None:
        """Queue a copy from device to host."""
        np.copyto(target, source)

    def synchronise(self) -> None:
        """Wait until all queued work is done."""

    def timeline(self) -> Timeline:
        """A new timeline."""
        return Timeline()

    def values(self, scalars: Sequence[Any]) -> np.ndarray:
        """Arrays of one element each as one host array of float64; waits for them."""
        return np.array([float(s) for s in scalars], dtype=np.float64)

    def generator(self, seed: int) -> Any:
        """A random generator with `random(shape, dtype=...)`."""
        return self.xp.random.default_rng(seed)

    def describe(self) -> dict[str, Any]:
        """Name and versions of the device and the library."""
        return {"module": "numpy", "version": np.__version__, "device": cpu_name()}

    def ran_out(self, error: BaseException) -> bool:
        """Whether an error means that memory is exhausted."""
        return isinstance(error, MemoryError)


class _EventTimeline(Timeline):
    """Device events, kept for the next round once they are read."""

    def __init__(self, cupy: Any, stream: Any):
        self._cuda = cupy.cuda
        self._stream = stream
        self._events: list[Any] = []
        self._used = 0

    def mark(self) -> None:
        if self._used == len(self._events):
            self._events.append(self._cuda.Event())
        self._events[self._used].record(self._stream)
        self._used += 1

    def seconds(self) -> list[float]:
        events, self._used = self._events[:self._used], 0
        if events:
            events[-1].synchronize()
        elapsed = self._cuda.get_elapsed_time
        return [1e-3 * elapsed(a, b) for a, b in pairwise(events)]


class CupyModule(Module):
    """One CUDA device through cupy; all work goes to its own stream.

    Raises InputError, one line, if cupy or the device is missing.
    """

    name = "cupy"

    def __init__(self, device: int = 0):
        self.xp = cupy = _import_cupy()
        self._number = device
        count = device_count(cupy)
        if device >= count:
            raise InputError(f"device is {device}, must be 0 to {count - 1}: there are {count} CUDA devices")
        cupy.cuda.Device(device).use()
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._stream.use()

    def host(self, shape: Sequence[int], dtype: Any, *, pinned: bool) -> np.ndarray:
        if not pinned:
            return np.empty(tuple(shape), dtype)
        import cupyx
        return cupyx.empty_pinned(tuple(shape), dtype)

    def upload(self, source: np.ndarray, target: Any) -> None:
        target.set(source, stream=self._stream)

    def download(self, source: Any, target: np.ndarray) -> None:
        source.get(out=target, stream=self._stream, blocking=False)

    def synchronise(self) -> None:
        self._stream.synchronize()

    def timeline(self) -> Timeline:
        return _EventTimeline(self.xp, self._stream)

    def values(self, scalars: Sequence[Any]) -> np.ndarray:
        if not scalars:
            return np.zeros(0)
        stacked = self.xp.stack([self.xp.asarray(s, dtype=np.float64).reshape(()) for s in scalars])
        return stacked.get()

    def describe(self) -> dict[str, Any]:
        runtime = self.xp.cuda.runtime
        properties = runtime.getDeviceProperties(self._number)
        name = properties["name"]
        free, total = self.xp.cuda.Device(self._number).mem_info
        return {"module": "cupy", "version": self.xp.__version__, "number": self._number,
                "device": name.decode() if isinstance(name, bytes) else str(name),
                "memory": int(total), "memory_free": int(free),
                "multiprocessors": int(properties["multiProcessorCount"]),
                "compute_capability": f"{properties['major']}.{properties['minor']}",
                "cuda_runtime": version_text(runtime.runtimeGetVersion()),
                "cuda_driver": version_text(runtime.driverGetVersion())}

    def ran_out(self, error: BaseException) -> bool:
        text = f"{type(error).__name__} {error}"
        return super().ran_out(error) or any(
            word in text for word in ("cudaErrorMemoryAllocation", "ALLOC_FAILED", "OUT_OF_MEMORY"))


def open_module(name: str, device: int = 0) -> Module:
    """The array module of that name; raises InputError if it cannot be used here."""
    if name == "numpy":
        return Module()
    if name == "cupy":
        return CupyModule(device)
    raise InputError(f"module is {name!r}, must be numpy or cupy")


def device_count(cupy: Any = None) -> int:
    """Number of visible CUDA devices; raises InputError without cupy or without a device."""
    cupy = cupy or _import_cupy()
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except RuntimeError as error:
        raise NoDevice(f"a CUDA device, but none was found ({error})",
                       "use -m numpy, or a machine with a GPU") from error
    if count == 0:
        raise NoDevice("a CUDA device, but none was found", "use -m numpy, or a machine with a GPU")
    return count


def _import_cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise NoDevice(f"cupy, which cannot be imported ({error})",
                       "install gpu_extract[cuda12] or [cuda13], or use -m numpy") from error
    return cupy


def version_text(number: int) -> str:
    """A CUDA version number as text: 12040 is 12.4."""
    return f"{number // 1000}.{number % 1000 // 10}"

