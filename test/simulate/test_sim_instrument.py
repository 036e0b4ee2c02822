"""The simulated cameras against the figures of DESI's."""
from dataclasses import fields

import numpy as np
import pytest

from gpu_extract.errors import ConfigError
from gpu_extract.io.psf import read_psf, write_psf
from gpu_extract.simulate import Defects, SimConfig
from gpu_extract.simulate.frame import fibres_made
from gpu_extract.simulate.instrument import DETECTORS, detectors_needed, psf_model
from gpu_extract.spots import centres, evaluate

# per camera: CCD (ny, nx), wavelengths of all fibres on the CCD, A per pixel at start, middle, end, read noise
FACTS = {"b": ((4096, 4096), (3569, 5949), (0.627, 0.599, 0.549), 3.3),
         "r": ((4128, 4114), (5625, 7741), (0.574, 0.539, 0.485), 2.7),
         "z": ((4128, 4114), (7435, 9834), (0.682, 0.608, 0.532), 2.7)}


@pytest.mark.parametrize("band", FACTS)
def test_traces_have_the_range_and_dispersion_of_the_instrument(band: str) -> None:
    shape, on_ccd, dispersion, read_noise = FACTS[band]
    psf = psf_model(band)
    assert (psf.shape, psf.nfibre, psf.stamp, DETECTORS[band].read_noise) == (shape, 500, (11, 17), read_noise)
    low, high = psf.wavelength_range
    wave = np.linspace(low, high, 4000)
    y, x = centres(psf, (0, 500), wave)
    assert np.all(np.diff(y, axis=1) > 0) and np.all(np.diff(x, axis=0) > 6)
    assert y.min() < -80 and y.max() > shape[0] + 60                    # off the CCD at both ends
    inside = wave[((y >= 0) & (y <= shape[0] - 1)).all(axis=0)]
    assert abs(inside[0] - on_ccd[0]) < 20 and abs(inside[-1] - on_ccd[1]) < 20
    per_pixel = np.diff(wave)[0] / np.diff(y[250])
    np.testing.assert_allclose(per_pixel[[0, 1999, -1]], dispersion, rtol=0.015)
    bow = np.ptp(x, axis=1)
    assert bow[0] > 8 and bow[249] < 2                                   # bowed at the edge, straight in the middle
    middle = y[:, 2000]
    assert 60 < middle[0] - middle[250] < 150 and abs(middle[0] - middle[499]) < 5


@pytest.mark.parametrize("band", FACTS)
def test_bundles_and_gaps(band: str) -> None:
    psf = psf_model(band)
    low, high = psf.wavelength_range
    _, x = centres(psf, (0, 500), np.array([(low + high) / 2]))
    step = np.diff(x[:, 0])
    gap = np.arange(1, 500) % 25 == 0
    assert abs(step[~gap].mean() - 7.26) < 0.04 and step[~gap].std() < 0.1
    assert abs(step[gap].mean() - 17.5) < 0.2
    assert psf.bundle is not None
    np.testing.assert_array_equal(psf.bundle, np.repeat(np.arange(20), 25))
    # the spots of neighbouring bundles never share a pixel: 17 columns against gaps of more than 17
    _, ends = centres(psf, (0, 500), np.linspace(low, high, 300))
    assert np.diff(np.floor(ends - 7.5), axis=0)[gap].min() >= psf.stamp[1]


@pytest.mark.parametrize("band", ["b", "r", "z", "tiny"])
def test_core_is_smooth_and_of_the_right_size(band: str) -> None:
    psf = psf_model(band)
    low, high = psf.wavelength_range
    wave = np.linspace(low, high, 200)
    core = psf.cores[0]
    width = {"b": (1.05, 1.10), "r": (1.04, 1.12), "z": (1.10, 1.29), "tiny": (1.04, 1.12)}[band]
    for series, mean in zip((core.sigma_x, core.sigma_y), width, strict=True):
        sigma = evaluate(series, (0, psf.nfibre), wave)
        assert abs(sigma.mean() - mean) < 0.03 * mean and sigma.min() > 0.8 * mean and sigma.max() < 1.2 * mean
    gh = evaluate(core.gh, (0, psf.nfibre), wave)
    assert gh.shape[:2] == (7, 7) and np.all(gh[0, 0] == 1)
    size = np.sqrt((gh**2).mean(axis=(2, 3))).ravel()[1:]
    assert 0.01 < size.max() < 0.06 and np.abs(gh.reshape(49, -1)[1:]).max() < 0.1
    assert np.count_nonzero(size > 0.002) > 15
    # smooth with wavelength and from fibre to fibre, with small steps between bundles
    assert np.abs(np.diff(gh, axis=3)).max() < 0.003
    assert np.abs(np.diff(gh, axis=2)).max() < 0.05


def test_spectrographs_differ_and_stay_the_same() -> None:
    first, again, other = psf_model("r", 0), psf_model("r", 0), psf_model("r", 7)
    np.testing.assert_array_equal(first.cores[0].gh.coeff, again.cores[0].gh.coeff)
    assert not np.array_equal(first.cores[0].gh.coeff, other.cores[0].gh.coeff)
    assert not np.array_equal(first.x.coeff, other.x.coeff)


def test_more_fibres_than_a_detector_holds() -> None:
    one, three = psf_model("tiny"), psf_model("tiny", 0, 3)
    assert (three.nfibre, three.shape) == (30, (192, 312))
    wave = np.linspace(*one.wavelength_range, 9)
    y1, x1 = centres(one, (0, 10), wave)
    y3, x3 = centres(three, (20, 30), wave)
    np.testing.assert_array_equal(y1, y3)
    np.testing.assert_allclose(x3 - x1, 208, atol=1e-10)
    assert three.bundle is not None
    np.testing.assert_array_equal(three.bundle, np.repeat(np.arange(6), 5))


def test_whole_bundles_are_made_of_any_range() -> None:
    assert fibres_made(SimConfig(camera="r")) == (0, 500)
    assert fibres_made(SimConfig(camera="r", specmin=30, nspec=30)) == (25, 75)
    assert fibres_made(SimConfig(camera="tiny", specmin=8)) == (5, 10)
    assert detectors_needed(SimConfig(camera="tiny", specmin=8, nspec=20)) == 3
    with pytest.raises(ConfigError, match="has 500 fibres"):
        fibres_made(SimConfig(specmin=500))


@pytest.mark.parametrize("name", ["dead_fibres", "broken_fibres"])
def test_fibres_that_the_camera_has_not_cannot_be_dead(name: str) -> None:
    assert fibres_made(SimConfig(camera="tiny", nspec=1, defects=Defects(**{name: (9,)}))) == (0, 5)
    with pytest.raises(ConfigError, match=f"{name} has fibre 99999, must lie between 0 and 9$"):
        fibres_made(SimConfig(camera="tiny", nspec=1, defects=Defects(**{name: (3, 99999)})))
    assert fibres_made(SimConfig(nspec=520, defects=Defects(**{name: (999,)}))) == (0, 525)


def test_written_psf_is_the_same(tmp_path) -> None:
    psf = psf_model("tiny", 4)
    write_psf(tmp_path / "psf.fits", psf)
    back = read_psf(tmp_path / "psf.fits")
    for field in fields(psf):          # not ==, which needs the truth value of arrays from Python 3.13 on
        if field.name not in ("x", "y", "cores", "bundle", "name"):
            assert getattr(back, field.name) == getattr(psf, field.name), field.name
    wave = np.linspace(*psf.wavelength_range, 50)
    np.testing.assert_array_equal(centres(psf, (0, 10), wave), centres(back, (0, 10), wave))
    for name in ("sigma_x", "sigma_y", "gh"):
        ours, theirs = getattr(psf.cores[0], name), getattr(back.cores[0], name)
        np.testing.assert_array_equal(evaluate(ours, (0, 10), wave), evaluate(theirs, (0, 10), wave))
    np.testing.assert_array_equal(back.bundle, psf.bundle)
