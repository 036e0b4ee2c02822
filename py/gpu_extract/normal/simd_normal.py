"""CPU kernels: the normal equations, block by block.

An element of icov is the sum over the pixels that two spots share. The lanes of a vector are the four bins of a block
(see simd_spots): one pass over the pixels that two blocks share makes the sixteen elements of their bins, without a sum
across lanes.
"""
# mypy: disallow-untyped-defs=False
import numpy as np

from gpu_extract.arrays import LANE
from gpu_extract.kernels.compiled import njit
from gpu_extract.normal.simd_products import clear_rows, couple, meets, rows_shared
from gpu_extract.normal.simd_rims import NUMBERS, OUTLINE, all_faint, faint, outline, rims
from gpu_extract.spots import simd_spots
from gpu_extract.vectors.simd import (address, integer, prefetch, vadd, vdiv, vfma, vfold, vhalf, vjoin, vless, vmax,
                                      vmul, vpixels, vpixels8, vread, vread8, vread16, vset, vset8, vset16, vwrite,
                                      vwrite_single)

VECTOR = simd_spots.VECTOR
SINGLE = VECTOR // 2      # bytes of four float32


@njit(cache=True, loops=False)
def normal_tile(sums, recipe, blocks, cut, tile):
    """Fill bins first .. last - 1 of the normal equations of a bundle.

    sums: (icov (nfibre, ndf + 1, nwave, 2 hw + 1), rhs (nfibre, nwave), weight (nfibre, nwave))
    recipe: simd_spots.Ingredients of bins origin, origin + 1, ... , which reach hw bins
        beyond both ends of the tile where such bins exist, in whole blocks
    blocks: (offsets (nfibre, 2, n), corners (4, nfibre, n / 4), begins, stamps, scale) of the recipe's bins: see
        data.Blocks. Stamps and scale are filled for the tile and around it; stamps only if there is memory for them
    cut: (sqrt(ivar), sqrt(ivar) pix), each (rows, columns), which hold all frames
    tile: (first, last, origin), origin a multiple of 4

    Blocks are cut at multiples of 4 bins in every tile, and an element is summed in the order of rows and columns of
    the pixels that two blocks share: it does not depend on the tile.
    """
    nfibre, nd, _, nband = sums[0].shape
    corners = blocks[1]
    hw = nband // 2
    reach = _reach(corners, nd, (hw + LANE - 1) // LANE)
    height, width = simd_spots.rounded(corners[2].max()), corners[3].max()
    pitch = (width + LANE) // LANE * LANE      # at least one column of zeros
    white = simd_spots.aligned(nfibre * (reach + 1) * height * pitch * LANE).reshape(
        (nfibre, reach + 1, height, pitch, LANE))
    space = simd_spots.aligned(simd_spots.space_of(simd_spots.terms_of(recipe), (height, pitch)))
    _walk(sums, recipe, blocks, cut, tile, (white, space, np.concatenate((np.zeros(7 * LANE), np.arange(LANE))),
                                            np.zeros((nfibre, reach + 1, NUMBERS)), np.zeros((nfibre, OUTLINE))))


@njit()
def _reach(corners, nd, most):
    """The largest distance of two blocks that share rows of pixels, up to `most`: for so long whitened spots are kept.

    The fewer are kept, the more of them are still in the caches when they are needed.
    """
    nfibre, nblock = corners.shape[1:]
    for apart in range(most, 0, -1):
        for i in range(nfibre):
            for j in range(max(i - nd + 1, 0), min(i + nd, nfibre)):
                for b in range(nblock - apart):
                    one, other = corners[0, i, b], corners[0, j, b + apart]
                    if one < other + corners[2, j, b + apart] and other < one + corners[2, i, b]:
                        return apart
    return 0


@njit()
def _walk(sums, recipe, blocks, cut, tile, scratch):
    """normal_tile with its scratch: (white, space, products, edges, outlines).

    white: (nfibre, slots, rows, pitch, 4), spots times sqrt(ivar); block b of a fibre is in slot b modulo slots. Spots
        are made there, too, because memory that was just written is quick to read
    products: of two blocks (16), then a block's weight, rhs and light (4 each), and 0, 1, 2, 3
    edges: the numbers of simd_rims for the blocks in the slots; outlines: for all blocks of a fibre
    Functions that are called for every block take addresses (see simd).
    """
    icov, rhs, weight = sums
    numbers, shape = recipe.numbers, recipe.shape
    offsets, corners, begins, single, scales = blocks
    white, space, products, edges, outlines = scratch
    nfibre, nd, nwave, nband = icov.shape
    nblock, slots, size = corners.shape[2], white.shape[1], VECTOR * white.shape[2] * white.shape[3]
    first, last, zero = tile[0], tile[1], tile[2] // LANE
    n, whites, factors = numbers.shape[2], address(white, 0), address(scales, 0)
    both = (simd_spots.core_at(recipe.first, simd_spots.CORES),
            simd_spots.core_at(recipe.second, simd_spots.CORES + 3))
    starts = address(numbers, 0), address(offsets, 0)
    copies, line, kept = address(single, 0), SINGLE * single.shape[1], len(single) > 0
    pixels, stride = (address(cut[0], 0), address(cut[1], 0)), cut[0].shape[1]
    sums_at, pitches = address(products, 4 * LANE), (VECTOR * white.shape[3], line, 8 * stride)
    begin = max(zero, (first - nband // 2) // LANE)
    for later in range(begin, min(zero + nblock, (last + nband // 2 + LANE - 1) // LANE)):
        bins, block = LANE * later, later - zero
        for i in range(nfibre):
            frame = corners[2, i, block], corners[3, i, block], white.shape[3]
            pixel, place = 8 * (corners[0, i, block] * stride + corners[1, i, block]), i * nblock + block
            slot = i * slots + later % slots
            made = whites + slot * size
            # the previous fibre prefetched all but the last pixels; the next one's numbers are far from this one's
            following, near = (i + 1) % nfibre, 8 * (frame[1] - 1)
            _ask_for(pixels[0] + pixel + near, pixels[1] + pixel + near, frame[0], 8 * stride)
            _ask_for(starts[0] + 8 * (following * simd_spots.NUMBERS * n + LANE * block),
                     starts[1] + 8 * (following * 2 * n + LANE * block), simd_spots.TAIL, 8 * n)
            simd_spots.make_block(made, address(space, 0),
                                  (starts[0] + 8 * (i * simd_spots.NUMBERS * n + LANE * block),
                                   starts[1] + 8 * (i * 2 * n + LANE * block), 8 * n),
                                  (simd_spots.core_of(both[0], i, LANE * block),
                                   simd_spots.core_of(both[1], i, LANE * block)), shape, frame)
            _whiten((sums_at, copies + begins[i, block] * line), made, (pixels[0] + pixel, pixels[1] + pixel),
                    (frame[0], frame[1], frame[0] if kept else 0), pitches)
            rims(address(edges, slot * NUMBERS), made, (frame[0], frame[1]), pitches[0])
            _scale(sums_at, factors + VECTOR * place, (bins, nwave))
            clear_rows(address(icov, i * nd * nwave * nband), (max(bins, first), min(bins + LANE, last)), icov.shape)
            for j in range(max(bins, first), min(bins + LANE, last)):
                weight[i, j], rhs[i, j] = products[4 * LANE + j - bins], products[5 * LANE + j - bins]
            oldest = max(begin, later - slots + 1)
            outline(address(outlines, i * OUTLINE), (address(edges, i * slots * NUMBERS), slots),
                    (address(corners, i * nblock + oldest - zero), later - oldest + 1), 8 * nfibre * nblock)
            _meet((address(icov, 0), address(products, 0), address(corners, 0), factors), icov.shape,
                  (whites, address(edges, 0), slots, size, pitches[0]), (i, oldest, later),
                  (first, last, zero, nblock), address(outlines, 0))


@njit()
def _meet(to, shape, whites, place, tile, outlines):
    """The elements of a fibre's block with the earlier ones, and itself, of its own and of the fibres before it.

    to: addresses of icov, products, corners and scales; shape: of icov
    whites: (address, that of `edges`, slots, bytes of a block, bytes of a row)
    place: (fibre, oldest block that is kept, later block); tile: (first, last, first block of the recipe, number of
        its blocks); outlines: address of the fibres'
    Elements are stored with the bins of the lower fibre.
    """
    icov, out, corners, factors = to
    nfibre, nd, nwave, nband = shape
    white, edges, slots, size, pitch = whites
    i, oldest, later = place
    first, last, zero, nblock = tile
    step, newest = 8 * nfibre * nblock, later % slots
    for d in range(min(nd, i + 1)):
        if d > 1 and all_faint(outlines + 8 * OUTLINE * (i - d), outlines + 8 * OUTLINE * i):
            continue
        band = icov + 8 * ((i - d) * nd + d) * nwave * nband
        slot = oldest % slots - 1       # divisions take as long as a whole row of products
        for earlier in range(oldest, later + 1):
            slot = slot + 1 if slot + 1 < slots else 0
            for swap in range(1 if d == 0 or earlier == later else 2):
                own, other = (earlier, later) if swap == 0 else (later, earlier)
                if not (meets(own, first, last) or (d == 0 and meets(other, first, last))):
                    continue
                a, b = (i - d) * nblock + own - zero, i * nblock + other - zero
                frames = corners + 8 * a, corners + 8 * b, step
                if rows_shared(frames) <= 0:
                    continue
                one, two = (slot, newest) if swap == 0 else (newest, slot)
                one, two, left = (i - d) * slots + one, i * slots + two, frames[0] + step
                shared = integer(left) + integer(left + 2 * step) - integer(frames[1] + step)     # columns
                if d > 0 and faint(edges + 8 * NUMBERS * one, edges + 8 * NUMBERS * two, shared):
                    continue
                couple(out, band, (white + one * size, white + two * size), frames,
                       (factors + VECTOR * a, factors + VECTOR * b), (LANE * own, LANE * other), pitch,
                       (nband, first, last, d == 0))


@njit()
def _ask_for(first, second, rows, step):
    """Prefetch the cache lines at two addresses, and in `rows` rows that are `step` bytes apart."""
    for _ in range(rows):
        prefetch(first)
        prefetch(second)
        first += step
        second += step


@njit()
def _whiten(to, made, pixels, shape, pitches):
    """Clip and whiten spots in place; write a copy in single precision, and the sums weight, rhs and light.

    to: addresses of the sums, four numbers each, and of the copy; made: of the spots
    pixels: of sqrt(ivar) and sqrt(ivar) pix; shape: (rows, columns, rows to copy)
    pitches: bytes from row to row of the spots, of the copy and of the pixels. After the frame, the rest of a row
        becomes 0 in the copy, and one column in the whitened spots.
    """
    zero, none = vset16(0.0), vset8(0.0)
    weight, rhs, light = zero, zero, zero
    sums, copy = to
    root, pix = pixels
    pitch, line, stride = pitches
    pairs = (shape[1] + 1) // 2
    fours, size = pairs // 2 * 4 * VECTOR, pairs * 2 * VECTOR
    for y in range(shape[0]):
        for at in range(0, fours, 4 * VECTOR):
            spot, near = vmax(vread16(made + at), zero), at // LANE
            if y < shape[2]:
                vwrite_single(copy + at // 2, spot)
            light = vadd(light, spot)
            r = vpixels(root + near)
            spot = vmul(spot, r)
            vwrite(made + at, spot)
            weight = vfma(spot, r, weight)
            rhs = vfma(spot, vpixels(pix + near), rhs)
        if fours < size:
            half, near = vmax(vread8(made + fours), none), fours // LANE
            if y < shape[2]:
                vwrite_single(copy + fours // 2, half)
            light = vjoin(light, vadd(vhalf(light), half))
            r8 = vpixels8(root + near)
            half = vmul(half, r8)
            vwrite(made + fours, half)
            weight = vjoin(weight, vfma(half, r8, vhalf(weight)))
            rhs = vjoin(rhs, vfma(half, vpixels8(pix + near), vhalf(rhs)))
        if size == VECTOR * shape[1]:
            vwrite(made + size, vset(0.0))
        for at in range(size // 2, line if y < shape[2] else 0, 2 * SINGLE):
            vwrite_single(copy + at, none)
        made += pitch
        copy += line
        root += stride
        pix += stride
    vwrite(sums, vfold(weight))
    vwrite(sums + VECTOR, vfold(rhs))
    vwrite(sums + 2 * VECTOR, vfold(light))


@njit()
def _scale(sums, scales, bins):
    """The factors that scale spots to the sum 1, from their light; weight and rhs are scaled by them; see `_whiten`.

    bins: (the first of the four, number of all bins); bins beyond those have no light
    """
    there = vless(vadd(vset(float(bins[0])), vread(sums + 3 * VECTOR)), vset(float(bins[1])))
    light = vread(sums + 2 * VECTOR)
    scale = vmul(there, vdiv(vless(vset(0.0), light), vmax(light, vset(1e-300))))
    vwrite(scales, scale)
    vwrite(sums, vmul(scale, vread(sums)))
    vwrite(sums + VECTOR, vmul(scale, vread(sums + VECTOR)))
