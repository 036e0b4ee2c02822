"""CPU kernels: stretches of bins (windows) within which a fibre's S is kept whole, for eight poles at a time.

Beside the CCD's edge and beside masks S decays slowly, over some 40 bins instead of 20; elsewhere a narrow band holds.
L D L^T leaves the profile of a matrix as it is. So a band elimination can stop where such a window begins,
a dense elimination can do the window's columns, which reach to its end or as far as the band does, whichever is
farther, and the band elimination can go on from there. The inverse comes back the same way: Takahashi's recursion asks
for no element outside that profile. Exact for a matrix that is a band outside the windows and anything within.

Rows of the band's work array are those of narrow.simd_banded: D, l_1 .. l_half (later z_0 .. z_wide), right sides, each
a vector of eight lanes. A window is done by panels of four columns, as wide.simd_wide_poles does a whole fibre:
element (i, j) of the panels couples bins first - before + i and first - before + j, where `before` bins that are
coupled to nothing make the number of columns a multiple of four. The tail are the bins after the window that the band
reaches.
"""
# mypy: disallow-untyped-defs=False
from collections.abc import Iterable, Sequence

import numpy as np

from gpu_extract.arrays import Array, IntArray
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.blocks import (BLOCK, EDGE, GROUP, GROUPS, LANES, NORMAL, SIDES, TURNED, backward_corner,
                                        column_block, factor_corner, finish_block, forward_corner, invert_corner,
                                        mirror, scale_block, subtract_products, turn)
from gpu_extract.vectors.simd import address, vadd, vfma, vfold, vmul, vread8, vset8, vsub, vsum, vwrite

VECTOR = 8 * LANES      # bytes of one


@njit()
def _parts(size, wide):
    """A window's work space: (bins put before it, panels, panels with the tail); first elements of all its parts."""
    panels, tail = -(-size // EDGE), -(-wide // EDGE)
    height = panels + tail
    pivots = height * height * BLOCK
    inverses = pivots + height * EDGE * LANES
    y = inverses + height * EDGE * LANES
    row = y + height * GROUP
    return (panels * EDGE - size, panels, height), (pivots, inverses, y, row, row + height * BLOCK)


@njit()
def _element(i, j, height):
    """Where element (i, j) of the panels is, i >= j or in the same block."""
    return (j // EDGE * height + i // EDGE) * BLOCK + (j % EDGE * EDGE + i % EDGE) * LANES


@njit()
def _start(columns, y, dense, band, sides, shift, panel, sizes):
    """A panel of S + t I in all lanes, and its right sides; all as in `factor`; sizes: (first, size, half, wide)."""
    first, size, half, wide = sizes
    (before, panels, height), _ = _parts(size, wide)
    low, last = address(columns, 0), height if panel >= panels - (height - panels) else panels
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
            vwrite(low + _element(i, j, height) * 8, vset8(value))
        diagonal = low + _element(j, j, height) * 8
        for s in range(SIDES):
            vwrite(address(columns, y + (j * SIDES + s) * LANES), vset8(sides[first + q, s] if q >= 0 else 0.0))
        if q >= 0:
            vwrite(diagonal, vadd(vread8(diagonal), vread8(address(shift, 0))))


@njit()
def _from_before(columns, y, work, panel, sizes):
    """Subtract what the bins of the band before the window leave in a panel and its right sides."""
    first, size, half, wide = sizes
    (before, _, height), _ = _parts(size, wide)
    low, stride = address(columns, 0), (wide + 1 + SIDES) * VECTOR
    rows = address(work, 0) + (half + first) * stride
    for j in range(max(panel * EDGE, before), min((panel + 1) * EDGE, before + half)):
        c = j - before
        for m in range(half - c, 0, -1):
            known = rows - m * stride
            own = vsub(vset8(0.0), vread8(known + (c + m) * VECTOR))
            scaled = vmul(own, vread8(known))
            for a in range(half - c - m + 1):
                place = low + _element(j + a, j, height) * 8
                vwrite(place, vfma(scaled, vread8(known + (c + m + a) * VECTOR), vread8(place)))
            for s in range(SIDES):
                place = address(columns, y + (j * SIDES + s) * LANES)
                vwrite(place, vfma(own, vread8(known + (wide + 1 + s) * VECTOR), vread8(place)))


@njit(cache=True)
def factor(columns, work, dense, band, sides, shift, places):
    """L D L^T of a window's columns and the forward substitution of its bins.

    columns: work space (see `room`), filled: L by panels, D, 1/D, and the right sides divided by D
    work: of narrow.simd_banded, whose rows before the window are done; those of the window are filled
    dense: (size^2,), S within the window; band: (nwave, half + 1); sides: (nwave, SIDES); shift: (LANES,)
    places: (first, size, half, wide)
    """
    first, size, half, wide = places
    (before, panels, height), (pivots, inverses, y, row, _) = _parts(size, wide)
    step = height * BLOCK
    for j in range(panels):
        _start(columns, y, dense, band, sides, shift, j, places)
        if j * EDGE < before + half:
            _from_before(columns, y, work, j, places)
        own, ends = j * EDGE * LANES, max(panels - (height - panels), 0)    # from there on columns reach beyond
        last = height if j >= ends else panels
        for k in range(j):
            scale_block(columns, row + k * BLOCK, columns, k * step + j * BLOCK, columns, pivots + k * EDGE * LANES)
        for i in range(j, last):
            start = ends if i >= panels else 0
            subtract_products(columns, j * step + i * BLOCK, columns, start * step + i * BLOCK, step,
                              columns, row + start * BLOCK, j - start, NORMAL)
        corner = j * step + j * BLOCK
        factor_corner(columns, corner, columns, pivots + own, columns, inverses + own)
        for i in range(j + 1, last):
            finish_block(columns, j * step + i * BLOCK, columns, corner, columns, inverses + own)
        subtract_products(columns, y + j * GROUP, columns, row, BLOCK, columns, y, j, GROUPS)
        forward_corner(columns, y + j * GROUP, columns, corner, columns, inverses + own)
    low, stride = address(columns, 0), (wide + 1 + SIDES) * VECTOR
    for c in range(max(size - half, 0), size):
        here, j = address(work, 0) + (half + first + c) * stride, before + c
        diagonal = vread8(address(columns, pivots + j * LANES))
        vwrite(here, diagonal)
        for a in range(1, half + 1):
            vwrite(here + a * VECTOR, vread8(low + _element(j + a, j, height) * 8))
        for s in range(SIDES):
            side = vread8(address(columns, y + (j * SIDES + s) * LANES))
            vwrite(here + (wide + 1 + s) * VECTOR, vmul(side, diagonal))


@njit()
def _weigh(columns, first, count, weight):
    """Multiply `count` vectors, from element `first` of the columns on, by the weights."""
    for place in range(address(columns, first), address(columns, first + count * LANES), VECTOR):
        vwrite(place, vmul(vread8(place), vread8(address(weight, 0))))


@njit()
def _tail(columns, work, sizes):
    """The inverse and the solutions of the bins just after the window, where the window's recursion wants them."""
    first, size, half, wide = sizes
    (_, panels, height), (_, _, y, _, _) = _parts(size, wide)
    stride = (wide + 1 + SIDES) * VECTOR
    rows, end = address(work, 0) + (half + first + size) * stride, panels * EDGE
    for k in range((height - panels) * EDGE):
        for i in range(k // EDGE * EDGE, (height - panels) * EDGE):
            place = address(columns, _element(end + i, end + k, height))
            if min(i, k) < half and abs(i - k) <= wide:
                vwrite(place, vread8(rows + min(i, k) * stride + abs(i - k) * VECTOR))
            else:
                vwrite(place, vset8(0.0))
        for s in range(SIDES):
            place = address(columns, y + ((end + k) * SIDES + s) * LANES)
            vwrite(place, vread8(rows + k * stride + (wide + 1 + s) * VECTOR) if k < half else vset8(0.0))


@njit()
def _add_up(out, row, wide):
    """One bin's row of the inverse and its solutions into `out`, summed over the lanes."""
    for n in range(len(out)):
        place = row + (wide + 1 + n if n < SIDES else n - SIDES) * VECTOR
        out[n] += vsum(vfold(vread8(place)))


@njit(cache=True)
def invert(columns, work, out, weight, places, ndiag):
    """A window's columns of L become those of the inverse, right sides the solutions; all is added into `out`.

    All are times the poles' weights, as the inverse and the solutions after the window already are: they are linear in
    1/D, which is weighted at first. Otherwise as in `factor`; the rows of `work` after the window are those of the
    inverse, and those of the window become it.
    out: (nwave, at least SIDES + ndiag + 1); weight: (LANES,)
    """
    first, size, half, wide = places
    (before, panels, height), (_, inverses, y, v, z) = _parts(size, wide)
    step = height * BLOCK
    _tail(columns, work, places)
    _weigh(columns, inverses, panels * EDGE, weight)
    _weigh(columns, y, panels * EDGE * SIDES, weight)
    for j in range(panels - 1, -1, -1):
        panel = j * step
        corner, last = panel + j * BLOCK, height if j >= panels - (height - panels) else panels
        for i in range(j + 1, last):
            column_block(columns, v + i * BLOCK, columns, panel + i * BLOCK, columns, corner)
        backward_corner(columns, y + j * GROUP, columns, corner, columns, corner)
        subtract_products(columns, y + j * GROUP, columns, v + (j + 1) * BLOCK, BLOCK, columns, y + (j + 1) * GROUP,
                          last - j - 1, GROUPS)
        invert_corner(columns, z, columns, corner, columns, inverses + j * EDGE * LANES)
        for n in range(BLOCK):
            columns[corner + n] = columns[z + n]
        columns[corner + BLOCK:panel + last * BLOCK] = 0.0
        for i in range(j + 1, last):
            here = panel + i * BLOCK
            subtract_products(columns, here, columns, (j + 1) * step + i * BLOCK, step, columns, v + (j + 1) * BLOCK,
                              i - j, NORMAL)
            subtract_products(columns, here, columns, i * step + (i + 1) * BLOCK, BLOCK, columns, v + (i + 1) * BLOCK,
                              last - i - 1, TURNED)
            turn(columns, z + i * BLOCK, columns, here, columns, here)
        subtract_products(columns, corner, columns, v + (j + 1) * BLOCK, BLOCK, columns, z + (j + 1) * BLOCK,
                          last - j - 1, NORMAL)
        mirror(columns, corner, columns, corner, columns, corner)
    low, stride = address(columns, 0), (wide + 1 + SIDES) * VECTOR
    for c in range(size):
        here, j = address(work, 0) + (half + first + c) * stride, before + c
        for a in range(wide + 1):
            vwrite(here + a * VECTOR, vread8(low + _element(j + a, j, height) * 8))
        for s in range(SIDES):
            vwrite(here + (wide + 1 + s) * VECTOR, vread8(address(columns, y + (j * SIDES + s) * LANES)))
        _add_up(out[first + c, :SIDES + ndiag + 1], here, wide)


def room(sizes: Iterable[int], wide: int) -> int:
    """Elements of the columns of windows of so many bins."""
    heights = [-(-n // EDGE) - (-wide // EDGE) for n in sizes]
    return sum(h * ((h + 2) * BLOCK + 2 * EDGE * LANES + GROUP) for h in heights)


def packed(fibres: Sequence[Sequence[tuple[int, Array]]], wide: int,
           columns: Array) -> tuple[tuple[IntArray, Array, Array], IntArray]:
    """Windows of some fibres as the kernels take them.

    fibres: of each its windows, (first bin, S within: (n, n)) in the order of their bins; columns: work space, the
    `room` of any one of them
    Returns edges (fibres + windows, 4): first, last + 1, first elements in `dense` and in `columns`, for each fibre
    after a row of zeros for the start of the band; dense: all S one after the other; columns. And (fibres + 1,) the
    rows of edges at which the fibres begin.
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
