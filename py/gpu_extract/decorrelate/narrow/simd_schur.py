"""CPU kernels: the elimination of one fibre from another, eight fibres at a time (the lanes of every vector).

Eliminating fibre j subtracts U = G A_jj^-1 G^T from the block of a fibre i to which it is coupled by G = A_ij. `half`
diagonals of U are needed. With A_jj = L D L^T and V = G L^-T, the part of row r <= p of G that bins up to p leave,

    g_r = G[r] - sum_q<=p V[r, q] L[., q]^T,  is in bins p + 1 .. p + hw alone, and all of row p of U is
    U[p, r] = sum_q<=p V[p, q] V[r, q] / D[q] + P[p] g_r^T,  P[p] = g_p Z.

Z is A_jj^-1 in those bins, from the recursion of Takahashi, Fagan & Chin (1973), which needs no other elements of the
inverse. Expressed by V and G, each element is a sum of at most 2 hw + 1 products,

    U[p, r] = sum_q V[r, q] B[p, q] + sum_t P[p, t] G[r, t],  B[p, q] = V[p, q] / D[q] - sum_t P[p, t] L[t, q].

Nothing is cut off. U x_i, with all diagonals, comes from one further solution.

The rows of eight fibres are interleaved, eight bins at a time, so that every sum runs in eight lanes over aligned
vectors, in an order that does not depend on which fibres share a vector. hw is icov's half-band; the half-band `own` of
A_jj, and so of L, may be narrower.
"""
# mypy: disallow-untyped-defs=False
from functools import cache
from typing import Any

import numpy as np

from gpu_extract.arrays import Array, IntArray
from gpu_extract.decorrelate.narrow.simd_schur_pairs import (keep_block, keep_weights, pair_above, pair_below,
                                                             weights_row)
from gpu_extract.decorrelate.narrow.simd_schur_rows import (LANES, ROWS, backward, deal, dot, factor, factor_row,
                                                            forward, interleave, invert, keep_inverse, known_row,
                                                            spread)
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import address, integer, number, prefetch, write
from gpu_extract.vectors.transpose import padded      # of the results: whole tiles of ROWS

VECTOR = 8 * LANES  # bytes


def work_sizes(nwave: int, hw: int, own: int, *, half: int, distances: int) -> tuple[int, ...]:
    """Elements of work arrays: factor, y, x, gathered rows, B and P, inverse, U, U x, edges.

    Those for y, x, gathered rows, B and P have a part for each distance.
    """
    rows, width = _front(hw) + padded(nwave) + half + hw + 1, 2 * hw + 1
    return (rows * factor_row(own), distances * rows * LANES, distances * rows * LANES,
            distances * (ROWS + 2 * hw) * width * LANES, distances * (ROWS + half) * weights_row(hw),
            (ROWS + hw) * known_row(hw), ROWS * (half + 1) * LANES, ROWS * LANES, ROWS * width * LANES)


def _front(hw: int) -> int:
    """Empty rows before the first bin's, so that no sum has to test whether a bin exists."""
    return hw + ROWS


@njit(cache=True)
def _rows(source, bases, first, shape, edge, ends):
    """The addresses of rows first .. first + ROWS - 1 of eight blocks of `shape`, in the form for `interleave`.

    Rows at the ends are copied to `edge`, block by block (`ends`), with 0 for rows that do not exist.
    """
    nwave, width = shape
    if first >= 0 and first + ROWS <= nwave:
        return source + 8 * first * width, bases
    for lane in range(LANES):
        given = source + 8 * integer(bases + 8 * lane)
        for n in range(first * width, (first + ROWS) * width):
            value = number(given + 8 * n) if 0 <= n < nwave * width else 0.0
            write(edge + 8 * (integer(ends + 8 * lane) + n - first * width), value)
    return edge, ends


@njit()
def _ahead(place, base, size):
    """Prefetch `size` bytes of the array at `place`, from the element whose number is the integer at `base`."""
    first = place + 8 * integer(base)
    for n in range(0, size, 64):
        prefetch(first + n)


@njit(cache=True)
def _gather_x(out, x, bases, edge, ends, front):
    """x of eight fibres, which begin at `bases`, interleaved after `front` rows, with 0 before and after."""
    nwave = x.shape[1]
    out[:front * LANES] = out[(front + nwave) * LANES:] = 0.0
    for first in range(0, nwave, ROWS):
        given = _rows(address(x, 0), bases, first, (nwave, 1), edge, ends)
        interleave((address(out, (front + first) * LANES), given[0], given[1]), 0, 0, 0)


@njit(cache=True)
def _decoupled(low, row):
    """Rows of the factor for bins that do not exist."""
    low[:] = 0.0
    for n in range(0, len(low), row):
        low[n:n + LANES] = 1.0


@cache
def factorise(hw: int, own: int) -> Any:
    """The kernel for half-bands hw of icov and own of A_jj: L D L^T of eight fibres, and y = A_jj^-1 G^T x_i.

    y is made on the way up only; `coupling` makes the rest.

    kernel(works, icov, x, blocks, others, ends, distances)
    works: see work_sizes; icov: (nfibre, nd, nwave, 2 hw + 1); x: (nfibre, nwave)
    blocks: (8,) int64, the first elements of the A_jj in icov; others: (ndistance, 2, 8), those of the blocks between j
    and i in icov, and of the fibres i in x; ends: (2, 8), those of both in `edge`
    distances: (ndistance,), i - j, 0 if none of the eight fibres i exists
    """
    width, front, row = 2 * hw + 1, _front(hw), factor_row(own)
    tile = 8 * ROWS * width

    @njit(cache=True)
    def kernel(works, icov, x, blocks, others, ends, distances):
        nwave, length = icov.shape[2], len(works[1]) // len(distances)
        shape, flat, block, edge = (nwave, width), address(icov, 0), address(works[3], 0), address(works[8], 0)
        _decoupled(works[0][:front * row], row)
        _decoupled(works[0][(front + nwave) * row:], row)
        low = address(works[0], front * row)
        works[1][:] = 0.0
        for e in range(len(distances)):
            _gather_x(works[2][e * length:(e + 1) * length], x, address(others, (2 * e + 1) * LANES), edge,
                      address(ends, LANES), front)
        for first in range(0, nwave, ROWS):
            last, following = min(first + ROWS, nwave), flat + (first + ROWS) * 8 * width
            given = _rows(flat, address(blocks, 0), first, shape, edge, address(ends, 0))
            interleave((block, given[0], given[1]), hw, 0, 0)
            for j in range(first, last):
                _ahead(following, address(blocks, j - first), tile)
                factor((low + 8 * j * row, block + ((j - first) * width + hw) * VECTOR), 0, own, 0)
            for e in range(len(distances)):
                if distances[e] == 0:
                    continue
                given = _rows(flat, address(others, 2 * e * LANES), first, shape, edge, address(ends, 0))
                interleave((block, given[0], given[1]), hw, 0, 0)
                start, back = e * length + front * LANES, hw if distances[e] < 0 else 0
                y, xs = address(works[1], start), address(works[2], start)
                if distances[e] > 0:
                    for j in range(first, last):
                        dot((y + j * VECTOR, block + (j - first) * width * VECTOR, xs + j * VECTOR), hw, 0, 0)
                else:
                    spread((y + first * VECTOR, block, xs + first * VECTOR), hw, 0, 0)
                for lane in range(LANES):
                    _ahead(following, address(others, 2 * e * LANES + lane), tile)
                for j in range(max(first - back, 0), last - back if last < nwave else nwave):
                    forward((y + j * VECTOR, low + 8 * j * row), 0, own, 0)
    return kernel


@cache
def coupling(hw: int, own: int, half: int) -> Any:
    """The kernel for half-bands hw of icov and own of A_jj and `half` diagonals of U, after `factorise`.

    kernel(out, moved, works, icov, others, lanes, ends, distances)
    out: (n, ndistance, padded(nwave), half + 1), filled for eight fibres: out[n, e, p, a] = U[p, p + a] that
    eliminating fibre j subtracts from fibre i at distances[e]; moved: (n, ndistance, padded(nwave)), filled: all of U,
    without any cut, times x_i; both are undefined if no fibre i exists
    lanes: (ndistance, 2, 8) int64, first elements of the eight fibres' results in both; others: as for `factorise`
    """
    width, front, row, known = 2 * hw + 1, _front(hw), 8 * factor_row(own), 8 * known_row(hw)
    weight, columns, tile, beyond = 8 * weights_row(hw), half + 1, 8 * ROWS * width, padded(hw)

    @njit(cache=True, loops=False)
    def kernel(out, moved, works, icov, others, lanes, ends, distances):
        nwave, count, flat = icov.shape[2], len(distances), address(icov, 0)
        low, z, edge = address(works[0], front * (row // 8)), address(works[5], 0), address(works[8], 0)
        u, ux, top = address(works[6], 0), address(works[7], 0), (nwave - 1) // ROWS * ROWS
        length, size, past = len(works[1]) // count, len(works[3]) // count, len(works[4]) // count
        for n in range(3, 6):
            works[n][:] = 0.0
        for e in range(count):
            for j in range(top + ROWS - 1, top + ROWS - 1 - hw, -1):
                backward((address(works[1], e * length + (front + j) * LANES), low + j * row), 0, own, 0)
        for first in range(top + beyond, -1, -ROWS):
            pairs = range(ROWS - 2 if first <= top else -1, -1, -2)     # above the last bins rows are only gathered
            for n in pairs:
                invert((z + (n + 1) * known, low + (first + n + 1) * row), hw, own, 0)
                invert((z + n * known, low + (first + n) * row), hw, own, 0)
            for e in range(count):
                if distances[e] == 0:
                    continue
                y, block = address(works[1], e * length + (front + first) * LANES), address(works[3], e * size)
                b, margin = address(works[4], e * past), hw if distances[e] > 0 else 0
                blocks, target = address(others, 2 * e * LANES), address(lanes, 2 * e * LANES)
                given = _rows(flat, blocks, first - margin, (nwave, width), edge, address(ends, 0))
                interleave((block, given[0], given[1]), hw, 0, 0)
                for n in pairs:
                    for lane in range(8 * n, 8 * n + 16, 8):
                        _ahead(flat + (first - margin - ROWS) * 8 * width, blocks + lane, tile)
                        _ahead(address(out, (first - ROWS) * columns), target + lane, 8 * ROWS * columns)
                    places = (u + n * columns * VECTOR, ux + n * VECTOR, b + n * weight,
                              block + (margin + n) * width * VECTOR, z + n * known, low + (first + n) * row,
                              y + n * VECTOR)
                    if distances[e] > 0:
                        pair_above(places, hw, own, half)
                    else:
                        pair_below(places, hw, own, half)
                if first <= top:
                    deal((address(out, first * columns), target, u), 0, 0, half)
                    deal((address(moved, first), target + 8 * LANES, ux), 0, 0, 0)
                    keep_weights((b,), hw, 0, half)
                if distances[e] > 0:
                    keep_block((block,), hw, 0, 0)
            if first <= top:
                keep_inverse((z,), hw, 0, 0)
    return kernel


@cache
def together(fibres: tuple[int, ...], distances: tuple[int, ...], nfibre: int) -> tuple[IntArray, IntArray]:
    """The fibres that share vectors: (m, 1, 8), their places in `fibres`, and (m, ndistance), the distances for which
    they do, 0 for none.

    Fibres that have a neighbour at all distances come first. The first and the last fibre of a bundle, which have
    fewer, share a lane if that saves a vector.
    """
    others, count = np.add.outer(distances, fibres), len(fibres)
    exists = (others >= 0) & (others < nfibre)
    order = np.argsort(~exists.all(axis=0), kind="stable")
    each = [order[found[order]] for found in exists]
    if max(map(len, each)) > (count - 1) // LANES * LANES:
        each = [np.arange(count)] * len(distances)
    calls: dict[tuple[int, ...], IntArray] = {}
    for e, some in enumerate(each):
        for first in range(0, len(some), LANES):
            lanes = some[np.minimum(np.arange(first, first + LANES), len(some) - 1)]
            if exists[e, lanes].any():
                calls.setdefault(tuple(lanes.tolist()), np.zeros(len(distances), dtype=np.int64))[e] = distances[e]
    return (np.array([*calls], dtype=np.int64).reshape(-1, 1, LANES),
            np.array([*calls.values()], dtype=np.int64).reshape(-1, len(distances)))


def eliminate(out: Array, moved: Array, icov: Array, x: Array, fibres: IntArray, distances: IntArray,
              works: tuple[Array, ...], *, own: int) -> None:
    """Eliminate each of `fibres` from those at `distances` from it: see `coupling`.

    out: (n, ndistance, padded(nwave), half + 1), moved: (n, ndistance, padded(nwave)), filled
    icov: as in data.Normal; x: (nfibre, nwave); fibres: (n,) int64; distances: (ndistance,) int64, none of them 0
    works: see work_sizes, each on a cache line; own: half-band of the fibres' own blocks
    """
    (nfibre, nd, nwave, width), half = icov.shape, out.shape[3] - 1
    size, hw, ends = nwave * width, width // 2, ROWS * np.outer((width, 1), np.arange(LANES))
    apart = distances[:, None]
    which, asked = together(tuple(fibres.tolist()), tuple(distances.tolist()), nfibre)
    j, i = fibres[which], fibres[which] + apart         # (group, distance, lane), as everything here
    exists = (i >= 0) & (i < nfibre)
    block = np.where(exists, np.minimum(i, j) * nd + abs(apart), 0)
    others = np.stack([block * size, np.where(exists, i, 0) * nwave], axis=2)
    place = (which * len(distances) + np.arange(len(distances))[:, None]) * out.shape[2]
    lanes = np.stack([place * (half + 1), place], axis=2)
    blocks = j[:, 0] * (nd * size)
    for n in range(len(which)):
        factorise(hw, own)(works, icov, x, blocks[n], others[n], ends, asked[n])
        coupling(hw, own, half)(out, moved, works, icov, others[n], lanes[n], ends, asked[n])
