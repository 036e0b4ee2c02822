"""Lines far brighter than a pixel can hold, as arcs have that are exposed for the faint ones."""
from dataclasses import replace

import numpy as np
import pytest
from psf_errors import make_arc
from small_arc import FIBRES, Small

from gpu_extract.data import Image
from gpu_psf.data import FitConfig, Lines
from gpu_psf.fit import Fit, fit_bundle
from gpu_psf.prepare import psf_of
from gpu_psf.run import _quality
from gpu_psf.sound import BundleError
from gpu_psf.status import Status

FULL = 65535.0


def saturated(small: Small, which: list[int], light: float) -> Image:
    """The small arc with some lines of so many electrons, cut off at FULL."""
    strength = small.lines.strength.copy()
    strength[which] = light
    arc = make_arc(small.true, FIBRES, (small.lines.wave, strength), 1)
    return replace(arc, pix=np.minimum(arc.pix, FULL))


def fitted(small: Small, arc: Image, lines: Lines | None = None) -> Fit:
    return fit_bundle([arc], small.start, FIBRES, lines or small.lines, FitConfig())


@pytest.mark.parametrize(("which", "light"), [([3, 9], 3e6), ([3, 6, 9, 12], 1e6), ([3, 9], 1e8)])
def test_saturated_lines_say_nothing(small: Small, which: list[int], light: float) -> None:
    """Chi squared and PSFERR were those of their wings, 7 and 0.066; with four of sixteen lines saturated, the list was
    said to be of another lamp, and 1e8 electrons left 1 line. Chi squared of 6000 pixels scatters by 0.02, and the
    spots beside are as good as without them: errors of 75 and 60 spots by a fifth."""
    fit = fitted(small, saturated(small, which, light))
    quality = _quality(fit)
    assert (fit.status == Status.FITTED).all()
    assert 0.92 < quality["chi2"] / (quality["npix"] - quality["npar"]) < 1.08
    assert quality["excess"] < 0.01**2 * quality["light"]
    good, usual = (small.judge.errors(psf_of(each.frame, each.state.now)) for each in (fit, small.fit))
    assert good.stamp < 1.5 * usual.stamp
    assert fit.task.close is not None                   # their tails still count
    np.testing.assert_array_equal(np.unique(fit.task.close.wave), small.lines.wave[which])


def test_masked_lines_that_are_not_bright_keep_their_wings(small: Small) -> None:
    """A masked core hides no more than it did."""
    spot = int(np.flatnonzero(small.fit.task.firm)[30])
    ivar = small.arc.ivar.copy()
    x, y = (round(float(part[spot])) for part in (small.fit.state.stamps.x, small.fit.state.stamps.y))
    ivar[y - 1:y + 2, x - 1:x + 2] = 0.0
    fit = fitted(small, replace(small.arc, ivar=ivar))
    assert not fit.task.firm[spot] and fit.state.flux[spot] > 0 and fit.task.close is None


@pytest.mark.parametrize("seed", [7, 13, 26])
def test_another_list_does_not_fit_saturated_lines(small: Small, seed: int) -> None:
    random = np.random.default_rng(seed)
    other = Lines(np.sort(random.uniform(6003, 6107, 14)), np.ones(14))
    with pytest.raises(BundleError, match=r"lines of the list are seen|lines have light"):
        fitted(small, saturated(small, [3, 6, 9, 12], 1e6), other)
