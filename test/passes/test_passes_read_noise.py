"""The read noise of an image."""
from dataclasses import replace

import numpy as np
import pytest

from gpu_extract.data import Card, Image
from gpu_extract.errors import InputError
from gpu_extract.passes.read_noise import ReadNoise, find_read_noise, given_read_noise, too_quiet

RNG = np.random.default_rng(5)
NOISE = np.array([[2.5, 2.7], [3.1, 3.3]])      # electron, of the amplifiers


def image_of(noise: np.ndarray = NOISE, light: float = 0.0, **more) -> Image:
    """An image with the noise of four amplifiers, light on half of the columns, and ivar made from the noisy pixels."""
    every = noise.repeat(40, axis=0).repeat(30, axis=1)
    expected = np.where(np.arange(60) % 4 < 2, light, 0.0) + np.zeros((80, 1))
    pix = RNG.poisson(expected) + every * RNG.standard_normal(every.shape)
    return Image(pix, 1 / (every**2 + np.maximum(pix, 0)), **more)


def test_read_noise_is_that_of_the_image_then_of_the_header_then_of_dark_pixels() -> None:
    image = image_of(light=500.0)
    cards = tuple(Card(f"OBSRDN{amplifier}", value) for amplifier, value in zip("ABCD", NOISE.ravel(), strict=True))
    every = NOISE.repeat(40, axis=0).repeat(30, axis=1)
    for given, source in ((replace(image, cards=cards, noise=every), "READNOISE"),
                          (replace(image, cards=cards), "header"), (image, "ivar")):
        found = find_read_noise(given, (80, 60))
        assert found.source == source
        # ivar of a pixel at or below 0 is 1 / noise^2 to the last bits
        np.testing.assert_allclose(found.squared((0, 0), (80, 60)), every**2, rtol=1e-12)
        np.testing.assert_allclose(found.squared((35, -3), (50, 65))[:45, 3:63], (every**2)[35:, :], rtol=1e-12)


def test_read_noise_in_another_unit_is_not_believed() -> None:
    found = find_read_noise(replace(image_of(), noise=np.full((80, 60), 0.3)), (80, 60))
    assert found.source == "ivar" and found.values[0, 0] == pytest.approx(2.5)


def test_pixels_without_read_noise_have_that_of_their_amplifier() -> None:
    """The largest of it, so that what others have changes nothing; where a whole amplifier has none, of all."""
    every = NOISE.repeat(40, axis=0).repeat(30, axis=1)
    wanted = every.copy()
    every[[3, 50, 9], [4, 7, 55]] = 0.0, np.nan, -1.0
    every[0, 0] = wanted[0, 0] = wanted[3, 4] = 2.6
    every[40:, 30:] = np.inf
    wanted[40:, 30:] = 3.1
    found = given_read_noise(replace(image_of(), noise=every), (40, 30))
    np.testing.assert_array_equal(found.values, wanted)


def test_an_image_without_read_noise_is_refused() -> None:
    image = image_of()
    with pytest.raises(InputError, match=r"^the read noise is unknown: .* or --passes 1$"):
        find_read_noise(replace(image, ivar=np.where(image.pix > 0, image.ivar, 0)), (80, 60))


def test_an_image_in_another_unit_than_electrons_is_refused() -> None:
    image = image_of(light=5000.0)
    find_read_noise(image, (80, 60))
    with pytest.raises(InputError, match=r"^the variance of bright pixels is 10.* times their light, must be 1 times"):
        find_read_noise(replace(image, pix=10 * image.pix, ivar=image.ivar / 100), (80, 60))


@pytest.mark.parametrize("light", [20.0, 5000.0])
def test_hits_say_nothing_of_the_unit(light: float) -> None:
    """Hits have more bright pixels than fibres, and IVAR is made from a model without hits. An IVAR without photon
    noise does not determine the unit, and is refused."""
    expected = np.zeros((80, 60))
    expected[:, ::12] = light
    pix, noise = RNG.poisson(expected) + 3.0 * RNG.standard_normal(expected.shape), np.full(expected.shape, 3.0)
    pix[RNG.random(pix.shape) < 0.2] += 3e4
    image = Image(pix, 1 / (9.0 + expected), noise=noise)
    assert find_read_noise(image, (80, 60)).source == "READNOISE"
    for unit in (replace(image, pix=4 * image.pix, ivar=image.ivar / 16, noise=4 * noise),
                 replace(image, ivar=np.full(pix.shape, 1 / 9.0))):
        if light > 25 * 9 or unit.ivar[0, 0] == unit.ivar[0, 1]:
            with pytest.raises(InputError, match=r"times their light, must be 1 times"):
                find_read_noise(unit, (80, 60))


@pytest.mark.parametrize(("value", "told"), [(0.19, True), (0.21, False)])
def test_read_noise_that_is_next_to_none_is_told(value: float, told: bool) -> None:
    """Of one amplifier as of all; not of single pixels."""
    one, every = np.full((2, 2), 3.0), np.full((80, 60), 3.0)
    one[1, 0] = every[40:, :30] = value
    for values in (np.full((2, 2), value), one, every):
        assert bool(too_quiet(ReadNoise(values, (40, 30), "header"))) == told
    every[:] = 3.0
    every[::9, ::9] = value
    assert too_quiet(ReadNoise(every, (40, 30), "READNOISE")) == too_quiet(None) == ""
