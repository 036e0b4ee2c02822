"""Tests that move or transform one array: fft, copy, rand."""
import math
from typing import Any

import numpy as np

from gpu_stress.backend import Module
from gpu_stress.spec import Spec
from gpu_stress.work import Leg, Work, uniform, unit_roundoff

CHUNK = 2**13          # elements that the host checks at once


class Fft(Work):
    """Forward and inverse complex transform over all axes; the round trip must give the input back.

    The relative rms error of an FFT grows as u sqrt(log2 N), its bound as u log2 N (Higham 2002,
    Accuracy and Stability of Numerical Algorithms, sect. 24.1). The largest of N errors is a few
    times the rms; 20 u log2(2N) of the largest input holds for both transforms with a wide margin,
    also for lengths with large prime factors. float16 is transformed in single precision.
    5 N log2 N operations for each transform.
    """

    def __init__(self, spec: Spec, module: Module):
        super().__init__(spec, module, 4 + 8 * max(8 / np.dtype(spec.dtype).itemsize, 1))
        size = math.prod(spec.shape)
        self.flop = 10 * size * math.log2(size) if size > 1 else 0.0
        self.bound = 20 * unit_roundoff("float32" if spec.dtype == "float16" else spec.dtype) \
            * math.log2(2 * size)
        self._fft = module.xp.fft
        first = uniform(spec, spec.shape, 0)
        self._sources = [self._on_host(a) for a in (first, -first)]
        self._largest = max(float(abs(first).max()), 1e-30)
        self._input = module.xp.empty(spec.shape, spec.dtype)
        module.upload(self._sources[0], self._input)
        self._half = spec.dtype == "float16"
        self._compute()
        checker = np if spec.copy else module.xp
        self._work = checker.empty(min(size, CHUNK) if checker is np else size, self._result.dtype)
        self._arrange(self._compute, self._result.dtype, self._sources)

    def _compute(self) -> None:
        source = self._input.astype(np.complex64) if self._half else self._input
        self._result = self._fft.ifftn(self._fft.fftn(source))

    def measure(self) -> Any:
        """Largest deviation of the round trip, in units of the largest input."""
        xp, wanted = (self.module.xp, self._input) if self._back is None else (np, self._sources[self.turn])
        return _largest(xp, self._latest(), wanted, self._work) / self._largest


class Copy(Work):
    """Host to device and back; the result must be identical bit by bit."""

    def __init__(self, spec: Spec, module: Module):
        super().__init__(spec, module, 5)
        bits = np.random.default_rng([spec.seed, 0]).integers(0, 256, self.nbytes, dtype=np.uint8)
        self._sources = [self._on_host(b.view(spec.dtype).reshape(spec.shape)) for b in (bits, ~bits)]
        device, back = module.xp.empty(spec.shape, spec.dtype), module.host(spec.shape, spec.dtype, pinned=spec.pinned)
        self.legs = (Leg("up", lambda: module.upload(self._sources[self.turn], device), self.nbytes),
                     Leg("down", lambda: module.download(device, back), self.nbytes))
        self._back = back

    def measure(self) -> Any:
        """Number of bytes that differ."""
        return np.count_nonzero(self._latest().view(np.uint8) != self._sources[self.turn].view(np.uint8))

    def spoil(self) -> None:
        self._latest().view(np.uint8).reshape(-1)[self.nbytes // 2] ^= 1


class Rand(Work):
    """Uniform random numbers in [0, 1): moments and the lag-one product within 7 of their errors.

    The mean of N numbers is 1/2, their central second and fourth moments 1/12 and 1/80, the central
    product of neighbours 0, with variances 1/(12 N), 1/(180 N), 1/(3600 N) and 1/(144 (N - 1)). Being
    off by 7 has a probability of 3e-12. A number outside the range, or the same numbers as in the cycle
    before, count as infinitely wrong. float16 is rounded from float32.
    """

    bound = 7.0

    def __init__(self, spec: Spec, module: Module):
        super().__init__(spec, module, 6 * max(4 / np.dtype(spec.dtype).itemsize, 1))
        self._rng = module.generator(spec.seed)
        self._draw = np.float64 if spec.dtype == "float64" else np.float32
        self._before: Any = None
        self._compute()
        self._arrange(self._compute, spec.dtype)

    def _compute(self) -> None:
        values = self._rng.random(self.spec.shape, dtype=self._draw)
        self._result = values.astype(np.float16) if self.spec.dtype == "float16" else values

    def measure(self) -> Any:
        """The largest deviation of a moment, in units of its error."""
        return self._judge(self.module.xp if self._back is None else np, self._latest().reshape(-1))

    def _judge(self, xp: Any, drawn: Any) -> Any:
        n = drawn.size
        values = drawn.astype(np.float32) if drawn.dtype == np.float16 else drawn
        centred = values - values.dtype.type(0.5)
        worst = abs(centred.mean(dtype=np.float64)) * math.sqrt(12 * n)
        square = centred * centred
        for power, mean, error in ((square, 1 / 12, 1 / math.sqrt(180)), (square * square, 1 / 80, 1 / 60)):
            worst = xp.maximum(worst, abs(power.mean(dtype=np.float64) - mean) * math.sqrt(n) / error)
        if n > 1:
            lag = (centred[1:] * centred[:-1]).mean(dtype=np.float64)
            worst = xp.maximum(worst, abs(lag) * math.sqrt(144 * (n - 1)))
        wrong = (values.min() < 0) | (values.max() > 1)
        sample = drawn[:64].copy()
        if self._before is not None and n >= 16:
            wrong = wrong | (sample == self._before).all()
        self._before = sample
        return xp.where(wrong, xp.inf, worst)

    def spoil(self) -> None:
        """Move one number out of the range."""
        self.module.synchronise()
        drawn = self._latest().reshape(-1)
        drawn[drawn.size // 2] = 2


def _largest(xp: Any, result: Any, wanted: Any, work: Any) -> Any:
    """The largest magnitude among real and imaginary parts of the difference; NaN if there is one.

    It is computed in pieces of the size of `work`, so that the next cycle finds heap and cache much as it would
    without the check.
    """
    result, wanted = result.reshape(-1), wanted.reshape(-1)
    worst = xp.zeros((), work.real.dtype)
    for start in range(0, result.size, work.size):
        piece = work[:result.size - start]
        xp.subtract(result[start:start + piece.size], wanted[start:start + piece.size], out=piece)
        parts = piece.view(work.real.dtype)
        worst = xp.maximum(worst, xp.abs(parts, out=parts).max())
    return worst
