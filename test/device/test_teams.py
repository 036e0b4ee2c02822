"""Recursions of wide half-bands, which teams of threads compute, against dense algebra and one thread per lane."""
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from host_text import run_lanes

from device.pieces import edges, known
from gpu_extract.data import Status
from gpu_extract.device import device_tables
from gpu_extract.device.cuda.text import TextKernel, names, poles, remainder, source, sweeps
from gpu_extract.device.device_banded import ASKED_TWICE

LANES, LANE = 3, 1      # a lane in the middle: its neighbours must stay as they are
ONE = np.array([0, 1, 0], dtype=np.int32)
ONE_GOOD = np.where(ONE, Status.GOOD, Status.FAILED)
HALVES = [10, 12, 13, 14, 20, 29, 40]       # 16 threads up to 13, 32 up to 29, then 64
EPS = np.finfo(float).eps


def spectra(half: int, nwave: int, cond: float) -> np.ndarray:
    """Bands (nwave, half + 1, LANES) of products of overlapping profiles, with different noise in every lane, and
    condition numbers of about `cond`."""
    rng = np.random.default_rng(half)
    profile = np.exp(-0.5 * (np.arange(half + 1) - 0.5 * half)**2 / (0.12 * half)**2)
    band = np.zeros((nwave, half + 1, LANES))
    root = 1.0 + 0.3 * rng.random((nwave, LANES))
    for a in range(min(half + 1, nwave)):
        band[:nwave - a, a] = profile[a:] @ profile[:half + 1 - a] * root[:nwave - a] * root[a:]
    band[:, 0] += 4.0 * profile.sum()**2 / cond
    return band


def dense(band: np.ndarray, lane: int = LANE) -> np.ndarray:
    upper = sum(np.diag(band[:len(band) - a, a, lane], a) for a in range(min(band.shape[1], len(band))))
    return upper + np.triu(upper, 1).T


def run(kernel: TextKernel, count: int, *args: Any, step: int = 1, alone: bool = False) -> None:
    """alone: with one thread per lane."""
    run_lanes(replace(kernel, wide=kernel.wide + alone * 100), count, step, args)


class Swept:
    """Halos, factors and inverses of a band."""

    def __init__(self, band: np.ndarray, tile: int, *, gate: np.ndarray = ONE, **how: Any):
        nwave, half = len(band), band.shape[1] - 1
        lanes = -(-nwave // tile) * LANES
        self.halo, self.low = np.full(lanes, -1, dtype=np.int32), np.full((nwave, half + 1, LANES), np.nan)
        self.inverse = np.full((nwave, half + 3, LANES), np.nan)
        matrix = 1, 0, 1, (half + 1) * LANES, LANES, nwave, tile, LANES
        run(sweeps.settle.sized(half), lanes, self.halo, gate, band, *matrix, **how)
        run(sweeps.factor.sized(half), lanes, self.low, self.halo, gate, band, *matrix, **how)
        run(sweeps.invert.sized(half), lanes, self.inverse, self.low, self.halo, gate, 1, half + 3, nwave, tile, LANES,
            **how)


def test_the_half_band_decides_the_size_of_a_team() -> None:
    """Half-bands that fit into the registers of a thread, and those whose columns no team holds, have one thread."""
    assert [sweeps.factor.sized(half).threads for half in (9, 10, 13, 14, 29, 30, 61, 62)] == [
        1, 16, 16, 32, 32, 64, 64, 1]
    assert [sweeps.poles_up.sized(half, ndiag).threads for half, ndiag in ((9, 20), (10, 5), (10, 14), (10, 30))] == [
        1, 16, 32, 64]
    assert remainder.substitute.sized(20, 0, 1).threads == 1
    assert [sweeps.factor.sized(half).grid(65) for half in (9, 12, 20, 40)] == [3, 9, 17, 33]


def test_how_many_teams_are_at_work_at_once() -> None:
    """For an inverse, in warps: the 512 registers of a scheduler are 4, 3 or 2 times what a member needs."""
    halves = 9, 12, 18, 19, 22, 23, 39, 40, 43, 44, 61
    assert [sweeps.invert.sized(half).at_once for half in halves] == [8, 16, 16, 12, 12, 12, 12, 8, 8, 8, 8]
    assert [sweeps.poles_up.sized(half, 5).at_once for half in halves] == [8, 16, 16, 16, 16, 12, 12, 12, 12, 8, 8]
    assert [sweeps.ask.sized(half, 1).at_once for half in halves] == [8] * len(halves)
    assert "KERNEL(128, 3)" in source(sweeps.poles_up.sized(41, 5))
    assert "KERNEL(128, 4)" in source(sweeps.invert.sized(12))


@pytest.mark.parametrize("cond", [10.0, 1e4, 1e8])
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("nwave", [75, 5])
def test_factor_and_inverse_are_those_of_the_dense_matrix(half: int, cond: float, nwave: int) -> None:
    band = spectra(half, nwave, cond)
    matrix, made = dense(band), Swept(band, nwave)
    low, inverse = made.low[:, :, LANE], made.inverse[:, :, LANE]
    last = min(half, nwave - 1)
    lower = np.eye(nwave) + sum(np.diag(low[:nwave - a, a], -a) for a in range(1, last + 1))
    np.testing.assert_allclose(lower @ np.diag(1 / low[:, 0]) @ lower.T, matrix, rtol=0, atol=10 * EPS * matrix.max())
    exact = np.linalg.inv(matrix)
    for a in range(last + 1):
        np.testing.assert_allclose(inverse[:nwave - a, a], np.diagonal(exact, a), rtol=0,
                                   atol=100 * EPS * cond * exact.max())
    assert np.isnan(inverse[:, half + 1:]).all()
    for array in (made.low, made.inverse):
        assert np.isnan(np.delete(array, LANE, axis=2)).all(), "another lane's rows were touched"


def slow_to_forget(half: int, nwave: int) -> np.ndarray:
    """Differences to the next bin and to the end of the band, condition 10 to 25."""
    band = np.zeros((nwave, half + 1, LANES))
    for a in (1, half):
        band[:nwave - a, a] = -1.0
    band[:, 0] = 4.0 + 0.03 * half * np.arange(1, LANES + 1)
    return band


@pytest.mark.parametrize("half", HALVES)
def test_a_team_has_the_numbers_of_one_thread(half: int) -> None:
    """The same halos, and numbers except for the order of sums; one bin has no weight, one equals its neighbour."""
    band = spectra(half, 300, 1e3)
    for a in range(half + 1):
        for row in (140, 200, 201):
            band[row, a] = band[row - a, a] = 0.0
    band[200:202, 0], band[200, 1] = 1.0, 1.0
    team, alone = (Swept(band, 75, gate=np.ones(LANES, np.int32), alone=alone) for alone in (False, True))
    np.testing.assert_array_equal(team.halo, alone.halo)
    assert (team.low[140, 0] == 1.0).all() and (team.low[201, 0] == 1.0).all()
    for name in ("low", "inverse"):
        wanted = getattr(alone, name)
        np.testing.assert_allclose(getattr(team, name), wanted, rtol=0, atol=1e-11 * np.nanmax(np.abs(wanted)))


@pytest.mark.parametrize("half", [12, 20])
def test_tiles_leave_rounding_only(half: int) -> None:
    band, everyone = slow_to_forget(half, 900), np.ones(LANES, np.int32)
    cut, whole = Swept(band, 225, gate=everyone), Swept(band, 900, gate=everyone)
    assert (cut.halo[LANES:] >= 96).all() and (cut.halo[2 * LANES:] < 450).any()
    for name in ("low", "inverse"):
        wanted = getattr(whole, name)
        np.testing.assert_allclose(getattr(cut, name), wanted, rtol=0, atol=1e-13 * np.nanmax(np.abs(wanted)),
                                   err_msg=name)


def test_a_matrix_that_does_not_forget_is_not_cut() -> None:
    half, band = 12, np.zeros((300, 13, LANES))
    band[:, 0], band[:-1, 1] = 2.0, -1.0
    cut, whole = Swept(band, 50), Swept(band, 300)
    np.testing.assert_array_equal(cut.halo.reshape(-1, LANES)[:, LANE], 50 * np.arange(6))
    np.testing.assert_array_equal(cut.low, whole.low)
    assert cut.low.shape[1] == half + 1


@pytest.mark.parametrize("half", [12, 20])
def test_bits_depend_on_no_order(half: int) -> None:
    """Of lanes or of members, who run from last to first if lanes do."""
    first, *others = (Swept(spectra(half, 150, 1e3), 50, step=step) for step in (1, -1, 7, 11))
    for other in others:
        for name in ("halo", "low", "inverse"):
            np.testing.assert_array_equal(getattr(other, name), getattr(first, name))


def test_the_shortest_halo_is_twice_what_is_enough() -> None:
    band = np.zeros((200, 13, LANES))
    band[:, 0] = 1.0
    for alone in (False, True):
        assert Swept(band, 100, alone=alone).halo[LANES + LANE] == 48


@pytest.mark.parametrize("half", [12, 20])
def test_poles_store_their_tiles_alone(half: int) -> None:
    """With halos that are far too short, rows are still those of their own tiles, in any order."""
    nwave, tile, band = 90, 30, spectra(half, 90, 1e3)
    table, columns, lanes = np.zeros((1, device_tables.OF_RUNG)), sweeps.SIDES + half + 1, 3 * LANES
    table[0, :3] = 1, 0.0, 0.01
    sides, halo = np.random.default_rng(4).random((nwave, sweeps.SIDES, LANES)), np.full(lanes, 3, np.int32)
    which = *known(LANES, BOUND=1.0, RUNG=0, WIDTH=0, STATUS=Status.GOOD), table, 0, 0, columns, nwave, tile
    made = []
    for step in (1, -1):
        work = np.full((nwave, columns, LANES, poles.GROUP), np.nan)
        found = np.full((nwave, sweeps.SIDES + 2, LANES, poles.GROUP), np.nan)
        run(sweeps.poles_down.sized(half), lanes * poles.GROUP, work, band, sides, halo, *which, half, LANES, step=step)
        run(sweeps.poles_up.sized(half, 1), lanes * poles.GROUP, found, work, halo, *which, LANES, step=step)
        made.append((work[:, :, :, 0], found[:, :, :, 0]))
    for first, other in zip(*made, strict=True):
        assert np.isfinite(first).all()
        np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize("cond", [10.0, 1e8])
@pytest.mark.parametrize(("half", "ndiag"), [(10, 5), (12, 1), (13, 13), (20, 5), (11, 14), (29, 5), (16, 29), (40, 5)])
@pytest.mark.parametrize("tile", [60, 17])
def test_poles_give_solutions_and_diagonals_of_the_inverse(half: int, ndiag: int, cond: float, tile: int) -> None:
    """For two poles of one lane: solutions and diagonals of the inverse."""
    nwave, band = 60, spectra(half, 60, cond)
    shifts, table = (0.7 * band.max() / cond, 0.3 * band.max()), np.zeros((2, device_tables.OF_RUNG))
    table[1, 0], table[1, 2:4] = 2, np.array(shifts) / 3.0
    sides = np.random.default_rng(3).random((nwave, sweeps.SIDES, LANES))
    columns = sweeps.SIDES + half + 2
    work = np.full((nwave, columns, LANES, poles.GROUP), np.nan)
    found = np.full((nwave, sweeps.SIDES + ndiag + 1, LANES, poles.GROUP), np.nan)
    facts, flags = known(LANES, BOUND=3.0, RUNG=1, WIDTH=3, STATUS=ONE_GOOD)
    lanes = -(-nwave // tile) * LANES
    halo = np.full(lanes, -1, np.int32)
    gate, matrix = flags[names("Flag").index("WIDTH")], (3, 0, 1, (half + 1) * LANES, LANES)
    run(sweeps.settle.sized(half), lanes, halo, gate, band, *matrix, nwave, tile, LANES)
    which = facts, flags, table, 0, 3, columns, nwave, tile
    run(sweeps.poles_down.sized(half), lanes * poles.GROUP, work, band, sides, halo, *which, half, LANES)
    run(sweeps.poles_up.sized(half, ndiag), lanes * poles.GROUP, found, work, halo, *which, LANES)
    for p, shift in enumerate(shifts):
        exact = np.linalg.inv(dense(band) + shift * np.eye(nwave))
        made, bound = found[:, :, LANE, p], 100 * EPS * band.max() * exact.max()
        solutions = exact @ sides[:, :, LANE]
        np.testing.assert_allclose(made[:, :sweeps.SIDES], solutions, rtol=0, atol=bound * np.abs(solutions).max())
        for a in range(ndiag + 1):
            np.testing.assert_allclose(made[:nwave - a, sweeps.SIDES + a], np.diagonal(exact, a), rtol=0,
                                       atol=bound * exact.max())
    assert np.isnan(work[:, -1]).all()
    assert np.isnan(found[:, :, LANE, 2:]).all() and np.isnan(np.delete(found, LANE, axis=2)).all()


@pytest.mark.parametrize("factor_of_least", [1 - 1e-6, 1 + 1e-6])
@pytest.mark.parametrize("half", HALVES)
def test_definiteness_agrees_with_the_eigenvalues(half: int, factor_of_least: float) -> None:
    """S - c, S + b U and S - (1 - g) diag(S): definite exactly as their eigenvalues say."""
    nwave, band = 70, spectra(half, 70, 1e4)
    taken = 0.3 * band[:, :, ::-1] + 0.1 * band
    asked, _ = edges(dense(band), dense(taken), factor_of_least)
    told, tables = known(LANES, BOUND=2.0, RUNG=2, ACTIVE=ONE), (band, taken, 0.5 * taken)
    yes, many = np.full((3, 8, LANES), np.nan), 2 if half <= ASKED_TWICE else 1
    run(sweeps.ask.sized(half, many), yes.size // many, yes, *tables, *told, asked, 0, 4, nwave, half, LANES)
    assert (yes[:, :3, LANE] == (factor_of_least < 1)).all()
    assert np.isnan(np.delete(yes, LANE, axis=2)).all()
