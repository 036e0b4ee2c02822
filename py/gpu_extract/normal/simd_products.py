"""CPU kernels: elements of icov, from the products of two blocks of whitened spots (see simd_normal)."""
# mypy: disallow-untyped-defs=False
from gpu_extract.arrays import LANE
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import (integer, number, vadd, vfma, vfold, vhigh, vlow, vmul, vpairs, vpick, vread,
                                      vread8, vset, vset8, vspread, vswap, vturn1, vturn2, vturn3, vwrite, vwrite4,
                                      write)

VECTOR = 8 * LANE      # bytes of the four bins of a block, at one pixel


@njit()
def clear_rows(fibre, bins, shape):
    """Zero the elements of bins bins[0] .. bins[1] - 1 of a fibre, just before the first are written.

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


@njit()
def meets(block, first, last):
    """Whether a block has bins among first .. last - 1."""
    return LANE * block < last and LANE * block + LANE > first


@njit(forceinline=True)
def rows_shared(frames):
    """How many rows two blocks share, 0 or less if none; frames: see `_multiply`."""
    a, b, step = frames
    return min(integer(a) + integer(a + 2 * step), integer(b) + integer(b + 2 * step)) - max(integer(a), integer(b))


@njit(forceinline=True)
def _multiply(out, whites, frames, pitch):
    """out[4 l + m] = product of lane l of block a with lane m of block b; False if they share no column.

    whites: addresses of the blocks
    frames: addresses of their frames' first rows, and bytes to their first columns, heights and widths
    pitch: bytes from row to row
    """
    a, b, step = frames
    row_a, row_b, column_a, column_b = integer(a), integer(b), integer(a + step), integer(b + step)
    top, left, rows = max(row_a, row_b), max(column_a, column_b), rows_shared(frames)
    columns = min(column_a + integer(a + 3 * step), column_b + integer(b + 3 * step)) - left
    if columns <= 0:
        return False
    at_a = whites[0] + (top - row_a) * pitch + (left - column_a) * VECTOR
    at_b = whites[1] + (top - row_b) * pitch + (left - column_b) * VECTOR
    if at_a == at_b:
        _squares(out, at_a, (rows, (columns + 1) // 2), pitch)
    else:
        _products(out, at_a, at_b, (rows, (columns + 1) // 2), pitch)     # the column after one of the two is zero
    return True


@njit(forceinline=True)
def _products(out, a, b, shape, pitch):
    """out[4 l + m] = sum over rows and columns of lane l of a times lane m of b; shape: (rows, pairs of columns).

    A pair of columns of a, as it is and with every two lanes exchanged, is multiplied by the pair of b, as it is and
    rotated by two lanes: four products need two shuffles and two reads.
    """
    e0, e1, e2, e3 = vset8(0.0), vset8(0.0), vset8(0.0), vset8(0.0)
    o0, o1, o2, o3 = vset8(0.0), vset8(0.0), vset8(0.0), vset8(0.0)
    even, end = 4 * VECTOR * (shape[1] // 2), 2 * VECTOR * shape[1]
    for _ in range(shape[0]):
        for x in range(0, even, 4 * VECTOR):
            v, w = vread8(a + x), vread8(b + x)
            swapped, turned = vswap(v), vturn2(w)
            e0, e1, e2, e3 = vfma(v, w, e0), vfma(swapped, w, e1), vfma(v, turned, e2), vfma(swapped, turned, e3)
            v, w = vread8(a + x + 2 * VECTOR), vread8(b + x + 2 * VECTOR)
            swapped, turned = vswap(v), vturn2(w)
            o0, o1, o2, o3 = vfma(v, w, o0), vfma(swapped, w, o1), vfma(v, turned, o2), vfma(swapped, turned, o3)
        if even < end:
            v, w = vread8(a + even), vread8(b + even)
            swapped, turned = vswap(v), vturn2(w)
            e0, e1, e2, e3 = vfma(v, w, e0), vfma(swapped, w, e1), vfma(v, turned, e2), vfma(swapped, turned, e3)
        a += pitch
        b += pitch
    f0, f1, f2, f3 = vfold(vadd(e0, o0)), vfold(vadd(e1, o1)), vfold(vadd(e2, o2)), vfold(vadd(e3, o3))
    low, high = vpick(f0, f1, f0, f1), vpick(f2, f3, f2, f3)              # a0 b0, a0 b1, a2 b2, a2 b3; a0 b2, a0 b3, ..
    vwrite(out, vlow(low, high))
    vwrite(out + 2 * VECTOR, vhigh(high, low))
    low, high = vpick(f1, f0, f1, f0), vpick(f3, f2, f3, f2)
    vwrite(out + VECTOR, vlow(low, high))
    vwrite(out + 3 * VECTOR, vhigh(high, low))


@njit(forceinline=True)
def _squares(out, a, shape, pitch):
    """The same for a block with itself, bitwise equal: three products and two rotations suffice."""
    e0, e1, e2 = vset8(0.0), vset8(0.0), vset8(0.0)
    o0, o1, o2 = vset8(0.0), vset8(0.0), vset8(0.0)
    even, end = 4 * VECTOR * (shape[1] // 2), 2 * VECTOR * shape[1]
    for _ in range(shape[0]):
        for x in range(0, even, 4 * VECTOR):
            v, w = vread8(a + x), vread8(a + x + 2 * VECTOR)
            e0 = vfma(v, v, e0)
            e1 = vfma(v, vturn1(v), e1)
            e2 = vfma(v, vturn2(v), e2)
            o0 = vfma(w, w, o0)
            o1 = vfma(w, vturn1(w), o1)
            o2 = vfma(w, vturn2(w), o2)
        if even < end:
            v = vread8(a + even)
            e0 = vfma(v, v, e0)
            e1 = vfma(v, vturn1(v), e1)
            e2 = vfma(v, vturn2(v), e2)
        a += pitch
    f0, f1, f2 = vfold(vadd(e0, o0)), vfold(vadd(e1, o1)), vfold(vadd(e2, o2))
    turned = vturn3(f1)                                 # f_r[m] = sum of a[m] a[(m + r) mod 4]
    vwrite4(out, VECTOR, vpick(f0, turned, f2, f1), vpick(f1, f0, turned, f2), vpick(f2, f1, f0, turned),
            vpick(turned, f2, f1, f0))


@njit(forceinline=True)
def _scale(out, own, other):
    """out[4 l + m] *= own[l] other[m]: addresses; symmetric in both to the last bit."""
    scale = vread(other)
    for lane in range(LANE):
        at = out + VECTOR * lane
        vwrite(at, vmul(vread(at), vmul(vspread(own + 8 * lane), scale)))


@njit(forceinline=True)
def _add(band, out, bins, nband):
    """Add out[4 l + m] to the elements of the bins bins[0] + l with bins[1] + m, for all l and m.

    band: address of a fibre's (nwave, nband), cleared. The product of bins too far apart for the band is 0, which is
    added to another bin and changes nothing: rows before and after those of the block are read and written.
    """
    at, step = band + 8 * (bins[0] * nband + nband // 2 + bins[1] - bins[0]), 8 * (nband - 1)
    for lane in range(LANE):
        vwrite(at, vadd(vread(at), vread(out + VECTOR * lane)))
        at += step


@njit(forceinline=True)
def _add_mirrored(band, out, bins, nband):
    """The same elements of a fibre with itself, to the rows of the bins bins[1] + m."""
    at, step = band + 8 * (bins[1] * nband + nband // 2 + bins[0] - bins[1]), 8 * (nband - 1)
    a, b, c, d = vread(out), vread(out + VECTOR), vread(out + 2 * VECTOR), vread(out + 3 * VECTOR)
    low, high = vpairs(a, b), vpairs(c, d)             # a0 b0 a2 b2, c0 d0 c2 d2
    vwrite(at, vadd(vread(at), vlow(low, high)))
    vwrite(at + 2 * step, vadd(vread(at + 2 * step), vhigh(low, high)))
    low, high = vpairs(vturn1(a), vturn1(b)), vpairs(vturn1(c), vturn1(d))
    vwrite(at + step, vadd(vread(at + step), vlow(low, high)))
    vwrite(at + 3 * step, vadd(vread(at + 3 * step), vhigh(low, high)))


@njit()
def _store(band, out, bins, size, steps):
    """Write the elements of the bins bins[0] + l with bins[1] + m from out, as far as they are in the band and tile.

    band: address of a fibre's (nwave, nband); size: (nband, first, last); steps: bytes of out from l to l and m to m
    """
    nband, first, last = size
    hw = nband // 2
    for lane in range(LANE):
        j = bins[0] + lane
        if j < first or j >= last:
            continue
        k = bins[1] - j
        for m in range(max(0, -hw - k), min(LANE, hw + 1 - k)):
            write(band + 8 * (j * nband + hw + k + m), number(out + steps[0] * lane + steps[1] * m))


@njit()
def couple(out, band, whites, frames, scales, bins, pitch, size):
    """The elements of two blocks that share rows of pixels, for all bins bins[0] + l and bins[1] + m.

    out: address of room for 16 numbers; band: of a fibre's (nwave, nband); whites, frames: see `_multiply`
    scales: addresses of the blocks' scales; pitch: bytes from row to row
    size: (nband, first, last, whether a fibre is coupled to itself: the mirrored elements follow), see `_store`
    It is not inlined, because LLVM would then keep two dozen numbers of its loops in memory.
    """
    if not _multiply(out, whites, frames, pitch):
        return
    _scale(out, scales[0], scales[1])
    nband, first, last, itself = size
    mirrored = itself and bins[0] != bins[1]
    # if no row beside the block belongs to another tile, which another thread may be writing now
    if first < bins[0] < last - LANE and (not mirrored or first < bins[1] < last - LANE):
        _add(band, out, bins, nband)
        if mirrored:
            _add_mirrored(band, out, bins, nband)
    else:
        _store(band, out, bins, (nband, first, last), (VECTOR, 8))
        if mirrored:
            _store(band, out, (bins[1], bins[0]), (nband, first, last), (8, VECTOR))
