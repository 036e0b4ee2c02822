"""The Schur complement in a band, and the facts that decide whether it holds."""
import numpy as np
import pytest
from scipy.linalg import eigh

from decorrelate.cases import EPS, band_of, full_of, make_bundle, measured, random_definite
from gpu_extract.decorrelate import wide
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.decorrelate.narrow.coupling import Couplings
from gpu_extract.decorrelate.narrow.definite import Facts
from gpu_extract.decorrelate.narrow.measure import REACH
from gpu_extract.decorrelate.narrow.schur import ALIKE, Neighbours
from gpu_extract.decorrelate.weak import band_tells
from gpu_extract.kernels.arena import Arena


def exact(bundle, fibre):
    """S = C_ii^-1."""
    n = bundle.x.shape[1]
    own = slice(fibre * n, (fibre + 1) * n)
    return np.linalg.inv(bundle.covariance[own, own])


def relative(s, other):
    """Largest |v' (other - s) v| / v' s v."""
    root = np.linalg.cholesky(np.linalg.inv(s))
    return np.abs(np.linalg.eigvalsh(root.T @ (other - s) @ root)).max()


def lit(bundle, fibre, *matrices):
    """The part of the matrices for bins that have weight."""
    alive = bundle.normal.weight[fibre] > 0
    return [matrix[np.ix_(alive, alive)] for matrix in matrices]


def whole(schur):
    """S as a matrix, including windows."""
    matrix = full_of(schur.band)
    for first, block in schur.windows:
        inside = slice(first, first + len(block))
        matrix[inside, inside] = block
    return matrix


@pytest.mark.parametrize("window", [Limits.window, np.inf])
@pytest.mark.parametrize("mask", ["clean", "column", "block"])
def test_error_bound_holds(mask, window):
    """The neglected part is below the bound, which is within the limits if `holds` says so."""
    bundle = make_bundle(6, 120, mask=mask, wing=0.05, stamp=(11, 13))
    neighbours = Neighbours(bundle.normal, bundle.x, Limits(window=window))
    neighbours.prepare((0, 6))
    for i in range(6):
        schur = neighbours.complement(i)
        if schur.holds:
            s = exact(bundle, i)
            bound = schur.error + 100 * EPS * np.linalg.cond(s)
            assert relative(*lit(bundle, i, s, whole(schur))) <= bound
    assert any(neighbours.complement(i).holds for i in range(6))


@pytest.mark.parametrize(("apart", "holds"), [(1e-5, True), (1e-11, False)])
@pytest.mark.parametrize("window", [Limits.window, np.inf], ids=["window", "chain"])
def test_what_is_eliminated_must_tell_together(window, apart, holds):
    """A bin of fibre 2 nearly equals one of fibre 3, although each fibre's own block distinguishes its bins. Their
    share in fibre 1, a hundredth of it, leaves only rounding errors of icov."""
    normal = make_bundle(5, 100, wing=0.05, stamp=(11, 13)).normal
    icov, j, hw = normal.icov, 50, normal.halfband
    for n in range(-hw, hw + 1):                    # those two bins couple to each other and to a bin of fibre 1
        icov[2:4, 0, j, hw + n] = icov[2:4, 0, j + n, hw - n] = 0.0
        icov[1:4, 1, j, hw + n] = icov[1:4, 1, j + n, hw - n] = 0.0
    icov[:, 2:] = 0.0
    icov[2:4, 0, j, hw] = 1.0
    icov[2, 1, j, hw] = np.sqrt(1.0 - apart)
    icov[1, 1, j, hw] = 0.1 * np.sqrt(apart * icov[1, 0, j, hw])
    neighbours = Neighbours(normal, np.zeros(normal.rhs.shape), Limits(window=window))
    assert all(neighbours.couplings.tells(i) for i in range(5))
    assert neighbours.complement(1).holds == holds
    assert (1 in neighbours.windows) == np.isfinite(window)
    for without in ((), (2, 3)):                    # as if their windows were too long
        for i in without:
            neighbours.windows.pop(i, None)
        for at in neighbours.windows.get(1, ()):
            assert neighbours.first.tell_beside(1, at) == holds


def test_chains_are_exact_where_couplings_reach_the_next_fibre_only():
    """Beside a masked block the second order leaves a larger error than the chain, that of the band's cut."""
    bundle = make_bundle(7, 110, mask="block", stamp=(11, 13))
    assert not bundle.normal.icov[:, 2:].any() or bundle.normal.icov.shape[1] == 2
    loosest = Limits(coupling=1.0, tail=1.0, shift=1.0, window=np.inf)
    without = Neighbours(bundle.normal, bundle.x, loosest)
    chained = Neighbours(bundle.normal, bundle.x, Limits(tail=1e-9, window=np.inf))
    s = exact(bundle, 2)
    schur, loose = chained.complement(2), without.complement(2)
    left = relative(*lit(bundle, 2, s, full_of(schur.band)))
    assert left <= schur.error + 100 * EPS * np.linalg.cond(s)
    assert left < 1e-3 * relative(*lit(bundle, 2, s, full_of(loose.band)))


def test_rest_is_what_the_band_cuts_off():
    bundle = make_bundle(4, 130, wing=0.1)
    schur = Neighbours(bundle.normal, bundle.x, Limits(shift=1.0, tail=1.0)).complement(1)
    s = exact(bundle, 1)
    beyond = np.abs(np.subtract.outer(np.arange(130), np.arange(130))) >= schur.band.shape[1]
    wanted = np.where(beyond, s, 0.0) @ bundle.x[1]
    np.testing.assert_allclose(schur.rest, wanted, rtol=0, atol=1e-3 * np.abs(wanted).max())


def test_facts_bracket_the_truth():
    rng = np.random.default_rng(11)
    for cond, theta in ((300.0, 3e-6), (3e4, 1e-3), (5e8, 0.05)):
        s = random_definite(90, 7, cond, rng)
        direction = random_definite(90, 7, 10.0, rng)
        root = np.linalg.cholesky(np.linalg.inv(s))
        u = direction * theta / np.linalg.eigvalsh(root.T @ direction @ root)[-1]
        bound = 1.05 * np.linalg.eigvalsh(s)[-1]
        given, nothing = (band_of(s, 7), band_of(u, 7)), np.zeros((1, 1, 90, 15))
        facts, *_ = measured(7, nothing, (False, True), given=given, bound=bound)
        truth = bound / np.linalg.eigvalsh(s)[0]
        assert truth <= facts.cond <= max(5e3, 3.3 * truth)
        size = np.linalg.eigvalsh(np.linalg.cholesky(np.linalg.inv(s + u)).T @ u @ np.linalg.cholesky(
            np.linalg.inv(s + u)))[-1]
        assert size <= facts.theta <= 100 * size
        scale = np.sqrt(np.diag(s))
        assert facts.gamma <= np.linalg.eigvalsh(s / np.outer(scale, scale))[0]


@pytest.mark.parametrize("mask", ["gap", "block"])
def test_facts_of_the_narrowest_band_are_those_of_the_one_that_holds(mask):
    """Up to the difference of both in the norm of S, if that is small; otherwise they are measured again."""
    bundle = make_bundle(6, 200, mask=mask, wing=0.05, stamp=(11, 13))
    neighbours, known = Neighbours(bundle.normal, bundle.x, Limits(tail=1e-8)), 0
    neighbours.prepare((0, 6))
    for i in range(6):
        schur, facts = neighbours.complement(i), neighbours._facts_in_any(i)
        if schur.holds and schur.room.half > neighbours.widths[0] and facts is not None:
            known += 1
            assert schur.facts.cond == facts.cond
            (s,), slack = lit(bundle, i, whole(schur)), 1.0 - ALIKE
            scale = np.sqrt(np.diag(s))
            assert np.linalg.eigvalsh(s)[0] >= slack * schur.bound / facts.cond
            assert np.linalg.eigvalsh(s / np.outer(scale, scale))[0] >= slack * facts.gamma
            for apart in ("tail", "inner"):
                found = neighbours.first._found[neighbours._has_windows(i)]
                first, found[i] = found[i], found[i]._replace(**{apart: 1.01 * ALIKE})
                assert neighbours._facts_in_any(i) is None
                found[i] = first
    assert known > 2


def test_facts_that_are_known_are_not_asked_for(monkeypatch):
    """A chain of bright lines needs wider bands, for which no tests are made."""
    bundle = make_bundle(6, 200, mask="gap", wing=0.05)
    neighbours = Neighbours(bundle.normal, bundle.x, Limits(tail=1e-8))
    monkeypatch.setattr(Neighbours, "_facts_in_any", lambda _, fibre: Facts(123.0 + fibre, 1e-6, 1e-3))
    neighbours.prepare((0, 6))
    wider = [i for i in range(6) if neighbours.complement(i).room.half > neighbours.widths[0]]
    assert [neighbours._best[i].facts.cond for i in wider] == [123.0 + i for i in wider] and wider


def test_facts_of_what_is_not_definite_or_not_finite():
    matrix = np.eye(40)
    matrix[20, 20] = -1.0
    icov = np.zeros((1, 1, 40, 17))
    icov[0, 0, :, 8:] = band_of(matrix, 8)
    facts, bound, _ = measured(8, icov, (True, True))
    assert np.isfinite(bound)
    assert facts.rung is None
    icov[0, 0, 20, 8] = np.nan
    facts, bound, _ = measured(8, icov, (True, True))
    assert bound == np.inf
    assert facts.rung is None


def test_sizes_bound_the_couplings():
    bundle = make_bundle(5, 80, mask="column", wing=0.1)
    couplings, n = Couplings(bundle.normal, bundle.x, 1e-8, 0, Arena()), 80
    for i in range(4):
        for j in range(i + 1, 5):
            own, other = slice(i * n, (i + 1) * n), slice(j * n, (j + 1) * n)
            scale = np.sqrt(np.outer(bundle.dense[own, own].diagonal(), bundle.dense[other, other].diagonal()))
            size = np.linalg.norm(bundle.dense[own, other] / scale, 2)
            assert size <= couplings.size(i, j) * (1 + 1e-12)
            assert couplings.size(i, j) == couplings.size(j, i)
    assert couplings.farthest[0] == max(couplings.size(0, j) for j in range(2, 5))


def test_neighbours_of_the_wide_band_are_enough():
    """One neighbour fewer leaves a larger error; the counted number leaves at most ten times the limit."""
    bundle = make_bundle(7, 90, wing=0.6)
    limit = 1e-9
    count = wide.count_neighbours(bundle.normal.icov, 3, np.zeros(90), wide.WideLimits(neighbours=limit))
    assert 1 < count < 6
    n, s = 90, exact(bundle, 3)
    left = []
    for m in (count - 1, count):
        chosen = np.concatenate([np.arange(j * n, (j + 1) * n) for j in range(max(3 - m, 0), min(4 + m, 7)) if j != 3])
        own = np.arange(3 * n, 4 * n)
        part = bundle.dense[np.ix_(own, own)] - bundle.dense[np.ix_(own, chosen)] @ np.linalg.solve(
            bundle.dense[np.ix_(chosen, chosen)], bundle.dense[np.ix_(chosen, own)])
        left.append(relative(s, part))
    assert left[1] <= 10 * limit
    assert left[1] < left[0]


@pytest.mark.parametrize("first", [6.0, 1.0])
def test_the_wide_band_holds_the_schur_complement(first):
    """Also if the first width does not hold it."""
    bundle = make_bundle(5, 140, wing=0.3, mask="block")
    for i in range(5):
        schur = wide.complement(bundle.normal.icov, i, np.ones((140, 2)), wide.WideLimits(widths=(first, 14.0)))
        assert schur is not None
        s = exact(bundle, i)
        bound = 2 * schur.tail + 1e-8 + 100 * EPS * np.linalg.cond(s)
        assert relative(*lit(bundle, i, s, full_of(schur.band))) <= bound
        assert schur.bound >= np.linalg.eigvalsh(s)[-1]


def test_width_foretold_by_decay():
    """Tails that fall by 10 in 12 bins and are 100 too high at the end need 24 bins more."""
    tails = 10.0 ** (-np.arange(121) / 12.0)
    assert wide._farther(tails, 1e-12) == pytest.approx(24.0)
    assert wide._farther(tails, 1e-8) == 0.0
    assert wide._farther(np.full(121, np.inf), 1e-8) == 60.0


@pytest.mark.parametrize(("tail", "shift", "holds", "little"), [
    (2.4e-6, 3e-9, True, True), (6e-5, 3e-9, False, True), (2.4e-6, 5.9e-9, True, True), (2.4e-6, 6.1e-9, True, False)])
def test_weights_of_masked_bins_are_no_excuse(tail, shift, holds, little):
    """Beside a block the condition number is that of the weights: 4e13, although the scaled S begins at 1e-5.

    The rounding error of 0.3 is then no reason to cut off more, nor to leave the flux uncorrected: the limit is
    uneven_shift, since the information in bins differs.
    """
    bundle, gamma = make_bundle(2, 40), 1e-5
    gauge = Neighbours(bundle.normal, bundle.x, Limits()).first.gauge
    sums = np.array([[(2.0 * shift)**2, 0.0, 0.0, 0.0, tail * gamma / 4.0, 0.0]])
    _, _, _, (excess,), _, (found,), _ = gauge._judged(8, sums, np.zeros((1, 6)), [Facts(4e13, 1e-6, gamma)])
    assert (excess <= 1.0) == holds
    assert found == little


def test_what_is_cut_off_far_from_bins_that_are_wanted():
    """It does not count in even fibres, where it decays on the way; in uneven fibres all of it does."""
    bundle, limits = make_bundle(2, 200), Limits()
    first = Neighbours(bundle.normal, bundle.x, limits).first
    gauge, reach = first.gauge, REACH * first.widths[0]
    sums = np.array([[0.0, 0.0, 0.0, 0.0, 1e-3, 1e-6]] * 2)
    tails = gauge._judged(8, sums, np.zeros((2, 6)), [Facts(limits.uneven, 1e-6, 0.1), Facts(2e4, 1e-6, 0.1)])[1]
    np.testing.assert_allclose(tails, [4e-5, 4e-2], rtol=1e-12)
    bundle.normal.icov[0, 1, 150:] *= 3.0
    whole, near, far = (Neighbours(bundle.normal, bundle.x, limits, kept=slice(0, stop)).first.at(0).tail
                        for stop in (200, 150, 120 - reach))
    assert whole == near > 3.0 * far


@pytest.mark.parametrize(("mask", "fibre"), [("gap", 0), ("gap", 3), ("block", 2)])
def test_no_band_is_refused_for_what_was_not_asked(mask, fibre):
    """The lower end of the scaled S is between two tested numbers: if the decision depends on it, it is tested again,
    in steps of at most 8^(1/9)."""
    bundle = make_bundle(4, 100, mask=mask)

    def first(tail):
        return Neighbours(bundle.normal, bundle.x, Limits(tail=tail, window=np.inf)).first.at(fibre)

    coarse = first(1.0)
    s = full_of(coarse.room.band(coarse.place))
    scale = np.sqrt(np.diag(s))
    gamma = np.linalg.eigvalsh(s / np.outer(scale, scale))[0]
    assert coarse.facts.gamma < 0.8 * gamma
    found = first(coarse.tail * np.sqrt(coarse.facts.gamma / gamma))
    assert gamma / 8**(1 / 9) <= found.facts.gamma <= gamma
    assert found.tail == pytest.approx(coarse.tail * coarse.facts.gamma / found.facts.gamma, rel=1e-12)
    assert found.excess <= 1.0
    assert first(coarse.tail * coarse.facts.gamma / (9.0 * gamma)).facts == coarse.facts      # no answer would suffice


def test_weights_of_masked_bins_excuse_no_coupling():
    """Nor couplings; test/device/test_device_banded.py tests the same for the device."""
    limits = Limits()
    neighbours = Neighbours(make_bundle(2, 40).normal, np.ones((2, 40)), limits)
    first = neighbours.first.at(0)

    def holds(facts, error, bound=1.0):
        neighbours._best[0] = first._replace(facts=facts, excess=0.0, bound=bound * first.bound)
        return neighbours._holds(0, error)
    assert not holds(Facts(1.1 * limits.cond, 1e-6, 1e-3), 0.0, 1e13)
    for cond in (1e5, 1e8, 9e11):
        facts = Facts(cond, 1e-6, 1e-3)
        most = max(limits.coupling, min(facts.rounding, limits.most_coupling))
        assert most <= 1e-7
        assert holds(facts, 0.99 * most) and not holds(facts, 1.01 * most)


def test_bins_that_are_kept_are_compared_with_the_limit():
    """To rounding: S of these exceeds the bound over the limit, in the norm of S; dark bins do not count."""
    bundle, kept = make_bundle(2, 40, mask="gap"), slice(3, 30)
    least = np.diag(np.where((np.arange(40) >= kept.start) & (np.arange(40) < kept.stop), 1.0, 0.0))
    for x, best in ((1.0, True), (1e10, False), (np.nan, False), (np.inf, False)):
        neighbours = Neighbours(bundle.normal, np.full((2, 40), x), Limits(), kept=kept)
        schur = neighbours.complement(0)
        most = eigh(least, full_of(schur.band), eigvals_only=True)[-1] * schur.bound
        for share, held in ((1.001, best), (0.999, False)):
            neighbours.limits = Limits(cond=share * most)
            assert neighbours._kept_hold(0) == held


def test_a_question_about_weak_bins_leaves_the_band_as_it_is():
    """The poles come after it: S must be unchanged, whatever the order in memory."""
    band = np.random.default_rng(2).normal(size=(30, 5)) + [9.0, 0.0, 0.0, 0.0, 0.0]
    before = band.copy()
    assert band_tells(band, band[:, 0].copy())
    np.testing.assert_array_equal(band, before)
