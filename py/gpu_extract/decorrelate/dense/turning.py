"""Whitened spots turned by orthogonal transformations: as few rows as say the same, and those that some columns do not
reach. See dense.pixels."""
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from gpu_extract.data import Array, IntArray
from gpu_extract.lapack import lapack

SURE = 1e-12     # of a column's length: a larger remainder exceeds the spots' own rounding of 1e-14
NONE = 1e-15     # below that it is zero
SOME = 240       # columns that are turned at a time,
MUCH = 1e-3      # and what is left of those that are done with: rounding over that is no more than SURE
BLOCK = 64       # columns that LAPACK works on at a time


class Block(NamedTuple):
    """Some rows of a triangle in steps, (rows, columns + 1), from column `begin` on; the last one is their light."""

    rows: Array
    begin: int


class Piece(NamedTuple):
    """Some pixels, (pixels, columns + 1): the unfinished columns, and their light.

    done: number of first columns that no later piece contains
    """

    block: Array
    done: int


def fewer_rows(pieces: Iterable[Piece]) -> list[Block]:
    """What pixels say, by no more rows than there are columns and one, turned piece by piece.

    A piece is transformed together with the remainder of the one before; then the rows of finished columns are kept.
    """
    kept, left, begin = [], np.zeros((1, 0)), 0
    for block, done in pieces:
        new = block.shape[1] - len(left)
        both = np.hstack([np.vstack([left[:-1], np.zeros((new, left.shape[1])), left[-1:]]), block.T])
        length = np.sqrt((both[:-1]**2).sum(axis=1))
        length[length == 0.0] = 1.0
        rows, rest = _finished(both, length[:done])
        kept.append(Block(rows.T, begin))
        rows, light = _finished(rest, length[done:])
        left = np.column_stack([rows, np.append(np.zeros(len(rows) - 1), np.linalg.norm(light))])
        begin += done
    return [*kept, Block(left.T, begin)]


def _finished(columns: Array, length: Array) -> tuple[Array, Array]:
    """The rows that the first columns reach, turned, and the others' elements in those that they do not.

    columns: (columns + 1, rows), as for `_turned`; the last one is light; length: of the first ones before anything
    was turned
    """
    done = len(length)
    triangle, _, turned, order = _turned(columns[:done] / length[:, None], columns[done:])
    count = triangle.shape[1]
    rows = np.empty((len(columns), count))
    rows[order], rows[done:] = triangle * length[order, None], turned[:, :count]
    return rows, turned[:, count:]


def rows_beyond(blocks: list[Block], around: IntArray, mine: IntArray, *,
            norms: Array) -> tuple[list[Array], float, int]:
    """Columns `mine` and the light, turned, in the rows that columns `around` do not reach, and the least that is left
    of one of these that does, all of length 1 by `norms`, and of how many no more than SURE is left.

    Columns that may be rounding are left to reach nothing; where there are any, also taken at their word. SOME columns
    of `around` at a time are turned, with the rows that have them: of which much is left, they are done with, and the
    others wait for the end, when the largest are taken first. So no more is at hand than columns that meet.
    """
    place, own = np.full(len(norms), -1), np.full(len(norms), -1)
    place[around], own[mine] = np.arange(len(around)), np.arange(len(mine))
    tail, done, waiting, left = len(mine) + 1, 0, 0, np.zeros((len(mine) + 1, 0))
    rest = deque(blocks)
    while True:
        last = done + SOME >= len(around)
        until = len(norms) + 1 if last else int(around[done + SOME - 1]) + 1
        new = [rest.popleft() for _ in range(sum(block.begin < until for block in rest))]
        reached = max((block.begin + block.rows.shape[1] - 1 for block in new), default=0)
        opened = max(len(left) - waiting - tail, int(np.searchsorted(around, reached)) - done)
        row = left.shape[1]
        before, left = left, np.zeros((waiting + opened + tail, row + sum(len(block.rows) for block in new)))
        for part in (slice(len(before) - tail), slice(-tail, None)):
            left[part, :row] = before[part]
        for rows, begin in new:
            here, end = slice(begin, begin + rows.shape[1] - 1), row + len(rows)
            for places, first in ((place[here], waiting - done), (own[here], len(left) - tail)):
                some = np.flatnonzero(places >= 0)
                left[first + places[some], row:end] = (rows[:, some] / norms[here][some]).T
            left[-1, row:end], row = rows[:, -1], end
        if last:
            break
        triangle, pivots, turned, _ = _turned(left[:waiting + SOME], left[waiting + SOME:])
        over = int(np.count_nonzero(pivots > MUCH))
        waiting, done = waiting + SOME - over, done + SOME
        left = np.zeros((waiting + len(turned), left.shape[1] - over))
        left[:waiting, :triangle.shape[1] - over], left[waiting:] = triangle[over:, over:], turned[:, over:]
    _, pivots, turned, _ = _turned(left[:len(left) - tail], left[len(left) - tail:])
    sure, most = (int(np.count_nonzero(pivots > limit)) for limit in (SURE, NONE))
    ways = [turned[:, rank:].T for rank in sorted({sure, most})]
    return ways, float(pivots[:sure].min(initial=1.0)), len(left) - tail - sure


def _turned(some: Array, others: Array) -> tuple[Array, Array, Array, IntArray]:
    """R of Q R = `some` in the order of what is left of its columns, that, Q' `others`, and the order.

    Matrices are given and returned column by column: an element of the second axis is a row's. Columns of `some` are of
    a like length, and rows are taken in order of their largest element in them. So each row is rounded in proportion to
    its own elements (Higham 2002, Accuracy and Stability of Numerical Algorithms, 19.4): pixels that see little light
    of these columns, or have a small ivar, may be all that others have.
    """
    if not some.size:
        return some[:, :0], np.zeros(0), others, np.arange(len(some))
    width, rows = len(some), np.argsort(-np.abs(some).max(axis=0), kind="stable")
    factor, order, reflections, _, _ = lapack.dgeqp3(some[:, rows].T, lwork=2 * width + BLOCK * (width + 1),
                                                     overwrite_a=1)
    turned, _, _ = lapack.dormqr("L", "T", factor[:, :len(reflections)], reflections, others[:, rows].T,
                                 max(BLOCK * len(others), 1), overwrite_c=1)
    return np.triu(factor[:width]).T, np.abs(factor.diagonal()), turned.T, order - 1
