"""A fit when its input is mirrored, moved, reordered, repeated, or masked where there is no light."""
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from psf_errors import READ_NOISE, Judge, make_arc, mirrored, moved
from small_arc import FIBRES, Small

from gpu_extract.data import Array, Image, PsfModel
from gpu_extract.simulate.frame import project_lines
from gpu_psf.data import FitConfig
from gpu_psf.fit import Fit, fit_bundle
from gpu_psf.prepare import psf_of
from gpu_psf.run import _spots
from gpu_psf.sound import BundleError


def fitted(small: Small, images: Sequence[Image], start: PsfModel | None = None,
           config: FitConfig | None = None) -> Fit:
    return fit_bundle(images, start or small.start, FIBRES, small.lines, config or FitConfig())


def of(fit: Fit) -> PsfModel:
    return psf_of(fit.frame, fit.state.now)


def apart(one: PsfModel, other: PsfModel) -> float:
    """Root mean square of the differences of their spots' pixels, relative to the peak; noise leaves 0.0017."""
    return Judge(other, np.linspace(6010, 6100, 12)).errors(one).stamp


def reversed_along(image: Image, axis: int) -> Image:
    return replace(image, pix=np.flip(image.pix, axis), ivar=np.flip(image.ivar, axis))


@pytest.fixture(scope="module")
def tailed(small: Small) -> Fit:
    """The small arc fitted with a tail, from all pixels near the fibres."""
    return fitted(small, [small.arc], config=FitConfig(tail=()))


@pytest.mark.parametrize("axis", [0, 1])
def test_a_mirrored_arc_has_the_mirrored_psf(small: Small, tailed: Fit, axis: int) -> None:
    """The same pixels are fitted (along y they once differed), to a hundredth of the noise."""
    fit = fitted(small, [reversed_along(small.arc, axis)], mirrored(small.start, axis), FitConfig(tail=()))
    assert fit.state.npixel == tailed.state.npixel
    assert fit.state.chi2 == pytest.approx(tailed.state.chi2, abs=0.1)
    assert apart(mirrored(of(fit), axis), of(tailed)) < 1.7e-5


def test_an_arc_that_lies_elsewhere_on_a_larger_ccd_has_the_psf_moved(small: Small) -> None:
    """By whole pixels: the same up to rounding; along y up to the polynomials of the continuum as well."""
    def moved_back(x: int, y: int) -> PsfModel:
        ny, nx = small.true.shape
        pix, ivar = np.zeros((2, ny + 24, nx + 12))
        pix[y:y + ny, x:x + nx], ivar[y:y + ny, x:x + nx] = small.arc.pix, small.arc.ivar
        start = replace(moved(small.start, float(x), float(y)), shape=pix.shape)
        return moved(of(fitted(small, [Image(pix, ivar, read_noise=READ_NOISE)], start)), -float(x), -float(y))

    here = moved_back(0, 0)
    assert apart(moved_back(12, 0), here) < 1e-10
    assert apart(moved_back(3, 24), here) < 1.7e-5


def with_continuum(small: Small, electrons: float, strength: float, seed: int) -> Image:
    light = np.zeros(small.true.shape)
    wave = np.arange(6000.5, 6109.5, 0.1)
    project_lines(light, small.true, FIBRES, wave, np.full((5, len(wave)), 0.1 * electrons))
    project_lines(light, small.true, FIBRES, small.lines.wave, np.tile(strength * small.lines.strength, (5, 1)))
    random = np.random.default_rng(seed)
    pix = random.poisson(light) + READ_NOISE * random.standard_normal(light.shape)
    return Image(pix, 1 / (light + READ_NOISE**2), read_noise=READ_NOISE)


def test_the_order_of_exposures_means_nothing_and_a_dark_one_adds_nothing(small: Small) -> None:
    """The continuum was once left in if the first of several arcs was dark: widths were off by 1.4 %."""
    lit, dark = with_continuum(small, 200.0, 1.0, 1), with_continuum(small, 0.0, 0.0, 2)
    first, last, alone = (fitted(small, images) for images in ([dark, lit], [lit, dark], [lit]))
    assert apart(of(first), of(last)) < 1e-10
    np.testing.assert_allclose(first.continuum, last.continuum, atol=1e-6)
    assert apart(of(first), of(alone)) < 1.7e-4
    np.testing.assert_allclose(2 * first.continuum[:, 0], alone.continuum[:, 0], rtol=0.02)      # the mean of both


def test_a_dark_exposure_hides_no_shift_of_the_others(small: Small) -> None:
    light: Array = small.lines.strength
    images = [make_arc(moved(small.true, by, 0.0), FIBRES, (small.lines.wave, share * light), seed)
              for seed, (by, share) in enumerate(((0.0, 1.0), (0.6, 1.0), (0.0, 0.0)))]
    with pytest.raises(BundleError, match="the arcs are shifted against each other by"):
        fitted(small, images)


def test_two_of_the_same_arc_say_the_same_with_more_certainty(small: Small) -> None:
    """Chi squared doubles; the prior has half the weight, which moves spots by at most a fifth of the noise."""
    fit = fitted(small, [small.arc, small.arc])
    assert fit.state.chi2 == pytest.approx(2 * small.fit.state.chi2, rel=1e-3)
    np.testing.assert_allclose(fit.state.variance[:len(small.fit.task.spots)], small.fit.state.variance, rtol=0.01)
    assert apart(of(fit), of(small.fit)) < 3.4e-4


def test_masked_pixels_where_no_light_is_and_what_ivar_states_change_no_bit(small: Small) -> None:
    pix, ivar = small.arc.pix.copy(), small.arc.ivar.copy()
    noise = np.full(pix.shape, READ_NOISE)
    pix[:, 70:], ivar[:, 70:], noise[:, 70:] = np.nan, 0.0, np.nan
    fit = fitted(small, [replace(small.arc, pix=pix, ivar=ivar, noise=noise)])
    np.testing.assert_array_equal(fit.state.now.vector(), small.fit.state.now.vector())
    fit = fitted(small, [replace(small.arc, ivar=4 * small.arc.ivar)])          # weights are the model's
    np.testing.assert_array_equal(fit.state.now.vector(), small.fit.state.now.vector())


def test_spots_have_the_same_light_and_error_whatever_their_stamps_sum_to(small: Small) -> None:
    """IVAR was once of the flux before normalising stamps: with a tail of 0.02 they sum to 1.37."""
    state = small.fit.state
    double = replace(state.stamps, image=2 * state.stamps.image)
    other = replace(small.fit, state=replace(state, stamps=double, flux=state.flux / 2, variance=state.variance / 4))
    np.testing.assert_allclose(_spots(other), _spots(small.fit), rtol=1e-12)
