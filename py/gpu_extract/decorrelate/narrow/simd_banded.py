"""CPU kernels: the pole sum of one fibre, eight poles at a time (the lanes of every vector).

For each pole t the matrix S + t I is factorised as L D L^T on the way up the band. On the way down its inverse is
computed within the band (Takahashi, Fagan & Chin 1973; Erisman & Tinney 1975), together with the solutions for the
right-hand sides, and all are summed over the poles. These results are linear in 1/D: they start from the pole's weight
over D, and need no weights afterwards. One row of the work array holds, for every lane: D, l_1 .. l_half (later z_0 ..
z_wide), and one vector per right-hand side. Rows of zeros before the first and after the last replace tests at the
ends. A row starts on a cache line: a vector that straddles two costs twice, a third of the whole time.
"""
# mypy: disallow-untyped-defs=False
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from gpu_extract.decorrelate.windows import simd_windows
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.blocks import LANES, SIDES
from gpu_extract.vectors.emit import Emit, written_out
from gpu_extract.vectors.transpose import padded

ROWS = 2           # rows that are eliminated together, with the bits of one after the other
AT_ONCE = 12       # their columns that are summed side by side: twice as many numbers stay in registers
TOGETHER = 8       # elements of a row of the inverse that are summed side by side


def factor_rows(e: Emit, here: Any, stride: int, half: int, rows: int, given: Callable[[int, int], Any],
                right: Callable[[int, int], Any] | None = None) -> list[Any]:
    """Successive rows of L D L^T, from those before them; returns their D.

    here: place of the first row, `stride` elements each: its D, then its l, and at the end L^-1 y
    given(n, a): element a of row n of the matrix; right(n, r): right-hand side r, of SIDES, if there are any
    A few columns are made at a time, numbered from the first row's diagonal on: the elements of an earlier row are read
    once for all rows.
    """
    every, sides = range(rows), stride - SIDES * LANES
    y = {(n, r): right(n, r) for n in every for r in range(SIDES)} if right else {}
    scaled, across, inverse = dict[tuple[int, int], Any](), dict[tuple[int, int], Any](), list[Any]()
    for first in range(0, half + rows, AT_ONCE):
        columns = range(first, first + AT_ONCE)
        c = {(n, m): given(n, m - n) for n in every for m in columns if 0 <= m - n <= half}
        for b in range(half - first, 0, -1):
            earlier = -b * stride
            if first == 0:
                factor = {n: e.load(here, earlier + (b + n) * LANES) for n in every if b + n <= half}
                pivot = e.load(here, earlier)
                scaled.update({(b, n): e.multiply(f, pivot) for n, f in factor.items()})
                for r in range(SIDES if y else 0):
                    known = e.load(here, earlier + sides + r * LANES)
                    y.update({(n, r): e.take(f, known, y[n, r]) for n, f in factor.items()})
            for m in range(first, min(first + AT_ONCE, half - b + 1)):
                known = e.load(here, earlier + (b + m) * LANES)
                for n in range(min(rows, m + 1)):
                    c[n, m] = e.take(scaled[b, n], known, c[n, m])
        for n in every:
            if first == 0:
                inverse.append(e.divide(e.one, c[n, n]))
                across.update({(n, k): c[n, k] for k in every if (n, k) in c})
                e.store(here, n * stride, c[n, n])
            for m in range(max(first, n + 1), min(first + AT_ONCE, n + half + 1)):
                low = e.multiply(c[n, m], inverse[n])
                e.store(here, n * stride + (m - n) * LANES, low)
                for k in range(n + 1, min(rows, m + 1)):
                    c[k, m] = e.take(across[n, k], low, c[k, m])
                for r in range(SIDES if y and m < rows else 0):
                    y[m, r] = e.take(low, y[n, r], y[m, r])
    for (n, r), value in y.items():
        e.store(here, n * stride + sides + r * LANES, value)
    return [across[n, n] for n in every]


def _elimination(e, here, entry, right, shifts, h, stride, rows):
    """The code of `_eliminate`; arguments: places of the first row, the band's row, right-hand sides and shifts."""
    def given(n, a):
        value = e.spread(entry, n * (h + 1) + a)
        return e.add(value, e.load(shifts, 0)) if a == 0 else value

    factor_rows(e, here, stride, h, rows, given, lambda n, r: e.spread(right, n * SIDES + r))


@written_out(LANES, "half", "wide", "rows")
def _eliminate(e, work, row, band, column, sides, side, shifts, half, wide, rows):
    """`rows` rows from `row` on of L D L^T = S + t I and of the forward substitution; positions are flat indices."""
    places = e.pointer(work, row), e.pointer(band, column), e.pointer(sides, side), e.pointer(shifts, e.index(0))
    e.call("eliminate", places, _elimination, half, (wide + 1 + SIDES) * LANES, rows)


def _inverse_row(e: Emit, here: Any, weight: Any, half: int, wide: int) -> tuple[list[Any], list[Any]]:
    """z_0 .. z_wide of a row of the inverse, and the solutions of its right-hand sides, all times the poles' weights.

    z_a = - sum_b l_b Z[b, a], b = half .. 1. Z is symmetric: an element is read once for z_a and z_b.
    """
    stride = (wide + 1 + SIDES) * LANES
    inverse = e.divide(weight, e.load(here, 0))
    low = [e.negative(e.load(here, a * LANES)) for a in range(half + 1)]
    z = dict.fromkeys(range(1, wide + 1), e.zero)
    for top in range(wide, 0, -TOGETHER):
        for n in range(min(top, half), 0, -1):
            for m in range(top, max(top - TOGETHER, n - 1, 0), -1):
                known = e.load(here, n * stride + (m - n) * LANES)
                if n < m <= half:
                    z[n] = e.fma(low[m], known, z[n])
                z[m] = e.fma(low[n], known, z[m])
    u = []
    for r in range(SIDES):
        place = (wide + 1 + r) * LANES
        total = e.multiply(e.load(here, place), inverse)
        for b in range(half, 0, -1):
            total = e.fma(low[b], e.load(here, b * stride + place), total)
        u.append(total)
    z[0] = inverse
    for b in range(half, 0, -1):
        z[0] = e.fma(low[b], z[b], z[0])
    return [z[a] for a in range(wide + 1)], u


@written_out(LANES, "half", "wide", "ndiag")
def _substitute(e, work, row, weights, out, place, known, start, half, wide, ndiag):
    """Row `row` of the inverse and the solutions; its sums plus `known` at `start` are written to `out` at `place`."""
    here, weight = e.pointer(work, row), e.load(e.pointer(weights, e.index(0)), 0)
    target, before = e.pointer(out, place), e.pointer(known, start)
    z, u = _inverse_row(e, here, weight, half, wide)
    for a in range(wide + 1):
        e.store(here, a * LANES, z[a])
    for r in range(SIDES):
        e.store(here, (wide + 1 + r) * LANES, u[r])
    terms = u + z[:ndiag + 1]
    terms += [e.zero] * (-len(terms) % LANES)
    for n in range(0, len(terms), LANES):
        e.store(target, n, e.add(e.load(before, n), e.sums(terms[n:n + LANES])))


@njit(cache=True)
def right_sides(sides, weight, x):
    """Fill sides, (nfibre, nwave, SIDES), with 1 and x, or 0 without weight; returns whether each fibre has any."""
    alive = np.zeros(len(weight), dtype=np.bool_)
    for i in range(len(weight)):
        count = 0
        for j in range(weight.shape[1]):
            lit = weight[i, j] > 0.0
            sides[i, j, 0], sides[i, j, 1] = 1.0 if lit else 0.0, x[i, j] if lit else 0.0
            count += lit
        alive[i] = count > 0
    return alive


def out_width(ndiag: int) -> int:
    """Columns of the pole sum's output."""
    return -(-(SIDES + ndiag + 1) // LANES) * LANES


def work_size(nwave: int, half: int, ndiag: int) -> int:
    """Elements of the work array."""
    return (nwave + 2 * half) * (max(half, ndiag) + 1 + SIDES) * LANES


@cache
def pole_sum(half: int, ndiag: int) -> Any:
    """The kernel for a half-band of S and a number of diagonals of R on each side.

    kernel(out, work, bands, sides, poles, windows, fibres), for some fibres: with Z_k = (S + t_k I)^-1 and weights w_k,
    out: (nfibre, nwave, out_width): columns 0, 1: sum_k w_k Z_k (right-hand sides); 2 + a: sum_k w_k Z_k[j + a, j]
    work: (work_size,); sides: (nfibre, nwave, SIDES)
    bands: (n, padded(half) + nwave or more, half + 1), band[j, a] = S[j, j + a], 0 beyond the end, from the row
        padded(half) on
    poles: shifts and weights of all fibres; pairs that are not needed have weight 0
    windows: stretches of bins in which all of S is kept, see simd_windows.packed
    fibres: (m, 6): number of a fibre, of its S, its first pole and last + 1 (whole vectors), and its first row and last
        + 1 in the windows' edges
    out, work, shifts and weights start on a cache line.
    """
    wide, before = max(half, ndiag), padded(half)
    width = out_width(ndiag)

    @njit(cache=True, loops=False)
    def kernel(out, work, bands, sides, poles, windows, fibres):
        (shifts, weights), (table, dense, columns), nwave = poles, windows, out.shape[1]
        stride = (wide + 1 + SIDES) * LANES
        work[:half * stride] = 0.0
        nothing = np.zeros((1, width))
        reach = np.int64(half), np.int64(wide)      # not literals: windows are compiled once
        for m in range(len(fibres)):
            fibre, place, first_pole, last_pole, first_edge, last_edge = fibres[m]
            made, band, right, edges = out[fibre], bands[place][before:], sides[fibre], table[first_edge:last_edge]
            count = len(edges) - 1
            for p in range(first_pole, last_pole, LANES):
                shift, weight = shifts[p:p + LANES], weights[p:p + LANES]
                known, step = (made, width) if p > first_pole else (nothing, 0)     # no pass of memory for zeros
                for n in range(count + 1):
                    first, last = edges[n, 1], edges[n + 1, 0] if n < count else nwave
                    for j in range(first, last - ROWS + 1, ROWS):
                        at = (half + j) * stride
                        _eliminate(work, at, band, j * (half + 1), right, j * SIDES, shift, half, wide, ROWS)
                    if (last - first) % ROWS == 1:
                        j = last - 1
                        at = (half + j) * stride
                        _eliminate(work, at, band, j * (half + 1), right, j * SIDES, shift, half, wide, 1)
                    if n < count:
                        places = edges[n + 1, 0], edges[n + 1, 1] - edges[n + 1, 0], reach[0], reach[1]
                        simd_windows.factor(columns[edges[n + 1, 3]:], work, dense[edges[n + 1, 2]:], band, right,
                                            shift, places)
                work[(half + nwave) * stride:] = 0.0
                for n in range(count, -1, -1):
                    for j in range((edges[n + 1, 0] if n < count else nwave) - 1, edges[n, 1] - 1, -1):
                        _substitute(work, (half + j) * stride, weight, made, j * width, known, j * step, half, wide,
                                    ndiag)
                    if n > 0:
                        if p == first_pole:
                            made[edges[n, 0]:edges[n, 1]] = 0.0
                        places = edges[n, 0], edges[n, 1] - edges[n, 0], reach[0], reach[1]
                        simd_windows.invert(columns[edges[n, 3]:], work, made, weight, places, ndiag)
    return kernel
