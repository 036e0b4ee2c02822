"""Pads are measured: the resulting distance leaves less than the tolerance, and is not much too long."""
import re
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.linalg

import oracle
from extraction import extracted, linear, moved
from gpu_extract.checks import ideal
from gpu_extract.checks.probe import (
    FINE,
    SAFETY_CUT,
    SAFETY_PATCH,
    measure_decay,
    measure_neighbours,
    on_ccd,
    too_fine,
)
from gpu_extract.checks.psf_check import BEYOND
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Image
from gpu_extract.decorrelate.weak import HIDDEN
from gpu_extract.errors import InputError
from gpu_extract.io.psf import read_psf
from gpu_extract.kernels.arena import borrowed
from gpu_extract.normal import squared
from gpu_extract.plan import MOST_NEIGHBOURS, make_plan
from gpu_extract.run import extract, prepare
from gpu_extract.seams import Recorder
from gpu_extract.spots import add_to_image, centres, corners, make_spots, select

RANGE = (6050.0, 6114.0, 0.8)


def widened(psf, factor):
    """The same PSF with spots wider along wavelength."""
    core = replace(psf.cores[0], sigma_y=replace(psf.cores[0].sigma_y, coeff=factor * psf.cores[0].sigma_y.coeff))
    return replace(psf, cores=(core, *psf.cores[1:]))


@pytest.mark.parametrize("family", oracle.FAMILIES)
def test_pads_grow_with_what_is_asked_for(family):
    """Each ten times smaller tolerance needs some bins more, for x and for patches; patches need fewer."""
    psf = oracle.make_psf(family)
    decays = [measure_decay(psf, RANGE, tolerance) for tolerance in (1e-4, 1e-6, 1e-8)]
    for rough, fine in pairwise(decays):
        assert rough.beyond <= fine.beyond <= 120
        assert rough.patch <= fine.patch <= 100
    assert decays[0].beyond < decays[-1].beyond
    assert all(decay.patch <= decay.beyond for decay in decays)


@pytest.mark.parametrize("bins", [2, 192, 640, 2000])
def test_stretches_have_the_bins_of_the_range(bins):
    """As many bins as asked for, or as the PSF has, which ends half a bin beyond one on both sides."""
    psf, (first, last, step) = oracle.make_psf(), RANGE
    low, high = psf.wavelength_range
    for edge, (wave, place) in zip((first, last), ideal.windows(psf, RANGE, bins), strict=True):
        numbers = (wave - edge) / step
        assert np.abs(numbers - np.rint(numbers)).max() < 1e-9
        assert low <= wave[0] and wave[-1] <= high
        assert len(wave) == min(bins, int((high - low) / step))
        end, quarter = int(np.abs(wave - edge).argmin()), len(wave) // 4
        assert place == min(max(end, quarter), len(wave) - 1 - quarter)


def test_broad_spots_ask_for_more():
    psf = oracle.make_psf("v3")
    narrow, broad = (measure_decay(p, RANGE, 1e-6) for p in (psf, widened(psf, 1.5)))
    assert narrow.beyond < broad.beyond
    assert narrow.patch < broad.patch


@pytest.mark.parametrize(("family", "step", "lengths", "seen"), [
    ("v3", 0.8, [192], True), ("v3", 0.45, [192, 320], True), ("gh2", 0.5, [192, 320, 640], True),
    ("tails", 0.25, [192, 320, 640, 1280], False)])
def test_longer_stretches_are_asked_where_light_reaches_far(family, step, lengths, seen, monkeypatch):
    """The first stretch that contains all of the decay decides, or one with all bins of the PSF."""
    psf, asked, windows = oracle.make_psf(family), [], ideal.windows

    def noted(psf, wavelength, bins):
        asked.extend([bins] if bins > 2 else [])      # two bins distinguish the broadest fibre
        return windows(psf, wavelength, bins)

    monkeypatch.setattr(ideal, "windows", noted)
    found = measure_decay(psf, (6050.0, 6114.0, step), 1e-8)
    assert asked == lengths
    assert (found.beyond < lengths[-1] // 2) == seen


def test_what_is_carried_is_the_canonical_correlation():
    """Between the bins below 40 and those from 52 on: the norm of C_ww^-1/2 C_wo C_oo^-1/2, from the inverse of all."""
    psf = oracle.make_psf("v3")
    with borrowed() as arena:
        block = ideal.ideal(psf, (0, 1), 6050.0 + 0.6 * np.arange(100), arena, apart=True).icov[0, 0].copy()
    c, below, above = np.linalg.inv(squared(block)), slice(40), slice(52, None)
    roots = [scipy.linalg.inv(scipy.linalg.sqrtm(c[part, part])) for part in (below, above)]
    exact = np.linalg.norm(roots[0] @ c[below, above] @ roots[1], 2)
    # rounding of C is eps cond of its largest element, and the roots raise it by as much again
    assert abs(ideal.carried(block, 40, 12) - exact) < 10 * np.finfo(float).eps * np.linalg.cond(c)
    assert exact > 1e-4
    assert ideal.carried(block, 40, 60) == ideal.carried(block, 0, 12) == 0.0


def test_all_that_is_left_out_counts_together():
    """If bins are hardly distinguished, those beyond a pad together have a larger effect than C of one bin shows: BOSS
    spots at 0.8 Angstrom were off by 9.5e-8 sigma, and are by 1.6e-8 with 22 bins more."""
    psf, wavelength = oracle.make_psf("tails"), (6050.0, 6114.0, 0.5)
    found = measure_decay(psf, wavelength, 1e-8)
    for pad, limit in ((found.beyond, SAFETY_CUT * 1e-8), (found.patch, SAFETY_PATCH * 1e-8)):
        for wave, place in ideal.windows(psf, wavelength, 640):
            with borrowed() as arena:
                block = ideal.ideal(psf, (0, psf.nfibre), wave, arena, apart=True).icov[-1, 0].copy()
            assert ideal.carried(block, place + 1, pad) <= limit
            assert ideal.carried(block[::-1, ::-1], len(block) - place, pad) <= limit


@pytest.mark.parametrize("family", ["v3", "gh2"])
def test_one_broad_fibre_decides_wherever_it_is(family):
    """The pad of all is that of the broadest. Without this, that fibre was off by 3e-6 and 1e-7 sigma."""
    psf = oracle.make_psf(family, 9, (210, 100))
    broad = widened(select(psf, [5]), 1.5)
    coeff = psf.cores[0].sigma_y.coeff.copy()
    coeff[5] *= 1.5
    core = replace(psf.cores[0], sigma_y=replace(psf.cores[0].sigma_y, coeff=coeff))
    found, alone = (measure_decay(p, RANGE, 1e-8) for p in (replace(psf, cores=(core, *psf.cores[1:])), broad))
    assert found.beyond >= alone.beyond > measure_decay(psf, RANGE, 1e-8).beyond
    assert found.patch >= alone.patch


def test_neighbours_by_their_distance():
    """Fibres far apart need the fewest; closer ones more, up to the limit."""
    psf = oracle.make_psf("v3")
    counts = []
    for pitch in (12.0, 7.3, 5.0):
        coeff = psf.x.coeff.copy()
        coeff[:, 0] = 20.0 + pitch * np.arange(psf.nfibre)
        counts.append(measure_neighbours(replace(psf, x=replace(psf.x, coeff=coeff)), RANGE, 1e-8))
    assert 1 <= counts[0] <= counts[1] <= counts[2] <= MOST_NEIGHBOURS
    assert counts[0] < counts[2]


def test_one_fibre_and_few_bins():
    """The smallest problem also has a pad."""
    psf = oracle.make_psf("v3", 1)
    core = replace(psf.cores[0], sigma_x=linear([[1.1]]))
    decay = measure_decay(replace(psf, cores=(core,)), (6050.0, 6051.0, 0.5), 1e-6)
    assert 0 < decay.beyond < 100


def test_a_pad_is_as_long_as_the_decay_asks_for(shared):
    """The red end of a broad PSF in fine steps: 314 bins. Twice as many change no flux by more than the tolerance."""
    psf = select(read_psf(shared / "data" / "psf" / "psf-gausshermite2-boss.fits"), range(2))
    config = ExtractConfig(wavelength=(9050.0, 9058.0, 0.8), core="dense")
    image = lines(psf, np.arange(8610.0, 9498.0, 0.8))
    frame = extracted(image, psf, config)
    longer = extracted(image, psf, replace(config, tolerance=1e-14))
    assert longer.notes["pad"] > 1.5 * frame.notes["pad"] > 400
    assert np.abs((frame.flux - longer.flux) * np.sqrt(longer.ivar)).max() < config.tolerance


def slanted(rows: float, pitch: float = 5.0):
    """The broad PSF with close fibres, each trace this many rows higher than the one before."""
    psf = oracle.make_psf("gh2", 3, (460, 56), first_row=180)
    x, y = psf.x.coeff.copy(), psf.y.coeff.copy()
    x[:, 0], y[:, 0] = 20.0 + pitch * np.arange(3), y[:, 0] + rows * np.arange(3)
    return replace(psf, x=replace(psf.x, coeff=x), y=replace(psf.y, coeff=y))


def test_neighbours_in_other_rows_ask_for_a_longer_pad():
    """Bins of the next fibre 28 bins beyond the end are beside the last one: the oracle includes them."""
    config = ExtractConfig(wavelength=(6050.0, 6081.0, 0.8), core="dense")
    case = oracle.make_case(slanted(20.0), config, pad=170)
    frame = extracted(case.image, case.psf, config)
    reference = oracle.oracle_extract(case.image, case.psf, config, pad=150)
    assert oracle.sigma_difference(frame, reference).max() < config.tolerance       # 1e-3 with the pad of one fibre


def test_a_slant_counts_by_how_strongly_fibres_are_correlated():
    """Not at all if traces begin in the same rows or do not reach each other; the more the closer they are."""
    straight, far, near = (measure_decay(slanted(*at), RANGE, 1e-8) for at in ((0, 5.0), (20.0, 40.0), (20.0, 5.0)))
    assert straight.aslant == far.aslant == 0 < near.aslant
    assert straight.aslant <= measure_decay(slanted(20.0, 9.0), RANGE, 1e-8).aslant < near.aslant
    assert near.patch > straight.patch
    assert measure_decay(slanted(-20.0), RANGE, 1e-8).aslant > 0
    # the first two do not overlap
    assert measure_decay(select(slanted(20.0, 12.0), [0, 2, 1]), RANGE, 1e-8).aslant > 0


def lines(psf, wave) -> Image:
    """Some hundred photons per bin, lines of up to 3000, and 3 e of read noise."""
    rng = np.random.default_rng(3)
    photons = 100 * (1 + 0.3 * np.sin(wave / 7)) * np.ones((psf.nfibre, 1))
    for centre in rng.uniform(wave[0], wave[-1], len(wave) // 12):
        photons = photons + rng.uniform(100, 3000) * np.exp(-(((wave - centre) / 0.7) ** 2) / 2)
    clean = np.zeros(psf.shape)
    add_to_image(clean, make_spots(psf, (0, psf.nfibre), wave), photons)
    variance = clean + 9.0
    return Image(clean + rng.normal(size=psf.shape) * np.sqrt(variance), 1 / variance)


def test_nothing_is_solved_for_off_the_ccd():
    """Beyond both ends as far as some fibre's spot touches the CCD, and no bin farther."""
    config = ExtractConfig(wavelength=(6050.0, 6098.0, 0.8))
    for dy, ends in ((0.0, (True, False)), (50.0, (False, False)), (100.0, (False, True))):
        psf = moved(oracle.make_psf("v3", 5), dy, 0.0, (300, 56))
        whole = make_plan(psf, config, 60)
        cut = on_ccd(psf, whole)
        np.testing.assert_array_equal(cut.extended[cut.inner], whole.extended[whole.inner])
        seen = touched(psf, whole.extended)
        first, last = np.nonzero(seen)[0][[0, -1]]
        first, last = min(first, whole.inner.start), max(last + 1, whole.inner.stop)
        np.testing.assert_array_equal(cut.extended, whole.extended[first:last])
        assert (first > 0, last < len(whole.extended)) == ends
        assert prepare(psf, config).plan.extended[0] >= cut.extended[0]


@pytest.mark.parametrize("dy", [-100.0, 200.0])
def test_what_was_asked_for_is_solved_for_off_the_ccd(dy):
    """However many of the requested bins are off the CCD for all fibres, at either end."""
    psf = moved(oracle.make_psf("v3", 5), dy, 0.0, (300, 56))
    whole = make_plan(psf, ExtractConfig(wavelength=(6050.0, 6098.0, 0.8)), 60)
    seen, cut = touched(psf, whole.extended), on_ccd(psf, whole)
    assert not seen[whole.inner][[0, -1]].all() and seen[whole.inner].any()
    np.testing.assert_array_equal(cut.extended[cut.inner], whole.extended[whole.inner])


def touched(psf, wave):
    """Whether a pixel of some fibre's spot is on the CCD."""
    y0, x0 = corners(psf, centres(psf, (0, psf.nfibre), wave))
    seen = np.zeros(len(wave), dtype=bool)
    for y, x in zip(y0, x0, strict=True):
        seen |= (y + psf.stamp[0] > 0) & (y < psf.shape[0]) & (x + psf.stamp[1] > 0) & (x < psf.shape[1])
    return seen


def test_the_psf_is_looked_at_as_far_as_the_pad_reaches():
    """A fibre whose width falls below 0 beyond the first check, within a longer pad, is dropped."""
    psf = oracle.make_psf("gh2", 5, first_row=-20, shape=(400, 60))
    wavelength = (6180.0, 6190.0, 0.5)
    assert measure_decay(psf, wavelength, 1e-8).beyond > 220 > BEYOND
    width = psf.cores[0].sigma_y.coeff.copy()
    width[1] = 1.0, 1.0 / 0.27, 0.0, 0.0        # 0 at u = -0.27: 6073 Angstrom, 214 bins below the range
    bad = replace(psf, cores=(replace(psf.cores[0], sigma_y=replace(psf.cores[0].sigma_y, coeff=width)), psf.cores[1]))
    assert prepare(psf, ExtractConfig(wavelength=wavelength)).dropped == {}
    assert list(prepare(bad, ExtractConfig(wavelength=wavelength)).dropped) == [1]


@pytest.mark.parametrize("measure", [measure_decay, measure_neighbours])
def test_bins_that_cannot_be_told_from_each_other(measure):
    """Steps of a twentieth of a pixel under spots of one pixel: reported with the step and the remedy."""
    psf = oracle.make_psf(oracle.FAMILIES[0])
    with pytest.raises(InputError, match=r"bins of 0.02 Angstrom cannot be told from each other.*larger step \(-w\)"):
        measure(psf, (6050.0, 6058.0, 0.02), 1e-8)


def test_a_step_that_hides_every_bin_is_told_before_the_work():
    """Steps that good pixels resolve give no warning; the suggested step is just one of them."""
    psf = oracle.make_psf("v3")
    for step in (0.4, 0.8, 2.0):
        wavelength = 6050.0, 6114.0, step
        assert too_fine(psf, measure_decay(psf, wavelength, 1e-8), wavelength, 1e-8, HIDDEN) == ""
    wavelength = 6050.0, 6114.0, 0.16
    said = too_fine(psf, measure_decay(psf, wavelength, 1e-8), wavelength, 1e-8, HIDDEN)
    assert said.startswith("bins of 0.16 Angstrom are too narrow for this PSF")
    suggested = float(re.search(r"use a step of ([\d.]+) or more", said)[1])
    hidden = [measure_decay(psf, (6050.0, 6114.0, step), 1e-8).hidden for step in (suggested / 1.3, suggested)]
    assert hidden[1] < 1.2 * FINE < hidden[0]

    class Told(Exception):
        pass

    class Listening(Recorder):
        def warn(self, sentence):
            raise Told(sentence)

    image = Image(np.ones((100, 60)), np.ones((100, 60)))
    with pytest.raises(Told, match="too narrow"):
        extract(image, psf, ExtractConfig(wavelength=wavelength, any_psf=True), recorder=Listening())


@pytest.mark.parametrize("half_band", [1, 2, 5])
def test_banded_systems_are_solved_as_by_scipy(half_band: int) -> None:
    rng = np.random.default_rng(half_band)
    lower, b = rng.uniform(-1.0, 1.0, (half_band + 1, 40)), rng.normal(size=40)
    lower[0] = 2.0 * half_band + 1.0
    assert (ideal._solved(lower, b) == scipy.linalg.solveh_banded(lower, b, lower=True)).all()
    for wrong in (-1.0, np.nan, np.inf):
        bad = lower.copy()
        bad[0, 7] = wrong
        with pytest.raises(np.linalg.LinAlgError):
            ideal._solved(bad, b)


@pytest.mark.parametrize("share", [1e-8, 1e-60, 1e-90, 1e-170, 1e-300])
def test_fibres_of_which_next_to_nothing_meets(share):
    """The correlation is as small as their coupling, down to 0, although its square underflows."""
    own = np.tile([0.0, 0.2, 1.0, 0.2, 0.0], (60, 1))
    sums = SimpleNamespace(icov=np.array([[own, np.full_like(own, share)], [own, np.zeros_like(own)]]))
    assert 0 <= ideal.correlation(sums, 1) < 10 * share
    assert share < 1e-80 or ideal.correlation(sums, 1) > share
