"""Rows of the elimination of eight fibres at once, unrolled: gathering, factor, inverse and solutions.

All are called as name(places, hw, own, half), see `Sizes`: `places` are addresses in bytes, and a vector there holds
one number of eight fibres. A size on which a function does not depend is given as 0.
"""
# mypy: disallow-untyped-defs=False
from collections.abc import Callable
from typing import Any, NamedTuple

from gpu_extract.vectors.emit import Emit, written_out

LANES = 8
ROWS = 8           # bins that are gathered at once
TINY = 1e-15       # of a bin's own diagonal: smaller pivots are rounding errors, and the bin is decoupled


class Sizes(NamedTuple):
    """Half-bands of icov and of the fibres' own blocks, own <= hw, and the diagonals of U beside the main one."""

    hw: int
    own: int
    half: int

    def __str__(self) -> str:
        """As a part of a function's name."""
        return "_".join(map(str, tuple(self)))


def factor_row(own: int) -> int:
    """Elements of a row of the factor: 1 / D, l_1 .. l_own, D."""
    return (own + 2) * LANES


def known_row(hw: int) -> int:
    """Elements of a row of the inverse: z_0 .. z_hw-1."""
    return max(hw, 1) * LANES


def code(name: str, body: Callable[..., None], *more: Any) -> Any:
    """An intrinsic name(places, hw, own, half) whose code is body(e, *places, sizes, *more)."""
    @written_out(LANES, "hw", "own", "half")
    def code(e, places, hw, own, half):
        e.call(name, [e.place(address) for address in e.parts(places)], body, Sizes(hw, own, half), *more)
    return code


def _interleave(e: Emit, target: Any, source: Any, bases: Any, sizes: Sizes) -> None:
    """ROWS rows of 2 hw + 1 elements from source[bases[lane] ..] on, interleaved; bases: int64."""
    starts = _lanes(e, source, bases)
    with e.loop(e.index(2 * sizes.hw + 1)) as n:
        rows = [e.step(start, n.index, e.index(ROWS)) for start in starts]
        here = e.step(target, n.index, e.index(ROWS * LANES))
        for k, vector in enumerate(e.interleaved(rows, 0)):
            e.store(here, k * LANES, vector)


def _deal(e: Emit, target: Any, bases: Any, source: Any, sizes: Sizes) -> None:
    """The reverse of `_interleave`, with rows of half + 1 elements, to target[bases[lane] ..]."""
    starts = _lanes(e, target, bases)
    with e.loop(e.index(sizes.half + 1)) as n:
        rows = [e.step(start, n.index, e.index(ROWS)) for start in starts]
        here = e.step(source, n.index, e.index(ROWS * LANES))
        for row, values in zip(rows, e.transposed([e.load(here, k * LANES) for k in range(ROWS)]), strict=True):
            e.store(row, 0, values)


def _lanes(e: Emit, array: Any, bases: Any) -> list[Any]:
    """Addresses of element bases[lane] of an array."""
    first = e.builder.bitcast(bases, e.index(0).type.as_pointer())
    return [e.builder.gep(array, [e.builder.load(e.at(first, lane))]) for lane in range(LANES)]


def _factor(e: Emit, here: Any, given: Any, sizes: Sizes) -> None:
    """A row of L D L^T, from those before it; given: the diagonal and the elements to its right."""
    own, stride = sizes.own, factor_row(sizes.own)
    c = [e.load(given, a * LANES) for a in range(own + 1)]
    c[0] = scale = e.where_positive(c[0], c[0], e.one)
    for b in range(own, 0, -1):
        factor = e.load(here, -b * stride + b * LANES)
        scaled = e.negative(e.multiply(factor, e.load(here, -b * stride + (own + 1) * LANES)))
        for a in range(own + 1 - b):
            c[a] = e.fma(scaled, e.load(here, -b * stride + (a + b) * LANES), c[a])
    c[0] = e.where_positive(e.fma(e.constant(-TINY), scale, c[0]), c[0], scale)
    inverse = e.divide(e.one, c[0])
    e.store(here, 0, inverse)
    for a in range(1, own + 1):
        e.store(here, a * LANES, e.multiply(c[a], inverse))
    e.store(here, (own + 1) * LANES, c[0])


def _invert(e: Emit, target: Any, low: Any, sizes: Sizes) -> None:
    """A row of the inverse, z_0 .. z_hw-1, from those after it."""
    hw, own, stride = sizes.hw, sizes.own, known_row(sizes.hw)
    totals = dict.fromkeys(range(max(own, hw - 1), 0, -1), e.zero)
    first = e.load(low, 0)
    for b in range(own, 0, -1):
        minus = e.negative(e.load(low, b * LANES))
        for a in totals:
            totals[a] = e.fma(minus, e.load(target, min(a, b) * stride + abs(a - b) * LANES), totals[a])
    for a, total in totals.items():
        if a < hw:
            e.store(target, a * LANES, total)
        if a <= own:
            first = e.take(e.load(low, a * LANES), total, first)
    e.store(target, 0, first)


def keep_rows(e: Emit, target: Any, row: int, counts: list[int]) -> None:
    """Move the first vectors of rows, as far as they are needed again, by ROWS rows.

    row: elements of a row; counts: vectors of each that are needed
    """
    for n in reversed(range(len(counts))):
        for place in range(n * row, n * row + counts[n] * LANES, LANES):
            e.store(target, place + ROWS * row, e.load(target, place))


def _keep_inverse(e: Emit, target: Any, sizes: Sizes) -> None:
    keep_rows(e, target, known_row(sizes.hw), [sizes.hw - n for n in range(sizes.hw)])


def _dot(e: Emit, target: Any, given: Any, x: Any, sizes: Sizes) -> None:
    """sum_k row[k] x[k], k = -hw .. hw."""
    hw, sums = sizes.hw, [e.zero] * 3
    for k in range(2 * hw + 1):
        sums[k % 3] = e.fma(e.load(given, k * LANES), e.load(x, (k - hw) * LANES), sums[k % 3])
    e.store(target, 0, e.add(e.add(sums[0], sums[1]), sums[2]))


def _spread(e: Emit, target: Any, given: Any, x: Any, sizes: Sizes) -> None:
    """target[n + k] += row[n, k] x[n], k = -hw .. hw, for ROWS rows."""
    hw, totals = sizes.hw, dict[int, Any]()
    for n in range(ROWS):
        value = e.load(x, n * LANES)
        for k in range(-hw, hw + 1):
            if n + k not in totals:
                totals[n + k] = e.load(target, (n + k) * LANES)
            factor = e.load(given, (n * (2 * hw + 1) + hw + k) * LANES)
            totals[n + k] = e.fma(factor, value, totals[n + k])
        e.store(target, (n - hw) * LANES, totals.pop(n - hw))
    for place, total in totals.items():
        e.store(target, place * LANES, total)


def _forward(e: Emit, y: Any, low: Any, sizes: Sizes) -> None:
    """y[j] -= sum_b l_b[j - b] y[j - b]."""
    total = e.load(y, 0)
    for b in range(sizes.own, 0, -1):
        total = e.take(e.load(low, b * LANES - b * factor_row(sizes.own)), e.load(y, -b * LANES), total)
    e.store(y, 0, total)


def back_substitute(e: Emit, y: Any, low: Any, sizes: Sizes) -> None:
    """y[j] = y[j] / D[j] - sum_b l_b[j] y[j + b]."""
    total = e.multiply(e.load(y, 0), e.load(low, 0))
    for b in range(sizes.own, 0, -1):
        total = e.take(e.load(low, b * LANES), e.load(y, b * LANES), total)
    e.store(y, 0, total)


interleave, deal = code("interleave", _interleave), code("deal", _deal)
factor, invert, keep_inverse = code("factor", _factor), code("invert", _invert), code("keep_inverse", _keep_inverse)
dot, spread = code("dot", _dot), code("spread", _spread)
forward, backward = code("forward", _forward), code("backward", back_substitute)
