"""Runs one test: warms up, times every cycle, checks its result, counts errors.

Only the legs are timed; preparing the next cycle and checking lie between the
marks. The queue of a device never holds more than a block of cycles: after each
block the marks and the measures are read, which also paces a run by seconds.
"""
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from gpu_extract.perf.clock import epoch, now
from gpu_stress.arrays import Copy, Fft, Rand
from gpu_stress.backend import Module, Timeline, open_module
from gpu_stress.linear import Cholesky, Eigh, Gemm
from gpu_stress.spec import OutOfMemory, Spec, Unsupported, show
from gpu_stress.work import Work

WORKS: dict[str, type[Work]] = {"fft": Fft, "copy": Copy, "rand": Rand, "gemm": Gemm, "cholesky": Cholesky,
                                "eigh": Eigh}
BLOCK_SECONDS = 0.05
BLOCK_CYCLES = 500
WARM_SECONDS = 0.02
NAMED = 5             # number of wrong cycles that are recorded


@dataclass(frozen=True)
class Result:
    """The measurements of one process.

    status: "ok", "wrong", "out of memory", "unsupported" or "failed"; message: the reason, one line
    cycles, seconds: timed cycles and the sum of their times; interval: epoch seconds of the timed loop
    progress: [cycles done, epoch seconds] after each block
    nbytes: one array, one way; up, down: bytes moved in all; flop: in all, or None
    cycle: median, p16, p84, min, max of the cycle times in seconds; legs: median of each part
    checked: results checked, including those of the requested warm-up; errors: how many were wrong,
        at any time; wrong: the first wrong cycles
    worst, bound: the largest measure (None: not a number), and its bound
    """

    spec: dict[str, Any]
    status: str
    message: str = ""
    device: dict[str, Any] = field(default_factory=dict)
    cycles: int = 0
    seconds: float = 0.0
    interval: tuple[float, float] | None = None
    progress: list[tuple[int, float]] = field(default_factory=list)
    nbytes: int = 0
    up: int = 0
    down: int = 0
    flop: float | None = None
    cycle: dict[str, float] = field(default_factory=dict)
    legs: dict[str, float] = field(default_factory=dict)
    checked: int = 0
    errors: int = 0
    wrong: list[int] = field(default_factory=list)
    worst: float | None = 0.0
    bound: float = 0.0


def make_work(spec: Spec, module: Module) -> Work:
    """The test of a spec, ready to run. Raises OutOfMemory if it does not fit."""
    if spec.test == "extract":
        from gpu_stress.extract import Extract  # loads the simulator and the whole extraction

        return Extract(spec, module)
    return WORKS[spec.test](spec, module)


def run_test(spec: Spec, ready: Callable[[], None] | None = None) -> Result:
    """Run a test.

    ready: called between warm-up and clock (it waits for the other processes)

    Raises Unsupported, OutOfMemory, and InputError if the module cannot be used here.
    """
    spec.supported()
    module = open_module(spec.module, spec.device)
    try:
        return _Run(spec, module, make_work(spec, module)).result(ready)
    except (ArithmeticError, MemoryError, RuntimeError) as error:
        if module.ran_out(error):
            raise OutOfMemory(f"{spec.test} of {show(spec.shape)} {spec.dtype} does not fit "
                              f"({' '.join(str(error).split())}): choose a smaller shape or fewer processes"
                              ) from error
        raise


def recorded(spec: Spec, ready: Callable[[], None] | None = None) -> Result:
    """As run_test, but a test that does not fit or does not exist is also a result."""
    try:
        return run_test(spec, ready)
    except (Unsupported, OutOfMemory) as error:
        return Result(asdict(spec), error.status, str(error))


class _Run:
    """The state of one run."""

    def __init__(self, spec: Spec, module: Module, work: Work):
        self._spec, self._module, self._work = spec, module, work
        self._timeline: Timeline = module.timeline()
        self._rows: list[list[float]] = []
        self._measures: list[tuple[int, float]] = []

    def result(self, ready: Callable[[], None] | None) -> Result:
        """Warm up, run, and return the result."""
        spec = self._spec
        each = self._warm_up()
        if ready is not None:
            ready()
        size = int(min(max(BLOCK_SECONDS / max(each, 1e-9), 1), BLOCK_CYCLES))
        zero, start = now(), epoch()
        progress = [(0, start)]
        done = 0
        while not self._over(done, now() - zero):
            block = size if spec.count is None else min(size, spec.count - done)
            self._block(range(done, done + block))
            done += block
            progress.append((done, start + now() - zero))
        return self._summary(progress)

    def _warm_up(self) -> float:
        """Run the requested cycles, with checks, and more until caches and clocks are warm.

        Returns seconds per cycle, including checks.
        """
        warmup = self._spec.warmup
        if warmup == 0:
            return BLOCK_SECONDS
        first = now()
        self._block(range(-warmup, 0))
        each = (now() - first) / warmup
        checked = len(self._measures)
        while now() - first < WARM_SECONDS:
            self._block(range(-warmup, 0))
            self._measures[checked:] = [m for m in self._measures[checked:] if not m[1] <= self._work.bound]
        self._rows.clear()
        return each

    def _over(self, done: int, elapsed: float) -> bool:
        if self._spec.count is not None:
            return done >= self._spec.count
        return done > 0 and self._spec.seconds is not None and elapsed >= self._spec.seconds

    def _block(self, cycles: range) -> None:
        """Queue a block of cycles with their checks, then read their times and errors."""
        work, mark, runs = self._work, self._timeline.mark, [leg.run for leg in self._work.legs]
        measures = []
        for cycle in cycles:
            work.prepare(cycle)
            mark()
            for run in runs:
                run()
                mark()
            if cycle == self._spec.fault:
                work.spoil()
            if cycle % self._spec.check_every == 0:
                measures.append((cycle, work.measure()))
        times = self._timeline.seconds()
        stride = len(runs) + 1       # no work between the last mark of a cycle and the next cycle
        self._rows += [times[i:i + stride - 1] for i in range(0, len(times), stride)]
        values = self._module.values([m for _, m in measures])
        self._measures += [(c, float(v)) for (c, _), v in zip(measures, values, strict=True)]

    def _summary(self, progress: list[tuple[int, float]]) -> Result:
        work, n = self._work, len(self._rows)
        rows = np.array(self._rows).reshape(n, len(work.legs))
        cycle = rows.sum(axis=1)
        quantiles = np.quantile(cycle, [0.5, 0.16, 0.84, 0.0, 1.0])
        wrong = [c for c, value in self._measures if not value <= work.bound]
        worst = max((v if v == v else np.inf for _, v in self._measures), default=0.0)
        message = "" if not wrong else (
            f"{len(wrong)} of {len(self._measures)} results wrong, first in cycle {wrong[0]}, "
            f"worst {worst:.3g} where {work.bound:.3g} is allowed")
        moved = {way: n * sum(leg.nbytes for leg in work.legs if leg.name == way) for way in ("up", "down")}
        return Result(
            asdict(self._spec), "wrong" if wrong else "ok", message, self._module.describe(),
            cycles=n, seconds=float(cycle.sum()), interval=(progress[0][1], progress[-1][1]),
            progress=progress, nbytes=work.nbytes, up=moved["up"], down=moved["down"],
            flop=None if work.flop is None else n * work.flop,
            cycle=dict(zip(("median", "p16", "p84", "min", "max"), map(float, quantiles), strict=True)),
            legs={leg.name: float(np.median(rows[:, i])) for i, leg in enumerate(work.legs)},
            checked=len(self._measures), errors=len(wrong), wrong=wrong[:NAMED],
            worst=float(worst) if np.isfinite(worst) else None, bound=work.bound)
