"""The spectrum for the variance where bins are fine for their spots."""
from dataclasses import replace

import numpy as np
import pytest

from extraction import extracted
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Array, Normal
from gpu_extract.passes.fine_bins import FINE, HIDDEN, shown
from gpu_extract.passes.spot_shape import shape_of
from gpu_extract.passes.variance import bands_of
from gpu_extract.resolution import times_resolution
from gpu_extract.several import bundles
from gpu_extract.simulate import SimConfig, simulate
from gpu_extract.simulate.config import NO_DEFECTS
from gpu_extract.simulate.instrument import psf_model

NWAVE, HALFBAND, STEP = 120, 16, 0.7        # STEP: pixels from bin to bin, of spots with a sigma of one pixel


def spots(nwave: int = NWAVE) -> Array:
    """A (pixels, bins) of one fibre along the dispersion."""
    pixel = np.arange(-8.0, nwave * STEP + 8.0)
    return np.exp(-0.5 * np.square(pixel[:, None] - STEP * np.arange(nwave))) / np.sqrt(2.0 * np.pi)


def normal_of(a: Array, weight: Array) -> Normal:
    """The normal equations of some fibres that do not couple; weight: (nfibre, pixels)."""
    blocks = np.stack([a.T @ (w[:, None] * a) for w in weight])
    icov = np.zeros((len(weight), 1, NWAVE, 2 * HALFBAND + 1))
    for k in range(-HALFBAND, HALFBAND + 1):
        j = np.arange(max(0, -k), min(NWAVE, NWAVE - k))
        icov[:, 0, j, HALFBAND + k] = blocks[:, j, j + k]
    light = weight @ a
    return Normal(icov, np.zeros(light.shape), np.where(light > 1e-9, light, 0.0), light <= 1e-9)


def of(normal: Normal, x: Array) -> Array:
    return shown(normal, x, bands_of(normal, NWAVE))


def test_it_is_what_it_is_defined_to_be() -> None:
    """By dense matrices, beside pixels without weight as well. Scaled, cond is at most 1 / HIDDEN, and each of 1e2 sums
    is rounded by eps: 1e-11."""
    rng = np.random.default_rng(1)
    a, weight = spots(), rng.uniform(0.1, 1.0, (3, len(spots())))
    weight[1, 20:44] = 0.0
    normal, x = normal_of(a, weight), rng.normal(0.0, 100.0, (3, NWAVE))
    found = of(normal, x)
    for i in range(3):
        seen = normal.weight[i] > 0
        dense = np.zeros((NWAVE, NWAVE))
        for k in range(-HALFBAND, HALFBAND + 1):
            dense += np.diag(normal.icov[i, 0, max(0, -k):NWAVE - max(0, k), HALFBAND + k], k)
        dense = dense[seen][:, seen]
        root = np.sqrt(dense.sum(axis=1))       # scaled, as rows beside pixels without weight are small
        scaled = dense / root[:, None] / root + HIDDEN * np.eye(len(root))
        slow = (1 + HIDDEN) * np.linalg.solve(scaled, dense @ x[i, seen] / root) / root
        np.testing.assert_allclose(found[i, seen], slow, rtol=0, atol=1e-11 * np.abs(slow).max())
        assert not found[i, ~seen].any()
    assert np.count_nonzero(normal.weight[1] == 0) > 5


def test_continua_and_lines_stay() -> None:
    """A constant is exact. Of a line's light on the pixels, sqrt(HIDDEN) / 2 of each pattern's is changed at most,
    relative to a constant spectrum's: of the root of the sum of squares, that of the integral of k."""
    a = spots()
    normal = normal_of(a, np.ones((1, len(a))))
    np.testing.assert_allclose(of(normal, np.full((1, NWAVE), 60.0))[0], 60.0, rtol=1e-6)       # bands are cut off
    line = np.where(np.arange(NWAVE) == 60, 1.0, 0.0)[None]
    change = a @ (of(normal, line) - line)[0]
    assert np.linalg.norm(change) < 0.5 * np.sqrt(HIDDEN * (a.T @ a)[60].sum())


def test_noise_cancels_at_the_ends_of_a_stretch() -> None:
    """What a stretch of the noise of x puts on the pixels around its ends. The noise of patterns that spots show by k
    is 1 / sqrt(k); cut off, all of it is light, and k is 1e-9 here. Once patterns below HIDDEN are left out, it is
    1 / (2 sqrt(HIDDEN)) per bin at most, root mean square: 16 electrons."""
    a, rng = spots(), np.random.default_rng(2)
    normal = normal_of(a, np.ones((1, len(a))))
    some = np.where((np.arange(NWAVE) >= 40) & (np.arange(NWAVE) < 80), 1.0, 0.0)
    worst = []
    for _ in range(20):
        x = np.linalg.lstsq(a, rng.standard_normal(len(a)), rcond=None)[0]
        worst.append([np.abs(a @ (each * some)).max() for each in (x, of(normal, x[None])[0])])
    cut, kept = np.median(worst, axis=0)
    assert kept < 0.5 / np.sqrt(HIDDEN) < 0.1 * cut


@pytest.mark.parametrize("step, fine", [(0.85, False), (0.8, False), (0.5, True)])
def test_bins_are_fine_where_spots_overlap_by_far(step: float, fine: bool) -> None:
    """Twice the limit from it on either side, so that what is usual never changes its way."""
    least = shape_of(psf_model("tiny", 0), step).least
    assert least < FINE / 2 if fine else least > 2 * FINE


def test_only_fine_bins_are_treated_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Usual bins keep their bits; with them the other way differs by little."""
    grid = 6020.0, 6090.0, 0.85
    made = simulate(SimConfig(camera="tiny", seed=3, truth_grid=grid, variance="data", defects=NO_DEFECTS))
    asked: list[int] = []

    def count(normal: Normal, x: Array, bands: Array) -> Array:
        asked.append(len(x))
        return shown(normal, x, bands)

    monkeypatch.setattr(bundles, "shown", count)
    frame = extracted(made.image, made.psf, ExtractConfig(grid, passes=2))
    assert not asked
    monkeypatch.setattr(bundles, "FINE", 1.0)
    other = extracted(made.image, made.psf, ExtractConfig(grid, passes=2))
    assert asked == [5, 5]
    assert 0 < np.abs(other.ivar / frame.ivar - 1).max() < 0.1


@pytest.mark.parametrize("masked", [0, 6])
def test_the_variance_of_fine_bins_is_that_of_the_light(masked: int) -> None:
    """Steps of 0.4 Angstrom. Every bin has a fifteenth of its own noise in its variance, and lines more. Without this,
    ivar was 0.05 to 22 times that of the true variance, and pulls up to 9.4. Spreads have five errors of room."""
    grid, pulls, ratios = (6020.0, 6090.0, 0.4), [], []
    for seed in range(1, 4):
        made = simulate(SimConfig(camera="tiny", seed=seed, truth_grid=grid, variance="data", defects=NO_DEFECTS))
        ivar = made.image.ivar.copy()
        ivar[96:96 + masked] = 0.0
        true = np.where(ivar > 0, 1 / (made.read_noise.astype(float)**2 + made.expected), 0.0)
        best, two = (extracted(replace(made.image, ivar=each), made.psf, ExtractConfig(grid, passes=n, ndiag=24))
                     for n, each in ((1, true), (2, ivar)))
        first = int(np.argmin(np.abs(made.truth.wave - two.wave[0])))
        light = made.truth.electrons()[:, first:first + len(two.wave)] / grid[2]
        good = (two.mask == 0) & (best.mask == 0)
        good[:, :25] = good[:, -25:] = False
        pulls.append(((two.flux - times_resolution(two.resolution, light)) * np.sqrt(two.ivar))[good])
        ratios.append((two.ivar / np.where(good, best.ivar, 1))[good])
    pull, ratio = np.concatenate(pulls), np.concatenate(ratios)
    assert len(pull) > 2000 and abs(pull.std() - 1) < 5 / np.sqrt(2 * len(pull)) and np.abs(pull).max() < 5
    assert ratio.min() > 0.7 and ratio.max() < 1.4 and abs(np.median(ratio) - 1) < 0.02
