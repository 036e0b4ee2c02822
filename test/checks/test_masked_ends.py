"""Longer pads if masks leave little of the cores of a fibre's spots."""
from dataclasses import replace

import numpy as np
import pytest
from problems import make_of_pads

import oracle
from extraction import extracted
from gpu_extract.checks import masked_ends
from gpu_extract.checks.masked_ends import beside_masks
from gpu_extract.checks.probe import Decay, measure_decay
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Image, SpecMask
from gpu_extract.oracle import design_matrix
from gpu_extract.spots import add_to_image, centres, make_spots


def test_masked_cores_ask_for_a_longer_pad():
    """A column masked along a trace at the end of the range leaves wings, which reach farther; masks that leave enough
    change nothing: cosmics, fibres without any pixel, or a column elsewhere."""
    psf = oracle.make_psf("tails", 5, (460, 56), first_row=130)
    wavelength, good = (6088.0, 6112.0, 0.8), np.ones(psf.shape)
    decay = measure_decay(psf, wavelength, 1e-8)

    def pad(ivar):
        found = beside_masks(decay, Image(np.zeros(psf.shape), ivar), psf, wavelength, 1e-8)
        assert found.patch == decay.patch
        return found.beyond

    def column(half):
        y, x = (np.rint(c[2]).astype(int) for c in centres(psf, (0, 5), np.linspace(*psf.wavelength_range, 3000)))
        ivar, on = good.copy(), (y >= 0) & (y < psf.shape[0])
        for there in x + np.arange(-half, half + 1)[:, None]:
            ivar[y[on], there[on]] = 0.0
        return ivar

    assert pad(good) == pad(good * (np.random.default_rng(1).random(psf.shape) > 0.1)) == decay.beyond
    assert pad(column(0)) == pad(column(2)) == decay.beyond
    assert pad(column(4)) > 1.5 * decay.beyond
    assert pad(0 * good) == decay.beyond
    for illegal in (np.nan, np.inf, -1.0):      # refused elsewhere, with its own message
        assert pad(np.where(column(4) > 0.0, illegal, 0.0)) == decay.beyond


@pytest.mark.parametrize(("columns", "found"), [
    ((-2, -1, 0, 1, 2), [2]), ((0,), [2]), ((-1, 1), [2]), ((1, 2), []), ((-2, -1), [])])
def test_the_light_of_cores_is_looked_at(columns, found):
    """A fibre counts if its cores have lost more than a quarter of their light: the middle column, or both beside."""
    psf = oracle.make_psf(nfibre=5, shape=(364, 60), first_row=14)
    y, x = (place[2] for place in np.rint(centres(psf, (0, 5), np.arange(6002.0, 6198.0, 0.1))).astype(int))
    ivar = np.ones(psf.shape)
    for column in columns:
        ivar[y, x + column] = 0.0
    image = Image(np.zeros(psf.shape), ivar)
    assert masked_ends._hidden_fibres(psf, (6060.0, 6140.0, 0.8), Decay(40, 30), image) == [found, found]


@pytest.mark.parametrize(("family", "nfibre", "step", "core"), [("v3", 3, 0.8, "dense"), ("tails", 1, 0.5, "auto")])
def test_little_that_tells_asks_for_a_longer_pad(family, nfibre, step, core):
    """No core is wholly masked if every second row is (the first case), or if errors vary by a hundred from pixel to
    pixel; light from beyond the pad of good pixels still reaches the ends: bins are those of a longer range.

    The dense core needs no kernels that only these masks ask for.
    """
    psf = oracle.make_psf(family, nfibre)
    wave, rng = np.arange(*psf.wavelength_range, step), np.random.default_rng(5)
    photons = 300 * (1 + 0.3 * np.sin(np.arange(len(wave)) / 7)) * np.ones((nfibre, 1))
    clean = np.zeros(psf.shape)
    add_to_image(clean, make_spots(psf, (0, nfibre), wave), photons)
    ivar = 1 / (clean + 9.0)
    if nfibre == 1:
        ivar *= 10.0 ** rng.uniform(-4.0, 0.0, psf.shape)
    pix = clean + rng.normal(size=psf.shape) / np.sqrt(ivar)
    if nfibre > 1:
        ivar[1::2] = 0.0
    ranges = ((6096.0 - bins * step, 6096.0 + bins * step, step) for bins in (12, 72))
    frame, longer = (extracted(Image(pix, ivar), psf, ExtractConfig(grid, core=core)) for grid in ranges)
    inner = longer.flux[:, 60:-60], longer.ivar[:, 60:-60]
    told = ((frame.mask | longer.mask[:, 60:-60]) & np.uint32(SpecMask.WEAKBIN | SpecMask.NODATA)) == 0
    assert told.mean() > 0.4
    # with the pads of good pixels 2e-5 and 1e-7
    assert (np.abs(frame.flux - inner[0]) * np.sqrt(inner[1]))[told].max() < 1e-8


@pytest.mark.parametrize(("seed", "least"), [pytest.param(3300673, 160, marks=pytest.mark.slow),
                                             pytest.param(3300930, 135, marks=pytest.mark.slow), (3300999, 80)])
def test_bins_that_are_hardly_told_from_others_are_measured_with_the_pixels_that_there_are(seed, least):
    """Where the other bins raise the variance of each by more than a hundred, a few masked rows, cosmics, or lines
    alone, leave the pad of good pixels 2.4e-6, 5.3e-8 and 3.7e-8 sigma; the least pads leave less than 1e-8."""
    problem = make_of_pads(seed)
    wavelength, tolerance = problem.config.wavelength, problem.config.tolerance
    decay = measure_decay(problem.psf, wavelength, tolerance)
    assert decay.hidden > masked_ends.HARD and decay.beyond < least
    assert beside_masks(decay, problem.image, problem.psf, wavelength, tolerance).beyond >= least
    told = replace(decay, hidden=masked_ends.HARD)
    assert beside_masks(told, problem.image, problem.psf, wavelength, tolerance).beyond == decay.beyond


def test_the_middle_and_the_darkest_fibre_are_measured_where_bins_are_hardly_told_from_others():
    psf = oracle.make_psf(nfibre=5, shape=(364, 60), first_row=14)
    y, x = (int(place[4, 0]) for place in centres(psf, (0, 5), np.array([6106.0])))
    ivar = np.ones(psf.shape)
    ivar[y - 2:y + 3, x] = 0.0
    image, hard = Image(np.zeros(psf.shape), ivar), Decay(40, 30, hidden=101.0)
    assert masked_ends._hidden_fibres(psf, (6080.0, 6100.0, 0.8), hard, image)[1] == [2, 4]
    assert masked_ends._hidden_fibres(psf, (6080.0, 6100.0, 0.8), replace(hard, hidden=99.0), image) == [[], []]


@pytest.mark.parametrize("way", [-1, 1])
def test_what_pixels_tell_of_bins_beyond_is_measured_as_by_the_oracle(way):
    """C of all fibres that take part, each bin in its own errors, by a dense inverse: for the bins of the fibre inside
    the range, the largest of any fibre's bins at every distance and farther."""
    psf, wave, place, fibre = oracle.make_psf("v3", 6), 6090.0 + 0.8 * np.arange(60), 30, 1
    ivar = np.random.default_rng(2).uniform(0.5, 2.0, psf.shape)
    ivar[::3] = 0.0
    found = masked_ends._as_seen(psf, fibre, wave, place, way, Image(np.zeros(psf.shape), ivar))
    design = design_matrix(psf, range(4), wave, psf.shape)
    icov = (design.T @ design.multiply(ivar.reshape(-1, 1))).toarray()
    root = np.sqrt(icov.diagonal())
    c = np.linalg.inv(icov / np.outer(root, root)).reshape(4, 60, 4, 60)
    inside = [place - way * n for n in (0, 4, 8)]
    shares = np.max([np.abs(c[:, :, fibre, n]) / c[fibre, n, fibre, n] for n in inside], axis=(0, 1))[place::way]
    np.testing.assert_allclose(found, [shares[n:].max() for n in range(len(shares))], rtol=1e-6)


def test_a_masked_block_beside_the_end_is_looked_at():
    """Some rows masked in a pad of a hundred bins: little of the light of all cores, all of that of a few."""
    psf = oracle.make_psf(nfibre=5, shape=(364, 60), first_row=14)
    y, x = (int(place[3, 0]) for place in centres(psf, (0, 5), np.array([6106.0])))
    ivar = np.ones(psf.shape)
    ivar[y - 7:y + 8, x - 2:x + 3] = 0.0
    image = Image(np.zeros(psf.shape), ivar)
    assert masked_ends._hidden_fibres(psf, (6080.0, 6100.0, 0.8), Decay(112, 90), image)[1] == [3]
