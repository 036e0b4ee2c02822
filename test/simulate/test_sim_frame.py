"""Whole frames: parts equal the whole, masks and variances are right."""
import re
from dataclasses import replace

import numpy as np
import pytest

from gpu_extract.errors import ConfigError
from gpu_extract.simulate import NO_DEFECTS, Defects, SimConfig, simulate
from gpu_extract.simulate.defects import FULL_WELL, CcdMask, masked

TINY = SimConfig(camera="tiny", seed=21, truth_step=0.4)


@pytest.fixture(scope="module")
def whole():
    return simulate(TINY)


def _same(one, other, part) -> None:
    for a, b in ((one.image.pix, other.image.pix), (one.image.ivar, other.image.ivar), (one.mask, other.mask),
                 (one.read_noise, other.read_noise), (one.expected, other.expected)):
        np.testing.assert_array_equal(a[part], b[part])


def test_a_bundle_of_a_frame_is_that_of_the_whole(whole) -> None:
    """Ranges of fibres with arbitrary limits: their bundles' pixels are those of the whole frame."""
    lit = []
    for specmin, nspec in ((0, 3), (7, 2)):
        some = simulate(replace(TINY, specmin=specmin, nspec=nspec))
        assert some.truth.fibres.tolist() == list(range(specmin // 5 * 5, specmin // 5 * 5 + 5))
        np.testing.assert_array_equal(some.truth.flux, whole.truth.flux[some.truth.fibres])
        _same(some, whole, some.expected > 0)
        assert some.image.fibermap.rows.tolist() == whole.image.fibermap.rows.tolist()
        lit.append(some.expected > 0)
    assert not np.any(lit[0] & lit[1])
    np.testing.assert_array_equal(lit[0] | lit[1], whole.expected > 0)


def test_bundles_of_a_real_camera() -> None:
    """The second bundle by itself, and after the first: the same pixels, cropped or not, on one thread or two."""
    config = SimConfig(camera="r", seed=5, truth_step=0.8, crop=True)
    both = simulate(replace(config, nspec=50), threads=2)
    second = simulate(replace(config, specmin=25, nspec=25))
    assert both.image.shape == second.image.shape == (4128, 520)
    lit = second.expected > 0
    _same(both, second, lit)
    assert both.expected[~lit].sum() > 1e6 and lit.mean() > 0.3
    uncropped = simulate(replace(config, specmin=25, nspec=25, crop=False))
    assert uncropped.image.shape == (4128, 4114) and not uncropped.expected[:, 520:].any()
    left = np.s_[:, :520]
    for a, b in ((uncropped.image.pix, second.image.pix), (uncropped.image.ivar, second.image.ivar),
                 (uncropped.mask, second.mask), (uncropped.expected, second.expected)):
        np.testing.assert_array_equal(a[left], b)


def test_threads_and_repeats_change_no_bit(whole) -> None:
    _same(simulate(TINY, threads=3), whole, np.s_[:])
    other = simulate(replace(TINY, seed=22))
    assert np.mean(other.image.pix == whole.image.pix) < 0.01


def test_more_fibres_keep_the_first(whole) -> None:
    more = simulate(replace(TINY, nspec=24))
    assert more.image.shape == (192, 312) and more.psf.nfibre == 30 and len(more.truth.fibres) == 25
    np.testing.assert_array_equal(more.image.pix[:, :104], whole.image.pix)
    np.testing.assert_array_equal(more.mask[:, :104], whole.mask)


def test_variance_of_the_noise() -> None:
    """(pixel - expected) sqrt(ivar) of two frames: mean 0, variance 1, to five times their own errors."""
    made = [simulate(replace(TINY, seed=100 + k, defects=NO_DEFECTS)) for k in range(2)]
    one = made[0]
    np.testing.assert_allclose(1 / one.image.ivar, one.read_noise.astype(float)**2 + one.expected, rtol=3e-7)
    pulls = np.concatenate([((m.image.pix - m.expected) * np.sqrt(m.image.ivar)).ravel() for m in made])
    n = len(pulls)
    assert abs(pulls.mean()) < 5 / np.sqrt(n)
    assert abs(pulls.var() - 1) < 5 * np.sqrt(2.1 / n)
    seen = simulate(replace(TINY, variance="data", defects=NO_DEFECTS))
    np.testing.assert_allclose(1 / seen.image.ivar, seen.read_noise.astype(float)**2 + np.maximum(seen.image.pix, 0),
                               rtol=3e-7)


@pytest.mark.parametrize("change", [{}, {"flavor": "flat"}, {"flavor": "arc"}, {"flavor": "arc", "exact_lines": True}])
def test_twice_the_time_makes_twice_the_light(change: dict) -> None:
    """Up to the truth's rounding to float32. A lamp's glow beside its lines once did not grow."""
    short, long = (simulate(replace(TINY, exptime=time, defects=NO_DEFECTS, **change)) for time in (20.0, 40.0))
    np.testing.assert_allclose(long.truth.flux, 2 * short.truth.flux, rtol=1e-6)
    np.testing.assert_allclose(long.expected, 2 * short.expected, rtol=1e-6, atol=1e-6 * short.expected.max())


def test_cameras_of_one_exposure_have_noise_and_cosmic_rays_of_their_own() -> None:
    """Noise of 20000 pixels correlates by less than 5 / 20000^(1/2); cosmics and random masks coincide by chance."""
    cameras = ["tiny0", "tiny1", "tiny9"]
    made = [simulate(replace(TINY, camera=camera, exptime=2e4, defects=Defects(masked_fraction=0.02)))
            for camera in cameras]
    noise = np.corrcoef([((one.image.pix - one.expected) * np.sqrt(one.image.ivar)).ravel() for one in made])
    assert np.abs(noise - np.eye(3)).max() < 5 / np.sqrt(made[0].mask.size)
    for bit in (CcdMask.COSMIC, CcdMask.BAD):
        first, second = ((one.mask & bit) != 0 for one in made[:2])
        assert (first & second).sum() < 0.5 * first.sum()
    numbers = [SimConfig(camera=f"{band}{n}").number for band in "brz" for n in range(10)]
    assert len(set(numbers)) == 30 and SimConfig(camera="r").number == 0


def test_without_noise_the_image_is_the_expectation(whole) -> None:
    clean = simulate(replace(TINY, noise=False, defects=NO_DEFECTS))
    np.testing.assert_array_equal(clean.image.pix, clean.expected.astype(np.float32))
    np.testing.assert_array_equal(clean.expected, whole.expected)
    good = whole.mask == 0
    np.testing.assert_array_equal(clean.image.ivar[good], whole.image.ivar[good])


def test_masked_pixels_have_no_weight_and_others_no_defect() -> None:
    usual = replace(TINY, exptime=50000.0, nspec=5)
    config = replace(usual, defects=Defects(masked_fraction=0.02, bad_columns=2, hot_pixels=30))
    made, clean = simulate(config), simulate(replace(usual, defects=NO_DEFECTS))
    bits = {bit: (made.mask & bit) != 0 for bit in CcdMask}
    assert bits[CcdMask.HOT].sum() + bits[CcdMask.DEAD].sum() > 20
    assert bits[CcdMask.COSMIC].sum() > 100
    assert 0.015 < ((made.mask & CcdMask.BAD) != 0).mean() < 0.05
    assert (made.mask & 767 != 0).tolist() == masked(made.mask).tolist()
    assert not made.image.ivar[masked(made.mask)].any() and np.all(made.image.ivar[~masked(made.mask)] > 0)
    good = made.mask == 0
    np.testing.assert_array_equal(made.image.pix[good], clean.image.pix[good])
    np.testing.assert_array_equal(made.image.ivar[good], clean.image.ivar[good])
    hurt = np.abs(made.image.pix - clean.image.pix)
    for bit in (CcdMask.HOT, CcdMask.COSMIC, CcdMask.BAD):
        assert np.median(hurt[bits[bit]]) > 100


def test_full_pixels_are_saturated_and_masked() -> None:
    made = simulate(replace(TINY, flavor="flat", exptime=50000.0, defects=NO_DEFECTS))
    full = (made.mask & CcdMask.SATURATED) != 0
    assert full.any() and not full.all()
    assert np.all(made.image.pix[full] == FULL_WELL) and made.image.pix.max() == FULL_WELL
    assert np.all(made.expected[full] > 0.95 * FULL_WELL) and not made.image.ivar[full].any()


def test_hidden_cosmics_fill_no_pixel_beyond_its_well() -> None:
    """On light of up to 65000 electrons, where a pixel's content is capped; hits on faint light are unmasked."""
    made = simulate(replace(TINY, program="bright", exptime=9e5, seed=2, defects=Defects(hidden_cosmics=True)))
    good = made.image.ivar > 0
    assert made.image.pix[good].max() < FULL_WELL
    assert ((made.charge > 0) & good).sum() > 1000


@pytest.mark.parametrize("name,part", [("A", np.s_[:96, :52]), ("B", np.s_[:96, 52:]), ("C", np.s_[96:, :52]),
                                       ("D", np.s_[96:, 52:])])
def test_a_dead_amplifier_is_masked_and_changes_no_other_pixel(name: str, part, whole) -> None:
    made = simulate(replace(TINY, defects=replace(TINY.defects, dead_amplifier=name)))
    dead = np.zeros(made.mask.shape, bool)
    dead[part] = True
    np.testing.assert_array_equal((made.mask & CcdMask.BADAMP) != 0, dead)
    assert not made.image.ivar[dead].any()
    np.testing.assert_array_equal(made.image.pix[~dead], whole.image.pix[~dead])
    np.testing.assert_array_equal(made.mask[~dead], whole.mask[~dead])


def test_pixels_are_pinned() -> None:
    """Cached frames carry the simulator's version. If pixels change, raise header.VERSION, then update this."""
    from gpu_extract.simulate.header import VERSION

    made = simulate(SimConfig(camera="tiny", seed=1))
    assert VERSION == 2
    np.testing.assert_allclose(
        [made.expected.sum(), made.expected[96, 28], float(made.image.pix[100, 60]), int(made.mask.sum()),
         float(made.truth.flux.sum(dtype=float))], PINNED, rtol=1e-6)


PINNED = [203442.44510104574, 30.795385723870346, 23.21355438232422, 1180, 1081798.1398773193]


@pytest.mark.parametrize("change,words", [
    ({"camera": "x"}, "camera is 'x'"), ({"camera": "r12"}, "camera is 'r12'"), ({"nspec": 0}, "nspec is 0"),
    ({"specmin": -1}, "specmin is -1"), ({"seed": -1}, "seed is -1"), ({"seed": 2**63}, "seed is"),
    ({"flavor": "dusk"}, "flavor is 'dusk'"), ({"program": "grey"}, "program is"), ({"variance": "x"}, "variance is"),
    ({"exptime": 0.0}, "exptime is 0"), ({"exptime": float("nan")}, "exptime is nan"),
    ({"truth_step": 0.0}, "truth_step is 0"), ({"truth_grid": (7000.0, 6000.0, 0.8)}, "must ascend"),
    ({"truth_grid": (6000.0, float("inf"), 0.8)}, "must ascend"), ({"night": 3}, "night is 3"),
    *(({"night": night}, f"night is {night}, must be a date") for night in (20261399, 20250229, 18991231, 10**9)),
    ({"expid": 10**8}, "expid is"), ({"defects": Defects(masked_fraction=1.5)}, "masked_fraction is 1.5"),
    ({"defects": Defects(dead_amplifier="E")}, "dead_amplifier is 'E'"),
    ({"defects": Defects(bad_columns=-1)}, "bad_columns is -1"),
    ({"defects": Defects(dead_fibres=(-2,))}, "dead_fibres"),
])
def test_settings_that_make_no_sense(change: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SimConfig(**change)


@pytest.mark.parametrize("change,words", [
    ({"camera": b"r"}, "camera is b'r', must be a word"), ({"seed": 2.5}, "seed is 2.5, must be a whole number"),
    ({"seed": True}, "seed is True, must be a whole"), ({"nspec": "5"}, "nspec is '5', must be a whole number or None"),
    ({"noise": "no"}, "noise is 'no', must be True or False"), ({"crop": 1}, "crop is 1, must be True or False"),
    ({"exptime": "3"}, "exptime is '3', must be a number or None"), ({"night": None}, "night is None, must be a whole"),
    ({"truth_grid": (6000.0, 6100.0)}, "must be three numbers: first, last, step, in Angstrom or None"),
    ({"truth_grid": 0.8}, "truth_grid is 0.8, must be three"), ({"flexure": 1.0}, "flexure is 1.0, must be two"),
    ({"flexure": (1.0, None)}, "must be two numbers: x, y, in pixels"),
    ({"defects": None}, "defects is None, must be a Defects"), ({"variance": 3}, "variance is 3, must be a word"),
    *(({name: value}, f"{name} is {value:g}, must") for value in (float("nan"), float("inf"), -1.0)
      for name in ("exptime", "truth_step", "psf_error", "tails", "scattered")),
    ({"flexure": (float("nan"), 0.0)}, "flexure is nan,0, must lie"),
])
def test_settings_of_another_type(change: dict, words: str) -> None:
    """They were once accepted unchanged, or ended as Python errors."""
    with pytest.raises(ConfigError, match=re.escape(words)):
        SimConfig(**change)


@pytest.mark.parametrize("change,words", [
    ({"dead_fibres": 3}, "dead_fibres is 3, must be whole numbers"), ({"dead_fibres": (1.5,)}, "must be whole numbers"),
    ({"broken_fibres": "12"}, "must be whole numbers"), ({"cosmics": "no"}, "cosmics is 'no', must be True or False"),
    ({"bad_columns": 2.5}, "must be a whole number"), ({"dead_amplifier": 1}, "must be a word or None")])
def test_defects_of_another_type(change: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        Defects(**change)


def test_numbers_of_numpy_are_plain_ones() -> None:
    """Equal settings have equal digests, whatever their types."""
    odd = SimConfig(camera="tiny", seed=np.int64(3), truth_grid=np.array([6020.0, 6060.0, 0.8]),
                    defects=Defects(dead_fibres=[np.int32(2)]))
    assert odd.digest() == SimConfig(camera="tiny", seed=3, truth_grid=(6020.0, 6060.0, 0.8),
                                     defects=Defects(dead_fibres=(2,))).digest()


def test_all_problems_at_once() -> None:
    with pytest.raises(ConfigError, match=r"camera is 'q'.*nspec is 0.*masked_fraction"):
        SimConfig(camera="q", nspec=0, defects=Defects(masked_fraction=-1))
