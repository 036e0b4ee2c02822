"""The variance from a model of the image."""

import numpy as np
import pytest

from gpu_extract.data import Normal
from gpu_extract.normal import Cut
from gpu_extract.passes.variance import (
    KEEP,
    REACH,
    SKEW,
    WIDTHS,
    left_by,
    seen_noise,
    smooth,
    trusted,
    weigh,
)

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("error", [0.0, 0.02])
def test_pixels_are_weighed_by_the_model(error: float) -> None:
    pix, ivar = RNG.standard_normal((2, 12, 16)) ** 2
    ivar[3, 4:7] = 0.0
    own, others = (100 * RNG.standard_normal((2, 12, 16))).astype(np.float32)
    noise = 5.0 + RNG.random((12, 16))
    cut = Cut(np.sqrt(ivar), np.sqrt(ivar) * pix, 0, 0)
    weigh(cut, noise, own, others, error)
    model = (own + others).astype(float)        # models are in single precision
    variance = noise + np.where(model > 0, model, 0) + (error * model) ** 2
    good = ivar > 0
    np.testing.assert_allclose(cut.root[good] ** -2, variance[good], rtol=1e-12)
    np.testing.assert_allclose(cut.light[good], ((pix - others) / np.sqrt(variance))[good], rtol=1e-12)
    assert (cut.root[~good] == 0).all() and (cut.light[~good] == 0).all()


def normal_of(blocks: np.ndarray) -> Normal:
    """Normal equations of uncoupled fibres; blocks: (nfibre, nwave, nwave)."""
    nfibre, nwave, _ = blocks.shape
    hw = 6
    icov = np.zeros((nfibre, 1, nwave, 2 * hw + 1))
    for k in range(-hw, hw + 1):
        j = np.arange(max(0, -k), min(nwave, nwave - k))
        icov[:, 0, j, hw + k] = blocks[:, j, j + k]
    return Normal(icov, np.zeros((nfibre, nwave)), blocks.sum(axis=2) / 10, np.zeros((nfibre, nwave), bool))


def gaussian(nwave: int) -> np.ndarray:
    """A block of icov from Gaussian spots."""
    apart = np.subtract.outer(np.arange(nwave), np.arange(nwave))
    return np.where(np.abs(apart) <= 6, np.exp(-apart**2 / 4.0), 0.0)


def bands_of(block: np.ndarray) -> np.ndarray:
    """(7, 1, nwave) the diagonals of a block, as stored for each fibre."""
    return np.stack([np.pad(block.diagonal(k), (0, k))[None] for k in range(7)])


def slow_left(block: np.ndarray, width: int) -> float:
    """Variance of K (x - y) over K_jj for a bin in the middle, by matrices, if x has the covariance K^-1."""
    n = len(block)
    box = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= width // 2
    leaves = np.eye(n) - block @ (box / (box @ block).sum(axis=1, keepdims=True))
    return float((leaves @ block @ leaves.T)[n // 2, n // 2] / block[n // 2, n // 2])


def slow_smooth(block: np.ndarray, x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The definition, with whole matrices."""
    n, y = len(x), x
    for width in WIDTHS:
        lines, other = np.zeros(n, dtype=bool), y
        box = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= width // 2
        error = left_by(bands_of(block), np.ones((1, n), bool), width)[0] * np.diag(block) * scale
        while True:
            known = np.diag((~lines).astype(float))
            light, share = box @ known @ block @ known @ x, box @ known @ block @ known @ np.ones(n)
            y = np.where(lines, other, light / np.where(share > 0, share, 1))
            apart = block @ (x - y)
            beyond = (apart > KEEP * np.sqrt(error) + SKEW * np.diag(block)) | (apart < -KEEP * np.sqrt(error))
            near = np.convolve(beyond, np.ones(2 * REACH + 1), mode="same") > 0
            if not (near & ~lines).any():
                break
            lines |= near
    return y + np.minimum(np.maximum(-y, 0), 10) + np.where(np.isclose(y, x, rtol=1e-6, atol=1e-6), 1.0, 1 / 15)


def test_the_spectrum_of_a_variance_is_smooth_but_for_its_lines() -> None:
    nwave = 80
    block = gaussian(nwave)
    x = np.stack([5 + RNG.standard_normal(nwave), 5 + RNG.standard_normal(nwave)])
    x[1, 40] += 300.0
    found = smooth(normal_of(np.stack([block, block])), x, None)
    for row, spectrum in zip(found, x, strict=True):
        expected = slow_smooth(block, spectrum, np.ones(nwave))
        np.testing.assert_allclose(row, expected, rtol=1e-10)
    np.testing.assert_array_equal(found[1, 37:44], x[1, 37:44] + 1)        # the line unchanged
    assert abs(found[1, 33:37].mean() - 5) < 2 and abs(found[1, 44:48].mean() - 5) < 2     # and no light beside
    # averages have the noise of some 15 bins: at most a third of a bin's own
    assert found[0, 10:-10].std() < x[0, 10:-10].std() / 3


@pytest.mark.parametrize("width", WIDTHS)
def test_what_an_average_leaves_of_noise_is_that_of_the_matrices(width: int) -> None:
    block = gaussian(301)
    left = left_by(bands_of(block), np.ones((1, 301), bool), width)[0, 0]
    assert left == pytest.approx(slow_left(block, width), rel=0.02)
    assert left_by(bands_of(block), np.zeros((1, 301), bool), width)[0, 0] == 1


def test_an_edge_that_a_wide_average_would_lose_is_kept_by_a_narrow_one() -> None:
    """A bump too broad for a line: the wide average cuts its top, so the narrow one is used there."""
    nwave, at, noise = 120, np.arange(120), np.random.default_rng(5).standard_normal(120)
    block = gaussian(nwave)
    x = 100 + 6 * np.exp(-0.5 * ((at - 60) / 4.0)**2) + 0.01 * noise
    error = np.abs(block @ x) / np.sqrt(block.diagonal())
    found = smooth(normal_of(block[None]), x[None], None)[0]
    assert error[60] > 100 and found[60] > 104.5 and not (found == x + 1)[55:66].all()
    np.testing.assert_allclose(found[20:30], 100 + 1 / 15, atol=0.1)


def test_bright_light_scatters_more_where_weights_know_read_noise_alone() -> None:
    """If the weights contain the read noise alone, photon noise of a bright spectrum must not count as lines."""
    nwave = 200
    block = gaussian(nwave)
    noise_of_x = np.linalg.cholesky(np.linalg.inv(block + 1e-3 * np.eye(nwave))) @ RNG.standard_normal(nwave)
    x = (1e4 + 30 * noise_of_x)[None]
    normal = normal_of(block[None])
    mean = float((block @ x[0]).mean() / normal.weight.mean())           # electron in a pixel, as a spot sees it
    assert (smooth(normal, x, None) == x + 1).mean() > 0.5
    assert (smooth(normal, x, normal.weight * mean / 900) == x + 1).mean() < 0.1


def test_where_no_photon_has_come_there_may_be_light() -> None:
    """One photon is added to a bin by itself, a part of one to a bin of an average. Noise may put x below 0 by up
    to ten photons, a line by more."""
    block = gaussian(80)
    x = -1e-4 * np.tile([0.2, 0.8], 40)[None]         # none is its own average
    x[0, 38:43] = -6.0, -200.0, 900.0, -200.0, -6.0
    found = smooth(normal_of(block[None]), x, None)[0]
    np.testing.assert_allclose(found[:12], 1 / 15, atol=1e-4)
    np.testing.assert_array_equal(found[38:43], [1, -189, 901, -189, 1])


def test_photons_lacked_count_for_little_where_read_noise_hides_them() -> None:
    """K_jj is a tenth of FULL here, so photons count for a tenth."""
    x = -1e-4 * np.tile([0.2, 0.8], 40)[None]         # none is its own average
    x[0, 40] = -900.0
    found = smooth(normal_of(0.03 * gaussian(80)[None]), x, None)[0]
    np.testing.assert_allclose(found[:12], 0.1 / 15, atol=1e-4)
    assert found[40] == pytest.approx(-900 + 0.1 * 11)


def test_noise_is_that_of_the_pixels_under_each_spot() -> None:
    """Two fibres on amplifiers of read noise 2 and 7, as bright: K x has the variance sum a^2 w (1 + w light), w being
    1 / noise^2. Light is averaged under a instead of a^2, which is (3 / 4)^(1/2) as much across a Gaussian, and in
    pixels by 2 exp(-2 pi^2 / 3) = 0.3 % less."""
    y, x = np.arange(60.0), np.arange(-4.0, 5.0)
    spots = np.exp(-(y - y[:, None])[:, :, None] ** 2 / 2.0 - x**2 / 2.0).reshape(60, -1) / (2 * np.pi)
    light = 400.0 * spots.sum(axis=0)
    for noise in (2.0, 7.0):
        weight = np.full(light.shape, noise**-2)
        block = np.where(np.abs(y - y[:, None]) <= 6, (spots * weight) @ spots.T, 0.0)[None]
        found = seen_noise(normal_of(block), bands_of(block[0]), np.full((1, 60), 400.0), spots.sum(axis=1)[None])[0]
        exact = np.square(spots) @ (weight * (1 + weight * light))
        own = np.diag(block[0])
        np.testing.assert_allclose((found / own - 1)[8:-8], 0.75**0.5 * (exact / own - 1)[8:-8], rtol=4e-3)
    share = spots.sum(axis=1)[None] * (y != 30)
    assert np.isinf(seen_noise(normal_of(block), bands_of(block[0]), np.full((1, 60), 400.0), share)[0, 30])


@pytest.mark.parametrize(("photons", "line"), [(SKEW - 0.3, False), (SKEW + 0.3, True)])
def test_counts_exceed_four_errors_more_often(photons: float, line: bool) -> None:
    """The limit is 2.5 photons higher, each of which adds K_jj to K x; for missing light it is not higher."""
    block, heights = gaussian(120), []
    for width in WIDTHS:
        box = np.abs(np.subtract.outer(np.arange(120), np.arange(120))) <= width // 2
        seen = (block @ (np.eye(120) - box @ block / (box @ block).sum(axis=1)[:, None]))[60, 60]
        left = left_by(bands_of(block), np.ones((1, 120), bool), width)[0, 0]
        heights.append((KEEP * np.sqrt(left) + photons) / seen)
    for height, kept in ((max(heights), line), (-max(heights), True)):
        x = np.full((1, 120), 20.0)
        x[0, 60] += height
        assert (smooth(normal_of(block[None]), x, None)[0, 60] == x[0, 60] + 1) == kept


def test_bins_that_are_known_with_others_alone_have_what_their_spots_see() -> None:
    block = gaussian(12)
    normal = normal_of(np.stack([block, block]))
    x, share = 1000 * RNG.standard_normal((2, 12)), np.ones((2, 12))
    share[0, 3:6], share[1, 7:9] = (0.5, 0.49, 0.01), (0.009, 0.3)
    lit = share >= 0.01
    seen = lit * np.einsum("jk,ik->ij", block, lit * x) / np.einsum("jk,ik->ij", block, lit)
    expected = np.where(share >= 0.5, x, seen)
    np.testing.assert_allclose(trusted(normal, x, share), expected, rtol=1e-12)
