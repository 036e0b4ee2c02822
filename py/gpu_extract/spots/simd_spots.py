"""CPU kernels: spots of the Gauss-Hermite PSFs, a block of four successive bins of a fibre at a time.

The lanes of every vector are the four bins, at one pixel or at two neighbouring ones. A block has one frame of pixels
that holds its four stamps; outside its own stamp a bin's lane is 0. Every lane is computed by the same instructions
from its own bin's numbers and its own pixel coordinates, so that a spot depends neither on its block nor on its tile.

The profiles along y and x are separable; a spot is hy^T G hx with the small matrix G of Gauss-Hermite coefficients. A
tabulated component has the same form, with B-splines for profiles. Components are called cores here.
"""
# mypy: disallow-untyped-defs=False
import math
from typing import Any, NamedTuple

import numpy as np

from gpu_extract.arrays import LANE
from gpu_extract.kernels.compiled import njit
from gpu_extract.spots.simd_components import VECTOR, add_core, add_tail, coefficients, cut_core
from gpu_extract.spots.simd_profiles import profiles, room
from gpu_extract.spots.simd_splines import splines
from gpu_extract.vectors.simd import address, number

# A bin's numbers, each for all bins in turn: first pixel minus centre (y, x); sigma y, sigma x and nsig of the first
# core, and of the second; the tail's amp, core, xscale, yscale, index.
FIRST, CORES, TAIL, NUMBERS = 0, 2, 8, 13
TABULATED = -1.0      # in place of nsig: sigma is the distance of the knots


class Component(NamedTuple):
    """A core of some fibres at some bins.

    series: (nfibre, ncoef, nj ni4), ni4 = ni rounded up to a multiple of 4; basis: (ncoef, n); both empty if there is
        no such core
    nj, ni: number of terms along y and x
    """

    series: Any
    basis: Any
    nj: int
    ni: int


class Ingredients(NamedTuple):
    """The data from which spots are made; n: number of bins, rounded up to blocks.

    numbers: (nfibre, NUMBERS, n)
    first, second: the cores, added in this order
    shape: (ny, nx, whether there is a tail)
    """

    numbers: Any
    first: Component
    second: Component
    shape: tuple[int, int, bool]


@njit()
def aligned(size):
    """An array of `size` numbers that starts on a cache line: eight lanes that straddle two lines cost twice."""
    block = np.empty(size + 8)
    first = (-address(block, 0) // 8) % 8
    return block[first:first + size]


@njit()
def rounded(size):
    """`size` rounded up to a multiple of 4."""
    return (size + 3) // 4 * 4


@njit()
def space_of(terms, size):
    """float64 numbers of scratch for `make_block`; terms: see `terms_of`; size: (rows, pitch) of a block."""
    nj, ni, npar = terms
    rows, pitch = rounded(size[0]), rounded(size[1])
    return LANE * (npar + rounded(ni) * rows + nj * rows + ni * pitch + 2 + room((nj, ni)))


@njit()
def _core(stamp, space, core, frame, bins, shape, sizes):
    """Add a core to a block of stamps.

    stamp, space: addresses
    core: (series, basis, basis step, npar, ncoef, nj, ni, first number), the first two addresses of the fibre's series
        and of the block's basis, the last which number of a bin is the core's first
    frame: see `add_core`; bins: see `make_block`; shape: (ny, nx) of a stamp; sizes: (height, width) of the frame
    """
    series, basis, basis_step, npar, ncoef, nj, ni, at = core
    rows, width, _, _ = frame
    numbers, offsets, step = bins
    sigma = numbers + at * step
    coeff = space
    work = coeff + VECTOR * npar
    hy = work + VECTOR * (npar // nj) * rows
    hx = hy + VECTOR * nj * rows      # written after hy, whose following room it is
    edges = hx + VECTOR * (ni * ((width + 3) // 4 * 4) + 2)
    if number(sigma + 2 * step) == TABULATED:
        splines(hy, (nj, rows), shape[0], (numbers, sigma, offsets))
        splines(hx, (ni, (width + 3) // 4 * 4), shape[1], (numbers + step, sigma + step, offsets + step))
    else:
        profiles((hy, hx), edges, (nj, ni), sizes, shape, (numbers, sigma, offsets, step))
    coefficients(coeff, series, npar, (basis, ncoef), basis_step)
    add_core(stamp, coeff, (hy, hx), work, frame, (nj, ni, npar // nj))
    if 0.0 <= number(sigma + 2 * step) < math.inf:
        cut_core(stamp, frame, bins, sigma)


@njit()
def make_block(stamps, work, bins, cores, shape, frame):
    """Make four spots, not yet clipped at 0 and scaled to the sum 1.

    stamps: address of (rows, pitch) vectors, rows a multiple of 4, filled: 0 beside each stamp up to a multiple of 4
        columns, undefined after those
    work: address of `space_of` numbers
    bins: addresses of the first bin's numbers and of the first pixel (y, x) of its stamp in the frame; bytes from one
        number to the next, in both
    cores: two, see `_core`; npar = 0 if there is no second
    shape: (ny, nx, whether there is a tail); frame: (height, width, pitch), pitch a multiple of 4, at least the width
    """
    height, width, pitch = frame
    rows = rounded(height)
    _core(stamps, work, cores[0], (rows, width, pitch, True), bins, shape, frame)
    if cores[1][3] > 0:
        _core(stamps, work, cores[1], (rows, width, pitch, False), bins, shape, frame)
    if shape[2]:
        add_tail(stamps, pitch, shape, bins, bins[0] + TAIL * bins[2])


@njit()
def core_at(core, first):
    """A Component as addresses, for `core_of`; first: the place of its first number."""
    series, basis, nj, ni = core
    _, ncoef, npar = series.shape
    return address(series, 0), address(basis, 0), 8 * basis.shape[1], npar, ncoef, nj, ni, first


@njit()
def core_of(core, i, j):
    """A core of fibre i at bins j .. j + 3 in the form for `_core`; core: from `core_at`."""
    series, basis, step, npar, ncoef, nj, ni, first = core
    return series + 8 * i * ncoef * npar, basis + 8 * j, step, npar, ncoef, nj, ni, first


@njit()
def terms_of(recipe):
    """(nj, ni, npar) of the larger of both cores of Ingredients."""
    one, other = recipe.first, recipe.second
    return max(one.nj, other.nj), max(one.ni, other.ni), max(one.series.shape[2], other.series.shape[2])


@njit(cache=True, loops=False)
def make_spots(out, recipe, offsets, sizes):
    """Make all spots, each on its own stamp.

    out: (nfibre, nwave, ny, nx) float64
    recipe: Ingredients of nwave bins
    offsets: (nfibre, 2, n) float64, first pixel (y, x) of each stamp in its block's frame
    sizes: (2, nfibre, n / 4) height and width of the frames
    """
    height, pitch = sizes[0].max(), rounded(sizes[1].max())
    _make_spots(out, recipe, (offsets, sizes), (aligned(LANE * rounded(height) * pitch),
                                                aligned(space_of(terms_of(recipe), (height, pitch)))), pitch)


@njit()
def _make_spots(out, recipe, frames, scratch, pitch):
    """make_spots with its scratch as arguments: an array lives as long as the call that has it as an argument."""
    numbers, shape = recipe.numbers, recipe.shape
    (offsets, sizes), (stamps, work) = frames, scratch
    nfibre, nwave, ny, nx = out.shape
    n = numbers.shape[2]
    cores_at = core_at(recipe.first, CORES), core_at(recipe.second, CORES + 3)
    for i in range(nfibre):
        for first in range(0, n, LANE):
            bins = address(numbers, i * NUMBERS * n + first), address(offsets, i * 2 * n + first), 8 * n
            both = core_of(cores_at[0], i, first), core_of(cores_at[1], i, first)
            frame = sizes[0, i, first // LANE], sizes[1, i, first // LANE], pitch
            make_block(address(stamps, 0), address(work, 0), bins, both, shape, frame)
            for j in range(first, min(first + LANE, nwave)):
                top, left = int(offsets[i, 0, j]), int(offsets[i, 1, j])
                light = 0.0
                for y in range(ny):
                    start = ((top + y) * pitch + left) * LANE + j - first
                    for x in range(nx):
                        out[i, j, y, x] = max(stamps[start + x * LANE], 0.0)
                        light += out[i, j, y, x]
                for y in range(ny if light > 0.0 else 0):
                    for x in range(nx):
                        out[i, j, y, x] /= light
