"""CPU kernels: blocks of the normal equations as dense matrices for BLAS."""
from numba import njit

from gpu_extract.backend.simd import address, number, write


@njit(nogil=True, cache=True, error_model="numpy")
def add(out, icov, rows, columns, first):  # type: ignore[no-untyped-def]
    """Add a block of icov to `out`: fibres `rows`, bins first[0] on, against fibres `columns`, bins first[1] on.

    out: (len(rows) step, len(columns) step), column by column in memory, fibre by fibre
    Of a diagonal block (same fibres, same bins) the lower triangle is added; bins beyond the end have nothing.
    """
    nd, nwave, width = icov.shape[1], icov.shape[2], icov.shape[3]
    high, wide, hw = len(rows), len(columns), width // 2
    step = out.shape[0] // high
    diagonal = first[0] == first[1] and high == wide and rows[0] == columns[0]
    base, given = address(out, 0), address(icov, 0)
    for n in range(wide):
        for m in range(high):
            d = columns[n] - rows[m]
            if abs(d) >= nd or (diagonal and m < n):
                continue
            lower = diagonal and m == n
            own = (min(rows[m], columns[n]) * nd + abs(d)) * nwave
            stride = width - 1 if d >= 0 else 1
            for q in range(first[1], min(first[1] + step, nwave)):
                low, top = max(first[0], q - hw), min(first[0] + step, q + hw + 1, nwave)
                low = max(low, q) if lower else low
                place = (n * step + q - first[1]) * out.shape[0]
                place = base + 8 * (place + m * step + low - first[0])
                start = (own + low) * width + hw + q - low if d >= 0 else (own + q) * width + hw + low - q
                source = given + 8 * start
                for _ in range(low, top):
                    write(place, number(place) + number(source))
                    place += 8
                    source += 8 * stride


@njit(nogil=True, cache=True, error_model="numpy")
def decouple(matrix):  # type: ignore[no-untyped-def]
    """Rows without anything, of bins of weight 0 and beyond the end, get 1 on the diagonal."""
    for n in range(len(matrix)):
        if matrix[n, n] == 0.0:
            matrix[n, n] = 1.0


@njit(nogil=True, cache=True, error_model="numpy")
def block(out, icov, rows, columns):  # type: ignore[no-untyped-def]
    """Fill `out` with icov of some fibres against others on all bins, fibre by fibre; see `add`.

    Rows without anything of diagonal blocks, of which the lower triangle is made, get 1 on the diagonal.
    """
    out[:] = 0.0
    add(out, icov, rows, columns, (0, 0))
    if rows[0] == columns[0]:
        decouple(out)
