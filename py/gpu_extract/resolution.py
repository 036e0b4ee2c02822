"""R from its stored diagonals: products with spectra, and rows."""
import numpy as np

from gpu_extract.arrays import Array


def times_resolution(diagonals: np.ndarray, spectra: Array) -> Array:
    """R f of spectra (..., n), from the stored diagonals (..., 2 ndiag + 1, n): [k, j] is R[j - ndiag + k, j]."""
    n, ndiag, total = spectra.shape[-1], diagonals.shape[-2] // 2, np.zeros(spectra.shape)
    for k in range(2 * ndiag + 1):
        rows, columns = (slice(max(by, 0), max(n + min(by, 0), 0)) for by in (k - ndiag, ndiag - k))
        total[..., rows] += diagonals[..., k, columns] * spectra[..., columns]
    return total


def row_of_resolution(diagonals: np.ndarray, row: int) -> Array:
    """R[row, row - ndiag .. row + ndiag] from the stored diagonals; 0 beyond the ends."""
    ndiag, n = len(diagonals) // 2, diagonals.shape[1]
    return np.array([diagonals[ndiag - o, row + o] if 0 <= row + o < n else 0.0 for o in range(-ndiag, ndiag + 1)])
