"""Kernels: what a piece has become, as rows of the frame: mask bits, photons per Angstrom, types of the file.

To the last bit what quality.mask_bits, quality.bin_status and assemble.rows_of (`held` included) make on the host.
Medians are found by counting how many bins are smaller: nothing is sorted, and lanes need nothing from each other.
"""
# mypy: disallow-untyped-defs=False
import math

import numpy as np
from numba import njit

from gpu_extract.data import SpecMask, Status
from gpu_extract.device.cuda.kernels import kernel
from gpu_extract.device.cuda.text import text_kernel

PLACE, TARGETS = 0, 1                 # of a fibre: its row among those that are wanted, or -1
STEP, AREA = 0, 1                     # of a bin: its width in Angstrom, and the square of that
# limits: so many times a median, chi2pix without one, fibres that have one; of the frame's type: least number that has
# all its digits, largest
FACTOR, ALONE, FEW, LEAST, LARGEST = 0, 1, 2, 3, 4
LOST = 127                            # status of a bin that the frame's type does not hold, on the device alone
UNSEEN, GIVEN_UP, COUNTS = 0, 1, 2      # of a fibre: bins that normal.give_up takes out, bins that the core gave up
_SOME, _ALL, _NOTHING = int(SpecMask.SOMEBADPIX), int(SpecMask.ALLBADPIX), int(SpecMask.NODATA)
_MISFIT, _FAILED, _EMPTY = int(SpecMask.BAD2DFIT), int(Status.FAILED), int(Status.EMPTY)


@kernel("u4[2] f8[2] f8[2] f8[2]")
def mark(n, bits, middles, ivar, fraction):
    """Mask bits but for the model's fit, which need no other bin: a lane for each bin.

    bits: (fibres, nout) uint32, filled; middles: (2, fibres), NaN afterwards; ivar, fraction: (fibres, nout)
    """
    nout = bits.shape[1]
    f, j = n // nout, n % nout
    value = 0
    if fraction[f, j] > 0.5:
        value |= _SOME
    if fraction[f, j] == 1.0:
        value |= _ALL
    if ivar[f, j] == 0.0:
        value |= _NOTHING
    bits[f, j] = value
    if j == 0:
        middles[0, f] = middles[1, f] = math.nan


MANY = 24      # bins of one lane of find_middles (text/assembly.h)
find_middles = text_kernel("assembly.find_middles", "f8[2] f8[2] u4[2] i8 i8", block=64)


@njit(cache=True)
def _middle_of_fibres(chi2pix, bits, start, nfibre, j):
    """The median of a bundle's unmarked fibres at one wavelength, infinite where there are none."""
    low = high = math.inf
    for f in range(start, start + nfibre):
        if bits[f, j] == 0:
            before = total = 0
            for g in range(start, start + nfibre):
                if bits[g, j] == 0:
                    total += 1
                    if chi2pix[g, j] < chi2pix[f, j] or (chi2pix[g, j] == chi2pix[f, j] and g < f):
                        before += 1
            if before == (total - 1) // 2:
                low = chi2pix[f, j]
            if before == total // 2:
                high = chi2pix[f, j]
    return 0.5 * (low + high)


@njit(cache=True)
def _stands_out(f, j, chi2pix, bits, middles, nfibre, limits):
    """Whether the model does not fit at a bin (quality.stands_out)."""
    if nfibre < limits[FEW]:
        return chi2pix[f, j] > limits[ALONE]
    if not chi2pix[f, j] > limits[FACTOR] * (0.5 * (middles[0, f] + middles[1, f])):
        return False
    return chi2pix[f, j] > limits[FACTOR] * _middle_of_fibres(chi2pix, bits, f // nfibre * nfibre, nfibre, j)


@njit(cache=True)
def _status_of(status, mask):
    """What became of a bin (quality.bin_status)."""
    if mask & _NOTHING and (status != _FAILED or mask & _ALL):
        return _EMPTY
    return status


@njit(cache=True)
def _write(n, to_flux, to_ivar, to_chi, to_fraction, to_mask, to_status, flux, ivar, chi2pix, fraction, status, bits,
           middles, targets, steps, limits, nfibre):
    """One bin of the frame, in photons per Angstrom.

    to_...: (rows, nout) of the frame; flux ... bits: (fibres, nout) of the piece, in photons per bin; steps: (2, nout)
    limits: of quality.stands_out, and of the frame's type (assemble.held); status: LOST where that has no room for it
    """
    nout = bits.shape[1]
    f, j = n // nout, n % nout
    row = targets[PLACE, f]
    if row < 0:
        return
    mask = bits[f, j]
    if _stands_out(f, j, chi2pix, bits, middles, nfibre, limits):
        mask |= np.uint32(_MISFIT)
    to_flux[row, j] = flux[f, j] / steps[STEP, j]
    to_ivar[row, j] = ivar[f, j] * steps[AREA, j]
    to_chi[row, j] = limits[LARGEST] if chi2pix[f, j] > limits[LARGEST] else chi2pix[f, j]
    to_fraction[row, j] = fraction[f, j]
    to_status[row, j] = _status_of(status[f, j], mask)
    faint = to_ivar[row, j] < limits[LEAST] and not mask & _NOTHING
    if faint or math.isinf(to_flux[row, j]) or math.isinf(to_ivar[row, j]):
        to_flux[row, j] = to_ivar[row, j] = 0.0
        mask |= np.uint32(_NOTHING)
        to_status[row, j], status[f, j] = _FAILED, LOST
    to_mask[row, j] = mask


_GIVEN = "f8[2] f8[2] f8[2] f8[2] i1[2] u4[2] f8[2] i8[2] f8[2] f8[1] i8"

# Rows of a frame of float32 and of float64, all but the resolution: a lane for each bin of the piece.
write_singles = kernel(f"f4[2] f4[2] f4[2] f4[2] u4[2] i1[2] {_GIVEN}", name="write_singles")(_write)
write_doubles = kernel(f"f8[2] f8[2] f8[2] f8[2] u4[2] i1[2] {_GIVEN}", name="write_doubles")(_write)


@njit(cache=True)
def _resolve(n, to, resolution, targets, status):
    """One element of the resolution; to: (rows, 2 ndiag + 1, nout), resolution: (fibres, 2 ndiag + 1, nout)."""
    width, nout = resolution.shape[1], resolution.shape[2]
    f, k, j = n // (width * nout), n // nout % width, n % nout
    row = targets[PLACE, f]
    if row >= 0:
        to[row, k, j] = 0.0 if status[f, j] == LOST else resolution[f, k, j]


# The resolution's rows of a frame of float32 and of float64: a lane for each element of the piece's.
resolve_singles = kernel("f4[3] f8[3] i8[2] i1[2]", name="resolve_singles")(_resolve)
resolve_doubles = kernel("f8[3] f8[3] i8[2] i1[2]", name="resolve_doubles")(_resolve)
