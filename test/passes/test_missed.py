"""Pixels that a model misses are weighted by their own light, if they are above it by more than noise."""
import numpy as np

from gpu_extract.normal import Cut
from gpu_extract.passes.missed import FAR, weigh_missed
from gpu_extract.passes.outliers import WRONG
from gpu_extract.passes.spot_shape import Shape

SHAPE, ERROR = Shape((0.65, 0.65, 0.42, 0.42), (4, 3), 0.18), 0.01
NOISE, LIGHT = 9.0, 400.0
SIGMA = np.sqrt(NOISE + LIGHT)
MOST = (WRONG * ERROR + SHAPE.between) * LIGHT      # possible error of a model


def variances(apart: dict[tuple[int, int], float], *, light: float = LIGHT, lit: float | None = None) -> np.ndarray:
    """The variance of 20 x 10 pixels that differ from a flat model by this much; lit: the share of light in the
    variance, which has the noise of counts; None: all noise is Gaussian."""
    model, variance = np.full((20, 10), light, np.float32), np.full((20, 10), NOISE + max(light, 0.0))
    pix = model.astype(float)
    for place, off in apart.items():
        pix[place] += off
    root = 1 / np.sqrt(variance)
    ends = np.array([[0], [20]]).repeat(10, axis=1)
    dark = np.zeros_like(model) if lit is None else np.full_like(model, lit)
    places, factor = weigh_missed(Cut(root, root * pix, 0, 0), model, ends, shape=SHAPE, error=ERROR, lit=dark)
    variance[tuple(places.T)] /= factor**2
    return variance


def test_a_pixel_far_above_the_model_has_the_variance_of_its_own_light() -> None:
    found, off = variances({(7, 3): (FAR + 0.1) * SIGMA}), (FAR + 0.1) * SIGMA
    wanted = np.full(found.shape, NOISE + LIGHT)
    wanted[7, 3] = NOISE + LIGHT + off
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_where_the_model_is_below_zero_it_has_no_part() -> None:
    """The pixel's own light may be below 0 as well."""
    np.testing.assert_allclose(variances({(7, 3): 340.0}, light=-300.0)[7, 3], NOISE + 40.0)
    assert (variances({(7, 3): 290.0}, light=-300.0) == NOISE).all()


def test_a_hit_is_not_missed() -> None:
    """The model's possible error depends on the brightest light nearby."""
    assert (variances({(7, 3): FAR * SIGMA + MOST + 0.1}) == NOISE + LIGHT).all()
    assert variances({(7, 3): FAR * SIGMA + MOST - 0.1})[7, 3] > 1.2 * (NOISE + LIGHT)


def test_noise_and_what_lies_below_the_model_change_nothing() -> None:
    """Weighted by its own light, a dead pixel would have the largest weight."""
    apart = {(7, 3): (FAR - 0.01) * SIGMA, (12, 3): -LIGHT, (14, 5): -3 * LIGHT}
    assert (variances(apart) == NOISE + LIGHT).all()


def test_masked_pixels_stay_masked() -> None:
    model, root = np.full((20, 10), LIGHT, np.float32), np.zeros((20, 10))
    ends = np.array([[0], [20]]).repeat(10, axis=1)
    assert len(weigh_missed(Cut(root, root, 0, 0), model, ends, shape=SHAPE, error=ERROR, lit=model)[0]) == 0


def test_counts_are_further_above_the_model_by_noise_alone() -> None:
    """5.1 errors of counts are as rare as 4.9 of a Gaussian."""
    apart = {(7, 3): (FAR + 0.1) * SIGMA}
    assert (variances(apart, lit=LIGHT) == NOISE + LIGHT).all()
    assert variances({(7, 3): (FAR + 0.4) * SIGMA}, lit=LIGHT)[7, 3] > 1.2 * (NOISE + LIGHT)
