"""CPU kernels: stretches of bins (windows) within which all of a fibre's S is kept, for eight poles at a time.

Beside the edge of the CCD and beside masks S decays slowly, over some 40 bins instead of 20; elsewhere a narrow band
holds. L D L^T preserves the profile of a matrix. So the band elimination stops where a window begins. A dense
elimination does the window's columns, which extend to the farther of its end and the end of the band; then the band
elimination continues. The inverse returns the same way: Takahashi's recursion needs no element outside that profile.
The result is exact for a matrix that is a band outside the windows and anything within.

Rows of the band's work array are those of narrow.simd_banded: D, l_1 .. l_half (later z_0 .. z_wide), right-hand sides,
each a vector of eight lanes. A window is done by panels of four columns, as wide.simd_wide_poles does a whole fibre:
element (i, j) of the panels couples bins first - before + i and first - before + j, where `before` uncoupled bins make
the number of columns a multiple of four. The tail are the bins after the window that the band reaches.
"""
# mypy: disallow-untyped-defs=False
from collections.abc import Iterable, Sequence

import numpy as np

from gpu_extract.arrays import Array, IntArray
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.blocks import (BLOCK, EDGE, GROUP, GROUPS, LINE, NORMAL, PAIRS, PIVOTS, SIDES, SQUARE, TURNED,
                                        VECTOR, backward_corner, column_block, factor_corner, finish_block,
                                        forward_corner, invert_corner, mirror, scale_block, subtract_products, turn)
from gpu_extract.vectors.simd import address, vadd, vfma, vfold, vmul, vread8, vset8, vsub, vsum, vwrite


@njit()
def _parts(columns, size, wide):
    """A window's work space: (bins put before it, panels, panels with the tail); addresses of all its parts."""
    panels, tail = -(-size // EDGE), -(-wide // EDGE)
    height, low = panels + tail, address(columns, 0)
    pivots = low + height * height * SQUARE
    inverses = pivots + height * LINE
    y = inverses + height * LINE
    row = y + height * PAIRS
    return (panels * EDGE - size, panels, height), (low, pivots, inverses, y, row, row + height * SQUARE)


@njit()
def _element(i, j, height):
    """Bytes to element (i, j) of the panels, i >= j or in the same block."""
    return (j // EDGE * height + i // EDGE) * SQUARE + (j % EDGE * EDGE + i % EDGE) * VECTOR


@njit()
def _start(columns, dense, band, sides, shift, panel, sizes):
    """A panel of S + t I and its right-hand sides in all lanes; arguments as in `factor`; sizes: (first, size, half,
    wide)."""
    first, size, half, wide = sizes
    (before, panels, height), (low, _, _, y, _, _) = _parts(columns, size, wide)
    last = height if panel >= panels - (height - panels) else panels
    for j in range(panel * EDGE, (panel + 1) * EDGE):
        q = j - before
        for i in range(panel * EDGE, last * EDGE):
            r, value = i - before, 0.0
            if i == j:
                value = 1.0
            if q >= 0 and 0 <= r < size:
                value = dense[q * size + r]
            elif q >= 0 and r >= size and r - q <= half:
                value = band[first + q, r - q]
            vwrite(low + _element(i, j, height), vset8(value))
        for s in range(SIDES):
            vwrite(y + (j * SIDES + s) * VECTOR, vset8(sides[first + q, s] if q >= 0 else 0.0))
        if q >= 0:
            diagonal = low + _element(j, j, height)
            vwrite(diagonal, vadd(vread8(diagonal), vread8(address(shift, 0))))


@njit()
def _from_before(columns, work, panel, sizes):
    """Subtract the contributions of the band's bins before the window from a panel and its right-hand sides."""
    first, size, half, wide = sizes
    (before, _, height), (low, _, _, y, _, _) = _parts(columns, size, wide)
    stride = (wide + 1 + SIDES) * VECTOR
    rows = address(work, 0) + (half + first) * stride
    for j in range(max(panel * EDGE, before), min((panel + 1) * EDGE, before + half)):
        c = j - before
        for m in range(half - c, 0, -1):
            known = rows - m * stride
            own = vsub(vset8(0.0), vread8(known + (c + m) * VECTOR))
            scaled = vmul(own, vread8(known))
            for a in range(half - c - m + 1):
                place = low + _element(j + a, j, height)
                vwrite(place, vfma(scaled, vread8(known + (c + m + a) * VECTOR), vread8(place)))
            for s in range(SIDES):
                place = y + (j * SIDES + s) * VECTOR
                vwrite(place, vfma(own, vread8(known + (wide + 1 + s) * VECTOR), vread8(place)))


@njit(cache=True)
def factor(columns, work, dense, band, sides, shift, places):
    """L D L^T of a window's columns and the forward substitution of its bins.

    columns: work space (see `room`), filled: L by panels, D, 1/D, and the right-hand sides divided by D
    work: of narrow.simd_banded, whose rows before the window are done; those of the window are filled
    dense: (size^2,), S within the window; band: (nwave, half + 1); sides: (nwave, SIDES); shift: (LANES,)
    places: (first, size, half, wide)
    """
    first, size, half, wide = places
    (before, panels, height), (low, pivots, inverses, y, row, _) = _parts(columns, size, wide)
    step, ends = height * SQUARE, max(panels - (height - panels), 0)        # from there on columns extend beyond
    for j in range(panels):
        _start(columns, dense, band, sides, shift, j, places)
        if j * EDGE < before + half:
            _from_before(columns, work, j, places)
        panel, last = low + j * step, height if j >= ends else panels
        corner, own = panel + j * SQUARE, inverses + j * LINE
        for k in range(j):
            scale_block((row + k * SQUARE, low + k * step + j * SQUARE, pivots + k * LINE))
        for i in range(j, last):
            start = ends if i >= panels else 0
            subtract_products(panel + i * SQUARE, (low + start * step + i * SQUARE, step), row + start * SQUARE,
                              j - start, NORMAL)
        factor_corner((corner, pivots + j * LINE, own))
        for i in range(j + 1, last):
            finish_block((panel + i * SQUARE, corner, own))
        subtract_products(y + j * PAIRS, (row, SQUARE), y, j, GROUPS)
        forward_corner((y + j * PAIRS, corner, own))
    stride = (wide + 1 + SIDES) * VECTOR
    for c in range(max(size - half, 0), size):
        here, j = address(work, 0) + (half + first + c) * stride, before + c
        diagonal = vread8(pivots + j * VECTOR)
        vwrite(here, diagonal)
        for a in range(1, half + 1):
            vwrite(here + a * VECTOR, vread8(low + _element(j + a, j, height)))
        for s in range(SIDES):
            side = vread8(y + (j * SIDES + s) * VECTOR)
            vwrite(here + (wide + 1 + s) * VECTOR, vmul(side, diagonal))


@njit()
def _weigh(first, count, weight):
    """Multiply `count` vectors from address `first` on by the weights."""
    for place in range(first, first + count * VECTOR, VECTOR):
        vwrite(place, vmul(vread8(place), vread8(address(weight, 0))))


@njit()
def _tail(columns, work, sizes):
    """Copy the inverse and the solutions of the bins just after the window to its own panels."""
    first, size, half, wide = sizes
    (_, panels, height), (low, _, _, y, _, _) = _parts(columns, size, wide)
    stride = (wide + 1 + SIDES) * VECTOR
    rows, end = address(work, 0) + (half + first + size) * stride, panels * EDGE
    for k in range((height - panels) * EDGE):
        for i in range(k // EDGE * EDGE, (height - panels) * EDGE):
            place = low + _element(end + i, end + k, height)
            if min(i, k) < half and abs(i - k) <= wide:
                vwrite(place, vread8(rows + min(i, k) * stride + abs(i - k) * VECTOR))
            else:
                vwrite(place, vset8(0.0))
        for s in range(SIDES):
            place = y + ((end + k) * SIDES + s) * VECTOR
            vwrite(place, vread8(rows + k * stride + (wide + 1 + s) * VECTOR) if k < half else vset8(0.0))


@njit()
def _add_up(out, row, wide):
    """One bin's row of the inverse and its solutions into `out`, summed over the lanes."""
    for n in range(len(out)):
        place = row + (wide + 1 + n if n < SIDES else n - SIDES) * VECTOR
        out[n] += vsum(vfold(vread8(place)))


@njit(cache=True)
def invert(columns, work, out, weight, places, ndiag):
    """A window's columns of L become those of the inverse, right-hand sides the solutions; all are added to `out`.

    All include the poles' weights, as the inverse and the solutions after the window already do: they are linear in
    1/D, which is weighted first. Otherwise as in `factor`; the rows of `work` after the window are those of the
    inverse, and those of the window become so.
    out: (nwave, at least SIDES + ndiag + 1); weight: (LANES,)
    """
    first, size, half, wide = places
    (before, panels, height), (low, _, inverses, y, v, z) = _parts(columns, size, wide)
    step = height * SQUARE
    _tail(columns, work, places)
    _weigh(inverses, panels * EDGE, weight)
    _weigh(y, panels * EDGE * SIDES, weight)
    for j in range(panels - 1, -1, -1):
        panel, behind = low + j * step, v + (j + 1) * SQUARE
        corner, last = panel + j * SQUARE, height if j >= panels - (height - panels) else panels
        for i in range(j + 1, last):
            column_block((v + i * SQUARE, panel + i * SQUARE, corner))
        backward_corner((y + j * PAIRS, corner))
        subtract_products(y + j * PAIRS, (behind, SQUARE), y + (j + 1) * PAIRS, last - j - 1, GROUPS)
        invert_corner((corner, inverses + j * LINE))
        for place in range(corner + SQUARE, panel + last * SQUARE, VECTOR):
            vwrite(place, vset8(0.0))
        for i in range(j + 1, last):
            here = panel + i * SQUARE
            subtract_products(here, (low + (j + 1) * step + i * SQUARE, step), behind, i - j, NORMAL)
            subtract_products(here, (low + i * step + (i + 1) * SQUARE, SQUARE), v + (i + 1) * SQUARE, last - i - 1,
                              TURNED)
            turn((z + i * SQUARE, here))
        subtract_products(corner, (behind, SQUARE), z + (j + 1) * SQUARE, last - j - 1, NORMAL)
        mirror((corner,))
    stride = (wide + 1 + SIDES) * VECTOR
    for c in range(size):
        here, j = address(work, 0) + (half + first + c) * stride, before + c
        for a in range(wide + 1):
            vwrite(here + a * VECTOR, vread8(low + _element(j + a, j, height)))
        for s in range(SIDES):
            vwrite(here + (wide + 1 + s) * VECTOR, vread8(y + (j * SIDES + s) * VECTOR))
        _add_up(out[first + c, :SIDES + ndiag + 1], here, wide)


def room(sizes: Iterable[int], wide: int) -> int:
    """Elements of the columns of windows of these sizes."""
    heights = [-(-n // EDGE) - (-wide // EDGE) for n in sizes]
    return sum(h * ((h + 2) * BLOCK + 2 * PIVOTS + GROUP) for h in heights)


def packed(fibres: Sequence[Sequence[tuple[int, Array]]], wide: int,
           columns: Array) -> tuple[tuple[IntArray, Array, Array], IntArray]:
    """Windows of fibres in the form for the kernels.

    fibres: the windows of each, (first bin, S within: (n, n)) in the order of their bins; columns: work space, the
    `room` for any of them
    Returns edges (fibres + windows, 4): first, last + 1, first elements in `dense` and in `columns`, for each fibre
    after a row of zeros for the start of the band; dense: all S one after the other; columns. Also returns (fibres +
    1,), the first row of edges of each fibre.
    """
    starts = np.cumsum([0, *(1 + len(windows) for windows in fibres)])
    edges, size = np.zeros((starts[-1], 4), dtype=np.int64), 0
    for start, windows in zip(starts[:-1].tolist(), fibres, strict=True):
        used = 0
        for n, (first, matrix) in enumerate(windows, start + 1):
            edges[n] = first, first + len(matrix), size, used
            size, used = size + len(matrix)**2, used + room([len(matrix)], wide)
    dense = np.concatenate([np.ravel(matrix) for windows in fibres for _, matrix in windows] or [np.empty(0)])
    return (edges, dense, columns), starts
