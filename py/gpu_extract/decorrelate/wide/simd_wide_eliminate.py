"""CPU kernels of the wide band: the elimination of the neighbours of one fibre; and, on a short stretch of bins, the
contribution of each of them to its C = S^-1.

Unknowns of the neighbours are ordered by bins, then fibres, which makes their normal equations A_NN a band matrix. Its
Cholesky factor L is made by columns of tiles (vectors.tiles), and below it, as further rows, X = A_iN L'^-1 for the
fibre i itself: S_i = A_ii - X X'. A row of tiles of L is dropped once it is as far back as the band is wide, and one of
X once it has been followed as far as S_i is needed. Everything in use stays in the second-level cache.
"""
# mypy: disallow-untyped-defs=False
import numpy as np

from gpu_extract.arrays import Array, IntArray
from gpu_extract.kernels.arena import Arena
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import address, integer, number, write
from gpu_extract.vectors.tiles import AT_ONCE, CORNER, EDGE, LANES, SOLVE, SUBTRACT, TILE, multiply

BY_FIBRES, BY_BINS = 0, 1      # the slowest index in the order of unknowns
COLUMN = 8 * EDGE              # bytes of a tile's column
NONE = (0, 0, 0)
GROUP = 4                      # columns of tiles whose products are subtracted from S together


@njit(cache=True)
def tiles_back(wide):
    """How many tiles, beside the diagonal one, a half-band of `wide` columns covers."""
    return (wide + EDGE - 1) // EDGE


@njit(cache=True)
def _start(column):
    """The column at which a sum may start if its terms before `column` are 0."""
    return max(column, 0) // AT_ONCE * AT_ONCE


@njit(cache=True)
def fill(low, tiles, icov, others, column, stretch):
    """A_NN's lower triangle in one column of tiles; bins of weight 0 and beyond the end get 1 on the diagonal.

    stretch: first bin, number of bins, and the slowest index in the order of unknowns
    """
    nd, nwave, width = icov.shape[1:]
    n, hw, rows = len(others), width // 2, len(tiles)
    zero, size, order = stretch
    steps = (1, size) if order == BY_FIBRES else (n, 1)
    given, into = address(icov, 0), address(tiles, 0)
    for k in range(rows):
        p = column + k
        first = ((p % rows) * rows + rows - 1 - k) * TILE
        low[first:first + TILE] = 0.0
        tiles[k] = address(low, first) - 8 * k * EDGE
    for t in range(EDGE):
        u = column * EDGE + t
        q, own = (u % size, u // size) if order == BY_FIBRES else (u // n, u % n)
        for m in range(own if order == BY_FIBRES else 0, n if q < size else 0):
            d = others[m] - others[own]
            if abs(d) >= nd:
                continue
            start = q if m >= own else q + 1
            start = max(q - hw, 0) if order == BY_FIBRES and m > own else start
            line = (min(others[m], others[own]) * nd + abs(d)) * nwave + zero
            source = (line + q) * width + hw + start - q if d > 0 else (line + start) * width + hw + q - start
            source = given + 8 * source
            stride = 8 if d > 0 else 8 * (width - 1)
            row = start * steps[0] + m * steps[1] - column * EDGE
            for _ in range(start, min(q + hw + 1, size)):
                write(integer(into + 8 * (row // EDGE)) + 8 * (t * EDGE + row), number(source))
                row += steps[0]
                source += stride
        place = ((column % rows) * rows + rows - 1) * TILE + t * (EDGE + 1)
        if low[place] == 0.0:
            low[place] = 1.0


@njit(cache=True)
def _fill_own(x, icov, pair, place, line):
    """A_iN in a tile of X from element `place` on; pair: (fibre i, its neighbours); line: the tile's row and column."""
    fibre, others = pair
    nd, nwave, width = icov.shape[1:]
    n, hw, top = len(others), width // 2, line[0] * EDGE
    x[place:place + TILE] = 0.0
    if line[1] * EDGE // n - hw >= top + EDGE:
        return
    given, into = address(icov, 0), address(x, place)
    for t in range(EDGE):
        b = (line[1] * EDGE + t) // n
        other = others[line[1] * EDGE + t - b * n]
        d = other - fibre
        if abs(d) >= nd or b >= nwave:
            continue
        start = max(top, b - hw)
        line_of = (min(fibre, other) * nd + abs(d)) * nwave
        source = (line_of + start) * width + hw + b - start if d > 0 else (line_of + b) * width + hw + start - b
        source = given + 8 * source
        stride = 8 * (width - 1) if d > 0 else 8
        for q in range(start - top, min(EDGE, b + hw + 1 - top, nwave - top)):
            write(into + 8 * (t * EDGE + q), number(source))
            source += stride


@njit(cache=True)
def _factor_corner(corner, place):
    """The Cholesky factor (see tiles.CORNER) of the 8 x 8 elements from `place` on; False if they are not definite.

    corner, place: addresses
    """
    for j in range(LANES):
        column = corner + 8 * (LANES + j * LANES)
        for r in range(j, LANES):
            total = number(place + j * COLUMN + 8 * r)
            for m in range(j):
                before = corner + 8 * (LANES + m * LANES)
                total -= number(before + 8 * r) * number(before + 8 * j)
            if r == j:
                if not total > 0.0:
                    return False
                write(corner + 8 * j, 1.0 / np.sqrt(total))
            write(column + 8 * r, total * number(corner + 8 * j))
    return True


@njit(cache=True)
def factor(low, corners, column, wide):
    """One column of tiles of L; False if the matrix is not definite."""
    back, top = tiles_back(wide), column * EDGE
    own = address(low, 0) + ((column % (back + 1)) * (back + 1) + back - column) * 8 * TILE    # of the row's column 0
    for g in range(0, EDGE, LANES):
        corner, start = address(corners, g // LANES * CORNER), _start(top + g - wide)
        place, known = own + (top + g) * COLUMN, own + start * COLUMN
        multiply(place, (known, known + 8 * g, top + g - start), NONE, corner, SUBTRACT)
        if not _factor_corner(corner, place + 8 * g):
            return False
        multiply(place, NONE, NONE, corner, SOLVE)
    for p in range(column + 1, column + back + 1):
        row = address(low, 0) + ((p % (back + 1)) * (back + 1) + back - p) * 8 * TILE
        for g in range(0, EDGE, LANES):
            start = min(_start(max(p * EDGE, top + g) - wide), top + g)
            run = row + start * COLUMN, own + start * COLUMN + 8 * g, top + g - start
            multiply(row + (top + g) * COLUMN, run, NONE, address(corners, g // LANES * CORNER), SOLVE)
    return True


@njit(cache=True)
def follow(x, low, corners, places, wide):
    """One tile of X, which holds its elements of A_iN.

    x: the row's tiles, column k at place k mod their number; places: (column of tiles, the row's first column)
    """
    back, ring, top = tiles_back(wide), len(x) // EDGE, places[0] * EDGE
    own = address(low, 0) + ((places[0] % (back + 1)) * (back + 1) + back - places[0]) * 8 * TILE
    row = address(x, 0)
    for g in range(0, EDGE, LANES):
        start = min(_start(max(top + g - wide, places[1])), top + g)
        turn = (top + g) // ring * ring               # the last column at the ring's first place
        begin, known = max(start, turn), own + 8 * g
        multiply(row + (top + g - turn) * COLUMN,
                 (row + (start % ring) * COLUMN, known + start * COLUMN, max(turn - start, 0)),
                 (row + (begin - turn) * COLUMN, known + begin * COLUMN, top + g - begin),
                 address(corners, g // LANES * CORNER), SOLVE)


@njit(cache=True)
def _subtract(gram, xs, pair, columns):
    """A tile of gram -= the product of two rows of X over columns columns[0] .. columns[1] - 1."""
    ring = xs.shape[1] // EDGE
    start, stop = columns[0] % ring, columns[0] % ring + columns[1] - columns[0]
    left, right = address(xs, pair[0] * ring * EDGE), address(xs, pair[1] * ring * EDGE)
    for g in range(0, EDGE, LANES):
        known = right + 8 * g
        multiply(address(gram, g * EDGE), (left + start * COLUMN, known + start * COLUMN, min(stop, ring) - start),
                 (left, known, max(stop - ring, 0)), left, SUBTRACT)


@njit(cache=True)
def _add_up(band, gram, first):
    """Add a tile of gram, whose first row and column are bins `first`, to the band, and clear it."""
    nwave, wide = band.shape
    for t in range(min(EDGE, nwave - first[1])):
        q = first[1] + t
        for p in range(max(first[0], q), min(first[0] + EDGE, nwave, q + wide)):
            band[q, p - q] += gram[t * EDGE + p - first[0]]
    gram[:] = 0.0


@njit(cache=True)
def _add_squares(left, x, last, back):
    """Add to `left` of each row its squares in the last `back` of a row of tiles, up to column `last`."""
    ring = len(x) // EDGE
    for column in range(max(last + 1 - back, 0) * EDGE, (last + 1) * EDGE):
        place = column % ring * EDGE
        for q in range(len(left)):
            left[q] += x[place + q] * x[place + q]


@njit(cache=True)
def _eliminate(band, left, icov, pair, reach, works):
    """See `eliminate`; works: L, X, the products of rows of X, and the addresses of tiles of L."""
    others = pair[1]
    low, xs, gram, tiles = works
    nwave, hw, n = icov.shape[2], icov.shape[3] // 2, len(others)
    active, wide, lines = len(xs), (hw + 1) * n - 1, -(-nwave // EDGE)
    corners = np.zeros((EDGE // LANES, CORNER))
    count = -(-nwave * n // EDGE)
    firsts, lasts = np.empty(lines, dtype=np.int64), np.empty(lines, dtype=np.int64)
    for r in range(lines):
        firsts[r] = max(r * EDGE - hw, 0) * n
        lasts[r] = min(((r + 1) * EDGE + reach) * n // EDGE, count - 1)
    oldest, newest = 0, 0
    for c in range(count):
        fill(low, tiles, icov, others, c, (0, nwave, BY_BINS))
        if not factor(low, corners, c, wide):
            return False
        while newest < lines and firsts[newest] < (c + 1) * EDGE:
            newest += 1
        for r in range(oldest, newest):
            if lasts[r] >= c:
                row = xs[r % active]
                _fill_own(row, icov, pair, ((c * EDGE) % (len(row) // EDGE)) * EDGE, (r, c))
                follow(row, low, corners, (c, firsts[r]), wide)
        if (c + 1) % GROUP and c + 1 < count:
            continue
        begun = c // GROUP * GROUP * EDGE
        for a in range(oldest, newest):
            for b in range(oldest, a + 1):
                start, stop = max(_start(firsts[a]), begun), (min(lasts[b], c) + 1) * EDGE
                if start < stop:
                    _subtract(gram[a % active, b % active], xs, (a % active, b % active), (start, stop))
        while oldest < lines and lasts[oldest] <= c:
            for a in range(oldest, newest):
                _add_up(band, gram[a % active, oldest % active], (a * EDGE, oldest * EDGE))
            if lasts[oldest] < count - 1:
                _add_squares(left[oldest * EDGE:(oldest + 1) * EDGE], xs[oldest % active], lasts[oldest],
                             tiles_back(wide))
            oldest += 1
    return True


def eliminate(band: Array, icov: Array, fibre: int, others: IntArray, reach: int) -> Array | None:
    """Subtract A_iN A_NN^-1 A_Ni of the fibres N = `others` around fibre i = `fibre` from the band; None if A_NN is not
    definite.

    band: (nwave, half + 1), rows of the upper triangle; a row of A_iN L'^-1 is followed for `reach` bins
    Returns (nwave,) the sum of squares of each row's last elements, within a half-band of A_NN: the elements that
    follow depend on them alone. 0 if none follow.
    """
    hw, n = icov.shape[3] // 2, len(others)
    back = tiles_back((hw + 1) * n - 1)
    active = (reach + hw + -(-GROUP * EDGE // n)) // EDGE + 3     # rows of X between two additions to S
    zeros = Arena().zeros
    works = (zeros((back + 1)**2 * TILE), zeros(active, (back + GROUP) * TILE), zeros(active, active, TILE),
             np.empty(back + 1, dtype=np.int64))
    left = np.zeros(len(band))
    return left if _eliminate(band, left, icov, (fibre, others), reach, works) else None


@njit(cache=True)
def _shares(x, icov, fibres, stretch, works):
    """See `shares`; x: (rows of tiles, 24 columns); works: L, the addresses of its tiles, and its band."""
    low, tiles, wide = works
    own, hw = fibres[0], icov.shape[3] // 2
    corners = np.zeros((EDGE // LANES, CORNER))
    for c in range(x.shape[1] // TILE):
        fill(low, tiles, icov, fibres, c, (stretch[0], stretch[1], BY_FIBRES))
        if not factor(low, corners, c, wide):
            return False
        for r in range(min(len(x), c + 1)):
            row = x[r]
            row[c * TILE:(c + 1) * TILE] = 0.0
            if r == c:
                for t in range(min(EDGE, stretch[1] - r * EDGE)):
                    if icov[own, 0, stretch[0] + r * EDGE + t, hw] > 0.0:
                        row[c * TILE + t * (EDGE + 1)] = 1.0
            follow(row, low, corners, (c, r * EDGE), wide)
    return True


def shares(icov: Array, fibres: IntArray, stretch: tuple[int, int]) -> Array | None:
    """(bins of the stretch, all unknowns): rows of L'^-1 for the first of `fibres`; None if icov is not definite.

    L L' is icov of the fibres, one after the other, on a stretch of bins (first, number). Rows of bins without weight
    are 0.
    """
    size, count = stretch[1], -(-len(fibres) * stretch[1] // EDGE)
    apart = np.abs(np.subtract.outer(fibres, fibres)) < icov.shape[1]
    places = np.arange(len(fibres))
    wide = int(np.abs(np.subtract.outer(places, places))[apart].max() + 1) * size - 1
    back = tiles_back(wide)
    arena = Arena()
    x = arena.zeros(-(-size // EDGE), count * TILE)
    works = arena.zeros((back + 1)**2 * TILE), np.empty(back + 1, dtype=np.int64), wide
    if not _shares(x, icov, fibres, stretch, works):
        return None
    rows = x.reshape(len(x), count * EDGE, EDGE).transpose(0, 2, 1).reshape(len(x) * EDGE, count * EDGE)
    return np.ascontiguousarray(rows[:size, :len(fibres) * size])
