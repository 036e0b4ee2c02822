"""The read noise that a fit weighs pixels by: of the image, its header, or its ivar."""
from dataclasses import replace

import numpy as np
import pytest
from psf_errors import READ_NOISE
from small_arc import FIBRES, Small

from gpu_extract.data import Card, Image
from gpu_psf.data import FitConfig
from gpu_psf.fit import Fit, fit_bundle
from gpu_psf.prepare import cut_out, read_noise


def fitted(small: Small, image: Image) -> Fit:
    return fit_bundle([image], small.start, FIBRES, small.lines, FitConfig())


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_read_noise_that_is_none_on_some_pixels_is_that_of_the_others(small: Small, value: float) -> None:
    """With 0 the fit ended in an internal error; with NaN the pixels were lost, and the list was blamed."""
    noise = np.full(small.arc.shape, READ_NOISE)
    noise[40:60] = value
    fit = fitted(small, replace(small.arc, noise=noise))
    np.testing.assert_array_equal(fit.state.now.vector(), small.fit.state.now.vector())


@pytest.mark.parametrize(("factor", "one"), [(0.0, True), (0.1, True), (10.0, True), (0.0, False), (0.1, False),
                                             (10.0, False), (np.nan, False)])
def test_read_noise_in_another_unit_is_derived_from_ivar(small: Small, factor: float, one: bool) -> None:
    """As an extraction does. The ivar of dark pixels has some light, which changes chi squared by less than 1 %; with
    the wrong noise it was 0.13 and 3.1, and with 0 there was an internal error."""
    told = {"read_noise": factor * READ_NOISE, "noise": None} if one else {
        "noise": np.full(small.arc.shape, factor * READ_NOISE)}
    fit = fitted(small, replace(small.arc, **told))
    assert fit.state.chi2 == pytest.approx(small.fit.state.chi2, rel=0.01)


def test_each_amplifier_has_the_read_noise_of_the_header(small: Small) -> None:
    """All had the smallest: chi squared was 2.9 where the upper half had 9 electrons instead of 2.7. Fibres at both
    sides of the middle column, on which amplifiers meet."""
    (ny, nx), noise = small.arc.shape, (2.7, 4.0, 9.0, 6.0)
    every = np.array(noise).reshape(2, 2).repeat(ny // 2, axis=0).repeat(nx // 2, axis=1)
    ivar = 1 / (every**2 + np.maximum(small.arc.pix, 0))
    cards = tuple(Card(f"OBSRDN{name}", value) for name, value in zip("ABCD", noise, strict=True))
    image = Image(small.arc.pix, ivar, cards, read_noise=min(noise))
    for first, last in ((0, nx), (0, 40), (nx // 2 - 5, nx // 2 + 8), (nx - 30, nx)):
        columns = slice(first, last)
        for given in (image, replace(image, cards=(), read_noise=None)):
            found = read_noise(given, columns, nx).squared((0, 0), (ny, last - first))
            np.testing.assert_allclose(found, every[:, columns] ** 2, rtol=1e-9)
    plain = replace(small.arc, noise=None, read_noise=READ_NOISE)          # of another instrument, as RDNOISE has it
    assert (read_noise(plain, slice(0, nx), nx).values == READ_NOISE).all()
    pixels = cut_out([image], small.fit.frame, small.fit.state.now, FitConfig())
    rows = pixels.read_variance[0][-pixels.y0:-pixels.y0 + ny]
    np.testing.assert_array_equal(rows[:, max(-pixels.x0, 0)], every[:, max(pixels.x0, 0)] ** 2)


def test_the_faint_half_tells_where_no_pixel_is_dark(small: Small) -> None:
    image = Image(small.arc.pix + 100.0, 1 / (READ_NOISE**2 + np.maximum(small.arc.pix + 100.0, 0.0)))
    found = read_noise(image, slice(0, image.shape[1]), image.shape[1])
    assert found.values.min() == found.values.max() == pytest.approx(READ_NOISE, rel=1e-6)


def test_a_pixel_that_is_no_number_is_masked_whatever_its_ivar(small: Small) -> None:
    """It was an internal error; a file with such a pixel is refused, an image in Python was not."""
    pix, ivar = small.arc.pix.copy(), small.arc.ivar.copy()
    places = (50, 80, 120), (20, 12, 27)
    pix[places], ivar[places] = (np.nan, np.inf, -np.inf), 0.0
    masked, odd = fitted(small, replace(small.arc, pix=pix, ivar=ivar)), fitted(small, replace(small.arc, pix=pix))
    np.testing.assert_array_equal(odd.state.now.vector(), masked.state.now.vector())
