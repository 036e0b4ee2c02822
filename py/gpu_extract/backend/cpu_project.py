"""CPU kernels: spectra to image and back, through the spots.

Sums over bins run over wavelength first, fibre second, whatever the tiles: a
pixel gets its light in the same order however the bins are cut.
"""
from numba import njit

from gpu_extract.backend.simd import address, prefetch, vadd, vfma, vload, vset, vstore, vsum


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
def add_to_cut(model, stamps, at, flux, stride):  # type: ignore[no-untyped-def]
    """model[at + pixel] += flux times spot, on a flat cut-out with `stride` pixels per row; no clipping needed."""
    nfibre, nwave, ny, width = stamps.shape
    flat = stamps.ravel()
    size = ny * width
    for j in range(nwave):
        for i in range(nfibre):
            light = vset(flux[i, j])
            spot = (i * nwave + j) * size
            for n in range(0, size, 16):
                prefetch(address(flat, spot + size + n))
            for y in range(ny):
                pixel = at[i, j] + y * stride
                for x in range(0, width, 4):
                    vstore(model, pixel + x, vfma(light, vload(flat, spot + y * width + x), vload(model, pixel + x)))


@njit(nogil=True, cache=True)
def adjoint_two(out, stamps, at, first, second, stride):  # type: ignore[no-untyped-def]
    """out[0] = A^T first, out[1] = A^T second for two flat cut-outs; out: (2, nfibre, nwave)."""
    nfibre, nwave, ny, width = stamps.shape
    flat = stamps.ravel()
    size = ny * width
    for j in range(nwave):
        for i in range(nfibre):
            spot = (i * nwave + j) * size
            for n in range(0, size, 16):
                prefetch(address(flat, spot + size + n))
            a0 = vset(0.0)
            a1 = vset(0.0)
            b0 = vset(0.0)
            b1 = vset(0.0)
            for y in range(ny):
                pixel = at[i, j] + y * stride
                row = spot + y * width
                for x in range(0, width - 4, 8):
                    s, t = vload(flat, row + x), vload(flat, row + x + 4)
                    a0 = vfma(s, vload(first, pixel + x), a0)
                    b0 = vfma(s, vload(second, pixel + x), b0)
                    a1 = vfma(t, vload(first, pixel + x + 4), a1)
                    b1 = vfma(t, vload(second, pixel + x + 4), b1)
                if width % 8:
                    s = vload(flat, row + width - 4)
                    a0 = vfma(s, vload(first, pixel + width - 4), a0)
                    b0 = vfma(s, vload(second, pixel + width - 4), b0)
            out[0, i, j] = vsum(vadd(a0, a1))
            out[1, i, j] = vsum(vadd(b0, b1))


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
