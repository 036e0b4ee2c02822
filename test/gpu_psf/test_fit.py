"""The fit of a bundle against the truth, and faults of arcs, line lists and starting PSFs."""
from dataclasses import replace

import numpy as np
import pytest
from psf_errors import READ_NOISE, Errors, cold, least_errors, make_arc, moved
from small_arc import FIBRES, Small

from gpu_extract.data import Array, Image
from gpu_extract.errors import InputError
from gpu_extract.simulate.frame import project_lines
from gpu_psf.begin import unsaturated
from gpu_psf.data import FitConfig, Lines
from gpu_psf.fit import Fit, fit_bundle
from gpu_psf.prepare import cut_out, parameters_of, psf_of
from gpu_psf.prior import ALONE
from gpu_psf.run import SPOTS, _quality, _spots, fit_psf
from gpu_psf.sound import BundleError, arcs_apart, check_cores, check_error, check_reach, check_spots
from gpu_psf.status import Status


def errors(small: Small, fit: Fit) -> Errors:
    return small.judge.errors(psf_of(fit.frame, fit.state.now))


def bound(small: Small) -> Errors:
    """Root mean squares of the errors that noise must leave."""
    found = least_errors(small.fit, small.true, small.judge)
    return Errors(*(float(np.sqrt(np.mean([getattr(each, name) ** 2 for each in found])))
                    for name in Errors.__dataclass_fields__))


def arc_of(small: Small, share: Array, seed: int = 1) -> Image:
    """An arc whose fibres transmit these shares of the light."""
    light = np.zeros(small.true.shape)
    project_lines(light, small.true, FIBRES, small.lines.wave, share[:, np.newaxis] * small.lines.strength)
    random = np.random.default_rng(seed)
    pix = random.poisson(light) + READ_NOISE * random.standard_normal(light.shape)
    return Image(pix, 1 / (light + READ_NOISE**2), noise=np.full(light.shape, READ_NOISE))


def test_a_cold_start_ends_where_noise_allows(small: Small) -> None:
    """One bundle has 75 spots, so its errors scatter by 20 % around the bound; 1.6 times the bound is three times
    that."""
    least, found = bound(small), errors(small, small.fit)
    for name in ("x", "y", "stamp", "shape"):
        assert getattr(found, name) < 1.6 * getattr(least, name), name
    assert abs(found.width_x) < 4 * least.width_x
    assert abs(found.width_y) < 4 * least.width_y
    freedom = small.fit.state.npixel - len(small.fit.task.spots)
    assert small.fit.state.chi2 / freedom == pytest.approx(1, abs=0.06)
    assert (small.fit.status == Status.FITTED).all()


def test_without_noise_the_truth_is_found(small: Small) -> None:
    arc = make_arc(small.true, FIBRES, (small.lines.wave, small.lines.strength), 1, noise=False)
    found = errors(small, fit_bundle([arc], small.start, FIBRES, small.lines, FitConfig()))
    least = bound(small)
    # what the prior and the last, negligible steps leave is far below the noise
    assert found.x < 0.4 * least.x
    assert found.y < 0.4 * least.y
    assert found.shape < 0.5 * least.shape


def test_two_arcs_say_more_than_one(small: Small) -> None:
    other = make_arc(small.true, FIBRES, (small.lines.wave, small.lines.strength), 2)
    both = fit_bundle([small.arc, other], small.start, FIBRES, small.lines, FitConfig())
    assert len(both.task.spots) == 2 * len(small.fit.task.spots)
    assert errors(small, both).stamp < errors(small, small.fit).stamp


@pytest.mark.parametrize("off", [(3.0, 5.0), (-3.0, -5.0)])
def test_traces_that_are_off(small: Small, off: tuple[float, float]) -> None:
    fit = fit_bundle([small.arc], cold(small.true, 3, off, 0.1), FIBRES, small.lines, FitConfig())
    assert errors(small, fit).stamp == pytest.approx(errors(small, small.fit).stamp, rel=0.2)


def test_cosmic_rays_that_nobody_masked(small: Small) -> None:
    random = np.random.default_rng(8)
    hit = random.random(small.arc.pix.shape) < 0.005
    pix = small.arc.pix.copy()
    pix[hit] += 100 + random.exponential(2000, hit.sum())
    fit = fit_bundle([replace(small.arc, pix=pix)], small.start, FIBRES, small.lines, FitConfig())
    assert errors(small, fit).stamp < 1.3 * errors(small, small.fit).stamp


def test_dead_and_faint_fibres_are_flagged_and_follow_the_others(small: Small) -> None:
    start = cold(small.true, 3, rough=0.1)
    fit = fit_bundle([arc_of(small, np.array([1.0, 1.0, 0.0, 1.0, 0.05]))], start, FIBRES, small.lines, FitConfig())
    assert fit.status.tolist() == [0, 0, Status.INTERPOLATED, 0, 0]
    assert fit.nline[2] == 0
    wave = np.linspace(-0.9, 0.9, 9)
    basis = np.polynomial.legendre.legvander(wave, 6)
    for fitted, true in ((fit.state.now.x, small.true.x.coeff[:5]), (fit.state.now.y, small.true.y.coeff[:5])):
        apart = np.abs((fitted - true) @ basis.T)
        assert apart[2].max() < ALONE[0]
        assert apart[[0, 1, 3]].max() < 0.2


def test_a_masked_half_costs_that_half_alone(small: Small) -> None:
    ivar = small.arc.ivar.copy()
    ivar[:96, :27] = 0                    # the first two fibres, below the middle
    fit = fit_bundle([replace(small.arc, ivar=ivar)], small.start, FIBRES, small.lines, FitConfig())
    assert fit.status.tolist() == [1, 1, 0, 0, 0]
    whole, now = small.fit.state.now, fit.state.now
    assert np.abs(now.x[2:, :3] - whole.x[2:, :3]).max() < 0.05


def test_what_masked_pixels_hold_changes_no_bit(small: Small) -> None:
    ivar, random = small.arc.ivar.copy(), np.random.default_rng(4)
    ivar[random.random(ivar.shape) < 0.01] = 0
    arcs = [replace(small.arc, ivar=ivar, pix=np.where(ivar > 0, small.arc.pix, held))
            for held in (-7.0, random.choice([5e4, np.nan, -np.inf], ivar.shape))]
    one, other = (fit_bundle([arc], small.start, FIBRES, small.lines, FitConfig()) for arc in arcs)
    np.testing.assert_array_equal(one.state.now.vector(), other.state.now.vector())


def test_blended_lines_are_solved_together(small: Small) -> None:
    wave = np.sort(np.concatenate([small.lines.wave, small.lines.wave[::3] + 1.9]))
    lines = Lines(wave, np.full(len(wave), 15000.0))
    arc = make_arc(small.true, FIBRES, (wave, lines.strength), 5)
    fit = fit_bundle([arc], small.start, FIBRES, lines, FitConfig())
    assert errors(small, fit).stamp < 1.5 * errors(small, small.fit).stamp
    assert len(np.unique(fit.task.spots.line[fit.task.firm])) > len(small.lines.wave)


def test_lines_too_close_and_saturated_ones_are_left_out(small: Small) -> None:
    wave = np.sort(np.append(small.lines.wave, small.lines.wave[4] + 0.3))
    arc = make_arc(small.true, FIBRES, (wave, np.full(len(wave), 20000.0)), 5)
    pix = arc.pix.copy()
    bright = small.lines.wave[9]
    spots = small.fit.task.spots
    for n in np.flatnonzero(spots.wave == bright):
        x, y = (round(float(c[n])) for c in (small.fit.state.stamps.x, small.fit.state.stamps.y))
        pix[y - 2:y + 3, x - 1:x + 2] = 65535.0
    fit = fit_bundle([replace(arc, pix=pix)], small.start, FIBRES, Lines(wave, np.ones(len(wave))), FitConfig())
    used = np.unique(fit.task.spots.wave[fit.task.firm])
    assert small.lines.wave[4] not in used
    assert bright not in used
    assert errors(small, fit).stamp < 1.5 * errors(small, small.fit).stamp


@pytest.mark.parametrize("strength", [0.0, 0.5])
def test_what_is_nothing_beside_a_line_is_no_line(small: Small, strength: float) -> None:
    """Bright lines beside such faint ones were once left out as well, and the list was said to be of another lamp."""
    wave = np.concatenate([small.lines.wave, small.lines.wave[4:9] + 0.5])
    light = np.concatenate([small.lines.strength, np.full(5, strength)])
    order = np.argsort(wave)
    fit = fit_bundle([small.arc], small.start, FIBRES, Lines(wave[order], light[order]), FitConfig())
    np.testing.assert_array_equal(fit.state.now.vector(), small.fit.state.now.vector())


def test_lines_without_a_strength_are_too_close_as_well(small: Small) -> None:
    """Neither line was the brighter one, so both were once fitted, 0.3 pixels apart."""
    wave = np.insert(small.lines.wave, 5, small.lines.wave[4] + 0.3)
    fit = fit_bundle([small.arc], small.start, FIBRES, Lines(wave, np.zeros(len(wave))), FitConfig())
    assert not np.isin(wave[4:6], fit.task.spots.wave).any()


def test_a_spot_without_a_good_pixel_has_no_certainty(small: Small) -> None:
    """The variance of its flux was once 1, and the flux counted as a parameter."""
    ivar = small.arc.ivar.copy()
    ivar[small.arc.shape[0] // 2:] = 0.0
    fit = fit_bundle([replace(small.arc, ivar=ivar)], small.start, FIBRES, small.lines, FitConfig())
    rows, lost = _spots(fit), fit.state.stamps.y > small.arc.shape[0] / 2 + 10
    names = list(SPOTS.names or ())
    assert lost.sum() > 20
    for name in ("FLUX", "IVAR", "FIRM"):
        assert (rows[lost, names.index(name)] == 0).all()
    seen = fit.state.stamps.y < small.arc.shape[0] / 2 - 10
    np.testing.assert_allclose(rows[seen, 6], _spots(small.fit)[seen, 6], rtol=0.05)
    dark = int(np.isinf(fit.state.variance).sum())
    assert lost.sum() <= dark and _quality(fit)["npar"] == len(rows) - dark + fit.state.now.vector().size
    with pytest.raises(BundleError, match=r"at least 4 are needed \(75 spots are saturated or masked\)"):
        fit_bundle([replace(small.arc, ivar=0 * ivar)], small.start, FIBRES, small.lines, FitConfig())


def test_a_pixel_at_the_saturation_counts_as_saturated(small: Small) -> None:
    """Lines are cut off at the saturation as it is stored in files, in single precision."""
    level = 1500.7
    cut = replace(small.arc, pix=np.minimum(small.arc.pix, level).astype(np.float32))
    frame = small.fit.frame
    config = FitConfig(saturation=level)
    pixels = unsaturated(cut_out([cut], frame, parameters_of(frame), config), config)
    inside = np.isin(pixels.value.astype(np.float32), np.float32(level))
    assert np.count_nonzero(inside) > 10 and np.isinf(pixels.read_variance[inside]).all()


def test_a_continuum_is_taken_away(small: Small) -> None:
    wave = np.arange(6000.5, 6109.5, 0.1)
    light = np.zeros(small.true.shape)
    project_lines(light, small.true, FIBRES, wave, np.full((5, len(wave)), 3.0))
    random = np.random.default_rng(3)
    pix = small.arc.pix + random.poisson(light + 4.0)
    fit = fit_bundle([replace(small.arc, pix=pix)], small.start, FIBRES, small.lines, FitConfig())
    found = errors(small, fit)
    assert found.stamp < 1.5 * errors(small, small.fit).stamp
    assert abs(found.width_y) < 0.005


@pytest.mark.parametrize(("continuum", "stray"), [(0.0, 100.0), (300.0, 0.0), (100.0, 100.0)])
def test_bright_light_beside_the_lines_is_taken_away(small: Small, continuum: float, stray: float) -> None:
    """Lines of up to 2000 electrons a pixel lie on 100 electrons of stray light, on 580 of a continuum, and on both.
    Light more than 12 standard deviations of the read noise above 0 once did not count as continuum; stamps were off by
    0.04 and 0.03, widths by 0.1 pixels.

    The bound is that of the noise. It grows with the light beneath: by less than 1.4 up to a fifth of the lines' light,
    and by less than 2.2 where a continuum has up to half of a line's.
    """
    wave = np.arange(6000.5, 6109.5, 0.1)
    light = np.zeros(small.true.shape)
    project_lines(light, small.true, FIBRES, wave, np.full((5, len(wave)), continuum))
    random = np.random.default_rng(3)
    pix = small.arc.pix + random.poisson(light + stray)
    fit = fit_bundle([replace(small.arc, pix=pix)], small.start, FIBRES, small.lines, FitConfig())
    found, plain = errors(small, fit), errors(small, small.fit)
    assert found.stamp < 1.5 * (2.2 if continuum > 100 else 1.4) * plain.stamp
    assert abs(found.width_x) < 0.01 and abs(found.width_y) < 0.005


def test_a_level_that_was_left_in_is_taken_away(small: Small) -> None:
    """A level of half of the brightest lines' light, without noise of its own. Such a fit was once refused."""
    fit = fit_bundle([replace(small.arc, pix=small.arc.pix + 1000.0)], small.start, FIBRES, small.lines, FitConfig())
    assert errors(small, fit).stamp < 1.5 * errors(small, small.fit).stamp and (fit.status == Status.FITTED).all()


def broken(kind: str, small: Small) -> tuple[Image, Lines]:
    arc, lines = small.arc, small.lines
    noise = READ_NOISE * np.random.default_rng(1).standard_normal(arc.pix.shape)
    if kind == "no light":
        return replace(arc, pix=noise), lines
    if kind == "saturated":
        return replace(arc, pix=np.full(arc.pix.shape, 65535.0)), lines
    if kind == "masked":
        return replace(arc, ivar=np.zeros(arc.pix.shape)), lines
    if kind == "continuum":
        light, wave = np.zeros(small.true.shape), np.arange(6000.5, 6109.5, 0.1)
        project_lines(light, small.true, FIBRES, wave, np.full((5, len(wave)), 3000.0))
        return replace(arc, pix=arc.pix + np.random.default_rng(3).poisson(light)), lines
    if kind.startswith("bright"):
        return replace(arc, pix=arc.pix + float(kind[6:])), lines
    if kind.startswith("other lamp"):
        random = np.random.default_rng(int(kind[10:]))
        return arc, Lines(np.sort(random.uniform(6003, 6107, 14)), np.ones(14))
    return arc, Lines(np.array([5000.0, 5100.0]), np.ones(2))


@pytest.mark.parametrize(("kind", "words"), [
    ("no light", "0 of 15 lines have light"), ("saturated", "0 of 15 lines have light"),
    ("masked", "0 of 15 lines have light"), ("bright 1500", "lines of the list are seen"),
    ("continuum", "light that belongs to no line outshines the lines"),
    *((kind, "lines of the list are seen") for kind in ("bright 5000", "other lamp7", "other lamp13", "other lamp26")),
    ("other range", "none of the 2 lines lies within")])
def test_what_cannot_be_fitted_is_said(small: Small, kind: str, words: str) -> None:
    arc, lines = broken(kind, small)
    with pytest.raises(BundleError, match=words):
        fit_bundle([arc], small.start, FIBRES, lines, FitConfig())


def test_light_that_outshines_the_lines_is_said(small: Small) -> None:
    arc, _ = broken("bright 20000", small)
    with pytest.raises(InputError, match="light that belongs to no line outshines the lines"):
        fit_psf([arc], small.start, small.lines, FitConfig(nspec=5))


@pytest.mark.parametrize(("by", "share"), [((0.6, 0.0), 1.0), ((0.0, -0.9), 1.0), ((1.0, 1.0), 0.02)])
def test_arcs_that_are_shifted_against_each_other_are_refused(small: Small, by: tuple[float, float],
                                                              share: float) -> None:
    """The mean of such arcs is right for none of them. Chi squared hardly shows it, because it leaves out pixels where
    arcs are bright."""
    images = [make_arc(moved(small.true, *shift), FIBRES, (small.lines.wave, share * small.lines.strength), n)
              for n, shift in enumerate(((0.0, 0.0), by))]
    with pytest.raises(BundleError, match=r"the arcs are shifted against each other by .* at most 0\.25"):
        fit_bundle(images, small.start, FIBRES, small.lines, FitConfig())


@pytest.mark.parametrize("by", [(0.0, 0.0), (0.2, -0.05), (0.03, -0.16)])
def test_arcs_that_are_hardly_shifted_are_fitted_and_measured(small: Small, by: tuple[float, float]) -> None:
    """Their shift is measured to 0.02 pixel: 75 spots of S/N 140 give a median to 1.25 sigma / 140 / 75^(1/2) = 0.001.
    Shapes follow the mean of both arcs."""
    other = make_arc(moved(small.true, *by), FIBRES, (small.lines.wave, small.lines.strength), 2)
    fit = fit_bundle([small.arc, other], small.start, FIBRES, small.lines, FitConfig())
    assert (fit.status == Status.FITTED).all()
    np.testing.assert_allclose(arcs_apart(fit.task, fit.state)[0], np.abs(by), atol=0.02)


def test_odd_cores_and_large_residuals_are_refused(small: Small) -> None:
    """Pixels are changed after the fit: by half a pixel's slope, or left out."""
    task, state = small.fit.task, small.fit.state
    check_cores(task, state)
    check_error(task, state)
    stamps = state.stamps
    light = (stamps.image[:, 2].reshape(len(state.flux), -1) * 0.6 * state.flux[:, np.newaxis]).ravel()
    moved_light = np.bincount(stamps.place.ravel(), light, len(state.residual))
    with pytest.raises(BundleError, match="the spots differ from the model by"):
        check_error(task, replace(state, residual=state.residual + moved_light))
    left_out = np.where(np.arange(len(state.weight)) % 2, state.weight, 0.0)
    with pytest.raises(BundleError, match="cores of bright lines disagree with the fit, at most 30 %"):
        check_cores(task, replace(state, weight=left_out))


def test_spots_that_should_be_bright_and_are_not_are_refused(small: Small) -> None:
    """Every fourth spot may be missing, but not every second one. Spots at a fibre's ends and masked ones do not count,
    because an amplifier may be dark."""
    task, state = small.fit.task, small.fit.state
    number = task.spots.line
    check_spots(task, state)
    check_spots(replace(task, firm=(number + task.spots.fibre) % 4 < 3), state)
    ends = (number >= 5) & (number < 11)
    check_spots(replace(task, firm=ends), state)
    with pytest.raises(BundleError, match="37 of 72 spots look as the others of their line and fibre let expect, 70 %"):
        check_spots(replace(task, firm=(number + task.spots.fibre) % 2 == 0), state)
    masked = replace(task.pixels, read_variance=np.full_like(task.pixels.read_variance, np.inf))
    check_spots(replace(task, firm=(number + task.spots.fibre) % 2 == 0, pixels=masked), state)


@pytest.mark.parametrize(("seed", "error"), [(1, 0.2), (1, 0.6), (2, 0.4), (2, 0.8)])
def test_lines_that_are_not_where_the_list_has_them_are_told(small: Small, seed: int, error: float) -> None:
    """The fit is refused, or chi squared is 2 or more, and the program warns."""
    wave = np.sort(small.lines.wave + np.random.default_rng(seed).normal(0, error, len(small.lines.wave)))
    try:
        fit = fit_bundle([small.arc], small.start, FIBRES, Lines(wave, small.lines.strength), FitConfig())
    except BundleError:
        return
    assert fit.state.chi2 > 2 * fit.state.npixel


def test_traces_that_move_beyond_the_reach_are_refused(small: Small) -> None:
    task, state = small.fit.task, small.fit.state
    check_reach(task, state, (2.5, 3.5))            # the start is off by 1 and 2, and bent
    for reach in ((0.5, 3.5), (2.5, 1.0)):
        with pytest.raises(BundleError, match=r"the traces moved by .* pixels in x and y, at most"):
            check_reach(task, state, reach)


def test_a_gap_in_the_list_makes_traces_unsure(small: Small) -> None:
    """The list lacks the lines of a third of the range; none of its other gaps is longer. Where the lines are faint,
    traces bend there by a tenth of a pixel."""
    kept = (small.lines.wave < 6031) | (small.lines.wave > 6070)
    lines = Lines(small.lines.wave[kept], small.lines.strength[kept])
    for share, status in ((1.0, Status.FITTED), (0.02, Status.FEW_LINES)):
        arc = make_arc(small.true, FIBRES, (lines.wave, share * lines.strength), 3)
        assert (fit_bundle([arc], small.start, FIBRES, lines, FitConfig()).status == status).all()


@pytest.mark.parametrize("by", [7.27, -7.27])
def test_a_start_that_is_off_by_a_fibre_is_refused(small: Small, by: float) -> None:
    start = cold(small.true, 3, (by, -2.0), 0.1)
    with pytest.raises(BundleError, match="as well, where the starting PSF has no fibre: it is off by one fibre"):
        fit_bundle([small.arc], start, FIBRES, small.lines, FitConfig())


def test_light_in_the_gap_that_is_no_fibre_is_not_taken_for_one(small: Small) -> None:
    """A bright column lies beside the last fibre, at the distance of a fibre."""
    pix = small.arc.pix.copy()
    pix[:, round(float(small.true.x.coeff[4, 0] + 7.27)) + np.arange(-1, 2)] += 500.0
    fit = fit_bundle([replace(small.arc, pix=pix)], small.start, FIBRES, small.lines, FitConfig())
    assert (fit.status == Status.FITTED).all()


def test_a_faint_arc_needs_its_own_list(small: Small) -> None:
    """No pixel is bright. Then only lines count, and a random list has some of them by chance."""
    arc = make_arc(small.true, FIBRES, (small.lines.wave, 0.008 * small.lines.strength), 3)
    fit_bundle([arc], small.start, FIBRES, small.lines, FitConfig())
    wave = np.sort(np.random.default_rng(5).uniform(6003, 6107, 14))
    with pytest.raises(BundleError, match=r"(seen|have light)"):
        fit_bundle([arc], small.start, FIBRES, Lines(wave, np.ones(14)), FitConfig())
