"""What a model misses is an error of the pixels around, as far as no noise and no hit explains it."""
import numpy as np
import pytest

from gpu_extract.normal import Cut
from gpu_extract.passes.misfit import FAR, SHARED, misfits, reach
from gpu_extract.passes.outliers import Shape

SIGMA, LIGHT = 3.0, 400.0
SHAPE = Shape((0.65, 0.65, 0.42, 0.42), (4, 3), 0.18)
NOISE = FAR * np.sqrt(SIGMA**2 + SHARED * LIGHT)        # what may be off without a misfit
MOST = (0.02 + 0.18) * LIGHT


def squared(excess: dict[tuple[int, int], float], *, rows: tuple[int, int] = (0, 60),
            bad: tuple[tuple[int, int], ...] = ()) -> np.ndarray:
    """Of 60 x 40 pixels that are off a flat model by so much, the error that they are given."""
    model, root = np.full((60, 40), LIGHT, np.float32), np.full((60, 40), 1 / SIGMA)
    light = root * model
    for place, off in excess.items():
        light[place] += off / SIGMA
    for place in bad:
        root[place] = light[place] = 0.0
    ends = np.array(rows)[:, None].repeat(40, axis=1)
    places, less = misfits(Cut(root, light, 0, 0), model, ends, shape=SHAPE, error=0.01)
    found = np.zeros(root.shape)
    found[tuple(places.T)] = SIGMA * np.sqrt(1 / less**2 - 1)
    return found


@pytest.mark.parametrize("sign", [1, -1])
def test_a_misfit_is_an_error_of_a_whole_spot(sign: int) -> None:
    found, (up, across) = squared({(30, 20): sign * (NOISE + 20.0)}), reach(SHAPE)
    assert (up, across) == (8, 2)
    wanted = np.zeros(found.shape)
    wanted[30 - up:31 + up, 20 - across:21 + across] = 20.0
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_the_largest_counts_where_two_are_near() -> None:
    found = squared({(30, 20): NOISE + 20.0, (33, 20): -NOISE - 30.0})
    np.testing.assert_allclose(found[[22, 25, 41], 20], [20.0, 30.0, 30.0], rtol=1e-6)


def test_noise_is_none() -> None:
    """Of the pixel, and of the light around that is in the model."""
    assert not squared({(30, 20): NOISE - 0.1, (10, 20): 0.1 - NOISE}).any()


def test_a_hit_is_none_and_a_deep_hole_no_more_than_the_model_may_be_wrong_by() -> None:
    assert not squared({(30, 20): NOISE + MOST + 1.0}).any()
    np.testing.assert_allclose(squared({(30, 20): -NOISE - MOST - 50.0}).max(), MOST, rtol=1e-6)


def test_bad_pixels_and_rows_that_the_model_does_not_have_say_nothing() -> None:
    off = {(30, 20): NOISE + 20.0}
    assert not squared(off, bad=((30, 20),)).any()
    assert not squared(off, rows=(31, 60)).any() and not squared(off, rows=(0, 30)).any()
    assert squared(off, rows=(30, 31)).any()


def test_where_a_model_has_no_light_nothing_is_missed() -> None:
    """One that ran away, or a hit in the dark."""
    root, pix = np.full((60, 40), 1 / SIGMA), np.zeros((60, 40))
    pix[30, 20] = 1e4
    ends = np.array([[0], [60]]).repeat(40, axis=1)
    places, _ = misfits(Cut(root, root * pix, 0, 0), np.zeros(pix.shape, np.float32), ends, shape=SHAPE, error=0.01)
    assert len(places) == 0
