"""CPU kernel: eliminating one fibre in bands of any width, for the few fibres beside masks.

What backend.cpu_schur does for four fibres at once and literal widths, in plain loops, and for a fibre that
itself carries what eliminating others left of it: the block that is eliminated is any symmetric band matrix.
"""
import numpy as np
from numba import njit

from gpu_extract.backend.cpu_schur_rows import TINY


@njit(nogil=True, cache=True, error_model="numpy")
def factor(low, band):  # type: ignore[no-untyped-def]
    """low[j, 0] = D, low[j, a] = l_a of L D L^T; band: (nwave, half + 1), rows of the upper triangle, 0 beyond the end.

    Bins whose diagonal is 0 are decoupled, and so are those whose pivot is rounding.
    """
    nwave, wide = band.shape
    column = np.empty(wide)
    for j in range(nwave):
        column[:] = band[j]
        scale = column[0] if column[0] > 0.0 else 1.0
        column[0] = scale
        for b in range(min(wide - 1, j), 0, -1):
            scaled = low[j - b, b] * low[j - b, 0]
            for a in range(wide - b):
                column[a] -= scaled * low[j - b, a + b]
        pivot = column[0] if column[0] > TINY * scale else scale
        low[j, 0] = pivot
        for a in range(1, wide):
            low[j, a] = column[a] / pivot


@njit(nogil=True, cache=True, error_model="numpy")
def _invert(inverse, low, j, wide):  # type: ignore[no-untyped-def]
    """inverse[j, wide + k] = Z[j, j + k], |k| <= wide, and the same elements of the rows after it."""
    nwave, half = low.shape[0], low.shape[1] - 1
    row = inverse[j, wide:]
    last = min(wide, nwave - 1 - j)
    row[:] = 0.0
    for b in range(1, min(half, last) + 1):
        weight = low[j, b]
        below = inverse[j + b, wide + 1 - b:]
        for a in range(last):
            row[1 + a] -= weight * below[a]
    total = 1.0 / low[j, 0]
    for b in range(1, min(half, last) + 1):
        total -= low[j, b] * row[b]
    row[0] = total
    for a in range(1, last + 1):
        inverse[j + a, wide - a] = row[a]


@njit(nogil=True, cache=True, error_model="numpy")
def _move(moved, low, coupling, x):  # type: ignore[no-untyped-def]
    """moved = G Z G^T x: one solution with the factor."""
    nwave, half, hw = low.shape[0], low.shape[1] - 1, coupling.shape[1] // 2
    y = np.zeros(nwave + half)
    for p in range(nwave):
        for k in range(max(-hw, -p), min(hw, nwave - 1 - p) + 1):
            y[p + k] += coupling[p, hw + k] * x[p]
    for j in range(nwave):
        for b in range(1, min(half, j) + 1):
            y[j] -= low[j - b, b] * y[j - b]
    for j in range(nwave - 1, -1, -1):
        total = y[j] / low[j, 0]
        for b in range(1, half + 1):
            total -= low[j, b] * y[j + b]
        y[j] = total
    for p in range(nwave):
        total = 0.0
        for k in range(max(-hw, -p), min(hw, nwave - 1 - p) + 1):
            total += coupling[p, hw + k] * y[p + k]
        moved[p] = total


@njit(nogil=True, cache=True, error_model="numpy")
def eliminate(taken, moved, band, coupling, x):  # type: ignore[no-untyped-def]
    """taken = U = G Z G^T, moved = U x, where Z is the inverse of the band matrix `band` (see `factor`).

    taken: (nwave, half + 1), filled with rows of the upper triangle; moved: (nwave,), filled: all of U, without a cut
    coupling: (nwave, 2 hw + 1), coupling[p, hw + k] = G[p, p + k], 0 where p + k is no bin
    """
    nwave, hw, half = len(band), coupling.shape[1] // 2, taken.shape[1] - 1
    wide = 2 * hw + half
    low = np.empty(band.shape)
    factor(low, band)
    _move(moved, low, coupling, x)
    inverse = np.zeros((nwave, 2 * wide + 1))
    product = np.empty(wide + 1)
    for j in range(nwave - 1, nwave - 1 - hw, -1):
        if j >= 0:
            _invert(inverse, low, j, wide)
    for p in range(nwave - 1, -1, -1):
        if p >= hw:
            _invert(inverse, low, p - hw, wide)
        product[:] = 0.0
        for k in range(max(-hw, -p), min(hw, nwave - 1 - p) + 1):
            weight = coupling[p, hw + k]
            row = inverse[p + k, wide - hw - k:]
            for s in range(wide + 1):
                product[s] += weight * row[s]
        for a in range(half + 1):
            total = 0.0
            if p + a < nwave:
                for k in range(2 * hw + 1):
                    total += product[a + k] * coupling[p + a, k]
            taken[p, a] = total
