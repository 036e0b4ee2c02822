"""CPU kernels: rules that consider each bin of a bundle once: bins that are given up, and the bits of the mask."""
# mypy: disallow-untyped-defs=False
import numpy as np

from gpu_extract.arrays import SpecMask
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import address, number, vmax, vread8, vset8, vwrite

VECTOR = 64        # bytes
SOMEBADPIX, ALLBADPIX, NODATA = (int(bit) for bit in (SpecMask.SOMEBADPIX, SpecMask.ALLBADPIX, SpecMask.NODATA))


@njit()
def _largest(row, count, tops):
    """The largest of `count` numbers from an address on, at least 0; tops: (8,), room for a vector."""
    high, end = vset8(0.0), row + 8 * count
    while row + VECTOR <= end:
        high = vmax(vread8(row), high)
        row += VECTOR
    vwrite(address(tops, 0), high)
    largest = tops.max()
    while row < end:
        largest = max(largest, number(row))
        row += 8
    return largest


@njit(cache=True)
def judge_weights(given_up, icov, weight, ridge, limits):
    """The rule of normal.give_up: find the bins that are given up, and add `ridge` to the diagonal of the others.

    icov, weight: as in data.Normal, the diagonal of bins of weight 0 becomes 0; given_up: (nfibre, nwave) bool, filled
    limits: shares of light below which a bin is given up, and below which it is faint; returns the numbers of both
    """
    (nfibre, nwave), hw, count, dim = weight.shape, icov.shape[3] // 2, 0, 0
    least, faint = limits
    for i in range(nfibre):
        for j in range(nwave):
            value, known = weight[i, j], icov[i, 0, j, hw]
            dark = not value > 0.0
            # a product that underflows shows nothing either
            given_up[i, j] = not dark and not known > least * value
            count += given_up[i, j]
            dim += not dark and not known > faint * value
            wanted = 0.0 if dark else known + ridge
            if known != wanted:
                icov[i, 0, j, hw] = wanted
    return count, dim


@njit(cache=True)
def take_out(icov, rhs, weight, given_up):
    """Give bins up: their weight, rhs, and rows and columns of icov become 0."""
    nfibre, nd, nwave, width = icov.shape
    hw = width // 2
    for i in range(nfibre):
        for j in range(nwave):
            if given_up[i, j]:
                rhs[i, j] = weight[i, j] = 0.0
            for d in range(min(nd, nfibre - i)):
                for k in range(max(-hw, -j), min(hw, nwave - 1 - j) + 1):
                    if given_up[i, j] or given_up[i + d, j + k]:
                        icov[i, d, j, hw + k] = 0.0


@njit(cache=True)
def own_bits(mask, ivar, pixmask_fraction):
    """Fill mask with the bits that do not depend on other bins: all except BAD2DFIT, see quality.mask_bits."""
    for i in range(mask.shape[0]):
        for j in range(mask.shape[1]):
            masked = pixmask_fraction[i, j]
            mask[i, j] = ((SOMEBADPIX if masked > 0.5 else 0) | (ALLBADPIX if masked == 1.0 else 0)
                          | (NODATA if ivar[i, j] == 0.0 else 0))


@njit(cache=True)
def may_stand_out(doubtful, chi2pix, judged, times):
    """Fill doubtful, (nfibre,) bool: whether bins of a fibre may be above `times` the median of those judged.

    None is, if more than half of those judged, times `times`, reach the largest of all.
    """
    nfibre, nwave = chi2pix.shape
    tops = np.empty(VECTOR // 8)
    for i in range(nfibre):
        largest = _largest(address(chi2pix, i * nwave), nwave, tops)
        count, enough = 0, 0
        for j in range(nwave):
            count += judged[i, j]
            enough += judged[i, j] & (times * chi2pix[i, j] >= largest)
        doubtful[i] = count > 0 and enough <= count // 2
