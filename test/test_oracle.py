"""The oracle itself, against cases small enough for paper, and against other formulations."""
from dataclasses import replace
from itertools import product
from math import sqrt

import exact as exact_module
import numpy as np
import pytest
import scipy.integrate
import scipy.sparse
from exact import solve_exact
from numpy.polynomial import hermite_e
from scipy.special import erf

import oracle
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Image, SpecMask
from gpu_extract.errors import InputError

CONFIG = ExtractConfig(wavelength=(6062.0, 6086.0, 0.8))
PAD = 16


@pytest.fixture(scope="module", params=list(product(oracle.FAMILIES, (False, True))),
                ids=lambda p: f"{p[0]}{'-masked' * p[1]}")
def solved(request):
    """(case, bundle) of five fibres of each family, clean and masked."""
    family, masks = request.param
    psf = oracle.make_psf(family)
    case = oracle.make_case(psf, CONFIG, pad=PAD, masks=masks)
    design = oracle.design_matrix(psf, range(5), case.wave, psf.shape)
    return case, oracle.solve_bundle(design, case.image, 5, psferr=0.01)


# ---- two bins on three pixels, by hand --------------------------------------------------------------------

TWO = scipy.sparse.csc_matrix(np.array([[0.5, 0.0], [0.5, 0.5], [0.0, 0.5]]))
FIT = np.array([1.0, 3.0, 2.0])           # A x of x = (2, 4)
MISFIT = np.array([2.0, -1.0, 2.0])       # A^T W MISFIT = 0 for W = (4, 8, 4): leaves x alone


def two_bins(weights, psferr=0.0, ridge=0.0):
    image = Image((FIT + MISFIT)[None], np.array([weights], dtype=float))
    return oracle.solve_bundle(TWO, image, 1, psferr=psferr, ridge=ridge)


def test_two_bins_on_paper():
    """icov = (3 2; 2 3), rhs = (14, 16): x = (2, 4); eigenvalues 5 and 1 give Q, s = sqrt 5."""
    got, root = two_bins([4, 8, 4]), sqrt(5)
    np.testing.assert_allclose(got.x, [[2, 4]], rtol=1e-14)
    np.testing.assert_allclose(got.covariance[0], np.array([[3, -2], [-2, 3]]) / 5, rtol=1e-14)
    np.testing.assert_allclose(got.ivar, [[5, 5]], rtol=1e-14)
    np.testing.assert_allclose(got.flux, [[3 - 1 / root, 3 + 1 / root]], rtol=1e-14)
    expected = np.array([[root + 1, root - 1], [root - 1, root + 1]]) / (2 * root)
    np.testing.assert_allclose(got.resolution[0], expected, rtol=1e-14)
    np.testing.assert_allclose(got.weight, [[6, 6]])
    np.testing.assert_allclose(got.chi2pix, [[12, 12]], rtol=1e-13)
    np.testing.assert_allclose(got.model, FIT[None], rtol=1e-14)
    np.testing.assert_array_equal(got.pixmask_fraction, [[0, 0]])
    assert got.cond == pytest.approx(5, rel=1e-12)


def test_error_of_the_psf_on_paper():
    """psferr 0.5: variances 1/4 + 0.5^2, 1/8 + 1.5^2, 1/4 + 1^2 turn the squares (4, 1, 4) into chi^2."""
    chi2 = 4 / 0.5, 1 / 2.375, 4 / 1.25
    np.testing.assert_allclose(two_bins([4, 8, 4], psferr=0.5).chi2pix,
                               [[(chi2[0] + chi2[1]) / 2, (chi2[1] + chi2[2]) / 2]], rtol=1e-13)


def test_masked_pixel_on_paper():
    """Without the shared pixel the bins are independent: icov = 1, x = 2 p; half of their light is masked.

    The value of the masked pixel is never used.
    """
    image = Image(np.array([[3.0, np.nan, 4.0]]), np.array([[4.0, 0.0, 4.0]]))
    got = oracle.solve_bundle(TWO, image, 1, psferr=0.0)
    np.testing.assert_allclose(got.x, [[6, 8]], rtol=1e-14)
    np.testing.assert_allclose(got.resolution[0], np.eye(2), atol=1e-15)
    np.testing.assert_allclose(got.pixmask_fraction, [[0.5, 0.5]])
    np.testing.assert_allclose(got.chi2pix, [[0, 0]], atol=1e-25)


def test_bin_without_any_good_pixel():
    """The second bin has no good pixel: all its results are 0, and the first bin's are as if it were alone."""
    got = two_bins([4, 0, 0])
    np.testing.assert_allclose(got.flux, [[6, 0]], rtol=1e-14)
    np.testing.assert_allclose(got.ivar, [[1, 0]], rtol=1e-14)
    np.testing.assert_array_equal(got.resolution[0], [[1, 0], [0, 0]])
    np.testing.assert_array_equal(got.pixmask_fraction, [[0.5, 1]])
    np.testing.assert_array_equal(got.chi2pix[:, 1], 0)


def test_nothing_but_masked_pixels():
    got = two_bins([0, 0, 0])
    for name in ("x", "flux", "ivar", "chi2pix", "resolution", "model"):
        np.testing.assert_array_equal(getattr(got, name), 0)
    np.testing.assert_array_equal(got.pixmask_fraction, 1)


def test_ridge_on_paper():
    """Its square is added to the diagonal of every bin that has a good pixel: (3.04 2; 2 3.04), else (1.04 0; 0 0)."""
    got = two_bins([4, 8, 4], ridge=0.2)
    np.testing.assert_allclose(np.linalg.inv(got.covariance[0]), [[3.04, 2], [2, 3.04]], rtol=1e-13)
    np.testing.assert_allclose(two_bins([4, 0, 0], ridge=0.2).ivar, [[1.04, 0]], rtol=1e-14)


# ---- in multiple precision ---------------------------------------------------------------------------------

def test_two_bins_that_share_their_only_pixel():
    """icov = w/4 (1 1; 1 1) is singular: neither bin is known, their mean is p with ivar w/2, and R spreads evenly."""
    image = Image(np.array([[1.0, 3.0, 1.0]]), np.array([[0.0, 8.0, 0.0]]))
    got = solve_exact(TWO, image, 1)
    np.testing.assert_allclose(got.flux, [[3, 3]], rtol=1e-14)
    np.testing.assert_allclose(got.ivar, [[4, 4]], rtol=1e-14)
    np.testing.assert_allclose(got.resolution[0], np.full((2, 2), 0.5), rtol=1e-14)
    np.testing.assert_allclose(got.alone, [[2, 2]], rtol=1e-14)
    assert got.information.max() < 1e-35
    assert got.weak.all() and got.cond == 1


def test_two_fibres_that_share_their_only_pixel():
    """With the other one marginalised, nothing is left of either: ivar is what t adds."""
    image = Image(np.array([[1.0, 3.0, 1.0]]), np.array([[0.0, 8.0, 0.0]]))
    got = solve_exact(TWO, image, 2)
    assert got.ivar.max() < 1e-35
    assert got.weak.all()


def test_a_pair_that_cannot_be_told_apart_leaves_others_alone():
    """Bins 1 and 2 have one pixel in common and nothing else; bin 0 and its neighbour 3 are as if they were alone."""
    a = scipy.sparse.csc_matrix(np.array([[0.5, 0, 0, 0], [0.5, 0, 0, 0.5], [0, 0.25, 0.75, 0], [0, 0, 0, 0.5]]))
    image = Image(np.array([[3.0, 2.0, 7.0, 4.0]]), np.array([[4.0, 8.0, 5.0, 4.0]]))
    got = solve_exact(a, image, 1)
    two = solve_exact(TWO, Image(image.pix[:, [0, 1, 3]], image.ivar[:, [0, 1, 3]]), 1)
    np.testing.assert_array_equal(got.weak, [[False, True, True, False]])
    for name in ("flux", "ivar", "information"):
        np.testing.assert_allclose(getattr(got, name)[:, [0, 3]], getattr(two, name), rtol=1e-14)
    assert got.cond == pytest.approx(two.cond, rel=1e-14)


@pytest.fixture(scope="module")
def small():
    """(A, case) of two fibres of 18 bins."""
    psf = oracle.make_psf("v3", 2, (130, 36))
    config = replace(CONFIG, wavelength=(6010.0, 6024.0, 0.8))
    case = oracle.make_case(psf, config, pad=0)
    return oracle.design_matrix(psf, range(2), case.wave, psf.shape), case


@pytest.mark.parametrize("dark", [0.0, 0.5, 0.8])
def test_digits_change_nothing_where_double_precision_has_enough(small, dark):
    """100 eps cond, also with 80 % of the pixels masked: cond 200 to 1e5, bins with 1e3 times less information than
    others."""
    design, case = small
    masked = np.random.default_rng(5).random(case.image.shape) < dark
    image = Image(case.image.pix, np.where(masked, 0, case.image.ivar))
    exact = solve_exact(design, image, 2)
    double = oracle.solve_bundle(design, image, 2, psferr=0.0)
    assert not exact.weak.any()
    assert double.cond == pytest.approx(exact.cond, rel=2e-3)
    bound = 100 * np.finfo(float).eps * exact.cond
    assert (np.abs(double.flux - exact.flux) * np.sqrt(exact.ivar)).max() < 100 * bound     # up to 100 sigma high
    np.testing.assert_allclose(double.ivar, exact.ivar, rtol=bound)
    np.testing.assert_allclose(double.resolution, exact.resolution, rtol=0, atol=bound)


@pytest.mark.parametrize("kind", ["one pixel", "95 %"])
def test_neither_t_nor_bits_matter(small, monkeypatch, kind):
    """For bins that are distinguished from others, to 1e-9 sigma; in other bins t matters: 1e3.

    Seen: 1e-11, from a bin with light on one pixel out of 500.
    """
    design, case = small
    ny, nx = case.image.shape
    keep = np.random.default_rng(2).random((ny, nx)) > 0.95
    if kind == "one pixel":
        keep = np.ones((ny, nx), dtype=bool)
        keep[5:24] = False
        keep[14, 11] = True
    image = Image(case.image.pix, np.where(keep, case.image.ivar, 0))
    got = solve_exact(design, image, 2)
    monkeypatch.setattr(exact_module, "VANISHING", -160)
    monkeypatch.setattr(exact_module, "BITS", 700)
    other = solve_exact(design, image, 2)
    known = ~got.weak & (got.alone > 0)
    assert got.weak.sum() > 5 and known.any()
    np.testing.assert_array_equal(other.weak, got.weak)
    assert (np.abs(other.flux - got.flux) * np.sqrt(got.ivar))[known].max() < 1e-9
    np.testing.assert_allclose(other.ivar[known], got.ivar[known], rtol=1e-9)
    np.testing.assert_allclose(other.resolution[known], got.resolution[known], rtol=0, atol=1e-9)


def test_bins_in_the_wings_have_the_accuracy_of_others():
    """Bins with 1e-5 of the others' light: ivar, 1e-10 of the others', to 1e-10; from eigenvectors of C, to 1e-6."""
    light = np.array([1.0, 1e-5, 1.0, 1e-5])
    a = np.diag(light) @ (np.eye(4) + 0.3 * np.eye(4, k=1) + 0.3 * np.eye(4, k=-1))
    image = Image(np.ones((1, 4)), np.ones((1, 4)))
    design = scipy.sparse.csc_matrix(a.T)
    exact, double = solve_exact(design, image, 1), oracle.solve_bundle(design, image, 1, psferr=0.0)
    assert exact.ivar.min() < 1e-9 * exact.ivar.max()
    np.testing.assert_allclose(double.ivar, exact.ivar, rtol=1e-10)


# ---- spots ------------------------------------------------------------------------------------------------

def closed_integrals(degree, sigma, offset):
    """The closed form: error function and He_{k-1} at the pixels' edges."""
    u = (offset[:, None] + np.array([-0.5, 0.5])) / sigma
    rows = [np.diff(erf(u / sqrt(2)) / 2)[:, 0]]
    for k in range(1, degree + 1):
        he = hermite_e.hermeval(u, np.eye(k)[k - 1])
        rows.append(-np.diff(he * np.exp(-(u**2) / 2))[:, 0] / sqrt(2 * np.pi))
    return np.array(rows)


def value(series, fibre, wave):
    return float(oracle.evaluate(series, fibre, wave))


def closed_spot(psf, fibre, wave):
    """The spot from closed integrals, pixel by pixel where the formula is for pixels."""
    y, x = value(psf.y, fibre, wave), value(psf.x, fibre, wave)
    dy = np.floor(y - psf.offset[0]) + np.arange(psf.stamp[0]) - y
    dx = np.floor(x - psf.offset[1]) + np.arange(psf.stamp[1]) - x
    total = np.zeros(psf.stamp)
    for core in psf.cores:
        sx, sy = value(core.sigma_x, fibre, wave), value(core.sigma_y, fibre, wave)
        gh = oracle.evaluate(core.gh, fibre, wave)
        one = closed_integrals(len(gh) - 1, sy, dy).T @ gh @ closed_integrals(gh.shape[1] - 1, sx, dx)
        if core.nsig is not None:
            one *= np.hypot(dx / sx, dy[:, None] / sy) < value(core.nsig, fibre, wave)
        total += one
    if psf.tail is not None:
        names = "amp", "core", "xscale", "yscale", "index"
        t = {k: value(getattr(psf.tail, k), fibre, wave) for k in names}
        for j, i in np.ndindex(*psf.stamp):
            r2 = (dx[i] * t["xscale"]) ** 2 + (dy[j] * t["yscale"]) ** 2
            total[j, i] += t["amp"] * r2 * (t["core"] ** 2 + r2) ** (-1 - t["index"] / 2)
    total = np.maximum(total, 0)
    return total / total.sum()


@pytest.mark.parametrize("family", oracle.FAMILIES)
def test_spot_is_the_closed_form(family):
    """Quadrature with 40 nodes is exact to rounding: 1e-14 of the spot's sum."""
    psf = oracle.make_psf(family)
    for fibre, wave in ((0, 6010.0), (2, 6077.7), (4, 6190.0)):
        got = oracle.spot(psf, fibre, wave)
        np.testing.assert_allclose(got.pixels, closed_spot(psf, fibre, wave), rtol=0, atol=1e-14)
        assert got.pixels.sum() == pytest.approx(1, abs=1e-14)
        assert got.pixels.min() >= 0


def test_spot_is_an_integral_over_the_pixel():
    """One pixel of a two-dimensional density with cross terms, by adaptive quadrature in both directions."""
    psf = oracle.make_psf("v3")
    fibre, wave = 1, 6101.0
    core = psf.cores[0]
    x, y, sx, sy = (value(s, fibre, wave) for s in (psf.x, psf.y, core.sigma_x, core.sigma_y))
    gh = oracle.evaluate(core.gh, fibre, wave)

    def density(v, u):
        a, b = (u - x) / sx, (v - y) / sy
        he = hermite_e.hermeval2d(b, a, gh)
        return he * np.exp(-(a * a + b * b) / 2) / (2 * np.pi * sx * sy)

    got = oracle.spot(psf, fibre, wave)
    j, i = np.unravel_index(np.argmax(got.pixels), got.pixels.shape)
    ratio = []
    for dj, di in ((0, 0), (1, 1), (-1, 2)):
        v, u = got.y0 + j + dj, got.x0 + i + di
        light, _ = scipy.integrate.dblquad(density, u - 0.5, u + 0.5, v - 0.5, v + 0.5, epsabs=1e-12)
        ratio.append(got.pixels[j + dj, i + di] / light)
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-9)      # one factor: the stamp's normalisation,
    assert ratio[0] == pytest.approx(1, abs=0.05)               # near 1: little is clipped or cut off


def test_spot_starts_where_the_format_says():
    """GAUSS-HERMITE: first pixel floor(x - HSIZEX + 0.5); HSIZEX 8, HSIZEY 5 for these stamps."""
    psf = oracle.make_psf("v3")
    for wave in np.linspace(6060, 6062, 9):
        x, y = value(psf.x, 3, wave), value(psf.y, 3, wave)
        got = oracle.spot(psf, 3, wave)
        assert (got.y0, got.x0) == (np.floor(y - 5 + 0.5), np.floor(x - 8 + 0.5))


def test_design_matrix_cuts_at_the_edges_of_the_ccd():
    """A column holds the part of the spot on the CCD and nothing that wrapped around."""
    psf = oracle.make_psf("v3", nfibre=1)
    wave = np.array([6012.0, 6013.0, 6077.0])
    a = oracle.design_matrix(psf, range(1), wave, psf.shape).toarray().reshape(*psf.shape, 3)
    for k, w in enumerate(wave):
        one = oracle.spot(psf, 0, w)
        full = np.zeros((psf.shape[0] + 60, psf.shape[1] + 60))
        full[30 + one.y0: 30 + one.y0 + psf.stamp[0], 30 + one.x0: 30 + one.x0 + psf.stamp[1]] = one.pixels
        np.testing.assert_array_equal(a[..., k], full[30:-30, 30:-30])
    assert a[..., 0].sum() < 0.9 < 0.9999 < a[..., 2].sum()


# ---- the algebra ------------------------------------------------------------------------------------------

def test_rows_of_the_resolution_sum_to_one(solved):
    _, got = solved
    sums = got.resolution.sum(axis=-1)
    np.testing.assert_allclose(sums[got.ivar > 0], 1, atol=1e-12)
    np.testing.assert_array_equal(sums[got.ivar == 0], 0)


def test_errors_of_the_flux_are_uncorrelated(solved):
    """R C R^T = diag(1/ivar): B&S eq. 14; rounding of C grows with its condition number."""
    _, got = solved
    for r, c, ivar in zip(got.resolution, got.covariance, got.ivar, strict=True):
        seen = ivar > 0
        unit = (np.sqrt(ivar) * (r @ c @ r.T).T * np.sqrt(ivar)[:, None])[np.ix_(seen, seen)]
        np.testing.assert_allclose(unit, np.eye(seen.sum()), atol=100 * np.finfo(float).eps * got.cond)


def test_blocks_of_the_inverse_are_schur_complements(solved):
    """C_ii^-1 = icov_ii - icov_io icov_oo^-1 icov_oi, with icov written as a sum over pixels."""
    case, got = solved
    n = len(case.wave)
    a = oracle.design_matrix(case.psf, range(5), case.wave, case.psf.shape).toarray()
    icov = np.einsum("pa,p,pb->ab", a, case.image.ivar.ravel(), a, optimize=True)
    seen = got.weight.ravel() > 0
    mine = np.zeros(5 * n, dtype=bool)
    mine[2 * n: 3 * n] = True
    inside, others = np.flatnonzero(mine & seen), np.flatnonzero(~mine & seen)
    schur = icov[np.ix_(inside, inside)] - icov[np.ix_(inside, others)] @ np.linalg.solve(
        icov[np.ix_(others, others)], icov[np.ix_(others, inside)])
    c = got.covariance[2][np.ix_(inside - 2 * n, inside - 2 * n)]
    np.testing.assert_allclose(c @ schur, np.eye(len(inside)), atol=100 * np.finfo(float).eps * got.cond)


@pytest.mark.parametrize("family", oracle.FAMILIES)
def test_noiseless_image_gives_the_truth_back(family):
    """x is the truth, and flux is R times it, if all light of the image was put in by the same bins."""
    psf = oracle.make_psf(family)
    case = oracle.make_case(psf, CONFIG, pad=PAD, noise=False)
    design = oracle.design_matrix(psf, range(5), case.wave, psf.shape)
    got = oracle.solve_bundle(design, case.image, 5, psferr=0.01)
    np.testing.assert_allclose(got.x, case.photons, rtol=1e-9)
    np.testing.assert_allclose(got.flux, np.einsum("ijk,ik->ij", got.resolution, case.photons), rtol=1e-9)
    np.testing.assert_allclose(got.chi2pix, 0, atol=1e-15)


# ---- frames -----------------------------------------------------------------------------------------------

def test_frame_is_the_wanted_part_in_photons_per_angstrom(solved):
    case, got = solved
    frame = oracle.oracle_extract(case.image, case.psf, CONFIG, pad=PAD)
    np.testing.assert_allclose(frame.wave, np.arange(6062.0, 6086.1, 0.8), rtol=1e-14)
    wanted = slice(PAD, PAD + len(frame.wave))
    np.testing.assert_allclose(frame.flux, got.flux[:, wanted] / 0.8, rtol=1e-11)
    np.testing.assert_allclose(frame.ivar, got.ivar[:, wanted] * 0.64, rtol=1e-11)
    nodata = (frame.mask & SpecMask.NODATA) > 0
    np.testing.assert_array_equal(nodata, frame.ivar == 0)
    np.testing.assert_array_equal(nodata, frame.pixmask_fraction == 1)
    assert frame.ndiag == case.psf.stamp[0] // 2
    for r, full in zip(frame.resolution, got.resolution[:, wanted, wanted], strict=True):
        offsets = np.arange(frame.ndiag, -frame.ndiag - 1, -1)
        n = len(frame.wave)
        near = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= frame.ndiag
        np.testing.assert_array_equal(scipy.sparse.dia_matrix((r, offsets), shape=(n, n)).toarray(),
                                      np.where(near, full, 0))


def test_padding_converges():
    """The error left with 10, 16 and 24 extra bins falls by more than ten each time (METHOD: 3e-2 to 5e-4 to 1e-5)."""
    psf = oracle.make_psf("v3", nfibre=2)
    case = oracle.make_case(psf, CONFIG, pad=34)
    frames = [oracle.oracle_extract(case.image, psf, CONFIG, pad=pad) for pad in (10, 16, 24, 34)]
    left = [np.abs(oracle.sigma_difference(f, frames[-1])).max() for f in frames[:-1]]
    assert left[0] > 10 * left[1] > 100 * left[2]
    assert left[2] < 1e-3


def test_fibre_range_is_a_cut_of_the_full_frame():
    """Two bundles of three: fibres 1 to 3 are bitwise equal to those in the frame of all six."""
    psf = oracle.make_psf("v3", nfibre=6, bundle=np.array([7, 7, 7, 8, 8, 8]))
    config = ExtractConfig(wavelength=(6070.0, 6080.0, 0.8))
    case = oracle.make_case(psf, config, pad=8, masks=True)
    full = oracle.oracle_extract(case.image, psf, config, pad=8)
    part = oracle.oracle_extract(case.image, psf, replace(config, specmin=1, nspec=3), pad=8)
    np.testing.assert_array_equal(part.fibres, [1, 2, 3])
    for name in ("flux", "ivar", "mask", "resolution", "chi2pix", "pixmask_fraction"):
        np.testing.assert_array_equal(getattr(part, name), getattr(full, name)[1:4])


def test_bundles_come_from_the_psf_else_from_the_size():
    psf = oracle.make_psf("v3", nfibre=7)
    assert oracle.bundle_ranges(psf, 3) == [range(3), range(3, 6), range(6, 7)]
    numbered = replace(psf, bundle=np.array([4, 4, 5, 5, 5, 5, 9]))
    assert oracle.bundle_ranges(numbered, 3) == [range(2), range(2, 6), range(6, 7)]


def test_grid_stops_at_the_psf():
    psf = oracle.make_psf("v3")
    wave, wanted = oracle.wavelength_grid(ExtractConfig(wavelength=(6002.0, 6010.0, 1.0)), psf, 5)
    np.testing.assert_allclose(wave, np.arange(6000, 6016))
    assert wanted == slice(2, 11)
    with pytest.raises(InputError, match="beyond the PSF"):
        oracle.wavelength_grid(ExtractConfig(wavelength=(5999.0, 6010.0, 1.0)), psf, 5)


def test_barycentric_factor_moves_the_grid_only():
    psf = oracle.make_psf("v3")
    config = ExtractConfig(wavelength=(6062.0, 6070.0, 0.8), wave_factor=1.0001)
    wave, wanted = oracle.wavelength_grid(config, psf, 3)
    np.testing.assert_allclose(wave[wanted] * 1.0001, np.arange(6062.0, 6070.1, 0.8), rtol=1e-15)
    image = Image(np.ones(psf.shape), np.ones(psf.shape))
    stored = oracle.oracle_extract(image, psf, replace(config, nspec=1, bundlesize=1), pad=3).wave
    np.testing.assert_allclose(stored, np.arange(6062.0, 6070.1, 0.8), rtol=1e-15)


def test_too_many_bins_are_refused():
    with pytest.raises(InputError, match="at most"):
        oracle.solve_bundle(scipy.sparse.csc_matrix((4, 9000)), Image(np.ones((2, 2)), np.ones((2, 2))), 9,
                            psferr=0.0)


def test_mask_bits_one_by_one():
    """Five fibres: a bin stands out only if it does so both among the fibres and along its own."""
    chi2, fraction, ivar = np.ones((5, 8)), np.zeros((5, 8)), np.ones((5, 8))
    chi2[0, 0] = 6                       # 6 x both medians
    chi2[1] = 6                          # a fibre that fits badly everywhere
    chi2[:, 2] = 6                       # a wavelength that fits badly everywhere
    fraction[2, 3], fraction[3, 3] = 0.51, 1
    fraction[4, 3] = 0.5
    ivar[3, 3] = 0
    chi2[0, 3:6], fraction[0, 3:6] = 50, 0.6     # masked bins: flagged, but not part of the medians
    mask = oracle.mask_bits(chi2, fraction, ivar)
    expected = np.zeros((5, 8), dtype=np.uint32)
    expected[0, 0], expected[2, 3], expected[3, 3] = 128, 1, 1 + 2 + 256
    expected[0, 3:6] = 1 + 128
    np.testing.assert_array_equal(mask, expected)


def test_mask_bits_of_a_small_bundle():
    """With fewer than five fibres medians mean little: the rule is chi2pix > 100."""
    chi2 = np.array([[99.0, 101.0, 1.0]])
    np.testing.assert_array_equal(oracle.mask_bits(chi2, 0 * chi2, 1 + 0 * chi2), [[0, 128, 0]])
