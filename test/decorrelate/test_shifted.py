"""L D L^T of the shifted band on a stretch."""
import numpy as np
import pytest

from decorrelate.cases import EPS, band_of, random_definite
from gpu_extract.decorrelate.narrow import simd_shifted
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import address, vread8

LANES = simd_shifted.LANES


@njit(nogil=True, error_model="numpy")
def _solved(low, band, windows, starts, begin, shifts, v):
    """v becomes (B + t)^-1 v on a stretch."""
    at, matrix = address(v, 0), (address(band, 0), band.shape[1])
    simd_shifted.row_starts(starts, begin, band.shape[1], windows)
    simd_shifted.factor(address(low, 0), starts, (matrix, windows, begin, vread8(address(shifts, 0))), at,
                        (8 * v.size, 1))
    simd_shifted.backward(address(low, 0), starts, at)


@pytest.mark.parametrize("window", [None, (20, 45), (12, 31)])
def test_a_stretch_is_solved_as_a_dense_matrix_is(window):
    """Each lane has its own t. In a window B is the window's matrix, also beyond the band. One window begins where the
    stretch does, another within it."""
    rng, half, begin, end = np.random.default_rng(4), 5, 12, 60
    full, windows = random_definite(70, half, 1e3, rng), np.empty((0, 5), dtype=np.int64)
    band, exact = band_of(full, half), np.empty((0, 0))
    if window is not None:
        first, last = window
        start = first - 3
        exact = full[start:last + 3, start:last + 3] + 0.01 * np.abs(full).max() * np.ones((last + 6 - first,) * 2)
        full[first:last, first:last] = exact[3:-3, 3:-3]
        windows = np.array([[first, last, start, len(exact), exact.ctypes.data]])
    inside = full[begin:end, begin:end]
    shifts, v = 10.0**rng.uniform(-3, 0, LANES) * np.abs(full).max(), rng.normal(size=(end - begin, LANES))
    starts, solved = np.zeros(end - begin + 1, dtype=np.int64), v.copy()
    _solved(np.full((end - begin) * (end - begin) * LANES, np.nan), band, windows, starts, begin, shifts, solved)
    for lane, shift in enumerate(shifts):
        matrix = inside + shift * np.eye(end - begin)
        inverse = np.linalg.inv(matrix)
        bound = 100 * EPS * np.linalg.cond(matrix) * np.abs(inverse).max()       # as in other sums over poles
        np.testing.assert_allclose(solved[:, lane], inverse @ v[:, lane], rtol=0, atol=bound * np.abs(v).sum())


@njit(nogil=True, error_model="numpy")
def _both_ways(evenly, count, band, starts, space):
    """L D L^T of a whole band and L^-1 of two vectors, then L^-1 of the results, in memory after rows of zeros."""
    low, ring, v, windows, shift = space
    pad = band.shape[1] * LANES
    to, matrix = address(low, pad * band.shape[1]), (address(band, 0), band.shape[1])
    at, t, sets = address(v, pad), vread8(address(shift, 0)), (8 * v[0].size, len(v))
    if evenly:
        simd_shifted.factor_even(to, address(ring, 0), (matrix, 0, t), count, at, sets)
    else:
        simd_shifted.factor(to, starts, (matrix, windows, 0, t), at, sets)
    for n in range(len(v)):
        if evenly:
            simd_shifted.forward_even(to, band.shape[1], count, at + n * sets[0])
        else:
            simd_shifted.forward(to, starts, at + n * sets[0])


@pytest.mark.parametrize("columns", range(4, 18))
def test_even_rows_are_eliminated_to_the_same_bits(columns):
    """Several columns of two rows are taken at a time, or one row from all later ones: the same operations in the same
    order. Elements after the last bin are not used."""
    rng, lanes = np.random.default_rng(columns), LANES
    count = 3 * columns + 1 + simd_shifted.RING
    band = rng.normal(size=(count + 1, columns))
    band[:, 0] += 4.0 * columns
    starts, found = np.arange(count + 1) * columns, []
    sides, shift = rng.normal(size=(2, count, lanes)), rng.uniform(0.1, 10.0, lanes)
    ring = np.zeros((columns + simd_shifted.RING + 1, columns, lanes))
    for evenly in (False, True):
        low = np.zeros((columns + count + 1, columns, lanes))
        v = np.concatenate((np.zeros((2, columns, lanes)), sides), axis=1)
        _both_ways(evenly, count, band, starts, (low, ring, v, np.empty((0, 5), dtype=np.int64), shift))
        inside = np.arange(count)[:, None] + np.arange(columns) < count
        found.append((low[columns:-1][inside], v[:, columns:]))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
