"""CPU kernel: the profiles of tabulated spots, quintic B-splines around equidistant knots.

B(t) is 0 from |t| = 3 on. At a pixel at distance d from the spot's centre, knot n of N has B(d / distance - n +
(N - 1) / 2): six knots reach a pixel, and their six values are polynomials of the fraction f of its place.
"""
# mypy: disallow-untyped-defs=False
import math

from gpu_extract.arrays import LANE
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import number, vset16, vwrite, write

VECTOR = 8 * LANE     # bytes


@njit()
def _near(t):
    """B(t), 0 <= t <= 1."""
    u = t * t
    return 0.55 + u * (-0.5 + u * (0.25 - t / 12.0))


@njit()
def _middle(t):
    """B(t), 1 <= t <= 2."""
    return 0.425 + t * (0.625 + t * (-1.75 + t * (1.25 + t * (-0.375 + t / 24.0))))


@njit()
def _far(t):
    """B(3 - t), 0 <= t <= 1."""
    u = t * t
    return u * u * t / 120.0


@njit()
def splines(out, terms, pixels, bins):
    """The profiles of one axis for four bins, 0 beside each bin's stamp.

    out: address of (knots, line) vectors; terms: (knots, line), line a multiple of 4
    pixels: of a stamp; bins: addresses of first pixels minus centres, of the knots' distances, and of first pixels in
        the frame
    """
    knots, line = terms
    for at in range(0, VECTOR * knots * line, 4 * VECTOR):
        vwrite(out + at, vset16(0.0))
    for lane in range(0, VECTOR, 8):
        start, distance = number(bins[0] + lane), number(bins[1] + lane)
        to = out + VECTOR * int(number(bins[2] + lane)) + lane
        for pixel in range(pixels):
            place = (start + pixel) / distance + 0.5 * (knots - 1)
            if -3.0 < place < knots + 2.0:
                first = math.floor(place)
                f, n = place - first, int(first)
                _put(to, line, (n - 2, knots), _far(1.0 - f))
                _put(to, line, (n - 1, knots), _middle(1.0 + f))
                _put(to, line, (n, knots), _near(f))
                _put(to, line, (n + 1, knots), _near(1.0 - f))
                _put(to, line, (n + 2, knots), _middle(2.0 - f))
                _put(to, line, (n + 3, knots), _far(f))
            to += VECTOR


@njit()
def _put(to, line, knot, value):
    """Write a value if the knot exists; knot: (its number, number of all knots)."""
    if 0 <= knot[0] < knot[1]:
        write(to + VECTOR * line * knot[0], value)
