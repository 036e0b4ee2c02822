"""CPU kernels: solutions with the fibres' diagonal blocks, from the factors of solve.simd_factor.

Four fibres are the lanes, and four bins are processed together: each number before or after them is read once.
"""
# mypy: disallow-untyped-defs=False
import math

import numpy as np

from gpu_extract.arrays import LANE
from gpu_extract.kernels.compiled import njit
from gpu_extract.solve.simd_factor import VECTOR, transposed
from gpu_extract.vectors.simd import address, prefetch, vfma, vmul, vread, vset, vsub, vsum, vtake, vwrite, vwrite4

LOOK_AHEAD = 8192      # bytes by which a factor is prefetched: all factors are more than the nearer caches hold


@njit()
def forward(work, r, t, factor, margin, g):
    """Solve L y = r - t for the fibres of group g, y in work; returns their part of (r - t) M^-1 (r - t)."""
    _, rows, size, _ = factor.shape
    hw, line = size - 1, 8 * r.shape[1]
    end = VECTOR * hw
    first = g * LANE * r.shape[1] + margin
    source, taken = address(r, first), address(t, first)
    before, a = address(work, 0), address(factor, g * rows * size * LANE)
    norm = vset(0.0)
    for _ in range((rows - hw) // LANE):
        y0, y1, y2, y3 = transposed(vsub(vread(source), vread(taken)),
                                     vsub(vread(source + line), vread(taken + line)),
                                     vsub(vread(source + 2 * line), vread(taken + 2 * line)),
                                     vsub(vread(source + 3 * line), vread(taken + 3 * line)))
        b, c, d = a + end, a + 2 * end, a + 3 * end      # one row on and one element back: the same bin
        y0 = vtake(vread(a), vread(before), y0)
        y = vread(before + VECTOR)
        y0, y1 = vtake(vread(a + VECTOR), y, y0), vtake(vread(b + VECTOR), y, y1)
        y, k = vread(before + 2 * VECTOR), 2 * VECTOR
        y0, y1, y2 = vtake(vread(a + k), y, y0), vtake(vread(b + k), y, y1), vtake(vread(c + k), y, y2)
        for k in range(3 * VECTOR, end, VECTOR):
            y = vread(before + k)
            y0, y1, y2 = vtake(vread(a + k), y, y0), vtake(vread(b + k), y, y1), vtake(vread(c + k), y, y2)
            y3 = vtake(vread(d + k), y, y3)
        k = end
        y1, y2, y3 = vtake(vread(b + k), y0, y1), vtake(vread(c + k), y0, y2), vtake(vread(d + k), y0, y3)
        y2, y3 = vtake(vread(c + k + VECTOR), y1, y2), vtake(vread(d + k + VECTOR), y1, y3)
        y3 = vtake(vread(d + k + 2 * VECTOR), y2, y3)
        norm = vfma(y0, vmul(y0, vread(a + end)), norm)
        norm = vfma(y1, vmul(y1, vread(b + end + VECTOR)), norm)
        norm = vfma(y2, vmul(y2, vread(c + end + 2 * VECTOR)), norm)
        norm = vfma(y3, vmul(y3, vread(d + end + 3 * VECTOR)), norm)
        for k in range(0, LANE * VECTOR * size, 64):
            prefetch(a + LOOK_AHEAD + k)
        vwrite4(before + end, VECTOR, y0, y1, y2, y3)
        source, taken, before, a = source + VECTOR, taken + VECTOR, before + LANE * VECTOR, a + LANE * VECTOR * size
    return vsum(norm)


@njit()
def backward(z, work, factor, margin, g):
    """z = L^-T D^-1 y for the fibres of group g; y: in work, overwritten."""
    _, rows, size, _ = factor.shape
    hw, line = size - 1, 8 * z.shape[1]
    row, end = VECTOR * size, VECTOR * hw
    own, at = address(work, rows * LANE), address(factor, ((g + 1) * rows - hw) * size * LANE)
    for k in range(0, end, VECTOR):
        vwrite(own + k, vset(0.0))
    target = address(z, g * LANE * z.shape[1] + margin + rows - hw)
    for _ in range((rows - hw) // LANE):
        own, at, target = own - LANE * VECTOR, at - LANE * row, target - VECTOR
        for k in range(0, LANE * row, 64):
            prefetch(at - LOOK_AHEAD + k)
        z0, z1 = vmul(vread(own), vread(at + end)), vmul(vread(own + VECTOR), vread(at + row + end))
        z2 = vmul(vread(own + 2 * VECTOR), vread(at + 2 * row + end))
        z3 = vmul(vread(own + 3 * VECTOR), vread(at + 3 * row + end))
        after, c = own + 3 * VECTOR + end, at + 3 * row + hw * row
        z3 = vtake(vread(c), vread(after), z3)
        after, c = after - VECTOR, c - row
        z2, z3 = vtake(vread(c), vread(after), z2), vtake(vread(c + VECTOR), vread(after), z3)
        after, c = after - VECTOR, c - row
        z1, z2 = vtake(vread(c), vread(after), z1), vtake(vread(c + VECTOR), vread(after), z2)
        z3 = vtake(vread(c + 2 * VECTOR), vread(after), z3)
        for _ in range(hw - 3):
            after, c = after - VECTOR, c - row
            y = vread(after)
            z0, z1 = vtake(vread(c), y, z0), vtake(vread(c + VECTOR), y, z1)
            z2, z3 = vtake(vread(c + 2 * VECTOR), y, z2), vtake(vread(c + 3 * VECTOR), y, z3)
            c += VECTOR
        c = at + 3 * row + end
        z2, z1 = vtake(vread(c - VECTOR), z3, z2), vtake(vread(c - 2 * VECTOR), z3, z1)
        z0 = vtake(vread(c - 3 * VECTOR), z3, z0)
        c -= row
        z1, z0 = vtake(vread(c - VECTOR), z2, z1), vtake(vread(c - 2 * VECTOR), z2, z0)
        z0 = vtake(vread(c - row - VECTOR), z1, z0)
        vwrite4(own, VECTOR, z0, z1, z2, z3)
        z0, z1, z2, z3 = transposed(z0, z1, z2, z3)
        vwrite4(target, line, z0, z1, z2, z3)


@njit()
def work_of(factor):
    """Room for the solves of one group: zeros, for all bins and a half-band more at both ends."""
    return np.zeros((factor.shape[1] + factor.shape[2], LANE))


@njit(cache=True)
def size_of(r, t, factor, margin):
    """The root of (r - t) M^-1 (r - t): the error in sigma that corresponds to a residual r - t."""
    work, total = work_of(factor), 0.0
    for g in range(len(factor)):
        total += forward(work, r, t, factor, margin, g)
    return math.sqrt(total)
