"""The kernels of the banded core against dense algebra."""
import numpy as np
import pytest

from decorrelate.cases import EPS, band_of, full_of, make_bundle, measured, narrow_sum, random_definite
from gpu_extract.decorrelate.narrow import (
    simd_band_tests,
    simd_correct,
    simd_eliminate,
    simd_finish,
    simd_foresee,
    simd_schur,
)
from gpu_extract.decorrelate.narrow.simd_banded import SIDES
from gpu_extract.decorrelate.wide import simd_wide_eliminate, simd_wide_poles
from gpu_extract.kernels.arena import Arena
from gpu_extract.vectors import transpose


def dense_sum(matrix, sides, shifts, weights):
    """sum_k w_k (S + t_k)^-1, and the same times the right-hand sides."""
    inverse = sum(w * np.linalg.inv(matrix + t * np.eye(len(matrix))) for t, w in zip(shifts, weights, strict=True))
    return inverse, inverse @ sides


def check_sum(out, matrix, sides, poles, ndiag):
    inverse, solved = dense_sum(matrix, sides, *poles)
    bound = 100 * EPS * np.linalg.cond(matrix) * np.abs(inverse).max()
    assert np.abs(out[:, :SIDES] - solved).max() <= bound * np.abs(sides).sum()
    for a in range(ndiag + 1):
        column = out[:, SIDES + a]
        np.testing.assert_allclose(column[:len(column) - a], np.diagonal(inverse, a), rtol=0, atol=bound)


@pytest.mark.parametrize(("half", "ndiag", "nwave"),
                         [(7, 5, 83), (7, 0, 60), (3, 9, 41), (28, 5, 40), (2, 5, 30), (0, 2, 9)])
def test_narrow_pole_sums_agree_with_dense_inverses(half, ndiag, nwave):
    rng = np.random.default_rng(half)
    matrix = random_definite(nwave, half, 1e3, rng)
    sides, poles = rng.normal(size=(nwave, SIDES)), Arena().zeros(2, 16)
    poles[:] = np.exp(rng.normal(size=16)), rng.random(16)
    out = narrow_sum(band_of(matrix, half), sides, poles, ndiag)
    check_sum(out, matrix, sides, poles, ndiag)


@pytest.mark.parametrize(("half", "ndiag", "nwave"), [(30, 10, 101), (8, 3, 40), (5, 11, 33), (17, 4, 19)])
def test_wide_pole_sums_agree_with_dense_inverses(half, ndiag, nwave):
    rng = np.random.default_rng(half)
    matrix = random_definite(nwave, half, 1e5, rng)
    count, reach = -(-nwave // 4), -(-max(half, ndiag) // 4)
    sides, poles = np.zeros((4 * count, SIDES)), (10.0**rng.uniform(-5, 1, 8), rng.random(8))
    sides[:nwave] = rng.normal(size=(nwave, SIDES))
    blocks, works = np.empty((count, reach + 1, 16)), simd_wide_poles.make_works(count, reach)
    simd_wide_poles.by_panels(blocks, band_of(matrix, half))
    out = np.zeros((nwave, SIDES + ndiag + 1))
    simd_wide_poles.pole_sum(out, works, blocks, sides, *poles)
    check_sum(out, matrix, sides[:nwave], poles, ndiag)


def test_the_inverse_in_blocks_stays_symmetric():
    """Without the mirror in `_invert` asymmetric rounding grows along the band, here by 1e20."""
    rng = np.random.default_rng(1)
    matrix = random_definite(400, 60, 1e7, rng)
    count, reach = 100, 15
    blocks, works = np.empty((count, reach + 1, 16)), simd_wide_poles.make_works(count, reach)
    simd_wide_poles.by_panels(blocks, band_of(matrix, 60))
    out, weight = np.zeros((400, SIDES + 1)), np.zeros(8)
    weight[0] = 1.0
    simd_wide_poles.pole_sum(out, works, blocks, np.ones((400, SIDES)), np.full(8, 1e-9), weight)
    exact = np.diag(np.linalg.inv(matrix + 1e-9 * np.eye(400)))
    np.testing.assert_allclose(out[:, SIDES], exact, rtol=100 * EPS * np.linalg.cond(matrix))


@pytest.fixture(scope="module")
def coupled():
    return make_bundle(6, 75, mask="block", wing=0.1)


def blocks_of(bundle, fibre, other):
    n = bundle.x.shape[1]
    own, between = slice(fibre * n, (fibre + 1) * n), slice(other * n, (other + 1) * n)
    block = bundle.dense[own, own].copy()
    block[np.diag_indices(n)] += block.diagonal() == 0
    return block, bundle.dense[between, own]


@pytest.fixture
def eliminate(coupled):
    """eliminate(fibres, distances, half, last): `taken` and `moved`, in memory that is not empty.

    own: half-band of the fibres' own blocks, if it is to differ
    """
    def run(fibres, distances, half, last=None, own=coupled.normal.own):
        icov, x = coupled.normal.icov[:, :, :last].copy(), coupled.x[:, :last].copy()
        nwave, hw, shape = icov.shape[2], coupled.normal.halfband, (len(fibres), len(distances))
        icov *= np.add.outer(np.arange(nwave), np.arange(-hw, hw + 1)) < nwave
        bins = simd_schur.padded(nwave)
        taken, moved = Arena().zeros(*shape, bins, half + 1), Arena().zeros(*shape, bins)
        works = tuple(Arena().zeros(size) for size in simd_schur.work_sizes(nwave, hw, own, half=half,
                                                                         distances=len(distances)))
        for work in (taken, moved, *works):
            work[:] = 5.0
        simd_schur.eliminate(taken, moved, icov, x, np.array(fibres), np.array(distances), works, own=own)
        return taken[:, :, :nwave], moved[:, :, :nwave]
    return run


@pytest.mark.parametrize(("half", "last"), [(3, None), (8, None), (12, None), (8, 5)])
def test_elimination_eight_fibres_at_a_time(coupled, eliminate, half, last):
    x, fibres, distances = coupled.x[:, :last], [0, 1, 2, 5, 3, 3, 4, 4, 2], [-1, 1, -2, 2]
    taken, moved = eliminate(fibres, distances, half, last)
    for n, j in enumerate(fibres):
        for e, d in enumerate(distances):
            if 0 <= j + d < len(x):
                block, between = (matrix[:last, :last] for matrix in blocks_of(coupled, j, j + d))
                u = between @ np.linalg.solve(block, between.T)
                bound = 100 * EPS * np.linalg.cond(block) * np.abs(u).max()
                np.testing.assert_allclose(taken[n, e], band_of(u, half), rtol=0, atol=bound)
                np.testing.assert_allclose(moved[n, e], u @ x[j + d], rtol=0, atol=bound * np.abs(x[j + d]).sum())


def test_blocks_narrower_than_their_couplings(coupled, eliminate):
    """Elements between the half-bands are zero, and sums may skip them: the same results but for rounding."""
    narrow, hw = coupled.normal.own, coupled.normal.halfband
    assert narrow < hw
    for short, whole in zip(eliminate([1, 2], [-1, 1], hw), eliminate([1, 2], [-1, 1], hw, own=hw), strict=True):
        np.testing.assert_allclose(short, whole, rtol=0, atol=1e-14 * np.abs(whole).max())


@pytest.mark.parametrize(("fibres", "distances", "wanted"), [
    (range(25), (-1, 1), [(-1, 1), (-1, 1), (-1, 0), (0, 1)]), (range(24), (-1, 1), [(-1, 1)] * 3),
    ([0], (-1, 1), [(0, 1)]), (range(1, 10), (-1, 1), [(-1, 1), (-1, 1)]),
    (range(25), (-2, -1, 1, 2), [(-2, -1, 1, 2)] * 2 + [(-2, 0, 0, 0), (0, -1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 2)])])
def test_fibres_that_are_eliminated_together(fibres, distances, wanted):
    """Each for all existing distances, in the fewest vectors; 25 of a bundle in three, those at the ends in halves."""
    which, asked = simd_schur.together(tuple(fibres), distances, 25)
    assert [*map(tuple, asked.tolist())] == wanted
    for e, d in enumerate(distances):
        made = {fibres[n] for n in which[asked[:, e] != 0].ravel()}
        assert made >= {j for j in fibres if 0 <= j + d < 25}


def test_lanes_do_not_mix(coupled, eliminate):
    """The same bits whichever fibres are eliminated together."""
    results = []
    for fibres in ([2, 3, 4, 1], [4, 0, 5, 3, 1, 0, 3, 1, 2], [2], [0, 1, 3, 4, 5, 4, 3, 2]):
        taken, moved = eliminate(fibres, [-1, 1], coupled.normal.halfband)
        results.append((taken[fibres.index(2)], moved[fibres.index(2)]))
    for taken, moved in results[1:]:
        np.testing.assert_array_equal(taken, results[0][0])
        np.testing.assert_array_equal(moved, results[0][1])


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(("nwave", "reach", "half"), [(75, 10, 12), (75, 9, 12), (200, 10, 9), (5, 3, 6)])
def test_elimination_of_a_wider_band(coupled, nwave, reach, half, later):
    """Bands with odd and even numbers of diagonals, in one and several stretches of rows, with few bins."""
    rng = np.random.default_rng(5)
    hw = coupled.normal.halfband
    matrix, x = random_definite(nwave, min(reach, nwave - 1), 1e3, rng), rng.normal(size=nwave)
    own, between = np.zeros((nwave, 2 * hw + 1)), np.zeros((nwave, 2 * hw + 1))
    block = np.zeros((nwave, nwave))
    for k in range(-min(hw, nwave - 1), min(hw, nwave - 1) + 1):
        rows = np.arange(max(0, -k), nwave - max(0, k))
        between[rows, hw + k] = block[rows, rows + k] = rng.normal(size=len(rows))
        own[rows, hw + k] = rng.normal(size=len(rows))
    beyond = own[:, hw:][:, :reach + 1] if reach <= hw else np.pad(own[:, hw:], ((0, 0), (0, reach - hw)))
    taken, moved = np.full((nwave, half + 1), np.nan), np.full(nwave, np.nan)
    work = Arena().take(simd_eliminate.work_size(nwave, hw, half, reach + 1))
    work[:] = np.nan
    simd_eliminate.eliminate(taken, moved, own, beyond - band_of(matrix, reach), (between, later), x, work)
    g = block.T if later else block
    u = g @ np.linalg.solve(matrix, g.T)
    np.testing.assert_allclose(taken, band_of(u, half), rtol=0, atol=1e-11 * np.abs(u).max())
    np.testing.assert_allclose(moved, u @ x, rtol=0, atol=1e-11 * np.abs(u).max() * np.abs(x).sum())


def test_definiteness_is_told_for_certain():
    """Each of the eight answers against the eigenvalues, with questions a factor 1.001 on either side of the truth."""
    rng = np.random.default_rng(2)
    s, u = random_definite(131, 8, 1e4, rng), random_definite(131, 8, 10.0, rng)
    s, u = s / np.abs(s).max(), 1e-3 * u / np.abs(u).max()
    least = np.linalg.eigvalsh(s)[0]
    scale = np.sqrt(np.diag(s))
    gamma = np.linalg.eigvalsh(s / np.outer(scale, scale))[0]
    root = np.linalg.cholesky(np.linalg.inv(s + u))
    theta = np.linalg.eigvalsh(root.T @ u @ root)[-1]
    near = np.array([1 / 1.001, 1.001])
    b, c, rest, bound = np.zeros(8), np.zeros(8), np.ones(8), 3.0
    c[:2], b[2:4], rest[4:6] = least / bound * near, 1 - 1 / (theta * near[::-1]), 1 - gamma * near
    lanes, work = np.concatenate([b, c, rest]), Arena().zeros(simd_band_tests.work_size(8))
    work[:] = 3.0
    assert simd_band_tests.definite(8)(lanes, bound, work, band_of(s, 8), band_of(u, 8)) == 0b11010101
    s[-1, -1] = -1.0        # the last of an odd number of rows is included
    assert simd_band_tests.definite(8)(lanes, bound, work, band_of(s, 8), band_of(u, 8)) == 0


def test_assembled_band_decouples_dark_bins():
    bundle = make_bundle(3, 60, mask="gap")
    normal, fibre = bundle.normal, 1
    _, bound, band = measured(8, normal.icov, (True, False), fibre=fibre)
    dark = normal.weight[fibre] == 0
    assert dark.any()
    matrix = full_of(band)
    np.testing.assert_array_equal(matrix[dark][:, dark], bound * np.eye(dark.sum()))
    assert not matrix[dark][:, ~dark].any()
    assert bound >= np.linalg.eigvalsh(matrix)[-1]
    assert bound <= 2 * np.linalg.eigvalsh(matrix)[-1]


def between_zeros(rows, before, after):
    """A copy of an array with rows of zeros around it."""
    padded = Arena().zeros(before + len(rows) + after, *rows.shape[1:])
    padded[before:before + len(rows)] = rows
    return padded[before:before + len(rows)]


@pytest.mark.parametrize(("half", "nwave", "near"), [(9, 300, (80, 160)), (0, 20, (8, 16)), (3, 5, (0, 5)),
                                                     (12, 131, (-48, 64))])
def test_what_the_band_will_do_is_foreseen(half, nwave, near):
    rng = np.random.default_rng(half)
    s, u = random_definite(nwave, half, 1e3, rng), random_definite(nwave, half, 10.0, rng)
    x, roots = 30.0 * rng.normal(size=nwave), 1.0 / np.sqrt(np.diag(s))
    roots[nwave // 2] = 0.0        # a bin without weight
    before, after = transpose.padded(half), transpose.LANES
    rest, sums = between_zeros(-u @ x + 1e-3 * rng.normal(size=nwave), 0, after), np.full(6, np.nan)
    left = rest + u @ x
    diagonal, found = between_zeros(np.full(nwave, np.nan), 0, after), np.full((2, nwave + after), np.nan)
    simd_foresee.foresee(sums, diagonal, rest, (found[0], found[1]), between_zeros(band_of(s, half), before, after),
                        between_zeros(band_of(u, half), before, after),
                        between_zeros(x, half + after, half + after), between_zeros(roots, half + after, half + after),
                        near)
    signs = (-1.0)**np.arange(nwave)
    total, product = s.sum(axis=1), s @ x
    least = np.maximum(signs * (s @ signs), simd_foresee.LEAST * np.abs(total))
    scaled = np.abs(np.diagonal(u, half) * (roots * np.roll(roots, -half))[:nwave - half])
    edges = np.zeros(nwave)
    edges[:nwave - half] = scaled
    edges[half:] = np.maximum(edges[half:], scaled)
    first, last = max(near[0] // 8 * 8, 0), -(-near[1] // 8) * 8       # whole vectors with a bin that is near
    expected = [np.max(left**2 / least), total[roots > 0].sum(), product.sum(), x @ product, scaled.max(),
                edges[first:last].max()]
    np.testing.assert_array_equal(diagonal, np.diag(s))
    np.testing.assert_allclose(rest, left, rtol=0, atol=1e-12 * np.abs(u @ x).max())
    np.testing.assert_allclose(sums, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found[0, :nwave], left**2 / least, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found[1, :nwave], edges, rtol=1e-12)


def test_corrections_of_many_fibres():
    """Eleven fibres, eight at once, against dense solutions; one is left out, and one has a dark bin."""
    rng = np.random.default_rng(6)
    nfibre, nwave, first, half = 11, 40, 3, simd_correct.HALF
    made = Arena().zeros(nfibre, nwave, 8)
    flux, work = rng.normal(size=(nfibre, 30)), Arena().zeros(simd_correct.work_size(nwave))
    was, expected, wanted = flux.copy(), flux.copy(), [n for n in range(nfibre) if n != 4]
    signs = (-1.0)**np.arange(nwave)
    for n in range(nfibre):
        q, rest = random_definite(nwave, half, 50.0, rng), rng.normal(size=nwave)
        made[n, :, 0], made[n, :, 1], made[n, :, SIDES:] = q.sum(axis=1), rest, -band_of(q, half)
        made[n, 20 if n == 7 else 0, 0] = 0.0
        least = np.maximum(np.abs(signs * (q @ signs)), simd_correct.LEAST * np.abs(made[n, :, 0]))
        e = np.linalg.solve(q + np.diag(simd_correct.SPREAD * least), rest)
        expected[n] += np.divide(e, made[n, :, 0], out=np.zeros(nwave), where=made[n, :, 0] != 0)[first:first + 30]
    expected[4] = was[4]
    simd_correct.correct(flux, made, work, np.array(wanted), first)
    np.testing.assert_allclose(flux, expected, rtol=1e-11, atol=1e-12)


def test_a_weak_bin_is_not_moved_by_what_bins_far_from_it_say():
    """A bin that knows 1e-4 of the others, at an end as beside a mask, coupled to the eighth one by E.

    (Q L + L Q)_0k = E_0k with q_k = 100 q_0: the quick correction for q_0 alone is many times too much, in sigma, and
    no better than none.
    """
    n, half, far = 40, simd_correct.HALF, 8
    light = np.where(np.arange(n) == 0, 1e-2, 1.0)
    s = (np.eye(n) + 0.3 * (np.eye(n, k=1) + np.eye(n, k=-1))) * np.outer(light, light)
    e = np.zeros((n, n))
    e[0, far] = e[far, 0] = 1e-2
    x = np.where(np.arange(n) == far, 1.0, 0.0)
    value, vector = np.linalg.eigh(s)
    root = np.sqrt(value)
    q = (vector * root) @ vector.T
    exact = vector @ ((vector.T @ e @ vector) / (root[:, None] + root)) @ vector.T @ x
    made, flux = Arena().zeros(1, n, 8), np.zeros((1, n))
    left = []
    for weakened in (False, True):
        made[0, :, 0], made[0, :, 1], made[0, :, SIDES:], flux[:] = q.sum(axis=1), e @ x, -band_of(q, half), 0.0
        if weakened:
            simd_finish.weaken(made[0], q.sum(axis=1), 1.0 / q.sum(axis=1))
        simd_correct.correct(flux, made, Arena().zeros(simd_correct.work_size(n)), np.array([0]), 0)
        left.append(abs(flux[0, 0] * made[0, 0, 0] - exact[0]))
    assert left[0] > 3 * abs(exact[0])
    assert left[1] < 0.5 * abs(exact[0])


@pytest.mark.parametrize(("neighbours", "reach"), [(1, 74), (2, 74), (2, 20)])
def test_elimination_of_neighbours_agrees_with_dense_matrices(coupled, neighbours, reach):
    """In the band, to rounding; if the neighbours' part is cut short, to the size that it has fallen to."""
    n, hw, fibre = coupled.x.shape[1], coupled.normal.halfband, 2
    others = np.array([j for j in range(fibre - neighbours, fibre + neighbours + 1) if j != fibre])
    half = min(reach, 40)
    band = np.zeros((n, half + 1))
    band[:, :hw + 1] = coupled.normal.icov[fibre, 0, :, hw:]
    left = simd_wide_eliminate.eliminate(band, coupled.normal.icov, fibre, others, reach)
    assert left is not None
    chosen = np.concatenate([np.arange(j * n, (j + 1) * n) for j in others])
    own = np.arange(fibre * n, (fibre + 1) * n)
    block = coupled.dense[np.ix_(chosen, chosen)]
    exact = coupled.dense[np.ix_(own, own)] - coupled.dense[np.ix_(own, chosen)] @ np.linalg.solve(
        block, coupled.dense[np.ix_(chosen, own)])
    difference = np.abs(band - band_of(exact, half)).max() / np.abs(exact).max()
    assert difference <= 3e-14


def test_blocks_that_are_not_definite_are_reported(coupled):
    icov = coupled.normal.icov.copy()
    icov[1, 0, 20, coupled.normal.halfband] *= -1.0
    band = np.zeros((75, 20))
    assert simd_wide_eliminate.eliminate(band, icov, 2, np.array([1, 3]), 19) is None
