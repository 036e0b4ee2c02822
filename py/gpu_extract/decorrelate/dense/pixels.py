"""A patch from its pixels: how the dense core decorrelates where the normal equations are too close to singular.

icov holds the squares of the pixels' information. It loses a direction with information h below 1e-13, with icov's
diagonal scaled to 1, together with its contribution to other fibres. The whitened spots themselves, W^1/2 A, hold
it down to h = 1e-24. Only orthogonal transformations are used:

    W^1/2 (A_around, A_i, p) -> rows that A_around does not reach, (B, d) -> R_i with R_i' R_i = B' B = S_i = C_ii^-1.

A column of A_around that depends on others reaches no further row: pivoting leaves it out. With R_i = V sigma U' the
rest is as from a Cholesky factor: Q_i = U V' R_i, Q_i x_i = U V' d. Directions with sigma = 0 do not contribute.
"""
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from gpu_extract.data import Array, IntArray
from gpu_extract.decorrelate.dense.turning import NONE, SURE, Block, rows_beyond
from gpu_extract.decorrelate.weak import UNKNOWN
from gpu_extract.lapack import lapack

MOVED = 1e-4, 1e-3    # limits on the change of the flux, in sigma, and on the relative change of ivar
ROUNDING = 100 * float(np.finfo(float).eps)      # of spots, and of the computation with them
BY_ROUNDING = 1e-7, 1e-5     # the same for one random change by rounding, from which on further ones are tried,
BY_LITTLE = 1e-4, 1e-4       # and for any of these: a tenth of 1e-3
WAYS = 3         # random changes that are tried then
NEXT = 2         # what moves a bin may also move bins up to this distance,
WHOLE = 1e5      # except bins whose C_jj icov_jj is no larger than that of whole ones (doc/method.md, "Weak bins")
ALMOST = 0.1     # of UNKNOWN: beside a weak bin C_jj icov_jj may be ten times too small, as directions count as NONE
TOUCHED = 1e-12  # of a lost direction in a bin: at least 1e6, ten times WHOLE, is its C_jj icov_jj then,
STABLE = 0.1     # if rounding of the spots changes it by less than this share: a touch by rounding would be another
CLEAR = 1e-6     # a column with a larger remainder is known to more digits than needed
GRADED = 1e4     # ratio of columns' lengths from which on Jacobi rotations are used: below, errors are 1e-11 of each


class Patch(NamedTuple):
    """The pixels of a patch, those with ivar that its spots touch, as an equivalent set of fewer rows.

    blocks: whitened spots, in order of their rows, and the pixels' light less that of all other bins
    own: (tail - 1,) the bins of the requested fibre that belong to the tail's columns, ascending; size: number of bins
    most: the largest number of columns of other fibres that can be independent, whatever their values on their pixels
    """

    blocks: list[Block]
    own: IntArray
    size: int
    most: Callable[[], int]


class Rooted(NamedTuple):
    """The result for one fibre's bins: Q (n, n), its row sums (n,), Q x (n,), C_jj icov_jj (n,), how far directions
    without information touch them (n,), and whether they are weak, (n,) bool.

    If icov was sufficient, the last three are 0: no bin is weak.
    """

    root: Array
    sums: Array
    product: Array
    raised: Array
    touched: Array
    weak: np.ndarray


class Around(NamedTuple):
    """The outcome for the columns around, scaled to length 1.

    least: least remainder of a column that reaches a row; reaching: number of these; all_left: whether these are all
    most: how many can be independent, see Patch
    """

    least: float
    reaching: int
    all_left: bool
    most: Callable[[], int]

    def certain(self) -> bool:
        """Whether rounding does not decide which columns reach rows."""
        return self.all_left or self.reaching == self.most()


def decorrelate(ask: Callable[..., Patch]) -> Rooted:
    """Q, Q 1 and Q x of a patch's own fibre, 0 for bins without light.

    ask: ask() is the patch. ask(moved=by, way=n) is the patch with all spots changed by this fraction of themselves in
    the n-th way. ask(less=by) is the patch with multiples (columns, tail) of other fibres' columns subtracted from the
    tail

    A column of A_around with a remainder below SURE of its length may reach a row or may be rounding of the spots; one
    below NONE, if pixels are enough for it to be independent of the others. Bins that this choice moves by more than
    MOVED are weak. If a remainder is below CLEAR, or the fibre's own bins are distinguished by less, the spots are also
    changed by their possible rounding: bins that this moves too far are weak (`_by_rounding`). Beside any weak bin,
    bins are weak if their `raised` is above ALMOST times the limit.
    """
    made, around = _made(ask, every=True)
    weak = np.any([made[0].weak, *(moved(made[0], other, *MOVED) for other in made[1:])], axis=0)
    if min(around.least, made[0].raised.max(initial=1.0) ** -0.5) < CLEAR:
        weak |= _by_rounding(ask, made[0]._replace(weak=weak), around) & (made[0].sums != 0.0)
    weak |= _near(weak) & (made[0].raised > ALMOST * UNKNOWN) & (made[0].sums != 0.0)
    return made[0]._replace(weak=weak)


def _near(bins: np.ndarray) -> np.ndarray:
    """(n,) bool: which bins are among `bins`, or within NEXT of one."""
    return np.convolve(bins, np.ones(2 * NEXT + 1))[NEXT:NEXT + len(bins)] > 0


def _by_rounding(ask: Callable[..., Patch], made: Rooted, around: Around) -> np.ndarray:
    """Bins that are weak because rounding may move them too far: (n,) bool.

    around: the outcome for the columns around, without any change

    More than SURE is left of each column around that reaches a row, and rounding changes what it takes away by less
    than a fiftieth. If all columns reach a row, or if there are too few pixels for the others to be independent, bins
    move in proportion to rounding, and a few ways show how far. Further ways are tried if the first one leaves open
    whether bins are weak that are not weak otherwise.

    Otherwise rounding decides what the other columns take away, which the test hides while these reach no row. All ways
    are then tried, each also with as many columns as can be independent, which take another direction away each time.
    No second look is taken (`_made`), because it would hide the effect of rounding.

    A bin is weak if one of the ways moves it by BY_LITTLE. A bin beside such a bin is weak if it moves by BY_ROUNDING
    and its `raised` is above WHOLE. A bin is weak as well if a direction without information touches it alike however
    the spots are rounded: its C_jj icov_jj, in which the direction counts as NONE, may be of any size.
    """
    certain, hardly = around.certain(), made.raised > WHOLE
    doubtful = far = np.zeros(len(made.sums), dtype=bool)
    lost = made.touched > TOUCHED
    for n in range(WAYS):
        ways, _ = _made(partial(ask, moved=ROUNDING, way=n), again=certain, every=not certain)
        doubtful = doubtful | moved(made, ways[0], *BY_ROUNDING)
        lost &= np.abs(ways[0].touched - made.touched) < STABLE * made.touched
        far = np.any([far, *(moved(made, one, *BY_LITTLE) for one in ways)], axis=0)
        if certain and not ((doubtful | (_near(far) & hardly)) & ~far & ~made.weak).any():
            break
    return far | (_near(far) & hardly & doubtful) | lost


def quickly(ask: Callable[..., Patch]) -> Rooted:
    """The result for a patch without the search for weak bins."""
    return _made(ask)[0][0]


def _made(ask: Callable[..., Patch], *, again: bool = True, every: bool = False) -> tuple[list[Rooted], Around]:
    """The results for a patch, one for each way in which `rows_beyond` takes columns around, and the outcome for these.

    every: whether as many columns as can be independent are one of the ways (`rows_beyond`)
    again: whether to take a second look. Where little is left of a column around, rounding turns the direction it
    takes away. The tail is then replaced by what those columns leave of it, pixel by pixel (`Left.fit`). Next to
    nothing of it is left in such directions, and none of that gets elsewhere.
    """
    patch = ask()
    tail = len(patch.own) + 1
    norms = np.zeros(patch.blocks[-1].begin + patch.blocks[-1].rows.shape[1])
    for rows, begin in patch.blocks:
        squares = (rows**2).sum(axis=0)
        norms[begin:begin + len(squares) - tail] += squares[:-tail]
        norms[-tail:] += squares[-tail:]
    np.sqrt(norms, out=norms)
    norms[-1] = 1.0
    most = patch.most if every else None
    left = rows_beyond(patch.blocks, norms, tail, most)
    if again and left.least < CLEAR:
        left = rows_beyond(ask(less=left.fit(norms, tail)).blocks, norms, tail, most)
    mine, reaching = np.flatnonzero(norms[-tail:-1]), int(np.count_nonzero(norms[:-tail])) - left.dropped
    return ([_spread(_rooted(rows[:, [*mine, -1]], norms[-tail:][mine]), patch.own[mine], patch.size)
             for rows in left.ways], Around(left.least, reaching, left.dropped == 0, patch.most))


def _spread(made: Rooted, bins: IntArray, size: int) -> Rooted:
    """The same for all bins of a patch, of which only `bins` have light."""
    sums, product, raised, touched = np.zeros((4, size))
    out = Rooted(np.zeros((size, size)), sums, product, raised, touched, np.zeros(size, dtype=bool))
    out.root[np.ix_(bins, bins)] = made.root
    for whole, part in zip(out[1:], made[1:], strict=True):
        whole[bins] = part
    return out


def _rooted(rows: Array, norms: Array) -> Rooted:
    """The result from the remainders of the fibre's columns, scaled to length 1 by `norms`, and of the light."""
    n = len(norms)
    triangle = np.linalg.qr(rows, mode="r") if rows.size else rows
    triangle = np.vstack([triangle, np.zeros((max(n - len(triangle), 0), n + 1))])
    scaled = triangle[:n, :n]
    known = scaled * norms
    v, sigma, u = singular(known)
    length = np.sqrt((u**2) @ (known**2).sum(axis=0))     # of a direction, if its bins were independent
    sigma[sigma <= SURE * length] = 0.0                   # rounding of its bins' columns
    product = v.T @ triangle[:n, n]
    raised, touched = _raised(scaled)
    return Rooted(*root_of(sigma, u, np.where(sigma > 0.0, product, 0.0)), raised, touched, raised > UNKNOWN)


def moved(one: Rooted, other: Rooted, flux: float, ivar: float) -> np.ndarray:
    """Bins whose flux differs by more than `flux` sigma, or ivar by more than `ivar` of itself."""
    sigma = one.product * other.sums - other.product * one.sums      # times the other's sum
    return ~((np.abs(sigma) <= flux * np.abs(other.sums))
             & (2 * np.abs(one.sums - other.sums) <= ivar * np.abs(one.sums)))


def singular(matrix: Array) -> tuple[Array, Array, Array]:
    """V, sigma and U' with M = V sigma U', M square: each bin's row of U to rounding, however small its column.

    The quick routine leaves rounding errors of the largest column in the rows of all bins. Relative to a bin with 1e-14
    of the information of others they are 1e7 times larger. Jacobi rotations do not depend on the scale of columns.
    """
    length = np.sqrt((matrix**2).sum(axis=0))
    if length.max(initial=0.0) < GRADED * length.min(initial=np.inf):
        v, sigma, u, info = lapack.dgesdd(matrix)
    else:
        unit = 2.0 ** np.frexp(length.max())[1]      # the routine's own scale is not a power of two
        sigma, v, u, work, _, info = lapack.dgejsv(matrix / unit, joba=0, jobu=0, jobv=0)
        sigma, u = sigma * (work[0] / work[1]) * unit, u.T
    if info != 0:
        raise np.linalg.LinAlgError("singular values of a patch did not converge")
    return v, sigma, u


def root_of(sigma: Array, u: Array, product: Array) -> tuple[Array, Array, Array]:
    """Q = U sigma U', its row sums, and Q x from V' M x, for M = V sigma U' (`singular`).

    U V' M would be Q as well, but its elements for weak bins would be sums of rounding errors.
    """
    spread: Array = u.T * sigma
    return spread @ u, spread @ u.sum(axis=1), u.T @ product


def _raised(scaled: Array) -> tuple[Array, Array]:
    """C_jj icov_jj of bins, infinite if it cannot be known, and how much of each is in directions of less than NONE;
    scaled: R_i with its columns of A scaled to length 1.

    A direction that is all rounding counts as NONE, so that bins are found that it touches by 1e-10. Rows are rounded
    by 1e-13 at most, and the direction's elements by that times the root of a bin's sum over other directions. So
    rounding raises a bin by at most (1e-13 / NONE)^2 = 1e4 times that sum: no more than UNKNOWN for whole bins (WHOLE).
    """
    _, sigma, u, info = lapack.dgesdd(scaled)
    if info != 0:
        return np.full(scaled.shape[1], np.inf), np.ones(scaled.shape[1])
    return (1.0 / np.maximum(sigma, NONE) ** 2) @ u**2, np.sqrt((sigma < NONE) @ u**2)
