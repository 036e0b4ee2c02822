"""CPU kernel: the quick correction of a fibre's flux for the remainder of S beyond its band, to first order.

Let S = B + E, B the band, E small. Then Q(S) x = Q x + e, and to first order in E the matrix L with e = L x solves
Q L + L Q = E (the derivative of the square root). E oscillates from bin to bin, so it connects only the part of the
spectrum in which Q is smallest. There Q x = q x, where q is the sum of a row of Q with alternating signs, and

    (Q + q) e = E x,

one solution with the diagonals of Q that exist already.

Each step waits for the one before, so eight fibres are processed at once, one per lane.
"""
# mypy: disallow-untyped-defs=False
from typing import Any

import numpy as np

from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.blocks import LANES
from gpu_extract.vectors.emit import Emit, written_out
from gpu_extract.vectors.simd import address

HALF = 5           # diagonals of Q that are used: with the right-hand sides' columns they fill a vector
SPREAD = 1.2       # in that part of the spectrum Q is 1 to 1.5 times its smallest value: see doc/method-banded.md
LEAST = 0.02       # of a row's sum: no eigenvalue of Q is smaller there
ROW = (HALF + 2) * LANES     # elements of a row of the work array: l_1 .. l_HALF, e / D, s


def _forward_row(e: Emit, q: list[Any], value: Any, scale: Any, left: list[list[Any]]) -> list[Any]:
    """A row of L D L^T = Q + q and of the forward substitution: l_1 .. l_HALF, and the solution over D.

    q: the row of Q; value: of the right-hand side; scale: the row's sum
    left: contributions of earlier rows to the n-th row from here on: to its elements, its right-hand side, and the sum,
        with alternating signs, of its part before the diagonal; updated for the n-th row after this one
    """
    elements, right, before = left
    alternating = e.add(q[0], e.builder.load(before[0]))
    for a in range(1, HALF + 1):
        alternating = e.add(alternating, e.negative(q[a]) if a % 2 else q[a])
    least = e.larger(e.absolute(alternating), e.multiply(e.constant(LEAST), e.absolute(scale)))
    row = [e.fma(e.constant(SPREAD), least, q[0]), *q[1:]]
    for a in range(HALF):
        row[a] = e.add(row[a], e.builder.load(elements[0][a]))
    value = e.add(value, e.builder.load(right[0]))
    inverse = e.divide(e.one, row[0])
    low = [e.multiply(number, inverse) for number in row[1:]]
    for n in range(HALF):
        factor, last = e.negative(low[n]), n == HALF - 1
        for a in range(HALF - n):
            known = e.zero if a == HALF - n - 1 else e.builder.load(elements[n + 1][a])
            e.builder.store(e.fma(factor, row[n + 1 + a], known), elements[n][a])
        e.builder.store(e.fma(factor, value, e.zero if last else e.builder.load(right[n + 1])), right[n])
        known, own = e.zero if last else e.builder.load(before[n + 1]), q[n + 1]
        e.builder.store(e.add(known, own if n % 2 else e.negative(own)), before[n])
    return [*low, e.multiply(value, inverse)]


def _forward(e: Emit, work: Any, starts: Any, size: Any, count: Any) -> None:
    """All rows on the way up; starts: addresses of eight fibres' first rows; size: bytes of a row; count: rows."""
    left = [[e.variables(HALF - n) for n in range(HALF)], e.variables(HALF), e.variables(HALF)]
    for variable in (v for part in (*left[0], *left[1:]) for v in part):
        e.builder.store(e.zero, variable)
    fibres = [e.builder.load(e.builder.gep(starts, [e.index(n)])) for n in range(LANES)]
    with e.loop(count) as j:
        down = e.builder.mul(j.index, size)
        rows = [e.load(e.place(e.builder.add(fibre, down)), 0) for fibre in fibres]
        scale, rest, *q = e.transposed(rows)
        q = [e.negative(value) for value in q]
        here = e.step(work, j.index, e.index(ROW))
        for n, value in enumerate([*_forward_row(e, q, rest, scale, left), scale]):
            e.store(here, n * LANES, value)


def _backward(e: Emit, work: Any, count: Any) -> None:
    """All rows on the way down: e / s takes the place of l_1."""
    known = list(e.begun(dict.fromkeys(range(HALF), e.zero)).values())
    with e.loop(count) as j:
        after = e.builder.sub(e.builder.sub(count, e.index(1)), j.index)
        here = e.step(work, after, e.index(ROW))
        value, scale = e.load(here, HALF * LANES), e.load(here, (HALF + 1) * LANES)
        later = [e.builder.load(variable) for variable in known]
        for n in range(HALF - 1, -1, -1):        # the number that has just been made is subtracted last
            value = e.take(e.load(here, n * LANES), later[n], value)
        for variable, number in zip(known, [value, *later], strict=False):
            e.builder.store(number, variable)
        e.store(here, 0, e.where_positive(e.absolute(scale), e.divide(value, scale), e.zero))


@written_out(LANES)
def _solve(e, work, starts, size, count):
    """e / s of eight fibres, in the first vector of every row of `work`; arguments as in `_forward`."""
    place = e.pointer(work, e.index(0))
    e.call("correct_forward", (place, e.addresses(starts), size, count), _forward)
    e.call("correct_backward", (place, count), _backward)


def work_size(nwave: int) -> int:
    """Elements of the work array."""
    return nwave * ROW


@njit(cache=True)
def correct(flux, made, work, fibres, first):
    """flux += e / s for some of the fibres.

    flux: (nfibre, n), bins `first` and following of each; fibres: their numbers
    made: (nfibre, nwave, SIDES + HALF + 1 or more): s, E x, and -Q[j + a, j], a = 0 ..; rows are whole vectors
    work: (work_size,); made and work start on a cache line
    """
    nwave, starts = made.shape[1], np.empty(LANES, dtype=np.intp)
    for group in range(0, len(fibres), LANES):
        own = fibres[group:group + LANES]
        for lane in range(LANES):
            starts[lane] = address(made, own[min(lane, len(own) - 1)] * nwave * made.shape[2])
        _solve(work, starts, 8 * made.shape[2], nwave)
        for t in range(flux.shape[1]):
            for lane in range(len(own)):
                flux[own[lane], t] += work[(first + t) * ROW + lane]
