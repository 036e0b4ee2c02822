"""Kernels in CUDA C++ for spots, pixels and bands, compiled for the CPU, against obvious formulas."""
from itertools import product as pairs_of
from math import erf, erfc, exp, pi, sqrt

import numpy as np
import pytest
from host_text import run_lanes
from numpy.polynomial.hermite_e import hermeval

from device.pieces import known
from gpu_extract.data import Status
from gpu_extract.device import device_tables
from gpu_extract.device.cuda.lanes import (
    MIDDLES,
    PRODUCT,
    SHARE,
    block_lanes,
    couple_launches,
    fours,
    places_of,
)
from gpu_extract.device.cuda.text import (
    assembly,
    eliminate,
    gradients,
    image,
    normal,
    quality,
    remainder,
    spots,
    sweeps,
)
from gpu_extract.device.geometry import by_domain

NFIBRE, NWAVE, NY, NX = 3, 13, 5, 7
EXACT = {"rtol": 1e-13, "atol": 1e-13}


def positions(seed: int = 0, nwave: int = NWAVE) -> tuple[np.ndarray, np.ndarray]:
    """First pixels of the spots of two bundles: rows that ascend, or descend in the second one; traces 4 apart."""
    rng = np.random.default_rng(seed)
    y0 = np.cumsum(rng.integers(1, 3, (2 * NFIBRE, nwave)), axis=1).astype(np.int32)
    y0[NFIBRE:] = y0[NFIBRE:, ::-1]
    x0 = (4 * (np.arange(2 * NFIBRE) % NFIBRE)[:, None] + rng.integers(0, 2, y0.shape)).astype(np.int32)
    return np.ascontiguousarray(y0), x0


def pixels_of(y0: np.ndarray, x0: np.ndarray, f: int, j: int) -> list[tuple[int, int, int]]:
    """Rows and columns of a spot, and each pixel's number in it."""
    return [(y0[f, j] + p // NX, x0[f, j] + p % NX, p) for p in range(NY * NX)]


def placed(spots: np.ndarray) -> np.ndarray:
    """Spots (fibres, pixels, bins) in their layout: sections of bins, columns, rows, bins; NaN if there is no bin."""
    fibres, _, nwave = spots.shape
    made = np.full((fibres, NY, NX, places_of(nwave)), np.nan)
    made[..., :nwave] = spots.reshape(fibres, NY, NX, nwave)
    return np.ascontiguousarray(made.reshape(fibres, NY, NX, -1, normal.SECTION).transpose(0, 3, 2, 1, 4))


def unplaced(spots: np.ndarray, nwave: int) -> np.ndarray:
    """The reverse."""
    return spots.transpose(0, 3, 2, 1, 4).reshape(len(spots), NY * NX, -1)[..., :nwave]


@pytest.mark.parametrize(("name", "words"), [
    ("couples", "text/normal.h has no kernel couples"), ("NO_NUMBER", "the headers have 0 numbers NO_NUMBER"),
    ("FAILED", "the headers have 0 numbers FAILED")])      # of data.Status, which Python asks there
def test_names_that_no_header_has(name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=words):
        getattr(normal, name)


def test_arguments_go_by_their_names() -> None:
    """A launch's own come first, a string stands for the argument known by that name; null stays null."""
    kernel, known = quality.bins_of_row, dict.fromkeys(quality.bins_of_row.arguments, 1) | {"tops": 2, "other": 3}
    assert kernel.arguments[:2] == ("ranges", "y0") and len(kernel.arguments) == len(kernel.travelling)
    assert kernel.bound({"ranges": None, "y0": "tops", "rows": 5}, known) == (None, 2, 1, 1, 1, 1, 5, 1)
    with pytest.raises(TypeError, match=r"quality.bins_of_row takes ranges, y0, .*, was given other"):
        kernel.bound({"other": 4}, known)


@pytest.mark.parametrize(("step", "hw", "most"), [(1, 4, (9, 12)), (7, 4, (9, 4)), (1, 4, (5, 3)), (7, 6, (3, 5))])
def test_couplings_are_the_products_of_whitened_spots(step: int, hw: int, most: tuple[int, int],
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """Fibres of more than one section, rows up and down; all bins and rows at once, and in parts."""
    nwave, nd = 83, 3
    monkeypatch.setattr("gpu_extract.device.cuda.lanes.MOST", most)
    y0, x0 = positions(nwave=nwave)
    white = np.random.default_rng(1).random((2 * NFIBRE, NY * NX, nwave))
    scale = 0.5 + np.random.default_rng(2).random(y0.shape)
    icov, wanted = np.full((2 * NFIBRE, nd, 2 * hw + 1, nwave), np.nan), np.zeros((2 * NFIBRE, nd, 2 * hw + 1, nwave))
    for numbers, parts, distances in couple_launches(hw, nd, NY):
        couple = normal.couple.sized(*numbers)
        run_lanes(couple, 2 * NFIBRE * -(-nwave // couple.threads) * len(distances) * parts, step,
                  (icov, placed(white), scale, np.zeros(2 * NFIBRE, np.int32), y0, x0, NFIBRE, NX, NY, nd, hw, nwave,
                   parts, distances.start))
    for f, d, j, k in pairs_of(range(2 * NFIBRE), range(nd), range(nwave), range(-hw, hw + 1)):
        if f % NFIBRE + d < NFIBRE and 0 <= j + k < nwave:
            there = {(y, x): white[f + d, p, j + k] for y, x, p in pixels_of(y0, x0, f + d, j + k)}
            shared = sum(white[f, p, j] * there.get((y, x), 0.0) for y, x, p in pixels_of(y0, x0, f, j))
            wanted[f, d, hw + k, j] = scale[f, j] * scale[f + d, j + k] * shared
    assert (wanted > 0).sum() > 2000
    np.testing.assert_allclose(icov, wanted, **EXACT)


def test_chi2_and_model_of_pixels_are_their_formulas() -> None:
    """chi2 of every pixel, the model image, and the results for bins; cut-outs that end before the arrays do, and spots
    beyond their edges."""
    (y0, x0), rng, rows, columns = positions(2), np.random.default_rng(3), 24, 15
    cuts = np.array([[2, 1, 21, 13], [0, 0, 24, 12]])
    single = rng.random((2 * NFIBRE, NY * NX, NWAVE)).astype(np.float32)
    lying, scale = placed(single).astype(np.float32), 0.5 + rng.random(y0.shape)
    x, root, light = rng.random(y0.shape), rng.random((2, columns, rows)), rng.random((2, columns, rows))
    root[rng.random(root.shape) < 0.2] = 0.0
    model = np.zeros((2, rows, columns))
    for f, j in np.ndindex(y0.shape):
        b = f // NFIBRE
        for row, column, p in pixels_of(y0 - cuts[b, 0], x0 - cuts[b, 1], f, j):
            if 0 <= row < cuts[b, 2] and 0 <= column < cuts[b, 3]:
                model[b, row, column] += x[f, j] * scale[f, j] * single[f, p, j]
    inside = np.array([[[r < cut[2] and c < cut[3] for r in range(rows)] for c in range(columns)] for cut in cuts])
    root[~inside] = 0.0
    scaled = root * model.transpose(0, 2, 1)
    chi = np.where(root > 0, (light - scaled) ** 2 / (1 + (0.1 * scaled) ** 2), -1.0)

    touch = np.zeros((2, 2 * NFIBRE, rows), np.int32)
    for f, row in np.ndindex(touch.shape[1:]):
        there = np.nonzero((y0[f] - cuts[f // NFIBRE, 0] <= row) & (row < y0[f] - cuts[f // NFIBRE, 0] + NY))[0]
        touch[:, f, row] = (there[0], there[-1] + 1) if len(there) else (0, 0)
    near, made = np.full((2, -(-columns // quality.ABREAST), rows), -7, np.int32), np.full(chi.shape, -7.0)
    image = np.full((2, rows, columns), np.nan)
    run_lanes(quality.near_fibres, 2 * rows, 1,
              (near, touch, x0, cuts, NFIBRE, NX, NWAVE, rows, columns, 2 * NFIBRE))
    lit, origins = np.full(x.shape, np.nan), np.full(x.shape, -7)
    run_lanes(quality.join, x.size, 1, (lit, origins, scale, x, y0, x0))
    given = near, touch, lying, lit, origins, cuts, NFIBRE, NX, NY, NWAVE, rows, columns, 2 * NFIBRE
    run_lanes(quality.chi_square, near.size, 1, (made, root, light, *given, 0.1))
    run_lanes(quality.project, near.size, 1, (image, *given))
    np.testing.assert_allclose(image, model, **EXACT)
    np.testing.assert_allclose(made, chi, **EXACT)
    assert (near % (1 << 15)).max() > 0, "not every pixel is asked about the first fibre"

    found = np.full((2, 2 * NFIBRE, NWAVE - 3), np.nan)
    run_lanes(quality.weigh, found[0].size, 1, (found[0], found[1], chi, lying, scale, y0, x0, cuts, NFIBRE, NX, NY,
                                                NWAVE, NWAVE - 3, 2, rows, columns))
    for f, j in np.ndindex(found.shape[1:]):
        b, seen, total = f // NFIBRE, 0.0, 0.0
        for row, column, p in pixels_of(y0 - cuts[b, 0], x0 - cuts[b, 1], f, j + 2):
            if 0 <= row < cuts[b, 2] and 0 <= column < cuts[b, 3] and root[b, column, row] > 0:
                value = float(single[f, p, j + 2]) * scale[f, j + 2]
                seen, total = seen + value, total + value * chi[b, column, row]
        np.testing.assert_allclose(found[:, f, j], (total / seen, np.clip(1 - seen, 0, 1)) if seen else (0, 1), **EXACT)


@pytest.mark.parametrize("step", [1, 5])
def test_products_with_couplings_between_fibres(step: int) -> None:
    """The couplings of every fibre with those on both sides, in a bundle that iterates and one that has converged."""
    rng, hw, nd, fibres = np.random.default_rng(7), 3, 3, 2 * NFIBRE
    icov, z, moved = rng.random((fibres, nd, 2 * hw + 1, NWAVE)), rng.random((fibres, NWAVE)), np.zeros((fibres, NWAVE))
    state, wanted = np.full((2, gradients.STATE), 7.0), np.zeros((fibres, NWAVE))
    state[:, 0] = 1.0, 0.0
    run_lanes(gradients.between, fibres * -(-NWAVE // gradients.BINS), step,
              (moved, z, icov, state, NFIBRE, nd, hw, NWAVE))
    for f, d, j, k in pairs_of(range(NFIBRE), range(1, nd), range(NWAVE), range(-hw, hw + 1)):
        if f + d < NFIBRE and 0 <= j + k < NWAVE:
            wanted[f, j] += icov[f, d, hw + k, j] * z[f + d, j + k]
            wanted[f + d, j + k] += icov[f, d, hw + k, j] * z[f, j]
    np.testing.assert_allclose(moved, wanted, **EXACT)
    assert moved[:NFIBRE].all()


def test_bundles_whose_error_no_longer_falls_stop() -> None:
    """Bundles whose error did not fall for PATIENCE steps stop, unless it is above CLOSE times the tolerance; how many
    solutions of a piece have not ended. The last bundle has none."""
    count, aim, wait = 5, 1e-3, gradients.PATIENCE
    state, gate = np.full((count, gradients.STATE), 9.0), np.array([0, 0, 0, 0, 1], np.int32)
    errors = np.array([5.0, 1.1 * gradients.CLOSE * aim, 0.9 * gradients.CLOSE * aim, 0.9 * aim, 1.0])
    for again, undone in enumerate(([1, 1, 0, 0, 9], [2, 2, 0, 0, 9])):
        run_lanes(gradients.start, count, 1, (state, gate, again, 1))
        for n in range(wait + 1):
            run_lanes(gradients.judge, count, 1, (state, errors**2, np.ones(count), 1, aim))
            assert (n < wait) == (state[2, gradients.MOVES] == 1.0)
        np.testing.assert_array_equal(state[:, gradients.MOVES], [1, 1, 0, 0, 0])
        np.testing.assert_array_equal(state[:4, gradients.DONE], [wait, wait, wait, 0])
        np.testing.assert_array_equal(state[:, gradients.UNDONE], undone)
    run_lanes(gradients.judge, count, 1, (state, np.zeros(count), np.ones(count), 1, aim))
    np.testing.assert_array_equal(state[:4, gradients.UNDONE], [1, 1, 0, 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extremes_of_the_good_pixels_of_bundles(dtype: type) -> None:
    """The extremes of two bundles' pixels: in their columns alone, without masked pixels and those after the end."""
    rng, rows, lookers, size = np.random.default_rng(8), 9, 32, 60
    places = np.array([[0, 6, 1, 5, rows], [0, 5, 0, 5, rows]])
    pixels = rng.random((2, 2, size)).astype(dtype)
    pix, ivar = (pixels[:, plane, :rows * 5].reshape(2, rows, 5) for plane in (0, 1))
    first = [plane[:rows * 6].reshape(rows, 6) for plane in pixels[0]]
    first[0][2, 0] = first[1][3, 5] = np.inf             # outside of its columns
    first[0][4, 2], first[1][4, 2] = np.nan, 0.0         # masked
    pixels[:, :, 54:] = np.nan                           # behind its end
    pix[1, 3, 4], ivar[1, 3, 4], ivar[1, 6, 0] = 50.0, 7.0, 9.0

    def seen() -> np.ndarray:
        parts, some = (np.full((2, image.SEEN, many), np.nan) for many in (lookers, 2))
        run_lanes(image.look[pixels.itemsize], 2 * lookers, 1, (parts, pixels, places, size, lookers))
        run_lanes(gradients.add_parts, some.size, 1, (some, parts, 16, 1))
        return some.max(axis=2)

    good = first[1][:, 1:5].astype(float), first[0][:, 1:5].astype(float)
    bright = np.where(good[0] > 0, good[0] * good[1] * good[1], 0.0).max()
    np.testing.assert_array_equal(seen(), [[good[0].max(), bright, 0], [9.0, 7.0 * 50.0 * 50.0, 0]])
    for plane, value in ((1, np.nan), (1, -1.0), (1, np.inf), (0, np.nan), (0, np.inf)):
        kept, pixels[1, plane, 7] = pixels[1, plane, 7], value
        assert (seen()[:, 2] > 0).tolist() == [False, True]
        pixels[1, plane, 7] = kept


def test_medians_of_chi2_are_those_of_numpy() -> None:
    rng, fibres, nout = np.random.default_rng(4), 6, 61
    chi = np.round(rng.random((fibres, nout)), 1)        # many of them equal
    bits = (rng.random(chi.shape) < 0.3).astype(np.uint32)
    bits[4] = bits[5] = 1
    bits[5, 60] = 0
    middles = np.full((2, fibres), -7.0)
    run_lanes(assembly.find_middles.sized(MIDDLES), fibres, 1, (middles, chi, bits, nout, fibres))
    for f in range(4):
        np.testing.assert_allclose(middles[:, f].mean(), np.median(chi[f][bits[f] == 0]), rtol=1e-15)
    assert np.isnan(middles[:, 4]).all() and (middles[:, 5] == chi[5, 60]).all()


@pytest.mark.parametrize(("distance", "wanted"), [(1, 0), (2, 0), (1, eliminate.LISTED), (1, eliminate.WIDER)])
def test_products_and_shares_are_those_of_dense_matrices(distance: int, wanted: int) -> None:
    """U = G Z G^T against dense matrices: for all pairs, those that count, those of a list, two side by side, and those
    whose fibre needs more, each with its own number of diagonals; also if rows of Z are wider."""
    hw, half, nwave, lanes, size = 2, *((13, 33, 6) if wanted == eliminate.WIDER else (3, 11, 9)), 3
    listed = wanted == eliminate.LISTED
    rng, width, wide = np.random.default_rng(5), 2 * hw + 1, 2 * hw + half
    blocks = rng.random((3, nwave, width, lanes))
    for p, k in pairs_of(range(nwave), range(-hw, hw + 1)):
        if not 0 <= p + k < nwave:
            blocks[:, p, hw + k] = 0.0
    own = 2 * lanes if listed else lanes
    z = rng.random((own, nwave, nwave))
    z += z.transpose(0, 2, 1)
    inverse = np.full((nwave, wide + 4, own), np.nan)
    for p, a in pairs_of(range(nwave), range(wide + 1)):
        if p + a < nwave:
            inverse[p, a] = z[:, p, p + a]
    inverse = np.ascontiguousarray(inverse.transpose(2, 0, 1)) if listed else inverse
    sizes = np.ones((3, lanes))
    sizes[2, 0] = 1e-3                                   # does not count
    chosen = {0: list(range(2 * lanes)), eliminate.WIDER: list(range(0, 2 * lanes, 2)),
              eliminate.LISTED: [16, 1, 9, 4, 7]}[wanted]
    gate = np.array(chosen + [-1] * (2 * lanes - len(chosen)) if listed else
                    [wanted if m in chosen else 0 for m in range(2 * lanes)], np.int32)
    v, shares = np.full((2 * lanes, nwave, wide + 1), np.nan), np.full((half + 1, 2, nwave, lanes), -3.0)
    reaches = np.array([13, 1, 4, 0, 9, 12], np.int32) if wanted == eliminate.WIDER else None
    rest, g_of = (sizes, gate, reaches, wanted, 0.1, distance, nwave, half), blocks[distance]
    run_lanes(eliminate.product.sized(hw), block_lanes(2 * lanes, nwave, wide + 1, PRODUCT, wanted), 1,
              (v, g_of, inverse, *rest, wide + 4, lanes, size))
    run_lanes(eliminate.share.sized(hw), block_lanes(2 * lanes, nwave, half + 1, SHARE, wanted), 1,
              (shares, v, g_of, *rest, lanes, size))
    counted = 0
    for m in range(2 * lanes):
        i, j = m % lanes, m % lanes + (distance if m >= lanes else -distance)
        there = 0 <= j < lanes and i // size == j // size and not (distance == 2 and min(i, j) == 0)
        g = np.zeros((nwave, nwave))
        for p, k in pairs_of(range(nwave), range(-hw, hw + 1)):
            if there and 0 <= p + k < nwave:
                g[p, p + k] = blocks[distance, p, hw + k, i] if i < j else blocks[distance, p + k, hw - k, j]
        if m not in chosen:
            assert (shares[:, m // lanes, :, i] == -3).all(), "what others made stays"
            continue
        u = g @ z[m if listed else max(j, 0)] @ g.T if there else np.zeros((nwave, nwave))
        counted += there
        for p, a in pairs_of(range(nwave), range(half + 1)):
            made = shares[a, m // lanes, p, i]
            if reaches is not None and a > reaches[i]:
                assert made == -3
                continue
            np.testing.assert_allclose(made, u[p, p + a] if p + a < nwave else made, **EXACT)
    assert counted >= 2
    made = np.full((3, nwave, width, lanes), np.nan)
    icov = np.ascontiguousarray(blocks.transpose(3, 0, 2, 1))
    run_lanes(eliminate.transpose, lanes * 3 * fours(nwave), 1, (made, icov, 3, width, nwave, lanes))
    np.testing.assert_array_equal(made, blocks)


def test_sums_of_poles_and_their_parts_are_their_formulas() -> None:
    """Sums of the vectors of a group's poles, and each pole's part of those of the sums; the second group, with three
    poles in two sums; for a fibre with a second group, not for others."""
    nwave, lanes, kept, sides, group, here, rank = 6, 3, 5, sweeps.SIDES, 1, 3, 2
    rng, many, most = np.random.default_rng(11), sweeps.GROUP, sweeps.RANK
    facts, flags = known(lanes, STATUS=[Status.GOOD, Status.FAILED, Status.GOOD], RUNG=[1, 1, 0])
    table, a = np.zeros((2, device_tables.OF_RUNG)), rng.random((here, rank))
    table[:, device_tables.BEYOND + 1:device_tables.BEYOND + 4] = (rank, 7, 0), (rank, 7, here)
    table[1, device_tables.SUMMED:].reshape(sweeps.OF_BEYOND, many, most)[group, :here, :rank] = a
    found, beyond = rng.random((nwave, kept, lanes, many)), rng.random((nwave, sides, lanes, most))
    found[..., here:] = beyond[..., rank:] = np.nan
    mixed, moved = np.full_like(beyond, np.nan), np.full((nwave, sides, lanes, many), np.nan)
    for back, to, given in ((0, mixed, found), (1, moved, beyond)):
        run_lanes(remainder.mix, lanes * sides * fours(nwave), 1, (
            to, given, facts, flags, table, group, back, kept, nwave, lanes))
        assert np.isnan(to[:, :, 1:]).all()
    np.testing.assert_allclose(mixed[:, :, 0, :rank], found[:, :sides, 0, :here] @ a, **EXACT)
    np.testing.assert_allclose(moved[:, :, 0, :here], beyond[:, :, 0, :rank] @ a.T, **EXACT)


@pytest.mark.parametrize(("distance", "few"), [(1, 2), (2, 2), (1, 5)])
def test_what_the_band_does_not_hold(distance: int, few: int) -> None:
    """G^T v of pairs, and E v = (band of U) v - G times the solution; for the vectors of a group's sums of a fibre, two
    or five. The factor is that of the fibre or, in a chain, of the pair."""
    hw, half, nwave, lanes, size, chained = 2, 3, 11, 6, 3, 7
    rng, group, sides, many = np.random.default_rng(6), 1, sweeps.SIDES, sweeps.RANK
    blocks = rng.random((nwave, 2 * hw + 1, lanes))
    for p, k in pairs_of(range(nwave), range(-hw, hw + 1)):
        if not 0 <= p + k < nwave:
            blocks[p, hw + k] = 0.0
    sizes, depth = np.ones((3, lanes)), np.zeros(2 * lanes, np.int32)
    sizes[2, 0], depth[chained] = 1e-3, 2                # does not count at a distance of 2; is in a chain at 1
    facts, flags = known(lanes, STATUS=[Status.GOOD] * 5 + [Status.FAILED], RUNG=0, WIDTH=1)
    table, halves = np.zeros((1, device_tables.OF_RUNG)), np.array([9, half], np.int32)
    table[0, device_tables.BEYOND + 1:device_tables.BEYOND + 4] = few, 0, 7      # nothing in the first group
    mixed, taken = rng.random((nwave, sides, lanes, many)), rng.random((nwave, half + 3, lanes))
    moved, own = np.full((nwave, sides, 2 * lanes, many), np.nan), np.full((3, 2 * lanes), -7, np.int32)
    run_lanes(remainder.carry.sized(hw), 2 * lanes * many * -(-nwave // remainder.FIVE), 1, (
        moved, own, mixed, blocks, sizes, depth, facts, flags, table, group, 0.1, distance, nwave, lanes, size))
    solved, beyond = rng.random(moved.shape), rng.random((nwave, sides, lanes, many))
    before = beyond.copy()
    run_lanes(remainder.take.sized(hw), lanes * many * -(-nwave // remainder.FIVE), 1, (
        beyond, solved, mixed, taken, blocks, sizes, facts, flags, table, halves, group, 0.1, distance, nwave, half + 2,
        lanes, size))
    for i, r, k in pairs_of(range(lanes), range(sides), range(many)):
        band = sum(np.diag(taken[:nwave - a, a, i], a) + (a > 0) * np.diag(taken[:nwave - a, a, i], -a)
                   for a in range(half + 1))
        expected = band @ mixed[:, r, i, k] if distance == 1 else before[:, r, i, k]
        has_sum = i != 5 and k < few
        for m in (i, i + lanes):
            j = i + (distance if m >= lanes else -distance)
            there = 0 <= j < lanes and i // size == j // size and not (distance == 2 and min(i, j) == 0)
            takes_part, in_chain = there and i != 5, distance == 1 and m == chained
            assert own[:, m].tolist() == [j if takes_part and not in_chain else -1,
                                          m if takes_part and in_chain else -1, few if takes_part else 0]
            g = np.zeros((nwave, nwave))
            for p, c in pairs_of(range(nwave), range(-hw, hw + 1)):
                if there and 0 <= p + c < nwave:
                    g[p, p + c] = blocks[p, hw + c, i] if i < j else blocks[p + c, hw - c, j]
            made = g.T @ mixed[:, r, i, k] if takes_part and k < few else np.nan
            np.testing.assert_allclose(moved[:, r, m, k], made, **EXACT)
            expected = expected - g @ solved[:, r, m, k]
        np.testing.assert_allclose(beyond[:, r, i, k], expected if has_sum else before[:, r, i, k], **EXACT)


def integral(order: int, u: float) -> float:
    """The integral of a Hermite polynomial times the normal density, up to u and a constant."""
    lower = hermeval(u, np.eye(order + 1)[max(order - 1, 0)])
    return 0.5 * erf(u / sqrt(2)) if order == 0 else -exp(-0.5 * u * u) / sqrt(2 * pi) * float(lower)



def core_of(numbers: np.ndarray, core: int, coeff: np.ndarray, corner: tuple[int, int], cut: bool) -> np.ndarray:
    """The pixels of a core of one bin."""
    (y, x), (sy, sx, nsig), nj, ni = numbers[:2], numbers[2 + 3 * core:5 + 3 * core], *coeff.shape
    hy, hx = (np.array([[integral(k, (start + p + 0.5 - at) / s) - integral(k, (start + p - 0.5 - at) / s)
                         for p in range(count)] for k in range(terms)])
              for start, at, s, count, terms in ((corner[0], y, sy, NY, nj), (corner[1], x, sx, NX, ni)))
    uy, ux = (corner[0] + np.arange(NY) - y) / sy, (corner[1] + np.arange(NX) - x) / sx
    beyond = (uy[:, None] ** 2 + ux**2 >= nsig**2) & cut
    return np.where(beyond, 0.0, hy.T @ coeff @ hx)


@pytest.mark.parametrize("rows", [NY, 2])
@pytest.mark.parametrize("cores", [((3, 5, 0), (0, 0, 0)), ((3, 5, 1), (2, 3, 0)), ((2, 3, 0), (4, 2, 1))])
@pytest.mark.parametrize("tail", [0, 1])
def test_spots_weights_and_right_hand_sides_are_their_definitions(cores: tuple[tuple[int, int, int], ...], tail: int,
                                                                  rows: int) -> None:
    """One core or two, cut or not, with a tail; all rows together, and in parts: spots, plain and whitened, their
    scale, weights and right-hand sides. Cut-outs that end before the arrays do, spots beyond their edges."""
    rng, fibres, ncoef, columns, high = np.random.default_rng(6), 2 * NFIBRE, 4, 15, 24
    firsts = 13, 13 + cores[0][0] * cores[0][1]
    nseries = firsts[1] + cores[1][0] * cores[1][1]
    series, domain = rng.random((12, nseries, ncoef)) - 0.5, rng.integers(0, 2, nseries)
    basis, starts = rng.random((2, ncoef, NWAVE)), np.array([7, 2])
    numbers = np.full((fibres, nseries, NWAVE), np.nan)
    run_lanes(spots.evaluate.sized(ncoef), fibres * -(-NWAVE // spots.TOGETHER), 1,
              (numbers, series, by_domain(domain, 2), basis, starts, NFIBRE, nseries, 2, NWAVE))
    known = np.add.outer(starts, np.arange(NFIBRE)).ravel()
    np.testing.assert_allclose(numbers, np.einsum("fsk,skj->fsj", series[known], basis[domain]), **EXACT)

    y0, x0 = positions(3)
    numbers[:, 0], numbers[:, 1] = y0 + 2 + rng.random(y0.shape), x0 + 3 + rng.random(y0.shape)
    numbers[:, 2:13] = 0.8 + rng.random((fibres, 11, NWAVE))
    cuts = np.array([[2, 1, 21, 13], [0, 0, 24, 12]])
    root, light = rng.random((2, 2, columns, high))
    white = placed(np.full((fibres, NY * NX, NWAVE), np.nan))
    single = white.astype(np.float32)
    scale, sums = np.full((fibres, NWAVE), np.nan), np.full((2, fibres, NWAVE), np.nan)
    run_lanes(spots.make.sized(*cores[0], *cores[1], tail, rows), fibres * places_of(NWAVE), 5,
              (white, single, scale, sums, numbers, root, light, np.zeros(fibres, np.int32), y0, x0, cuts, *firsts,
               NFIBRE, NX, NY, nseries, NWAVE, high, columns, fibres))
    found, found_white = (unplaced(made, NWAVE) for made in (single, white))
    outside = clipped = 0
    for f, j in np.ndindex(fibres, NWAVE):
        b, corner, mine = f // NFIBRE, (int(y0[f, j]), int(x0[f, j])), numbers[f, :, j]
        spot = np.zeros((NY, NX))
        for n, ((nj, ni, cut), first) in enumerate(zip(cores, firsts, strict=True)):
            spot += core_of(mine, n, mine[first:first + nj * ni].reshape(nj, ni), corner, bool(cut))
        if tail:
            amp, core, xscale, yscale, power = mine[8:13]
            dy, dx = (corner[0] + np.arange(NY) - mine[0]) * yscale, (corner[1] + np.arange(NX) - mine[1]) * xscale
            r2 = dy[:, None] ** 2 + dx**2
            spot += amp * r2 / (core**2 + r2) ** (1 + power / 2)
        clipped += int((spot < 0).sum())
        spot, whole = spot.clip(0.0), spot.clip(0.0).sum()
        np.testing.assert_allclose(found[f, :, j], spot.ravel(), rtol=2e-7, atol=1e-13)
        roots, lights = np.zeros((2, NY * NX))
        for row, column, p in pixels_of(y0 - cuts[b, 0], x0 - cuts[b, 1], f, j):
            if 0 <= row < cuts[b, 2] and 0 <= column < cuts[b, 3]:
                roots[p], lights[p] = root[b, column, row], light[b, column, row]
            else:
                outside += 1
        through = spot.ravel() * roots
        np.testing.assert_allclose(found_white[f, :, j], through, **EXACT)
        np.testing.assert_allclose([scale[f, j], *sums[:, f, j]],
                                   np.array([1.0, through @ roots, through @ lights]) / whole, rtol=1e-12)
    assert outside > 50 and (clipped > 20 or tail)


def on_one_side(low: float, high: float) -> float:
    """The integral of the normal density between two edges, with all digits far from its centre."""
    near, far = sorted((abs(low), abs(high)))
    outside = erfc(near / sqrt(2)) / 2, erfc(far / sqrt(2)) / 2
    return outside[0] - outside[1] if low * high >= 0 else 1.0 - sum(outside)


@pytest.mark.parametrize("centre", [(-14.0, 3.0), (2.2, -13.0), (18.0, 2.5), (1.4, 19.0)])
def test_wings_have_all_digits(centre: tuple[float, float]) -> None:
    """A stamp far from the spot's centre. If masks leave a bin no other pixels, they decide what its neighbours know.

    The exponent u^2 / 2 is below 130, so that rounding of u and of the edges leaves some hundred eps.
    """
    fibres, size, sigma = 2 * NFIBRE, (60, 40), 1.3
    numbers, (y0, x0) = np.zeros((fibres, 28, NWAVE)), positions(3)
    numbers[:, 0], numbers[:, 1], numbers[:, 2:4], numbers[:, 13] = y0 + centre[0], x0 + centre[1], sigma, 1.0
    white, ones = placed(np.full((fibres, NY * NX, NWAVE), np.nan)), np.ones((2, *size[::-1]))
    run_lanes(spots.make.sized(3, 5, 0, 0, 0, 0, 0, NY), fibres * places_of(NWAVE), 5,
              (white, white.astype(np.float32), np.empty((fibres, NWAVE)), np.empty((2, fibres, NWAVE)), numbers, ones,
               ones, np.zeros(fibres, np.int32), y0, x0, np.array([[0, 0, *size]] * 2), 13, 28, NFIBRE, NX, NY, 28,
               NWAVE, size[0], size[1], fibres))
    hy, hx = (np.array([on_one_side((p - 0.5 - at) / sigma, (p + 0.5 - at) / sigma) for p in range(count)])
              for count, at in zip((NY, NX), centre, strict=True))
    expected = np.outer(hy, hx).ravel()
    assert 0.0 < expected.max() < 1e-9
    found = unplaced(white, NWAVE)
    np.testing.assert_allclose(found, np.broadcast_to(expected[:, None], found.shape), rtol=1e-12, atol=0.0)
