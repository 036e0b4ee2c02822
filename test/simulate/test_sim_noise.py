"""Noise by counter: the words are Philox's, the deviates have their distributions, blocks change nothing."""
import numpy as np
import pytest
import scipy.stats

from gpu_extract.simulate.counter import Purpose, stream
from gpu_extract.simulate.noise import add_noise, philox


def test_words_are_those_of_numpys_philox() -> None:
    key = np.array([0x0123456789ABCDEF, 0xFEDCBA9876543210], np.uint64)
    for counter in ([0, 0, 0, 0], [5, 4127, 4113, 0], [2**64 - 2, 2**63, 17, 2**64 - 1]):
        words = np.array(counter, np.uint64)
        words[0] += np.uint64(1)            # numpy counts up before it makes a block
        philox(words, key[0], key[1])
        numpys = np.random.Philox(key=key, counter=np.array(counter, np.uint64)).random_raw(4)
        np.testing.assert_array_equal(words, numpys)


def _draw(mean: float, count: int, seed: int = 3, read_noise: float = 0.0) -> np.ndarray:
    expected = np.full((count // 1000, 1000), mean)
    out = np.empty(expected.shape)
    add_noise(out, expected, np.full(expected.shape, read_noise), seed=seed)
    return out.ravel()


@pytest.mark.parametrize("mean", [0.02, 0.7, 6.0, 11.99, 12.0, 12.5, 31.0, 400.0, 3e4])
def test_counts_are_poisson(mean: float) -> None:
    """Chi2 of the histogram against the Poisson distribution, in bins of at least 20 expected."""
    n = 200_000
    counts = _draw(mean, n)
    np.testing.assert_array_equal(counts, np.round(counts))
    law = scipy.stats.poisson(mean)
    edges = np.unique(np.concatenate([law.ppf(np.linspace(0.001, 0.999, 60)) + 0.5, [-0.5, np.inf]]))
    expected = n * np.diff(law.cdf(edges))
    seen, _ = np.histogram(counts, edges)
    enough = expected > 20
    chi2 = ((seen - expected)[enough] ** 2 / expected[enough]).sum()
    # a one-in-a-million fluctuation is a fault: the draw is seeded, so this never changes by itself
    assert scipy.stats.chi2.sf(chi2, enough.sum() - 1) > 1e-6
    assert abs(counts.mean() - mean) < 5 * np.sqrt(mean / n)
    # variance of the sample variance of a Poisson law: (mean + 2 mean^2) / n
    assert abs(counts.var() - mean) < 5 * np.sqrt((mean + 2 * mean**2) / n)


def test_read_noise_is_normal_and_apart_from_the_counts() -> None:
    n = 200_000
    noise = _draw(0.0, n, read_noise=2.7)
    assert scipy.stats.kstest(noise / 2.7, "norm").pvalue > 1e-6
    counts = _draw(50.0, n)
    both = _draw(50.0, n, read_noise=2.7)
    np.testing.assert_allclose(both - counts, noise, atol=1e-9)
    assert abs(np.corrcoef(counts, noise)[0, 1]) < 5 / np.sqrt(n)
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 5 / np.sqrt(n)


def test_a_pixel_depends_on_its_place_alone() -> None:
    random = np.random.default_rng(1)
    expected = random.gamma(1.0, 60.0, (40, 30))
    noise = np.full(expected.shape, 2.7)
    whole = np.empty(expected.shape)
    add_noise(whole, expected, noise, seed=9)
    other = expected.copy()
    other[7, 8] += 1000.0
    pieces = np.empty((17, 20))
    add_noise(pieces, other[5:22, :20], noise[5:22, :20], seed=9, first_row=5)
    same = np.ones(pieces.shape, bool)
    same[2, 8] = False
    np.testing.assert_array_equal(pieces[same], whole[5:22, :20][same])
    assert pieces[2, 8] > whole[7, 8] + 500
    another = np.empty(expected.shape)
    add_noise(another, expected, noise, seed=10)
    assert np.mean(another == whole) < 0.01


def test_streams_differ_in_every_part_of_their_key() -> None:
    first = stream(1, Purpose.TARGET, 2, 3).random(4)
    np.testing.assert_array_equal(first, stream(1, Purpose.TARGET, 2, 3).random(4))
    for other in (stream(2, Purpose.TARGET, 2, 3), stream(1, Purpose.FIBRE, 2, 3), stream(1, Purpose.TARGET, 3, 3),
                  stream(1, Purpose.TARGET, 2, 4)):
        assert not np.any(other.random(4) == first)
