"""chi2pix, pixmask_fraction, the mask's bits and the model image, each against its explicit formula."""
from dataclasses import replace

import numpy as np
import pytest

import oracle
from gpu_extract.data import LANE, Image, SpecMask, Status
from gpu_extract.normal import add_tile, empty_sums, half_bands, make_cut, place_blocks
from gpu_extract.plan import halo
from gpu_extract.quality import BAD_FIT_LEAST, bin_quality, bin_status, mask_bits, stands_out
from gpu_extract.spots import add_to_image, centres, corners, make_spots, recipe

WAVE = np.arange(6050.0, 6098.0, 0.8)
SHAPE = (210, 56)


@pytest.fixture(scope="module", params=oracle.FAMILIES)
def scene(request):
    """(PSF, image with masked pixels, A, x): four of five fibres, with y starting off the CCD."""
    psf = oracle.make_psf(request.param, first_row=-70)
    rng = np.random.default_rng(5)
    ivar = rng.uniform(0.01, 0.2, SHAPE)
    ivar[:, 19] = 0
    ivar[25:90, 20:] = 0
    image = Image(np.where(ivar > 0, rng.normal(50, 30, SHAPE), np.nan), ivar)
    return psf, image, oracle.design_matrix(psf, range(1, 5), WAVE, SHAPE), rng.uniform(-50, 900, (4, len(WAVE)))


def quality(psf, image, x, psferr, dtype=np.float64, bins=None):
    y0, x0 = corners(psf, centres(psf, (1, 5), WAVE))
    cut, bands = make_cut(image, y0, x0, psf.stamp), half_bands(y0, x0, psf.stamp, image.shape)
    spots = recipe(psf, (1, 5), WAVE)
    blocks = place_blocks(spots, cut)
    add_tile(empty_sums(4, len(WAVE), bands), spots, blocks, cut, (0, len(WAVE), 0))
    if dtype == np.float64:
        blocks = in_double(psf, blocks)
    return bin_quality(blocks, (cut.root, cut.light), x, psferr, bins=bins)


def in_double(psf, blocks):
    """The same blocks with the spots of make_spots, to all digits."""
    spots, (ny, nx) = make_spots(psf, (1, 5), WAVE), psf.stamp
    stamps, scale = np.zeros(blocks.stamps.shape), np.ones(blocks.scale.shape)
    for i in range(4):
        for j in range(len(WAVE)):
            top, left = blocks.offsets[i, :, j].astype(int)
            top += blocks.begins[i, j // LANE]
            stamps[top:top + ny, left:left + nx, j % LANE] = spots.stamps[i, j]
    return replace(blocks, stamps=stamps, scale=scale)


@pytest.mark.parametrize("psferr", [0.0, 0.01, 0.3])
def test_chi2pix_is_its_formula(scene, psferr):
    """A^T chi^2 / A^T [W > 0], chi^2 = (p - A x)^2 / (1/W + (psferr A x)^2), with an explicit A."""
    psf, image, design, x = scene
    w, model = image.ivar.ravel(), design @ x.ravel()
    good = w > 0
    chi2 = np.zeros_like(w)
    chi2[good] = (image.pix.ravel() - model)[good] ** 2 / (1 / w[good] + (psferr * model[good]) ** 2)
    light = design.T @ good.astype(float)
    got = quality(psf, image, x, psferr)[0].ravel()
    np.testing.assert_allclose(got * light, design.T @ chi2, rtol=1e-11, atol=1e-13 * chi2.max())
    np.testing.assert_array_equal(got[light == 0], 0)


@pytest.mark.parametrize("wanted", [(12, 20), (9, 14), (0, 7)])
def test_bins_that_nobody_wants_change_no_bit(scene, wanted):
    """As long as all bins that overlap the requested ones are included."""
    psf, image, _, x = scene
    y0, x0 = corners(psf, centres(psf, (1, 5), WAVE))
    around = halo(*wanted, half_bands(y0, x0, psf.stamp, image.shape)[1], len(WAVE))
    assert around != (0, len(WAVE))
    whole, part = (quality(psf, image, x, 0.01, bins=bins) for bins in (None, around))
    for one, other in zip(whole, part, strict=True):
        np.testing.assert_array_equal(one[:, slice(*wanted)], other[:, slice(*wanted)])


def test_pixmask_fraction_is_its_formula(scene):
    """1 - A^T [W > 0], with pixels off the CCD counted as masked; exactly 1 just where no good pixel is touched."""
    psf, image, design, x = scene
    light = (design.T @ (image.ivar.ravel() > 0).astype(float)).reshape(x.shape)
    got = quality(psf, image, x, 0.01)[1]
    np.testing.assert_allclose(got, 1 - light, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(got == 1, light == 0)
    assert 5 < (got == 1).sum() < got.size / 2
    assert ((got >= 0) & (got <= 1)).all()


def test_single_precision_stamps_are_good_enough(scene):
    """Their rounding is 6e-8 of the light, or of A |x| for chi, which is hundreds of a pixel's errors here."""
    psf, image, _, x = scene
    exact, single = (quality(psf, image, x, 0.01, dtype) for dtype in (np.float64, np.float32))
    np.testing.assert_allclose(single[0], exact[0], rtol=2e-5)
    np.testing.assert_allclose(single[1], exact[1], rtol=0, atol=2e-7)
    np.testing.assert_array_equal(single[1] == 1, exact[1] == 1)


def test_a_whole_spot_is_not_masked_at_all():
    """1 - sum is a rounding error: 0 or a few 1e-16, never below 0."""
    psf = oracle.make_psf("v3", first_row=10)
    fraction = quality(psf, Image(np.zeros((360, 56)), np.ones((360, 56))), np.ones((4, len(WAVE))), 0.0)[1]
    assert (fraction >= 0).all() and fraction.max() < 1e-14


def test_the_image_of_spectra_is_a_x(scene):
    """A x clipped at the CCD's edges; the same bits wavelength by wavelength or at once."""
    psf, _, design, x = scene
    spots = make_spots(psf, (1, 5), WAVE)
    whole = np.zeros(SHAPE)
    add_to_image(whole, spots, x)
    np.testing.assert_allclose(whole.ravel(), design @ x.ravel(), rtol=0, atol=1e-12 * np.abs(x).max())
    parts = np.zeros(SHAPE)
    for first, last in ((0, 1), (1, 38), (38, len(WAVE))):
        add_to_image(parts, make_spots(psf, (1, 5), WAVE[first:last]), x[:, first:last])
    np.testing.assert_array_equal(parts, whole)


# ---- bits -----------------------------------------------------------------------------------------------------------

def test_each_mask_bit_follows_its_rule():
    """All except BAD2DFIT, which has its own tests."""
    fraction = np.array([[0.0, 0.5, 0.50001, 1.0, 1.0 - 1e-16, 0.2], [0.0] * 6])
    ivar = np.array([[1.0, 1.0, 1.0, 0.0, 1.0, 0.0], [0.0] * 6])
    weak = np.zeros((2, 6), dtype=bool)
    weak[0, 1] = weak[1] = True
    mask = mask_bits(ivar, np.ones((2, 6)), fraction, weak)
    some, every, nodata = SpecMask.SOMEBADPIX, SpecMask.ALLBADPIX, SpecMask.NODATA
    assert mask[0].tolist() == [0, SpecMask.WEAKBIN, some, some | every | nodata, some, nodata]
    assert set(mask[1]) == {nodata | SpecMask.WEAKBIN}
    assert mask.dtype == np.uint32


@pytest.mark.parametrize("nfibre", [1, 4, 5, 25])
@pytest.mark.parametrize("seed", range(4))
def test_bad_fits_against_the_definition(nfibre, seed):
    """The oracle's loop over bins, on heavy-tailed chi2pix with masked bins, whole masked fibres and wavelengths."""
    rng = np.random.default_rng(seed)
    chi2pix = rng.lognormal(0, 1.5, (nfibre, 60)) * rng.choice([1, 1, 1, 100], (nfibre, 60))
    fraction = rng.choice([0.0, 0.0, 0.0, 0.7, 1.0], (nfibre, 60))
    fraction[:, 7] = 1.0
    if nfibre > 3:
        fraction[2] = 1.0
    ivar = np.where(fraction < 1, 1.0, 0.0)
    chi2pix[fraction == 1] = 0.0
    got = mask_bits(ivar, chi2pix, fraction)
    wanted = oracle.mask_bits(chi2pix, fraction, ivar)
    np.testing.assert_array_equal(got, wanted)
    assert 0 < ((got & 128) > 0).sum() < got.size / 2


def test_a_bad_fit_stands_out_both_ways():
    """Among its fibre's bins and its wavelength's fibres: a bright line in all of them, or a bad fibre, does not."""
    judged = np.ones((6, 50), dtype=bool)
    chi2pix = np.ones((6, 50))
    chi2pix[2, 10] = 5.1
    chi2pix[:, 20] = 40.0        # a line where the PSF is not well known
    chi2pix[4, :] = 40.0         # a fibre
    expected = np.zeros_like(judged)
    expected[2, 10] = True
    np.testing.assert_array_equal(stands_out(chi2pix, judged), expected)
    chi2pix[2, 10] = 4.9
    assert not stands_out(chi2pix, judged).any()


@pytest.mark.parametrize("nfibre", [5, 6])
def test_what_is_far_above_most_fibres_stands_out_however_much_there_is_of_it(nfibre):
    """A hit may spoil most of a short range of a fibre, and more than half of the fibres at a wavelength. A fibre
    without a bin to judge does not count, and bits do not depend on rounding."""
    chi2pix, judged = np.full((nfibre, 50), 1.1 * np.arange(1, nfibre + 1)[:, None]), np.ones((nfibre, 50), dtype=bool)
    most = 100 * chi2pix[nfibre // 2, 0]       # the medians of more than half of the fibres are not above a hundredth
    chi2pix[-1, 5:] = np.nextafter(most, np.inf)
    chi2pix[1:, 10] = np.nextafter(most, np.inf)
    expected = chi2pix > most
    np.testing.assert_array_equal(stands_out(chi2pix, judged), expected)
    chi2pix[chi2pix > most] = most
    assert not stands_out(chi2pix, judged).any()
    judged[0], most = False, 100 * chi2pix[1 + (nfibre - 1) // 2, 0]
    chi2pix[-1, 5:] = np.nextafter(most, np.inf)
    np.testing.assert_array_equal(stands_out(chi2pix, judged), chi2pix > most)
    assert not stands_out(np.full((nfibre, 3), 1e9), np.zeros((nfibre, 3), dtype=bool)).any()


def test_fibres_without_noise_are_no_measure_for_the_others():
    """Where six of ten fibres lay on an amplifier that reads 0, unmasked, all bins of the other four were flagged."""
    chi2pix, judged = np.zeros((10, 50)), np.ones((10, 50), dtype=bool)
    chi2pix[6:], chi2pix[6, :40] = 0.8, np.nextafter(BAD_FIT_LEAST, np.inf)
    np.testing.assert_array_equal(stands_out(chi2pix, judged), chi2pix > 1)
    chi2pix[6, :40] = BAD_FIT_LEAST
    assert not stands_out(chi2pix, judged).any()


@pytest.mark.parametrize("count", [60, 61])
@pytest.mark.parametrize("faint", [0, 1])
def test_the_medians_of_a_fibre_are_those_of_the_bins_that_are_judged(count, faint):
    """One more faint bin decides whether a bin stands out; bins that are not judged do not count."""
    chi2pix, judged = np.ones((6, 100)), np.zeros((6, 100), dtype=bool)
    judged[:, :count] = True
    low = (count - 1) // 2 + faint
    chi2pix[3, :low], chi2pix[3, low:count - 1], chi2pix[3, count - 1], chi2pix[3, count:] = 0.5, 1.005, 5.02, 0.3
    expected = np.zeros_like(judged)
    expected[3, count - 1] = faint
    np.testing.assert_array_equal(stands_out(chi2pix, judged), expected)


def test_few_fibres_have_a_fixed_limit():
    chi2pix = np.array([[99.0, 101.0, 1.0], [5.0, 1.0, 1e4]])
    np.testing.assert_array_equal(stands_out(chi2pix, np.ones((2, 3), dtype=bool)), chi2pix > 100)


# ---- status ---------------------------------------------------------------------------------------------------------

def test_the_status_of_a_bin_follows_core_and_mask_bits():
    """Every status that a core can give, with every combination of the deciding bits, by the explicit rule."""
    bits = [SpecMask(0), SpecMask.SOMEBADPIX, SpecMask.ALLBADPIX, SpecMask.NODATA, SpecMask.NODATA | SpecMask.ALLBADPIX,
            SpecMask.BAD2DFIT | SpecMask.WEAKBIN]
    cores = [state for state in Status if state != Status.DROPPED]
    status, mask = (array.astype(dtype) for array, dtype in zip(np.meshgrid(cores, bits, indexing="ij"),
                                                                (np.int8, np.uint32), strict=True))
    found = bin_status(status, mask)
    assert found.dtype == np.int8
    for i, state in enumerate(cores):
        for j, bit in enumerate(bits):
            wanted = state
            if bit & SpecMask.NODATA and (state != Status.FAILED or bit & SpecMask.ALLBADPIX):
                wanted = Status.EMPTY
            assert found[i, j] == wanted, (state, bit)
    np.testing.assert_array_equal(bin_status(status[:, :3], mask[:, :3]), status[:, :3])


def test_the_values_of_status_stay():
    """Files contain them, so a new one comes last. Each has a sentence; those without a flux mention it."""
    first = ["GOOD", "EMPTY", "WIDE_BAND", "DENSE", "PIXELS", "FAILED", "DROPPED"]
    assert [state.name for state in Status][:7] == first and [state.value for state in Status][:7] == list(range(7))
    assert len({state.sentence for state in Status}) == len(Status)
    assert "bin" in Status.EMPTY.sentence and "PSF" in Status.DROPPED.sentence
