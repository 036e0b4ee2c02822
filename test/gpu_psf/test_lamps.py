"""Arcs of several lamps, which have different lines: flexure between them, and lists that were put together."""
import numpy as np
import pytest
from psf_errors import make_arc, moved
from small_arc import FIBRES, Small

from gpu_extract.data import Image
from gpu_psf.data import FitConfig, Lines
from gpu_psf.fit import Fit, fit_bundle
from gpu_psf.sound import BundleError, arcs_apart
from gpu_psf.status import Status

ALTERNATE = np.arange(16) % 2 == 0
BLUE = np.arange(16) < 8
MIXED = np.isin(np.arange(16), np.random.default_rng(3).permutation(16)[:8])


def arcs(small: Small, first: np.ndarray, by: tuple[float, float]) -> list[Image]:
    """One lamp with the lines `first`, and one with the others, whose light lies `by` pixels (x, y) farther."""
    return [make_arc(moved(small.true, *shift), FIBRES, (small.lines.wave[which], small.lines.strength[which]), seed)
            for seed, (which, shift) in enumerate(((first, (0.0, 0.0)), (~first, by)))]


def fitted(small: Small, images: list[Image], lines: Lines | None = None) -> Fit:
    return fit_bundle(images, small.start, FIBRES, lines or small.lines, FitConfig())


@pytest.mark.parametrize("first", [BLUE, MIXED])
def test_flexure_between_two_lamps_is_refused(small: Small, first: np.ndarray) -> None:
    """Traces bend from the lines of one lamp to those of the other, so that residuals showed 0.03 of 0.3 pixel: all
    fibres were said to be fitted, with chi2 1.3, and were off by 0.2."""
    with pytest.raises(BundleError, match=r"shifted against each other by 0\.00 pixels in x, 0\.(29|30) in y"):
        fitted(small, arcs(small, first, (0.0, 0.3)))


@pytest.mark.parametrize("by", [(0.0, 0.0), (0.2, -0.1)])
def test_flexure_between_two_lamps_is_measured(small: Small, by: tuple[float, float]) -> None:
    """Each lamp has some 37 spots of S/N 140, which tell a difference to 1.25 * 1.1 / 140 (2 / 37)^(1/2) = 0.0023. Half
    of a trace's lines are needed for the trace, which makes it 0.004 at most here; 0.02 is five times that."""
    fit = fitted(small, arcs(small, ALTERNATE, by))
    assert (fit.status == Status.FITTED).all()
    np.testing.assert_allclose(arcs_apart(fit.task, fit.state)[0], np.abs(by), atol=0.02)


def test_a_lamp_that_tells_no_shift_does_not_claim_one(small: Small) -> None:
    """Lines of one lamp at the ends, of the other between: what is not known well is noise, and 0."""
    ends = np.abs(np.arange(16) - 7.5) > 4
    fit = fitted(small, arcs(small, ends, (0.0, 0.0)))
    np.testing.assert_array_equal(arcs_apart(fit.task, fit.state)[0], 0.0)


@pytest.mark.parametrize("by", [0.0, 0.003, -0.003])
def test_lines_that_are_listed_twice_are_one(small: Small, by: float) -> None:
    """As where lists with other digits are put together. They could not be separated, and were left out."""
    wave = np.concatenate([small.lines.wave, small.lines.wave + by])
    strength = np.concatenate([small.lines.strength, 0.5 * small.lines.strength])
    order = np.argsort(wave, kind="stable")
    fit = fitted(small, [small.arc], Lines(wave[order], strength[order]))
    np.testing.assert_array_equal(fit.state.now.vector(), small.fit.state.now.vector())


def test_a_list_without_a_single_line_is_refused(small: Small) -> None:
    """It was an internal error."""
    wave = np.sort(np.concatenate([small.lines.wave, small.lines.wave + 0.3]))
    with pytest.raises(BundleError, match=r"no line can be fitted: 32 of the list are within 1\.5 pixels of another"):
        fitted(small, [small.arc], Lines(wave, np.ones(len(wave))))
