"""Other programs' readers open the files of gpu_psf and make the same spots: specter, desispec.

They are no dependency of this project; a test is skipped if its reader is not installed.
"""
from pathlib import Path

import numpy as np
import pytest
from psf_errors import cold, make_arc, moved, uneven_lines
from psf_tails import CORE, INDEX, rising_tail, tailed_arc

from gpu_extract.io.psf import read_psf
from gpu_extract.simulate.instrument import psf_model
from gpu_extract.spots import centres, make_spots
from gpu_psf.data import FitConfig
from gpu_psf.run import fit_psf
from gpu_psf.shift.run import shift_psf
from gpu_psf.write import write_fitted, write_shifted

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # theirs, not ours
NEAR = 1e-6             # of a spot's peak


@pytest.fixture(scope="module", params=["fitted", "shifted", "tailed"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, true, lines = tmp_path_factory.mktemp("psf"), psf_model("tiny"), uneven_lines()
    arc = make_arc(true, (0, 10), (lines.wave, lines.strength), 1)
    if request.param == "shifted":
        write_shifted(folder / "psf.fits", shift_psf(arc, moved(true, 0.3, -0.4), lines), cards=(), inputs=("a", "b"))
        return folder / "psf.fits"
    config = FitConfig()
    if request.param == "tailed":
        arc, _ = tailed_arc(rising_tail(true, 0.004), (0, 10), lines, 3.0, 1)
        config = FitConfig(tail=(CORE, 1.0, 0.9, INDEX))
    fitted = fit_psf([arc], cold(true, 3, rough=0.1), lines, config)
    assert fitted is not None and (fitted.psf.tail is not None) == (request.param == "tailed")
    write_fitted(folder / "psf.fits", fitted, cards=(), config=config, inputs=["arc.fits", "start.fits"])
    return folder / "psf.fits"


def test_a_survey_reader_makes_the_same_spots(path: Path) -> None:
    """Pixel by pixel, all over the CCD."""
    load_psf = pytest.importorskip("specter.psf", reason="specter is not installed").load_psf
    theirs, ours = load_psf(str(path)), read_psf(path)
    wave = np.linspace(6008.0, 6102.0, 15)
    spots = make_spots(ours, (0, ours.nfibre), wave)
    assert theirs.nspec == ours.nfibre
    assert (theirs.npix_y, theirs.npix_x) == ours.shape
    for fibre in range(ours.nfibre):
        for n, at in enumerate(wave):
            xs, ys, pix = theirs.xypix(fibre, at)
            ny, nx = ours.stamp
            first_x, first_y = int(spots.x0[fibre, n]), int(spots.y0[fibre, n])
            mine = spots.stamps[fibre, n, max(ys.start - first_y, 0):ys.stop - first_y,
                                max(xs.start - first_x, 0):xs.stop - first_x]
            assert 0 <= xs.stop - first_x <= nx and 0 <= ys.stop - first_y <= ny
            np.testing.assert_allclose(pix, mine, rtol=0, atol=NEAR * mine.max())


def test_desispec_finds_the_same_traces(path: Path) -> None:
    read = pytest.importorskip("desispec.io.xytraceset", reason="desispec is not installed").read_xytraceset
    pytest.importorskip("specter.util.traceset", reason="specter, which desispec has traces from, is not installed")
    theirs, ours, wave = read(str(path)), read_psf(path), np.linspace(6008.0, 6102.0, 15)
    y, x = centres(ours, (0, ours.nfibre), wave)
    for fibre in range(ours.nfibre):
        np.testing.assert_allclose(theirs.x_vs_wave(fibre, wave), x[fibre], rtol=0, atol=1e-9)
        np.testing.assert_allclose(theirs.y_vs_wave(fibre, wave), y[fibre], rtol=0, atol=1e-9)
