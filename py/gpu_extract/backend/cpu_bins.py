"""CPU kernels: rules that look at each bin of a bundle once: which ones are hardly known, and the bits of the mask."""
import numpy as np
from numba import njit

from gpu_extract.backend.simd import address, number, vmax, vread8, vset8, vwrite
from gpu_extract.data import SpecMask

VECTOR = 64        # bytes
SOMEBADPIX, ALLBADPIX, NODATA, BADFIBER = (int(bit) for bit in (SpecMask.SOMEBADPIX, SpecMask.ALLBADPIX,
                                                                SpecMask.NODATA, SpecMask.BADFIBER))


@njit(nogil=True)
def _largest(row, count, tops):  # type: ignore[no-untyped-def]
    """The largest of `count` numbers from an address on, 0 where none is above; tops: (8,), room for a vector."""
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


@njit(nogil=True, cache=True)
def regularise(icov, regularised, weight, rule, inner):  # type: ignore[no-untyped-def]
    """Apply normal.regularise's rule to the diagonal, and say where that added to it.

    icov, weight: as in data.Normal; regularised: (nfibre, nwave) bool
    rule: (ridge^2, share of the largest weight); inner: (first, last) of the bins among which that is looked for
    """
    nfibre, nwave = weight.shape
    hw, ridge, largest, tops = icov.shape[3] // 2, rule[0], 0.0, np.empty(VECTOR // 8)
    for i in range(nfibre):
        largest = max(largest, _largest(address(weight, i * nwave + inner[0]), inner[1] - inner[0], tops))
    minimum = rule[1] * largest
    for i in range(nfibre):
        for j in range(nwave):
            value = weight[i, j]
            regularised[i, j] = ridge > 0.0
            if value == 0.0:
                icov[i, 0, j, hw], regularised[i, j] = 0.0, False
            elif value < minimum:
                icov[i, 0, j, hw] += (minimum - value)**2
                regularised[i, j] = True
            elif ridge > 0.0:
                icov[i, 0, j, hw] += ridge


@njit(nogil=True, cache=True)
def own_bits(mask, ivar, pixmask_fraction, dropped):  # type: ignore[no-untyped-def]
    """mask, filled with the bits that a bin has whatever the others are: all but BAD2DFIT, see quality.mask_bits."""
    for i in range(mask.shape[0]):
        given = NODATA | BADFIBER if dropped[i] else 0
        for j in range(mask.shape[1]):
            masked = pixmask_fraction[i, j]
            mask[i, j] = (given | (SOMEBADPIX if masked > 0.5 else 0) | (ALLBADPIX if masked == 1.0 else 0)
                          | (NODATA if ivar[i, j] == 0.0 else 0))


@njit(nogil=True, cache=True)
def may_stand_out(doubtful, chi2pix, judged, times):  # type: ignore[no-untyped-def]
    """doubtful: (nfibre,) bool, whether bins of a fibre may be above so many times the median of those judged.

    None is where more than half of those, multiplied, reach the largest of all.
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
