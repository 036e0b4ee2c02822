"""Patches from pixels: what is turned a piece, or a few columns, at a time says the same as all of it at once."""
import numpy as np
import pytest

from gpu_extract.decorrelate.dense import pixels

ROWS, COLUMNS, REACH = 700, 400, 60
EPS = np.finfo(float).eps


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
            yield pixels.Piece(block, done - begin)
            begin = done

    rows = pixels.fewer_rows(pieces(), COLUMNS)
    whole = np.column_stack([band, light])
    assert len(rows) <= COLUMNS + 1
    assert np.abs(rows.T @ rows - whole.T @ whole).max() < 100 * EPS * (whole**2).sum(axis=0).max() * COLUMNS**0.5


@pytest.mark.parametrize("some", [40, 120])
def test_columns_turned_a_few_at_a_time_reach_the_same_rows(band, monkeypatch, some):
    """B'B, what is left of the others, to rounding over what is left of columns that are done with."""
    triangle = np.linalg.qr(band, mode="r")
    own = np.arange(COLUMNS) % 4 == 0
    around, columns = triangle[:, ~own], triangle[:, own]
    whole, least = pixels._beyond(around, columns)
    monkeypatch.setattr(pixels, "SOME", some)
    turned = []
    once = pixels._turned
    monkeypatch.setattr(pixels, "_turned", lambda a, b: turned.append(a.shape[1]) or once(a, b))
    parts, smallest = pixels._beyond(around, columns)
    assert len(turned) > 2 and len(parts) == len(whole) and len(parts[0]) == len(whole[0])
    scale = (columns**2).sum(axis=0).max()
    assert np.abs(parts[0].T @ parts[0] - whole[0].T @ whole[0]).max() < 100 * EPS / pixels.MUCH * scale
    assert 0.1 < smallest / least < 10


def test_a_column_that_depends_on_one_of_a_later_piece_takes_nothing_more(monkeypatch):
    """The first column is all but the third, which comes in the next piece: what is left of it is not taken for a
    direction of its own until the third is there to say which."""
    monkeypatch.setattr(pixels, "SOME", 2)
    rng = np.random.default_rng(7)
    around = rng.normal(size=(9, 5))
    around[:, 1] = around[:, 0] + 1e-9 * around[:, 3]
    columns = rng.normal(size=(9, 2))
    parts, _ = pixels._beyond(around, columns)
    basis = np.linalg.qr(np.column_stack([around[:, [0, 2, 3, 4]]]))[0]
    left = columns - basis @ (basis.T @ columns)
    assert len(parts[0]) <= 5
    assert np.abs(parts[0].T @ parts[0] - left.T @ left).max() < 1e-12 * 9
