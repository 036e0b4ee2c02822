"""Pads are measured: the distance they give leaves less than was asked for, and little more is taken."""
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import oracle
from extraction import linear
from gpu_extract import probe
from gpu_extract.plan import MOST_NEIGHBOURS, MOST_PADDING
from gpu_extract.probe import measure_decay, measure_neighbours

RANGE = (6050.0, 6114.0, 0.8)


def widened(psf, factor):
    """The same PSF with spots wider along wavelength."""
    core = replace(psf.cores[0], sigma_y=replace(psf.cores[0].sigma_y, coeff=factor * psf.cores[0].sigma_y.coeff))
    return replace(psf, cores=(core,))


@pytest.mark.parametrize("family", oracle.FAMILIES)
def test_pads_grow_with_what_is_asked_for(family):
    """Each ten times smaller tolerance asks for some bins more, for x and for patches; patches need fewer."""
    psf = oracle.make_psf(family)
    decays = [measure_decay(psf, RANGE, tolerance) for tolerance in (1e-4, 1e-6, 1e-8)]
    for rough, fine in pairwise(decays):
        assert rough.beyond <= fine.beyond <= MOST_PADDING
        assert rough.patch <= fine.patch <= MOST_PADDING
    assert decays[0].beyond < decays[-1].beyond
    assert all(decay.patch <= decay.beyond for decay in decays)


def test_broad_spots_ask_for_more():
    psf = oracle.make_psf("v3")
    narrow, broad = (measure_decay(p, RANGE, 1e-6) for p in (psf, widened(psf, 1.5)))
    assert narrow.beyond < broad.beyond
    assert narrow.patch < broad.patch


@pytest.mark.parametrize(("step", "decides"), [(0.8, 0), (0.4, 1)])
def test_the_longer_stretch_is_asked_where_light_reaches_far(step, decides, monkeypatch):
    """Of the two stretches the first in which all of the decay is seen decides."""
    psf, wavelength, windows = oracle.make_psf("v3"), (6050.0, 6114.0, step), probe.WINDOWS
    found = measure_decay(psf, wavelength, 1e-6)
    assert (found.beyond < windows[0] // 2) == (decides == 0)
    for n, window in enumerate(windows):
        monkeypatch.setattr(probe, "WINDOWS", (window,))
        assert (measure_decay(psf, wavelength, 1e-6) == found) == (n == decides)


def test_neighbours_by_their_distance():
    """Fibres far apart need the fewest; closer ones more, up to what is allowed."""
    psf = oracle.make_psf("v3")
    counts = []
    for pitch in (12.0, 7.3, 5.0):
        coeff = psf.x.coeff.copy()
        coeff[:, 0] = 20.0 + pitch * np.arange(psf.nfibre)
        counts.append(measure_neighbours(replace(psf, x=replace(psf.x, coeff=coeff)), RANGE, 1e-8))
    assert 1 <= counts[0] <= counts[1] <= counts[2] <= MOST_NEIGHBOURS
    assert counts[0] < counts[2]


def test_one_fibre_and_few_bins():
    """The smallest problem has a pad too."""
    psf = oracle.make_psf("v3", 1)
    core = replace(psf.cores[0], sigma_x=linear([[1.1]]))
    decay = measure_decay(replace(psf, cores=(core,)), (6050.0, 6051.0, 0.5), 1e-6)
    assert 0 < decay.beyond <= MOST_PADDING
