"""The dense core's patches: as large as light reaches, and no larger."""
import numpy as np
import pytest

from decorrelate.cases import make_bundle
from gpu_extract.data import Status
from gpu_extract.decorrelate import dense
from gpu_extract.decorrelate.dense import patches
from gpu_extract.decorrelate.weak import told_factor

NWAVE, PAD, STEP, NDIAG = 300, 30, 50, 5
CUTS = dense.Cuts(slice(0, NWAVE), STEP, PAD, 1, 1e-8)


@pytest.fixture
def stretches(monkeypatch):
    """The ranges of bins for which factors are made."""
    asked = []
    factor = patches.factor_of

    def noted(normal, order, waves):
        asked.append(waves)
        return factor(normal, order, waves)
    for module in (dense, patches):
        monkeypatch.setattr(module, "factor_of", noted)
    return asked


def test_patches_of_good_pixels_are_as_they_were_cut(stretches):
    """Also those at both ends of all bins, beyond which there is nothing. They grow once at most: the pad here is not
    measured."""
    case = make_bundle(3, NWAVE)
    part = dense.decorrelate(case.normal, case.x, (1, 2), ndiag=NDIAG, cuts=CUTS)
    assert (part.status == Status.GOOD).all() and not part.weak.any()
    assert max(last - first for first, last in stretches) <= STEP + 4 * PAD
    assert {(0, STEP + PAD), (NWAVE - STEP - PAD, NWAVE)} <= set(stretches)


def test_patches_grow_where_their_own_covariance_reaches_their_ends(stretches):
    """A column through the trace halves the pixels: the result is that of the whole fibre, to 1e-8 sigma, unlike with a
    pad of two bins."""
    case = make_bundle(1, 160, mask="column")
    cuts = dense.Cuts(slice(0, 160), STEP, 2, 1, 1e-8)
    part = dense.decorrelate(case.normal, case.x, (0, 1), ndiag=NDIAG, cuts=cuts)
    assert error(case, part).max() < 1e-7
    assert max(last - first for first, last in stretches) > STEP + 4 * 2


def error(case, part):
    """The flux of fibre 0 in sigma, relative to that from the whole fibre."""
    root = case.oracle(0).q
    sums = root.sum(axis=1)
    return np.abs(part.flux[0] * sums - root @ case.x[0])


@pytest.mark.parametrize(("doubtful", "expected"), [(False, [(0, 160)]), (True, [(0, 160), (0, 40), (40, 80), (80, 120),
                                                                               (120, 160)])])
def test_parts_with_long_pads_are_made_at_once(doubtful, expected, monkeypatch):
    """Or one by one if icov does not suffice for all of them: as far as their own pads reach, with the same result."""
    parts = []

    def cancels(one, part, factor):
        parts.append(part.waves)
        return doubtful and part.waves[1] - part.waves[0] > 40
    monkeypatch.setattr(dense, "_cancels", cancels)
    case = make_bundle(1, 160, mask="column")
    cuts = dense.Cuts(slice(0, 160), 40, 160, 1, 1e-8)
    part = dense.decorrelate(case.normal, case.x, (0, 1), ndiag=NDIAG, cuts=cuts)
    assert parts == expected
    assert (part.status == Status.GOOD).all() and error(case, part).max() < 1e-7


def test_correlations_with_the_ends_of_a_patch():
    """Of the middle fibre's kept bins with the first and the last bin of each fibre, from the inverse itself."""
    case = make_bundle(3, 60)
    factor = told_factor(case.normal.icov, (0, 3), (0, 60))
    places = np.arange(180).reshape(60, 3)
    covariance = factor.solve(np.eye(180))
    sigma = np.sqrt(covariance.diagonal())
    correlation = np.abs(covariance / sigma / sigma[:, None])[:, places[25:30, 1]]
    found = patches._at_ends(case.normal, factor, patches._columns(factor, places[25:30, 1]), places, (0, 3), (0, 60))
    assert found == pytest.approx([correlation[:3].max(), correlation[-3:].max()], rel=1e-6)
