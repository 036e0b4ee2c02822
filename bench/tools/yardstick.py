"""What benches measure with: CPU seconds of some work, and u, the yardstick, which is what a dgemm takes."""
from collections.abc import Callable

import numpy as np

from gpu_extract.perf.clock import cpu


def cpu_seconds(work: Callable[[], object], repeat: int) -> float:
    """Best CPU seconds of some work."""
    best = np.inf
    for _ in range(repeat):
        start = cpu()
        work()
        best = min(best, cpu() - start)
    return float(best)


def unit(repeat: int = 3) -> float:
    """u: CPU seconds of a product of two 2000 x 2000 matrices, the best of so many, in the same run."""
    a = np.random.default_rng(0).random((2000, 2000))
    return cpu_seconds(lambda: a @ a, repeat)
