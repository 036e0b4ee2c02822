"""CPU kernel: a dense block out of the banded normal equations."""
# mypy: disallow-untyped-defs=False
import numpy as np

from gpu_extract.kernels.compiled import njit


@njit(nogil=True, cache=True)
def fill(matrix, icov, order, waves):
    """matrix[(a, j), (b, j')] = icov of fibres order[a], order[b] at bins waves[0] + j, waves[0] + j'; lower part.

    matrix: (n, n) with n = len(order) (waves[1] - waves[0]), zeroed here; icov: as in data.Normal
    Bins of weight 0 (zero diagonal) get 1 on the diagonal.
    """
    nd, hw = icov.shape[1], icov.shape[3] // 2
    first, last = waves
    nw = last - first
    matrix[:] = 0.0
    for a in range(len(order)):
        for b in range(len(order)):
            low, high = min(order[a], order[b]), max(order[a], order[b])
            if high - low >= nd or b > a:
                continue
            for j in range(nw):
                for k in range(max(-hw, -j), min(hw, nw - 1 - j) + 1):
                    value = icov[low, high - low, first + j, hw + k]
                    if order[a] == high:
                        matrix[a * nw + j + k, b * nw + j] = value
                    else:
                        matrix[a * nw + j, b * nw + j + k] = value
        for j in range(nw):
            at = a * nw + j
            if matrix[at, at] == 0.0:
                matrix[at, at] = 1.0


@njit(nogil=True, cache=True)
def diagonals(out, rows, first, keep):
    """out[k, c] = R[j - ndiag + k, j] at bin j = keep[0] + c, for a block R of rows first .. (n, n); 0 outside it.

    rows: R, (n, n), row and column r standing for bin first + r
    """
    ndiag = out.shape[0] // 2
    n = rows.shape[0]
    for k in range(out.shape[0]):
        for c in range(keep[1] - keep[0]):
            column = keep[0] + c - first
            row = column - ndiag + k
            out[k, c] = rows[row, column] if 0 <= row < n else 0.0


def empty(n: int) -> np.ndarray:
    """A Fortran-ordered (n, n) float64 matrix, as LAPACK wants it."""
    return np.empty((n, n), order="F")
