"""Photon and read noise, pixel by pixel, each from its own counter.

A pixel's noise is a function of (seed, camera, row, column, expected light, read noise):
one block of Philox 4x64-10 (Salmon et al. 2011, SC11) with the key (seed, PIXEL + 256 camera)
and the counter (attempt, row, column, 0). Two of its words make a normal
deviate for the read noise (Box & Muller 1958), two a Poisson deviate: by summing
the distribution up below 12 expected electrons, above by transformed rejection
(Hoermann 1993, Insurance: Math. Econ. 12, 39, algorithm PTRS), exact in both cases.
"""
# mypy: disallow-untyped-defs=False
import math

import numpy as np

from gpu_extract.kernels.compiled import njit
from gpu_extract.simulate.counter import Purpose

_M0, _M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_W0, _W1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_LOW, _HALF, _11 = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(11)
_UNIT = 2.0 ** -53
_ZERO = np.uint64(0)


@njit(cache=True)
def _high(a, b):
    """Upper 64 bits of the product of two 64-bit numbers."""
    a0, a1, b0, b1 = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    middle = a1 * b0 + ((a0 * b0) >> _HALF)
    other = a0 * b1 + (middle & _LOW)
    return a1 * b1 + (middle >> _HALF) + (other >> _HALF)


@njit(cache=True)
def philox(words: np.ndarray, key0: np.uint64, key1: np.uint64) -> None:
    """Replace the counter `words` (4 uint64) by its block of random words: Philox 4x64 with 10 rounds."""
    c0, c1, c2, c3 = words[0], words[1], words[2], words[3]
    for _ in range(10):
        high0, high1 = _high(_M0, c0), _high(_M1, c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ key0, _M1 * c2, high0 ^ c3 ^ key1, _M0 * c0
        key0 += _W0
        key1 += _W1
    words[0], words[1], words[2], words[3] = c0, c1, c2, c3


@njit(cache=True)
def _poisson_small(mean, u):
    """The count at which the distribution function passes u."""
    term = math.exp(-mean)
    total = term
    count = 0
    while u > total and count < 200:
        count += 1
        term *= mean / count
        total += term
    return count


@njit(cache=True)
def _poisson_try(mean, u, v):
    """One attempt of transformed rejection from two uniform numbers; -1 where it is rejected."""
    b = 0.931 + 2.53 * math.sqrt(mean)
    a = -0.059 + 0.02483 * b
    u -= 0.5
    us = 0.5 - abs(u)
    count = math.floor((2.0 * a / us + b) * u + mean + 0.43)
    if us >= 0.07 and v <= 0.9277 - 3.6224 / (b - 2.0):
        return count
    if count < 0 or (us < 0.013 and v > us):
        return -1
    bound = count * math.log(mean) - mean - math.lgamma(count + 1.0)
    accepted = math.log(v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (us * us) + b)) <= bound
    return count if accepted else -1


@njit(cache=True)
def _draw(words, counter, key0, key1):
    attempt, row, column = counter
    words[0], words[1], words[2], words[3] = np.uint64(attempt), np.uint64(row), np.uint64(column), _ZERO
    philox(words, key0, key1)


@njit(cache=True)
def _uniform(word):
    """A number between 0 and 1, both excluded."""
    return ((word >> _11) + 0.5) * _UNIT


@njit(cache=True)
def _add_noise(out, expected, read_noise, first_row, key0, key1):
    words = np.empty(4, np.uint64)
    for row in range(expected.shape[0]):
        for column in range(expected.shape[1]):
            counter = (0, first_row + row, column)
            _draw(words, counter, key0, key1)
            normal = math.sqrt(-2.0 * math.log(_uniform(words[0]))) * math.cos(2.0 * math.pi * _uniform(words[1]))
            mean = expected[row, column]
            count = 0.0
            if mean >= 12.0:
                count = _poisson_try(mean, _uniform(words[2]), _uniform(words[3]))
                attempt = 0
                while count < 0:
                    attempt += 1
                    _draw(words, (attempt, counter[1], column), key0, key1)
                    count = _poisson_try(mean, _uniform(words[0]), _uniform(words[1]))
            elif mean > 0.0:
                count = _poisson_small(mean, _uniform(words[2]))
            out[row, column] = count + normal * read_noise[row, column]


def add_noise(out: np.ndarray, expected: np.ndarray, read_noise: np.ndarray, *, seed: int, camera: int = 0,
              first_row: int = 0) -> None:
    """Fill `out` (electron) with a Poisson deviate of `expected` plus a normal one of width `read_noise`.

    All three (nrow, ncolumn), rows of the detector from `first_row` on; columns count from 0. camera: its
    number, see SimConfig.number.
    """
    _add_noise(out, expected, read_noise, first_row, np.uint64(seed), np.uint64(Purpose.PIXEL + 256 * camera))
