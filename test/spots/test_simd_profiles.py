"""Gauss-Hermite terms integrated over pixels, against their antiderivatives."""
from math import factorial

import numpy as np
import pytest
from numba import njit
from numpy.polynomial import hermite_e
from scipy.special import ndtr

from gpu_extract.spots import simd_profiles, simd_spots
from gpu_extract.vectors import profile_vectors, simd

RNG = np.random.default_rng(3)


@njit
def vectors(out, u, x):
    first, second = simd.address(u, 0), simd.address(out, 0)
    wide, line = simd.vread8(first), 8 * 8
    simd.vwrite(second, profile_vectors.vdensity(wide))
    simd.vwrite(second + line, profile_vectors.vnext(wide, simd.vread(first + 4 * 8)))
    simd.vwrite(second + 2 * line, profile_vectors.vfirst(wide))
    simd.vwrite(second + 2 * line + 4 * 8, profile_vectors.vdensity(simd.vread(first)))
    simd.vwrite(second + 3 * line, profile_vectors.vcount(x, wide))
    simd.vwrite(second + 4 * line, profile_vectors.vtile(simd.vread(first + 4 * 8), wide))
    simd.vwrite(second + 5 * line, profile_vectors.vinside(wide, simd.vset8(x), simd.vset8(1.0)))
    simd.vwrite(second + 6 * line, profile_vectors.vboth(first + 4 * 8, first))
    simd.vwrite(second + 7 * line, profile_vectors.vhalves(x, -x))
    TWO(second + 8 * line, wide)


TWO = profile_vectors.polynomials([[1.0, -2.0, 0.5, 3.0], [0.25]])


def test_operations_on_vectors_are_those_of_numpy():
    u, out = RNG.normal(0, 2, 8), np.zeros((10, 8))
    u[0] = -u[1]
    vectors(out, u, 1.5)
    np.testing.assert_array_equal(out[1], np.tile(u[4:], 2))
    np.testing.assert_array_equal(out[2], [*u[:4], *out[0, :4]])
    np.testing.assert_array_equal(out[3], np.repeat([1.5, 2.5], 4))
    np.testing.assert_array_equal(out[4], np.tile(u[4:], 2))
    np.testing.assert_array_equal(out[5], np.abs(u) < 1.5)
    np.testing.assert_array_equal(out[6], np.roll(u, 4))
    np.testing.assert_array_equal(out[7], np.repeat([1.5, -1.5], 4))
    np.testing.assert_allclose(out[8], 1 - 2 * u + 0.5 * u**2 + 3 * u**3, rtol=1e-13)
    np.testing.assert_array_equal(out[9], 0.25)


def test_the_density_is_accurate_and_never_nan():
    """Right to 1e-16, and up to 5 sigma to 2e-15 of its value; far out it is 0, and never NaN."""
    out = np.zeros((10, 8))
    for u in np.linspace(-45, 45, 8000).reshape(-1, 8):
        vectors(out, u, 1.0)
        wanted = np.exp(-0.5 * u**2) / np.sqrt(2 * np.pi)
        np.testing.assert_allclose(out[0], wanted, rtol=0, atol=1e-16)
        near = np.abs(u) < 5
        np.testing.assert_allclose(out[0, near], wanted[near], rtol=2e-15)
        assert (out[0] >= 0).all()
    vectors(out, np.array([0.0, -0.0, 1e3, -1e6, 1e9, -1e12, 1e100, -1e150]), 1.0)
    np.testing.assert_allclose(out[0, :2], 1 / np.sqrt(2 * np.pi), rtol=2e-16)
    assert (out[0, 2:] < 1e-300).all()


@njit
def make(out, scratch, terms, frame, stamp, bins):
    y, x = out
    simd_profiles.profiles((simd.address(y, 0), simd.address(x, 0)), simd.address(scratch, 0), terms, frame, stamp,
                          (simd.address(bins, 0), simd.address(bins, 8), simd.address(bins, 16), 4 * 8))


def profiles(terms, stamp, start, sigma, offset):
    """[(term, pixel of the frame, bin)] along y and x; start, sigma, offset: (2, 4)."""
    bins = np.concatenate([start, sigma, offset]).astype(float)
    frame = tuple(int(s + o.max()) for s, o in zip(stamp, offset, strict=True))
    lines = [-(-size // 4) * 4 for size in frame]
    out = [simd_spots.aligned(4 * (n * line + 2)) for n, line in zip(terms, lines, strict=True)]
    for array in out:
        array[:] = np.nan
    make(tuple(out), np.full(4 * simd_profiles.room(terms), np.nan), terms, frame, stamp, bins)
    return [array[:4 * n * line].reshape(n, line, 4) for array, n, line in zip(out, terms, lines, strict=True)]


def wanted(nterm, pixels, start, sigma):
    """(term, pixel)."""
    u = (start - 0.5 + np.arange(pixels + 1)) / sigma
    density = np.exp(-0.5 * u**2) / np.sqrt(2 * np.pi)
    right = np.where(u[:-1] > 0, ndtr(-u[:-1]) - ndtr(-u[1:]), ndtr(u[1:]) - ndtr(u[:-1]))
    return np.array([right, *(-np.diff(hermite_e.hermeval(u, np.eye(nterm)[m - 1]) * density)
                              for m in range(1, nterm))])


@pytest.mark.parametrize(("low", "high"),
                         [(0.05, 0.3), (0.3, 2 / 3), (0.6, 0.75), (2 / 3, 1.3), (1.3, 4.0), (4.0, 60.0)])
def test_profiles_agree_with_the_error_function(low, high):
    """Right to (1 + 0.5 / sigma) 1e-15 sqrt(m!); 0 beside the stamp, and in the padding of a frame.

    |He_m phi| is at most 0.44 sqrt(m!); its argument is a sum of distances of some pixels, divided by sigma, each
    rounded, and so is that of the reference.
    """
    for n in range(60):
        terms, stamp = (1 + n % 9, 1 + n // 7 % 9), (7 + n % 6, 9 + n // 2 % 5)
        offset = np.sort(RNG.integers(0, 5, (2, 4)), axis=1)
        start = -0.5 * np.array(stamp)[:, None] + RNG.uniform(-1.5, 1.5, (2, 4))
        sigma = RNG.uniform(low, high, (2, 4))
        made = profiles(terms, stamp, start, sigma, offset)
        for axis in range(2):
            for lane in range(4):
                first = offset[axis, lane]
                mine = made[axis][:, first:first + stamp[axis], lane]
                size = np.sqrt([float(factorial(m)) for m in range(terms[axis])])
                right = wanted(terms[axis], stamp[axis], start[axis, lane], sigma[axis, lane])
                assert (np.abs(mine - right) <= (1 + 0.5 / sigma[axis, lane]) * 1e-15 * size[:, None]).all()
                beside = np.delete(made[axis][:, :, lane], np.s_[first:first + stamp[axis]], axis=1)
                np.testing.assert_array_equal(beside, 0)


@pytest.mark.parametrize("sigma", [0.25, 0.4, 0.66])
def test_sharp_profiles_have_all_digits_in_their_wings(sigma):
    """There bins may see nothing else. u^2 eps and a few eps of the pixel, as u is rounded; differences of erf had none
    beyond 8 sigma."""
    start = np.repeat([[-7.2], [-6.7]], 4, 1)
    made = profiles((1, 1), (15, 13), start, np.full((2, 4), sigma), np.zeros((2, 4), int))
    for axis, pixels in enumerate((15, 13)):
        right = wanted(1, pixels, start[axis, 0], sigma)[0]
        u = np.abs(start[axis, 0] + np.arange(pixels)) / sigma + 0.5 / sigma
        seen = right > 1e-300
        assert (right[seen] < 1e-20).any()
        off = np.abs(made[axis][0, :pixels, 0] - right)
        assert (off[seen] <= ((4 + 2 * u**2) * 2.3e-16 * right)[seen]).all()


def test_a_bin_depends_on_nothing_beside_it():
    """The same bin in other lanes, frames and company, also with sharp bins: the same bits."""
    stamp, terms = (11, 17), (7, 5)
    start, sigma = np.array([[-5.3], [-8.6]]), np.array([[1.07], [0.93]])
    alone = profiles(terms, stamp, np.repeat(start, 4, 1), np.repeat(sigma, 4, 1), np.zeros((2, 4), int))
    for n in range(20):
        lane, offset = n % 4, RNG.integers(0, 6, (2, 4))
        starts, sigmas = start + RNG.uniform(-1, 1, (2, 4)), RNG.uniform(0.2, 3, (2, 4))
        starts[:, lane], sigmas[:, lane] = start[:, 0], sigma[:, 0]
        made = profiles(terms, stamp, starts, sigmas, offset)
        for axis in range(2):
            first = offset[axis, lane]
            np.testing.assert_array_equal(made[axis][:, first:first + stamp[axis], lane],
                                          alone[axis][:, :stamp[axis], 0])
