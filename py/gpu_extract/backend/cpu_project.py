"""CPU kernels: spectra to image and back, through the spots.

Sums over bins run over wavelength first, fibre second, whatever the tiles: a
pixel gets its light in the same order however the bins are cut.
"""
import numpy as np
from numba import njit

from gpu_extract.backend.simd import vadd, vfma, vload, vmul, vset, vstore, vsums
from gpu_extract.data import LANE


@njit(nogil=True, cache=True)
def add_to_image(image, stamps, y0, x0, flux):  # type: ignore[no-untyped-def]
    """image[y, x] += sum of flux times spot, spots clipped at the image's edges."""
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


@njit(nogil=True)
def _add_block(model, stamps, place, corner, light, stride):  # type: ignore[no-untyped-def]
    """model += light times spot for a block's four bins; columns are taken by fours, those beyond a frame hold zeros.

    stamps: flat; place: (first element of the block, elements of a row); corner: (pixel, height, width)
    """
    for y in range(corner[1]):
        at = place[0] + y * place[1]
        pixel = corner[0] + y * stride
        for x in range(0, corner[2], 4):
            s = at + x * LANE
            four = vsums(vmul(light, vload(stamps, s)), vmul(light, vload(stamps, s + LANE)),
                         vmul(light, vload(stamps, s + 2 * LANE)), vmul(light, vload(stamps, s + 3 * LANE)))
            vstore(model, pixel + x, vadd(four, vload(model, pixel + x)))


@njit(nogil=True)
def _adjoint_block(out, to, stamps, place, corner, images):  # type: ignore[no-untyped-def]
    """out[0, to ..] = sums of a block's spots times an image, out[1, to ..] = those over its good pixels.

    out: (2, n); images: (image, sqrt(ivar), stride); see `_add_block`; columns are taken by twos
    """
    image, root, stride = images
    a0, a1, b0, b1 = vset(0.0), vset(0.0), vset(0.0), vset(0.0)
    for y in range(corner[1]):
        at = place[0] + y * place[1]
        pixel = corner[0] + y * stride
        for x in range(0, corner[2], 2):
            s, t = vload(stamps, at + x * LANE), vload(stamps, at + (x + 1) * LANE)
            a0 = vfma(s, vset(image[pixel + x]), a0)
            b0 = vfma(s, vset(1.0 if root[pixel + x] > 0.0 else 0.0), b0)
            a1 = vfma(t, vset(image[pixel + x + 1]), a1)
            b1 = vfma(t, vset(1.0 if root[pixel + x + 1] > 0.0 else 0.0), b1)
    vstore(out, to, vadd(a0, a1))
    vstore(out, len(out) // 2 + to, vadd(b0, b1))


@njit(nogil=True, cache=True)
def judge(out, stamps, corners, flux, pixels, psferr):  # type: ignore[no-untyped-def]
    """out[0] = A^T chi^2, out[1] = A^T [ivar > 0], out: (2, nfibre, 4 nblock).

    stamps, corners: see data.Blocks; flux: (nfibre, 4 nblock)
    pixels: (model, root, light), three images of a cut-out; model is 0 on entry and becomes chi^2

    Blocks are taken in order of wavelength. As soon as no later one reaches down to a row of pixels it is judged, and
    blocks all of whose rows are judged are summed up: their spots are then still in the processor's cache.
    """
    nfibre, nblock, rows, columns, _ = stamps.shape
    model, root, light = pixels[0].ravel(), pixels[1].ravel(), pixels[2].ravel()
    flat, values, sums = stamps.ravel(), flux.ravel(), out.ravel()
    nrow, stride = pixels[1].shape
    lowest, highest = np.full(nblock + 1, nrow), np.zeros(nblock, dtype=np.int64)
    for b in range(nblock - 1, -1, -1):
        lowest[b] = lowest[b + 1]
        for i in range(nfibre):
            lowest[b] = min(lowest[b], corners[0, i, b])
            highest[b] = max(highest[b], corners[0, i, b] + corners[2, i, b])
    judged, summed = 0, 0
    for b in range(nblock):
        for i in range(nfibre):
            n = i * nblock + b
            corner = corners[0, i, b] * stride + corners[1, i, b], corners[2, i, b], corners[3, i, b]
            place = n * rows * columns * LANE, columns * LANE
            _add_block(model, flat, place, corner, vload(values, n * LANE), stride)
        if lowest[b + 1] > judged:
            span = slice(judged * stride, lowest[b + 1] * stride)
            chi_square(model[span], root[span], light[span], psferr)
            judged = lowest[b + 1]
        while summed <= b and highest[summed] <= judged:
            for i in range(nfibre):
                n = i * nblock + summed
                corner = (corners[0, i, summed] * stride + corners[1, i, summed], corners[2, i, summed],
                          corners[3, i, summed])
                _adjoint_block(sums, n * LANE, flat, (n * rows * columns * LANE, columns * LANE), corner,
                               (model, root, stride))
            summed += 1


@njit(nogil=True)
def chi_square(model, root, light, psferr):  # type: ignore[no-untyped-def]
    """model becomes (pix - model)^2 W', 1/W' = 1/ivar + (psferr model)^2; flat arrays.

    root, light: sqrt(ivar), sqrt(ivar) pix
    """
    for n in range(len(model)):
        scaled = root[n] * model[n]
        difference = light[n] - scaled
        error = psferr * scaled
        model[n] = difference * difference / (1.0 + error * error)
