"""Two passes over a problem and over its mirror image: the same spectra, with and without tails of the spots."""
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from extraction import extracted, in_sigma, relative
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Frame
from gpu_extract.simulate import SimConfig, simulate
from gpu_extract.simulate.config import Defects
from test_relations import Problem, backwards, mirrored, reversed_bins

ROUNDED = 1e-8, 1e-9         # flux in sigma, relative ivar: as for one pass, see test_relations
# A mirror moves the grids of tails and the cubics between: doc/method.md, "Second-order effects"
ON_GRIDS = 2e-3, 1e-5


@cache
def problem(tails: float) -> Problem:
    """Two bundles with lines and unmasked hits."""
    made = simulate(SimConfig(camera="tiny", seed=3, tails=tails, defects=Defects(hidden_cosmics=True)))
    return replace(made.image, cards=()), made.psf, ExtractConfig((6020.4, 6089.25, 0.85), passes=2, any_psf=True)


@cache
def frame_of(tails: float) -> Frame:
    return extracted(*problem(tails))


@pytest.mark.parametrize(("tails", "limits"), [(0.0, ROUNDED), (0.01, ON_GRIDS)])
@pytest.mark.parametrize("change", [mirrored(0), mirrored(1), backwards], ids=["y", "x", "wavelength"])
def test_two_passes_in_a_mirror(change: Callable[[Problem], Problem], tails: float,
                                limits: tuple[float, float]) -> None:
    frame, other = frame_of(tails), extracted(*change(problem(tails)))
    other = reversed_bins(other) if change is backwards else other
    assert in_sigma(frame, other.flux).max() < limits[0]
    assert relative(other.ivar, frame.ivar).max() < limits[1]
    np.testing.assert_array_equal(other.mask, frame.mask)
    assert len(other.notes["rejected"]) == len(frame.notes["rejected"]) > 20
