"""Lines that the other fibres of a bundle show as well."""
import numpy as np
import pytest

from gpu_extract.data import Normal
from gpu_extract.passes.shared_lines import GAINS, LEAST, LOUDEST, TURNS, shared_lines
from gpu_extract.passes.variance import HALF, KEEP, REACH, WIDTHS, Shared, smooth

NFIBRE, NWAVE, HALFBAND = 8, 200, 6
LINES = np.arange(12, 150, 11)           # closer together than an average is wide
OWN = 61                                 # bin of a line that one fibre has


def blocks_of(rng: np.random.Generator) -> np.ndarray:
    """(nfibre, nwave, nwave) own blocks of icov from Gaussian spots, of fibres with more and less information."""
    apart = np.subtract.outer(np.arange(NWAVE), np.arange(NWAVE))
    one = np.where(np.abs(apart) <= HALFBAND, np.exp(-apart**2 / 4.0), 0.0)
    scale = np.sqrt(0.02 * rng.uniform(0.5, 1.5, (NFIBRE, 1)) * (1 + 0.3 * np.sin(np.arange(NWAVE) / 40)))
    return scale[:, :, None] * one * scale[:, None]


def normal_of(blocks: np.ndarray) -> Normal:
    """Normal equations of fibres that do not couple."""
    icov = np.zeros((len(blocks), 1, NWAVE, 2 * HALFBAND + 1))
    for k in range(-HALFBAND, HALFBAND + 1):
        j = np.arange(max(0, -k), min(NWAVE, NWAVE - k))
        icov[:, 0, j, HALFBAND + k] = blocks[:, j, j + k]
    return Normal(icov, np.zeros((len(blocks), NWAVE)), blocks.sum(axis=2) / 10, np.zeros((len(blocks), NWAVE), bool))


def scene(seed: int, noise: float = 1.0) -> tuple[Normal, np.ndarray, np.ndarray, np.ndarray]:
    """Fibres with various throughputs and continua, with common lines, and one with a line of its own: normal
    equations, x with their noise, its expectation, and the share of good pixels in spots, which is next to 0 in a few
    bins."""
    rng = np.random.default_rng(seed)
    lit = np.ones((NFIBRE, NWAVE))
    lit[5, 100:106] = 0.3, 0.89, 1e-3, 0.6, 0.91, 0.2
    lit[6, 130:139] = 0.3
    blocks = lit[:, :, None] * blocks_of(rng) * lit[:, None]
    shape = np.zeros(NWAVE)
    shape[LINES] = rng.uniform(100, 900, len(LINES))
    truth = np.linspace(20, 300, NFIBRE)[:, None] + rng.uniform(0.8, 1.2, (NFIBRE, 1)) * shape
    truth[2, OWN] += 500.0
    x = truth + noise * np.stack([np.linalg.solve(np.linalg.cholesky(block).T, rng.standard_normal(NWAVE))
                                  for block in blocks])
    return normal_of(blocks), x, truth, lit


def slow(normal: Normal, x: np.ndarray, lit: np.ndarray) -> Shared:
    """The definition, fibre by fibre and bin by bin."""
    k_of = [sum(np.diag(normal.icov[i, 0, max(0, -d):NWAVE - max(0, d), HALFBAND + d], d)
                for d in range(-HALFBAND, HALFBAND + 1)) for i in range(len(x))]
    own = np.stack([np.diag(block) for block in k_of])
    half, known = WIDTHS[-1] // 2, np.ones(x.shape, bool)
    for i, j in np.argwhere(lit < 1.0):
        known[i, max(j - REACH, 0):j + REACH + 1] = False
    count = np.array([[(lit[i, max(j - half, 0):j + half + 1] >= HALF).sum() for j in range(NWAVE)]
                      for i in range(len(x))])
    known &= 2 * count > WIDTHS[-1]
    weight = (own * known).sum(axis=1) / known.sum(axis=1)
    filled = np.where(known, x, np.stack([k_of[i] @ x[i] / k_of[i].sum(axis=1) for i in range(len(x))]))
    for turn in range(TURNS):
        base, rest, where = np.zeros(x.shape), np.zeros(x.shape), np.zeros(NWAVE, bool)
        for i in range(len(x)):
            for j in range(NWAVE):
                near = np.s_[max(j - half, 0):j + half + 1]
                base[i, j] = filled[i, near][lit[i, near] >= HALF].mean()
                rest[i, j] = x[i, j] - base[i, j]
        for j in range(NWAVE):
            part = [i for i in range(len(x)) if known[i, j]]
            total = sum((k_of[i] @ rest[i])[j] for i in part)        # I / K_jj is 1 where the noise of K x is K_jj
            if total**2 > KEEP**2 * sum(own[i, j] for i in part):
                where[max(j - half, 0):j + half + 1] = True
        mean = np.array([(weight * known[:, j] * rest[:, j]).sum() / (weight * known[:, j]).sum() if where[j] else 0.0
                         for j in range(NWAVE)])
        told = np.stack([(known[i] * mean) @ k_of[i] @ np.stack([rest[i], mean], axis=1) for i in range(len(x))])
        gain = np.maximum((GAINS**-2 + told[:, 0]) / (GAINS**-2 + told[:, 1]), 0)
        if turn + 1 < TURNS:
            apart = np.stack([k_of[i] @ (rest[i] - gain[i] * mean) for i in range(len(x))])**2 / own * known
            known = known.copy()
            for i, j in np.argwhere((apart > KEEP**2) & (apart >= LOUDEST**2 * apart.max(axis=0))):
                known[i, max(j - REACH, 0):j + REACH + 1] = False
            filled = np.where(known, x, base + gain[:, None] * mean)
    light, more, one = np.zeros(x.shape), np.zeros(x.shape), weight * gain**2
    based = 2 * count > WIDTHS[-1]
    level = base - np.array([[base[i, based[i]].mean()] for i in range(len(x))])
    averages = [(weight * gain * level[:, j])[based[:, j]].sum() / one[based[:, j]].sum() for j in range(NWAVE)]
    for i in range(len(x)):
        others = np.arange(len(x)) != i
        for j in range(NWAVE):
            line, inside = 0.0, (one * known[:, j])[others].sum()
            if where[j] and inside >= LEAST * one[i]:
                line, more[i, j] = (weight * gain * (known * rest)[:, j])[others].sum() / inside, one[i] / inside
            light[i, j] = gain[i] * (line + averages[j])
    return Shared(light, more)


def test_light_of_shared_lines_is_that_of_the_definition() -> None:
    normal, x, _, lit = scene(1)
    found, wanted = shared_lines(normal, x, None, lit), slow(normal, x, lit)
    assert found is not None
    np.testing.assert_allclose(found.light, wanted.light, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.more, wanted.more, rtol=1e-9, atol=1e-9)
    assert 0.0 in found.more and found.more.max() > 0.1


def test_without_noise_nothing_but_the_continuum_is_left_of_shared_lines() -> None:
    """The fibres differ in throughput and continuum. One has a line of its own, which must not become light of the
    others: in their mean it would be 70 photons.

    Gains differ from 1 by 0.2, and the prior pulls them back by a share of (P K P GAINS^2)^-1, about a thirtieth: 6
    photons for a line of 900. Where bins take no part, one fibre of 8 has a model of lines in its average, which gives
    900 / 15 / 8 = 7.5, or an average over 8 bins in place of 15, which gives 6.6.
    """
    normal, x, _, lit = scene(2, noise=0.0)
    found = shared_lines(normal, x, None, lit)
    assert found is not None
    left, far = x - found.light, np.ones(NWAVE, bool)
    left -= np.median(left, axis=1, keepdims=True)
    for first, last in ((OWN, OWN), (100, 105), (130, 138)):
        far[first - REACH - WIDTHS[-1]:last + REACH + WIDTHS[-1] + 1] = False
    assert np.abs(left[:, far]).max() < 0.2 / 30 * 900 + 1 and left[2, OWN] > 450
    left[2, OWN - REACH:OWN + REACH + 1] = left[5, 94:112] = left[6, 124:145] = 0.0
    assert np.abs(left).max() < 6 + 7.5 + 6.6


def test_a_line_in_a_variance_hardly_follows_its_own_noise() -> None:
    """What a photon in a bin adds to the spectrum of the bin's variance: all of it if the fibre is by itself. With
    light from other fibres it adds 1 / 15 by the average, and by the gain from 13 lines 1 / 13 on average. The mean P,
    from which the gain is made, has an eighth of it, twice. A line with a quarter of all squares determines a quarter
    of the gain."""
    normal, x, _, lit = scene(3, noise=0.1)
    follows = []
    for shared in (True, False):
        def spectrum(light: np.ndarray, shared: bool = shared) -> np.ndarray:
            return smooth(normal, light, None, shared_lines(normal, light, None, lit) if shared else None)
        before, step = spectrum(x), 0.01
        share = []
        for j in LINES[2:-2]:
            moved = x.copy()
            moved[4, j] += step
            share.append((spectrum(moved) - before)[4, j] / step)
        follows.append(np.array(share))
    assert follows[0].max() < 1 / WIDTHS[-1] + 0.25 and follows[0].mean() < 1 / WIDTHS[-1] + 1.25 / len(LINES)
    np.testing.assert_allclose(follows[1], 1.0, rtol=1e-6)


def test_where_a_spot_has_masked_pixels_its_x_is_nothing_to_others() -> None:
    """The light known from other fibres does not depend on x in bins that hardly any good pixel sees."""
    normal, x, truth, lit = scene(4)
    assert np.abs((x - truth)[5, 100:106]).max() > 2e4
    near, others = np.s_[92:114], np.arange(NFIBRE) != 5
    for known, good in ((lit, True), (np.ones(x.shape), False)):
        found = shared_lines(normal, x, None, known)
        assert found is not None
        left = (truth - found.light)[others, near]
        left -= left.mean(axis=1, keepdims=True)
        assert (left.std() < (x - truth)[others, near].std()) == good


def test_a_fibre_that_knows_most_has_no_lines_of_others() -> None:
    """A fibre is by itself if the others have less than twice its information. So are both fibres of a pair."""
    normal, x, _, lit = scene(5)
    more = normal_of(blocks_of(np.random.default_rng(5)) * np.where(np.arange(NFIBRE) == 1, 20.0, 1.0)[:, None, None])
    found = shared_lines(more, x, None, lit)
    assert found is not None
    assert not found.more[1].any() and found.more[0].any()
    peak, beside = found.light[:, LINES[4:]], found.light[:, LINES[4:] + 2]
    assert (peak - beside)[0].min() > 50 and np.abs((peak - beside)[1]).max() < 900 / 15
    two = Normal(normal.icov[:2], normal.rhs[:2], normal.weight[:2], normal.given_up[:2])
    assert shared_lines(two, x[:2], None, lit[:2]) is None


@pytest.mark.parametrize("seed", range(3))
def test_without_lines_nothing_is_shared(seed: int) -> None:
    """Noise alone exceeds four errors in one of 16 000 bins."""
    normal, x, truth, lit = scene(seed)
    assert shared_lines(normal, x - truth + 100.0, None, lit) is None
