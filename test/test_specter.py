"""Comparison with frames of specter: independent code, the same method (limits and reasons: etc/tolerances.json)."""
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits

from gpu_extract.compare import Comparison, compare_frames
from gpu_extract.compare.tolerances import load_limits
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Frame
from gpu_extract.io.frame import read_frame
from gpu_extract.io.image import read_image
from gpu_extract.io.psf import read_psf
from gpu_extract.run import extract

# name: frame, PSF, reference, settings. The broad PSF is padded for 1e-4 sigma, a hundredth of its bar.
FRAMES = {
    "r0": ("r0-fibres000-049", "psf-r0-00051060", "specter-r0-fibres000-049",
           {"wavelength": (5760.0, 7620.0, 0.8), "nspec": 50}),
    "v2": ("v2-fibres000-024", "psf-r0-v2-tails", "specter-v2-fibres000-024",
           {"wavelength": (6000.0, 6400.0, 0.8), "nspec": 25}),
    "gh2": ("gh2-fibres000-024", "psf-gausshermite2-boss", "specter-gh2-onepatch-fibres000-024",
            {"wavelength": (6500.0, 6700.0, 1.0), "tolerance": 1e-4}),
}
LIMITS = {"r0": "specter", "v2": "specter", "gh2": "specter-onepatch"}


@cache
def _extract(shared: Path, name: str) -> Frame:
    image, psf, _, settings = FRAMES[name]
    frame = extract(read_image(shared / f"data/frames/preproc-{image}.fits.gz"),
                    read_psf(shared / f"data/psf/{psf}.fits"), ExtractConfig(**settings))
    assert frame is not None
    return frame


@pytest.fixture(scope="session")
def extracted(shared):
    """(frame, reference) of one of FRAMES by name; each is extracted once per session."""
    return lambda name: (_extract(shared, name), read_frame(shared / f"data/frames/{FRAMES[name][2]}.fits.gz"))


def test_the_bars_are_those_that_were_set():
    """The promised agreement with specter; the file of limits must not drift away from it."""
    patches, one = load_limits("specter"), load_limits("specter-onepatch")
    flux = patches.fields["flux"]
    assert (flux.median, flux.p99, flux.maximum) == (1e-5, 0.01, 0.1)
    assert patches.fields["ivar"].p99 == 1e-4
    assert patches.fields["resolution"].p99 == 1e-5
    assert (one.fields["flux"].p99, one.fields["flux"].maximum, one.ends) == (0.01, 0.1, 20)
    assert (one.fields["ivar"].p99, one.fields["resolution"].p99) == (1e-3, 1e-4)


@pytest.mark.parametrize("name", FRAMES)
def test_frame_agrees_with_specter(extracted, name):
    comparison: Comparison = compare_frames(*extracted(name))
    assert comparison.limits.name == LIMITS[name]
    assert comparison.passed, comparison.table()
    expected = {"r0": (50, 2326), "v2": (25, 501), "gh2": (25, 161)}[name]
    assert (comparison.fibres, comparison.waves) == expected
    assert comparison.rows[0].bins > 0.99 * np.prod(expected)


def test_patches_of_a_broad_psf_are_told_apart(extracted, shared):
    """specter's own 50-bin patches are wrong for the broad PSF by a sigma: the same bars must show that."""
    _, reference = extracted("gh2")
    patches = read_frame(shared / "data/frames/specter-gh2-patches50-fibres000-024.fits.gz")
    comparison = compare_frames(patches, reference)
    assert [row.field for row in comparison.rows if not row.passed] == ["flux"]


def test_bad_column_and_masked_block(extracted):
    """r0: the bins that specter calls masked, wholly or by more than half, are the same here."""
    frame, reference = extracted("r0")
    for threshold in (0.5, 0.999):
        np.testing.assert_array_equal(frame.pixmask_fraction > threshold, reference.pixmask_fraction > threshold)
    assert np.count_nonzero(frame.pixmask_fraction == 1) == 80
    np.testing.assert_array_equal(frame.ivar == 0, frame.pixmask_fraction == 1)


def test_flux_lies_on_the_truth(extracted, shared):
    """R times the input spectrum, summed into the bins, within the errors: pulls have a spread of 1 except for the
    bins' width.

    The truth has 0.2 A bins and the errors come from the data: a spread of 1 to 5 %, a mean of 0 to 0.05.
    """
    frame, _ = extracted("r0")
    with fits.open(shared / "data/frames/truth-r0-fibres000-049.fits.gz") as hdus:
        wave, flux = (hdus[name].data.astype(float) for name in ("WAVELENGTH", "FLUX"))
    edges = np.append(frame.wave - 0.4, frame.wave[-1] + 0.4)
    pulls = []
    for i, diagonals in enumerate(frame.resolution):
        total = np.interp(edges, np.append(wave - 0.1, wave[-1] + 0.1), np.append(0, np.cumsum(flux[i] * 0.2)))
        blurred, truth = np.zeros(len(frame.wave)), np.diff(total) / 0.8
        for k, values in enumerate(diagonals):
            blurred += np.roll(values * truth, k - frame.ndiag)
        pulls.append((frame.flux[i] - blurred) * np.sqrt(frame.ivar[i]))
    good = (frame.mask == 0)[:, 10:-10]
    pull = np.array(pulls)[:, 10:-10][good]
    assert abs(np.median(pull)) < 0.05
    assert np.diff(np.quantile(pull, [0.1587, 0.8413]))[0] / 2 == pytest.approx(1, abs=0.05)
