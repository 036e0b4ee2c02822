"""CPU kernels of the wide band: blocks of the normal equations for BLAS, and eliminating many fibres by blocks.

Matrices are cut into square blocks as wide as their band, so that they are block tridiagonal and all of the work is in
products and factorisations of blocks, at the speed of the machine's BLAS.
"""
import numpy as np
from numba import njit
from scipy.linalg import blas, lapack

from gpu_extract.backend.simd import address, number, write
from gpu_extract.data import Array, IntArray

BY_FIBRES, BY_BINS = 0, 1      # what changes slowest in a block
SMALL = 64                     # triangles up to this size are inverted as they are


@njit(nogil=True, cache=True, error_model="numpy")
def add(out, icov, rows, columns, first, order):  # type: ignore[no-untyped-def]
    """Add a block of icov to `out`: fibres `rows`, bins first[0] on, against fibres `columns`, bins first[1] on.

    out: (len(rows) step, len(columns) step), column by column in memory, fibre by fibre or bin by bin (`order`)
    Of a diagonal block (same fibres, same bins) the lower triangle is added; bins beyond the end have nothing.
    """
    nd, nwave, width = icov.shape[1], icov.shape[2], icov.shape[3]
    high, wide, hw = len(rows), len(columns), width // 2
    step = out.shape[0] // high
    diagonal = first[0] == first[1] and high == wide and rows[0] == columns[0]
    row, column = (step, 1), (step, 1)
    if order == BY_BINS:
        row, column = (1, high), (1, wide)
    base, given = address(out, 0), address(icov, 0)
    for n in range(wide):
        for m in range(high):
            d = columns[n] - rows[m]
            if abs(d) >= nd or (diagonal and m < n and order == BY_FIBRES):
                continue
            lower = diagonal and (m == n or order == BY_BINS)
            own = (min(rows[m], columns[n]) * nd + abs(d)) * nwave
            stride = width - 1 if d >= 0 else 1
            for q in range(first[1], min(first[1] + step, nwave)):
                low, top = max(first[0], q - hw), min(first[0] + step, q + hw + 1, nwave)
                low = max(low, q) if lower else low
                place = (n * column[0] + (q - first[1]) * column[1]) * out.shape[0]
                place = base + 8 * (place + m * row[0] + (low - first[0]) * row[1])
                start = (own + low) * width + hw + q - low if d >= 0 else (own + q) * width + hw + low - q
                source = given + 8 * start
                for _ in range(low, top):
                    write(place, number(place) + number(source))
                    place += 8 * row[1]
                    source += 8 * stride


@njit(nogil=True, cache=True, error_model="numpy")
def decouple(matrix):  # type: ignore[no-untyped-def]
    """Rows without anything, of bins of weight 0 and beyond the end, get 1 on the diagonal."""
    for n in range(len(matrix)):
        if matrix[n, n] == 0.0:
            matrix[n, n] = 1.0


@njit(nogil=True, cache=True, error_model="numpy")
def subtract_gram(band, gram, first):  # type: ignore[no-untyped-def]
    """band[j, a] -= gram[j - first, j + a - first] for all pairs in the band; of gram the lower triangle is given."""
    nwave, wide = band.shape
    for q in range(max(0, -first), min(gram.shape[0], nwave - first)):
        for p in range(q, min(gram.shape[0], q + wide, nwave - first)):
            band[first + q, p - q] -= gram[p, q]


def empty_block(rows: int, columns: int) -> Array:
    """Zeros, column by column."""
    return np.zeros((rows, columns), order="F")


@njit(nogil=True, cache=True, error_model="numpy")
def block(out, icov, rows, columns):  # type: ignore[no-untyped-def]
    """Fill `out` with icov of some fibres against others on all bins, fibre by fibre; see `add`.

    Rows without anything of diagonal blocks, of which the lower triangle is made, get 1 on the diagonal.
    """
    out[:] = 0.0
    add(out, icov, rows, columns, (0, 0), BY_FIBRES)
    if rows[0] == columns[0]:
        decouple(out)


def inverse(low: Array) -> Array:
    """The inverse of a lower triangle, by halves: most of it is in products. What is above the diagonal means nothing.

    To multiply by it is more than twice as fast as to solve with the triangle.
    """
    n, half = len(low), len(low) // 2
    if n <= SMALL:
        found: Array = lapack.dtrtri(low, lower=1)[0]
        return found
    out = np.empty((n, n), order="F")
    out[:half, :half], out[half:, half:] = inverse(low[:half, :half]), inverse(low[half:, half:])
    between = blas.dtrmm(-1.0, out[half:, half:], low[half:, :half], lower=1)
    out[half:, :half] = blas.dtrmm(1.0, out[:half, :half], between, side=1, lower=1, overwrite_b=1)
    return out


def eliminate(band: Array, icov: Array, fibre: int, others: IntArray, reach: int) -> bool:
    """Take A_iN A_NN^-1 A_Ni of the fibres N = `others` around fibre i = `fibre` off the band; False where A_NN is not
    definite.

    band: (nwave, half + 1), rows of the upper triangle; a column of L^-1 A_Ni is followed for `reach` bins
    Unknowns are ordered by bins, then fibres. A block of bins couples to the next one by a lower triangle, and so is
    what L^-1 makes of it.
    """
    nwave, hw = icov.shape[2], icov.shape[3] // 2
    step = max(hw, 8)
    size, count, blocks = len(others) * step, -(-nwave // step), -(-reach // step)
    own, above, pivot = np.array([fibre]), empty_block(size, size), empty_block(size, size)
    columns, right = (empty_block(size, (blocks + 2) * step) for _ in range(2))
    gram = empty_block(columns.shape[1], columns.shape[1])
    for k in range(count):
        add(pivot, icov, others, others, (k * step, k * step), BY_BINS)
        decouple(pivot)
        _, info = lapack.dpotrf(pivot, lower=1, overwrite_a=1, clean=0)
        if info != 0:
            return False
        right[:, :-step], right[:, -step:] = columns[:, step:], 0.0
        blas.dtrmm(-1.0, above, right[:, :-step], trans_a=1, lower=1, overwrite_b=1)
        for n, c in enumerate((k - 1, k, k + 1)):
            if 0 <= c < count:
                add(right[:, (blocks + n - 1) * step:(blocks + n) * step], icov, others, own, (k * step, c * step),
                    BY_BINS)
        solve = inverse(pivot)
        blas.dtrmm(1.0, solve, right, lower=1, overwrite_b=1)
        columns, right = right, columns
        blas.dsyrk(1.0, columns, trans=1, lower=1, c=gram, overwrite_c=1)
        subtract_gram(band, gram, (k - blocks) * step)
        above[:] = 0.0
        add(above, icov, others, others, (k * step, (k + 1) * step), BY_BINS)
        blas.dtrmm(1.0, solve, above, lower=1, overwrite_b=1)
        pivot[:] = above
        lapack.dlauum(pivot, lower=1, overwrite_c=1)
        np.negative(pivot, out=pivot)
    return True
