"""CPU kernels: tests of a fibre's Schur complement for definiteness.

A matrix is positive definite exactly if all pivots of its L D L^T are positive. Eight matrices
S + b U - c I - g diag(S) are factorised at once (the lanes of a vector), where S is the Schur complement and U the part
that the neighbours removed. b = g = 0 shows whether the spectrum is above c; c = g = 0 and b = 1 - 1/theta whether
U < theta (S + U), the size of the coupling in the fibre's own norm; b = c = 0 whether S > g diag(S).
"""
# mypy: disallow-untyped-defs=False
from functools import cache
from typing import Any

from gpu_extract.decorrelate.narrow.simd_banded import ROWS, factor_rows
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.emit import written_out
from gpu_extract.vectors.simd import address, vread8, vwrite

LANES = 8
BLOCK = 56         # rows of the ring of factors


def _pivots(e, here, s, u, given, h, rows):
    """The code of `_pivot`; arguments: places in ring, band, taken and values, all at the first row."""
    scale, flags = e.load(given, 0), e.load(given, 3 * LANES)

    def element(n, a):
        value, taken = e.spread(s, n * (h + 1) + a), e.spread(u, n * (h + 1) + a)
        if a > 0:
            return e.fma(scale, taken, value)
        return e.fma(e.load(given, 2 * LANES), value, e.fma(scale, taken, e.negative(e.load(given, LANES))))

    for pivot in factor_rows(e, here, (h + 1) * LANES, h, rows, element):
        flags = e.where_positive(pivot, flags, e.zero)
    e.store(given, 3 * LANES, flags)


@written_out(LANES, "half", "rows")
def _pivot(e, ring, row, band, entry, taken, values, half, rows):
    """`rows` rows from `row` on of the eight factorisations; values: b, c, 1 - g, flags (1.0 while pivots are > 0)."""
    places = e.pointer(ring, row), e.pointer(band, entry), e.pointer(taken, entry), e.pointer(values, e.index(0))
    e.call("pivot", places, _pivots, half, rows)


@njit(inline="always")     # by numba: compiled once, in the calling kernel
def positive(questions, bound, work, band, taken, half):
    """A number whose n-th bit, from the lowest on, is 1 if the n-th matrix is positive definite.

    questions: (3 LANES,) b, c in units of `bound`, and 1 - g; work: (work_size(half),), it starts on a cache line
    half: a literal
    """
    values, ring, stride = work[:4 * LANES], work[4 * LANES:], (half + 1) * LANES
    for n in range(LANES):
        values[n], values[LANES + n], values[2 * LANES + n] = (
            questions[n], questions[LANES + n] * bound, questions[2 * LANES + n])
        values[3 * LANES + n] = 1.0
    ring[:half * stride] = 0.0
    for first in range(0, len(band), BLOCK):
        last = min(first + BLOCK, len(band))
        for j in range(first, last - ROWS + 1, ROWS):
            _pivot(ring, (half + j - first) * stride, band, j * (half + 1), taken, values, half, ROWS)
        if (last - first) % ROWS == 1:
            _pivot(ring, (half + last - 1 - first) * stride, band, (last - 1) * (half + 1), taken, values, half, 1)
        start, end = address(ring, 0), address(ring, (last - first) * stride)
        for n in range(0, 8 * half * stride, 8 * LANES):
            vwrite(start + n, vread8(end + n))
    answers = 0
    for n in range(LANES):
        answers |= int(values[3 * LANES + n] > 0.0) << n
    return answers


@cache
def definite(half: int) -> Any:
    """`positive` as the kernel kernel(questions, bound, work, band, taken) for a half-band."""
    @njit(cache=True)
    def kernel(questions, bound, work, band, taken):
        return positive(questions, bound, work, band, taken, half)
    return kernel


def work_size(half: int) -> int:
    """Elements of the work array of `definite`."""
    return 4 * LANES + (half + BLOCK) * (half + 1) * LANES
