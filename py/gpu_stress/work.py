"""The common part of all stress tests.

A test is a `Work`: some legs that are run and timed one after another in every
cycle, and a measure of how wrong the last result is, which must not exceed a
bound. The measure is scaled so that honest rounding stays well below the bound;
each test states the source of its statistics. Content alternates between
two sources if it is copied, so that a copy without effect is detected.
"""
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_stress.backend import Module
from gpu_stress.machine import GIB, memory_available
from gpu_stress.spec import OutOfMemory, Spec, show


@dataclass(frozen=True)
class Leg:
    """One timed part of a cycle. name: "up", "compute" or "down"; nbytes: moved by it in one cycle."""

    name: str
    run: Callable[[], None]
    nbytes: int = 0


class Work:
    """One test on one module, ready to run.

    legs: the timed parts, in order
    nbytes: bytes of one array one way, the figure that the known result line counts
    flop: floating-point operations of a cycle by the usual count, or None where none are counted
    bound: the largest allowed value of `measure`
    turn: which of two sources the input is copied from in this cycle
    arrays: host memory in units of the test's array; OutOfMemory is raised if it does not fit
    """

    bound = 0.0

    def __init__(self, spec: Spec, module: Module, arrays: float = 0.0):
        check_memory(spec, arrays)
        self.spec = spec
        self.module = module
        self.nbytes = spec.nbytes
        self.flop: float | None = None
        self.legs: tuple[Leg, ...] = ()
        self.turn = 0
        self._back: np.ndarray | None = None
        self._input: Any = None
        self._result: Any = None

    def prepare(self, cycle: int) -> None:
        """Called before each cycle, outside the timing; drops the last result."""
        self.turn = cycle % 2
        self._result = None

    def measure(self) -> Any:
        """The error of the last result, as an array of one element; NaN counts as wrong."""
        raise NotImplementedError

    def spoil(self) -> None:
        """Add its largest magnitude to the middle of the last result (1 where all is 0): `measure` has to see it."""
        self.module.synchronise()
        array = self._latest()
        middle = np.unravel_index(math.prod(array.shape) // 2, array.shape)
        largest = abs(array).max()
        array[middle] = array[middle] + largest + (largest == 0)

    def _on_host(self, content: np.ndarray) -> np.ndarray:
        """Content in host memory of the requested kind."""
        array = self.module.host(self.spec.shape, self.spec.dtype, pinned=self.spec.pinned)
        array[...] = content
        return array

    def _arrange(self, compute: Callable[[], None], dtype: Any, sources: Sequence[np.ndarray] = ()) -> None:
        """Set the legs: `compute`, and where copies are asked for the input's way up, from two sources by turns, if it
        has any, and the way down of a result of this dtype."""
        module = self.module
        self.legs = (Leg("compute", compute),)
        if self.spec.copy:
            self._back = back = module.host(self.spec.shape, dtype, pinned=self.spec.pinned)
            up = [Leg("up", lambda: module.upload(sources[self.turn], self._input), self.nbytes)] if sources else []
            self.legs = (*up, *self.legs, Leg("down", lambda: module.download(self._result, back), back.nbytes))

    def _latest(self) -> Any:
        """The result where a user would find it: on the host if it is copied there, else on the device."""
        if self._back is None:
            return self._result
        self.module.synchronise()
        return self._back


def check_memory(spec: Spec, arrays: float) -> None:
    """Raise OutOfMemory if `arrays` times the test's array do not fit into host memory beside its peers."""
    available = memory_available()
    needed = arrays * spec.nbytes * spec.sharing
    if available is not None and needed > available:
        each = f" in {spec.sharing} processes" if spec.sharing > 1 else ""
        raise OutOfMemory(f"{spec.test} of {show(spec.shape)} {spec.dtype}{each} needs "
                          f"{needed / GIB:.3g} GiB, {available / GIB:.3g} GiB are free: "
                          "choose a smaller shape or fewer processes")


def unit_roundoff(dtype: str) -> float:
    """u of a floating-point dtype (2^-53 for float64)."""
    return float(np.finfo(dtype).eps) / 2


def uniform(spec: Spec, shape: tuple[int, ...], salt: int) -> np.ndarray:
    """Uniform numbers between -1/2 and 1/2 of the test's dtype, in both parts of complex ones."""
    rng = np.random.default_rng([spec.seed, salt])
    wide = np.float64 if spec.dtype in ("float64", "complex128") else np.float32
    array = rng.random(shape, dtype=wide) - wide(0.5)
    if spec.dtype.startswith("complex"):
        array = array + 1j * (rng.random(shape, dtype=wide) - wide(0.5))
    return array.astype(spec.dtype)


def signs(spec: Spec, n: int) -> np.ndarray:
    """n times +1 or -1, float64."""
    return np.random.default_rng([spec.seed, 99]).choice([-1.0, 1.0], n)
