"""The part of cupy that the stressor uses, on numpy, for machines without a GPU.

It is stricter than cupy where that finds mistakes: device arrays do not mix with host arrays; a non-blocking download
arrives in the host buffer only when its stream is waited for; memory is limited. Times are those of the clock when an
event is recorded.
"""
import sys
import time
from types import SimpleNamespace

import numpy as np


class DeviceArray(np.ndarray):
    """An array that works only with device arrays and scalars."""

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        for value in inputs:
            if type(value) is np.ndarray and value.ndim:
                raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        kwargs = {k: tuple(map(plain, v)) if k == "out" else plain(v) for k, v in kwargs.items()}
        return device(getattr(ufunc, method)(*map(plain, inputs), **kwargs))

    def __array_function__(self, func, types, args, kwargs):
        raise TypeError(f"numpy's {func.__name__} was called with a device array")

    def set(self, array, stream=None):
        check_host(self, array)
        plain(self)[...] = array

    def get(self, stream=None, out=None, blocking=True):
        copy = np.array(plain(self))
        if out is None:
            return copy
        check_host(self, out)
        if blocking:
            out[...] = copy
        else:
            stream.pending.append((out, copy))
        return out


def check_host(array, host):
    if type(host) is not np.ndarray or host.dtype != array.dtype or host.shape != array.shape:
        raise TypeError(f"{host.dtype} {host.shape} array cannot meet {array.dtype} {array.shape}")


def plain(value):
    return value.view(np.ndarray) if isinstance(value, DeviceArray) else value


def device(value):
    if isinstance(value, tuple):
        return tuple(map(device, value))
    return np.asarray(value).view(DeviceArray) if isinstance(value, (np.ndarray, np.generic)) else value


def lifted(function):
    """A numpy function for device arrays; a host array as an argument is an error."""
    def call(*args, **kwargs):
        values = [a for group in args for a in (group if isinstance(group, (list, tuple)) else [group])]
        if any(type(v) is np.ndarray and v.ndim for v in values):
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        kwargs = {k: plain(v) for k, v in kwargs.items()}
        args = [list(map(plain, a)) if isinstance(a, (list, tuple)) and a and isinstance(a[0], np.ndarray)
                else plain(a) for a in args]
        return device(function(*args, **kwargs))
    return call


class OutOfMemoryError(MemoryError):
    """As cupy.cuda.memory.OutOfMemoryError."""


class CUDARuntimeError(RuntimeError):
    """As cupy.cuda.runtime.CUDARuntimeError."""


class Stream:
    def __init__(self, non_blocking=False):
        self.pending = []

    def use(self):
        return self

    def synchronize(self):
        for out, copy in self.pending:
            out[...] = copy
        self.pending.clear()


class Event:
    def __init__(self):
        self.time = None

    def record(self, stream):
        self.stream, self.time = stream, time.perf_counter()

    def synchronize(self):
        self.stream.synchronize()


class Generator:
    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)

    def random(self, size=None, dtype=np.float64):
        return device(self._rng.random(size, dtype=dtype))


def make(devices=1, limit=2**40, pinned_limit=2**40):
    """(cupy, cupyx) with so many devices and so many bytes on them."""
    def empty(shape, dtype=np.float64):
        if np.prod(shape) * np.dtype(dtype).itemsize > limit:
            raise OutOfMemoryError("Out of memory allocating 1 bytes (allocated so far: 0 bytes).")
        return np.full(shape, 77, dtype).view(DeviceArray)

    def empty_pinned(shape, dtype=float):
        if np.prod(shape) * np.dtype(dtype).itemsize > pinned_limit:
            raise CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")
        made.pinned += 1
        return np.full(shape, 55, dtype)

    def device_count():
        if devices == 0:
            raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
        return devices

    def asarray(value, dtype=None):
        return np.array(plain(value), dtype=dtype).view(DeviceArray)

    runtime = SimpleNamespace(
        getDeviceCount=device_count, runtimeGetVersion=lambda: 12040, driverGetVersion=lambda: 13000,
        getDeviceProperties=lambda number: {"name": b"Stand-in", "multiProcessorCount": 4, "major": 9, "minor": 0})
    cuda = SimpleNamespace(
        runtime=runtime, Stream=Stream, Event=Event,
        get_elapsed_time=lambda a, b: 1e3 * (b.time - a.time),
        Device=lambda number: SimpleNamespace(use=lambda: None, mem_info=(3 * 2**30, 4 * 2**30)))
    made = SimpleNamespace(
        zeros=lambda shape, dtype: device(np.zeros(shape, dtype)),
        __version__="0 (stand-in)", cuda=cuda, empty=empty, asarray=asarray, inf=np.inf, pinned=0,
        random=SimpleNamespace(default_rng=Generator),
        fft=SimpleNamespace(fftn=lifted(np.fft.fftn), ifftn=lifted(np.fft.ifftn)),
        linalg=SimpleNamespace(cholesky=lifted(np.linalg.cholesky),
                               eigh=lambda a: tuple(device(x) for x in np.linalg.eigh(plain(a)))),
        **{name: lifted(getattr(np, name)) for name in ("maximum", "where", "stack", "matmul", "subtract", "abs")})
    return made, SimpleNamespace(empty_pinned=empty_pinned)


def install(monkeypatch, **options):
    """Make `import cupy` find the stand-in; returns it."""
    cupy, cupyx = make(**options)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupyx", cupyx)
    return cupy
