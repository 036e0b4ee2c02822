"""CPU kernels: stretches of bins (windows) within which a fibre's S is kept whole, for eight poles at a time.

Beside the CCD's edge and beside masks S decays slowly, over some 40 bins instead of 20; elsewhere a narrow band holds.
L D L^T leaves the profile of a matrix as it is. So a band elimination can stop where such a window begins,
a dense elimination can do the window's columns, which reach to its end or as far as the band does, whichever is
farther, and the band elimination can go on from there. The inverse comes back the same way: Takahashi's recursion asks
for no element outside that profile. Exact for a matrix that is a band outside the windows and anything within.

Rows of the band's work array are those of backend.cpu_banded: D, l_1 .. l_half (later z_0 .. z_wide), right sides, each
a vector of eight lanes. A window has columns of its own, n of n + wide such vectors: element (r, c) couples bins
first + r and first + c.
"""
from collections.abc import Iterable, Sequence

import numpy as np
from numba import njit

from gpu_extract.backend.simd import (
    address,
    number,
    vabs,
    vadd,
    vdiv,
    vfma,
    vmax,
    vmul,
    vread,
    vset,
    vspread,
    vstore,
    vsub,
    vsum,
    vwrite,
)
from gpu_extract.data import Array, IntArray

LANES = 8
SIDES = 2
VECTOR = 8 * LANES      # bytes of one
NEXT = VECTOR // 2      # bytes from its first half to its second


@njit(nogil=True, error_model="numpy")
def _subtract(target, factor, other, count):  # type: ignore[no-untyped-def]
    """target[r] -= factor other[r] for `count` vectors; all addresses."""
    low, high = vsub(vset(0.0), vread(factor)), vsub(vset(0.0), vread(factor + NEXT))
    for r in range(0, count * VECTOR, VECTOR):
        vwrite(target + r, vfma(low, vread(other + r), vread(target + r)))
        vwrite(target + r + NEXT, vfma(high, vread(other + r + NEXT), vread(target + r + NEXT)))


@njit(nogil=True, error_model="numpy")
def _product(target, a, b):  # type: ignore[no-untyped-def]
    """target = a b, one vector each."""
    vwrite(target, vmul(vread(a), vread(b)))
    vwrite(target + NEXT, vmul(vread(a + NEXT), vread(b + NEXT)))


@njit(nogil=True, error_model="numpy")
def _divide(target, a, b):  # type: ignore[no-untyped-def]
    """target = a / b, one vector each."""
    vwrite(target, vdiv(vread(a), vread(b)))
    vwrite(target + NEXT, vdiv(vread(a + NEXT), vread(b + NEXT)))


@njit(nogil=True, error_model="numpy")
def _start(column, dense, band, shift, c, size, half):  # type: ignore[no-untyped-def]
    """Column c of S + t I in all lanes, from its diagonal on; dense: (size^2,), band: row c of the band."""
    for r in range(c, max(size - 1, c + half) + 1):
        place = address(dense, c * size + r) if r < size else address(band, r - c)
        value = vspread(place)
        vwrite(column + r * VECTOR, value)
        vwrite(column + r * VECTOR + NEXT, value)
    diagonal = column + c * VECTOR
    vwrite(diagonal, vadd(vread(diagonal), vread(address(shift, 0))))
    vwrite(diagonal + NEXT, vadd(vread(diagonal + NEXT), vread(address(shift, LANES // 2))))


@njit(nogil=True, cache=True, error_model="numpy")
def factor(columns, work, dense, band, sides, shift, places):  # type: ignore[no-untyped-def]
    """L D L^T of a window's columns and the forward substitution of its bins.

    columns: (size (size + wide) LANES,), filled: L, and D on the diagonal
    work: of backend.cpu_banded, whose rows before the window are done; those of the window are filled
    dense: (size^2,), S within the window; band: (nwave, half + 1); sides: (nwave, SIDES); shift: (LANES,)
    places: (first, size, half, wide)
    """
    first, size, half, wide = places
    height, stride = (size + wide) * VECTOR, (wide + 1 + SIDES) * VECTOR
    rows, low = address(work, 0) + (half + first) * stride, address(columns, 0)
    for c in range(size):
        column, row = low + c * height, rows + c * stride
        scaled = row        # its place of D, which is written last
        right = row + (wide + 1) * VECTOR
        _start(column, dense, band[first + c], shift, c, size, half)
        for s in range(SIDES):
            value = vset(sides[first + c, s])
            vwrite(right + s * VECTOR, value)
            vwrite(right + s * VECTOR + NEXT, value)
        for b in range(half, c, -1):            # rows of the band before the window, b bins before c
            before = row - b * stride
            entry = before + b * VECTOR
            _product(scaled, entry, before)
            _subtract(column + c * VECTOR, scaled, entry, half - b + 1)
            _subtract(right, entry, before + (wide + 1) * VECTOR, SIDES)
        for m in range(c):
            entry = low + m * height + c * VECTOR
            _product(scaled, entry, low + m * height + m * VECTOR)
            _subtract(column + c * VECTOR, scaled, entry, max(size - 1, m + half) - c + 1)
            _subtract(right, entry, rows + m * stride + (wide + 1) * VECTOR, SIDES)
        for r in range(c + 1, max(size - 1, c + half) + 1):
            _divide(column + r * VECTOR, column + r * VECTOR, column + c * VECTOR)
        for a in range(half + 1):
            vwrite(row + a * VECTOR, vread(column + (c + a) * VECTOR))
            vwrite(row + a * VECTOR + NEXT, vread(column + (c + a) * VECTOR + NEXT))


@njit(nogil=True, error_model="numpy")
def _element(low, rows, i, j, sizes):  # type: ignore[no-untyped-def]
    """Address of Z[i, j], i >= j, of the inverse; sizes: (size, bytes of a column, bytes of a row)."""
    size, height, stride = sizes
    return low + j * height + i * VECTOR if j < size else rows + j * stride + (i - j) * VECTOR


@njit(nogil=True, error_model="numpy")
def _solve(row, known, entries, c, top, stride):  # type: ignore[no-untyped-def]
    """The back substitution of one bin: both right sides; known: row of bin 0 of the window, entries: l, by bins."""
    for s in range(SIDES):
        right = row + s * VECTOR
        low, high = vdiv(vread(right), vread(entries + c * VECTOR)), vread(right + NEXT)
        high = vdiv(high, vread(entries + c * VECTOR + NEXT))
        for m in range(c + 1, top + 1):
            entry, solved = entries + m * VECTOR, known + m * stride + s * VECTOR
            low = vsub(low, vmul(vread(entry), vread(solved)))
            high = vsub(high, vmul(vread(entry + NEXT), vread(solved + NEXT)))
        vwrite(right, low)
        vwrite(right + NEXT, high)


@njit(nogil=True, error_model="numpy")
def _add_up(out, row, weight, wide):  # type: ignore[no-untyped-def]
    """One bin's row of the inverse and its solutions into `out`, summed over the lanes."""
    low, high = vread(address(weight, 0)), vread(address(weight, LANES // 2))
    for n in range(len(out)):
        place = row + (wide + 1 + n if n < SIDES else n - SIDES) * VECTOR
        out[n] += vsum(vfma(high, vread(place + NEXT), vmul(low, vread(place))))


@njit(nogil=True, cache=True, error_model="numpy")
def invert(columns, work, out, weight, places, ndiag):  # type: ignore[no-untyped-def]
    """A window's columns of L become those of the inverse, right sides the solutions; all is added into `out`.

    As in `factor`; the rows of `work` after the window are those of the inverse.
    out: (nwave, at least SIDES + ndiag + 1); weight: (LANES,)
    """
    first, size, half, wide = places
    height, stride = (size + wide) * VECTOR, (wide + 1 + SIDES) * VECTOR
    rows, low = address(work, 0) + (half + first) * stride, address(columns, 0)
    sizes = size, height, stride
    entries = address(columns, size * (size + wide) * LANES)
    for c in range(size - 1, -1, -1):
        column, row, top = low + c * height, rows + c * stride, max(size - 1, c + half)
        for m in range(c, top + 1):
            vwrite(entries + m * VECTOR, vread(column + m * VECTOR))
            vwrite(entries + m * VECTOR + NEXT, vread(column + m * VECTOR + NEXT))
        for r in range(max(size - 1, c + wide), c, -1):
            total, beside = vset(0.0), vset(0.0)
            for m in range(c + 1, top + 1):
                known, entry = _element(low, rows, max(r, m), min(r, m), sizes), entries + m * VECTOR
                total = vsub(total, vmul(vread(entry), vread(known)))
                beside = vsub(beside, vmul(vread(entry + NEXT), vread(known + NEXT)))
            vwrite(column + r * VECTOR, total)
            vwrite(column + r * VECTOR + NEXT, beside)
        total = vdiv(vset(1.0), vread(entries + c * VECTOR))
        beside = vdiv(vset(1.0), vread(entries + c * VECTOR + NEXT))
        for m in range(c + 1, top + 1):
            entry, known = entries + m * VECTOR, column + m * VECTOR
            total = vsub(total, vmul(vread(entry), vread(known)))
            beside = vsub(beside, vmul(vread(entry + NEXT), vread(known + NEXT)))
        vwrite(column + c * VECTOR, total)
        vwrite(column + c * VECTOR + NEXT, beside)
        _solve(row + (wide + 1) * VECTOR, rows + (wide + 1) * VECTOR, entries, c, top, stride)
        for a in range(wide + 1):
            vwrite(row + a * VECTOR, vread(column + (c + a) * VECTOR))
            vwrite(row + a * VECTOR + NEXT, vread(column + (c + a) * VECTOR + NEXT))
        _add_up(out[first + c, :SIDES + ndiag + 1], row, weight, wide)


@njit(nogil=True, cache=True, error_model="numpy")
def couplings(out, icov, roots, distance):  # type: ignore[no-untyped-def]
    """The largest |A_ij| / sqrt(A_ii A_jj) of every bin of fibre i with those of fibre j = i + distance.

    out: (nfibre - distance, nwave), filled
    roots: (nfibre, nwave + 2 margin), 1 / sqrt of the diagonals, with margin >= hw zeros at both ends
    """
    nwave, width = icov.shape[2], icov.shape[3]
    margin = (roots.shape[1] - nwave) // 2
    top, far = np.empty(4), 8 * max(width - 4, 0)
    for i in range(len(out)):
        own = roots[i, margin:]
        row = address(icov, (i * icov.shape[1] + distance) * nwave * width)
        near = address(roots, (i + distance) * roots.shape[1] + margin - width // 2)
        for p in range(nwave):
            if width < 4:
                largest = 0.0
                for k in range(0, 8 * width, 8):
                    largest = max(largest, abs(number(row + k) * number(near + k)))
            else:               # the last four once more: twice makes no difference
                most = vabs(vmul(vread(row + far), vread(near + far)))
                for k in range(0, far, 32):
                    most = vmax(vabs(vmul(vread(row + k), vread(near + k))), most)
                vstore(top, 0, most)
                largest = max(max(top[0], top[1]), max(top[2], top[3]))
            out[i, p] = largest * own[p]
            row += 8 * width
            near += 8


@njit(nogil=True, cache=True, error_model="numpy")
def put(band, taken, rest, exact, x, roots, places):  # type: ignore[no-untyped-def]
    """Put a fibre's window into its band, and measure what that leaves out.

    band, taken: (nwave, half + 1), S and U to second order; within the window band becomes S, taken 0
    rest: (nwave,), -U x, becomes that of `taken` as it is now; in the window, what S has outside of it and of the band,
        times x
    exact: (n, n), S of bins start .. start + n - 1; x, roots: (nwave,), 1 / sqrt of icov's diagonal, 0 where that is 0
    places: (first, last, start, hw)
    Returns, the diagonal scaled to 1, the largest row sum of what the window has beyond the band; the largest element
    beyond the band from the window outwards; the largest row sum of what S differs by just outside of the window;
    and, as they are, the largest row sum of what has changed in the window; 1'E1, 1'Ex and x'Ex, E what the window has
    beyond the band.
    """
    first, last, start, hw = places
    half, stop = band.shape[1] - 1, start + len(exact)
    inner = crossing = seam = wider = ones = cross = both = 0.0
    for j in range(start, stop):
        inside, beyond, differs, changed, moved = first <= j < last, 0.0, 0.0, 0.0, 0.0
        for k in range(start, stop):
            scale, within, distance = roots[j] * roots[k], first <= k < last, abs(j - k)
            if scale == 0.0:
                continue
            value, near = exact[j - start, k - start], distance <= half
            known = band[min(j, k), distance] if near else 0.0
            if inside and within:
                changed += abs(value - known)
                if not near:
                    beyond += abs(value) * scale
                    ones += value
                    cross += value * x[k]
                    both += x[j] * value * x[k]
            elif inside and not near:
                crossing = max(crossing, abs(value) * scale)
                moved += value * x[k]
            elif near and within:
                moved += taken[min(j, k), distance] * x[k]
            elif near and not inside and min(j, k) >= first - hw and max(j, k) < last + hw:
                differs += abs(value - known) * scale
        inner, seam, wider = max(inner, beyond), max(seam, differs), max(wider, changed)
        rest[j] = moved if inside else rest[j] + moved
    for a in range(half + 1):
        for j in range(max(first - a, start), min(last, stop - a)):
            taken[j, a] = 0.0
            if a > 0 or roots[j] > 0.0:
                band[j, a] = exact[j - start, j + a - start]
    return inner, crossing, seam, wider, ones, cross, both


def room(sizes: Iterable[int], wide: int) -> int:
    """Elements of the columns of windows of so many bins."""
    return sum((n + 1) * (n + wide) * LANES for n in sizes)


def packed(windows: Sequence[tuple[int, Array]], wide: int, columns: Array) -> tuple[IntArray, Array, Array]:
    """Windows as the kernels take them.

    windows: (first bin, S within: (n, n)) in the order of their bins; columns: (room,) work space
    Returns edges (1 + windows, 4): first, last + 1, first elements in `dense` and in `columns`, after a row of zeros
    for the start of the band; dense: all S one after the other; columns.
    """
    edges = np.zeros((len(windows) + 1, 4), dtype=np.int64)
    for n, (first, matrix) in enumerate(windows, 1):
        size = len(matrix)
        edges[n, :2] = first, first + size
        if n < len(windows):
            edges[n + 1, 2:] = edges[n, 2:] + np.array([size**2, room([size], wide)])
    return edges, np.concatenate([np.ravel(matrix) for _, matrix in windows] or [np.empty(0)]), columns


NO_WINDOWS = packed((), 0, np.empty(0))
