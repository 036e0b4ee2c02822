"""CPU kernels: the normal equations, block by block.

An entry of icov is the sum over the pixels that two spots share. The lanes of a vector are the four bins of a block
(see cpu_spots): one pass over the pixels that two blocks share makes the sixteen entries of their bins, without a sum
across lanes.
"""
import numpy as np
from numba import njit

from gpu_extract.backend import cpu_spots
from gpu_extract.backend.cpu_products import clear_rows, meets, multiply, scale_products, store, store_mirrored
from gpu_extract.backend.simd import (
    address,
    number,
    vadd,
    vdiv,
    vfma,
    vfold,
    vhalves,
    vless,
    vmax,
    vmul,
    vread,
    vread8,
    vset,
    vset8,
    vwrite,
    vwrite_single,
)
from gpu_extract.data import LANE

VECTOR = cpu_spots.VECTOR
SINGLE = VECTOR // 2      # bytes of four float32


@njit(nogil=True, cache=True)
def normal_tile(sums, recipe, blocks, cut, tile):  # type: ignore[no-untyped-def]
    """Fill bins first .. last - 1 of the normal equations of a bundle.

    sums: (icov (nfibre, ndf + 1, nwave, 2 hw + 1), rhs (nfibre, nwave), weight (nfibre, nwave))
    recipe: (numbers, cores, shape): see cpu_spots.make_spots; of bins origin, origin + 1, ... , which reach hw bins
        beyond both ends of the tile where such bins exist, in whole blocks
    blocks: (offsets (nfibre, 2, n), corners (4, nfibre, n / 4), stamps, scale) of the recipe's bins: see data.Blocks.
        Stamps and scale are filled for the tile and around it; stamps are left out where there is no room for them
    cut: (sqrt(ivar), sqrt(ivar) pix), each (rows, columns), which hold all frames
    tile: (first, last, origin), origin a multiple of 4

    Blocks are cut at multiples of 4 bins whatever the tile, and an entry is summed in the order of rows and columns of
    what two blocks share: it does not depend on the tile.
    """
    nfibre, _, _, nband = sums[0].shape
    corners = blocks[1]
    hw = nband // 2
    reach = (hw + LANE - 1) // LANE
    height, width = corners[2].max(), corners[3].max()
    pitch = (width + LANE) // LANE * LANE      # at least one column of zeros
    white = cpu_spots.aligned(nfibre * (reach + 1) * height * pitch * LANE).reshape(
        (nfibre, reach + 1, height, pitch, LANE))
    space = cpu_spots.aligned(cpu_spots.space_of(cpu_spots.terms_of(recipe[1]), (height, pitch)))
    _walk(sums, recipe, blocks, cut, tile, (white, space, np.concatenate((np.zeros(7 * LANE), np.arange(LANE)))))


@njit(nogil=True)
def _walk(sums, recipe, blocks, cut, tile, scratch):  # type: ignore[no-untyped-def]
    """normal_tile with its scratch: (white, space, products).

    white: (nfibre, slots, rows, pitch, 4), spots times sqrt(ivar); block b of a fibre is in slot b modulo slots
    products: of two blocks (16), then a block's weight, rhs and light (4 each), and 0, 1, 2, 3
    """
    icov, rhs, weight = sums
    corners = blocks[1]
    white, _, products = scratch
    nfibre, nd, nwave, nband = icov.shape
    slots, size = white.shape[1], VECTOR * white.shape[2] * white.shape[3]
    pitch, out, whites = VECTOR * white.shape[3], address(products, 0), address(white, 0)
    first, last = tile[0], tile[1]
    nblock, scales, zero = corners.shape[2], address(blocks[3], 0), tile[2] // LANE
    hw = nband // 2
    begin, end = max(zero, (first - hw) // LANE), min(zero + nblock, (last + hw + LANE - 1) // LANE)
    for later in range(begin, end):
        bins = LANE * later
        for i in range(nfibre):
            _make_white((i, later - zero), recipe, blocks, cut, scratch, (later, nwave))
            clear_rows(address(icov, i * nd * nwave * nband), (max(bins, first), min(bins + LANE, last)), icov.shape)
            for lane in range(LANE):
                j = bins + lane
                if first <= j < last:
                    weight[i, j] = products[4 * LANE + lane]
                    rhs[i, j] = products[5 * LANE + lane]
            for earlier in range(max(begin, later - slots + 1), later + 1):
                for d in range(min(nd, i + 1)):
                    for swap in range(2):
                        # the entries lie with the bins of the lower fibre
                        own, other = (earlier, later) if swap == 0 else (later, earlier)
                        if (swap == 1 and (d == 0 or own == other)) or not (
                                meets(own, first, last) or (d == 0 and meets(other, first, last))):
                            continue
                        a, b = (i - d, own - zero), (i, other - zero)
                        if not multiply(out, (whites + (a[0] * slots + own % slots) * size,
                                              whites + (b[0] * slots + other % slots) * size), corners, a, b, pitch):
                            continue
                        scale_products(out, scales + VECTOR * (a[0] * nblock + a[1]),
                                       scales + VECTOR * (b[0] * nblock + b[1]))
                        band = address(icov, ((i - d) * nd + d) * nwave * nband)
                        store(band, out, (LANE * own, LANE * other), (nband, first, last))
                        if d == 0 and own != other:
                            store_mirrored(band, out, (LANE * own, LANE * other), (nband, first, last))


@njit(nogil=True)
def _make_white(place, recipe, blocks, cut, scratch, bins_of):  # type: ignore[no-untyped-def]
    """Make a block of spots and whiten it; leaves their weight and rhs behind the products; see `_walk`.

    place: (fibre, block of the recipe); bins_of: (block of the bundle, nwave), bins from nwave on are left dark
    Spots are kept as they are made, with what scales them to the sum 1 beside them.
    """
    i, block = place
    later, nwave = bins_of
    numbers, cores, shape = recipe
    offsets, corners, single, scales = blocks
    white, space, products = scratch
    _, slots, rows, pitch, _ = white.shape
    n, j = numbers.shape[2], LANE * block
    row, column, height, width = corners[0, i, block], corners[1, i, block], corners[2, i, block], corners[3, i, block]
    bins = address(numbers, i * cpu_spots.NUMBERS * n + j), address(offsets, i * 2 * n + j), 8 * n
    both = (cpu_spots.core_at(cores[0], i, j, cpu_spots.CORES), cpu_spots.core_at(cores[1], i, j, cpu_spots.CORES + 3))
    cpu_spots.make_block(address(space, 0), bins, both, shape, (height, width, pitch))
    made = address(space, 0), address(white, (i * slots + later % slots) * rows * pitch * LANE)
    stride = cut[0].shape[1]
    pixels = address(cut[0], row * stride + column), address(cut[1], row * stride + column), 8 * stride
    out = address(products, 4 * LANE)
    if single.shape[2] > 0:
        copy = address(single, (i * single.shape[1] + block) * single.shape[2] * single.shape[3] * LANE)
        _clip_and_keep((made[0], copy), (height, (width + 1) // 2), VECTOR * pitch, SINGLE * single.shape[3])
    _whiten(out, made, pixels, (height, (width + 1) // 2), VECTOR * pitch)
    there = vless(vadd(vset(float(LANE * later)), vread(out + 3 * VECTOR)), vset(float(nwave)))
    light = vread(out + 2 * VECTOR)
    scale = vmul(there, vdiv(vless(vset(0.0), light), vmax(light, vset(1e-300))))
    vwrite(address(scales, (i * scales.shape[1] + block) * LANE), scale)
    vwrite(out, vmul(scale, vread(out)))
    vwrite(out + VECTOR, vmul(scale, vread(out + VECTOR)))


@njit(nogil=True)
def _whiten(out, blocks, pixels, shape, pitch):  # type: ignore[no-untyped-def]
    """Whitened spots, and the sums weight, rhs and light of the spots into three vectors of `out`.

    blocks: addresses of spots and whitened spots, rows `pitch` bytes apart; the columns behind the frame become 0
    pixels: addresses of sqrt(ivar) and sqrt(ivar) pix, bytes from row to row; shape: (rows, pairs of columns)
    """
    zero = vset8(0.0)
    weight, rhs, light = zero, zero, zero
    made, to = blocks
    root, pix, stride = pixels
    for _ in range(shape[0]):
        for x in range(shape[1]):
            at, near = 2 * VECTOR * x, 16 * x
            spot = vmax(vread8(made + at), zero)
            r = vhalves(number(root + near), number(root + near + 8))
            light = vadd(light, spot)
            spot = vmul(spot, r)
            vwrite(to + at, spot)
            weight = vfma(spot, r, weight)
            rhs = vfma(spot, vhalves(number(pix + near), number(pix + near + 8)), rhs)
        for at in range(2 * VECTOR * shape[1], pitch, VECTOR):
            vwrite(to + at, vset(0.0))
        made += pitch
        to += pitch
        root += stride
        pix += stride
    vwrite(out, vfold(weight))
    vwrite(out + VECTOR, vfold(rhs))
    vwrite(out + 2 * VECTOR, vfold(light))


@njit(nogil=True)
def _clip_and_keep(blocks, shape, pitch, line):  # type: ignore[no-untyped-def]
    """Copy spots, clipped at 0, in single precision; the columns behind the frame become 0; see `_whiten`."""
    made, to = blocks
    zero = vset8(0.0)
    for _ in range(shape[0]):
        for x in range(0, 2 * shape[1], 2):
            vwrite_single(to + SINGLE * x, vmax(vread8(made + VECTOR * x), zero))
        for x in range(2 * SINGLE * shape[1], line, 2 * SINGLE):
            vwrite_single(to + x, zero)
        made += pitch
        to += line
