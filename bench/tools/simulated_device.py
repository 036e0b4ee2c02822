"""A device without a GPU: the seam on numpy arrays, so that everything but the hardware can be tested anywhere.

It is as unkind as hardware may be. Work runs as late as events and `finish` allow, or in any other order that they
allow, so that a missing wait gives wrong numbers; new memory holds garbage; what does not fit into memory is refused.
"""
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from math import gcd, prod
from random import Random
from typing import Any

import numpy as np
from gpu_stub import paged
from host_text import run_at

from gpu_extract.device.cuda.seam import Device, DeviceArray
from gpu_extract.device.cuda.text import TextKernel

GARBAGE = 0xFB      # of every byte: NaN-like huge negative floats, negative integers


class OutOfDeviceMemory(MemoryError):
    """The simulated device's memory is exhausted."""


class _Stream:
    """What waits to be done, work or events of other streams; `done` counts what was."""

    def __init__(self) -> None:
        self.queue: deque[Callable[[], None] | _Event] = deque()
        self.done = 0
        self.captured = False

    def is_free(self) -> bool:
        """Whether the next thing can be done at once."""
        return bool(self.queue) and not (isinstance(self.queue[0], _Event) and not self.queue[0].reached())

    def advance(self) -> None:
        """Do the next thing."""
        work = self.queue.popleft()
        self.done += 1
        if not isinstance(work, _Event):
            work()


class _Event:
    """A place in a stream: reached when so much of its work is done."""

    def __init__(self, stream: _Stream | None = None, place: int = 0):
        self.stream, self.place = stream, place

    def reached(self) -> bool:
        """Whether all that it stands for is done."""
        return self.stream is None or self.stream.done >= self.place


class _Array(DeviceArray):
    """An array whose kind, as kernels declare it, and address are looked up once: launches ask for millions."""

    @cached_property
    def kind(self) -> str:
        """Nothing where it is not C-contiguous."""
        return f"{self.dtype.kind}{self.dtype.itemsize}[]" if self.data.flags.c_contiguous else ""

    @cached_property
    def address(self) -> int:
        """Where its first element lies."""
        return int(self.data.ctypes.data)


class SimulatedDevice(Device):
    """A device in numpy arrays.

    memory: bytes that it has
    seed: which streams run ahead of others is drawn with this, at every `finish` anew; None: none does
    garbage: every byte of new memory
    order: of lanes, by how large a share of all of them each is behind the one before, 0: the next; None: from
        the last to the first. A lane that reads what another of its launch writes gives other numbers in another order
    """

    def __init__(self, memory: int = 1 << 34, *, seed: int | None = None,
                 garbage: int = GARBAGE, order: float | None = None):
        self.capacity, self.garbage, self.order = memory, garbage, order
        self._dice = None if seed is None else Random(seed)
        self.name = "simulated device"
        self.used = self.peak = 0
        self.launched: set[str] = set()
        self.ranges: list[str] = []
        self.replayed = 0
        self._current: _Stream | None = None
        self._streams: list[_Stream] = []

    def empty(self, shape: Sequence[int], dtype: Any = np.float64) -> DeviceArray:
        size = prod(shape) * np.dtype(dtype).itemsize
        if self.used + size > self.capacity:
            raise OutOfDeviceMemory(f"{size} bytes are wanted, {self.capacity - self.used} are left")
        data = np.full(size, self.garbage, np.uint8).view(dtype).reshape(tuple(shape))
        self._take(size)
        array = _Array(data)
        weakref.finalize(data if data.base is None else data.base, self._take, -size)
        return array

    def _take(self, size: int) -> None:
        self.used += size
        self.peak = max(self.peak, self.used)

    def pinned(self, shape: Sequence[int], dtype: Any = np.float64) -> np.ndarray:
        return paged(shape, dtype, self.garbage)

    def stream(self) -> _Stream:
        self._streams.append(_Stream())
        return self._streams[-1]

    def record(self, stream: Any) -> _Event:
        _must_not_be_captured(stream)
        return _Event(stream, stream.done + len(stream.queue))

    def wait(self, stream: _Stream, event: _Event) -> None:
        _must_not_be_captured(stream)
        stream.queue.append(event)

    def finish(self, event: _Event) -> None:
        eager = list(self._streams)
        if self._dice is not None:
            self._dice.shuffle(eager)
        while not event.reached():
            if self._dice is not None:
                next(stream for stream in eager if stream.is_free()).advance()
            else:
                self._late(event)

    def _late(self, event: _Event) -> None:
        """Do one thing on the way to an event: on the stream that everything waits for."""
        stream = event.stream
        while stream is not None and not stream.is_free():
            awaited = stream.queue[0]
            stream = awaited.stream if isinstance(awaited, _Event) else None
        if stream is not None:
            stream.advance()

    @contextmanager
    def current(self, stream: _Stream) -> Iterator[None]:
        before, self._current = self._current, stream
        yield
        self._current = before

    def mark(self) -> _Event:
        return _Event() if self._current is None else self.record(self._current)

    def between(self, first: _Event, second: _Event) -> float:
        self.finish(first)
        self.finish(second)
        return 0.0

    def push(self, name: str) -> None:
        self.ranges.append(name)

    def pop(self) -> None:
        pass

    def upload(self, source: np.ndarray, target: Any, stream: Any) -> None:
        _must_fit(source, target.data)
        stream.queue.append(lambda: np.copyto(target.data, source))

    def download(self, source: Any, target: np.ndarray, stream: Any) -> None:
        _must_fit(target, source.data)
        stream.queue.append(lambda: np.copyto(target, source.data))

    def clear(self, array: Any, stream: Any) -> None:
        stream.queue.append(lambda: array.data.fill(0))

    def launch(self, kernel: TextKernel, count: int, args: tuple[Any, ...], stream: Any) -> None:
        values = [value.address if type(value) is _Array and value.kind == kind else _checked(kernel, kind, value)
                  for kind, value in zip(kernel.travelling, args, strict=True)]
        self.launched.add(kernel.name)
        if count > 0:
            step = -1 if self.order is None else _coprime(max(round(self.order * count), 1), count)
            stream.queue.append(lambda _kept=args: run_at(kernel, count, step, values))

    def call(self, work: Callable[[], None], stream: Any) -> None:
        """Queue anything, which no GPU can do: cores of tests work on the host."""
        stream.queue.append(work)

    def capture(self, work: Callable[[], None], stream: _Stream) -> list[Any]:
        """A launch keeps its numbers and the places of its arrays, as a graph does."""
        before, stream.queue, stream.captured = stream.queue, deque(), True
        try:
            work()
            return list(stream.queue)
        finally:
            stream.queue, stream.captured = before, False

    def replay(self, graph: list[Any], stream: _Stream) -> None:
        self.replayed += 1
        stream.queue.extend(graph)

    def memory(self) -> int:
        return self.peak

    def facts(self) -> dict[str, Any]:
        return {"name": self.name, "number": 0, "memory": self.capacity}

    def free_memory(self) -> int:
        return self.capacity - self.used

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError)

    def close(self) -> None:
        for stream in self._streams:
            self.finish(_Event(stream, stream.done + len(stream.queue)))
        self._streams.clear()


def _must_not_be_captured(stream: _Stream) -> None:
    """Events of a graph are none that others see."""
    if stream.captured:
        raise RuntimeError("an event on a stream that is captured")


def _must_fit(host: np.ndarray, device: np.ndarray) -> None:
    if host.nbytes != device.nbytes or host.dtype != device.dtype or not host.flags.c_contiguous:
        raise TypeError(f"a copy between {host.dtype}{host.shape} and {device.dtype}{device.shape}")


def _checked(kernel: TextKernel, kind: str, value: Any) -> Any:
    """An argument as a lane gets it; raises TypeError where it is not what the kernel declares."""
    if not kind[2:]:
        return float(value) if kind[0] == "f" else int(value)
    if value is None:
        return None
    raise TypeError(f"{kernel.name} takes {kind}, was given {value.dtype}{value.shape}")


def _coprime(step: int, count: int) -> int:
    """The next larger number that has no divisor in common with `count`: so many steps come to every lane."""
    while gcd(step, count) > 1:
        step += 1
    return step
