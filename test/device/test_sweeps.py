"""Sweeps along wavelength: the device's text compiled for the CPU, against dense algebra; also cut into tiles."""
from typing import Any

import numpy as np
import pytest
from host_text import run_lanes

from device.pieces import edges, known
from gpu_extract.data import Status
from gpu_extract.device import device_tables
from gpu_extract.device.cuda.lanes import beside, tile_of, tiles_of
from gpu_extract.device.cuda.text import TextKernel, eliminate, measure, names, poles, remainder, sweeps

NWAVE, HALF, LANES, LANE, POLES = 11, 3, 4, 2, 5     # a lane in the middle: its neighbours must stay as they are
CLOSE = {"rtol": 1e-12, "atol": 1e-14}
ONE = np.array([0, 0, 1, 0], dtype=np.int32)      # gate: this lane alone
ONE_GOOD = np.where(ONE, Status.GOOD, Status.FAILED)


def band_of_lanes(seed: int = 1, nwave: int = NWAVE) -> np.ndarray:
    """Positive definite band matrices (nwave, half + 1, lanes), different in every lane."""
    rng = np.random.default_rng(seed)
    band = 0.5 * rng.random((nwave, HALF + 1, LANES))
    band[:, 0] += 4.0
    for a in range(1, HALF + 1):
        band[nwave - a:, a] = 0.0
    return band


def slow_to_forget(nwave: int) -> np.ndarray:
    """Condition 1e3: a row of the inverse falls by 1e-10 in some 80 bins, the worst in usual frames."""
    band = np.zeros((nwave, HALF + 1, LANES))
    band[:, 0], band[:, 1] = 2.0 + 0.08 * np.arange(1, LANES + 1), -1.0
    band[nwave - 1, 1] = 0.0
    return band


def dense(band: np.ndarray, lane: int = LANE) -> np.ndarray:
    matrix = np.zeros((len(band), len(band)))
    for a in range(HALF + 1):
        matrix += np.diag(band[:len(band) - a, a, lane], a) + (np.diag(band[:len(band) - a, a, lane], -a) if a else 0.0)
    return matrix


def run(kernel: TextKernel, count: int, *args: Any, step: int = 1) -> None:
    run_lanes(kernel, count, step, args)


def pairs_slowest(rows: np.ndarray) -> np.ndarray:
    """Rows of lanes in the layout of listed pairs."""
    return np.ascontiguousarray(rows.transpose(2, 0, 1))


class Swept:
    """Everything made from a band: halos, factors, a solution, the inverse; tile: None for uncut fibres."""

    def __init__(self, band: np.ndarray, tile: int | None = None, *, gate: np.ndarray = ONE, step: int = 1):
        nwave = len(band)
        tile = tile or nwave
        lanes = -(-nwave // tile) * LANES
        self.halo, self.low = np.full(lanes, -1, dtype=np.int32), np.full((nwave, HALF + 1, LANES), np.nan)
        matrix = 1, 0, 1, (HALF + 1) * LANES, LANES, nwave, tile, LANES
        run(sweeps.settle.sized(HALF), lanes, self.halo, gate, band, *matrix, step=step)
        run(sweeps.factor.sized(HALF), lanes, self.low, self.halo, gate, band, *matrix, step=step)
        self.inverse = np.full((nwave, HALF + 3, LANES), np.nan)
        run(sweeps.invert.sized(HALF), lanes, self.inverse, self.low, self.halo, gate, 1, HALF + 3, nwave, tile, LANES,
            step=step)
        who = np.where(gate == 1, np.arange(LANES), -1)
        own = np.stack([who, who, np.full(LANES, POLES)]).astype(np.int32)
        given = np.random.default_rng(2).random((nwave, sweeps.SIDES, LANES, sweeps.RANK))
        half_way, x, chained, alone = (np.full_like(given, np.nan), *(given.copy() for _ in range(3)))
        for of_pairs, low, solution, many in ((0, self.low, x, 2), (1, pairs_slowest(self.low), chained, 2),
                                              (0, self.low, alone, 1)):
            for up, to, of in ((0, half_way, solution), (1, solution, half_way)):
                run(remainder.substitute.sized(HALF, up, many), -(-nwave // tile) * LANES * sweeps.RANK // many, to, of,
                    low, self.halo, own, of_pairs, nwave, tile, LANES, LANES, step=step)
        np.testing.assert_array_equal(chained, x)
        np.testing.assert_array_equal(alone, x)
        np.testing.assert_array_equal(x[..., POLES:], given[..., POLES:], err_msg="poles that a fibre does not have")
        self.given, self.x = given[:, 1, :, POLES - 1], x[:, 1, :, POLES - 1]


def test_a_factor_is_that_of_the_dense_matrix() -> None:
    band = band_of_lanes()
    made = Swept(band).low
    low = made[:, :, LANE]
    lower = np.eye(NWAVE) + sum(np.diag(low[:NWAVE - a, a], -a) for a in range(1, HALF + 1))
    np.testing.assert_allclose(lower @ np.diag(1 / low[:, 0]) @ lower.T, dense(band), **CLOSE)
    assert np.isnan(np.delete(made, LANE, axis=2)).all(), "another lane's rows were touched"


def test_bins_without_weight_are_decoupled() -> None:
    band = band_of_lanes()
    band[5, :, LANE] = 0.0
    for a in range(1, HALF + 1):
        band[5 - a, a, LANE] = 0.0
    matrix, made = dense(band), Swept(band)
    matrix[5, 5] = 1.0
    np.testing.assert_allclose(made.x[:, LANE], np.linalg.solve(matrix, made.given[:, LANE]), **CLOSE)


def test_a_pivot_that_is_rounding_is_decoupled() -> None:
    band = np.zeros((NWAVE, HALF + 1, LANES))
    band[:, 0] = 1.0
    band[3, 1] = 1.0     # bins 3 and 4 are the same: the second pivot is 0
    low = Swept(band).low[:, :, LANE]
    assert np.isfinite(low).all() and low[4, 0] == 1.0


def test_a_solution_is_that_of_the_dense_matrix() -> None:
    made = Swept(band := band_of_lanes())
    np.testing.assert_allclose(made.x[:, LANE], np.linalg.solve(dense(band), made.given[:, LANE]), **CLOSE)
    np.testing.assert_array_equal(np.delete(made.x, LANE, axis=1), np.delete(made.given, LANE, axis=1))


def test_the_inverse_in_the_band_is_that_of_the_dense_matrix() -> None:
    made, exact = Swept(band := band_of_lanes()).inverse, np.linalg.inv(dense(band))
    for a in range(HALF + 1):
        np.testing.assert_allclose(made[:NWAVE - a, a, LANE], np.diagonal(exact, a), **CLOSE)
    assert np.isnan(made[:, HALF + 1:]).all() and np.isnan(np.delete(made, LANE, axis=2)).all()


@pytest.mark.parametrize("columns", [1, 4])
@pytest.mark.parametrize(("wanted", "gate", "chosen"), [(0, None, [0, 1, 2, 3]), (2, [2, 0, 2, 1], [0, 2]),
                                                        (eliminate.LISTED, [3, 0, 2, -1], [0, 2, 3])])
def test_the_inverse_beyond_the_band_is_that_of_the_dense_matrix(wanted: int, gate: list[int] | None, chosen: list[int],
                                                                 columns: int) -> None:
    """Elements up to the seventh diagonal, of all lanes, of those whose gate is open, or of a list in turn; rows end
    where bins do."""
    wide, band = 7, band_of_lanes()
    swept = Swept(band, gate=np.ones(LANES, np.int32))
    rows = np.full((NWAVE, wide + 3, LANES), np.nan)
    rows[:, :HALF + 1] = swept.inverse[:, :HALF + 1]
    low = swept.low
    if wanted == eliminate.LISTED:
        rows, low = pairs_slowest(rows), pairs_slowest(low)
    run(eliminate.extend.sized(HALF, columns), -(-NWAVE // columns) * beside(LANES, wanted), rows, low,
        None if gate is None else np.array(gate, np.int32), wanted, wide, wide + 3, NWAVE, LANES)
    rows = rows if wanted != eliminate.LISTED else rows.transpose(1, 2, 0)
    for lane in range(LANES):
        exact = np.linalg.inv(dense(band, lane))
        for a in range(HALF + 1, wide + 1):
            made = rows[:NWAVE - a, a, lane]
            if lane in chosen:
                np.testing.assert_allclose(made, np.diagonal(exact, a), rtol=1e-11, atol=1e-14)
            else:
                assert np.isnan(made).all()
    assert np.isnan(rows[:, wide + 1:]).all()
    assert all(np.isnan(rows[NWAVE - a:, a]).all() for a in range(HALF + 1, wide + 1))


@pytest.mark.parametrize("step", [1, -1])
def test_listed_pairs_have_the_bits_of_all_pairs(step: int) -> None:
    """Seven of 26 pairs, three side by side: bitwise as with a lane for each pair; nothing for the others."""
    lanes, tile, listed = 26, 4, [25, 0, 13, 2, 3, 7, 24]
    band = np.concatenate([band_of_lanes(seed) for seed in range(7)], axis=2)[:, :, :lanes].copy()
    gate, tiles = np.array(listed + [-1] * (lanes - len(listed)), np.int32), -(-NWAVE // tile)
    assert beside(lanes, eliminate.LISTED) == 3
    made = []
    for given, wanted in ((None, 0), (gate, eliminate.LISTED)):
        halo, low = np.full((tiles, lanes), -1, np.int32), np.full((NWAVE, HALF + 1, lanes), np.nan)
        count = tiles * beside(lanes, wanted)
        low = pairs_slowest(low) if wanted else low
        inverse = np.full_like(low, np.nan)
        matrix, cut = (wanted, 0, 1, (HALF + 1) * lanes, lanes), (NWAVE, tile, lanes)
        run(sweeps.settle.sized(HALF), count, halo, given, band, *matrix, *cut, step=step)
        run(sweeps.factor.sized(HALF), count, low, halo, given, band, *matrix, *cut, step=step)
        run(sweeps.invert.sized(HALF), count, inverse, low, halo, given, wanted, HALF + 1, *cut, step=step)
        made.append((halo, *(one.transpose(1, 2, 0) if wanted else one for one in (low, inverse))))
    for whole, some in zip(*made, strict=True):
        np.testing.assert_array_equal(some[..., listed], whole[..., listed])
        others = np.delete(some, listed, axis=-1)
        assert (np.isnan(others) | (others == -1)).all()


@pytest.mark.parametrize("of", [0, device_tables.BEYOND])
@pytest.mark.parametrize("kept", [5, 12])
def test_poles_added_up(kept: int, of: int) -> None:
    """Two groups of poles, the second not full, of one fibre alone. of: all, or those of corrections."""
    rng, count = np.random.default_rng(5), 20
    work, table = rng.random((2, NWAVE, kept, LANES, poles.GROUP)), np.zeros((3, device_tables.OF_RUNG))
    t, c = rng.random((2, count))
    table[2, 2:2 + count], table[2, 2 + poles.MOST:2 + poles.MOST + count] = t, c
    if of:
        table[2, of + 2:of + 4], t, c = (poles.GROUP, count - poles.GROUP), 1.0, np.ones(count)
    else:
        table[2, 0] = count
    sums, told = np.full((NWAVE, kept, LANES), np.nan), known(LANES, BOUND=2.0, RUNG=2, WIDTH=3, STATUS=ONE_GOOD)
    for group in range(3):       # there is no third one
        run(sweeps.add_up, sums.size, sums, work[min(group, 1)], *told, table, of, group, 3, LANES)
    weights = np.zeros((2, poles.GROUP))
    weights.ravel()[:count] = 2.0 * t * c * np.sqrt(2.0)
    np.testing.assert_allclose(sums[:, :, LANE], np.einsum("gp,gjvp->jv", weights, work[:, :, :, LANE]), rtol=1e-13)
    assert np.isnan(np.delete(sums, LANE, axis=2)).all()
    before = sums.copy()
    run(sweeps.add_up, sums.size, sums, work[0], *told, table, of, 0, 4, LANES)
    np.testing.assert_array_equal(sums, before, err_msg="bands before that number have their sums")


@pytest.mark.parametrize("tile", [NWAVE, 4])
def test_poles_summed_on_their_way_up(tile: int) -> None:
    """Bitwise as one after the other: two groups, the second not full, of one fibre; the solutions of each pole are
    kept."""
    band, ndiag, width, count, table = band_of_lanes(), 2, 3, 20, np.zeros((2, device_tables.OF_RUNG))
    rng = np.random.default_rng(8)
    kept, columns = sweeps.SIDES + ndiag + 1, sweeps.SIDES + HALF + 1
    table[1, 0], table[1, 2:2 + 2 * poles.MOST] = count, rng.random(2 * poles.MOST)
    sides, told = rng.random((NWAVE, sweeps.SIDES, LANES)), known(LANES, BOUND=3.0, RUNG=1, WIDTH=3, STATUS=ONE_GOOD)
    lanes = -(-NWAVE // tile) * LANES
    halo, sums = np.full(lanes, 3, np.int32), np.full((2, NWAVE, kept, LANES), np.nan)
    for group in range(3):
        work, found, alone = (np.full((NWAVE, many, LANES, poles.GROUP), np.nan) for many in (columns, kept, kept))
        which = *told, table, group, width, columns, NWAVE, tile
        run(sweeps.poles_down.sized(HALF), lanes * poles.GROUP, work, band, sides, halo, *which, HALF, LANES)
        run(sweeps.poles_up.sized(HALF, ndiag), lanes * poles.GROUP, alone, work, halo, *which, LANES)
        run(sweeps.add_up, sums[0].size, sums[0], alone, *told, table, 0, group, 0, LANES)
        for step in (1, -1):
            given = sums[1].copy()
            run(sweeps.poles_together.sized(HALF, ndiag), lanes, given, found, work, halo, *which, LANES, step=step)
            np.testing.assert_array_equal(given, sums[0])
            np.testing.assert_array_equal(found[:, :sweeps.SIDES], alone[:, :sweeps.SIDES])
        sums[1] = given
        run(sweeps.poles_together.sized(HALF, ndiag), lanes, given, found, work, halo, *told, table, group, width + 1,
            *which[5:], LANES)
        np.testing.assert_array_equal(given, sums[0], err_msg="a band of another width")
    assert np.isfinite(sums[1, :, :, LANE]).all() and np.isnan(np.delete(sums[1], LANE, axis=2)).all()


def test_the_preconditioner_solves_with_the_fibres_own_blocks() -> None:
    """z = M^-1 r for fibres of bundles that iterate, with wavelength fastest, and r z by tiles, 0 after the last."""
    band = band_of_lanes(nwave=60)
    made, nwave, tile, nparts = Swept(band, 25, gate=np.ones(LANES, np.int32)), 60, 25, 5
    r, y, z = np.ascontiguousarray(made.given.T), np.full((LANES, nwave), np.nan), np.full((LANES, nwave), np.nan)
    parts, state = np.full((LANES, nparts), np.nan), np.array([[0.0, 7.0], [1.0, 7.0]])
    cut = nwave, tile, 20, LANES
    run(sweeps.precondition_down.sized(HALF), 3 * LANES, y, r, made.low, made.halo, state, 2, 2, *cut)
    run(sweeps.precondition_up.sized(HALF), nparts * LANES, z, parts, y, r, made.low, made.halo, state, 2, 2, nparts,
        *cut)
    assert np.isnan(z[:2]).all() and np.isnan(parts[:2]).all(), "the first bundle has arrived"
    for f in (2, 3):
        np.testing.assert_allclose(z[f], np.linalg.solve(dense(band, f), r[f]), **CLOSE)
        np.testing.assert_allclose(parts[f].sum(), r[f] @ z[f], **CLOSE)
    assert (parts[2:, 3:] == 0.0).all()


def test_a_preconditioner_in_tiles_is_that_of_whole_fibres() -> None:
    """To rounding: what is left of a halo would make it unsymmetric, and its measure of the error wrong."""
    band, nwave, tile, made = slow_to_forget(600), 600, 100, []
    r = np.random.default_rng(3).normal(size=(LANES, nwave))
    for swept, cut in ((Swept(band, tile, gate=np.ones(LANES, np.int32)), (tile, 50)),
                       (Swept(band, gate=np.ones(LANES, np.int32)), (nwave, nwave))):
        y, z, parts = np.full_like(r, np.nan), np.full_like(r, np.nan), np.full((LANES, 12), np.nan)
        state, many = np.ones((1, 1)), -(-nwave // cut[1]) * LANES
        by, of = (swept.low, swept.halo, state, 1, LANES), (nwave, *cut, LANES)
        run(sweeps.precondition_down.sized(HALF), many, y, r, *by, *of)
        run(sweeps.precondition_up.sized(HALF), many, z, parts, y, r, *by, 12, *of)
        made.append(z)
    np.testing.assert_allclose(made[0], made[1], rtol=0, atol=1e-14 * np.abs(made[1]).max())


@pytest.mark.parametrize(("ndiag", "tile"), [(2, NWAVE), (HALF, NWAVE), (5, NWAVE), (2, 4)])
def test_poles_give_solutions_and_diagonals_of_the_inverse(ndiag: int, tile: int) -> None:
    """For two poles of one lane: solutions and diagonals of the inverse."""
    band, size = band_of_lanes(), device_tables.OF_RUNG
    shifts, table = (0.7, 1.9), np.zeros((2, size))
    table[1, 0], table[1, 2:4] = 2, np.array(shifts) / 3.0
    sides = np.random.default_rng(3).random((NWAVE, sweeps.SIDES, LANES))
    work = np.full((NWAVE, sweeps.SIDES + HALF + 1, LANES, poles.GROUP), np.nan)
    found = np.full((NWAVE, sweeps.SIDES + ndiag + 1, LANES, poles.GROUP), np.nan)
    facts, flags = known(LANES, BOUND=3.0, RUNG=1, WIDTH=3, STATUS=ONE_GOOD)
    lanes = -(-NWAVE // tile) * LANES
    halo = np.full(lanes, -1, np.int32)
    gate, matrix = flags[names("Flag").index("WIDTH")], (3, 0, 1, (HALF + 1) * LANES, LANES)
    run(sweeps.settle.sized(HALF), lanes, halo, gate, band, *matrix, NWAVE, tile, LANES)
    which = facts, flags, table, 0, 3, sweeps.SIDES + HALF + 1, NWAVE, tile
    run(sweeps.poles_down.sized(HALF), lanes * poles.GROUP, work, band, sides, halo, *which, HALF, LANES)
    run(sweeps.poles_up.sized(HALF, ndiag), lanes * poles.GROUP, found, work, halo, *which, LANES)
    for p, shift in enumerate(shifts):
        exact = np.linalg.inv(dense(band) + shift * np.eye(NWAVE))
        made = found[:, :, LANE, p]
        np.testing.assert_allclose(made[:, :sweeps.SIDES], exact @ sides[:, :, LANE], **CLOSE)
        for a in range(ndiag + 1):
            np.testing.assert_allclose(made[:NWAVE - a, sweeps.SIDES + a], np.diagonal(exact, a), **CLOSE)
    assert np.isnan(found[:, :, LANE, 2:]).all() and np.isnan(np.delete(found, LANE, axis=2)).all()


@pytest.mark.parametrize("many", [1, 2])
@pytest.mark.parametrize("factor_of_least", [1 - 1e-9, 1 + 1e-9])
def test_definiteness_agrees_with_the_eigenvalues(factor_of_least: float, many: int) -> None:
    """S - c, S + b U and S - (1 - g) diag(S): definite exactly as their eigenvalues say; one or two per team."""
    band, taken = band_of_lanes(), 0.3 * band_of_lanes(2)
    asked, least = edges(dense(band), dense(taken), factor_of_least)
    asked[0, :3, 1], asked[2, :3, 1] = least, least     # never definite, and never asked: of another rung
    asked[:, 3, 1:3] = least, 1.0
    told, tables = known(LANES, BOUND=2.0, RUNG=2, ACTIVE=ONE), (band, taken, 0.5 * taken)
    for between, sets in ((0, 3), (1, 1)):
        yes = np.full((sets, 8, LANES), np.nan)
        run(sweeps.ask.sized(HALF, many), yes.size // many, yes, *tables, *told, asked, between, 4, NWAVE, HALF, LANES)
        right = 1.0 if factor_of_least < 1 else 0.0
        assert (yes[between == 0:, :3, LANE] == right).all() and (yes[:, 3, LANE] == 0.0).all()
        assert (yes[0, :3, LANE] == (right if between else 0.0)).all()
        assert np.isnan(np.delete(yes, LANE, axis=2)).all()


@pytest.mark.parametrize("tile", [50, 64, 299])
def test_tiles_leave_rounding_only(tile: int) -> None:
    """doc/method-banded.md: what a halo leaves is below 1e-16 of the diagonal; the rest is the order of rounding. One
    halo leaves 1e-10 times the root of the condition number, 1e3, in a solution."""
    band, everyone = slow_to_forget(600), np.ones(LANES, np.int32)
    cut, whole = Swept(band, tile, gate=everyone), Swept(band, gate=everyone)
    assert (cut.halo[LANES:] >= 48).all() and (cut.halo < 300).all()
    for name, share in (("low", 1e-14), ("x", 3e-9), ("inverse", 1e-14)):
        wanted = getattr(whole, name)
        np.testing.assert_allclose(getattr(cut, name), wanted, rtol=0, atol=share * np.nanmax(np.abs(wanted)),
                                   err_msg=name)


def test_a_matrix_that_does_not_forget_is_not_cut() -> None:
    """The second difference, with condition 1e5: halos extend back to the first row, and nothing is lost."""
    band = np.zeros((400, HALF + 1, LANES))
    band[:, 0], band[:, 1] = 2.0, -1.0
    band[-1, 1] = 0.0
    cut, whole = Swept(band, 50), Swept(band)
    np.testing.assert_array_equal(cut.halo.reshape(-1, LANES)[:, LANE], 50 * np.arange(8))
    np.testing.assert_array_equal(cut.low, whole.low)


def test_bits_do_not_depend_on_the_order_of_lanes() -> None:
    first, *others = (Swept(slow_to_forget(300), 50, step=step) for step in (1, -1, 7, 11))
    for other in others:
        for name in ("halo", "low", "x", "inverse"):
            np.testing.assert_array_equal(getattr(other, name), getattr(first, name))


def test_tiles_fit_partial_sums() -> None:
    for nwave in (1, 191, 192, 193, 2456, 12288, 12289, 50000):
        tile, tiles = tile_of(nwave), tiles_of(nwave)
        assert tiles <= sweeps.PARTS and (tiles - 1) * tile < nwave <= tiles * tile


def test_numbers_of_a_band_are_those_of_its_matrix() -> None:
    """The numbers of a fibre's band against its matrix, by chunks and groups; only of active fibres. Rows after the
    band's are not used."""
    nwave, reach = 137, HALF + 2
    rng, chunks = np.random.default_rng(9), -(-nwave // measure.CHUNK)
    s, u = (np.full((nwave, reach + 1, LANES), np.nan) for _ in range(2))
    for seed, band in enumerate((s, u)):
        band[:, :HALF + 1] = band_of_lanes(seed, nwave) - seed
    sides = rng.random((nwave, 2, LANES))
    roots = np.where(rng.random((nwave, LANES)) < 0.2, 0.0, rng.random((nwave, LANES)))
    flags = known(LANES, ACTIVE=[1, 0, 1, 1])[1]
    found, groups = np.full((chunks, measure.SUMS, LANES), np.nan), -(-chunks // measure.GATHERED)
    gathered = np.full((groups, measure.SUMS, LANES), np.nan)
    run(measure.gauge, chunks * LANES, found, s, u, sides, roots, flags, HALF, nwave, reach, LANES)
    run(measure.gather, groups * measure.SUMS * LANES, gathered, found, flags[names("Flag").index("ACTIVE")].copy(), 1,
        measure.SUMS, 1, chunks, LANES, step=5)
    assert groups > 2 and np.isnan(found[:, :, 1]).all() and np.isnan(gathered[:, :, 1]).all()
    for lane in (0, 2, 3):
        matrix = dense(s[:, :HALF + 1], lane)
        x, root = sides[:, 1, lane], roots[:, lane]
        sx, total = matrix @ x, matrix.sum(axis=1)
        last = np.zeros(nwave)
        last[:nwave - HALF] = np.abs(u[:nwave - HALF, HALF, lane]) * root[:nwave - HALF] * root[HALF:]
        of_bins = [last, np.where(root > 0, total, 0.0), sx, x * sx]
        for k, values in enumerate(of_bins):
            for made, size in ((found, measure.CHUNK), (gathered, measure.CHUNK * measure.GATHERED)):
                wanted = [(values[n:n + size].max() if k < 1 else values[n:n + size].sum())
                          for n in range(0, nwave, size)]
                np.testing.assert_allclose(made[:, k, lane], wanted, rtol=1e-11, atol=1e-13)
