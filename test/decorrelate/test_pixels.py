"""Patches from pixels: what is turned a piece, or a few columns, at a time says the same as all of it at once."""
import numpy as np
import pytest

from gpu_extract.decorrelate.dense import turning
from gpu_extract.decorrelate.dense.patch_pixels import _most_rows

ROWS, COLUMNS, REACH = 700, 400, 60
EPS = np.finfo(float).eps


def dense(blocks, count):
    """(rows, count + 1): the rows of some blocks."""
    out = [np.zeros((len(rows), count + 1)) for rows, _ in blocks]
    for each, (rows, begin) in zip(out, blocks, strict=True):
        each[:, begin:begin + rows.shape[1] - 1], each[:, -1] = rows[:, :-1], rows[:, -1]
    return np.vstack(out)


def steps(matrix, light, height):
    """Rows of a triangle and their light, a few at a time, as far as they reach."""
    for top in range(0, len(matrix), height):
        rows = matrix[top:top + height]
        reached = (rows != 0.0).any(axis=0).nonzero()[0].max(initial=0) + 1
        first = min(top, reached)
        assert not rows[:, :first].any()
        yield turning.Block(np.column_stack([rows[:, first:reached], light[top:top + height]]), first)


def beyond(matrix, own):
    """`rows_beyond` of a triangle's columns, those that are not `own`."""
    blocks = list(steps(matrix, np.ones(len(matrix)), 23))
    norms = np.sqrt((matrix**2).sum(axis=0))
    return turning.rows_beyond(blocks, np.flatnonzero(~own), np.flatnonzero(own), norms=norms)


@pytest.fixture
def band():
    """(rows, columns): each column on REACH rows, in order; every third all but depends on the one before."""
    rng = np.random.default_rng(5)
    matrix = np.zeros((ROWS, COLUMNS))
    for n in range(COLUMNS):
        first = n * (ROWS - REACH) // COLUMNS
        matrix[first:first + REACH, n] = rng.normal(size=REACH)
    matrix[:, 2::3] = matrix[:, 1:-1:3][:, :len(matrix[0, 2::3])] + 10.0 ** rng.uniform(-8, -2) * matrix[:, 2::3]
    return matrix


def test_fewer_rows_say_the_same(band):
    """R'R = A'A to rounding, light included, and no more rows than columns and one; columns end beyond the last row,
    too, as spots do at the CCD's edge."""
    light = np.random.default_rng(6).normal(size=ROWS)
    first = (band != 0.0).argmax(axis=0)
    end = first + REACH
    end[-5:] += 100

    def pieces():
        begin = 0
        for top in range(0, ROWS, REACH):
            stop = int((first < top + REACH).sum())
            done = int((end <= top + REACH).sum())
            block = np.column_stack([band[top:top + REACH, begin:stop], light[top:top + REACH]])
            yield turning.Piece(block, done - begin)
            begin = done

    rows = dense(turning.fewer_rows(pieces()), COLUMNS)
    whole = np.column_stack([band, light])
    assert len(rows) <= COLUMNS + 1
    assert np.abs(rows.T @ rows - whole.T @ whole).max() < 100 * EPS * (whole**2).sum(axis=0).max() * COLUMNS**0.5


@pytest.mark.parametrize("some", [40, 120])
def test_columns_turned_a_few_at_a_time_reach_the_same_rows(band, monkeypatch, some):
    """B'B, what is left of the others, to rounding over what is left of columns that are done with."""
    triangle = np.linalg.qr(band, mode="r")
    own = np.arange(COLUMNS) % 4 == 0
    whole, least, dropped = beyond(triangle, own)
    monkeypatch.setattr(turning, "SOME", some)
    turned = []
    once = turning._turned
    monkeypatch.setattr(turning, "_turned", lambda a, b: turned.append(len(a)) or once(a, b))
    parts, smallest, later = beyond(triangle, own)
    assert len(turned) > 2 and len(parts) == len(whole) and len(parts[0]) == len(whole[0])
    assert np.abs(parts[0].T @ parts[0] - whole[0].T @ whole[0]).max() < 100 * EPS / turning.MUCH * len(triangle)
    assert 0.1 < smallest / least < 10
    assert dropped == later == 0


def test_a_column_that_depends_on_one_of_a_later_piece_takes_nothing_more(monkeypatch):
    """The first column is all but the third, which comes in the next piece: what is left of it is not taken for a
    direction of its own until the third is there to say which."""
    monkeypatch.setattr(turning, "SOME", 2)
    rng = np.random.default_rng(7)
    around = rng.normal(size=(9, 5))
    around[:, 1] = around[:, 0] + 1e-9 * around[:, 3]
    triangle = np.linalg.qr(np.column_stack([around, rng.normal(size=(9, 2))]), mode="r")
    own = np.arange(7) > 4
    parts, _, dropped = beyond(triangle, own)
    assert dropped == 1
    columns = np.column_stack([triangle[:, own] / np.sqrt((triangle[:, own]**2).sum(axis=0)), np.ones(7)])
    basis = np.linalg.qr(triangle[:, [0, 2, 3, 4]])[0]
    left = columns - basis @ (basis.T @ columns)
    assert len(parts[0]) <= 5
    assert np.abs(parts[0].T @ parts[0] - left.T @ left).max() < 1e-12 * 9


@pytest.mark.parametrize("turn", [
    lambda rows: [turning.Block(rows, 0)],
    lambda rows: turning.fewer_rows([turning.Piece(rows, 0)]),
    lambda rows: turning.fewer_rows([turning.Piece(rows, 2), turning.Piece(rows[:0, 2:], 0)]),
], ids=["as they are", "fewer", "fewer, the neighbours first"])
def test_bright_pixels_round_no_dim_ones(turn):
    """Two bright pixels that two neighbours take away, after 30 that are 1e-8 of them and tell all of a bin: it is
    known to rounding of the dim ones, and not of the bright ones, which is 1e-8 of it."""
    rng = np.random.default_rng(8)
    bright, dim = rng.normal(size=(2, 3)) + 2 * np.eye(2, 3), 1e-8 * rng.normal(size=(30, 3))
    left = dim[:, 2] - dim[:, :2] @ np.linalg.solve(bright[:, :2], bright[:, 2])      # but for 1e-16 of it
    rows = np.column_stack([np.vstack([dim, bright]), np.zeros(32)])
    parts, _, _ = turning.rows_beyond(turn(rows), np.array([0, 1]), np.array([2]), norms=np.ones(3))
    assert abs((parts[0][:, 0]**2).sum() / (left**2).sum() - 1) < 100 * EPS * len(rows)


def test_columns_on_too_few_pixels_depend_on_each_other_whatever_rounding_does():
    """Three columns of neighbours on two pixels, of two pieces, and one beside: three can be independent at most."""
    pieces = [turning.Piece(np.array([[1.0, 0.0, 2.0, 5.0], [3.0, 1.0, 0.0, 5.0]]), 1),
              turning.Piece(np.array([[2.0, 1.0, 7.0, 4.0, 5.0]]), 4)]
    around = np.array([True, False, True, True, True])
    assert _most_rows(iter(pieces), around) == 3
    assert _most_rows(iter(pieces[:1]), around[:3]) == 2
    assert _most_rows(iter(pieces[1:]), np.array([True, True, True, False])) == 1
