"""CPU kernel: eliminating one fibre in bands of any width, for the few fibres beside masks.

What narrow.simd_schur does for eight fibres at once and literal widths, for bands of any width, and for a fibre that
itself carries what eliminating others left of it: the block that is eliminated is any symmetric band matrix.
"""
# mypy: disallow-untyped-defs=False
import numpy as np

from gpu_extract.decorrelate.narrow.simd_schur_rows import TINY
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import address, number, vadd, vfma, vmul, vread, vset, vspread, vsub, vsum, vwrite, write


@njit(nogil=True, cache=True, error_model="numpy")
def factor(low, band):
    """low[j, 0] = D, low[j, a] = l_a of L D L^T; band: (nwave, half + 1), rows of the upper triangle, 0 beyond the end.

    Bins whose diagonal is 0 are decoupled, and so are those whose pivot is rounding.
    """
    nwave, wide = band.shape
    column = np.empty(wide)
    for j in range(nwave):
        for a in range(wide):
            column[a] = band[j, a]
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


@njit(nogil=True, error_model="numpy")
def _invert(inverse, low, j, wide):
    """inverse[j, wide + k] = Z[j, j + k], |k| <= wide, and the same elements of the rows after it.

    Elements are made by eights: those beyond `wide` hold anything. Rows behind the last bin's are 0.
    """
    half, pitch = low.shape[1] - 1, 8 * inverse.shape[1]
    row = address(inverse, j * inverse.shape[1] + wide)
    weights = address(low, j * (half + 1))
    for a in range(0, wide, 8):
        near = row + 8 * (1 + a)
        total, beside = vset(0.0), vset(0.0)
        below = near + pitch - 8
        for b in range(8, 8 * half + 8, 8):
            weight = vspread(weights + b)
            total = vsub(total, vmul(weight, vread(below)))
            beside = vsub(beside, vmul(weight, vread(below + 32)))
            below += pitch - 8
        vwrite(near, total)
        vwrite(near + 32, beside)
    diagonal = 1.0 / number(weights)
    for b in range(8, 8 * min(half, wide) + 8, 8):
        diagonal -= number(weights + b) * number(row + b)
    write(row, diagonal)
    for a in range(1, min(wide, len(low) - 1 - j) + 1):
        write(row + a * (pitch - 8), number(row + 8 * a))


@njit(nogil=True, cache=True, error_model="numpy")
def _move(moved, low, coupling, x):
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


@njit(nogil=True, error_model="numpy")
def _product(product, coupling, inverse, places, wide):
    """product[s] = sum_k G[p, p + k] Z[p + k, p - hw + s] for s = 0 .. wide, and 0 behind those up to a whole eight.

    coupling: (rows, padded width); inverse: see `_invert`; places: (row p of coupling, row p of inverse, hw)
    """
    row, at, hw = places
    given, pitch = address(coupling, row * coupling.shape[1]), 8 * inverse.shape[1]
    first = address(inverse, (at - hw) * inverse.shape[1] + wide)
    out = address(product, 0)
    for s in range(0, 8 * (wide + 1), 64):
        total, beside = vset(0.0), vset(0.0)
        known = first + s
        for k in range(0, 8 * (2 * hw + 1), 8):
            weight = vspread(given + k)
            total = vfma(weight, vread(known), total)
            beside = vfma(weight, vread(known + 32), beside)
            known += pitch - 8
        vwrite(out + s, total)
        vwrite(out + s + 32, beside)
    for s in range(wide + 1, (wide + 8) // 8 * 8):
        write(out + 8 * s, 0.0)


@njit(nogil=True, cache=True, error_model="numpy")
def eliminate(taken, moved, band, coupling, x):
    """taken = U = G Z G^T, moved = U x, where Z is the inverse of the band matrix `band` (see `factor`).

    taken: (nwave, half + 1), filled with rows of the upper triangle; moved: (nwave,), filled: all of U, without a cut
    coupling: (nwave, 2 hw + 1), coupling[p, hw + k] = G[p, p + k], 0 where p + k is no bin
    """
    nwave, hw, half = len(band), coupling.shape[1] // 2, taken.shape[1] - 1
    wide = 2 * hw + half
    low = np.empty(band.shape)
    factor(low, band)
    _move(moved, low, coupling, x)
    padded = np.zeros((nwave + half, (2 * hw + 8) // 8 * 8))
    for p in range(nwave):
        for a in range(2 * hw + 1):
            padded[p, a] = coupling[p, a]
    inverse = np.zeros((hw + nwave + max(hw, band.shape[1]), 2 * wide + 18))
    _sweep(taken, low, padded, inverse, np.zeros((wide + 8) // 8 * 8 + 8), hw)


@njit(nogil=True, error_model="numpy")
def _sweep(taken, low, coupling, inverse, product, hw):
    """Rows of the inverse and of U, from the last bin to the first; row p of the inverse is its row hw + p."""
    nwave, half = len(low), taken.shape[1] - 1
    wide, width = 2 * hw + half, coupling.shape[1]
    known = inverse[hw:]
    for j in range(nwave - 1, max(nwave - 1 - hw, -1), -1):
        _invert(known, low, j, wide)
    for p in range(nwave - 1, -1, -1):
        if p >= hw:
            _invert(known, low, p - hw, wide)
        _product(product, coupling, inverse, (p, hw + p, hw), wide)
        for a in range(half + 1):
            left, right = address(product, a), address(coupling, (p + a) * width)
            total, beside = vset(0.0), vset(0.0)
            for k in range(0, 8 * width, 64):
                total = vfma(vread(left + k), vread(right + k), total)
                beside = vfma(vread(left + k + 32), vread(right + k + 32), beside)
            taken[p, a] = vsum(vadd(total, beside))
