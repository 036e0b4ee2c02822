"""Kernels of the dense core: patches of one fibre with its neighbours, many at once, as square matrices.

A patch is `bins` bins of fibre f from bin `start` on, and the same bins of `around` fibres on each side, ordered so
that the fibre itself comes last. Patch t of a fibre keeps bins first + t step .. first + (t + 1) step - 1 of its
stretch; patches are numbered fibre by fibre. All have one shape: bins and fibres that do not exist, like bins without
weight, are a 1 on the diagonal.

`where` holds what lays patches out: the numbers of the names below.
"""
# mypy: disallow-untyped-defs=False
import math

from numba import njit

from gpu_extract.device.cuda.decide import EMPTY, FAILED, GOOD
from gpu_extract.device.cuda.kernels import kernel

BINS, AROUND, STEP, PAD, FIRST, LAST, TILES, NFIBRE, BATCH, TOTAL = range(10)
LAYOUT = 10
NOT_SECURE = -1000    # none of the library's codes
SAFE = 1e-6      # of a diagonal element, pivots below that are looked at by the CPU: decorrelate.weak.SAFE
ALIGN = 4        # patches start at bins that are multiples of this, as those of the CPU


@njit(cache=True)
def stretch(where, patch):
    """The fibre of a patch, its first bin, and the bins first .. last - 1 that it keeps."""
    f, t = patch // where[TILES], patch % where[TILES]
    first = where[FIRST] + t * where[STEP]
    start = max(first - where[PAD], 0) // ALIGN * ALIGN
    return f, start, first, min(first + where[STEP], where[LAST])


@njit(cache=True)
def neighbour(where, f, place):
    """The fibre at a place of a patch, -1 where there is none; the last place is the fibre's own."""
    around = where[AROUND]
    i = f if place == 2 * around else f - around + place + (1 if place >= around else 0)
    return i if i >= 0 and i // where[NFIBRE] == f // where[NFIBRE] else -1


@kernel("f8[3] f8[4] i8[1] i8")
def fill(n, matrices, icov, where, begin):
    """Patches begin .. of icov as matrices; beyond the last patch the identity; a lane for every element."""
    size, bins = matrices.shape[1], where[BINS]
    c, rest = n % size, n // size
    r, b = rest % size, rest // size
    value = 1.0 if r == c else 0.0
    if begin + b < where[TOTAL]:
        f, start, _, _ = stretch(where, begin + b)
        i, j = neighbour(where, f, r // bins), neighbour(where, f, c // bins)
        p, q = start + r % bins, start + c % bins
        if i >= 0 and j >= 0 and i < len(icov) and j < len(icov) and p < icov.shape[3] and q < icov.shape[3]:
            hw = icov.shape[2] // 2
            low, high, k = min(i, j), max(i, j), q - p if i <= j else p - q
            if high - low < icov.shape[1] and abs(k) <= hw:
                given = icov[low, high - low, hw + k, p if i <= j else q]
                value = given if r != c or given != 0.0 else 1.0
    matrices[b, r, c] = value


@kernel("f8[3] f8[3] i4[2]")
def tail(n, tails, matrices, codes):
    """The last block of the Cholesky factors, L with S = L L^T of the patch's own fibre, the identity where there is no
    factor: the eigensolver must not see what is not a number; a lane for every element."""
    bins, size = tails.shape[1], matrices.shape[1]
    c, rest = n % bins, n // bins
    r, b = rest % bins, rest // bins
    if codes[0, b] != 0:
        tails[b, r, c] = 1.0 if r == c else 0.0
    else:
        tails[b, r, c] = matrices[b, size - bins + r, size - bins + c] if c <= r else 0.0


@kernel("i4[2] f8[3] f8[4] i8[1] i8")
def secure(b, codes, tails, icov, where, begin):
    """A code for patches with bins that good pixels may not tell from others (decorrelate.weak): the CPU looks; a lane
    a patch."""
    if begin + b >= where[TOTAL]:
        return
    f, start, _, _ = stretch(where, begin + b)
    for r in range(min(tails.shape[1], icov.shape[3] - start)):
        if not tails[b, r, r] ** 2 > SAFE * icov[f, 0, icov.shape[2] // 2, start + r]:
            codes[0, b] = NOT_SECURE


@kernel("f8[3] f8[2] f8[2] i8[1] i8")
def sides(n, sides, weight, x, where, begin):
    """1 (0 where a bin has no weight) and x of the patches' own fibres: (2, patches, bins); a lane for every bin."""
    bins = where[BINS]
    r, b = n % bins, n // bins
    one = value = 0.0
    if begin + b < where[TOTAL]:
        f, start, _, _ = stretch(where, begin + b)
        if start + r < weight.shape[1] and weight[f, start + r] > 0.0:
            one, value = 1.0, x[f, start + r]
    sides[0, b, r], sides[1, b, r] = one, value


@kernel("f8[3] f8[2] f8[3]")
def decouple(b, matrices, diagonal, sides):
    """S of decoupled bins becomes of the size of the others; diagonal: that of S; a lane for every patch."""
    bins = matrices.shape[1]
    top = 0.0
    for r in range(bins):
        if sides[0, b, r] > 0.0:
            top = max(top, matrices[b, r, r])
    for r in range(bins):
        if sides[0, b, r] == 0.0:
            matrices[b, r, r] = top if top > 0.0 else 1.0
        diagonal[b, r] = matrices[b, r, r]


@njit(cache=True)
def _closest(n, icov, hw, i, first, last):
    """The largest square of a correlation between bins first .. last - 1 of fibre i and those of the next one."""
    top = 0.0
    for k in range(-hw, hw + 1):
        for p in range(max(first, -k), min(last, icov.shape[3] - k)):
            value, scale = icov[i, 1, hw + k, p], icov[i, 0, hw, p] * icov[i + 1, 0, hw, p + k]
            if scale > 0.0 and first <= p + k < last:
                top = max(top, value * value / scale)
    return top


@kernel("i4[1] i4[2] f8[2] f8[3] f8[3] f8[3] f8[4] i8[1] i8 f8 f8")
def verdict(b, flags, codes, errors, made, wanted, sides, icov, where, begin, closest, agreement):
    """GOOD, EMPTY, or FAILED for every patch: codes of the library, (QQ)_jj, 1'QQ1, 1'QQx and x'QQx against those of S,
    and whether as many neighbours suffice where masks couple them: correlations up to `closest`; a lane a patch."""
    if begin + b >= where[TOTAL]:
        return
    f, start, _, _ = stretch(where, begin + b)
    bins = errors.shape[1]
    ones = cross = both = s11 = s1x = sxx = alive = worst = 0.0
    for r in range(bins):
        one, x, s, y = sides[0, b, r], sides[1, b, r], made[0, b, r], made[1, b, r]
        alive += one
        ones, cross, both = ones + s * s, cross + s * y, both + y * y
        s11, s1x, sxx = s11 + one * wanted[0, b, r], s1x + one * wanted[1, b, r], sxx + x * wanted[1, b, r]
        if not errors[b, r] <= worst:
            worst = errors[b, r]
    good = codes[0, b] == 0 and codes[1, b] == 0 and worst <= agreement and abs(ones - s11) <= agreement * s11
    good = good and abs(both - sxx) <= agreement * sxx and abs(cross - s1x) <= agreement * math.sqrt(s11 * sxx)
    hw, last = icov.shape[2] // 2, min(start + bins, icov.shape[3])
    if icov.shape[1] > 1 and where[AROUND] < where[NFIBRE] - 1:
        for i in (f - 1, f):
            if i >= 0 and i // where[NFIBRE] == f // where[NFIBRE] and (i + 1) // where[NFIBRE] == f // where[NFIBRE]:
                good = good and _closest(0, icov, hw, i, start, last) <= closest * closest
    flags[b] = EMPTY if alive == 0.0 else GOOD if good else FAILED


@kernel("f8[2] f8[2] i1[2] f8[3] i4[1] i8[1] i8")
def write(n, flux, ivar, status, made, flags, where, begin):
    """Flux, ivar and status of the bins that are kept; a lane for every bin."""
    step = where[STEP]
    b = n // step
    if begin + b >= where[TOTAL]:
        return
    f, start, first, last = stretch(where, begin + b)
    j = first + n % step
    if j >= last:
        return
    s, y = made[0, b, j - start], made[1, b, j - start]
    good = flags[b] == GOOD and s != 0.0
    flux[f, j - where[FIRST]] = y / s if good else 0.0
    ivar[f, j - where[FIRST]] = s * s if good else 0.0
    status[f, j - where[FIRST]] = flags[b]


@kernel("f8[3] f8[3] f8[3] f8[3] i4[1] i8[1] i8")
def diagonals(n, resolution, matrices, made, sides, flags, where, begin):
    """The diagonals of R at the bins that are kept; a lane for every element."""
    step, width = where[STEP], resolution.shape[1]
    k, b = n // step % width, n // (step * width)
    if begin + b >= where[TOTAL]:
        return
    f, start, first, last = stretch(where, begin + b)
    j = first + n % step
    if j >= last:
        return
    row, value = j - width // 2 + k, 0.0
    if flags[b] == GOOD and where[FIRST] <= row < where[LAST] and start <= row < start + where[BINS]:
        alive = sides[0, b, row - start] * sides[0, b, j - start]
        if alive > 0.0 and made[0, b, row - start] != 0.0:
            value = matrices[b, row - start, j - start] / made[0, b, row - start]
    resolution[f, k, j - where[FIRST]] = value
