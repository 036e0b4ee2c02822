"""CPU kernels: how much of a window (see simd_windows) a fibre needs, and what is left out."""
# mypy: disallow-untyped-defs=False
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import address, number, vabs, vadd, vfma, vfold, vread8, vset8, vsum

LANES = 8


@njit(cache=True)
def trimmed(band, exact, roots, places, least):
    """The range of bins within first .. last - 1 that a window needs, or these if it needs none.

    It includes all pairs of bins whose element of S, with the diagonal scaled to 1, is beyond the band and above
    least[0], or differs from that of the band by more than least[1]. Other arguments are those of `put`, before it.
    """
    first, last, start, _ = places
    half, low, high = band.shape[1] - 1, last, first
    for j in range(first, last):
        for k in range(j, last):
            value, far = exact[j - start, k - start], k - j > half
            left = abs(value) if far else abs(value - band[j, k - j])
            if left * roots[j] * roots[k] > (least[0] if far else least[1]):
                low, high = min(low, j), max(high, k + 1)
    return (low, high) if low < high else (first, last)


@njit()
def _sums(values, roots, x, count):
    """Sums of |v|, |v| times roots, v and v x over `count` numbers; arguments are addresses."""
    size = scaled = plain = moved = vset8(0.0)
    whole = max(count, 0) // LANES * LANES
    for k in range(0, 8 * whole, 8 * LANES):
        value = vread8(values + k)
        size, scaled = vadd(vabs(value), size), vfma(vabs(value), vread8(roots + k), scaled)
        plain, moved = vadd(value, plain), vfma(value, vread8(x + k), moved)
    sums = vsum(vfold(size)), vsum(vfold(scaled)), vsum(vfold(plain)), vsum(vfold(moved))
    for k in range(8 * whole, 8 * count, 8):
        value = number(values + k)
        sums = (sums[0] + abs(value), sums[1] + abs(value) * number(roots + k), sums[2] + value,
                sums[3] + value * number(x + k))
    return sums


@njit(cache=True)
def put(band, taken, rest, exact, x, roots, places):
    """Put a fibre's window into its band, and measure what is left out.

    band, taken: (nwave, half + 1), S and U to second order; within the window band becomes S, taken 0
    rest: (nwave,), -U x, updated for the new `taken`; in the window, x times the elements of S outside both the window
        and the band
    exact: (n, n), S of bins start .. start + n - 1; x, roots: (nwave,), 1 / sqrt of icov's diagonal, 0 if that is 0
    places: (first, last, start, hw)
    Bins without weight are decoupled in `exact`. Returns, with the diagonal scaled to 1: the largest row sum of the
    window beyond the band; the largest element beyond the band from the window outwards; the largest row sum of the
    difference of S just outside the window. Without scaling: the largest row sum of the change in the window; 1'E1,
    1'Ex and x'Ex, where E are the elements of the window beyond the band.
    """
    first, last, start, hw = places
    half, stop = band.shape[1] - 1, start + len(exact)
    inner = crossing = seam = wider = ones = cross = both = 0.0
    for j in range(start, stop):
        inside, beyond, differs, changed, moved = first <= j < last, 0.0, 0.0, 0.0, 0.0
        low, high = max(j - half, start), min(j + half + 1, stop)
        for k in range(low, high):
            scale, within, row = roots[j] * roots[k], first <= k < last, min(j, k)
            if scale == 0.0:
                continue
            differ = abs(exact[j - start, k - start] - band[row, abs(j - k)])
            if inside and within:
                changed += differ
            elif within:
                moved += taken[row, abs(j - k)] * x[k]
            elif not inside and row >= first - hw and max(j, k) < last + hw:
                differs += differ * scale
        if inside and roots[j] > 0.0:
            for k, end in ((first, min(low, last)), (max(high, first), last)):
                sums = _sums(address(exact, (j - start) * len(exact) + k - start), address(roots, k), address(x, k),
                             end - k)
                changed += sums[0]
                beyond += sums[1] * roots[j]
                ones += sums[2]
                cross += sums[3]
                both += x[j] * sums[3]
            for begin, end in ((start, min(low, first)), (max(high, last), stop)):
                for k in range(begin, end):
                    crossing = max(crossing, abs(exact[j - start, k - start]) * roots[j] * roots[k])
                    moved += exact[j - start, k - start] * x[k]
        inner, seam, wider = max(inner, beyond), max(seam, differs), max(wider, changed)
        rest[j] = moved if inside else rest[j] + moved
    for a in range(half + 1):
        for j in range(max(first - a, start), min(last, stop - a)):
            taken[j, a] = 0.0
            if a > 0 or roots[j] > 0.0:
                band[j, a] = exact[j - start, j + a - start]
    return inner, crossing, seam, wider, ones, cross, both
