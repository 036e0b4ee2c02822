"""The recursions along a band, written out, against dense algebra."""
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba import njit

from gpu_extract.device.cuda.recursions import SIDES, definite_rows, factor_rows, invert_rows, pole_rows, solve_rows

NWAVE, HALF, LANES, LANE = 11, 3, 4, 2     # a lane in the middle: its neighbours must stay as they are
SIZE = (0,) * HALF
CLOSE = {"rtol": 1e-12, "atol": 1e-14}


def band_of_lanes(seed: int = 1) -> np.ndarray:
    """Positive definite band matrices (nwave, half + 1, lanes), different in every lane."""
    rng = np.random.default_rng(seed)
    band = 0.5 * rng.random((NWAVE, HALF + 1, LANES))
    band[:, 0] += 4.0
    for a in range(1, HALF + 1):
        band[NWAVE - a:, a] = 0.0
    return band


def dense(band: np.ndarray, lane: int = LANE) -> np.ndarray:
    matrix = np.zeros((NWAVE, NWAVE))
    for a in range(HALF + 1):
        matrix += np.diag(band[:NWAVE - a, a, lane], a) + (np.diag(band[:NWAVE - a, a, lane], -a) if a else 0.0)
    return matrix


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Call an intrinsic: only compiled code can. Arrays become flat."""
    flat = tuple(arg.reshape(-1) if isinstance(arg, np.ndarray) else arg for arg in args)

    @njit
    def run(values):  # type: ignore[no-untyped-def]
        return function(*values)
    return run(flat)


def factor(band: np.ndarray) -> np.ndarray:
    low = np.full((NWAVE, HALF + 1, LANES), np.nan)
    call(factor_rows, low, LANE, LANES, band, LANE, HALF + 1, LANES, NWAVE, SIZE)
    assert np.isnan(np.delete(low, LANE, axis=2)).all(), "another lane's rows were touched"
    return low


def test_factor() -> None:
    band = band_of_lanes()
    low = factor(band)[:, :, LANE]
    lower = np.eye(NWAVE) + sum(np.diag(low[:NWAVE - a, a], -a) for a in range(1, HALF + 1))
    np.testing.assert_allclose(lower @ np.diag(1 / low[:, 0]) @ lower.T, dense(band), **CLOSE)


def test_bins_without_weight_are_decoupled() -> None:
    band = band_of_lanes()
    band[5, :, LANE] = 0.0
    for a in range(1, HALF + 1):
        band[5 - a, a, LANE] = 0.0
    y = np.ones((NWAVE, LANES))
    call(solve_rows, y, LANE, LANES, factor(band), LANE, LANES, NWAVE, SIZE)
    matrix = dense(band)
    matrix[5, 5] = 1.0
    np.testing.assert_allclose(y[:, LANE], np.linalg.solve(matrix, np.ones(NWAVE)), **CLOSE)


def test_a_pivot_that_is_rounding_is_decoupled() -> None:
    band = np.zeros((NWAVE, HALF + 1, LANES))
    band[:, 0] = 1.0
    band[3, 1] = 1.0     # bins 3 and 4 are the same: the second pivot is 0
    low = factor(band)[:, :, LANE]
    assert np.isfinite(low).all() and low[4, 0] == 1.0


def test_solve() -> None:
    band, y = band_of_lanes(), np.random.default_rng(2).random((NWAVE, LANES))
    before = y.copy()
    call(solve_rows, y, LANE, LANES, factor(band), LANE, LANES, NWAVE, SIZE)
    np.testing.assert_allclose(y[:, LANE], np.linalg.solve(dense(band), before[:, LANE]), **CLOSE)
    np.testing.assert_array_equal(np.delete(y, LANE, axis=1), np.delete(before, LANE, axis=1))


def test_inverse_in_the_band() -> None:
    band, width = band_of_lanes(), HALF + 3
    inverse = np.full((NWAVE, width, LANES), np.nan)
    call(invert_rows, inverse, LANE, width, LANES, factor(band), LANE, NWAVE, SIZE)
    exact = np.linalg.inv(dense(band))
    for a in range(HALF + 1):
        np.testing.assert_allclose(inverse[:NWAVE - a, a, LANE], np.diagonal(exact, a), **CLOSE)


@pytest.mark.parametrize("ndiag", [2, HALF, 5])
def test_pole(ndiag: int) -> None:
    band, shift, width = band_of_lanes(), 0.7, SIDES + 1 + max(HALF, ndiag)
    sides = np.random.default_rng(3).random((NWAVE, SIDES, LANES))
    work = np.full((NWAVE, width, LANES), np.nan)
    call(pole_rows, work, LANE, LANES, width, band, sides, LANE, LANES, HALF + 1, shift, NWAVE, SIZE, (0,) * ndiag)
    exact = np.linalg.inv(dense(band) + shift * np.eye(NWAVE))
    np.testing.assert_allclose(work[:, :SIDES, LANE], exact @ sides[:, :, LANE], **CLOSE)
    for a in range(ndiag + 1):
        np.testing.assert_allclose(work[:NWAVE - a, SIDES + a, LANE], np.diagonal(exact, a), **CLOSE)


@pytest.mark.parametrize("factor_of_least", [1 - 1e-9, 1 + 1e-9])
def test_definite(factor_of_least: float) -> None:
    """S - c, S + b U and S - (1 - g) diag(S): definite exactly as far as their eigenvalues say."""
    band, taken = band_of_lanes(), 0.3 * band_of_lanes(2)
    s, u, diagonal = dense(band), dense(taken), np.diag(dense(band))
    least = np.linalg.eigvalsh(s)[0]
    most = 1 / np.linalg.eigvals(np.linalg.solve(s, u)).real.max()
    scaled = np.linalg.eigvalsh(s / np.sqrt(np.outer(diagonal, diagonal)))[0]
    for b, c, g in ((0.0, least * factor_of_least, 1.0), (-most * factor_of_least, 0.0, 1.0),
                    (0.0, 0.0, 1.0 - scaled * factor_of_least)):
        found = call(definite_rows, band, taken, LANE, LANES, HALF + 1, b, c, g, NWAVE, SIZE)
        assert found == (1.0 if factor_of_least < 1 else 0.0)
