"""Kernels: what eliminating one fibre takes from another, for all fibres of a piece side by side.

Arrays are flat with the fibre (or a pair of fibres) fastest, so that neighbouring lanes read neighbouring numbers;
element (j, n) of rows of `width` elements is array[(j width + n) lanes + lane]. Lanes of pairs: pair m < F is that of
fibre i = m with the fibre `distance` below it, pair m >= F that of i = m - F with the one above; j is eliminated, i
is what remains. Fibre f belongs to bundle f // size; couplings end with the bundle.

U = G Z G^T, G = A_ij, Z = A_jj^-1, is made in steps of which each has a lane for every number: Z in its band
(sweeps.py), then beyond it column by column, V = G Z, U = V G^T. `depth` says which pairs take part: 0 where j is
eliminated as it stands, n where fibres beyond it are eliminated first, n in all (`chain` fills it). In the same place
`wider` may stand: WIDER where the fibre that remains needs more diagonals than the others (`measure.widen`). Who asks
for 0 asks for all pairs.
"""
# mypy: disallow-untyped-defs=False
import math

from numba import njit

from gpu_extract.device.cuda.kernels import kernel
from gpu_extract.device.cuda.text import text_kernel

STRETCHES = 16      # of a diagonal, of which each has a lane that looks for the largest element


@njit(cache=True)
def stretch_of(part, nwave):
    """Bins first .. last - 1 of a stretch."""
    return nwave * part // STRETCHES, nwave * (part + 1) // STRETCHES


@njit(cache=True)
def other(m, lanes, distance, size):
    """The fibre that is eliminated in pair m, -1 where there is none; lanes: F."""
    i = m % lanes
    j = i - distance if m < lanes else i + distance
    return j if 0 <= j < lanes and j // size == i // size else -1


@njit(cache=True)
def counts(m, lanes, distance, size, sizes, distant):
    """The fibre that is eliminated in pair m, -1 where there is none or its coupling does not count."""
    j = other(m, lanes, distance, size)
    if j >= 0 and distance > 1 and not sizes[distance * lanes + min(j, m % lanes)] > distant:
        return -1
    return j


FOUR = 4      # bins of one lane of transpose, carry and moved_by (text/eliminate.h)

# icov as blocks, fibres fastest
transpose = text_kernel("eliminate.transpose", "f8[1] f8[4] i8 i8 i8 i8", block=64)


@kernel("f8[1] f8[1] f8[4] f8[2] f8[2]")
def vectors(n, sides, roots, icov, weight, x):
    """sides: rows of 1 (0 where a bin has no weight) and x; roots: 1 / sqrt of the diagonal of icov, 0 where that is 0;
    a lane for every bin."""
    lanes, _, width, _ = icov.shape
    f, j = n % lanes, n // lanes
    alive = weight[f, j] > 0.0
    sides[2 * j * lanes + f] = 1.0 if alive else 0.0
    sides[(2 * j + 1) * lanes + f] = x[f, j] if alive else 0.0
    diagonal = icov[f, 0, width // 2, j]
    roots[n] = 1.0 / math.sqrt(diagonal) if diagonal > 0.0 else 0.0


@kernel("f8[1] f8[1] f8[1] i8 i8 i8 i8")
def largest(n, tops, blocks, roots, nwave, hw, lanes, size):
    """tops[d, k, stretch, i]: largest |A_ij| of a stretch of a diagonal, j = i + d, relative to the blocks'
    diagonals."""
    width = 2 * hw + 1
    i, rest = n % lanes, n // lanes
    part, rest = rest % STRETCHES, rest // STRETCHES
    k, d = rest % width - hw, rest // width
    first, last = stretch_of(part, nwave)
    top = 0.0
    if i + d < lanes and (i + d) // size == i // size:
        for j in range(max(first, -k), min(last, nwave - k)):
            value = abs(blocks[((d * nwave + j) * width + hw + k) * lanes + i])
            top = max(top, value * (roots[j * lanes + i] * roots[(j + k) * lanes + i + d]))
    tops[n] = top


@kernel("f8[1] f8[1] i8 i8")
def coupling(n, sizes, tops, hw, lanes):
    """sizes[d, i]: a bound on the row sums of the scaled A_ij, j = i + d."""
    width = 2 * hw + 1
    i, d = n % lanes, n // lanes
    top = 0.0
    for row in range(d * width * STRETCHES, (d + 1) * width * STRETCHES):
        top = max(top, tops[row * lanes + i])
    sizes[n] = width * top


@njit(cache=True)
def share_at(a, side, p, i, nwave, lanes):
    """Where element (p, p + a) of the share from one side lies (`share`)."""
    return ((2 * a + side) * nwave + p) * lanes + i


@kernel("f8[1] f8[1] f8[1] i4[1] i8 i8 i8 i8 i8 i8")
def rest(n, band, blocks, shares, depth, wanted, nwave, hw, half, lanes, size):
    """band: of fibre j of the pairs of a depth, less what the fibre beyond it takes; a lane for every row."""
    m, p = n % (2 * lanes), n // (2 * lanes)
    j = other(m, lanes, 1, size)
    if j < 0 or depth[m] != wanted:
        return
    for a in range(half + 1):
        given = blocks[(p * (2 * hw + 1) + hw + a) * lanes + j] if a <= hw else 0.0
        band[(p * (half + 1) + a) * 2 * lanes + m] = (
            given - shares[share_at(a, m // lanes, p, j, nwave, lanes)])


# elements of the inverse's rows beyond the band, up to `wide`: text/eliminate.h
extend = text_kernel("eliminate.extend", "f8[1] f8[1] i4[1] i8 i8 i8 i8 n", samples=((9,), (5,)), block=64)

# V = G Z and U = V G^T, of all pairs at a distance or those that are WIDER (Z of the fibres as they stand), or of those
# of a depth (Z of what `rest` made): text/eliminate.h
_PAIRS = "f8[1] f8[1] f8[1] f8[1] i4[1] i8 f8 i8 i8 i8 i8 i8"
product = text_kernel("eliminate.product", f"{_PAIRS} i8 n", samples=((9,), (5,)), block=64)
share = text_kernel("eliminate.share", f"{_PAIRS} n", samples=((9,), (5,)), block=64)
OF_PRODUCT, OF_SHARE = (5, 15), (8, 8)      # rows and columns of the blocks that a lane makes


def block_lanes(nwave: int, columns: int, block: tuple[int, int]) -> int:
    """Lanes of `product` or `share` for a pair: blocks over rows of so many columns."""
    return -(-nwave // block[0]) * -(-(columns + block[0] - 1) // block[1])


# G^T x of the same pairs, and U x from what solving for that has left: text/eliminate.h
carry = text_kernel("eliminate.carry", "f8[1] i4[1] f8[1] f8[1] f8[1] i4[1] i8 f8 i8 i8 i8 i8 n", samples=((9,), (5,)),
                    block=64)
moved_by = text_kernel("eliminate.moved_by", "f8[1] f8[1] f8[1] f8[1] f8[1] i4[1] i8 i8 f8 i8 i8 i8 i8 n",
                       samples=((9,), (5,)), block=64)


def fours(nwave: int) -> int:
    """Lanes of these for a fibre or pair."""
    return -(-nwave // FOUR)


WIDER = -1


@njit(cache=True)
def passes(gate, i, wanted):
    """Whether a fibre or pair takes part."""
    return wanted == 0 or gate[i] == wanted
