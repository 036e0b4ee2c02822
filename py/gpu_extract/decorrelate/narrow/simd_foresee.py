"""CPU kernel: the change of a fibre's flux by its narrow band, predicted before the poles are summed.

All sums over a row of S need its elements on both sides of the diagonal. Stretches of bins are transposed first, which
makes each diagonal contiguous. Eight bins are then a vector, and the elements on the left of their diagonals are those
on the right of the diagonals of earlier bins.
"""
# mypy: disallow-untyped-defs=False
import numpy as np

from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import (address, vabs, vadd, vdiv, vfma, vfold, vless, vmax, vmul, vread8, vset8, vsub,
                                      vsum, vwrite)
from gpu_extract.vectors.transpose import LANES, padded, turn

STRETCH = 128      # bins that are transposed at a time: both bands' diagonals stay in the nearest cache
LEAST = 4e-4       # of the sum of a row of S: its smallest eigenvalue is taken to be at least that


@njit()
def _rows(s, u, step, x, half):
    """Rows of S of eight bins: their sums, their sums with alternating signs, and S x; and U x.

    s, u, x: addresses of the first one's diagonal elements and x; step: bytes from one diagonal to the next
    """
    near = vread8(x)
    total = alternating = vread8(s)
    product, moved = vmul(total, near), vmul(vread8(u), near)
    for a in range(1, half + 1):
        s, u = s + step, u + step
        after, before = vread8(s), vread8(s - 8 * a)
        pair, right, left = vadd(after, before), vread8(x + 8 * a), vread8(x - 8 * a)
        total, alternating = vadd(total, pair), vsub(pair, alternating)
        product = vfma(before, left, vfma(after, right, product))
        moved = vfma(vread8(u - 8 * a), left, vfma(vread8(u), right, moved))
    return total, vmul(alternating, vset8(1.0 - 2.0 * (half % 2))), product, moved


@njit()
def _largest(a):
    """The largest of eight lanes."""
    lanes = np.empty(LANES)
    vwrite(address(lanes, 0), a)
    return lanes.max()


@njit(cache=True)
def foresee(sums, diagonal, rest, found, band, taken, x, roots, near):
    """The change of a fibre's flux by its band, and the size of the last elements in the band.

    diagonal: (nwave,), filled with that of S; rest: (nwave,), LANES zeros follow: -U x, becomes E x with E = S - band.
        Elements that follow both, up to whole vectors, may change
    found: (shifts, edges), (nwave or more) each, filled. shifts: (E x)^2 / q^2 of every bin, four times the square of
        the change of the flux in sigma; q^2 is the sum of a row of S with alternating signs, which estimates its
        smallest eigenvalue. edges: the larger |U| of the last diagonals on both sides of a bin, in units of the
        diagonals of icov
    band, taken: (nwave, half + 1), of S and U, after `padded(half)` rows of zeros and before LANES rows of zeros
    x: (nwave,), roots: 1 / sqrt of icov's diagonal, from bin 0 on; both between half + LANES zeros
    sums: (6,), filled with the largest of `shifts`; 1'S1, 1'Sx and x'Sx over the bins that have weight; the largest
        of the edges, of all bins and of those that are near
    near: first and end of the bins that are near; up to seven bins beside them may count as well
    """
    (nwave, count), (shifts, edges) = band.shape, found
    before, row = padded(count - 1), 8 * count
    step = 8 * (before + STRETCH)
    scratch = np.empty(2 * count * (before + STRETCH) + LANES)
    s = (address(scratch, 0) + 63) // 64 * 64      # a vector that straddles two cache lines costs twice
    u = s + count * step
    zero = vset8(0.0)
    top = edge = edge_near = ones = cross = both = zero
    for first in range(0, nwave, STRETCH):
        rows = min(STRETCH, padded(nwave - first))
        turn(s, step, address(band, (first - before) * count), row, before + rows, count)
        turn(u, step, address(taken, (first - before) * count), row, before + rows, count)
        for n in range(0, rows, LANES):
            here, j = 8 * (before + n), 8 * (first + n)
            place, left, root = address(x, 0) + j, address(rest, 0) + j, address(roots, 0) + j
            total, alternating, product, moved = _rows(s + here, u + here, step, place, count - 1)
            moved, size = vadd(vread8(left), moved), vabs(total)
            vwrite(left, moved)
            vwrite(address(diagonal, 0) + j, vread8(s + here))
            least = vmax(alternating, vmul(vset8(LEAST), size))
            shift = vdiv(vmul(moved, moved), least)
            vwrite(address(shifts, 0) + j, shift)
            top = vmax(shift, top)
            ones = vfma(vless(zero, vread8(root)), total, ones)
            last, back = u + here + (count - 1) * step, 8 - row
            sides = (vmul(vread8(last), vread8(root - back)), vmul(vread8(last + back), vread8(root + back)))
            both_sides = vmul(vread8(root), vmax(vabs(sides[0]), vabs(sides[1])))
            vwrite(address(edges, 0) + j, both_sides)
            edge = vmax(both_sides, edge)
            if near[0] < first + n + LANES and first + n < near[1]:
                edge_near = vmax(both_sides, edge_near)
            cross, both = vadd(cross, product), vfma(vread8(place), product, both)
    sums[0], sums[4], sums[5] = _largest(top), _largest(edge), _largest(edge_near)
    sums[1], sums[2], sums[3] = vsum(vfold(ones)), vsum(vfold(cross)), vsum(vfold(both))
