"""CPU kernels: spectra to image and back, through the spots.

A pixel gets its light in an order that does not depend on how bins are cut: by wavelength, then fibre, in
`add_to_image`; by the first row of a block in `judge` and `add_blocks`.
"""
# mypy: disallow-untyped-defs=False
import numpy as np

from gpu_extract.arrays import LANE
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import (address, prefetch, vadd, vdiv, vfma, vhalf, vless, vmax, vmul, vread, vread8,
                                      vset, vset8, vsign, vsub, vupper, vwrite)
from gpu_extract.vectors.spot_vectors import (add_to, by_bin, columns, columns1, columns2, nothing, pixels, spread,
                                              spread2, unsigned, wide8, write_narrow)


@njit(cache=True)
def add_to_image(image, stamps, y0, x0, flux):
    """image[y, x] += sum of flux times spot; spots are clipped at the image's edges."""
    nfibre, nwave, ny, width = stamps.shape
    rows, columns = image.shape
    for j in range(nwave):
        for i in range(nfibre):
            light = flux[i, j]
            top, left = y0[i, j], x0[i, j]
            first, last = max(0, -left), min(width, columns - left)
            for y in range(max(0, -top), min(ny, rows - top)):
                for x in range(first, last):
                    image[top + y, left + x] += light * stamps[i, j, y, x]


AHEAD = 16     # blocks by which blocks are prefetched
BEFORE = 4     # rows by which pixels are prefetched


@njit(cache=True, loops=False)
def judge(out, blocks, x, images, psferr):
    """out[0] = chi2pix = A^T chi^2 / A^T [ivar > 0] and out[1] = 1 - A^T [ivar > 0], out: (2, nfibre, 4 nblock).

    blocks: (stamps, begins, order, scale, corners), see data.Blocks; x: (nfibre, 4 nblock)
    images: (model, root, light), float64 images of a cut-out, rows of whole vectors of eight; model is undefined before

    Blocks are taken in order of their first row. A row of pixels is judged as soon as no later block touches it, and a
    block is summed up once all its rows are judged: its spots are then still in the processor's cache. A row of chi^2
    replaces the beginning of the row of the model from which it is made.
    """
    stamps, begins, order, scale, corners = blocks
    kind, size = stamps.dtype.type(0), stamps.itemsize
    line = stamps.shape[1] * LANE * size
    steps = 8 * images[0].shape[1], line, LANE * LANE * size
    model, spots, values, scales = address(images[0], 0), address(stamps, 0), address(x, 0), address(scale, 0)
    sums = address(out, 0), address(out, out.size // 2), scales
    frames = _in_turn(order, corners, begins)
    cleared = judged = summed = 0
    for k in range(len(order)):
        n, soon = order[k], min(k + AHEAD, len(order) - 1)
        prefetch(values + 32 * order[soon])
        prefetch(scales + 32 * order[soon])
        row, end = frames[k, 0], frames[k, 0] + frames[k, 2]
        if row > judged:
            chi_square(images, (judged, min(row, cleared)), psferr, (kind, size))
            judged = row
            summed = _sum_up(sums, (order, frames, line), (summed, judged), (model, spots), steps, kind)
        if end > cleared:
            images[0][max(cleared, row):end] = 0.0
            cleared = end
        _add_block((model + row * steps[0] + 8 * frames[k, 1], spots + line * frames[k, 4]),
                   (frames[k, 2], frames[k, 3]), (*steps, line * (frames[soon, 4] - frames[k, 4])),
                   vmul(vread(values + 32 * n), vread(scales + 32 * n)), kind)
    chi_square(images, (judged, cleared), psferr, (kind, size))
    _sum_up(sums, (order, frames, line), (summed, cleared), (model, spots), steps, kind)


@njit(cache=True)
def add_blocks(model, blocks, x):
    """model = A x on a cut-out, rows of whole vectors of eight; blocks and x as in `judge`, with the same bits."""
    stamps, begins, order, scale, corners = blocks
    kind, size = stamps.dtype.type(0), stamps.itemsize
    line = stamps.shape[1] * LANE * size
    steps = 8 * model.shape[1], line, LANE * LANE * size
    image, spots, values, scales = address(model, 0), address(stamps, 0), address(x, 0), address(scale, 0)
    frames = _in_turn(order, corners, begins)
    model[:] = 0.0
    for k in range(len(order)):
        n, soon = order[k], min(k + AHEAD, len(order) - 1)
        _add_block((image + frames[k, 0] * steps[0] + 8 * frames[k, 1], spots + line * frames[k, 4]),
                   (frames[k, 2], frames[k, 3]), (*steps, line * (frames[soon, 4] - frames[k, 4])),
                   vmul(vread(values + 32 * n), vread(scales + 32 * n)), kind)


@njit()
def _in_turn(order, corners, begins):
    """(n, 5) first row and column, height, width and place of the blocks, in the given order.

    They are far apart in memory. Gathering them first avoids a wait for each.
    """
    frames, starts, found = corners.reshape(4, -1), begins.ravel(), np.empty((len(order), 5), dtype=np.int64)
    for k in range(len(order)):
        n = order[k]
        found[k, 0], found[k, 1], found[k, 2], found[k, 3] = frames[0, n], frames[1, n], frames[2, n], frames[3, n]
        found[k, 4] = starts[n]
    return found


@njit()
def _sum_up(sums, blocks, progress, places, steps, kind):
    """Sum up the next blocks that end before the first row that is not judged; returns how many are done.

    sums: addresses of both sums and of the scale; blocks: (order, `_in_turn`, bytes of a row of spots)
    progress: (blocks done, rows judged); places: addresses of the model and of all spots; steps: the first three of
    _add_block's
    """
    order, frames, line = blocks
    summed, judged = progress
    while summed < len(order):
        n, row, column = order[summed], frames[summed, 0], frames[summed, 1]
        height, width = frames[summed, 2], frames[summed, 3]
        if row + height > judged:
            break
        _adjoint_block((sums[0] + 32 * n, sums[1] + 32 * n), vread(sums[2] + 32 * n),
                       (places[0] + row * steps[0] + column * steps[2] // 16, places[1] + line * frames[summed, 4]),
                       (height, width), steps, kind)
        summed += 1
    return summed


@njit()
def _add_block(places, shape, steps, light, kind):
    """model += light times spot for a block's four bins; columns are taken by fours, the last ones by twos.

    places: addresses of the frame's first pixel and of the block; shape: height and width
    steps: bytes from row to row of the model and of the block, of four columns, and to the block that is prefetched
    A column beyond the frame's holds zeros.
    """
    model, stamps = places
    height, pairs = shape[0], (shape[1] + 1) // 2
    stride, line, unit, soon = steps
    for _ in range(height // 2):
        s, at = stamps, model
        for _ in range(pairs // 2):
            t = s + line
            prefetch(s + soon)
            prefetch(t + soon)
            made = pixels(wide8(s, kind), wide8(s + unit // 2, kind), wide8(t, kind), wide8(t + unit // 2, kind), light)
            add_to(at, vhalf(made))
            add_to(at + stride, vupper(made))
            s += unit
            at += 8 * LANE
        if pairs % 2 == 1:
            prefetch(s + soon)
            prefetch(s + line + soon)
            one, other = wide8(s, kind), wide8(s + line, kind)
            four = vhalf(pixels(one, other, one, other, light))
            add_to(at, vhalf(four))
            add_to(at + stride, vupper(four))
        model += 2 * stride
        stamps += 2 * line
    if height % 2 == 1:
        for _ in range(pairs):
            prefetch(stamps + soon)
            one = wide8(stamps, kind)
            add_to(model, vhalf(vhalf(pixels(one, one, one, one, light))))
            stamps += unit // 2
            model += 4 * LANE


@njit()
def _adjoint_block(out, scale, places, shape, steps, kind):
    """A block's chi2pix and pixmask_fraction, to two addresses; 0 and 1 if no good pixel is touched.

    scale: of the spots; places: addresses of the frame's chi^2 (negative where masked, see chi_square) and of the
        block; see _add_block
    Two rows are taken at a time, with sixteen partial sums of each for a bin: they stay small, and so does their
    rounding. Two columns that are left over are taken for both rows at once.
    """
    chi, stamps = places
    height, pairs = shape[0], (shape[1] + 1) // 2
    stride, line, unit = steps
    far = unit // LANE
    a0 = a1 = b0 = b1 = nothing(kind)
    for _ in range(height // 2):
        at, pixel = stamps, chi
        for _ in range(pairs // 2):
            s, t = columns(at, kind), columns(at + line, kind)
            u, v = spread(pixel, kind), spread(pixel + stride, kind)
            a0, b0 = vfma(s, u, a0), vadd(unsigned(s, u), b0)
            a1, b1 = vfma(t, v, a1), vadd(unsigned(t, v), b1)
            at += unit
            pixel += far
        if pairs % 2 == 1:
            s, u = columns2(at, at + line, kind), spread2(pixel, pixel + stride, kind)
            a0, b0 = vfma(s, u, a0), vadd(unsigned(s, u), b0)
        chi += 2 * stride
        stamps += 2 * line
    if height % 2 == 1:
        for _ in range(pairs):
            s, u = columns1(stamps, kind), spread2(chi, chi, kind)
            a0, b0 = vfma(s, u, a0), vadd(unsigned(s, u), b0)
            stamps += unit // 2
            chi += far // 2
    total, seen = vmul(scale, vadd(by_bin(a0), by_bin(a1))), vmul(scale, vadd(by_bin(b0), by_bin(b1)))
    vwrite(out[0], vmul(vless(vset(0.0), seen), vdiv(total, vmax(seen, vset(1e-300)))))
    vwrite(out[1], vmax(vset(0.0), vsub(vset(1.0), seen)))


@njit()
def chi_square(images, span, psferr, form):
    """(pix - model)^2 W', 1/W' = 1/ivar + (psferr model)^2, -0.0 where ivar is 0, in place of rows of the model.

    images: (model, root, light), light = root pix; span: of rows; form: (kind, size) of the elements that are written
    """
    one, error_of, least = vset8(1.0), vset8(psferr), vset8(1e-200)     # roots of numbers above 0 are above 1e-162
    kind, size = form
    stride = 8 * images[0].shape[1]
    model, root, light = address(images[0], 0), address(images[1], 0), address(images[2], 0)
    for y in range(span[0] * stride, span[1] * stride, stride):
        for x in range(0, stride // 8, 8):
            at = y + 8 * x
            prefetch(root + at + BEFORE * stride)
            prefetch(light + at + BEFORE * stride)
            r = vread8(root + at)
            scaled = vmul(r, vread8(model + at))
            difference, error = vsub(vread8(light + at), scaled), vmul(error_of, scaled)
            value = vdiv(vmul(difference, difference), vfma(error, error, one))
            write_narrow(model + y + size * x, vsign(value, vsub(r, least)), kind)
