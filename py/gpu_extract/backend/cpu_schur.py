"""CPU kernels: what eliminating one fibre does to its neighbours, four fibres at a time (the lanes of every vector).

Eliminating fibre j takes U = G A_jj^-1 G^T from the block of a fibre i that it is coupled to by G = A_ij. Of
U, `half` diagonals are wanted. They ask for the inverse's entries within 2 hw + half of its diagonal, which the
recursion of Takahashi, Fagan & Chin (1973) gives exactly, beyond the band of the factor too; nothing else is cut.
What is cut is known all the same where it matters: U x_i, with all diagonals, comes from one solution more.

The rows of four fibres are interleaved, a tile of wavelengths at a time, so that every sum runs in four lanes
over aligned vectors, in an order that does not depend on which fibres share a vector.
"""
from functools import cache
from typing import Any

import numpy as np
from numba import njit

from gpu_extract.backend.cpu_schur_rows import LANES, backward, couple, dot, factor, forward, interleave, invert
from gpu_extract.backend.simd import address, integer, prefetch

TILE = 64


@njit(nogil=True, cache=True, error_model="numpy")
def _gather(out, icov, bases, rows, width):  # type: ignore[no-untyped-def]
    """Rows rows[0] .. rows[1] - 1 of four blocks of icov that start at `bases`, interleaved; 0 outside 0 .. rows[2]."""
    first, last = max(rows[0], 0), min(rows[1], rows[2])
    start = (first - rows[0]) * width * LANES
    out[:start] = 0.0
    count = max(last - first, 0) * width
    a, b, c, d = bases[0] + first * width, bases[1] + first * width, bases[2] + first * width, bases[3] + first * width
    whole = count // LANES * LANES
    for n in range(0, whole, LANES):
        interleave(out, start + n * LANES, icov, a + n, b + n, c + n, d + n)
    for n in range(whole, count):
        place = start + n * LANES
        out[place], out[place + 1], out[place + 2], out[place + 3] = icov[a + n], icov[b + n], icov[c + n], icov[d + n]
    out[start + count * LANES:(rows[1] - rows[0]) * width * LANES] = 0.0


@njit(nogil=True, error_model="numpy")
def _ahead(icov, bases, count, row, width):  # type: ignore[no-untyped-def]
    """Ask for a row of `count` blocks of icov, which the next tile gathers; icov, bases: addresses."""
    for n in range(count):
        place = icov + 8 * (integer(bases + 8 * n) + row * width)
        for k in range(0, 8 * width, 64):
            prefetch(place + k)


@njit(nogil=True, error_model="numpy")
def _keep(moved, x4, first, length, p):  # type: ignore[no-untyped-def]
    """moved[lane, e, p] = what x4 has of fibre and distance from element `first` on, `length` vectors per distance."""
    for e in range(moved.shape[1]):
        for lane in range(LANES):
            moved[lane, e, p] = x4[first + e * length * LANES + lane]


def padded(half: int) -> int:
    """Elements of a row of U: half + 1, rounded up to whole vectors."""
    return -(-(half + 1) // LANES) * LANES


def work_sizes(nwave: int, hw: int, half: int, distances: int) -> tuple[int, ...]:
    """Elements of the kernel's work arrays: factor, inverse, gathered rows, and two times a vector per distance."""
    row, known = (hw + 1) * LANES, (2 * hw + half + 1) * LANES
    block = (TILE + 2 * hw + half) * (2 * hw + 1) * LANES
    vectors = distances * (nwave + 2 * hw) * LANES
    return (hw + nwave) * row, (TILE + 2 * hw) * known, (distances + 1) * block, vectors, vectors


@njit(nogil=True, cache=True, error_model="numpy")
def _bases(bases, lanes, shape, distances):  # type: ignore[no-untyped-def]
    """Where the blocks of icov start for four fibres: those to the fibres at `distances`, and their own."""
    nd, size = shape[1], shape[2] * shape[3]
    for lane in range(LANES):
        for e in range(len(distances)):
            d = distances[e]
            bases[e, lane] = (max(lanes[lane] + min(d, 0), 0) * nd + abs(d)) * size
        bases[-1, lane] = lanes[lane] * nd * size


@njit(nogil=True, cache=True, error_model="numpy")
def _spread_x(x4, x, lanes, distances, hw):  # type: ignore[no-untyped-def]
    """x of the fibres at `distances` from four fibres, interleaved, hw zeros at both ends; 0 where there is none."""
    nfibre, nwave = x.shape
    x4[:] = 0.0
    for e in range(len(distances)):
        for lane in range(LANES):
            i = lanes[lane] + distances[e]
            if 0 <= i < nfibre:
                for j in range(nwave):
                    x4[(e * (nwave + 2 * hw) + hw + j) * LANES + lane] = x[i, j]


@cache
def coupling(hw: int, half: int) -> Any:
    """The kernel for a half-band hw of icov and `half` diagonals of U.

    kernel(out, moved, icov, x, fibres, distances, works)
    fibres: (a multiple of LANES,) int64; distances: (ndistance,) int64, by pairs -d, d
    works: see work_sizes, each on a cache line
    out: (len(fibres), ndistance, nwave, padded(half)), filled: out[n, e] is the U that eliminating fibre
    j = fibres[n] takes from fibre i = j + distances[e]; where that fibre does not exist the values mean nothing
    moved: (len(fibres), ndistance, nwave), filled: all of U, without any cut, times x_i; x: (nfibre, nwave)
    """
    width, wide = 2 * hw + 1, 2 * hw + half
    row, known = (hw + 1) * LANES, (wide + 1) * LANES
    block = (TILE + 2 * hw + half) * width * LANES

    @njit(nogil=True, cache=True, error_model="numpy")
    def kernel(out, moved, icov, x, fibres, distances, works):  # type: ignore[no-untyped-def]
        low, inverse, blocks, x4, y = works
        nwave, count = icov.shape[2], len(distances)
        flat, target = icov.reshape(-1), out.reshape(-1)
        own, length = count * block, nwave + 2 * hw
        bases = np.empty((count + 1, LANES), dtype=np.int64)
        low[:hw * row] = 0.0
        for j in range(hw):
            low[j * row:j * row + LANES] = 1.0
        for n in range(0, len(fibres), LANES):
            _bases(bases, fibres[n:n + LANES], icov.shape, distances)
            _spread_x(x4, x, fibres[n:n + LANES], distances, hw)
            y[:] = 0.0
            for first in range(0, nwave, TILE):
                last = min(first + TILE, nwave)
                _gather(blocks[own:], flat, bases[-1], (first, last, nwave), width)
                for j in range(first, last):
                    factor(low, (hw + j) * row, blocks, own + ((j - first) * width + hw) * LANES, hw)
                    _ahead(address(flat, 0), address(bases, count * LANES), LANES, j + TILE, width)
                for e in range(count):
                    _gather(blocks[e * block:], flat, bases[e], (first - hw, last + hw, nwave), width)
                    for j in range(first, last):
                        here, given = (e * length + hw + j) * LANES, e * block + (j - first + hw) * width * LANES
                        if distances[e] > 0:
                            dot(y, here, blocks, given, x4, here, hw, 0)
                        else:
                            dot(y, here, blocks, given, x4, here, hw, 1)
                        forward(y, here, low, (hw + j) * row, hw)
                        _ahead(address(flat, 0), address(bases, e * LANES), LANES, j + TILE + hw, width)
            inverse[:] = 0.0
            for j in range(nwave - 1, nwave - 1 - hw, -1):
                invert(inverse, (TILE + hw + j - nwave) * known, low, (hw + j) * row, hw, wide)
                for e in range(count):
                    backward(y, (e * length + hw + j) * LANES, low, (hw + j) * row, hw)
            for last in range(nwave, 0, -TILE):
                first = max(last - TILE, 0)
                for e in range(count):
                    _gather(blocks[e * block:], flat, bases[e], (first - hw, last + hw + half, nwave), width)
                for p in range(last - 1, first - 1, -1):
                    z = (TILE + p - last) * known
                    invert(inverse, z, low, p * row, hw, wide)
                    for e in range(0, count, 2):
                        place, step = ((n * count + e) * nwave + p) * out.shape[3], count * nwave * out.shape[3]
                        given, here = e * block + (p - first + hw) * width * LANES, (e * length + hw + p) * LANES
                        couple(target, place, place + step // count, step, blocks, given, given + block, inverse, z, hw,
                               half)
                        backward(y, here - hw * LANES, low, p * row, hw)
                        dot(x4, here, blocks, given, y, here, hw, 0)
                        here += length * LANES
                        backward(y, here - hw * LANES, low, p * row, hw)
                        dot(x4, here, blocks, given + block, y, here, hw, 1)
                    _ahead(address(flat, 0), address(bases, 0), count * LANES, p - TILE - hw, width)
                    _keep(moved[n:n + LANES], x4, (hw + p) * LANES, length, p)
                inverse[TILE * known:] = inverse[:2 * hw * known]
    return kernel
