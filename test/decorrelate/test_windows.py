"""Windows, in which all of S is kept: the dense complements, the combined kernel, and fibres that need them."""
from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import eigh

from decorrelate.cases import EPS, band_of, make_bundle, narrow_sum, random_definite, to_bands
from gpu_extract.data import Status
from gpu_extract.decorrelate import windows
from gpu_extract.decorrelate.banded import Options, decorrelate
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.decorrelate.narrow import measure
from gpu_extract.decorrelate.narrow.bands import address_of
from gpu_extract.decorrelate.narrow.coupling import Couplings
from gpu_extract.decorrelate.narrow.definite import Facts
from gpu_extract.decorrelate.narrow.schur import Neighbours
from gpu_extract.decorrelate.narrow.simd_banded import SIDES
from gpu_extract.decorrelate.windows import simd_stretch, simd_window_fit
from gpu_extract.kernels.arena import Arena
from gpu_extract.vectors.tiles import EDGE


@pytest.mark.parametrize(("half", "ndiag", "nwave", "pieces"), [
    (7, 5, 83, [(20, 15)]), (7, 5, 83, [(0, 12), (70, 13)]), (3, 9, 61, [(10, 3), (13, 20), (60, 1)]),
    (7, 0, 60, [(40, 20)]), (0, 2, 30, [(5, 6)]), (12, 5, 50, [(0, 50)])])
def test_pole_sum_with_windows(half, ndiag, nwave, pieces):
    """Windows at both ends, adjacent, of one bin and of all bins, shorter and longer than the band."""
    rng = np.random.default_rng(half)
    matrix = random_definite(nwave, half, 1e3, rng)
    for first, size in pieces:
        more = rng.normal(size=(size, size)) * 1e-4 * np.abs(matrix).max()
        matrix[first:first + size, first:first + size] += more + more.T
    matrix += np.eye(nwave) * max(0.0, -1.1 * np.linalg.eigvalsh(matrix)[0])
    sides, poles = rng.normal(size=(nwave, SIDES)), Arena().zeros(2, 16)
    poles[:] = np.exp(rng.normal(size=16)), rng.random(16)
    blocks = [(first, matrix[first:first + size, first:first + size]) for first, size in pieces]
    out = narrow_sum(band_of(matrix, half), sides, poles, ndiag, blocks)
    inverse = sum(w * np.linalg.inv(matrix + t * np.eye(nwave)) for t, w in zip(*poles, strict=True))
    bound = 100 * EPS * np.linalg.cond(matrix) * np.abs(inverse).max()
    assert np.abs(out[:, :SIDES] - inverse @ sides).max() <= bound * np.abs(sides).sum()
    for a in range(ndiag + 1):
        assert np.abs(out[:nwave - a, SIDES + a] - np.diagonal(inverse, a)).max() <= bound


def _tiles(matrix):
    """A matrix of whole tiles, tile by tile, each column by column, on a cache line."""
    (rows, columns), tiles = matrix.shape, Arena().take(matrix.size)
    tiles[:] = matrix.reshape(rows // EDGE, EDGE, columns).transpose(0, 2, 1).ravel()
    return tiles


@pytest.mark.parametrize(("rows", "columns", "reach"), [(144, 144, 9), (48, 24, 3), (24, 72, 9), (24, 96, 24),
                                                         (72, 72, 72), (144, 144, 0)])
def test_one_block_eliminated_from_the_next(rows, columns, reach):
    """Blocks of one tile and of several; near couplings and full ones."""
    rng = np.random.default_rng(rows + columns)
    pivot, out = random_definite(columns, columns - 1, 1e3, rng), random_definite(rows, rows - 1, 10.0, rng)
    coupling = np.triu(rng.normal(size=(rows, columns)), -reach)
    wanted = out - coupling @ np.linalg.solve(pivot, coupling.T)
    found, *others = (_tiles(each) for each in (np.tril(out), coupling, np.tril(pivot)))
    places = [(address_of(found), rows), *((address_of(each), columns) for each in others)]
    assert simd_stretch.eliminate(*places, rows, reach)
    known = found.reshape(-1, rows, EDGE).transpose(0, 2, 1).reshape(rows, rows)
    scale = np.abs(coupling @ np.linalg.inv(pivot) @ coupling.T).max() + np.abs(out).max()
    np.testing.assert_allclose(np.tril(known), np.tril(wanted), rtol=0, atol=100 * EPS * np.linalg.cond(pivot) * scale)
    pivot[-1, -1] = -1.0
    others[1][:] = _tiles(np.tril(pivot))
    assert not simd_stretch.eliminate(*places, rows, reach)


@pytest.mark.parametrize("stamp", [(11, 13), (11, 17), (11, 24)])
def test_complements_are_inverse_blocks_of_the_covariance(stamp):
    """Against C = icov^-1, for couplings to next neighbours, and to two and three fibres beyond."""
    bundle = make_bundle(5, 60, wing=0.2, stamp=stamp, mask="block")
    found = windows.complements(bundle.normal.icov)
    assert found is not None
    for i, s in enumerate(found):
        own, alive = slice(60 * i, 60 * (i + 1)), bundle.normal.weight[i] > 0
        exact = np.linalg.inv(bundle.covariance[own, own])[np.ix_(alive, alive)]
        bound = 100 * EPS * np.linalg.cond(exact) * np.abs(exact).max()
        np.testing.assert_allclose(s[np.ix_(alive, alive)], exact, rtol=0, atol=bound)
        np.testing.assert_array_equal(s[~alive].sum(axis=1), 1.0)
    for lo, hi in ((0, 1), (1, 4), (3, 5)):
        some = windows.complements(bundle.normal.icov, (lo, hi))
        assert some is not None
        for s, known in zip(some, found[lo:hi], strict=True):
            np.testing.assert_array_equal(s, known)


def test_fibres_too_far_away_to_count_take_no_part(monkeypatch):
    """A block on five of 14 fibres: results do not depend on those that are left out, to rounding."""
    parts, true = [], windows.complements
    monkeypatch.setattr(windows, "complements", lambda icov, wanted: parts.append(icov.shape) or true(icov, wanted))
    bundle = make_bundle(14, 100, wing=1e-4, mask="block")
    found = Neighbours(bundle.normal, bundle.x, Limits(window=1e-4)).windows
    (nfibre, nd, size, _), = parts
    first = next(iter(found.values()))[0].start
    exact = true(np.ascontiguousarray(bundle.normal.icov[:, :nd, first:first + size]))
    assert found and nfibre < 14
    for i, (window,) in found.items():
        scale = np.sqrt(np.outer(np.diag(exact[i]), np.diag(exact[i])))
        np.testing.assert_allclose(window.exact / scale, exact[i] / scale, rtol=0, atol=4 * EPS)


def test_strong_couplings_reach_farther():
    """A factor for every fibre on the way: four of 1e-4 are above rounding, two of 1e-8, and REACH is the limit."""
    correlations = np.full((30, 5), 1e-12)
    for strength, counting in ((1e-2, 4), (1e-4, 2), (0.5, windows.REACH), (1e-9, 0)):
        correlations[:, 3] = 1.1 * strength / windows.AMPLIFIED
        assert windows._around(correlations, 14, 16) == (14 - counting, 17 + counting)
    correlations[:, 3] = 0.9
    assert windows._around(correlations, 3, 28) == (0, 31)
    correlations[1] = correlations[29] = 0.0
    assert windows._around(correlations, 3, 28) == (2, 30)


def test_what_is_not_definite_has_no_window():
    bundle = make_bundle(4, 60, mask="gap")
    icov = bundle.normal.icov.copy()
    icov[2, 0, 10, bundle.normal.halfband] *= -1.0
    assert windows.complements(icov) is None


def test_clean_bundles_have_none():
    for bundle in make_bundle(4, 90), make_bundle(4, 90, wing=0.3), make_bundle(1, 50, mask="gap"):
        assert not Neighbours(bundle.normal, bundle.x, Limits()).windows


@pytest.mark.parametrize(("rows", "side"), [(slice(3, 5), "first"), (slice(85, 87), "last"), (slice(40, 42), None)])
def test_weak_bins_at_the_ends_have_windows_for_less(rows, side):
    """A third of the correlation that makes a window elsewhere; bins without weight before them do not count."""
    bundle, nwave = make_bundle(4, 90, wing=0.3), 90
    weak = np.zeros(nwave, dtype=bool)
    weak[rows] = True
    dense = bundle.dense.reshape(4, nwave, 4, nwave).copy()
    for i in range(3):
        dense[i, :, i + 1] *= np.where(np.logical_or.outer(weak, weak), 3.0, 1.0)
        dense[i + 1, :, i] = dense[i, :, i + 1].T
    dense *= np.outer(np.where(weak, 0.1, 1.0), np.where(weak, 0.1, 1.0))[None, :, None, :]
    dark = slice(0, 3) if side == "first" else slice(-3, None)
    dense[:, dark] = dense[..., dark] = 0.0
    icov = to_bands(dense, bundle.normal.icov.shape[1], bundle.normal.halfband)
    couplings = Couplings(replace(bundle.normal, icov=icov), bundle.x, 1e-8, 40, Arena())
    correlations = couplings.correlations(1)
    strong, usual = correlations[:, weak].max(), np.median(correlations)
    assert strong > 2.5 * usual
    assert not windows.find(couplings, 4.1 * strong)
    found = windows.find(couplings, 3.5 * strong)
    assert set(found) == (set() if side is None else {0, 1, 2, 3})
    for (window,) in found.values():
        assert window.first <= weak.argmax() < window.last


@pytest.mark.parametrize("mask", ["gap", "block"])
def test_windows_stand_for_chains_and_the_wide_band(mask):
    """Beside a gap on all fibres, and a block: right, and in the narrow band, which alone does not hold there."""
    bundle = make_bundle(6, 200, mask=mask)
    neighbours = Neighbours(bundle.normal, bundle.x, Limits())
    neighbours.prepare((0, 6))
    kept = [i for i in range(6) if neighbours.complement(i).windows]
    without = decorrelate(bundle.normal, bundle.x, (0, 6), ndiag=5, options=Options(limits=Limits(window=np.inf)))
    assert (without.status[kept] == Status.WIDE_BAND).any()
    found = decorrelate(bundle.normal, bundle.x, (0, 6), ndiag=5)
    assert set(found.status.ravel()) == {int(Status.GOOD)}
    for i in kept:
        oracle, alive = bundle.oracle(i), bundle.normal.weight[i] > 0
        rounding = 100 * EPS * oracle.cond
        assert np.abs((found.flux[i] - oracle.flux(bundle.x[i])) * oracle.s).max() <= max(1e-8, rounding)
        np.testing.assert_allclose(found.ivar[i][alive], oracle.s[alive]**2, rtol=max(1e-9, rounding))
        np.testing.assert_allclose(found.resolution[i], oracle.diagonals(5), rtol=0, atol=max(1e-9, rounding))


def _apart(schur, exact, weight):
    """The difference of a band from S, with the diagonal scaled to 1, away from windows and their surroundings."""
    near, size = weight == 0, np.sqrt(np.diag(exact))
    for first, block in schur.windows:
        near[max(first - 10, 0):first + len(block) + 10] = True
    band, worst = schur.band, 0.0
    for a in range(band.shape[1]):
        j = np.nonzero(~near[:len(near) - a] & ~near[a:])[0]
        worst = max(worst, (np.abs(band[j, a] - exact[j, j + a]) / (size[j] * size[j + a])).max())
    return worst


def test_chains_outside_of_windows():
    """Also if fibres are coupled outside of their windows: S to all orders there, as the second is insufficient."""
    bundle = make_bundle(6, 200, mask="gap", wing=0.15)
    neighbours, n, icov = Neighbours(bundle.normal, bundle.x, Limits()), 200, bundle.dense
    neighbours.prepare((0, 6))
    kept, hw = sorted(neighbours._chained_too - neighbours._given_up), bundle.normal.halfband
    assert [neighbours.complement(i).room.half - hw for i in kept] == [4, 8, 12, 8, 12]
    found = decorrelate(bundle.normal, bundle.x, (0, 6), ndiag=5)
    assert set(found.status[kept].ravel()) == {int(Status.GOOD)}
    for i in kept:
        schur, own = neighbours.complement(i), slice(i * n, (i + 1) * n)
        exact = np.linalg.inv(bundle.covariance[own, own])
        assert schur.windows and schur.holds
        second = neighbours.first.at(i, windowed=True)
        apart = [_apart(each, exact, bundle.normal.weight[i]) for each in (schur, second)]
        assert apart[0] < 1e-11 and apart[1] > 20.0 * apart[0]
        oracle, alive = bundle.oracle(i), bundle.normal.weight[i] > 0
        bound = 100 * EPS * oracle.cond
        assert np.abs((found.flux[i] - oracle.flux(bundle.x[i])) * oracle.s).max() <= max(1e-8, bound)
        np.testing.assert_allclose(found.ivar[i][alive], oracle.s[alive]**2, rtol=max(1e-9, bound))
        around = neighbours.remainder(i, schur).around
        assert any(beyond is not None for _, _, beyond in around)
        for j, share, beyond in around:
            other = slice(j * n, (j + 1) * n)
            pivot = icov[other, other] + np.diag(bundle.normal.weight[j] == 0)
            if beyond is not None:
                for a in range(beyond.taken.shape[1]):
                    pivot -= np.diag(beyond.taken[:n - a, a], a) + (a > 0) * np.diag(beyond.taken[:n - a, a], -a)
            taken = icov[own, other] @ np.linalg.solve(pivot, icov[other, own])
            for a in range(schur.room.half + 1):
                known = share.taken[:n - a, a]
                np.testing.assert_allclose(known, np.diagonal(taken, a), rtol=0, atol=1e-12 * taken.max())


def test_what_makes_chains_outside_of_windows():
    """The second order of the coupling outside, whatever the rounding error inside; weak couplings make none."""
    bundle = make_bundle(6, 200, mask="gap", wing=0.05)
    for limits, wanted in ((Limits(), set()), (Limits(outside=1e-13), {0, 1, 2, 3, 4, 5})):
        neighbours = Neighbours(bundle.normal, bundle.x, limits)
        neighbours.prepare((0, 6))
        assert set(neighbours.windows) == {0, 1, 2, 3, 4, 5} and not neighbours._given_up
        assert neighbours._chained_too == wanted
        assert all(neighbours.complement(i).windows for i in range(6))


@pytest.mark.parametrize(("mask", "wing"), [("gap", 0.3), ("clean", 1.0)])
def test_a_strong_coupling_is_told(mask, wing):
    """To a factor of four, not the next answer of the first questions, 3e-2; outside of windows, or without any."""
    bundle, n, windowed, asked = make_bundle(6, 200, mask=mask, wing=wing), 200, mask == "gap", 0
    neighbours, block = Neighbours(bundle.normal, bundle.x, Limits()), [slice(i * n, (i + 1) * n) for i in range(6)]
    assert len(neighbours.windows) == 6 * windowed
    for i in range(6):
        schur, own = neighbours.first.at(i, windowed=windowed), bundle.dense[block[i], block[i]].copy()
        taken = sum(bundle.dense[block[i], block[j]] @ np.linalg.pinv(bundle.dense[block[j], block[j]])
                    @ bundle.dense[block[j], block[i]] for j in (i - 1, i + 1) if 0 <= j < 6)
        for first, matrix in schur.windows:
            inside = slice(first, first + len(matrix))
            taken[inside, inside], own[inside, inside] = 0.0, matrix
        near = np.abs(np.subtract.outer(range(n), range(n))) <= schur.room.half       # only the band is tested
        taken, own = taken * near, own * near
        alive = np.nonzero(bundle.normal.weight[i] > 0)[0]
        theta = eigh(taken[np.ix_(alive, alive)], own[np.ix_(alive, alive)], eigvals_only=True)[-1]
        assert theta <= schur.facts.theta <= 4.0 * theta
        asked += 2.5e-4 < schur.facts.theta < 3e-2
    assert asked


@pytest.mark.parametrize(("thetas", "holds"), [((1e-4, 1e-4), True), ((2.5e-4, 1e-4), False), ((1e-5, 1e-6), True)])
def test_the_second_order_outside_of_windows(thetas, holds):
    """Up to 1e-8, the exact limit of an answer, if rounding leaves as much, and up to 1e-10 elsewhere."""
    bundle = make_bundle(6, 200, mask="gap", wing=0.05)
    neighbours = Neighbours(bundle.normal, bundle.x, Limits())
    for cond, excused in ((1e8, True), (1e3, False)):
        for i in range(6):
            first, theta = neighbours.first.at(i, windowed=True), thetas[i != 2]
            neighbours._best[i] = first._replace(facts=Facts(cond, theta, 1e-3), seam=0.0, excess=0.0)
            neighbours.first._found[True][i] = neighbours._best[i]
        assert neighbours._window_holds(2) == (holds and (excused or thetas[0] < 1e-4))


@pytest.mark.parametrize(("half", "first", "last"), [(4, 12, 35), (4, 5, 50), (0, 7, 8), (30, 10, 40), (9, 5, 12)])
def test_a_window_put_into_its_band(half, first, last):
    """Against its definition with whole matrices: the measured numbers, and what stays in the band."""
    rng, start, n, hw = np.random.default_rng(half + first), 5, 45, 3
    (band, taken), (rest, x) = rng.normal(size=(2, 60, half + 1)), rng.normal(size=(2, 60))
    dark = rng.random(60) < 0.2
    roots, x = np.where(dark, 0.0, rng.random(60) + 0.1), np.where(dark, 0.0, x)
    exact = random_definite(n, n - 1, 1e3, rng)
    off = dark[start:start + n]
    exact[off], exact[:, off], exact[off, off] = 0.0, 0.0, 1.0
    near = np.abs(np.subtract.outer(range(n), range(n))) <= half
    known, passed = (np.zeros((n, n)) for _ in range(2))
    for whole, values in ((known, band), (passed, taken)):
        for j, k in np.argwhere(near):
            whole[j, k] = values[start + min(j, k), abs(j - k)]
    bins, own, u = np.arange(start, start + n), x[start:start + n], roots[start:start + n]
    scale, lit, inside = np.outer(u, u), np.outer(u, u) > 0, (bins >= first) & (bins < last)
    within, beside = np.outer(inside, inside), (bins >= first - hw) & (bins < last + hw)
    beyond = np.where(within & ~near & lit, exact, 0.0)
    seam = np.abs(exact - known) * scale * (np.outer(~inside, ~inside) & near & np.outer(beside, beside))
    crossing = np.where(np.outer(inside, ~inside) & ~near, exact, 0.0)
    wanted = ((np.abs(beyond) * scale).sum(axis=1).max(), (np.abs(crossing) * scale).max(), seam.sum(axis=1).max(),
              (np.abs(exact - known * near) * (within & lit)).sum(axis=1).max(), beyond.sum(), (beyond @ own).sum(),
              own @ beyond @ own)
    moved = np.where(inside, 0.0, rest[start:start + n]) + (crossing * lit + passed * (
        np.outer(~inside, inside) & near & lit)) @ own
    found = simd_window_fit.put(band, taken, rest, exact, x, roots, (first, last, start, hw))
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(rest[start:start + n], moved, rtol=1e-12, atol=1e-12)
    for j, k in np.argwhere(near & within & np.triu(np.ones((n, n), dtype=bool))):
        assert taken[start + j, k - j] == 0.0
        assert dark[start + j] or band[start + j, k - j] == exact[j, k]


def test_windows_give_up_what_they_can_do_without(monkeypatch):
    """Beside a block: the larger the allowed omission, the shorter the windows, and no more is omitted."""
    bundle = make_bundle(6, 200, mask="block")

    def measured(faint, same):
        monkeypatch.setattr(windows, "FAINT", faint)
        monkeypatch.setattr(windows, "SAME", same)
        neighbours = Neighbours(bundle.normal, bundle.x, Limits())
        return {i: (neighbours.first.at(i, windowed=True), found[0]) for i, found in neighbours.windows.items()}
    full = measured(0.0, 0.0)
    for faint, same, share in ((1e-9, 1e-12, 0.9), (1e-7, 1e-10, 0.7)):
        for i, (short, window) in measured(faint, same).items():
            ((first, matrix),), ((start, whole),) = short.windows, full[i][0].windows
            assert (start, start + len(whole)) == (window.first, window.last)
            assert window.first <= first < first + len(matrix) <= window.last
            assert len(matrix) < share * len(whole)
            np.testing.assert_array_equal(matrix, whole[first - start:][:len(matrix), first - start:][:, :len(matrix)])
            assert short.seam <= full[i][0].seam + 20.0 * same / short.facts.gamma
            assert short.tail <= full[i][0].tail + 4.0 * faint / short.facts.gamma


def test_a_window_that_does_not_hold_is_given_up(monkeypatch):
    """A window too short for the decay of S differs from the band just outside: the chain replaces it."""
    monkeypatch.setattr(windows, "MARGIN", 0)
    bundle = make_bundle(6, 200, mask="gap", wing=0.05)
    neighbours = Neighbours(bundle.normal, bundle.x, Limits())
    neighbours.prepare((0, 6))
    assert neighbours.windows
    assert not any(neighbours.complement(i).windows for i in neighbours._given_up)
    assert neighbours._given_up


def test_a_seam_alone_gives_a_window_up(monkeypatch):
    """The difference of S just outside of a window counts, whatever else holds."""
    true = windows.put
    monkeypatch.setattr(measure, "put", lambda *args, **named: replace(true(*args, **named), seam=1.0))
    bundle = make_bundle(6, 200, mask="block")
    neighbours = Neighbours(bundle.normal, bundle.x, Limits())
    neighbours.prepare((0, 6))
    assert neighbours.windows
    assert set(neighbours.windows) == neighbours._given_up
