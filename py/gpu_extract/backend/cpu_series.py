"""CPU kernel: series of polynomials."""
from numba import njit


@njit(nogil=True, cache=True)
def evaluate(out, coeff, basis):  # type: ignore[no-untyped-def]
    """out[i] = sum_k coeff[i, k] basis[k], by k: out (n, nwave), coeff (n, ncoef), basis (ncoef, nwave)."""
    n, ncoef = coeff.shape
    nwave = basis.shape[1]
    for i in range(n):
        for j in range(nwave):
            out[i, j] = 0.0
        for k in range(ncoef):
            c = coeff[i, k]
            for j in range(nwave):
                out[i, j] += c * basis[k, j]
