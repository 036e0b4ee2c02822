"""Kernels: the model on the pixels, chi2pix and pixmask_fraction; text/quality.h says what they do."""
# mypy: disallow-untyped-defs=False
from gpu_extract.device.cuda.image import TOP
from gpu_extract.device.cuda.kernels import kernel
from gpu_extract.device.cuda.text import text_kernel


@kernel("i4[3] i4[2] i8[2] i8 i8")
def bins_of_row(n, ranges, y0, cuts, nfibre, ny):
    """Which bins of a fibre touch a row of the cut-out: a lane for each fibre and row.

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


ABREAST = 4      # pixels of one lane of project and chi_square (text/quality.h)
near_fibres = text_kernel("quality.near_fibres", "i4[3] i4[3] i4[2] i8[2] i8 i8 i8 i8 i8 i8")
_SPOTS = "i4[3] i4[3] f4[3] f8[2] i4[2] i4[2] i8[2]"      # near, ranges, single, x, y0, x0, cuts
_SIZES = "i8 i8 i8 i8 i8 i8 i8"                           # nfibre, nx, pixels of a spot, nwave, rows, columns, fibres
project = text_kernel("quality.project", f"f8[3] {_SPOTS} {_SIZES}", block=128)
chi_square = text_kernel("quality.chi_square", f"f8[3] f8[3] f8[3] {_SPOTS} {_SIZES} f8", block=128)
weigh = text_kernel("quality.weigh", "f8[2] f8[2] f8[3] f4[3] i4[2] i4[2] i8[2] i8 i8 i8 i8 i8 i8 i8 i8", block=64)
