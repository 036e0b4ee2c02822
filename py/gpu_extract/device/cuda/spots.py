"""Kernels: spots of the Gauss-Hermite PSFs: their cores (text/spots.h), tails, and the spots as they count."""
# mypy: disallow-untyped-defs=False
import math

import numpy as np

from gpu_extract.device.cuda.image import COLUMNS, LEFT, ROWS, TOP
from gpu_extract.device.cuda.kernels import kernel
from gpu_extract.device.cuda.normal import bin_at
from gpu_extract.device.cuda.text import text_kernel

# A bin's numbers: centre (y, x); of each core sigma y, sigma x, nsig; of the tail amp, core, xscale, yscale, index;
# then the coefficients of the first core, (nj, ni), and of the second
Y, X, TAIL = 0, 1, 8
TOGETHER, TERMS = 8, 77      # bins of one lane of evaluate (text/spots.h), most terms times rows of one of add_core

evaluate = text_kernel("spots.evaluate", "f8[3] f8[3] i8[1] f8[3] i8 i8 i8 i8 n", samples=((8,),), block=128)
profile = text_kernel("spots.profile", "f8[3] f8[3] i4[2] i4[2] i8 i8 i8 i8 i8 i8 i8 n n", samples=((7, 7), (3, 5)),
                      block=128)
mix = text_kernel("spots.mix", "f8[3] f8[3] f8[3] i8 i8 i8 i8 i8 i8 i8 n n", samples=((7, 7), (3, 5)), block=128)
add_core = text_kernel("spots.add_core", "f8[3] f8[3] f8[3] f8[3] i4[2] i4[2] i8 i8 i8 i8 i8 i8 i8 i8 n n n n",
                       samples=((7, 0, 0, 11), (7, 1, 1, 6), (3, 1, 1, 13)), block=128)


def rows_together(ny: int, nj: int, cut: bool) -> int:
    """Rows of a spot that one lane of add_core makes, as even as can be: their terms stay in registers, and what a core
    that is cut asks for."""
    return -(-ny // -(-ny * (nj + 2 * cut) // TERMS))


@kernel("f8[3] f8[3] i4[2] i4[2] i8")
def add_tail(n, raw, numbers, y0, x0, nx):
    """The power-law tail, raw += amp r2 / (core^2 + r2)^(1 + index/2): a lane for each pixel and bin."""
    lanes, places, nwave = raw.shape[1], raw.shape[2], y0.shape[1]
    f, p, at = n // (lanes * places), n // places % lanes, n % places
    j = bin_at(at)
    if j >= nwave:
        return
    core = numbers[f, TAIL + 1, j]
    dx = (x0[f, j] - numbers[f, X, j] + p % nx) * numbers[f, TAIL + 2, j]
    dy = (y0[f, j] - numbers[f, Y, j] + p // nx) * numbers[f, TAIL + 3, j]
    r2 = dx * dx + dy * dy
    power = -1.0 - 0.5 * numbers[f, TAIL + 4, j]
    raw[f, p, at] += numbers[f, TAIL, j] * r2 * math.exp(power * math.log(core * core + r2))


@kernel("f8[3] f4[3] f8[3] f8[3] f8[3] i4[2] i4[2] i8[2] i8 i8", block=64)
def finish(n, white, single, sums, root, light, y0, x0, cuts, nfibre, nx):
    """Clip a spot at 0, give it the sum 1, and look through it at the pixels: whitened spots, weight and right side; a
    lane for each place of a bin (text/normal.h).

    white: (fibres, ny nx, places), the raw spot on entry, then spot times sqrt(ivar); single: (fibres, ny nx, nwave),
    filled with the spot; sums: (2, fibres, nwave), filled with A^T W 1 and A^T W p
    root, light, cuts: of image.whiten, bundle by bundle; fibres of a bundle: nfibre
    """
    lanes, places = white.shape[1], white.shape[2]
    f, at = n // places, n % places
    b, j = f // nfibre, bin_at(at)
    if j >= single.shape[2]:
        return
    total = 0.0
    for p in range(lanes):
        total += max(white[f, p, at], 0.0)
    scale = 1.0 / total if total > 0.0 else 0.0
    top, left = y0[f, j] - cuts[b, TOP], x0[f, j] - cuts[b, LEFT]
    rows, columns = cuts[b, ROWS], cuts[b, COLUMNS]
    weight = rhs = 0.0
    for p in range(lanes):
        value = max(white[f, p, at], 0.0) * scale
        row, column = top + p // nx, left + p % nx
        single[f, p, j] = np.float32(value)
        if 0 <= row < rows and 0 <= column < columns:
            value *= root[b, column, row]
            weight += value * root[b, column, row]
            rhs += value * light[b, column, row]
        else:
            value = 0.0
        white[f, p, at] = value
    sums[0, f, j] = weight
    sums[1, f, j] = rhs
