"""The banded normal equations against A^T W A with an explicit A; the same bits for any division of work."""
from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest

import oracle
from extraction import dense_normal, moved
from gpu_extract.data import LANE, Image, Recipe
from gpu_extract.normal import (
    FAINT_LIGHT,
    LEAST_LIGHT,
    add_tile,
    empty_sums,
    faint,
    give_up,
    half_bands,
    make_cut,
    place_blocks,
    simd_bins,
)
from gpu_extract.normal.simd_rims import FAINT
from gpu_extract.plan import halo
from gpu_extract.spots import centres, corners, make_spots, recipe
from gpu_extract.spots.simd_spots import Ingredients

WAVE = np.arange(6050.0, 6112.8, 0.8)       # 79 bins: the last block is not full


def make_image(shape, *, masks=True, seed=3):
    """Noise of any level; with masks a column, a block and single pixels have ivar 0."""
    rng = np.random.default_rng(seed)
    ivar = rng.uniform(0.01, 0.2, shape)
    if masks:
        ivar[:, 17] = 0
        ivar[60:100, 30:44] = 0
        ivar[rng.uniform(size=shape) < 0.05] = 0
    return Image(np.where(ivar > 0, rng.normal(50, 20, shape), np.nan), ivar)


def locate(psf, image, fibres):
    """(cut-out, half-bands) of a bundle of these fibres."""
    y0, x0 = corners(psf, centres(psf, fibres, WAVE))
    return make_cut(image, y0, x0, psf.stamp), half_bands(y0, x0, psf.stamp, image.shape)


def make_sums(psf, image, fibres, length, *, blocks=None):
    """The sums of a bundle in tiles of `length` bins, each from its own recipe; with blocks, all from one."""
    cut, bands = locate(psf, image, fibres)
    sums = empty_sums(fibres[1] - fibres[0], len(WAVE), bands)
    whole = recipe(psf, fibres, WAVE)
    for first in range(0, len(WAVE), length):
        last = min(first + length, len(WAVE))
        if blocks is None:
            start, stop = halo(first, last, bands[1], len(WAVE))
            own = recipe(psf, fibres, WAVE[start:stop])
            add_tile(sums, own, place_blocks(own, cut, keep=False), cut, (first, last, start))
        else:
            add_tile(sums, whole, blocks, cut, (first, last, 0))
    return sums


def make_blocks(psf, image, fibres):
    """Memory for all spots of a bundle."""
    return place_blocks(recipe(psf, fibres, WAVE), locate(psf, image, fibres)[0])


# name: PSF, CCD moved by (y, x): the last three extend off the left, the lower right and all edges
CASES = {
    "v3": ("v3", (0, 0)), "tails": ("tails", (0, 0)), "gh2": ("gh2", (0, 0)),
    "left": ("v3", (0, -23.5)), "corner": ("tails", (-70, 20)), "small": ("gh2", (-62, -16)),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    """(PSF, image, fibres)"""
    family, (dy, dx) = CASES[request.param]
    shape = (50, 24) if request.param == "small" else (210, 56)
    psf = moved(oracle.make_psf(family, 5, first_row=-20), dy, dx, shape)
    return psf, make_image((210, 56) if shape[0] > 50 else shape), (1, 5)


def test_normal_equations_agree_with_explicit_matrices(case):
    """The oracle's A by quadrature; 1e-13 of the diagonal elements, because spots differ by 1e-14 of their sum."""
    psf, image, fibres = case
    design = oracle.design_matrix(psf, range(*fibres), WAVE, image.shape)
    w = image.ivar.ravel()
    wanted = (design.T @ design.multiply(w[:, None])).toarray()
    normal = give_up(make_sums(psf, image, fibres, 80), 0.0)
    got = dense_normal(normal)
    size = np.sqrt(np.diag(wanted).max())
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-13 * size**2)
    light = np.where(w > 0, np.nan_to_num(image.pix.ravel()), 0) * w
    np.testing.assert_allclose(normal.rhs.ravel(), design.T @ light, rtol=0, atol=1e-13 * np.abs(light).max() * 400)
    np.testing.assert_allclose(normal.weight.ravel(), design.T @ w, rtol=0, atol=1e-13 * w.max() * 400)
    np.testing.assert_array_equal(normal.weight == 0, (design.T @ w).reshape(4, -1) == 0)


def test_the_bands_hold_all_couplings(case):
    """half_bands is the smallest rectangle that holds every pair of overlapping stamps, both on the CCD."""
    psf, image, fibres = case
    y0, x0 = corners(psf, centres(psf, fibres, WAVE))
    most = overlaps(y0, x0, psf.stamp, image.shape)
    assert half_bands(y0, x0, psf.stamp, image.shape) == most
    down = half_bands(-y0 + image.shape[0] - psf.stamp[0], x0, psf.stamp, image.shape)
    assert down == most, "traces whose y falls along wavelength"


@pytest.mark.parametrize("seed", range(60))
def test_the_bands_of_fibres_that_lie_anyhow(seed):
    """Rows of neighbours far apart at the same wavelength, on either side; tilted traces; fibres off the CCD.

    From 40 on traces are so long that they are first considered in several stretches.
    """
    random = np.random.default_rng(seed)
    long = 1 if seed < 40 else 4
    nfibre, nwave = random.integers(2, 7), random.integers(1, 60 * long)
    along, stamp = np.arange(nwave), (int(random.integers(3, 14)), int(random.integers(3, 18)))
    slope = random.uniform(0.3, 3) * random.choice([-1, 1])
    y0 = np.floor(slope * along + random.uniform(-25, 25) * np.arange(nfibre)[:, None] + 40).astype(int)
    x0 = np.floor(random.uniform(3, 15) * np.arange(nfibre)[:, None] + random.uniform(-0.3, 0.3) * along).astype(int)
    if seed % 4 == 0:
        y0[random.integers(nfibre)] = -10**6
    shape = int(random.integers(20, 120 * long)), int(random.integers(20, 80))
    assert half_bands(y0, x0, stamp, shape) == overlaps(y0, x0, stamp, shape)


@pytest.mark.parametrize(("x", "reach"), [
    ((0, -10**6, 12), 2), ((0, -10**6, -10**6, 12), 3), ((0, 60, 12), 2), ((0, -10**6, 12, -10**6, 24), 2),
    ((-10**6, 0, 30), 0),
])
def test_the_bands_reach_across_fibres_that_are_elsewhere(x, reach):
    """Spots of 20 x 20 pixels a row apart; between fibres 12 columns apart is one that is off the CCD, or far away."""
    y0 = np.broadcast_to(np.arange(50), (len(x), 50))
    x0 = np.broadcast_to(np.array(x)[:, None], y0.shape)
    assert half_bands(y0, x0, (20, 20), (100, 100)) == (reach, 19, 19) == overlaps(y0, x0, (20, 20), (100, 100))


def overlaps(y0, x0, stamp, shape):
    """The largest distances (fibres, bins) of any two overlapping stamps, both on the CCD, and of two of one fibre."""
    on = (y0 > -stamp[0]) & (y0 < shape[0]) & (x0 > -stamp[1]) & (x0 < shape[1])
    most = (0, 0, 0)
    for one, other in combinations_with_replacement(range(len(y0)), 2):
        touch = ((np.abs(y0[one, :, None] - y0[other]) < stamp[0]) & (np.abs(x0[one, :, None] - x0[other]) < stamp[1])
                 & on[one, :, None] & on[other])
        j, k = np.nonzero(touch)
        if len(j):
            bins = int(np.abs(j - k).max())
            most = max(most[0], other - one), max(most[1], bins), max(most[2], bins if one == other else 0)
    return most


@pytest.mark.parametrize("core", [1.0, 1e-3, 1e-5, 1e-7, 1e-9, 0.0])
def test_couplings_that_are_left_out(core):
    """Fibres whose spots meet only in the stamps' outermost columns: FAINT bounds what is left out.

    core: ivar of every other fibre's core, relative to its wings'. If it is masked, its bins have only wings, and these
    couplings count.
    """
    psf, shape = oracle.make_psf("v3", 5, first_row=-20), (210, 56)
    image = make_image(shape, masks=False)
    if core < 1:
        for x in centres(psf, (0, 5), WAVE)[1, [0, 2, 4]].mean(axis=1).astype(int):
            image.ivar[:, max(x - 4, 0):x + 6] *= core
    design = oracle.design_matrix(psf, range(5), WAVE, shape)
    wanted = (design.T @ design.multiply(image.ivar.ravel()[:, None])).toarray()
    sums = make_sums(psf, image, (0, 5), 80)
    got = dense_normal(give_up(sums, 0.0))
    scale = np.sqrt(np.diag(wanted))
    scale[scale == 0] = 1
    error, size = (np.abs(matrix) / np.outer(scale, scale) for matrix in (got - wanted, wanted))
    assert error[got == 0].max() < FAINT
    assert error.max() < 1e-12
    farther, next_ones = sums.icov[:3, 2], np.count_nonzero(sums.icov[:3, 1])
    if core == 1:
        assert np.count_nonzero(farther) < 0.1 * next_ones
    elif core == 0:
        assert np.count_nonzero(farther) > 0.5 * next_ones
        assert size[:len(WAVE), 2 * len(WAVE):3 * len(WAVE)].max() > 100 * FAINT


def test_no_spot_on_the_ccd():
    psf = moved(oracle.make_psf("v3", 5), 5000.0, 0.0, (210, 56))
    y0, x0 = corners(psf, centres(psf, (0, 5), WAVE))
    assert half_bands(y0, x0, psf.stamp, (210, 56)) == (0, 0, 0)
    sums = make_sums(psf, make_image((210, 56)), (0, 5), 80)
    for array in (sums.icov, sums.rhs, sums.weight):
        np.testing.assert_array_equal(array, 0)


@pytest.mark.parametrize("length", [1, 7, 24])
def test_a_tile_touches_nothing_beside_its_own_bins(case, length):
    """Another thread may be filling the memory beside: not even 0 is added, which would show in the sign of -0."""
    psf, image, fibres = case
    cut, bands = locate(psf, image, fibres)
    whole = recipe(psf, fibres, WAVE)
    for first in range(0, len(WAVE), length):
        last = min(first + length, len(WAVE))
        sums = empty_sums(fibres[1] - fibres[0], len(WAVE), bands)
        sums.icov[:] = -0.0
        add_tile(sums, whole, make_blocks(*case), cut, (first, last, 0))
        beside = np.delete(sums.icov, np.s_[first:last], axis=2)
        assert (np.signbit(beside) & (beside == 0)).all()


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("length", [1, 7, 64, 78])
def test_tiles_change_no_bit(case, length, apart):
    whole = make_sums(*case, 80)
    part = make_sums(*case, length, blocks=None if apart else make_blocks(*case))
    for name in ("icov", "rhs", "weight"):
        np.testing.assert_array_equal(getattr(part, name), getattr(whole, name))


@pytest.mark.parametrize("length", [7, 33, 80])
def test_the_spots_that_are_kept(case, length):
    """In single precision, each at its place in its block's frame, with its scale to the sum 1, and 0 beside it."""
    psf, image, fibres = case
    cut, _ = locate(psf, image, fibres)
    kept = make_blocks(*case)
    make_sums(*case, length, blocks=kept)
    spots = make_spots(psf, fibres, WAVE)
    ny, nx = psf.stamp
    assert kept.stamps.shape[1] == (kept.corners[3].max() + 1) // 2 * 2
    row = np.clip(spots.y0 - cut.y0, 0, cut.root.shape[0] - ny)
    column = np.clip(spots.x0 - cut.x0, 0, cut.root.shape[1] - LANE - nx)
    for i in range(4):
        for j in range(0, len(WAVE), 3):
            top, left, height, _ = kept.corners[:, i, j // LANE]
            begin = kept.begins[i, j // LANE]
            frame = kept.stamps[begin:begin + height, :, j % LANE].copy()
            own = np.s_[row[i, j] - top:row[i, j] - top + ny, column[i, j] - left:column[i, j] - left + nx]
            scaled = kept.scale[i, j // LANE, j % LANE] * frame[own]
            np.testing.assert_allclose(scaled, spots.stamps[i, j], rtol=1e-7, atol=1e-15)
            frame[own] = 0
            np.testing.assert_array_equal(frame, 0)
    assert not kept.scale[:, -1, len(WAVE) % LANE:].any()


def test_symmetric_to_the_last_bit(case):
    sums = make_sums(*case, 33)
    own, hw = sums.icov[:, 0], sums.icov.shape[3] // 2
    for k in range(1, hw + 1):
        np.testing.assert_array_equal(own[:, :-k, hw + k], own[:, k:, hw - k])


def test_fibres_beside_change_no_bit(case):
    """A fibre's own block, and its coupling, whichever other fibres are in the bundle (on the common bands)."""
    psf, image, _ = case
    whole, pair = make_sums(psf, image, (1, 5), 80), make_sums(psf, image, (2, 4), 80)
    np.testing.assert_array_equal(pair.rhs, whole.rhs[1:3])
    wide, narrow = whole.icov.shape[3] // 2, pair.icov.shape[3] // 2
    common = min(wide, narrow)
    for d in range(min(2, pair.icov.shape[1])):
        np.testing.assert_array_equal(pair.icov[:2 - d, d, :, narrow - common:narrow + common + 1],
                                      whole.icov[1:3 - d, d, :, wide - common:wide + common + 1])


def test_what_masked_pixels_hold_is_never_looked_at(case):
    psf, image, fibres = case
    clean = make_sums(psf, image, fibres, 80)
    for value in (np.inf, -np.inf, 1e30, 0.0):
        pix = np.where(image.ivar > 0, image.pix, value)
        other = make_sums(psf, Image(pix, image.ivar), fibres, 80)
        np.testing.assert_array_equal(other.rhs, clean.rhs)


def test_single_precision_images_give_the_bits_of_double():
    """For values that both types hold: nothing is computed in single precision."""
    psf, image = oracle.make_psf("v3"), make_image((210, 56))
    pix, ivar = image.pix.astype(np.float32), image.ivar.astype(np.float32)
    single = make_sums(psf, Image(pix, ivar), (0, 5), 80)
    double = make_sums(psf, Image(pix.astype(float), ivar.astype(float)), (0, 5), 80)
    np.testing.assert_array_equal(single.icov, double.icov)
    np.testing.assert_array_equal(single.rhs, double.rhs)


@pytest.mark.parametrize("y0", [20, -4, 180])
@pytest.mark.parametrize("x0", [8, -11, 31])
def test_cut_out_is_what_spots_touch_and_forgets_masked_pixels(y0, x0):
    """sqrt(ivar) and sqrt(ivar) pix there, zeros off the CCD and in the columns after it, which kernels read."""
    image, far = make_image((210, 56)), 30
    cut = make_cut(image, np.array([[y0, y0 + 20]]), np.array([[x0 + 4, x0]]), (11, 20))
    assert (cut.y0, cut.x0, len(cut.root)) == (y0, x0, 31)
    assert cut.root.shape == cut.light.shape and cut.root.shape[1] >= 24 + LANE
    ivar = np.pad(image.ivar, far)[far + y0:far + y0 + 31, far + x0:far + x0 + 24]
    pix = np.pad(np.where(image.ivar > 0, image.pix, 0), far)[far + y0:far + y0 + 31, far + x0:far + x0 + 24]
    np.testing.assert_array_equal(cut.root[:, :24], np.sqrt(ivar))
    np.testing.assert_array_equal(cut.light[:, :24], np.sqrt(ivar) * pix)
    assert not cut.root[:, 24:].any() and not cut.light[:, 24:].any()


def test_spots_off_the_cut_out_count_nothing():
    """However far off: they are placed just beside the CCD, entirely within the array."""
    image = Image(np.ones((30, 30)), np.ones((30, 30)))
    far = 10**6
    y0, x0 = (np.repeat([[-far, -5, 12, 28, far]], LANE, axis=1), np.repeat([[-far, -8, 12, 28, far]], LANE, axis=1))
    cut = make_cut(image, y0, x0, (11, 20))
    spots = Recipe(x0, y0, Ingredients(None, None, None, (11, 20, False)))
    row, column, height, width = place_blocks(spots, cut, keep=False).corners
    assert (height == 11).all() and (width == 20).all()
    assert (row >= 0).all() and (row + 11 <= cut.root.shape[0]).all()
    assert (column >= 0).all() and (column + 20 <= cut.root.shape[1]).all()
    seen = [cut.root[r:r + 11, c:c + 20].sum() for r, c in zip(row[0], column[0], strict=True)]
    assert seen == [0, 6 * 12, 11 * 18, 2 * 2, 0]


# ---- bands narrower than a vector of four: nothing is written beside the array --------------------------------------

def guarded(sums):
    """The same sums inside a longer array of negative zeros, which lose their sign if anything is added to them."""
    icov = np.full(sums.icov.size + 256, -0.0)
    inside = icov[128:-128].reshape(sums.icov.shape)
    inside[:] = 0.0
    return replace(sums, icov=inside), (icov[:128], icov[-128:])


def check_within(psf, wave, image):
    """Against the explicit matrix, with guards around icov; returns the half-bands."""
    y0, x0 = corners(psf, centres(psf, (0, psf.nfibre), wave))
    cut = make_cut(image, y0, x0, psf.stamp)
    bands = half_bands(y0, x0, psf.stamp, image.shape)
    sums, guards = guarded(empty_sums(psf.nfibre, len(wave), bands))
    spots = recipe(psf, (0, psf.nfibre), wave)
    add_tile(sums, spots, place_blocks(spots, cut), cut, (0, len(wave), 0))
    for guard in guards:
        assert np.signbit(guard).all()
    design = oracle.design_matrix(psf, range(psf.nfibre), wave, image.shape)
    wanted = (design.T @ design.multiply(image.ivar.ravel()[:, None])).toarray()
    normal = give_up(sums, 0.0)
    np.testing.assert_allclose(dense_normal(normal), wanted, rtol=0, atol=1e-13 * image.ivar.max())
    return bands


@pytest.mark.parametrize(("step", "hw"), [(0.8, 8), (3.0, 2), (6.0, 1), (10.0, 0), (50.0, 0)])
def test_coarse_bins_have_narrow_bands(step, hw):
    psf = oracle.make_psf("v3", 5, first_row=-20)
    assert check_within(psf, np.arange(6050.0, 6114.0, step), make_image((210, 56)))[:2] == (2, hw)


@pytest.mark.parametrize("slope", [5.0, 60.0, 200.0, -60.0, -200.0])
@pytest.mark.parametrize("seen", [1, 2, 3, 5])
def test_a_trace_that_touches_the_ccd_with_a_few_bins(slope, seen):
    """All but a few spots are beside the CCD, and share rows with those on it at any distance in wavelength."""
    psf = oracle.make_psf("v3", 2, first_row=-20)
    u = 2 * (WAVE - oracle.WMIN) / (oracle.WMAX - oracle.WMIN) - 1
    last = len(WAVE) - seen if slope > 0 else seen - 1
    x = np.zeros((2, 2))
    x[:, 1] = slope
    x[1, 0] = -8.45 - slope * u[last]       # the stamp of its bin `last` just reaches column 0
    x[0, 0] = x[1, 0] - 7.3
    psf = replace(psf, x=replace(psf.x, coeff=x))
    bands = check_within(psf, WAVE, make_image((210, 56)))
    assert bands[0] == 0 and bands[1] < 8


# ---- bins that are given up, and those without any weight ----------------------------------------------------------

def small_sums(weight, diagonal=1.0):
    """One fibre with couplings of 0.1 between neighbours."""
    n = len(weight)
    icov = np.zeros((1, 1, n, 3))
    icov[0, 0, :, 1] = diagonal
    icov[0, 0, :-1, 2] = icov[0, 0, 1:, 0] = 0.1
    sums = empty_sums(1, n, (0, 1, 1))
    return replace(sums, icov=icov, rhs=np.ones((1, n)), weight=np.array([weight], dtype=float))


def test_a_bin_is_judged_by_its_own_light_alone():
    """icov_jj / weight_j, its light on good pixels: below 1e-10 it is given up, with its row and column."""
    light = np.array([0.05, 0.5e-10, 2e-10, 0.05])
    weight = np.array([20.0, 1.0, 1e-9, 1e14])       # as large or small as they may be
    normal = give_up(small_sums(weight, light * weight), 0.0)
    np.testing.assert_array_equal(normal.given_up, [[False, True, False, False]])
    np.testing.assert_array_equal(normal.weight, [[20.0, 0.0, 1e-9, 1e14]])
    np.testing.assert_array_equal(normal.rhs, [[1, 0, 1, 1]])
    kept = np.where(normal.given_up, 0.0, light * weight)
    wanted = np.diag(kept[0])
    wanted[2, 3] = wanted[3, 2] = 0.1
    np.testing.assert_array_equal(dense_normal(normal), wanted)


@pytest.mark.parametrize(("light", "found"), [(0.05, []), (3e-6, []), (1e-6, [1]), (0.5e-10, [])])
def test_faint_bins_are_counted_where_bins_are_judged(light, found):
    """Below 2e-6 a bin is faint, below 1e-10 given up; if none is faint, they are not searched for again."""
    normal = give_up(small_sums(np.ones(3), np.array([0.05, light, 0.05])), 0.0)
    assert normal.may_be_faint == bool(found)
    for each in (normal, replace(normal, may_be_faint=True)):
        assert np.flatnonzero(faint(each, slice(None))).tolist() == found


@pytest.mark.parametrize("family", ["v3", "tails", "gh2"])
def test_weight_squared_is_below_icov_times_all_ivar_of_a_spot(family):
    """This lets bins be judged by their weight alone (Cauchy-Schwarz), also beside masks."""
    psf = oracle.make_psf(family, 3)
    image = make_image((140, 56))
    sums = make_sums(psf, image, (0, 3), 80)
    diagonal = sums.icov[:, 0, :, sums.icov.shape[3] // 2]
    assert (sums.weight > 0).any()
    assert (sums.weight**2 <= (1 + 1e-12) * diagonal * np.prod(psf.stamp) * image.ivar.max()).all()


def test_bins_told_by_their_weight_are_not_looked_up(monkeypatch):
    """Only fibres with a bin of little weight are, with all of their bins; all fibres if a ridge is added."""
    judged, judge = [], simd_bins.judge_weights
    monkeypatch.setattr(simd_bins, "judge_weights", lambda *args: judged.append(args[0].shape) or judge(*args))
    brightest = 0.05 / FAINT_LIGHT

    def make(least):
        weight = np.ones((3, 4))
        weight[1, 2] = least
        sums = empty_sums(3, 4, (0, 1, 1))
        sums.icov[:] = 0.0
        sums.icov[:, 0, :, sums.icov.shape[3] // 2] = 0.05 * weight
        sums.icov[1, 0, 2] *= LEAST_LIGHT
        sums.weight[:], sums.rhs[:] = weight, 1.0
        return sums

    for least, ridge, count in ((0.2, 0.0, 0), (0.09, 0.0, 1), (0.0, 0.0, 1), (0.2, 0.3, 3)):
        judged.clear()
        found, plain = give_up(make(least), ridge, brightest), give_up(make(least), ridge)
        assert len(judged) == count + 3
        if count:
            np.testing.assert_array_equal(found.given_up, plain.given_up)
            np.testing.assert_array_equal(found.icov, plain.icov)
            assert found.may_be_faint == plain.may_be_faint


def test_nothing_is_added_to_what_a_bin_knows():
    """No other bin's weight matters; a ridge is squared and added to all bins that have weight."""
    weight = np.array([1e12, 1e-6, 2.0, 0.0])
    for ridge in (0.0, 0.3):
        normal = give_up(small_sums(weight, 0.04 * weight), ridge)
        assert not normal.given_up.any()
        np.testing.assert_array_equal(normal.icov[0, 0, :, 1], np.where(weight > 0, 0.04 * weight + ridge**2, 0))


@pytest.mark.parametrize("unit", [1e-24, 1e24])
def test_the_rule_has_no_unit(unit):
    light = LEAST_LIGHT * np.array([0.999, 1.001, 1e3])
    normal = give_up(small_sums(np.full(3, 7.0) * unit, light * 7.0 * unit), 0.0)
    np.testing.assert_array_equal(normal.given_up, [[True, False, False]])


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_bins_without_weight_are_taken_out(ridge):
    """Diagonal 0, which tells the solver and the cores."""
    normal = give_up(small_sums([1.0, 0.0, 1.0]), ridge)
    assert normal.icov[0, 0, 1, 1] == 0
    assert not normal.given_up.any()
    nothing = give_up(small_sums([0.0, 0.0]), ridge)
    np.testing.assert_array_equal(nothing.icov[0, 0, :, 1], 0)
    assert not nothing.given_up.any()
