"""x of a whole bundle: the iteration against the exact banded Cholesky and against dense algebra."""
from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg
from numba import njit

import oracle
from extraction import dense_normal, normals
from gpu_extract import solve as solver
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Image, Normal, Strengths
from gpu_extract.kernels.arena import Arena
from gpu_extract.solve import (
    TOLERANCE,
    closest,
    measure_strengths,
    simd_factor,
    simd_strengths,
    simd_substitute,
    solve,
    solve_directly,
)

CONFIG = ExtractConfig(wavelength=(6050.0, 6098.0, 0.8), tolerance=1e-4)


def make_normal(family: str, masks: bool, **settings) -> Normal:
    """Five fibres; with masks a bad column, a block of 34 x 32 pixels and single ones."""
    config = replace(CONFIG, **settings)
    case = oracle.make_case(oracle.make_psf(family), config, pad=60, masks=masks)
    return normals(case.image, case.psf, config)[1][0]


@pytest.fixture(scope="module", params=[f"{f}{m}" for f in oracle.FAMILIES for m in ("", "-masked")])
def normal(request):
    family, _, masks = request.param.partition("-")
    return make_normal(family, bool(masks))


def errors(normal: Normal) -> np.ndarray:
    """sigma of x: the diagonal of C = icov^-1, (nfibre, nwave); infinite if nothing is known."""
    matrix, seen = dense_normal(normal), normal.weight.ravel() > 0
    sigma = np.full(seen.shape, np.inf)
    factor = scipy.linalg.cholesky(matrix[np.ix_(seen, seen)], lower=True)
    inverse = scipy.linalg.solve_triangular(factor, np.eye(len(factor)), lower=True)
    sigma[seen] = np.sqrt((inverse**2).sum(axis=0))
    return sigma.reshape(normal.weight.shape)


def test_iteration_against_the_exact_solution(normal):
    """In units of x's own errors, summed in squares: ten times the error that the iteration reports, and rounding."""
    solution = solve(normal)
    exact = solve_directly(normal)[0]
    left = np.sqrt((((solution.x - exact) / errors(normal)) ** 2).sum())
    assert 0 < solution.iterations < 40
    assert solution.error <= TOLERANCE * 10
    assert left <= 10 * max(solution.error, TOLERANCE)


def test_exact_solution_against_dense_algebra(normal):
    """The residual of the bands, and scipy's solution of the dense matrix: to rounding, 1e-9 sigma."""
    x = solve_directly(normal)[0]
    matrix, seen = dense_normal(normal), normal.weight.ravel() > 0
    wanted = np.zeros(seen.shape)
    wanted[seen] = scipy.linalg.solve(matrix[np.ix_(seen, seen)], normal.rhs.ravel()[seen], assume_a="pos")
    difference = (x - wanted.reshape(x.shape)) / errors(normal)
    assert np.abs(difference).max() < 1e-9


def test_bins_without_weight_are_zero():
    """In both; their row of the right-hand side is not used."""
    normal = make_normal("v3", True)
    dark = normal.weight == 0
    assert 5 < dark.sum() < 400
    normal.rhs[dark] = np.nan
    for x in (solve(normal).x, solve_directly(normal)[0]):
        np.testing.assert_array_equal(x[dark], 0)
        assert np.isfinite(x).all()


def test_nothing_to_solve_for():
    case = oracle.make_case(oracle.make_psf("v3"), CONFIG, pad=60)
    empty = Image(case.image.pix, np.zeros(case.psf.shape))
    normal = normals(empty, case.psf, CONFIG)[1][0]
    solution = solve(normal)
    np.testing.assert_array_equal(solution.x, 0)
    np.testing.assert_array_equal(solve_directly(normal)[0], 0)
    assert solution.error == 0


def test_scaled_by_a_power_of_two_no_bit_changes():
    """rhs and icov in other units: the iteration judges errors, which have no units."""
    normal = make_normal("v3", False)
    for power in (2.0**40, 2.0**-40):
        other = replace(normal, icov=normal.icov * power**-2, rhs=normal.rhs / power, weight=normal.weight * power**-2)
        np.testing.assert_array_equal(solve(other).x, solve(normal).x * power)


def test_where_the_iteration_does_not_arrive_it_is_solved_directly(monkeypatch):
    normal = make_normal("gh2", True)
    monkeypatch.setattr(solver, "ITERATIONS", 2)
    solution = solve(normal)
    assert solution.iterations == 0
    np.testing.assert_array_equal(solution.x, solve_directly(normal)[0])


def test_a_singular_bundle_is_solved():
    """Two fibres on one trace: their bins cannot be distinguished, and half of the components of x are arbitrary.

    The sum of both is known: A x fits the pixels as well as with one of the two fibres, to 1e-9 sigma.
    """
    psf = oracle.make_psf("v3")
    for series in (psf.x, psf.y, *(s for c in psf.cores for s in (c.sigma_x, c.sigma_y, c.gh))):
        series.coeff[..., 2, :] = series.coeff[..., 1, :]
    case = oracle.make_case(psf, CONFIG, pad=0)
    normal = _of_all_fibres(case.image, psf)
    x = solve(normal).x
    matrix, sigma = dense_normal(normal), np.sqrt(normal.icov[:, 0, :, normal.halfband])
    residual = (matrix @ x.ravel()).reshape(x.shape) - normal.rhs
    assert np.abs(residual / sigma).max() < 1e-9
    assert np.isfinite(x).all()


def _of_all_fibres(image: Image, psf) -> Normal:
    """Normal equations without the validator, which would drop the double fibre."""
    from gpu_extract.normal import add_tile, empty_sums, give_up, half_bands, make_cut, place_blocks
    from gpu_extract.spots import recipe

    wave = np.arange(6050.0, 6098.0, 0.8)
    spots = recipe(psf, (0, psf.nfibre), wave)
    cut = make_cut(image, spots.y0, spots.x0, psf.stamp)
    sums = empty_sums(psf.nfibre, len(wave), half_bands(spots.y0, spots.x0, psf.stamp, image.shape))
    add_tile(sums, spots, place_blocks(spots, cut), cut, (0, len(wave), 0))
    return give_up(sums, 0.0)


def test_one_fibre_one_iteration():
    """The preconditioner is exact then."""
    config = replace(CONFIG, bundlesize=1)
    case = oracle.make_case(oracle.make_psf("v3"), config, pad=60, masks=True)
    for normal in normals(case.image, case.psf, config)[1]:
        assert solve(normal).iterations <= 2


def test_kernels_against_the_dense_matrix(normal):
    """icov times a vector, whole and between fibres only, and solutions with the fibres' blocks: 1e-13 of the terms."""
    rng = np.random.default_rng(2)
    nfibre, _, nwave, _ = normal.icov.shape
    rows, margin, length = simd_factor.room_of(nfibre, nwave, normal.halfband)
    inside = np.ix_([simd_factor.row_of(i, nfibre) for i in range(nfibre)], range(margin, margin + nwave))
    v = np.zeros((rows, length))
    v[inside] = rng.normal(size=(nfibre, nwave))
    matrix = dense_normal(normal)
    blocks = scipy.linalg.block_diag(*(matrix[i * nwave:(i + 1) * nwave, i * nwave:(i + 1) * nwave]
                                       for i in range(nfibre)))
    product = np.full_like(v, np.nan)
    size = np.abs(matrix) @ np.abs(v[inside].ravel())
    between = normal.icov.copy()
    between[:, 0] = 0.0
    correlations, roots = simd_strengths.room(normal.icov.shape, Arena())
    simd_strengths.inverse_roots(roots, normal.icov)
    for icov, wanted in ((normal.icov, matrix), (between, matrix - blocks)):
        simd_strengths.multiply(correlations, product, icov, v, margin, roots)
        assert (np.abs(product[inside].ravel() - wanted @ v[inside].ravel()) <= 1e-13 * size).all()
    factor = factor_of(normal.icov[:, 0])
    z = np.full_like(v, 0.0)
    half = 0.5 * v
    solve_blocks(z, v, half, factor, margin)
    assert simd_substitute.size_of(v, half, factor, margin) == pytest.approx(np.sqrt((half * z).sum()), rel=1e-12)
    blocks[np.diag_indices_from(blocks)] += normal.weight.ravel() == 0
    back = blocks @ z[inside].ravel() - half[inside].ravel()
    size = np.abs(blocks) @ np.abs(z[inside].ravel())
    assert (np.abs(back) <= 1e-13 * size).all()
    z[inside] = 0
    np.testing.assert_array_equal(z, 0)


@njit
def solve_blocks(z, r, t, factor, margin):
    """z = M^-1 (r - t), M the fibres' diagonal blocks."""
    work = simd_substitute.work_of(factor)
    for g in range(len(factor)):
        simd_substitute.forward(work, r, t, factor, margin, g)
        simd_substitute.backward(z, work, factor, margin, g)


def factor_of(band):
    """The kernels' factors of the blocks of some fibres."""
    nfibre, nwave, nband = band.shape
    factor = np.full(simd_factor.factor_shape(nfibre, nwave, nband // 2), np.nan)
    simd_factor.factorise(factor, np.empty((nfibre, nwave + nband - 1)), band[..., :nband // 2 + 1])
    return factor


def test_a_pivot_that_is_not_positive_decouples_its_bin():
    """The preconditioner stays definite for any input; lanes and rows without a bin are the unit matrix."""
    band = np.zeros((2, 4, 3))
    band[0, :, 1] = [1.0, 1.0, 1.0, 0.0]
    band[0, 0, 2] = band[0, 1, 0] = 2.0
    band[1, :, 1] = 4.0
    band[1, 0, 2] = band[1, 1, 0] = 2.0
    factor = factor_of(band)[..., -2:, :]      # a factor has a half-band of at least 3
    np.testing.assert_array_equal(factor[0, :, :, 0], [[0, 1]] * 7)
    np.testing.assert_array_equal(factor[1, :, :, 0], [[0, 0.25], [0.5, 1 / 3], [0, 0.25], [0, 0.25], *[[0, 1]] * 3])
    np.testing.assert_array_equal(factor[..., 1:], np.array([0, 1])[:, None] * np.ones((2, 7, 2, 3)))


def test_couplings_left_out_come_back_through_the_residual(monkeypatch):
    """If far couplings were called faint but are not, the second round includes them."""
    normal = make_normal("gh2", False)
    assert solver.nearest(normal.icov, solver.FAINT, solver.SAMPLE) > 1
    monkeypatch.setattr(solver, "FAINT", np.inf)
    assert solver.nearest(normal.icov, solver.FAINT, solver.SAMPLE) == 1
    solution = solve(normal)
    assert solution.iterations > 0
    left = np.sqrt((((solution.x - solve_directly(normal)[0]) / errors(normal)) ** 2).sum())
    assert left <= 10 * max(solution.error, TOLERANCE)


@pytest.mark.parametrize("nwave", [1, 3, 4, 9, 40, 97])
@pytest.mark.parametrize(("nfibre", "nd"), [(1, 1), (2, 2), (2, 1), (3, 2), (7, 2), (8, 3), (9, 2), (10, 4), (17, 2)])
def test_any_number_of_fibres_and_bins(nfibre, nd, nwave):
    """Half-bands 0 to 5, strong couplings, next neighbours alone and farther ones, against the exact solution."""
    rng = np.random.default_rng(nfibre)
    for hw in range(6):
        normal = random_normal(rng, (nfibre, nd, nwave, 2 * hw + 1))
        solution, exact = solve(normal), solve_directly(normal)[0]
        assert solution.iterations > 0
        sigma = errors(normal)
        assert np.sqrt((((solution.x - exact) / sigma) ** 2).sum()) <= 10 * TOLERANCE
        check_strengths(normal, solution.strengths)


def check_strengths(normal, found):
    """The strengths recorded on the way to x are bitwise those measured separately, and agree with the matrix."""
    nfibre, nd, nwave, nband = normal.icov.shape
    alone = measure_strengths(normal.icov, Arena())
    np.testing.assert_array_equal(found.roots, alone.roots)
    diagonal, hw = normal.icov[:, 0, :, nband // 2], nband // 2
    np.testing.assert_array_equal(found.roots[:, hw:hw + nwave] > 0, diagonal > 0)
    np.testing.assert_allclose((found.roots[:, hw:hw + nwave]**2 * diagonal)[diagonal > 0], 1.0, rtol=1e-14)
    for d in range(1, min(nd, nfibre)):
        noted = found.correlations[d - 1, :nfibre - d]
        np.testing.assert_array_equal(noted, alone.correlations[d - 1, :nfibre - d])
        reached = np.lib.stride_tricks.sliding_window_view(found.roots, nband, axis=1)[d:]
        wanted = np.abs(normal.icov[:nfibre - d, d] * reached).max(axis=2) * found.roots[:nfibre - d, hw:hw + nwave]
        np.testing.assert_allclose(noted, wanted, rtol=1e-14)


def test_farthest_coupling_that_counts():
    """Relative to both diagonals, at the requested bins; next neighbours always count."""
    normal = random_normal(np.random.default_rng(1), (6, 4, 12, 5))
    normal.icov[:, 2:] *= 1e-9
    normal.icov[1, 3, 8, 4] = 1e-3
    assert [solver.nearest(normal.icov, 1e-6, step) for step in (1, 4, 3)] == [3, 3, 1]
    assert solver.nearest(normal.icov, 1e-12, 4) == 3
    normal.icov[1, 0, 8, 2] *= 1e8
    assert solver.nearest(normal.icov, 1e-6, 1) == 1


def random_normal(rng, shape) -> Normal:
    """Normal equations of this shape with couplings between fibres as strong as within; one bin without weight."""
    nfibre, nd, nwave, nband = shape
    icov = np.zeros(shape)
    entries = rng.normal(size=shape)
    for i, d, j, k in np.ndindex(shape):
        if i + d < nfibre and 0 <= j + k - nband // 2 < nwave and (d > 0 or k > nband // 2):
            icov[i, d, j, k] = entries[i, d, j, k]
            if d == 0:
                icov[i, 0, j + k - nband // 2, nband - 1 - k] = entries[i, d, j, k]
    dark = nfibre > 1 and nwave > 1
    weight = np.ones((nfibre, nwave))
    if dark:
        weight[-1, -1] = 0.0
        for d in range(nd):
            icov[nfibre - 1 - d, d][(np.arange(nwave)[:, None] + np.arange(nband) - nband // 2) == nwave - 1] = 0.0
        icov[-1, 0, -1] = 0.0
    icov[:, 0, :, nband // 2] = 3.0 * np.sqrt(nd * nband) * weight
    return Normal(icov, rng.normal(size=(nfibre, nwave)), weight, np.zeros((nfibre, nwave), dtype=bool))


@pytest.mark.parametrize(("family", "most"), [("v3", 7), ("gh2", 18)])
def test_every_other_fibre_eliminated_saves_steps(family, most):
    """With the fibres' own blocks as preconditioner it takes 11 with next neighbours, 30 with farther ones."""
    assert solve(make_normal(family, True)).iterations <= most


@pytest.mark.parametrize(("nfibre", "nd"), [(1, 1), (1, 3), (2, 4), (5, 3)])
def test_the_closest_fibres_have_the_largest_correlation(nfibre, nd):
    """Beyond the last fibre the strengths are undefined."""
    rng = np.random.default_rng(4)
    correlations, largest = rng.uniform(0, 0.1, (nd - 1, nfibre, 30)), 0.0
    for d in range(1, nd):
        for i in range(nfibre):
            if i + d < nfibre:
                largest = max(largest, max(correlations[d - 1, i]))
            else:
                correlations[d - 1, i] = 7.0
    assert closest(Strengths(np.ones((nfibre, 40)), correlations)) == largest
