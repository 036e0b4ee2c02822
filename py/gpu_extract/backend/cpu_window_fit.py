"""CPU kernels: how much of a window (see cpu_windows) a fibre needs, and what that leaves out."""
from numba import njit


@njit(nogil=True, cache=True, error_model="numpy")
def trimmed(band, exact, roots, places, least):  # type: ignore[no-untyped-def]
    """The range of bins within first .. last - 1 that a window has to have, or those where it has to have none.

    It has all pairs of bins where S, the diagonal scaled to 1, is beyond the band and above least[0], or differs from
    what the band has by more than least[1]. Other arguments as in `put`, before it.
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


@njit(nogil=True, cache=True, error_model="numpy")
def put(band, taken, rest, exact, x, roots, places):  # type: ignore[no-untyped-def]
    """Put a fibre's window into its band, and measure what that leaves out.

    band, taken: (nwave, half + 1), S and U to second order; within the window band becomes S, taken 0
    rest: (nwave,), -U x, becomes that of `taken` as it is now; in the window, what S has outside of it and of the band,
        times x
    exact: (n, n), S of bins start .. start + n - 1; x, roots: (nwave,), 1 / sqrt of icov's diagonal, 0 where that is 0
    places: (first, last, start, hw)
    Returns, the diagonal scaled to 1, the largest row sum of what the window has beyond the band; the largest element
    beyond the band from the window outwards; the largest row sum of what S differs by just outside of the window;
    and, as they are, the largest row sum of what has changed in the window; 1'E1, 1'Ex and x'Ex, E what the window has
    beyond the band.
    """
    first, last, start, hw = places
    half, stop = band.shape[1] - 1, start + len(exact)
    inner = crossing = seam = wider = ones = cross = both = 0.0
    for j in range(start, stop):
        inside, beyond, differs, changed, moved = first <= j < last, 0.0, 0.0, 0.0, 0.0
        for k in range(start, stop):
            scale, within, distance = roots[j] * roots[k], first <= k < last, abs(j - k)
            if scale == 0.0:
                continue
            value, near = exact[j - start, k - start], distance <= half
            known = band[min(j, k), distance] if near else 0.0
            if inside and within:
                changed += abs(value - known)
                if not near:
                    beyond += abs(value) * scale
                    ones += value
                    cross += value * x[k]
                    both += x[j] * value * x[k]
            elif inside and not near:
                crossing = max(crossing, abs(value) * scale)
                moved += value * x[k]
            elif near and within:
                moved += taken[min(j, k), distance] * x[k]
            elif near and not inside and min(j, k) >= first - hw and max(j, k) < last + hw:
                differs += abs(value - known) * scale
        inner, seam, wider = max(inner, beyond), max(seam, differs), max(wider, changed)
        rest[j] = moved if inside else rest[j] + moved
    for a in range(half + 1):
        for j in range(max(first - a, start), min(last, stop - a)):
            taken[j, a] = 0.0
            if a > 0 or roots[j] > 0.0:
                band[j, a] = exact[j - start, j + a - start]
    return inner, crossing, seam, wider, ones, cross, both
