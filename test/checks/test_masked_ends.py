"""Longer pads where masks leave little of the cores of a fibre's spots."""
import numpy as np
import pytest

import oracle
from extraction import extracted
from gpu_extract.checks import masked_ends
from gpu_extract.checks.masked_ends import beside_masks
from gpu_extract.checks.probe import measure_decay
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Image, SpecMask
from gpu_extract.spots import add_to_image, centres, make_spots


def test_masked_cores_ask_for_a_longer_pad():
    """A column masked along a trace at the end of the range leaves wings, which reach farther; what masks leave good
    changes nothing: cosmics, fibres without any pixel, or a column elsewhere."""
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


@pytest.mark.parametrize(("columns", "found"), [
    ((-2, -1, 0, 1, 2), [2]), ((0,), [2]), ((1, 2), []), ((-2, -1), [])])
def test_the_light_of_cores_is_looked_at(columns, found):
    """A fibre counts where its cores have lost more than a quarter of their light, as with the column in the middle."""
    psf = oracle.make_psf(nfibre=5, shape=(364, 60), first_row=14)
    y, x = (place[2] for place in np.rint(centres(psf, (0, 5), np.arange(6002.0, 6198.0, 0.1))).astype(int))
    ivar = np.ones(psf.shape)
    for column in columns:
        ivar[y, x + column] = 0.0
    image = Image(np.zeros(psf.shape), ivar)
    assert masked_ends._hidden_fibres(psf, (6060.0, 6140.0, 0.8), 40, image) == found


def test_every_second_row_masked_asks_for_a_longer_pad():
    """No core is masked whole, and light from beyond the pad of good pixels still reaches the ends: bins are those of
    a longer range."""
    psf = oracle.make_psf("v3", 3)
    wave, rng = np.arange(*psf.wavelength_range, 0.8), np.random.default_rng(5)
    photons = 300 * (1 + 0.3 * np.sin(np.arange(len(wave)) / 7)) * np.ones((3, 1))
    clean = np.zeros(psf.shape)
    add_to_image(clean, make_spots(psf, (0, 3), wave), photons)
    ivar = 1 / (clean + 9.0)
    pix = clean + rng.normal(size=psf.shape) / np.sqrt(ivar)
    ivar[1::2] = 0.0
    frame, longer = (extracted(Image(pix, ivar), psf, ExtractConfig((6100.0 - reach, 6100.0 + reach, 0.8)))
                     for reach in (12.0, 44.0))
    inner = longer.flux[:, 40:-40], longer.ivar[:, 40:-40]
    told = ((frame.mask | longer.mask[:, 40:-40]) & np.uint32(SpecMask.WEAKBIN | SpecMask.NODATA)) == 0
    assert told.mean() > 0.4
    # 2e-5 with the pad of good pixels
    assert (np.abs(frame.flux - inner[0]) * np.sqrt(inner[1]))[told].max() < 1e-8
