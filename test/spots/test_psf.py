"""Spots against quadrature; a spot's bits depend on its fibre and wavelength alone."""
from dataclasses import replace

import numpy as np
import pytest
from numpy.polynomial import legendre

import oracle
from extraction import linear, moved
from gpu_extract.spots import centres, corners, evaluate, legendre_basis, make_spots, recipe, stretch

WAVE = np.linspace(oracle.WMIN, oracle.WMAX, 41)


@pytest.fixture(scope="module", params=oracle.FAMILIES)
def psf(request):
    return oracle.make_psf(request.param)


def on_quadrature(psf, spots, fibre, j, wave):
    """A spot of `spots` and the oracle's, on the same pixels."""
    wanted = oracle.spot(psf, fibre, wave)
    assert (spots.y0[fibre, j], spots.x0[fibre, j]) == (wanted.y0, wanted.x0)
    return spots.stamps[fibre, j], wanted.pixels


def test_spots_against_quadrature(psf):
    """1e-14 of the spot's sum: erfc to 1.4e-15, 50 terms of at most 0.05, sums of 400 pixels. 6e-16 are seen."""
    spots = make_spots(psf, (0, psf.nfibre), WAVE)
    for fibre in range(psf.nfibre):
        for j, w in enumerate(WAVE):
            spot, wanted = on_quadrature(psf, spots, fibre, j, float(w))
            np.testing.assert_allclose(spot, wanted, rtol=0, atol=1e-14)
            np.testing.assert_array_equal(spot[wanted == 0], 0)      # clipped, cut and beside the spot


def test_faint_pixels_are_right_too(psf):
    """A pixel far from the centre has 1e-10 of the light, and is still right to 1e-15 of the spot's sum."""
    spots = make_spots(psf, (0, 1), WAVE[:5])
    for j in range(5):
        spot, wanted = on_quadrature(psf, spots, 0, j, float(WAVE[j]))
        faint = wanted < 1e-4
        np.testing.assert_allclose(spot[faint], wanted[faint], rtol=0, atol=3e-16)


@pytest.mark.parametrize("sigma", [0.4, 0.8, 2.5])
def test_widths_far_from_the_usual(sigma):
    """Components much sharper than a pixel, and cut off by the stamp."""
    psf = oracle.make_psf("v3", 1)
    core = replace(psf.cores[0], sigma_x=linear([[sigma]]), sigma_y=linear([[1.2 * sigma]]))
    psf = replace(psf, cores=(core,))
    spots = make_spots(psf, (0, 1), WAVE)
    for j, w in enumerate(WAVE):
        spot, wanted = on_quadrature(psf, spots, 0, j, float(w))
        np.testing.assert_allclose(spot, wanted, rtol=0, atol=3e-14)


def test_sums_are_one(psf):
    """To the rounding of a sum over 400 pixels, whether on the CCD or not."""
    for place in (psf, moved(psf, -5000.0, -5000.0, psf.shape)):
        spots = make_spots(place, (0, place.nfibre), WAVE)
        np.testing.assert_allclose(spots.stamps.sum(axis=(2, 3)), 1, rtol=0, atol=1e-14)
        assert (spots.stamps >= 0).all()


def test_any_cut_gives_the_same_bits(psf):
    """Single bins, odd ranges, other fibres beside: none of it has an effect."""
    whole = make_spots(psf, (0, psf.nfibre), WAVE)
    cuts = [((0, psf.nfibre), slice(7, 8)), ((2, 3), slice(0, 41)), ((1, 4), slice(13, 40)), ((4, 5), slice(40, 41))]
    for fibres, bins in cuts:
        part = make_spots(psf, fibres, WAVE[bins])
        np.testing.assert_array_equal(part.stamps, whole.stamps[slice(*fibres), bins])
        np.testing.assert_array_equal(part.x0, whole.x0[slice(*fibres), bins])
        np.testing.assert_array_equal(part.y0, whole.y0[slice(*fibres), bins])


def test_a_spot_without_light_is_zero():
    """A component that is negative everywhere is clipped to nothing: no division by 0."""
    psf = oracle.make_psf("v3", 2)
    coeff = psf.cores[0].gh.coeff.copy()
    coeff[..., 1, :] = 0
    core = replace(psf.cores[0], gh=replace(psf.cores[0].gh, coeff=coeff))
    spots = make_spots(replace(psf, cores=(core,)), (0, 2), WAVE)
    np.testing.assert_array_equal(spots.stamps[1], 0)
    np.testing.assert_array_equal(spots.stamps[0], make_spots(psf, (0, 1), WAVE).stamps[0])


def test_corners_follow_the_rule_of_the_files():
    """The first pixel is floor(centre - offset), also where that is negative, and also for a centre on an edge."""
    psf = oracle.make_psf("v3")
    centre = np.array([[[5.49, 5.5, 4.5, -0.51]], [[8.0, 7.5, 7.49, -3.0]]])
    np.testing.assert_array_equal(corners(psf, centre), [[[0, 1, 0, -6]], [[0, 0, -1, -11]]])


def test_series_are_legendre(psf):
    """Against numpy, also beyond the domain: 1e-14 of the sum of the terms' sizes."""
    wave = np.linspace(oracle.WMIN - 20, oracle.WMAX + 20, 50)
    for series in psf.series():
        u = 2 * (wave - series.wmin) / (series.wmax - series.wmin) - 1
        wanted = legendre.legval(u, np.moveaxis(series.coeff[..., 1:3, :], -1, 0))
        size = np.abs(series.coeff).sum(axis=-1).max() * 1.2**3 * 3
        np.testing.assert_allclose(evaluate(series, (1, 3), wave), wanted, rtol=0, atol=1e-14 * size)
        one = evaluate(series, (2, 3), wave[17:18])
        np.testing.assert_array_equal(one[..., 0, 0], evaluate(series, (1, 3), wave)[..., 1, 17])


def test_basis_of_any_length():
    series = linear([[1.0]])
    np.testing.assert_array_equal(legendre_basis(WAVE, series), np.ones((1, len(WAVE))))
    basis = legendre_basis(WAVE, linear(np.ones((1, 9))))
    np.testing.assert_allclose(basis, legendre.legvander(np.linspace(-1, 1, 41), 8).T, rtol=0, atol=2e-14)


def test_centres_are_y_then_x(psf):
    got = centres(psf, (1, 2), WAVE[3:5])
    np.testing.assert_array_equal(got[0], evaluate(psf.y, (1, 2), WAVE[3:5]))
    np.testing.assert_array_equal(got[1], evaluate(psf.x, (1, 2), WAVE[3:5]))


def test_a_recipe_knows_how_far_from_its_centre_a_spot_begins(psf):
    centre = centres(psf, (1, 4), WAVE)
    corner = corners(psf, centre)
    made = recipe(psf, (1, 4), WAVE)
    np.testing.assert_array_equal(made.ingredients.numbers[:, :2, :41], (corner - centre).transpose(1, 0, 2))
    np.testing.assert_array_equal((made.y0[:, :41], made.x0[:, :41]), corner)


@pytest.mark.parametrize("bins", [(0, 41), (0, 20), (8, 28), (12, 41)])
def test_a_stretch_of_a_recipe_is_the_recipe_of_the_stretch(psf, bins):
    """Bitwise: ranks that share a bundle make their own bins' spots from it. 41 bins are not whole blocks."""
    part, own = stretch(recipe(psf, (1, 4), WAVE), bins), recipe(psf, (1, 4), WAVE[slice(*bins)])
    for name in ("x0", "y0"):
        np.testing.assert_array_equal(getattr(part, name), getattr(own, name))
        assert getattr(part, name).flags.c_contiguous
    known = [*range(2 + 3 * len(psf.cores)), *(range(8, 13) if psf.tail else [])]
    np.testing.assert_array_equal(part.ingredients.numbers[:, known], own.ingredients.numbers[:, known])
    assert part.ingredients.numbers.flags.c_contiguous
    for core, alone in zip(part.ingredients[1:3], own.ingredients[1:3], strict=True):
        np.testing.assert_array_equal(core.series, alone.series)
        assert (core.nj, core.ni) == (alone.nj, alone.ni) and core.basis.flags.c_contiguous
        if len(alone.basis):       # there is such a core
            np.testing.assert_array_equal(core.basis, alone.basis)
