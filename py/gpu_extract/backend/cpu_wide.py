"""CPU kernels of the wide band: blocks of the normal equations for BLAS, and block band systems for many poles.

Matrices are cut into square blocks as wide as their band, so that they are block tridiagonal and all of
the work is in products and factorisations of blocks, at the speed of the machine's BLAS.
"""
import numpy as np
from numba import njit
from scipy.linalg import blas, lapack


@njit(nogil=True, cache=True, error_model="numpy")
def fill(out, icov, rows, columns, first):  # type: ignore[no-untyped-def]
    """A block of icov: fibres `rows`, bins first[0] on, against fibres `columns`, bins first[1] on.

    out: (len(rows) step, len(columns) step), fibre by fibre; bins beyond the end are decoupled (1 on the diagonal),
    and so are bins of weight 0.
    """
    nd, nwave, hw = icov.shape[1], icov.shape[2], icov.shape[3] // 2
    step = out.shape[0] // len(rows)
    out[:] = 0.0
    for m in range(len(rows)):
        for n in range(len(columns)):
            i, j = rows[m], columns[n]
            d = j - i
            if abs(d) >= nd:
                continue
            for p in range(first[0], min(first[0] + step, nwave)):
                for q in range(max(first[1], p - hw), min(first[1] + step, p + hw + 1, nwave)):
                    value = icov[i, d, p, hw + q - p] if d >= 0 else icov[j, -d, q, hw + p - q]
                    out[m * step + p - first[0], n * step + q - first[1]] = value
    if first[0] == first[1]:
        for m in range(len(rows)):
            for n in range(len(columns)):
                if rows[m] == columns[n]:
                    for p in range(step):
                        if out[m * step + p, n * step + p] == 0.0:
                            out[m * step + p, n * step + p] = 1.0


@njit(nogil=True, cache=True, error_model="numpy")
def subtract_gram(band, gram, first):  # type: ignore[no-untyped-def]
    """band[j, a] -= gram[j - first, j + a - first] for all pairs in the band; of gram the lower triangle is given."""
    nwave, wide = band.shape
    for q in range(max(0, -first), min(gram.shape[0], nwave - first)):
        for p in range(q, min(gram.shape[0], q + wide, nwave - first)):
            band[first + q, p - q] -= gram[p, q]


def eliminate(band, icov, fibre, others, reach):  # type: ignore[no-untyped-def]
    """Take A_iN A_NN^-1 A_Ni of the fibres N = `others` (int64) around fibre i = `fibre` off the band; False where A_NN
    is not definite.

    band: (nwave, half + 1), rows of the upper triangle; a column of L^-1 A_Ni is followed for `reach` bins
    """
    nwave, hw = icov.shape[2], icov.shape[3] // 2
    step = max(hw, 8)
    size, count, blocks = len(others) * step, -(-nwave // step), -(-reach // step)
    own = np.array([fibre])
    pivot, block = np.empty((size, size), order="F"), np.empty((size, size), order="F")
    entry = np.empty((size, step), order="F")
    columns = np.zeros((size, (blocks + 2) * step), order="F")
    fill(pivot, icov, others, others, (0, 0))
    above = None
    for k in range(count):
        right = np.zeros_like(columns)
        if above is not None:
            right[:, :-step] = blas.dgemm(-1.0, above, columns[:, step:], trans_a=1)
        for n, c in enumerate((k - 1, k, k + 1)):
            if 0 <= c < count:
                fill(entry, icov, others, own, (k * step, c * step))
                right[:, (blocks + n - 1) * step:(blocks + n) * step] += entry
        factor, info = lapack.dpotrf(pivot, lower=1, overwrite_a=1, clean=0)
        if info != 0:
            return False
        columns = blas.dtrsm(1.0, factor, right, lower=1, overwrite_b=1)
        subtract_gram(band, blas.dsyrk(1.0, columns, trans=1, lower=1), (k - blocks) * step)
        if k + 1 < count:
            fill(block, icov, others, others, (k * step, (k + 1) * step))
            above = blas.dtrsm(1.0, factor, block, lower=1)
            pivot = np.empty((size, size), order="F")
            fill(pivot, icov, others, others, ((k + 1) * step, (k + 1) * step))
            pivot = blas.dsyrk(-1.0, above, beta=1.0, c=pivot, trans=1, lower=1, overwrite_c=1)
    return True
