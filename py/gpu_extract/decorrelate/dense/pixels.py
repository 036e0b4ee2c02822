"""A patch from its pixels: how the dense core decorrelates where the normal equations are too close to singular.

icov holds the squares of the pixels' information. A direction with information h, icov's diagonal scaled to 1, is lost
in it if h is below 1e-13, together with its contribution to other fibres. The whitened spots themselves, W^1/2 A, hold
the same down to h = 1e-24. Only orthogonal transformations are used:

    W^1/2 (A_around, A_i, p) -> rows that A_around does not reach, (B, d) -> R_i with R_i' R_i = B' B = S_i = C_ii^-1.

A column of A_around that depends on others reaches no further row: pivoting leaves it out. With R_i = V sigma U' the
rest is as from a Cholesky factor: Q_i = U V' R_i, Q_i x_i = U V' d. Directions with sigma = 0 take no part.
"""
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from gpu_extract.data import Array
from gpu_extract.decorrelate.weak import UNKNOWN

SURE = 1e-12     # of a column's length: a larger remainder exceeds the spots' own rounding of 1e-14
NONE = 1e-15     # below that it is zero
MOVED = 1e-3     # sigma
ROUNDING = 100 * float(np.finfo(float).eps)      # of spots, and of operations on them
ONE_WAY = 0.1    # rounding has gone one way of many: an effect that happened to be small may be ten times larger,
NEXT = 2         # and the shift of bins this near may be that of the one between
CLEAR = 1e-6     # a column with a larger remainder is known to more digits than needed
SOME = 240       # columns that are transformed at a time,
MUCH = 1e-3      # and the remainder of those that are finished: rounding over that is no more than SURE
BLOCK = 64       # columns that LAPACK processes at a time


class Patch(NamedTuple):
    """The pixels of a patch, those with ivar that its spots touch, or an equivalent smaller set of rows.

    around: (rows, n) whitened spots of the fibres around the requested one, best in order of their rows
    own: (rows, bins), those of the requested fibre
    light: (rows,) whitened pixels, less the light of all other bins
    """

    around: Array
    own: Array
    light: Array


class Rooted(NamedTuple):
    """Of one fibre's bins: Q (n, n), its row sums (n,), Q x (n,), and which bins are weak, (n,) bool."""

    root: Array
    sums: Array
    product: Array
    weak: np.ndarray


def decorrelate(ask: Callable[..., Patch]) -> Rooted:
    """Q, Q 1 and Q x of a patch's own fibre; a bin without light has neither.

    ask: ask() is the patch, ask(moved=by) the same with all spots changed by this fraction of themselves

    A column of A_around with a remainder below SURE of its length, but above NONE, may reach a row or may be rounding
    of the spots. Bins that this choice moves by more than MOVED are weak. Where a remainder is below CLEAR, the spots
    are also changed by their possible rounding: bins that this moves by a tenth of MOVED, and those beside, are weak.
    """
    patch = ask()
    alive = (patch.own != 0.0).any(axis=0)
    made, least = _made(patch, alive)
    weak = np.any([made[0].weak, *(_moved(made[0], other, MOVED) for other in made[1:])], axis=0)
    if least < CLEAR:
        moved = _moved(made[0], _made(ask(moved=ROUNDING), alive)[0][0], ONE_WAY * MOVED)
        weak |= np.convolve(moved, np.ones(2 * NEXT + 1))[NEXT:NEXT + len(moved)] > 0
    n, size = int(np.count_nonzero(alive)), len(alive)
    out = Rooted(np.zeros((size, size)), np.zeros(size), np.zeros(size), np.zeros(size, dtype=bool))
    if n:
        out.root[np.ix_(alive, alive)] = made[0].root
        out.sums[alive], out.product[alive], out.weak[alive] = made[0].sums, made[0].product, weak
    return out


def _made(patch: Patch, alive: np.ndarray) -> tuple[list[Rooted], float]:
    """The result for the `alive` bins, for each treatment of the columns around in `_beyond`; and its second number."""
    norms = np.sqrt((patch.own[:, alive]**2).sum(axis=0))
    ways, least = _beyond(patch.around, np.column_stack([patch.own[:, alive] / norms, patch.light]))
    return [_rooted(rows, norms) for rows in ways], least


class Piece(NamedTuple):
    """Some pixels, (pixels, columns + 1): the unfinished columns, and their light.

    done: number of first columns that no later piece contains
    """

    block: Array
    done: int


def fewer_rows(pieces: Iterable[Piece], count: int) -> Array:
    """(rows, count + 1): the same information in no more rows than columns, transformed piece by piece.

    A piece is transformed together with the remainder of the one before; then the rows of finished columns are kept.
    """
    kept, left, begin = [], np.zeros((0, 1)), 0

    def keep(rows: Array) -> None:
        kept.append(np.zeros((len(rows), count + 1)))
        kept[-1][:, begin:begin + rows.shape[1] - 1], kept[-1][:, -1] = rows[:, :-1], rows[:, -1]

    for block, done in pieces:
        new = np.zeros((len(left), block.shape[1] - left.shape[1]))
        turned = np.asarray(np.linalg.qr(np.vstack([np.hstack([left[:, :-1], new, left[:, -1:]]), block]), mode="r"))
        keep(turned[:done])
        left, begin = turned[done:, done:], begin + done
    keep(left)
    return np.vstack(kept)


def _rooted(rows: Array, norms: Array) -> Rooted:
    """The result from the remainder of the fibre's columns, scaled to length 1 by `norms`, and of their light."""
    n = len(norms)
    triangle = np.linalg.qr(rows, mode="r") if rows.size else rows
    triangle = np.vstack([triangle, np.zeros((max(n - len(triangle), 0), n + 1))])
    scaled = triangle[:n, :n]
    known = scaled * norms
    v, u = _singular(known)
    polar = u.T @ v.T
    return Rooted(polar @ known, polar @ known.sum(axis=1), polar @ triangle[:n, n], _weak(scaled))


def _moved(one: Rooted, other: Rooted, most: float) -> np.ndarray:
    """Bins whose flux differs by more than `most` sigma between the two, or whose ivar differs by that fraction."""
    size = np.abs(one.sums) * most
    flux = one.product * other.sums - other.product * one.sums
    moved: np.ndarray = ~((np.abs(flux) <= size * np.abs(other.sums)) & (2 * np.abs(one.sums - other.sums) <= size))
    return moved


def _beyond(around: Array, columns: Array) -> tuple[list[Array], float]:
    """`columns` transformed, the rows that `around` does not reach, and the least remainder of a column of `around`.

    Columns that may be rounding are taken to reach nothing; if there are any, a second result takes them as real. The
    columns of `around` are transformed a few at a time, on the rows where they are not 0. Those with a large remainder
    are then finished; the others wait until the end, when the largest are taken first.
    """
    norms = np.sqrt((around**2).sum(axis=0))
    lit = norms > 0.0
    count, left = int(np.count_nonzero(lit)), np.hstack([around[:, lit] / norms[lit], columns])
    seen = np.maximum.accumulate(len(left) - (left[::-1, :count] != 0.0).argmax(axis=0)) if len(left) else norms[:0]
    waiting, begin, first = np.zeros(0, dtype=int), 0, 0
    while first + SOME < count:
        rows = left[begin:int(seen[first + SOME - 1])]
        some = np.concatenate([waiting, np.arange(first, first + SOME)])
        later = np.arange(first + SOME, left.shape[1])
        later = later[(rows[:, later] != 0.0).any(axis=0)]
        triangle, pivots, order, rows[:, later] = _turned(rows[:, some], rows[:, later])
        done = int(np.count_nonzero(pivots > MUCH))
        rows[:, some], waiting = 0.0, some[order[done:]]
        rows[:len(triangle), waiting] = triangle[:, done:]
        begin, first = begin + done, first + SOME
    last = np.concatenate([waiting, np.arange(first, count)])
    _, pivots, _, turned = _turned(left[begin:, last], left[begin:, count:])
    sure, most = (int(np.count_nonzero(pivots > limit)) for limit in (SURE, NONE))
    return [turned[rank:] for rank in sorted({sure, most})], float(pivots[:sure].min(initial=1.0))


def _turned(some: Array, others: Array) -> tuple[Array, Array, np.ndarray, Array]:
    """R of Q R = `some` with columns ordered by remainder, the remainders, the order, and Q' `others`."""
    if not some.size:
        return some, np.zeros(0), np.zeros(0, dtype=int), others
    width = some.shape[1]
    factor, order, reflections, _, _ = lapack.dgeqp3(some, lwork=2 * width + BLOCK * (width + 1))
    turned, _, _ = lapack.dormqr("L", "T", factor[:, :len(reflections)], reflections, np.asfortranarray(others),
                                 max(BLOCK * others.shape[1], 1))
    return np.triu(factor)[:width], np.abs(factor.diagonal()), order - 1, np.ascontiguousarray(turned)


def _singular(matrix: Array) -> tuple[Array, Array]:
    """V and U' with M = V sigma U', without directions whose sigma is rounding of their own bins."""
    v, sigma, u, info = lapack.dgesdd(matrix)
    if info != 0:
        raise np.linalg.LinAlgError("singular values of a patch did not converge")
    length = np.sqrt((u**2) @ (matrix**2).sum(axis=0))     # of a direction, its bins taken one by one
    there = sigma > SURE * length
    return v[:, there], u[there]


def _weak(scaled: Array) -> np.ndarray:
    """Bins with C_jj icov_jj > UNKNOWN; scaled: R_i with its columns of A scaled to length 1."""
    _, sigma, u, info = lapack.dgesdd(scaled)
    if info != 0:
        return np.ones(scaled.shape[1], dtype=bool)
    weak: np.ndarray = (1.0 / np.maximum(sigma, SURE) ** 2) @ u**2 > UNKNOWN
    return weak
