"""CPU kernels: spectra to image and back, through the spots.

Sums over bins run over wavelength first, fibre second, whatever the tiles: a
pixel gets its light in the same order however the bins are cut.
"""
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


@njit(nogil=True, cache=True)
def add_to_cut(model, stamps, corners, flux, stride):  # type: ignore[no-untyped-def]
    """model += flux times spot, on a flat cut-out with `stride` pixels per row; no clipping needed.

    stamps, corners: see data.Blocks; columns are taken by fours, those beyond a frame hold zeros
    flux: (nfibre, 4 nblock)
    """
    nfibre, nblock, rows, columns, _ = stamps.shape
    flat = stamps.ravel()
    for b in range(nblock):
        for i in range(nfibre):
            light = vload(flux.ravel(), (i * nblock + b) * LANE)
            spot = (i * nblock + b) * rows * columns * LANE
            pixel = corners[0, i, b] * stride + corners[1, i, b]
            for y in range(corners[2, i, b]):
                at = spot + y * columns * LANE
                for x in range(0, corners[3, i, b], 4):
                    s = at + x * LANE
                    four = vsums(vmul(light, vload(flat, s)), vmul(light, vload(flat, s + LANE)),
                                 vmul(light, vload(flat, s + 2 * LANE)), vmul(light, vload(flat, s + 3 * LANE)))
                    vstore(model, pixel + y * stride + x, vadd(four, vload(model, pixel + y * stride + x)))


@njit(nogil=True, cache=True)
def adjoint_two(out, stamps, corners, both, stride):  # type: ignore[no-untyped-def]
    """out[k] = A^T both[k] for two flat cut-outs; out: (2, nfibre, 4 nblock); columns are taken by twos."""
    nfibre, nblock, rows, columns, _ = stamps.shape
    first, second = both
    flat, to = stamps.ravel(), out.ravel()
    for b in range(nblock):
        for i in range(nfibre):
            spot = (i * nblock + b) * rows * columns * LANE
            pixel = corners[0, i, b] * stride + corners[1, i, b]
            a0 = vset(0.0)
            a1 = vset(0.0)
            b0 = vset(0.0)
            b1 = vset(0.0)
            for y in range(corners[2, i, b]):
                at = spot + y * columns * LANE
                near = pixel + y * stride
                for x in range(0, corners[3, i, b], 2):
                    s, t = vload(flat, at + x * LANE), vload(flat, at + (x + 1) * LANE)
                    a0 = vfma(s, vset(first[near + x]), a0)
                    b0 = vfma(s, vset(second[near + x]), b0)
                    a1 = vfma(t, vset(first[near + x + 1]), a1)
                    b1 = vfma(t, vset(second[near + x + 1]), b1)
            vstore(to, (i * nblock + b) * LANE, vadd(a0, a1))
            vstore(to, ((nfibre + i) * nblock + b) * LANE, vadd(b0, b1))


@njit(nogil=True, cache=True)
def chi_square(model, good, root, light, psferr):  # type: ignore[no-untyped-def]
    """model becomes (pix - model)^2 W', good becomes [W' > 0]; 1/W' = 1/ivar + (psferr model)^2; flat arrays.

    root, light: sqrt(ivar), sqrt(ivar) pix
    """
    for n in range(len(model)):
        scaled = root[n] * model[n]
        difference = light[n] - scaled
        error = psferr * scaled
        model[n] = difference * difference / (1.0 + error * error)
        good[n] = 1.0 if root[n] > 0.0 else 0.0
