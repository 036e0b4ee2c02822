"""The truth: sky at the sky's wavelengths, targets by their fibre, electrons conserved."""
import numpy as np
import pytest

from gpu_extract.io.lines import arc_lines, night_sky
from gpu_extract.simulate import Defects, SimConfig
from gpu_extract.simulate.frame import make_truth
from gpu_extract.simulate.instrument import psf_model
from gpu_extract.simulate.spectra import FIBRE_SKY, common_light, electrons_per_unit, fibre_throughput, truth_wave
from gpu_extract.simulate.targets import Target, flux_density, target_of


def test_brightest_lines_of_the_night() -> None:
    sky = night_sky()
    assert len(sky.lines) > 500 and np.all(np.diff(sky.lines) > 0) and np.all(sky.strengths > 0)
    # [O I] and two OH lines, from their wavelengths in air by n - 1 = 2.77e-4 (good to 0.02 A here)
    for air in (5577.339, 6300.304, 6363.776, 7794.12, 8399.16, 8885.83, 9375.961):
        near = np.abs(sky.lines - air * (1 + 2.755e-4)) < 0.15
        assert near.any(), air
        assert sky.strengths[near].max() > 20
    assert sky.strengths[np.argmin(np.abs(sky.lines - 5578.9))] > sky.strengths[np.argmin(np.abs(sky.lines - 6365.5))]


def test_lines_and_continuum_against_the_observed_spectrum(shared) -> None:
    from astropy.io import fits

    observed = fits.getdata(shared / "data" / "sky" / "sky-uves.fits", 1)
    wave, flux = observed["wavelength"].astype(float), observed["flux"].astype(float)
    sky = night_sky()
    for low, high in ((5750, 5850), (6250, 6400), (7200, 7500), (7720, 8100), (8250, 8500), (8750, 9050)):
        inside = (wave >= low) & (wave < high)
        ours = (np.interp(wave[inside], sky.knots, sky.continuum).sum() * 0.1
                + sky.strengths[(sky.lines >= low) & (sky.lines < high)].sum())
        assert abs(ours / (flux[inside].sum() * 0.1) - 1) < 0.04, (low, high, ours, flux[inside].sum() * 0.1)


def test_a_line_keeps_its_electrons_and_its_place() -> None:
    config = SimConfig(camera="r", exptime=1000.0)
    sky = night_sky()
    for step in (0.2, 0.8):
        wave = truth_wave(SimConfig(camera="r", truth_step=step), (6295.0, 6309.0))
        light = common_light(config, wave)
        base = np.median(light)
        excess = (light - base) * step
        line = (sky.lines > 6301) & (sky.lines < 6303)
        centroid = (wave * excess)[np.abs(wave - 6302.04) < 1].sum() / excess[np.abs(wave - 6302.04) < 1].sum()
        assert abs(centroid - sky.lines[line][0]) < 0.02
        unit = FIBRE_SKY * electrons_per_unit(config, sky.lines[line])[0] * sky.strengths[line][0]
        assert abs(excess[np.abs(wave - 6302.04) < 1].sum() / unit - 1) < 0.35        # airglow varies by 15 %


def test_the_grid_of_the_truth_follows_the_settings() -> None:
    fine = truth_wave(SimConfig(truth_step=0.2), (5543.0, 7826.0))
    assert fine[0] >= 5543.0 and fine[-1] <= 7826.0 and len(fine) == 11416
    np.testing.assert_allclose(np.diff(fine), 0.2, atol=1e-9)
    own = truth_wave(SimConfig(truth_grid=(5760.0, 7620.0, 0.8)), (5543.0, 7826.0))
    start = int(np.argmin(np.abs(own - 5760.0)))
    np.testing.assert_allclose(own[start:start + 2326], 5760.0 + 0.8 * np.arange(2326), atol=1e-9)
    assert start > 250 and own[-1] > 7825


def test_fibres_are_their_own() -> None:
    config = SimConfig(camera="tiny", seed=3)
    psf = psf_model("tiny")
    whole, part = make_truth(config, psf, (0, 10)), make_truth(config, psf, (5, 10))
    np.testing.assert_array_equal(whole.flux[5:], part.flux)
    assert whole.targets[5:] == part.targets
    other = make_truth(SimConfig(camera="tiny", seed=4), psf, (0, 10))
    assert other.targets != whole.targets
    assert whole.flux.dtype == np.float32 and np.all(whole.flux >= 0) and np.all(np.isfinite(whole.flux))


def test_sky_fibres_show_sky_alone_and_others_more() -> None:
    for program, kinds in (("dark", {"SKY", "STD", "ELG", "LRG", "QSO", "STAR"}),
                           ("bright", {"SKY", "STD", "BGS", "STAR"})):
        config = SimConfig(camera="r", seed=11, program=program)
        targets = [target_of(config, fibre) for fibre in range(500)]
        assert {t.kind for t in targets} == kinds
        assert 20 < sum(t.kind == "SKY" for t in targets) < 70
        wave = np.arange(5600.0, 7800.0, 5.0)
        for target in targets[:60]:
            light = flux_density(target, wave)
            assert np.all(np.isfinite(light)) and np.all(light >= 0)
            assert (light.max() == 0) == (target.kind == "SKY")


def test_magnitudes_are_ab() -> None:
    """A flat f_nu of magnitude m has 3.631e-20 10^(-0.4 m) erg/s/cm^2/Hz; at 6400 A a target has its f_lambda."""
    target = Target("LRG", 0.5, 20.0, 0.5, 0.0, 100.0, 0.0, 0.0)
    f_lambda = 3.631e-20 * 10 ** (-0.4 * 20) * 2.99792458e18 / 6400.0**2
    assert abs(flux_density(target, np.array([6400.0]))[0] * 1e-17 / f_lambda - 1) < 0.01


def test_emission_lines_are_where_the_redshift_puts_them() -> None:
    target = Target("ELG", 0.9, 22.5, 0.5, 60.0, 100.0, 0.0, 0.0)
    wave = np.arange(6900.0, 7300.0, 0.2)
    light = flux_density(target, wave)
    assert abs(wave[np.argmax(light)] - 3729.88 * 1.9) < 1.0
    assert light.max() > 2 * np.median(light)


def test_dead_and_broken_fibres() -> None:
    config = SimConfig(camera="tiny", defects=Defects(dead_fibres=(3,), broken_fibres=(4,)))
    truth = make_truth(config, psf_model("tiny"), (0, 10))
    usual = make_truth(SimConfig(camera="tiny"), psf_model("tiny"), (0, 10))
    assert truth.throughput[3] == 0 and not truth.flux[3].any()
    assert 0.01 < truth.throughput[4] / usual.throughput[4] < 0.11
    np.testing.assert_allclose(truth.flux[4], usual.flux[4] * (truth.throughput[4] / usual.throughput[4]), rtol=1e-5)
    keep = [0, 1, 2, 5, 6, 7, 8, 9]
    np.testing.assert_array_equal(truth.flux[keep], usual.flux[keep])
    spread = np.array([fibre_throughput(SimConfig(), f, 500) for f in range(500)])
    assert abs(spread.mean() - 1) < 0.02 and 0.02 < spread.std() < 0.08


@pytest.mark.parametrize("band", ["b", "r", "z"])
def test_flats_are_smooth_and_arcs_have_their_lines(band: str) -> None:
    wave = truth_wave(SimConfig(), psf_model(band).wavelength_range)
    flat = common_light(SimConfig(camera=band, flavor="flat"), wave)
    assert flat.max() > 1000 and np.abs(np.diff(np.log(flat))).max() < 0.02
    arc = common_light(SimConfig(camera=band, flavor="arc"), wave)
    lines, strengths = arc_lines()
    inside = (lines > wave[1]) & (lines < wave[-2])
    assert inside.sum() > 30
    lamp = (arc * 0.2).sum() - strengths[inside].sum()
    assert 0 <= lamp < 0.2 * len(wave)                # otherwise only a glow of at most 1 electron/A
