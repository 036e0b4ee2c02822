"""Kernels: the model on the pixels, chi2pix and pixmask_fraction.

A pixel gathers the light of the spots that touch it, fibre by fibre and bin by bin: nothing is scattered, so that no
two lanes write to one place.
"""
# mypy: disallow-untyped-defs=False
import numpy as np
from numba import cuda, njit

from gpu_extract.device.cuda.image import COLUMNS, LEFT, ROWS, TOP
from gpu_extract.device.cuda.kernels import kernel


@njit(cache=True)
def _bins_of_row(n, ranges, y0, cuts, nfibre, ny):
    """Which bins of a fibre touch a row of the cut-out.

    ranges: (2, fibres, rows) int32, filled: first bin and one past the last; rows ascend or descend along wavelength
    """
    rows, nwave = ranges.shape[2], y0.shape[1]
    f, row = n // rows, n % rows
    y = row + cuts[f // nfibre, TOP]
    up = y0[f, nwave - 1] >= y0[f, 0]
    for end in range(2):
        # bins before `low` lie wholly before the row (end 0), or begin before or on it (end 1), in the trace's order
        low, high = 0, nwave
        while low < high:
            middle = (low + high) // 2
            if up:
                before = y0[f, middle] + ny <= y if end == 0 else y0[f, middle] <= y
            else:
                before = y0[f, middle] > y if end == 0 else y0[f, middle] + ny > y
            if before:
                low = middle + 1
            else:
                high = middle
        ranges[end, f, row] = low


@kernel("i4[3] i4[2] i8[2] i8 i8", lane=_bins_of_row)
def bins_of_row(count, args):
    """Bins by rows: a lane for each fibre and row."""
    n = cuda.grid(1)
    if n < count:
        _bins_of_row(n, *args)


@njit(cache=True)
def _light(b, column, row, ranges, single, x, y0, x0, cuts, nfibre, nx):
    """A x at one pixel of bundle b's cut-out."""
    total = 0.0
    y, at = row + cuts[b, TOP], column + cuts[b, LEFT]
    for f in range(b * nfibre, (b + 1) * nfibre):
        for j in range(ranges[0, f, row], ranges[1, f, row]):
            right = at - x0[f, j]
            if 0 <= right < nx:
                total += x[f, j] * np.float64(single[f, (y - y0[f, j]) * nx + right, j])
    return total


@njit(cache=True)
def _project(n, model, ranges, single, x, y0, x0, cuts, nfibre, nx):
    """One pixel of the model image; model: (bundles, rows, columns), as images lie on the host."""
    rows, columns = model.shape[1], model.shape[2]
    b, column, row = n // (columns * rows), n // rows % columns, n % rows
    model[b, row, column] = 0.0
    if row < cuts[b, ROWS] and column < cuts[b, COLUMNS]:
        model[b, row, column] = _light(b, column, row, ranges, single, x, y0, x0, cuts, nfibre, nx)


@kernel("f8[3] i4[3] f4[3] f8[2] i4[2] i4[2] i8[2] i8 i8", lane=_project)
def project(count, args):
    """The model image: a lane for each pixel."""
    n = cuda.grid(1)
    if n < count:
        _project(n, *args)


@njit(cache=True)
def _chi(n, chi, good, root, light, ranges, single, x, y0, x0, cuts, nfibre, nx, psferr):
    """One pixel: chi = (pix - model)^2 W' and good = [W' > 0], 1/W' = 1/ivar + (psferr model)^2.

    chi, good, root, light: (bundles, columns, rows); ranges: of `bins_of_row`; single: (fibres, ny nx, nwave) float32
    x, y0, x0: (fibres, nwave)
    """
    columns, rows = chi.shape[1], chi.shape[2]
    b, column, row = n // (columns * rows), n // rows % columns, n % rows
    r = root[b, column, row]
    value = 0.0
    if r > 0.0 and row < cuts[b, ROWS] and column < cuts[b, COLUMNS]:
        scaled = r * _light(b, column, row, ranges, single, x, y0, x0, cuts, nfibre, nx)
        difference, error = light[b, column, row] - scaled, psferr * scaled
        value = difference * difference / (1.0 + error * error)
    chi[b, column, row] = value
    good[b, column, row] = 1.0 if r > 0.0 else 0.0


@kernel("f8[3] f8[3] f8[3] f8[3] i4[3] f4[3] f8[2] i4[2] i4[2] i8[2] i8 i8 f8", lane=_chi)
def chi_square(count, args):
    """chi^2 of the model on all pixels: a lane for each."""
    n = cuda.grid(1)
    if n < count:
        _chi(n, *args)


@njit(cache=True)
def _judge(n, chi2pix, fraction, chi, good, single, y0, x0, cuts, nfibre, nx, first):
    """One kept bin: chi2pix = A^T chi / A^T good and pixmask_fraction = 1 - A^T good, 1 exactly without a good pixel.

    chi2pix, fraction: (fibres, nout), filled; first: the first bin that is kept
    """
    nout, lanes = chi2pix.shape[1], single.shape[1]
    f, j = n // nout, n % nout + first
    b = f // nfibre
    top, left = y0[f, j] - cuts[b, TOP], x0[f, j] - cuts[b, LEFT]
    total = seen = 0.0
    for p in range(lanes):
        row, column = top + p // nx, left + p % nx
        if 0 <= row < cuts[b, ROWS] and 0 <= column < cuts[b, COLUMNS]:
            value = np.float64(single[f, p, j])
            total += value * chi[b, column, row]
            seen += value * good[b, column, row]
    chi2pix[f, j - first] = total / seen if seen > 0.0 else 0.0
    fraction[f, j - first] = min(max(1.0 - seen, 0.0), 1.0) if seen > 0.0 else 1.0


@kernel("f8[2] f8[2] f8[3] f8[3] f4[3] i4[2] i4[2] i8[2] i8 i8 i8", lane=_judge, block=64)
def judge(count, args):
    """chi2pix and pixmask_fraction: a lane for each kept bin."""
    n = cuda.grid(1)
    if n < count:
        _judge(n, *args)
