"""Arcs of fibres with their own wavelengths: the same fit in their common coordinate."""
from dataclasses import replace

import numpy as np
import pytest
from small_arc import FIBRES, Small, echelle

from gpu_extract.data import PsfModel
from gpu_psf.data import FitConfig, Lines
from gpu_psf.fit import fit_bundle
from gpu_psf.own_lines import coordinates, own_lines, wavelengths
from gpu_psf.pairs import find_pairs
from gpu_psf.prepare import psf_of
from gpu_psf.run import fit_psf
from gpu_psf.sound import BundleError
from gpu_psf.stamps import make_stamps


def listed(small: Small, start: PsfModel) -> Lines:
    """The wavelengths of the small arc's lines in all of the fibres."""
    wave = np.sort(np.concatenate([wavelengths(start, np.full(len(small.lines.wave), n), small.lines.wave)
                                   for n in range(*FIBRES)]))
    return Lines(wave, np.ones(len(wave)))


def test_coordinates_and_wavelengths_are_inverse(small: Small) -> None:
    start = echelle(small.start)
    at = np.linspace(start.wavelength_range[0] + 1, start.wavelength_range[1] - 1, 40)
    found = coordinates(start, 3, wavelengths(start, np.full(40, 3), at))
    np.testing.assert_allclose(found, at, rtol=1e-12)
    assert np.isnan(coordinates(start, 3, at)).all()          # those are another fibre's
    assert own_lines(small.lines, small.start) is small.lines


def test_the_fit_is_that_of_the_common_coordinate(small: Small) -> None:
    """The equations are the same, in another order: steps end within the last one's gain, a thousandth of an error."""
    start = echelle(small.start)
    fit = fit_bundle([small.arc], start, FIBRES, own_lines(listed(small, start), start), FitConfig())
    assert len(fit.task.spots) == len(small.fit.task.spots)
    assert fit.status.tolist() == small.fit.status.tolist() and fit.nline.tolist() == small.fit.nline.tolist()
    assert fit.state.chi2 == pytest.approx(small.fit.state.chi2, rel=1e-3)
    np.testing.assert_allclose(fit.state.now.x @ np.ones(7), small.fit.state.now.x @ np.ones(7), atol=2e-3)
    own = psf_of(fit.frame, fit.state.now).own
    assert own is not None and len(own.coeff) == 5


def test_files_name_the_fibres_own_wavelengths(small: Small) -> None:
    start = echelle(small.start)
    found = fit_psf([small.arc], start, listed(small, start), FitConfig(degree_gh=1, nspec=1))
    assert found is not None and found.psf.own is not None
    factor = 1 + found.spots["FIBER"] / 10
    at = found.spots["WAVELENGTH"] / factor
    assert ((at > small.true.x.wmin - 2) & (at < small.true.x.wmax + 2)).all()
    assert set(found.spots["FIBER"]) == set(range(5)) and len(found.spots) == len(small.fit.task.spots)


def test_spots_share_light_though_lines_of_other_fibres_stand_between(small: Small) -> None:
    """Lines 0, 1 and 2 in the same row on fibres 0, 4 and 1: the first and the last share light."""
    spots = small.fit.task.spots
    chosen = np.flatnonzero(np.isin(spots.fibre, (0, 4, 1)) & (spots.line == spots.line[0]))
    cut = spots.cut(chosen[[0, 2, 1]])
    cut = replace(cut, line=np.arange(3))
    assert cut.fibre.tolist() == [0, 4, 1]
    stamps = make_stamps(small.fit.frame, cut, small.fit.state.now, small.fit.task.pixels)
    found = [(int(a), int(b)) for p in find_pairs(cut, stamps)[1:] for a, b in zip(p.first, p.second, strict=True)]
    assert found == [(0, 2)]


def test_a_line_is_seen_where_one_of_its_fibres_shows_it(small: Small) -> None:
    """Two fibres are dark, and the list has less than half of the light: each line is seen on three of five fibres."""
    start = echelle(small.start)
    every = own_lines(listed(small, start), start)
    number = np.searchsorted(small.lines.wave, every.wave - 1e-6)       # common to all fibres
    few = (number > 0) & (number < 8)         # the first is at the edge
    alone = Lines(every.wave[few], every.strength[few], (every.fibre if every.fibre is not None else number)[few],
                  np.arange(few.sum()))
    dark = small.arc.pix.copy()
    dark[:, :24] = 0
    arc = replace(small.arc, pix=dark)
    fit_bundle([arc], start, FIBRES, replace(alone, listed=number[few]), FitConfig(degree_gh=1))
    with pytest.raises(BundleError, match="lines of the list are seen"):
        fit_bundle([arc], start, FIBRES, alone, FitConfig(degree_gh=1))
