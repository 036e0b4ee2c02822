"""flux against R times the truth: exact without noise, and within the errors of ivar with noise.

The truth is on the extraction grid, and ivar comes from the noiseless expectation; bench/pulls.py measures at full size
the effect of a truth on finer bins and of an ivar from the data.
"""
from dataclasses import dataclass, replace

import numpy as np
import pytest

from extraction import CORES, extracted, in_sigma, inner_case
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Image, PsfModel
from gpu_extract.resolution import times_resolution
from gpu_extract.simulate import SimConfig, simulate
from gpu_extract.simulate.config import NO_DEFECTS
from gpu_extract.simulate.noise import add_noise

GRID = (6000.0, 6109.6, 0.8)         # every bin of the tiny camera's PSF: 138; the first and last are off the CCD
INNER = (6012.0, 6092.0, 0.8)        # bins with the whole spot on the CCD, 12 or more bins away from those without
SIMULATIONS = 200
FULL = 137                           # diagonals on each side of a full R of 138 bins
FAR = 40                             # beyond these the elements of R are below 1e-11


@dataclass(frozen=True)
class Scene:
    """An expectation (ny, nx) in double precision, its ivar, and the truth: photons per Angstrom on GRID."""

    psf: PsfModel
    image: Image
    read_noise: np.ndarray
    truth: np.ndarray


@pytest.fixture(scope="module")
def tiny() -> Scene:
    """One bundle of five fibres: sky lines, a galaxy, stars; no defects."""
    made = simulate(SimConfig(camera="tiny", nspec=5, truth_grid=GRID, noise=False, defects=NO_DEFECTS))
    np.testing.assert_allclose(made.truth.wave, np.arange(138) * 0.8 + 6000.0, rtol=1e-15)
    return Scene(replace(made.psf, bundle=None), Image(made.expected, made.image.ivar), made.read_noise,
                 made.truth.electrons() / 0.8)


# ---- without noise --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("core", "ndiag", "left"), [("dense", FULL, 1e-10), ("banded", FAR, 1e-8)])
def test_flux_is_r_times_the_truth(tiny, core, ndiag, left):
    """With the core's full R, in every bin: the bound is 1e-6 of the error; 5e-12 (dense) and 2e-9 (banded) are
    seen."""
    config = ExtractConfig(wavelength=GRID, core=core, ndiag=ndiag, nspec=5, bundlesize=5, nwavestep=200)
    frame = extracted(tiny.image, tiny.psf, config)
    difference = in_sigma(frame, times_resolution(frame.resolution, tiny.truth))
    assert difference.max() < left < 1e-6


@pytest.mark.parametrize("core", CORES)
def test_flux_is_r_times_the_truth_up_to_the_ends(core):
    """If everything is on the CCD, in every bin, with a truth projected by quadrature: bound 1e-6 sigma; 2e-9 are seen.

    Elements of R beyond FAR diagonals are left out: 1e-11 of lines of 3000 photons.
    """
    case = inner_case(3, noise=False)
    truth = case.photons / 0.8
    frame = extracted(case.image, case.psf, replace(case.config, core=core, ndiag=FAR, nwavestep=90))
    np.testing.assert_allclose(case.wave, frame.wave, rtol=1e-15)
    assert in_sigma(frame, times_resolution(frame.resolution, truth)).max() < 1e-6


def test_what_the_stored_diagonals_lose(tiny, capsys):
    """The 2 * 5 + 1 diagonals that a frame stores, against all of them, without noise: in sigma, and in row sums.

    Seen: sigma, median 6e-4, 99 % 7e-3, largest 1.2e-2 at lines of 50 sigma; rows sum to 0.9995 to 1.0005. With 8, 12
    and 20 diagonals on each side the largest is 2e-3, 3e-4 and 4e-6.
    """
    config = ExtractConfig(wavelength=GRID, nspec=5, bundlesize=5, core="dense", nwavestep=200)
    far = slice(30, -30)        # the first and last rows lose what lies beyond the range
    lost = {}
    for ndiag in (5, 8, 12, 20):
        frame = extracted(tiny.image, tiny.psf, replace(config, ndiag=ndiag))
        difference = in_sigma(frame, times_resolution(frame.resolution, tiny.truth))[:, far]
        sums = times_resolution(frame.resolution, np.ones(frame.flux.shape))[:, far] - 1
        lost[ndiag] = difference.max()
        with capsys.disabled():
            print(f"\n{ndiag:3d} diagonals on each side: median {np.median(difference):.1e}, "
                  f"99 % {np.quantile(difference, 0.99):.1e}, largest {lost[ndiag]:.1e} sigma; "
                  f"row sums {sums.min():+.1e} to {sums.max():+.1e}", end="")
        assert np.abs(sums).max() < 1e-3
    assert 1e-4 < lost[5] < 0.02
    assert lost[5] > lost[8] > lost[12] > lost[20]
    assert lost[20] < 1e-5


# ---- with noise -----------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module", params=[("auto", {}), ("dense", {"nwavestep": 20, "tolerance": 1e-5})],
                ids=lambda p: p[0])
def pulls(request, tiny) -> np.ndarray:
    """(simulations, nspec, nwave): (flux - R truth) sqrt(ivar) of 200 noisy images, with the full noiseless R.

    Patches of the dense core end every 20 bins.
    """
    core, settings = request.param
    everything = ExtractConfig(wavelength=GRID, nspec=5, bundlesize=5, core="dense", ndiag=FULL, nwavestep=200)
    reference = extracted(tiny.image, tiny.psf, everything)
    inner = slice(15, 116)
    wanted = times_resolution(reference.resolution, tiny.truth)[:, inner]
    config = replace(everything, wavelength=INNER, core=core, ndiag=5, **settings)
    pix = np.empty(tiny.image.shape, np.float32)
    found = []
    for seed in range(SIMULATIONS):
        add_noise(pix, tiny.image.pix, tiny.read_noise, seed=seed)
        frame = extracted(Image(pix, tiny.image.ivar), tiny.psf, config)
        found.append((frame.flux - wanted) * np.sqrt(frame.ivar))
    np.testing.assert_allclose(frame.ivar, reference.ivar[:, inner], rtol=1e-4)
    return np.array(found)


def test_pulls_have_mean_zero_and_spread_one(pulls):
    """0 +- 0.03 and 1 +- 0.02. 101 000 pulls: the means of mean and spread scatter by 0.003 and 0.002."""
    assert abs(pulls.mean()) < 0.03
    assert abs(pulls.std() - 1) < 0.02


def test_at_the_edges_of_patches_too(pulls):
    """The two bins on both sides of every edge, and each bin of a patch separately: 5000 pulls, scatter 0.01 (of means
    0.014): bounds of 4 times that."""
    edge = (np.arange(101) + 2) % 20 < 4
    assert abs(pulls[..., edge].mean()) < 0.03
    assert abs(pulls[..., edge].std() - 1) < 0.02
    for place in range(20):
        assert abs(pulls[..., place::20].mean()) < 0.06
        assert abs(pulls[..., place::20].std() - 1) < 0.04


def test_every_fibre_by_itself(pulls):
    """20 200 pulls each, of bright and faint fibres: 0.007 and 0.005."""
    for fibre in range(5):
        assert abs(pulls[:, fibre].mean()) < 0.03
        assert abs(pulls[:, fibre].std() - 1) < 0.02


def test_errors_of_neighbouring_bins_are_independent(pulls):
    """The purpose of the decorrelation: along a fibre, at any distance, 20 000 pulls by pairs: 0 +- 0.03."""
    for distance in (1, 2, 3, 7):
        product = pulls[..., :-distance] * pulls[..., distance:]
        assert abs(product.mean()) < 0.02
        for fibre in range(5):
            assert abs(product[:, fibre].mean()) < 0.03


def test_pulls_are_normal(pulls):
    """Shares beyond 1, 2 and 3: 31.73, 4.55 and 0.27 %, within 5 times their scatter."""
    for limit, share in ((1, 0.3173), (2, 0.0455), (3, 0.0027)):
        scatter = np.sqrt(share * (1 - share) / pulls.size)
        assert abs((np.abs(pulls) > limit).mean() - share) < 5 * scatter + 2e-4
