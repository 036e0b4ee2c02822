"""CPU kernels: one banded L D L^T per fibre, four fibres at a time (the lanes).

Fibres have two colours, even and odd, so that next neighbours differ. Vectors are (rows, margin + nwave + margin), with
one row per fibre (`row_of`: the even ones first, both colours rounded up to four). Margins are zero, so that a band row
needs no test at the ends; bins are rounded up to multiples of 4 (`room_of`). A factor's four fibres have one colour.
All sums have the written order.
"""
# mypy: disallow-untyped-defs=False
import numpy as np
from numba.extending import register_jitable

from gpu_extract.arrays import LANE
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import (address, number, vadd, vdiv, vless, vmax, vmul, vpick, vread, vroot, vset, vsub,
                                      vsum, vtake, vturn1, vturn2, vturn3, vwrite, vwrite4, write)

VECTOR = 8 * LANE
LOST = 1e-13           # of a diagonal: a pivot below it may be rounding, a dozen eps for each of the half-band's bins
LEAST = LANE - 1       # smallest half-band of a factor: four bins that are solved at once reach each other


@register_jitable      # also called from Python, for which it must not be compiled at every start
def row_of(i, nfibre):
    """The row of fibre i in vectors; row_of(1, nfibre) is the first of the odd ones."""
    return i // 2 + i % 2 * ((nfibre + 2 * LANE - 1) // (2 * LANE) * LANE)


def room_of(nfibre: int, nwave: int, hw: int) -> tuple[int, int, int]:
    """(rows, margin, length) of vectors for nfibre x nwave bins with a half-band hw."""
    margin = -(-hw // LANE) * LANE
    return row_of(1, nfibre) - nfibre // 2 // -LANE * LANE, margin, 2 * margin - nwave // -LANE * LANE


def factor_shape(nfibre: int, nwave: int, own: int) -> tuple[int, int, int, int]:
    """(groups of four fibres, bins plus half-band, half-band + 1, 4)."""
    rows, margin, length = room_of(nfibre, nwave, own)
    return rows // LANE, length - 2 * margin + max(own, LEAST), max(own, LEAST) + 1, LANE


@njit()
def transposed(a, b, c, d):
    """The four vectors of their first, second, third and fourth lanes."""
    return (vpick(a, vturn3(b), vturn2(c), vturn1(d)), vpick(vturn1(a), b, vturn3(c), vturn2(d)),
            vpick(vturn2(a), vturn1(b), c, vturn3(d)), vpick(vturn3(a), vturn2(b), vturn1(c), d))


@njit()
def _gather(to, places, count):
    """`count` numbers each from four addresses, interleaved."""
    a, b, c, d = places
    whole = 8 * (count // LANE * LANE)
    for k in range(0, whole, VECTOR):
        t0, t1, t2, t3 = transposed(vread(a + k), vread(b + k), vread(c + k), vread(d + k))
        vwrite4(to + LANE * k, VECTOR, t0, t1, t2, t3)
    for k in range(whole, 8 * count, 8):
        for lane in range(LANE):
            write(to + LANE * k + 8 * lane, number(places[lane] + k))


@njit(cache=True)
def factorise(factor, roots, band):
    """Banded L D L^T of the fibres' diagonal blocks.

    band: (nfibre, nwave, own + 1), band[i, j, own - k] = icov of bins j and j - k of fibre i
    roots: (nfibre, margin + nwave + margin), filled as in data.Strengths
    factor: see `factor_shape`, filled: factor[g, j, h - k, lane] = L[j, j - k], and 1 / D[j] at k = 0, with h its
        half-band. A pivot of less than LOST of its diagonal decouples its bin; rows without a bin are those of the
        unit matrix.
    Returns whether there is such a pivot.
    """
    nfibre, nwave, known = band.shape
    ngroup, rows, size, _ = factor.shape
    odd, margin = row_of(1, nfibre), (roots.shape[1] - nwave) // 2
    apart, step, none, four = band.strides[0], band.strides[1], np.zeros(known), np.empty(LANE)
    lost = vset(0.0)
    roots[:] = 0.0
    for g in range(ngroup):
        i = 2 * LANE * g if LANE * g < odd else 2 * (LANE * g - odd) + 1
        a = address(band, 0) + i * apart
        b, b_step = (a + 2 * apart, step) if i + 2 < nfibre else (address(none, 0), 0)
        c, c_step = (a + 4 * apart, step) if i + 4 < nfibre else (address(none, 0), 0)
        d, d_step = (a + 6 * apart, step) if i + 6 < nfibre else (address(none, 0), 0)
        at = address(factor, g * rows * size * LANE)
        for j in range(rows):
            for m in range(size if j >= nwave else size - known):
                vwrite(at + VECTOR * m, vset(0.0))
            if j < nwave:
                _gather(at + VECTOR * (size - known), (a, b, c, d), known)
                a, b, c, d = a + step, b + b_step, c + c_step, d + d_step
                _roots(address(four, 0), vread(at + VECTOR * (size - 1)))
                for lane in range(min((nfibre - i + 1) // 2, LANE)):
                    roots[i + 2 * lane, margin + j] = four[lane]
            lost = vmax(_eliminate(at, j, size), lost)
            at += VECTOR * size
    return vsum(lost) > 0.0


@njit()
def _roots(to, diagonal):
    """1 / sqrt of four numbers, 0 if they are not positive."""
    alive = vless(vset(0.0), diagonal)
    vwrite(to, vmul(alive, vdiv(vset(1.0), vroot(vadd(vmul(alive, diagonal), vsub(vset(1.0), alive))))))


@njit()
def _eliminate(at, j, size):
    """Row j of L and 1 / D from the matrix's, in place, after the rows before it. Returns which pivots are lost."""
    hw, row = size - 1, VECTOR * size
    one, tiny = vset(1.0), vset(LOST)
    diagonal = pivot = vread(at + VECTOR * hw)
    low = max(0, hw - j)
    for m in range(low):
        vwrite(at + VECTOR * m, vset(0.0))
    for m in range(low, hw):
        total = vread(at + VECTOR * m)
        column = at - (hw - m) * row + VECTOR * (hw - m)
        for n in range(VECTOR * low, VECTOR * m, VECTOR):
            total = vtake(vread(at + n), vread(column + n), total)
        vwrite(at + VECTOR * m, total)
    for m in range(low, hw):
        total = vread(at + VECTOR * m)
        scaled = vmul(total, vread(at - (hw - m) * row + VECTOR * hw))
        pivot = vtake(total, scaled, pivot)
        vwrite(at + VECTOR * m, scaled)
    good = vless(vmul(tiny, diagonal), pivot)
    alive = vless(vset(0.0), diagonal)
    instead = vadd(vmul(alive, diagonal), vsub(one, alive))
    vwrite(at + VECTOR * hw, vdiv(one, vadd(vmul(good, pivot), vmul(vsub(one, good), instead))))
    for m in range(VECTOR * low, VECTOR * hw, VECTOR):
        vwrite(at + m, vmul(good, vread(at + m)))
    return vmul(alive, vsub(one, good))


@njit(cache=True)
def lift(icov, own):
    """Add LOST of itself to each diagonal element whose pivot in its fibre's own block is less than that.

    Returns (nfibre, nwave) bool: whether it was added.

    The information that such a bin adds to those before it is a rounding error. Bins are taken in order, so that an
    addition to one affects the pivots of those after it.
    """
    nfibre, nwave, hw = icov.shape[0], icov.shape[2], icov.shape[3] // 2
    lifted = np.zeros((nfibre, nwave), dtype=np.bool_)
    low = np.zeros((nwave, own + 1))       # [j, k] = L[j, j - k] D[j - k], [j, 0] = D[j]
    for i in range(nfibre):
        for j in range(nwave):
            row, diagonal = low[j], icov[i, 0, j, hw]
            for k in range(min(own, j), -1, -1):
                total = icov[i, 0, j, hw - k]
                for m in range(k + 1, min(own, j) + 1):
                    if m - k <= own:
                        total -= row[m] * low[j - k, m - k] / low[j - m, 0]
                row[k] = total
            if row[0] < LOST * diagonal:
                icov[i, 0, j, hw] += LOST * diagonal
                row[0] = max(row[0], 0.0) + LOST * diagonal
                lifted[i, j] = True
            if diagonal == 0.0:
                row[0] = 1.0
    return lifted
