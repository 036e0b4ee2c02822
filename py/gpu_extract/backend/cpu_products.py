"""CPU kernels: entries of icov, from the products of two blocks of whitened spots (see cpu_normal)."""
from numba import njit

from gpu_extract.backend.simd import number, vadd, vfma, vmul, vread, vset, vspread, vwrite, write
from gpu_extract.data import LANE

VECTOR = 8 * LANE      # bytes of the four bins of a block, at one pixel


@njit(nogil=True)
def clear_rows(fibre, bins, shape):  # type: ignore[no-untyped-def]
    """Zero the entries of bins bins[0] .. bins[1] - 1 of a fibre, just before the first are written.

    fibre: address of its (nd, nwave, nband); shape: of icov
    """
    _, nd, nwave, nband = shape
    count = 8 * nband * max(bins[1] - bins[0], 0)
    for d in range(nd):
        row = fibre + 8 * (d * nwave + bins[0]) * nband
        for at in range(0, count - VECTOR + 1, VECTOR):
            vwrite(row + at, vset(0.0))
        for at in range(count // VECTOR * VECTOR, count, 8):
            write(row + at, 0.0)


@njit(nogil=True)
def meets(block, first, last):  # type: ignore[no-untyped-def]
    """Whether a block has bins among first .. last - 1."""
    return LANE * block < last and LANE * block + LANE > first


@njit(nogil=True)
def multiply(out, whites, corners, a, b, pitch):  # type: ignore[no-untyped-def]
    """out[4 l + m] = product of lane l of block a with lane m of block b; False where they share no pixel.

    whites: addresses of the blocks; a, b: (fibre, block), indices into corners; pitch: bytes from row to row
    """
    top = max(corners[0, a[0], a[1]], corners[0, b[0], b[1]])
    rows = min(corners[0, a[0], a[1]] + corners[2, a[0], a[1]], corners[0, b[0], b[1]] + corners[2, b[0], b[1]]) - top
    left = max(corners[1, a[0], a[1]], corners[1, b[0], b[1]])
    columns = min(corners[1, a[0], a[1]] + corners[3, a[0], a[1]],
                  corners[1, b[0], b[1]] + corners[3, b[0], b[1]]) - left
    if rows <= 0 or columns <= 0:
        return False
    at_a = whites[0] + (top - corners[0, a[0], a[1]]) * pitch + (left - corners[1, a[0], a[1]]) * VECTOR
    at_b = whites[1] + (top - corners[0, b[0], b[1]]) * pitch + (left - corners[1, b[0], b[1]]) * VECTOR
    _products(out, at_a, at_b, (rows, (columns + 1) // 2), pitch)     # the column behind one of the two is zero
    return True


@njit(nogil=True)
def _products(out, a, b, shape, pitch):  # type: ignore[no-untyped-def]
    """out[4 l + m] = sum over rows and columns of lane l of a times lane m of b; shape: (rows, pairs of columns)."""
    e0, e1, e2, e3 = vset(0.0), vset(0.0), vset(0.0), vset(0.0)
    o0, o1, o2, o3 = vset(0.0), vset(0.0), vset(0.0), vset(0.0)
    for _ in range(shape[0]):
        for x in range(0, 2 * VECTOR * shape[1], 2 * VECTOR):
            even = vread(b + x)
            e0 = vfma(vspread(a + x), even, e0)
            e1 = vfma(vspread(a + x + 8), even, e1)
            e2 = vfma(vspread(a + x + 16), even, e2)
            e3 = vfma(vspread(a + x + 24), even, e3)
            odd = vread(b + x + VECTOR)
            o0 = vfma(vspread(a + x + VECTOR), odd, o0)
            o1 = vfma(vspread(a + x + VECTOR + 8), odd, o1)
            o2 = vfma(vspread(a + x + VECTOR + 16), odd, o2)
            o3 = vfma(vspread(a + x + VECTOR + 24), odd, o3)
        a += pitch
        b += pitch
    vwrite(out, vadd(e0, o0))
    vwrite(out + VECTOR, vadd(e1, o1))
    vwrite(out + 2 * VECTOR, vadd(e2, o2))
    vwrite(out + 3 * VECTOR, vadd(e3, o3))


@njit(nogil=True)
def scale_products(out, own, other):  # type: ignore[no-untyped-def]
    """out[4 l + m] *= own[l] other[m]: addresses; symmetric in both to the last bit."""
    scale = vread(other)
    for lane in range(LANE):
        at = out + VECTOR * lane
        vwrite(at, vmul(vread(at), vmul(vspread(own + 8 * lane), scale)))


@njit(nogil=True)
def store(band, out, bins, size):  # type: ignore[no-untyped-def]
    """Entries of the bins bins[0] + l with bins[1] + m, from out[4 l + m], where they lie in the band and the tile.

    band: address of a fibre's (nwave, nband); size: (nband, first, last)
    """
    nband, first, last = size
    hw = nband // 2
    for lane in range(LANE):
        j = bins[0] + lane
        if j < first or j >= last:
            continue
        k = bins[1] - j
        to = band + 8 * (j * nband + hw + k)
        if k >= -hw and k + LANE - 1 <= hw:
            vwrite(to, vread(out + VECTOR * lane))
        else:
            for m in range(max(0, -hw - k), min(LANE, hw + 1 - k)):
                write(to + 8 * m, number(out + VECTOR * lane + 8 * m))


@njit(nogil=True)
def store_mirrored(band, out, bins, size):  # type: ignore[no-untyped-def]
    """The same entries of a fibre with itself, where they lie with the bins bins[1] + m."""
    nband, first, last = size
    hw = nband // 2
    for m in range(LANE):
        j = bins[1] + m
        if j < first or j >= last:
            continue
        k = bins[0] - j
        for lane in range(max(0, -hw - k), min(LANE, hw + 1 - k)):
            write(band + 8 * (j * nband + hw + k + lane), number(out + VECTOR * lane + 8 * m))
