"""CPU kernels: the normal equations as sums over the overlaps of spots.

An entry of icov is the sum over the pixels that two spots share; the spots
start at multiples of four columns, so a row of the overlap is a few whole
vectors. Each entry depends on its two spots and their pixels alone.
"""
import numpy as np
from numba import njit

from gpu_extract.backend.simd import vadd, vfma, vload, vmul, vset, vstore, vsum


@njit(nogil=True, cache=True)
def half_bands(reach, y0, x0, on_ccd, stamp):  # type: ignore[no-untyped-def]
    """reach[d] = largest |k| at which spot (i, j) overlaps spot (i + d, j + k), -1 where none does.

    y0, x0: (nfibre, nwave), y ascending or descending along wavelength; on_ccd: same shape, bool;
    stamp: (ny, nx). reach: (nfibre,) int64, filled here.
    """
    nfibre, nwave = y0.shape
    ny, nx = stamp
    reach[:] = -1
    for d in range(nfibre):
        for i in range(nfibre - d):
            for j in range(nwave):
                if not on_ccd[i, j]:
                    continue
                for step in (-1, 1):
                    k = 0 if step == 1 else -1
                    while 0 <= j + k < nwave:
                        near = abs(y0[i + d, j + k] - y0[i, j]) < ny
                        if near and abs(x0[i + d, j + k] - x0[i, j]) < nx and on_ccd[i + d, j + k]:
                            reach[d] = max(reach[d], abs(k))
                        if not near and abs(k) > reach[d]:
                            break
                        k += step
        if d > 0 and reach[d] < 0:
            break


@njit(nogil=True, cache=True)
def _overlap(a, b, rows, vectors, width):  # type: ignore[no-untyped-def]
    """Sum over the overlap of two spots; a: (array, first element), b likewise, `vectors` vectors per row."""
    first, pa = a
    second, pb = b
    s0 = vset(0.0)
    s1 = vset(0.0)
    s2 = vset(0.0)
    s3 = vset(0.0)
    fours = vectors // 4 * 4
    for _ in range(rows):
        for v in range(0, fours, 4):
            s0 = vfma(vload(first, pa + 4 * v), vload(second, pb + 4 * v), s0)
            s1 = vfma(vload(first, pa + 4 * v + 4), vload(second, pb + 4 * v + 4), s1)
            s2 = vfma(vload(first, pa + 4 * v + 8), vload(second, pb + 4 * v + 8), s2)
            s3 = vfma(vload(first, pa + 4 * v + 12), vload(second, pb + 4 * v + 12), s3)
        if vectors - fours >= 2:
            s0 = vfma(vload(first, pa + 4 * fours), vload(second, pb + 4 * fours), s0)
            s1 = vfma(vload(first, pa + 4 * fours + 4), vload(second, pb + 4 * fours + 4), s1)
        if vectors % 2:
            s2 = vfma(vload(first, pa + 4 * vectors - 4), vload(second, pb + 4 * vectors - 4), s2)
        pa += width
        pb += width
    return vsum(vadd(vadd(s0, s1), vadd(s2, s3)))


@njit(nogil=True, cache=True)
def _weigh(out, flat, spot, ivar, pixel, shape):  # type: ignore[no-untyped-def]
    """out = spot times ivar; returns sum of out. shape: (ny, width, stride of ivar)."""
    ny, width, stride = shape
    total = vset(0.0)
    for y in range(ny):
        for x in range(0, width, 4):
            value = vmul(vload(flat, spot + y * width + x), vload(ivar, pixel + y * stride + x))
            vstore(out, y * width + x, value)
            total = vadd(total, value)
    return vsum(total)


@njit(nogil=True, cache=True)
def normal_tile(icov, rhs, weight, stamps, position, ivar, pix, tile):  # type: ignore[no-untyped-def]
    """Fill rows first .. last - 1 (in wavelength) of the normal equations of a bundle.

    icov: (nfibre, ndf + 1, nwave, 2 hw + 1), zero on entry; rhs, weight: (nfibre, nwave)
    stamps: (nfibre, nspot, ny, width) the spots of bins start .. start + nspot - 1, which must reach hw bins
        beyond both ends of the tile where such bins exist
    position: (2, nfibre, nspot) row and column of the spots on the cut-out, entirely inside it
    ivar, pix: (rows, columns) cut-out; pix is 0 where ivar is
    tile: (first, last, start)
    """
    nfibre, nspot, ny, width = stamps.shape
    ndf, hw = icov.shape[1] - 1, icov.shape[3] // 2
    first, last, start = tile
    stride = ivar.shape[1]
    flat, flat_ivar, flat_pix = stamps.ravel(), ivar.ravel(), pix.ravel()
    size = ny * width
    weighted = np.zeros(size)
    for j in range(max(first - hw, start), last):
        a = j - start
        for i in range(nfibre):
            ya, xa = position[0, i, a], position[1, i, a]
            pixel = ya * stride + xa
            total = _weigh(weighted, flat, (i * nspot + a) * size, flat_ivar, pixel, (ny, width, stride))
            if j >= first:
                weight[i, j] = total
                light = vset(0.0)
                for y in range(ny):
                    for x in range(0, width, 4):
                        light = vfma(vload(weighted, y * width + x), vload(flat_pix, pixel + y * stride + x), light)
                rhs[i, j] = vsum(light)
            if total == 0.0:
                continue
            for d in range(min(ndf, nfibre - 1 - i) + 1):
                if d > 0 and j < first:
                    break
                other = i + d
                for k in range(0 if d == 0 else -hw, hw + 1):
                    b = a + k
                    if b < 0 or b >= nspot:
                        continue
                    dy, dx = position[0, other, b] - ya, position[1, other, b] - xa
                    rows, columns = ny - abs(dy), width - abs(dx)
                    if rows <= 0 or columns <= 0:
                        continue
                    pa = max(dy, 0) * width + max(dx, 0)
                    pb = (other * nspot + b) * size + max(-dy, 0) * width + max(-dx, 0)
                    value = _overlap((weighted, pa), (flat, pb), rows, columns // 4, width)
                    if j >= first:
                        icov[i, d, j, hw + k] = value
                    if d == 0 and k > 0 and first <= j + k < last:
                        icov[i, 0, j + k, hw - k] = value
