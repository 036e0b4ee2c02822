"""CPU kernel: what S has beyond its band, added to a fibre's flux exactly to first order.

Let S = B + E, B the band and its windows, E the rest. Q(S) = sum_k c_k (I - t_k (S + t_k)^-1), so to first order in E

    Q(S) - Q(B) = sum_k c_k t_k (B + t_k)^-1 E (B + t_k)^-1.

E is known by what it does to a vector: outside of windows it is - sum_j (U_j less its band), U_j = A_ij M_j^-1 A_ji
what eliminating fibre j takes (M_j: A_jj less what the fibre beyond it takes from it); in windows it is what S has
there outside of the window and of the band. A vector has eight lanes: four poles for the right side 1, and four for x.

A row of the factor of B + t holds 1 / D, l_1, l_2 .. up to the end of the band or of the window. L D L^T keeps that
profile.
"""
import numpy as np
from gpu_extract.backend.compiled import njit
from gpu_extract.backend.simd import (
    address,
    number,
    vadd,
    vdiv,
    vfma,
    vmul,
    vread,
    vread8,
    vset,
    vset8,
    vsum,
    vtake,
    vwrite,
)

LANES = 8
VECTOR = 8 * LANES      # bytes of one
POLES = LANES // 2      # for each of the two right sides


@njit(nogil=True, error_model="numpy")
def _row(here, length, j, band, windows):  # type: ignore[no-untyped-def]
    """A row of B in all lanes."""
    columns = band.shape[1]
    given = address(band, j * columns)
    for a in range(min(length, columns)):
        vwrite(here + VECTOR * a, vset8(number(given + 8 * a)))
    for a in range(columns, length):
        vwrite(here + VECTOR * a, vset8(0.0))
    for n in range(len(windows)):
        first, last, start, size, exact = windows[n, 0], windows[n, 1], windows[n, 2], windows[n, 3], windows[n, 4]
        for k in range(j if first <= j else last, last):
            vwrite(here + VECTOR * (k - j), vset8(number(exact + 8 * ((j - start) * size + k - start))))


@njit(nogil=True, error_model="numpy")
def _factor(low, starts, band, windows, shift, v):  # type: ignore[no-untyped-def]
    """L D L^T = B + t, and v becomes L^-1 v."""
    nwave, made = len(band), 0
    for j in range(nwave):
        here, place = low + VECTOR * starts[j], v + VECTOR * j
        reach = min(starts[j + 1] - starts[j] - 1, nwave - 1 - j)
        while made <= j + reach:
            _row(low + VECTOR * starts[made], starts[made + 1] - starts[made], made, band, windows)
            made += 1
        inverse, value = vdiv(vset8(1.0), vadd(vread8(here), shift)), vread8(place)
        vwrite(here, inverse)
        for m in range(1, reach + 1):
            factor = vmul(vread8(here + VECTOR * m), inverse)
            there = low + VECTOR * (starts[j + m] - m)
            for a in range(m, reach + 1):
                vwrite(there + VECTOR * a, vtake(factor, vread8(here + VECTOR * a), vread8(there + VECTOR * a)))
            vwrite(here + VECTOR * m, factor)
            vwrite(place + VECTOR * m, vtake(factor, value, vread8(place + VECTOR * m)))


@njit(nogil=True, error_model="numpy")
def _forward(low, starts, v):  # type: ignore[no-untyped-def]
    """v becomes L^-1 v."""
    nwave = len(starts) - 1
    for j in range(nwave):
        here, place, value = low + VECTOR * starts[j], v + VECTOR * j, vread8(v + VECTOR * j)
        for m in range(1, min(starts[j + 1] - starts[j] - 1, nwave - 1 - j) + 1):
            there = place + VECTOR * m
            vwrite(there, vtake(vread8(here + VECTOR * m), value, vread8(there)))


@njit(nogil=True, error_model="numpy")
def _backward(low, starts, v):  # type: ignore[no-untyped-def]
    """v becomes (D L^T)^-1 v."""
    nwave = len(starts) - 1
    for j in range(nwave - 1, -1, -1):
        here, place = low + VECTOR * starts[j], v + VECTOR * j
        value = vmul(vread8(place), vread8(here))
        for m in range(min(starts[j + 1] - starts[j] - 1, nwave - 1 - j), 0, -1):
            value = vtake(vread8(here + VECTOR * m), vread8(place + VECTOR * m), value)
        vwrite(place, value)


@njit(nogil=True, error_model="numpy")
def _solve_neighbour(low, half, v, nwave):  # type: ignore[no-untyped-def]
    """v becomes M^-1 v; low: rows D, l_1 .. l_half, the same for all lanes, 0 behind the last bin's."""
    row = 8 * (half + 1)
    for j in range(nwave):
        here, place, value = low + row * j, v + VECTOR * j, vread8(v + VECTOR * j)
        for m in range(1, half + 1):
            there = place + VECTOR * m
            vwrite(there, vtake(vset8(number(here + 8 * m)), value, vread8(there)))
    for m in range(half):
        vwrite(v + VECTOR * (nwave + m), vset8(0.0))
    for j in range(nwave - 1, -1, -1):
        here, place = low + row * j, v + VECTOR * j
        value = vdiv(vread8(place), vset8(number(here)))
        for m in range(half, 0, -1):
            value = vtake(vset8(number(here + 8 * m)), vread8(place + VECTOR * m), value)
        vwrite(place, value)


@njit(nogil=True, error_model="numpy")
def _coupled(block, hw, turned, v, p, nwave):  # type: ignore[no-untyped-def]
    """Row p of a block of icov, (nwave, 2 hw + 1), [q, hw + k] = A[q, q + k], or of its transpose, times v.

    v: between hw rows of zeros
    """
    width, total = 2 * hw + 1, vset8(0.0)
    if turned:
        for k in range(max(-hw, p - nwave + 1), min(hw, p) + 1):
            total = vfma(vset8(number(block + 8 * ((p - k) * width + hw + k))), vread8(v + VECTOR * (p - k)), total)
    else:
        given, near = block + 8 * p * width, v + VECTOR * (p - hw)
        for k in range(width):
            total = vfma(vset8(number(given + 8 * k)), vread8(near + VECTOR * k), total)
    return total


@njit(nogil=True, error_model="numpy")
def _beyond(w, v, g, band, neighbours, hw):  # type: ignore[no-untyped-def]
    """w = sum_j (what of U_j is in `band` - U_j) v; v and g: between rows of zeros.

    band: (nwave, half + 1), rows of the upper triangle; neighbours: (n, 4) int64, see `remainder`
    """
    nwave, columns = band.shape
    flat = address(band, 0)
    for p in range(nwave):
        row, near = flat + 8 * p * columns, v + VECTOR * p
        total = vmul(vset8(number(row)), vread8(near))
        for a in range(1, columns):
            total = vfma(vset8(number(row + 8 * a)), vread8(near + VECTOR * a), total)
        for a in range(1, min(columns, p + 1)):
            total = vfma(vset8(number(row + 8 * a * (1 - columns))), vread8(near - VECTOR * a), total)
        vwrite(w + VECTOR * p, total)
    for n in range(len(neighbours)):
        block, turned, low, half = neighbours[n, 0], neighbours[n, 1], neighbours[n, 2], neighbours[n, 3]
        for p in range(nwave):
            vwrite(g + VECTOR * p, _coupled(block, hw, 1 - turned, v, p, nwave))
        for p in range(nwave, nwave + half):
            vwrite(g + VECTOR * p, vset8(0.0))
        _solve_neighbour(low, half, g, nwave)
        for p in range(nwave):
            here = w + VECTOR * p
            vwrite(here, vtake(vset8(1.0), _coupled(block, hw, turned, g, p, nwave), vread8(here)))


@njit(nogil=True, error_model="numpy")
def _of_windows(w, v, half, windows):  # type: ignore[no-untyped-def]
    """w = E v in windows."""
    for n in range(len(windows)):
        first, last, start, size, exact = windows[n, 0], windows[n, 1], windows[n, 2], windows[n, 3], windows[n, 4]
        for j in range(first, last):
            row, total = exact + 8 * ((j - start) * size - start), vset8(0.0)
            for k in range(start, min(first, j - half)):
                total = vfma(vset8(number(row + 8 * k)), vread8(v + VECTOR * k), total)
            for k in range(max(last, j + half + 1), start + size):
                total = vfma(vset8(number(row + 8 * k)), vread8(v + VECTOR * k), total)
            vwrite(w + VECTOR * j, total)


@njit(nogil=True, cache=True, error_model="numpy")
def remainder(flux, spectrum, sides, bands, starts, poles, around, work, first):  # type: ignore[no-untyped-def]
    """flux += what E adds to it.

    flux: (n,), bins `first` and following; spectrum: (nwave,), s = Q 1; sides: (nwave, SIDES), 1 and x
    bands: (band, taken), (nwave, half + 1) both: B, and the sum of the U_j to second order, less windows or not
    starts: (nwave + 1,) int64, where the factor's rows begin, in vectors
    poles: (shifts, weights), (m, POLES) both: t_k and c_k t_k
    around: (neighbours, windows, hw), int64: neighbours (n, 4): address of icov's block (nwave, 2 hw + 1) of the fibre
        and fibre j; 1 where j is the first of the two, else 0; address of the factor of M_j, see cpu_eliminate.factor;
        its half-band. windows (m, 5): first bin, last + 1, first bin of all of S, number of those, its address
    work: (work_size,), starts on a cache line
    """
    (band, taken), (shifts, weights), (neighbours, windows, hw) = bands, poles, around
    nwave, margin, half = len(band), max(hw, band.shape[1]) * LANES, band.shape[1] - 1
    room = 2 * margin + nwave * LANES
    v, g, w = address(work, margin), address(work, room + margin), address(work, 2 * room + margin)
    low = address(work, 3 * room)
    work[:3 * room] = 0.0
    lanes, total = np.empty(LANES), np.zeros((2, len(flux)))
    for m in range(len(shifts)):
        for n in range(LANES):
            lanes[n] = shifts[m, n % POLES]
        for j in range(nwave):
            vwrite(v + VECTOR * j, vset(sides[j, 0]))
            vwrite(v + VECTOR * j + VECTOR // 2, vset(sides[j, 1]))
        _factor(low, starts, band, windows, vread8(address(lanes, 0)), v)
        _backward(low, starts, v)
        _beyond(w, v, g, taken, neighbours, hw)
        _of_windows(w, v, half, windows)
        _forward(low, starts, w)
        _backward(low, starts, w)
        weight = vread(address(weights, m * POLES))
        for t in range(len(flux)):
            place = w + VECTOR * (first + t)
            total[0, t] += vsum(vmul(weight, vread(place)))
            total[1, t] += vsum(vmul(weight, vread(place + VECTOR // 2)))
    for t in range(len(flux)):
        if spectrum[first + t] != 0.0:
            flux[t] += (total[1, t] - flux[t] * total[0, t]) / spectrum[first + t]


def work_size(starts: np.ndarray, hw: int, half: int) -> int:
    """Elements of the work array of `remainder`."""
    return LANES * (3 * (2 * max(hw, half + 1) + len(starts) - 1) + int(starts[-1]))
