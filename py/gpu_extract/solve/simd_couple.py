"""CPU kernels: blocks of icov times vectors in the form of solve.simd_factor. All sums have the written order."""
# mypy: disallow-untyped-defs=False
import numpy as np

from gpu_extract.arrays import LANE
from gpu_extract.kernels.compiled import njit
from gpu_extract.solve.simd_factor import VECTOR, row_of
from gpu_extract.vectors.simd import (address, number, prefetch, vadd, vfma, vmul, vread, vset, vspread, vsums, vwrite,
                                      write)

LOOK_AHEAD = 8192      # bytes by which a block is prefetched


@njit()
def masks_of(nband):
    """(n, 4, 4): 1 where four band rows, each shifted by a bin, have elements in the n vectors that they touch."""
    masks = np.zeros(((nband + 2 * LANE - 2) // LANE, LANE, LANE))
    for m in range(len(masks)):
        for row in range(LANE):
            for lane in range(LANE):
                masks[m, row, lane] = 1.0 if 0 <= LANE * m + lane - row < nband else 0.0
    return masks


@njit()
def couple(y, x, icov, masks, margin, fibres, ways, bins):
    """Add products of icov's block of fibres i and i + d to y; fibres: (i, d).

    ways: whether to add to fibre i, and, with the transposed block, to fibre i + d
    bins: (first, last) of fibre i, first a multiple of LANE, and last as well if bins follow
    Four rows are taken at a time, shifted so that a vector holds the same bins of fibre i + d in all of them: additions
    there need not wait for the row before. The last rows of a block, one to four, are taken one by one. All rows are
    prefetched: those of next neighbours (d = 1), which every iteration reads, are more than the nearer caches hold, and
    other blocks come from memory.
    """
    (i, d), (ahead, back), (first, last) = fibres, ways, bins
    nfibre, nd, nwave, nband = icov.shape
    a, b = row_of(i, nfibre), row_of(i + d, nfibre)
    hw, length = nband // 2, y.shape[1]
    near, back_to = address(x, b * length + margin - hw + first), address(y, b * length + margin - hw + first)
    own, to = address(x, a * length + margin + first), address(y, a * length + margin + first)
    row, step = address(icov, ((i * nd + d) * nwave + first) * nband), 8 * (nband - 1)
    fours = (min(last, nwave - 1) - first) // LANE
    mask, end, tail = address(masks, 0), VECTOR * len(masks), 8 * nband - VECTOR
    for _ in range(fours):
        v0, v1, v2, v3 = vspread(own), vspread(own + 8), vspread(own + 16), vspread(own + 24)
        t0 = t1 = t2 = t3 = vset(0.0)
        for k in range(0, 8 * LANE * nband, 64):
            prefetch(row + LOOK_AHEAD + k)
        for k in range(0, end, VECTOR):
            c0, c1, c2, c3 = vread(row + k), vread(row + step + k), vread(row + 2 * step + k), vread(row + 3 * step + k)
            if k == 0 or k > tail:
                at = mask + LANE * k
                c0, c1 = vmul(vread(at), c0), vmul(vread(at + VECTOR), c1)
                c2, c3 = vmul(vread(at + 2 * VECTOR), c2), vmul(vread(at + 3 * VECTOR), c3)
            if ahead:
                far = vread(near + k)
                t0, t1, t2, t3 = vfma(c0, far, t0), vfma(c1, far, t1), vfma(c2, far, t2), vfma(c3, far, t3)
            if back:
                total = vadd(vfma(c1, v1, vmul(c0, v0)), vfma(c3, v3, vmul(c2, v2)))
                vwrite(back_to + k, vadd(total, vread(back_to + k)))
        if ahead:
            vwrite(to, vadd(vread(to), vsums(t0, t1, t2, t3)))
        row += 8 * LANE * nband
        near, back_to, own, to = near + VECTOR, back_to + VECTOR, own + VECTOR, to + VECTOR
    for _ in range(last - first - LANE * fours):
        for k in range(0, 8 * nband, 8):
            if ahead:
                write(to, number(to) + number(row + k) * number(near + k))
            if back:
                write(back_to + k, number(back_to + k) + number(row + k) * number(own))
        row += 8 * nband
        near, back_to, own, to = near + 8, back_to + 8, own + 8, to + 8
