#!/usr/bin/env python3
"""Does the stressor tell the truth about a rate? A known transform, timed by it and by a plain loop, in turn.

usage: stress_rate.py [--smallest] [PAIRS [CYCLES [SIZE ...]]]
                                                       default: 40 pairs of 20 cycles, 100, 300 and 1000 squared

For each size it prints the median over the pairs of the stressor's rate divided by that of numpy called
directly, with the range from the 16th to the 84th percentile. Exit code 1 if a median is off by more
than 3 %; --smallest is too short for a judgement, it sees that this still runs. On a busy machine the small
sizes are the trustworthy ones: most of their cycles fall between two interruptions.

Arrays between 100 kB and 32 MB are given back to the system, or kept, by glibc's allocator as the history
of the process happens to be; numpy called directly then takes up to twice the time for the page faults.
That would be compared here instead of the clock, so the program starts itself again with an allocator
that keeps what it has. An address is worth 5 % as well: where the arrays lie within a cache line and in the sets
of a cache stays the same for a process. Both loops therefore make their arrays anew for each pair, behind a gap
of random length, and the median is one over addresses. The stressor checks one result in a run, for the
plain loop checks none, and what a check reads drives a small transform out of the nearest cache.
"""
import os
import sys
import time

import numpy as np

from gpu_stress.cycles import WARM_SECONDS, run_test
from gpu_stress.spec import Spec
from gpu_stress.work import uniform

LIMIT = 0.03
GAP = 2**18        # bytes, at most, before an array
KEEP = {"MALLOC_TRIM_THRESHOLD_": "2147483647", "MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TOP_PAD_": "67108864"}


def plain_rate(array: np.ndarray, cycles: int) -> float:
    """Cycles per second of numpy called directly, from the median of the single times, as warm as the stressor's."""
    times = []
    warm = time.perf_counter() + WARM_SECONDS
    while time.perf_counter() < warm:
        np.fft.ifftn(np.fft.fftn(array))
    for _ in range(cycles):
        start = time.perf_counter()
        result = np.fft.ifftn(np.fft.fftn(array))
        times.append(time.perf_counter() - start)
        del result
    return 1 / float(np.median(times))


def ratios(pairs: int, cycles: int, size: int) -> np.ndarray:
    """Stressor's rate / plain rate of each pair; which comes first alternates."""
    spec = Spec("fft", shape=(size, size), dtype="float64", count=cycles, copy=False, warmup=2, check_every=cycles)
    rng = np.random.default_rng(0)
    found = []
    for pair in range(pairs):
        rates = {}
        for loop in ("plain", "stressor")[::1 - 2 * (pair % 2)]:
            gap = np.empty(rng.integers(1, GAP), np.uint8)
            rates[loop] = plain_rate(uniform(spec, spec.shape, 0), cycles) if loop == "plain" \
                else 1 / run_test(spec).cycle["median"]
            del gap
        found.append(rates["stressor"] / rates["plain"])
    return np.array(found)


def main() -> int:
    """Measure, print, judge."""
    if any(os.environ.get(name) != value for name, value in KEEP.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP})
    smallest = "--smallest" in sys.argv[1:]
    given = [5, 10, 100] if smallest else [int(a) for a in sys.argv[1:]]
    pairs, cycles = [*given[:2], *(40, 20)[len(given[:2]):]]
    worst = 0.0
    for size in given[2:] or (100, 300, 1000):
        low, median, high = np.quantile(ratios(pairs, cycles, size), [0.16, 0.5, 0.84])
        print(f"fft {size}x{size} float64, {pairs} pairs of {cycles} cycles: stressor / plain {median:.4f} "
              f"({low:.4f} to {high:.4f}), limit {LIMIT:.0%}", flush=True)
        worst = max(worst, abs(median - 1))
    return int(worst > LIMIT and not smallest)


if __name__ == "__main__":
    raise SystemExit(main())
