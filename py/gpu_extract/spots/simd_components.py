"""CPU kernels: what a core and the tail of the PSF put on a block's pixels, four bins at a time; see simd_spots."""
# mypy: disallow-untyped-defs=False
import math

from gpu_extract.arrays import LANE
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.emit import written_out
from gpu_extract.vectors.profile_vectors import vfirst, vnext
from gpu_extract.vectors.simd import (number, vadd, vdiv, vfma, vfours, vless, vmul, vpixels, vread, vread16, vset,
                                      vset8, vset16, vsub, vwrite, write)

VECTOR = 8 * LANE     # bytes


@njit()
def coefficients(out, series, npar, basis, step):
    """out[p] = sum_k series[k, p] basis[k]: vectors out (npar,) and basis; series (ncoef, npar), npar a multiple of 4.

    basis: (address of the first function at the block's bins, ncoef); step: bytes from a function to the next
    """
    first, ncoef = basis
    for p in range(0, npar, 4):
        total = vset16(0.0)
        at = series + 8 * p
        for k in range(ncoef):
            total = vfma(vpixels(at), vfours(vread(first + k * step)), total)
            at += 8 * npar
        vwrite(out + VECTOR * p, total)


def _sums(e, to, line, near, near_step, far, far_step, count, fresh, columns):
    rows = [e.step(to, e.index(r), line) for r in range(4)]
    at = {(r, c): (rows[r], 4 * LANE * c) for r in range(4) for c in range(columns)}
    sums = e.begun({key: e.builder.select(fresh, e.zero, e.load(*place)) for key, place in at.items()})
    with e.loop(count) as k:
        a, b = e.step(near, k.index, near_step), e.step(far, k.index, far_step)
        values = [e.load(b, 4 * LANE * c) for c in range(columns)]
        for r in range(4):
            four = e.four(a, LANE * r)
            factor = e.shuffle(four, four, [*range(LANE)] * 4)
            for c, value in enumerate(values):
                e.builder.store(e.fma(factor, value, e.builder.load(sums[r, c])), sums[r, c])
    for key, value in e.done(sums).items():
        e.store(*at[key], value)


@written_out(4 * LANE, "columns")
def _multiply(e, out, a, b, count, fresh, columns):
    """out[r, c] (+)= sum_k a[k, r] b[k, c] for 4 rows and 4 `columns` of vectors, lane by lane.

    out, a, b: (address, bytes to the next r; to the next k); fresh: whether out counts as 0
    More sums at a time hide the latency of each.
    """
    e.call("multiply_spots", [*e.columns(out), *e.columns(a), *e.columns(b), count, fresh], _sums, columns)


@njit()
def _multiply_thin(out, a, b, count, fresh):
    """The same for 4 rows and one column, and 0 in the three columns behind it."""
    to, line = out
    near, near_step = a
    far, far_step = b
    total = vset16(0.0)
    for _ in range(count):
        total = vfma(vread16(near), vfours(vread(far)), total)
        near += near_step
        far += far_step
    for _ in range(4):
        row = vfirst(total)
        if not fresh:
            row = vadd(row, vread(to))
        vwrite(to, row)
        vwrite(to + VECTOR, vset(0.0))
        vwrite(to + 2 * VECTOR, vset8(0.0))
        total = vnext(total, row)
        to += line


@njit()
def add_core(stamp, coeff, profiles, work, frame, terms):
    """stamp[y, x] += sum_ji coeff[j, i] hy[j, y] hx[i, x]: addresses of vectors.

    stamp: (rows, pitch); coeff: (nj, ni4); profiles: (hy (nj, rows), hx (ni, columns)); work: ni4 rows vectors
    frame: (rows, width, pitch, whether the stamp counts as 0), rows a multiple of 4, columns the next one from width
    terms: (nj, ni, ni4), ni4 a multiple of 4
    """
    hy, hx = profiles
    rows, width, pitch, fresh = frame
    nj, ni, ni4 = terms
    line, step, column = VECTOR * pitch, VECTOR * rows, VECTOR * ((width + 3) // 4 * 4)
    for i in range(0, ni4, 4):
        near, out, y = (coeff + VECTOR * i, VECTOR * ni4), work + i * step, 0
        while y + 8 <= rows:
            _multiply((out + VECTOR * y, step), near, (hy + VECTOR * y, step), nj, True, 2)
            y += 8
        if y < rows:
            _multiply((out + VECTOR * y, step), near, (hy + VECTOR * y, step), nj, True, 1)
    for y in range(0, rows, 4):
        near, x = (work + VECTOR * y, step), 0
        while x + 8 <= width:
            _multiply((stamp + y * line + VECTOR * x, line), near, (hx + VECTOR * x, column), ni, fresh, 2)
            x += 8
        if x + 1 == width:
            _multiply_thin((stamp + y * line + VECTOR * x, line), near, (hx + VECTOR * x, column), ni, fresh)
        else:
            while x < width:
                _multiply((stamp + y * line + VECTOR * x, line), near, (hx + VECTOR * x, column), ni, fresh, 1)
                x += 4


@njit()
def cut_core(stamp, frame, bins, core):
    """stamp = 0 where uy^2 + ux^2 >= nsig^2.

    frame: see `add_core`; bins: see `simd_spots.make_block`; core: address of the first bin's sigma y
    """
    rows, width, pitch, _ = frame
    numbers, offsets, step = bins
    one = vset(1.0)
    step_y, step_x = vdiv(one, vread(core)), vdiv(one, vread(core + step))
    first_y, first_x = vmul(vread(numbers), step_y), vmul(vread(numbers + step), step_x)
    limit = vmul(vread(core + 2 * step), vread(core + 2 * step))
    for y in range(rows):
        uy = vfma(vsub(vset(float(y)), vread(offsets)), step_y, first_y)
        square = vmul(uy, uy)
        for x in range(width):
            ux = vfma(vsub(vset(float(x)), vread(offsets + step)), step_x, first_x)
            at = stamp + VECTOR * (y * pitch + x)
            vwrite(at, vmul(vless(vfma(ux, ux, square), limit), vread(at)))


@njit()
def add_tail(stamp, pitch, shape, bins, tail):
    """stamp += amp r2 / (core^2 + r2)^(1 + index/2) on every lane's own pixels.

    shape: (ny, nx); bins: see `simd_spots.make_block`; tail: address of the first bin's amp
    """
    numbers, offsets, step = bins
    for lane in range(0, 8 * LANE, 8):
        first, own = numbers + lane, tail + lane
        amp, core, xscale, yscale = number(own), number(own + step), number(own + 2 * step), number(own + 3 * step)
        power = -1.0 - 0.5 * number(own + 4 * step)
        top, left = int(number(offsets + lane)), int(number(offsets + step + lane))
        for y in range(shape[0]):
            dy = (number(first) + y) * yscale
            at = stamp + VECTOR * ((top + y) * pitch + left) + lane
            for x in range(shape[1]):
                dx = (number(first + step) + x) * xscale
                r2 = dx * dx + dy * dy
                write(at, number(at) + amp * r2 * math.exp(power * math.log(core * core + r2)))
                at += VECTOR
