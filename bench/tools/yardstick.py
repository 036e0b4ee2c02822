"""u, the yardstick of the benches of gpu_psf: what a dgemm takes in the same run."""
import numpy as np

from gpu_extract.perf.clock import cpu


def unit() -> float:
    """CPU seconds of a product of two 2000 x 2000 matrices, the best of three."""
    a, best = np.random.default_rng(0).random((2000, 2000)), np.inf
    for _ in range(3):
        start = cpu()
        a @ a
        best = min(best, cpu() - start)
    return best
