"""Rows of U = G A^-1 G^T of eight fibres at once, unrolled: V, then B and P, then U, see simd_schur.

Two rows are processed at once: what both need is read once. They are called like those of simd_schur_rows.
"""
from typing import Any

from gpu_extract.decorrelate.narrow.simd_schur_rows import (LANES, Sizes, back_substitute, code, factor_row,
                                                            keep_rows, known_row)
from gpu_extract.vectors.emit import Emit

BOTH = (0, 1)
AT_ONCE = 14       # elements of a row that are summed at once: more would not stay in registers


def _coupled_row(hw: int, half: int) -> int:
    """Elements of a row of V and G: V[p, p - hw .. p + half], G[p, p + 1 .. p + hw]."""
    return (2 * hw + half + 1) * LANES


def weights_row(hw: int) -> int:
    """Elements of a row of B and P: B[p, p - hw .. p], P[p, p + 1 .. p + hw]."""
    return (2 * hw + 1) * LANES


def _place(h: int, up: bool) -> Any:
    """Place of G[p, p + k] relative to row p of a gathered block, as a function of k.

    As in icov: with the fibre below, G[p, p + k] is element hw + k of row p; with the one above it is element hw - k of
    row p + k.
    """
    if up:
        return lambda k: (k * (2 * h + 1) + h - k) * LANES
    return lambda k: (h + k) * LANES


def _advance(e: Emit, rows: Any, moved: Any, rest: Any, block: Any, low: Any, y: Any, sizes: Sizes, up: bool) -> None:
    """Rows p and p + 1 of V = G L^-T and of G, and of G y.

    rows: filled, see `_coupled_row`; moved: filled; rest: filled, hw vectors for each row: the remainder of
    G[p, p + 1 .. p + hw] once bins up to p are eliminated; block: row p of the gathered couplings, see `_place`
    """
    h, own, w = sizes
    place, width = _place(h, up), 2 * h + 1
    live: tuple[dict[int, Any], ...] = ({}, {})
    sums = [[e.zero] * 3 for _ in BOTH]

    def left(n: int, s: int) -> Any:
        """The remainder of G[p + n, p + n + s]."""
        if s not in live[n]:
            live[n][s] = g = e.load(block, n * width * LANES + place(s)) if s <= h else e.zero
            if s <= h:
                sums[n][s % 3] = e.fma(g, e.load(y, (n + s) * LANES), sums[n][s % 3])
            if 0 < s <= h:
                e.store(rows, n * _coupled_row(h, w) + (h + w + s) * LANES, g)
        return live[n][s]

    for q in range(-h, w + 2):
        both = [(n, q - n) for n in BOTH if -h <= q - n <= w]
        v = [e.negative(left(*one)) for one in both]
        for n, s in both:
            e.store(rows, n * _coupled_row(h, w) + (h + s) * LANES, left(n, s))
        for b in range(1, own + 1):
            wanted = [m for m, (n, s) in enumerate(both) if s + b <= (h if s <= 0 else w)]
            l = e.load(low, q * factor_row(own) + b * LANES) if wanted else None
            for m in wanted:
                n, s = both[m]
                live[n][s + b] = e.fma(v[m], l, left(n, s + b))
        for n, s in both:
            for t in range(1, h + 1 if s == 0 else 1):
                e.store(rest, (n * h + t - 1) * LANES, left(n, t))
    for n, (a, b, c) in enumerate(sums):
        e.store(moved, n * LANES, e.add(e.add(a, b), c))


def _close(e: Emit, target: Any, rest: Any, rows: Any, z: Any, low: Any, sizes: Sizes) -> None:
    """Two rows of B and P, see `weights_row`; rest, rows: from `_advance`; z, low: at row p."""
    h, own, w = sizes
    known = [dict.fromkeys(range(n + 1, n + h + 1), e.zero) for n in BOTH]
    for t in range(1, h + 2):
        g = {n: e.load(rest, (n * h + t - n - 1) * LANES) for n in BOTH if t in known[n]}
        for r in range(1, h + 2):
            both = [n for n in g if r in known[n]]
            element = e.load(z, min(t, r) * known_row(h) + abs(t - r) * LANES) if both else None
            for n in both:
                known[n][r] = e.fma(g[n], element, known[n][r])
    b: list[dict[int, Any]] = [{}, {}]
    for q in range(-h, 2):
        inverse = e.load(low, q * factor_row(own))
        for n in BOTH:
            if -h <= q - n <= 0:
                b[n][q] = e.multiply(e.load(rows, n * _coupled_row(h, w) + (h + q - n) * LANES), inverse)
    for r in range(1, h + 2):
        minus = {n: e.negative(known[n][r]) for n in BOTH if r in known[n]}
        for n in minus:
            e.store(target, n * weights_row(h) + (h + r - n) * LANES, known[n][r])
        for q in range(r - own, 2):
            both = [n for n in minus if q in b[n]]
            l = e.load(low, q * factor_row(own) + (r - q) * LANES) if both else None
            for n in both:
                b[n][q] = e.fma(minus[n], l, b[n][q])
    for n in BOTH:
        for q, value in b[n].items():
            e.store(target, n * weights_row(h) + (h + q - n) * LANES, value)


def _couple(e: Emit, u: Any, rows: Any, weights: Any, sizes: Sizes) -> None:
    """U[p, p + a], a = 0 .. half, and U[p + 1, p + 1 + a]; weights: rows of B and P from row p on."""
    h, _, w = sizes
    stride = weights_row(h)
    for first in range(0, w + 2, AT_ONCE):
        sums = {(n, d): e.zero for n in BOTH for d in range(first, first + AT_ONCE) if 0 <= d - n <= w}
        for q in range(-h, max(h, w) + 2):
            for place, least, most, last in ((h, -h, 0, w), (h + w, 1, h, h)):
                both = [n for n in BOTH if q - n <= last and (q - n >= least)]
                wanted = {d: [n for n in both if (n, d) in sums] for d in range(q - most, q - least + 1)}
                value = {n: e.load(rows, n * _coupled_row(h, w) + (place + q - n) * LANES)
                         for n in both if any(n in known for known in wanted.values())}
                for d, known in wanted.items():
                    weight = e.load(weights, d * stride + (h + q - d) * LANES) if known else None
                    for n in known:
                        sums[n, d] = e.fma(value[n], weight, sums[n, d])
        for (n, d), total in sums.items():
            e.store(u, (n * (w + 1) + d - n) * LANES, total)


def _pair(e: Emit, u: Any, moved: Any, weights: Any, block: Any, z: Any, low: Any, y: Any, sizes: Sizes,
          up: bool) -> None:
    """Rows p and p + 1 of U and of U x_i, all addresses at row p.

    u: filled, half + 1 elements a row; moved: filled; block: the gathered couplings, see `_place`
    weights: rows of B and P, filled; later rows exist already; z: the inverse, from row p + 1 on
    low: the factor; y: the solution, from row p - hw + 2 on; the rows p - hw and p - hw + 1 are made
    """
    h, own, w = sizes
    rest, rows = e.scratch(2 * max(h, 1)), e.scratch(2 * _coupled_row(h, w) // LANES)
    for n in (1 - h, -h):
        e.call("solve", (e.at(y, n * LANES), e.at(low, n * factor_row(own))), back_substitute, sizes)
    e.call("advance", (rows, moved, rest, block, low, y), _advance, sizes, up)
    e.call("close", (weights, rest, rows, z, low), _close, sizes)
    e.call("couple", (u, rows, weights), _couple, sizes)


def _keep_weights(e: Emit, target: Any, sizes: Sizes) -> None:
    """Keep rows of B and P."""
    h, _, w = sizes
    keep_rows(e, target, weights_row(h), [max(2 * h - n, h + 1) for n in range(w)])


def _keep_block(e: Emit, target: Any, sizes: Sizes) -> None:
    """Keep rows of a block, whose row 0 is p - hw."""
    h = sizes.hw
    keep_rows(e, target, (2 * h + 1) * LANES, [2 * h - n for n in range(2 * h)])


pair_below, pair_above = code("pair", _pair, False), code("pair", _pair, True)
keep_weights, keep_block = code("keep_weights", _keep_weights), code("keep_block", _keep_block)
