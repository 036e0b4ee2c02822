"""The made-up spectrograph: its spots against a sum over fine pixels, its raw image, its refusals."""
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from scipy.ndimage import gaussian_filter

from gpu_extract.cli.simulate import main
from gpu_extract.errors import ConfigError
from gpu_extract.io.image import read_image
from gpu_extract.simulate import SimConfig
from gpu_extract.simulate.discs import HALF, POSITIONS, stamps_of_disc
from gpu_extract.simulate.instrument import psf_model

FINE = 27           # per pixel, a whole number of them for each position


def test_a_disc_against_fine_pixels() -> None:
    """Fine pixels on the disc's edge are in or out: some 1e-3 of the peak."""
    at = (np.arange((2 * HALF + 3) * FINE) + 0.5) / FINE - HALF - 1.5
    y, x = np.meshgrid(at, at, indexing="ij")
    light = np.where(x * x + y * y < 2.3**2, 1 + (0.2 * x - 0.1 * y) / 2.3, 0.0)
    light = gaussian_filter(light, 0.55 * FINE)
    stamps = stamps_of_disc(2.3, 0.55, (0.2, -0.1))
    stamps = stamps / stamps.sum(axis=(2, 3), keepdims=True)
    for p in range(POSITIONS):
        for q in range(POSITIONS):
            up, right = (round(((n + 0.5) / POSITIONS - 0.5) * FINE) for n in (p, q))
            moved = np.roll(light, (up, right), (0, 1))[FINE:-FINE, FINE:-FINE]
            pixels = moved.reshape(2 * HALF + 1, FINE, 2 * HALF + 1, FINE).sum(axis=(1, 3))
            np.testing.assert_allclose(stamps[p, q], pixels / pixels.sum(), atol=2e-3 * stamps.max())


def test_the_camera_with_discs_has_tabulated_spots() -> None:
    psf = psf_model("side")
    assert (psf.nfibre, psf.tabulated, psf.stamp) == (60, True, (15, 15))
    assert psf.bundle is not None and np.bincount(psf.bundle).tolist() == [15] * 4
    with pytest.raises(ConfigError, match=r"tails is 0\.001, but spots of camera side are tables, which have none"):
        SimConfig(camera="side", tails=0.001)


def test_a_raw_image_lies_on_its_side(tmp_path: Path) -> None:
    image, raw = tmp_path / "a.fits", tmp_path / "raw.fits"
    assert main(["-o", str(image), "--camera", "side", "-n", "1", "--crop", "--flavor", "flat", "--no-defects", "--raw",
                 str(raw), "--psf-error", "0.05", "--true-psf", str(tmp_path / "true.fits")]) == 0
    made = read_image(image)
    with fits.open(raw) as hdus:
        assert (hdus[0].header["DISPAXIS"], hdus[0].header["GAIN"], hdus[0].header["BUNIT"]) == (1, 1.2, "adu")
        assert hdus[0].data.dtype.kind == "u"
        np.testing.assert_allclose((hdus[0].data.T - 1000.0) * 1.2, made.pix, atol=0.61)
    with fits.open(tmp_path / "a-psf.fits") as given, fits.open(tmp_path / "true.fits") as true:
        peaks = [hdus["STAMPS"].data[0, 2, 1, 1].max() for hdus in (given, true)]
    assert peaks[0] < 0.95 * peaks[1]
