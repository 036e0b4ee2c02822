"""Orthogonal transformations of whitened spots: to an equivalent set of fewer rows, and to the rows that some columns
do not reach. See dense.pixels. A set of rows is "turned" when such a transformation is applied to it."""
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from gpu_extract.data import Array, IntArray
from gpu_extract.lapack import blas, lapack

SURE = 1e-12     # of a column's length: a larger remainder exceeds the spots' own rounding of 1e-14
NONE = 1e-15     # below that it is zero
LOOSE = 4        # rows of the tail alone that are collected before they are turned, in units of its columns
SOME = 240       # columns that are turned at a time
MUCH = 1e-3      # a column of which more is left is finished at once: rounding over that is no more than SURE
BLOCK = 64       # columns that LAPACK works on at a time


class Block(NamedTuple):
    """Some rows of a triangle in steps, (rows, columns + tail): the columns of other fibres from `begin` on, and the
    tail, which is the columns of the requested fibre and light."""

    rows: Array
    begin: int


class Piece(NamedTuple):
    """Some pixels, (pixels, columns + tail): the unfinished columns, and the tail, as of a Block.

    done: number of first columns that no later piece contains
    """

    block: Array
    done: int


def fewer_rows(pieces: Iterable[Piece], tail: int) -> list[Block]:
    """A set of rows that is equivalent to the pixels and no longer than there are columns, made piece by piece.

    A piece is turned together with the remainder of the previous one. Then the rows of finished columns are kept. Rows
    that the tail alone reaches are kept for the end.
    """
    kept, left, loose, begin = [], np.zeros((tail, 0)), np.zeros((tail, 0)), 0
    for block, done in pieces:
        new = block.shape[1] - len(left)
        both = np.hstack([np.vstack([left[:-tail], np.zeros((new, left.shape[1])), left[-tail:]]), block.T])
        length = _lengths(both[:-tail])
        rows, rest = _finished(both, length[:done])
        kept.append(Block(rows.T, begin))
        left, rest = _finished(rest, length[done:])
        loose, begin = np.hstack([loose, rest]), begin + done
        if loose.shape[1] > LOOSE * tail:
            loose = _fewest(loose)
    return [*kept, Block(left.T, begin), Block(_fewest(loose).T, begin + len(left) - tail)]


def _fewest(tail: Array) -> Array:
    """(tail, rows): an equivalent of rows that the tail alone reaches, `tail` rows at most."""
    rows, light = _finished(tail, _lengths(tail[:-1]))
    return np.column_stack([rows, np.append(np.zeros(len(tail) - 1), np.linalg.norm(light))])


def _lengths(columns: Array) -> Array:
    """The lengths of columns (columns, rows); 1 instead of 0."""
    length: Array = np.sqrt((columns**2).sum(axis=1))
    length[length == 0.0] = 1.0
    return length


def _finished(columns: Array, length: Array) -> tuple[Array, Array]:
    """The rows that the first columns reach, transformed, and the other columns' elements in the remaining rows.

    columns: (columns, rows), as for `_turned`; length: of the first ones before anything was turned
    """
    done = len(length)
    triangle, _, turned, order = _turned(columns[:done] / length[:, None], columns[done:])
    count = triangle.shape[1]
    rows = np.empty((len(columns), count))
    rows[order], rows[done:] = triangle * length[order, None], turned[:, :count]
    return rows, turned[:, count:]


class _Step(NamedTuple):
    """Some columns around that are finished, the first of `columns`.

    triangle: (columns, finished) and turned: (further columns and tail, finished), in the rows that the finished
    columns reach; the further columns begin with number `further`
    """

    triangle: Array
    turned: Array
    columns: IntArray
    further: int


class Left(NamedTuple):
    """The result of `rows_beyond`; ways: the tail in the rows beyond, (rows, tail), by each way to take the columns."""

    ways: list[Array]
    least: float
    dropped: int
    steps: list[_Step]

    def fit(self, norms: Array, tail: int) -> Array:
        """(columns, tail): the multiples of the columns around that fit the tail best."""
        out = np.zeros((len(norms) - tail, tail))
        for triangle, turned, columns, further in reversed(self.steps):
            some = triangle.shape[1]
            later = out[further:further + len(turned) - tail]
            right = turned[-tail:].T - triangle[some:].T @ out[columns[some:]] - turned[:-tail].T @ later
            if some:
                out[columns[:some]] = blas.dtrsm(1.0, triangle[:some], right, lower=1, trans_a=1)
        found: Array = out * norms[-tail:] / _unless(norms[:-tail])[:, None]
        return found


def _unless(norms: Array) -> Array:
    """Lengths of columns, 1 instead of 0."""
    return np.where(norms > 0.0, norms, 1.0)


def rows_beyond(blocks: list[Block], norms: Array, tail: int, most: Callable[[], int] | None = None) -> Left:
    """The tail, turned, in the rows that the columns around do not reach.

    norms: (columns + tail,) lengths, 1 for light; all columns are scaled to length 1; most: how many columns
    around can be independent at most, None if that is not wanted

    The result also has the least remainder of a column around that reaches a row, and the number of dropped columns:
    those of which no more than SURE is left, columns of length 0 excepted. They may be rounding, and count as reaching
    no row. If more than NONE is left of any, a second way takes these as they are. Another takes as many as there can
    be by `most`: a column may have less than NONE of its length on a dim pixel. Where no other column has more there,
    this is not rounding (`_turned`), and the column takes that pixel.

    SOME columns around are turned at a time, with the rows that contain them. Columns of which more than MUCH is left
    are then finished. The others wait for the end, when the largest are taken first. So memory holds only columns that
    have rows in common.
    """
    count, unit = len(norms) - tail, _unless(norms)
    columns, done, left, steps = np.zeros(0, dtype=np.intp), 0, np.zeros((tail, 0)), list[_Step]()
    rest = deque(blocks)
    while True:
        last = done + SOME >= count
        until = count + 1 if last else done + SOME
        new = [rest.popleft() for _ in range(sum(block.begin < until for block in rest))]
        reached = count if last else max((block.begin + block.rows.shape[1] - tail for block in new), default=0)
        waiting, row = len(columns), left.shape[1]
        before, opened = left, max(len(left) - waiting - tail, reached - done)
        left = np.zeros((waiting + opened + tail, row + sum(len(block.rows) for block in new)))
        left[:len(before) - tail, :row], left[-tail:, :row] = before[:-tail], before[-tail:]
        for rows, begin in new:
            wide, first, end = rows.shape[1] - tail, waiting + begin - done, row + len(rows)
            left[first:first + wide, row:end] = (rows[:, :wide] / unit[begin:begin + wide]).T
            left[-tail:, row:end], row = (rows[:, wide:] / unit[-tail:]).T, end
        some = waiting + (opened if last else SOME)
        triangle, pivots, turned, order = _turned(left[:some], left[some:])
        columns = np.append(columns, np.arange(done, done + some - waiting))[order]
        done += some - waiting
        over = int(np.count_nonzero(pivots > (SURE if last else MUCH)))
        steps.append(_Step(triangle[:, :over], turned[:, :over], columns, done))
        if last:
            break
        waiting, columns = some - over, columns[over:]
        left = np.zeros((waiting + len(turned), left.shape[1] - over))
        left[:waiting, :triangle.shape[1] - over], left[waiting:] = triangle[over:, over:], turned[:, over:]
    dropped = some - over - int(np.count_nonzero(norms[:count] == 0.0))
    ranks = {over, int(np.count_nonzero(pivots > NONE))}
    if most is not None and dropped:
        reaching = int(np.count_nonzero(norms[:count])) - dropped
        ranks.add(min(over + most() - reaching, int(np.count_nonzero(pivots))))
    ways = [turned[:, rank:].T for rank in sorted(ranks)]
    return Left(ways, float(pivots[:over].min(initial=1.0)), dropped, steps)


def _turned(some: Array, others: Array) -> tuple[Array, Array, Array, IntArray]:
    """R of Q R = `some`, with columns in the order of their remainders; the remainders; Q' `others`; and the order.

    Matrices are transposed: the second axis is that of rows. Columns of `some` have similar lengths, and rows are taken
    in order of their largest element in them. So each row is rounded in proportion to its own elements (Higham 2002,
    Accuracy and Stability of Numerical Algorithms, 19.4): pixels with little light of these columns, or a small ivar,
    may be the only ones of other columns.
    """
    if not some.size:
        return some[:, :0], np.zeros(0), others, np.arange(len(some))
    width, rows = len(some), np.argsort(-np.abs(some).max(axis=0), kind="stable")
    factor, order, reflections, _, _ = lapack.dgeqp3(some[:, rows].T, lwork=2 * width + BLOCK * (width + 1),
                                                     overwrite_a=1)
    turned, _, _ = lapack.dormqr("L", "T", factor[:, :len(reflections)], reflections, others[:, rows].T,
                                 max(BLOCK * len(others), 1), overwrite_c=1)
    return np.triu(factor[:width]).T, np.abs(factor.diagonal()), turned.T, order - 1
