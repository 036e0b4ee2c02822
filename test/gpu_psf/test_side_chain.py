"""The commands of doc/psf.md for a spectrograph that is known only by its description, from raw images to a frame."""
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits

from gpu_extract.io.psf import read_psf
from gpu_extract.simulate.instrument import psf_model
from gpu_extract.spots import centres

ROOT = Path(__file__).resolve().parents[2]


def commands() -> str:
    """The block of commands under "A made-up spectrograph", unchanged."""
    page = (ROOT / "doc" / "psf.md").read_text(encoding="utf-8")
    found = re.search(r"### A made-up spectrograph\n\n((?:    .*\n)+)", page)
    assert found is not None
    return re.sub(r"^    ", "", found[1], flags=re.MULTILINE)


@pytest.mark.slow
def test_raw_images_to_a_frame(tmp_path: Path) -> None:
    text = re.sub(r"^( *)(gpu_\w+)", rf"\1{sys.executable} {ROOT}/bin/\2", commands(), flags=re.MULTILINE)
    ended = subprocess.run(["bash", "-ec", text], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    true, wave = psf_model("side"), np.linspace(7520, 8280, 40)
    for name, bound in (("start", 0.3), ("psf", 0.15)):      # the centre of a table depends on the table
        psf = read_psf(tmp_path / f"{name}.fits")
        assert psf.bundle is not None and psf.bundle.tolist() == np.repeat(range(4), 15).tolist()
        assert np.abs(centres(psf, (0, 60), wave) - centres(true, (0, 60), wave)).max() < bound
    with fits.open(tmp_path / "psf.fits") as hdus:
        assert (hdus["FITTED"].data["STATUS"] == 0).all() and (hdus["BUNDLES"].data["CHI2"] < 1.1).all()
    with fits.open(tmp_path / "frame.fits") as hdus, fits.open(tmp_path / "science-truth.fits") as truth:
        found, made = (light_of(*(hdu[name].data for name in ("WAVELENGTH", "FLUX"))) for hdu in (hdus, truth))
    assert np.median(found / made) == pytest.approx(1, abs=0.03)


def light_of(wave: np.ndarray, flux: np.ndarray) -> np.ndarray:
    """The light of each fibre away from bright sky lines, electron."""
    inside = (wave >= 7601) & (wave < 7699)
    return flux[:, inside].sum(axis=1) * (wave[1] - wave[0])
