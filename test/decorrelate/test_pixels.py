"""Patches from pixels: transformations by pieces, or by a few columns, are equivalent to one of everything."""
import numpy as np
import pytest

from gpu_extract.decorrelate.dense import pixels, turning
from gpu_extract.decorrelate.dense.patch_pixels import _most_rows

ROWS, COLUMNS, REACH = 700, 400, 60
EPS = np.finfo(float).eps


def dense(blocks, count, tail=1):
    """(rows, count + tail): the rows of some blocks."""
    out = [np.zeros((len(rows), count + tail)) for rows, _ in blocks]
    for each, (rows, begin) in zip(out, blocks, strict=True):
        each[:, begin:begin + rows.shape[1] - tail], each[:, -tail:] = rows[:, :-tail], rows[:, -tail:]
    return np.vstack(out)


def steps(matrix, tail, height):
    """Rows of a triangle and their tail, a few at a time, as far as they reach."""
    for top in range(0, len(matrix), height):
        rows = matrix[top:top + height]
        reached = (rows != 0.0).any(axis=0).nonzero()[0].max(initial=0) + 1
        first = min(top, reached)
        assert not rows[:, :first].any()
        yield turning.Block(np.column_stack([rows[:, first:reached], tail[top:top + height]]), first)


def beyond(matrix, own):
    """`rows_beyond` of a triangle of the columns that are not `own`, and light of 1 everywhere."""
    whole = np.column_stack([np.linalg.qr(np.column_stack([matrix[:, ~own], matrix[:, own]]), mode="r"),
                             np.ones(matrix.shape[1])])
    tail, norms = int(own.sum()) + 1, np.sqrt((whole**2).sum(axis=0))
    norms[-1] = 1.0
    blocks = list(steps(whole[:, :-tail], whole[:, -tail:], 23))
    return turning.rows_beyond(blocks, norms, tail), whole / norms, norms, tail


@pytest.fixture
def band():
    """(rows, columns): each column on REACH rows, in order; every third nearly depends on the one before."""
    rng = np.random.default_rng(5)
    matrix = np.zeros((ROWS, COLUMNS))
    for n in range(COLUMNS):
        first = n * (ROWS - REACH) // COLUMNS
        matrix[first:first + REACH, n] = rng.normal(size=REACH)
    matrix[:, 2::3] = matrix[:, 1:-1:3][:, :len(matrix[0, 2::3])] + 10.0 ** rng.uniform(-8, -2) * matrix[:, 2::3]
    return matrix


def test_fewer_rows_say_the_same(band):
    """R'R = A'A to rounding, including light, with at most one row more than columns. Columns may end beyond the last
    row, as spots do at the edge of the CCD."""
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

    rows = dense(turning.fewer_rows(pieces(), 1), COLUMNS)
    whole = np.column_stack([band, light])
    assert len(rows) <= COLUMNS + 1
    assert np.abs(rows.T @ rows - whole.T @ whole).max() < 100 * EPS * (whole**2).sum(axis=0).max() * COLUMNS**0.5


@pytest.mark.parametrize("some", [40, 120])
def test_columns_turned_a_few_at_a_time_reach_the_same_rows(band, monkeypatch, some):
    """B'B of the remaining columns agrees to rounding divided by the remainders of the finished columns."""
    own = np.arange(COLUMNS) % 4 == 0
    (whole, least, dropped, _), *_ = beyond(band, own)
    monkeypatch.setattr(turning, "SOME", some)
    turned = []
    once = turning._turned
    monkeypatch.setattr(turning, "_turned", lambda a, b: turned.append(len(a)) or once(a, b))
    (parts, smallest, later, _), *_ = beyond(band, own)
    assert len(turned) > 2 and len(parts) == len(whole) and len(parts[0]) == len(whole[0])
    assert np.abs(parts[0].T @ parts[0] - whole[0].T @ whole[0]).max() < 100 * EPS / turning.MUCH * COLUMNS
    assert 0.1 < smallest / least < 10
    assert dropped == later == 0


@pytest.mark.parametrize("some", [40, turning.SOME])
def test_the_fit_of_the_tail_leaves_what_is_beyond_the_columns(band, monkeypatch, some):
    """The tail less the fit of each column is orthogonal to all of them, and as long as in the rows that they do not
    reach: to rounding divided by the least remainder of a column, 4e-6."""
    monkeypatch.setattr(turning, "SOME", some)
    left, whole, norms, tail = beyond(band, np.arange(COLUMNS) % 4 == 0)
    around, rest = whole[:, :-tail], whole[:, -tail:]
    rest = rest - around @ (left.fit(norms, tail) * norms[:-tail, None] / norms[-tail:])
    bound = 100 * EPS / left.least * COLUMNS
    assert 1e-6 < left.least < 1e-5
    assert np.abs(around.T @ rest).max() < bound
    assert np.abs(rest.T @ rest - left.ways[0].T @ left.ways[0]).max() < bound


def test_a_column_that_depends_on_one_of_a_later_piece_takes_nothing_more(monkeypatch):
    """The first column nearly equals the third, which is in the next piece: its remainder does not count as a direction
    of its own until the third decides."""
    monkeypatch.setattr(turning, "SOME", 2)
    rng = np.random.default_rng(7)
    around = rng.normal(size=(9, 5))
    around[:, 1] = around[:, 0] + 1e-9 * around[:, 3]
    left, whole, *_ = beyond(np.column_stack([around, rng.normal(size=(9, 2))]), np.arange(7) > 4)
    assert left.dropped == 1
    basis = np.linalg.qr(whole[:, [0, 2, 3, 4]])[0]
    rest = whole[:, 5:] - basis @ (basis.T @ whole[:, 5:])
    assert len(left.ways[0]) <= 5
    assert np.abs(left.ways[0].T @ left.ways[0] - rest.T @ rest).max() < 1e-12 * 9


@pytest.mark.parametrize("turn", [
    lambda rows: [turning.Block(rows, 0)],
    lambda rows: turning.fewer_rows([turning.Piece(rows, 0)], 2),
    lambda rows: turning.fewer_rows([turning.Piece(rows, 2), turning.Piece(rows[:0, 2:], 0)], 2),
], ids=["as they are", "fewer", "fewer, the neighbours first"])
def test_bright_pixels_round_no_dim_ones(turn):
    """Two bright pixels, which two neighbours use up, follow 30 pixels of 1e-8 of their brightness, which alone
    determine a bin. The bin is known to the rounding of these dim pixels, not to that of the bright ones, which is 1e-8
    of it."""
    rng = np.random.default_rng(8)
    bright, dim = rng.normal(size=(2, 3)) + 2 * np.eye(2, 3), 1e-8 * rng.normal(size=(30, 3))
    left = dim[:, 2] - dim[:, :2] @ np.linalg.solve(bright[:, :2], bright[:, 2])      # except for 1e-16 of it
    rows = np.column_stack([np.vstack([dim, bright]), np.zeros(32)])
    parts = turning.rows_beyond(list(turn(rows)), np.ones(4), 2).ways
    assert abs((parts[0][:, 0]**2).sum() / (left**2).sum() - 1) < 100 * EPS * len(rows)


@pytest.mark.parametrize("seed", [13, 14, 25])
def test_a_direction_of_which_next_to_nothing_is_left_takes_nothing_elsewhere(seed):
    """Six neighbours on six pixels, one of them nearly the sum of the others, take all of these pixels, whatever
    rounding does. A seventh is on two of these pixels and on two of the eight others that two bins touch.

    p = 1e-11 is left of the sixth column, and eps / p of that is rounding, which the seventh spreads on all pixels that
    it touches. That fraction of the light gets there, or, after the second look, of what the fits leave. Without the
    second look bins are wrong by 2e-6.
    """
    rng = np.random.default_rng(seed)
    rows = np.zeros((14, 10))
    rows[:6, :6], rows[4:8, 6], rows[4:, 7:9], rows[:, 9] = (rng.normal(size=size) for size in ((6, 6), 4, (10, 2), 14))
    rows[:6, 5] = rows[:6, :5].sum(axis=1) + 1e-10 * rows[:6, 5]
    seventh = rows[6:8, 6] / np.linalg.norm(rows[6:8, 6])
    left = rows[6:, 7:].copy()
    left[:2] -= seventh[:, None] * (seventh @ left[:2])
    v, sigma, u = np.linalg.svd(left[:, :2], full_matrices=False)

    def ask(less=None, moved=0.0, way=0):
        whole = rows * (1.0 + moved * (np.random.default_rng(way).integers(0, 2, rows.shape) * 2 - 1))
        tail = whole[:, 7:] if less is None else whole[:, 7:] - whole[:, :7] @ less
        return pixels.Patch(turning.fewer_rows([turning.Piece(np.column_stack([whole[:, :7], tail]), 7)], 3),
                            np.array([0, 1]), 2, lambda: 7)

    made = pixels.decorrelate(ask)
    least = turning.rows_beyond(ask().blocks, np.sqrt((rows**2).sum(axis=0)), 3).least
    bound = 100 * (EPS / least) ** 2 * np.linalg.norm(rows[:, 9])
    assert 5e-12 < least < 1e-10
    assert np.abs(made.product - u.T @ (v.T @ left[:, 2])).max() < bound
    assert np.abs(made.root - u.T @ np.diag(sigma) @ u).max() < bound
    assert not made.weak.any()


@pytest.mark.parametrize("own", [0.0, 1e-17])
def test_a_column_with_a_dim_pixel_of_its_own_may_take_it(own):
    """Two neighbours on one bright pixel; one also has `own` of its length on a dim one, which a bin shares with it.

    In exact arithmetic this neighbour takes the dim pixel and half of the bin's ivar, however little it has there. No
    spot is known so well, hence the flag. Without `own` one neighbour depends on the other, and the bin is known.
    """
    rows = np.array([[1.0, 1.0, 0.0, 3.0], [0.0, own, 1e-8, 5e-8], [0.0, 0.0, 1e-8, 5e-8]])

    def ask(less=None, moved=0.0, way=0):
        whole = rows * (1.0 + moved * (np.random.default_rng(way).integers(0, 2, rows.shape) * 2 - 1))
        tail = whole[:, 2:] if less is None else whole[:, 2:] - whole[:, :2] @ less
        pieces = [turning.Piece(np.column_stack([whole[:, :2], tail]), 2)]
        return pixels.Patch(turning.fewer_rows(pieces, 2), np.array([0]), 1, lambda: _most_rows(iter(pieces), 2))

    made = pixels.decorrelate(ask)
    assert made.weak.tolist() == [own > 0.0]
    assert abs(made.sums[0] ** 2 / 2e-16 - 1) < 10 * EPS


def test_columns_on_too_few_pixels_depend_on_each_other_whatever_rounding_does():
    """Three columns of neighbours lie on two pixels, of two pieces, and one beside them: at most three can be
    independent."""
    pieces = [turning.Piece(np.array([[1.0, 2.0, 0.0, 5.0], [3.0, 0.0, 1.0, 5.0]]), 1),
              turning.Piece(np.array([[2.0, 7.0, 4.0, 1.0, 5.0]]), 3)]
    assert _most_rows(iter(pieces), 2) == 3
    assert _most_rows(iter(pieces[:1]), 2) == 2
    assert _most_rows(iter(pieces[1:]), 2) == 1
