"""The pole sum against the square root."""
import numpy as np
import pytest

from gpu_extract.decorrelate.poles import LADDER, pole_error, scaled_poles, unit_poles
from gpu_extract.vectors.blocks import LANES


def square_root(poles, values):
    """The sum's approximation of sqrt(values): x sum_k c_k / (x + t_k)."""
    return values * (poles.weights / (values[..., None] + poles.shifts)).sum(axis=-1)


@pytest.mark.parametrize(("count", "ratio"), LADDER)
def test_every_rung_is_a_square_root_to_1e_10(count, ratio):
    x = np.logspace(-np.log10(ratio), 0, 4001)
    error = np.abs(square_root(unit_poles(count, ratio), x) / np.sqrt(x) - 1).max()
    assert error <= 1.1e-10
    assert error <= 1.5 * pole_error(count, ratio) + 1e-14


@pytest.mark.parametrize(("ratio", "count"), [(1e3, 12), (1e4, 15), (1e5, 18), (1e6, 21), (1e8, 27), (1e10, 32)])
def test_poles_that_1e_10_needs(ratio, count):
    """The table of doc/method.md; one pole fewer leaves a larger error."""
    x = np.logspace(-np.log10(ratio), 0, 4001)
    errors = [np.abs(square_root(unit_poles(n, ratio), x) / np.sqrt(x) - 1).max() for n in (count - 1, count)]
    assert errors[1] <= 1.1e-10 < errors[0]


def test_the_error_falls_as_the_law_says():
    x = np.logspace(-4, 0, 4001)
    for count in (4, 6, 8, 10, 12, 14):
        error = np.abs(square_root(unit_poles(count, 1e4), x) / np.sqrt(x) - 1).max()
        assert 0.5 < error / pole_error(count, 1e4) < 1.5


@pytest.mark.parametrize(("count", "ratio"), LADDER)
def test_poles_are_positive_and_symmetric(count, ratio):
    """t_k t_(N + 1 - k) = m M: the smallest poles are as exact as the largest, where sc is largest."""
    poles = unit_poles(count, ratio)
    assert (poles.shifts > 0).all()
    assert (poles.weights > 0).all()
    assert (np.diff(poles.shifts) > 0).all()
    np.testing.assert_allclose(poles.shifts * poles.shifts[::-1] * ratio, 1.0, rtol=1e-13)


def test_poles_scale_with_the_spectrum():
    unit, scaled = unit_poles(16, 2e4), scaled_poles(16, 2e4, 37.0)
    x = np.logspace(-4, 0, 50)
    np.testing.assert_allclose(square_root(scaled, 37.0 * x), np.sqrt(37.0) * square_root(unit, x), rtol=1e-14)


def test_rungs_are_whole_vectors_and_climb():
    assert all(count % LANES == 0 for count, _ in LADDER)
    assert list(LADDER) == sorted(LADDER)


def test_tabulated_poles_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        unit_poles(16, 2e4).shifts[0] = 1.0
