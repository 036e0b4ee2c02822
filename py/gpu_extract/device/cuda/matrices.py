"""Kernels on many small square matrices of one size, (count, n, n): products, sums, and what eigenvectors become."""
# mypy: disallow-untyped-defs=False
import math

from numba import cuda, njit

from gpu_extract.device.cuda.kernels import kernel


@njit(cache=True)
def _outer(n, out, tails):
    bins = tails.shape[1]
    c, rest = n % bins, n // bins
    r, b = rest % bins, rest // bins
    total = 0.0
    for k in range(min(r, c) + 1):
        total += tails[b, r, k] * tails[b, c, k]
    out[b, r, c] = total


@kernel("f8[3] f8[3]", lane=_outer)
def outer(count, args):
    """out = L L^T of lower triangles; a lane for every element."""
    n = cuda.grid(1)
    if n < count:
        _outer(n, *args)


@njit(cache=True)
def _inner(n, out, matrices):
    bins = matrices.shape[1]
    c, rest = n % bins, n // bins
    r, b = rest % bins, rest // bins
    total = 0.0
    for k in range(bins):
        total += matrices[b, k, r] * matrices[b, k, c]
    out[b, r, c] = total


@kernel("f8[3] f8[3]", lane=_inner)
def inner(count, args):
    """out = M^T M; a lane for every element."""
    n = cuda.grid(1)
    if n < count:
        _inner(n, *args)


@njit(cache=True)
def _products(n, products, matrices, sides):
    bins = matrices.shape[1]
    r, b = n % bins, n // bins
    one = value = 0.0
    for c in range(bins):
        one += matrices[b, c, r] * sides[0, b, c]
        value += matrices[b, c, r] * sides[1, b, c]
    alive = sides[0, b, r]
    products[0, b, r], products[1, b, r] = one * alive, value * alive


@kernel("f8[3] f8[3] f8[3]", lane=_products)
def products(count, args):
    """Symmetric matrices times 1 and x, on bins that have weight; a lane for every row."""
    n = cuda.grid(1)
    if n < count:
        _products(n, *args)


@njit(cache=True)
def _roots(n, matrices, values):
    bins = matrices.shape[1]
    r = n // bins
    value = values[r // bins, r % bins]
    matrices[r // bins, r % bins, n % bins] *= math.sqrt(math.sqrt(value)) if value > 0.0 else 0.0


@kernel("f8[3] f8[2]", lane=_roots)
def roots(count, args):
    """Eigenvectors (rows) times the fourth root of their eigenvalues: B with Q = B^T B; a lane for every element."""
    n = cuda.grid(1)
    if n < count:
        _roots(n, *args)


@njit(cache=True)
def _squares(n, errors, matrices, diagonal):
    bins = matrices.shape[1]
    r, b = n % bins, n // bins
    total = 0.0
    for c in range(bins):
        total += matrices[b, c, r]**2
    errors[b, r] = abs(total / diagonal[b, r] - 1.0)


@kernel("f8[2] f8[3] f8[2]", lane=_squares)
def squares(count, args):
    """By how much (QQ)_jj differs from S_jj, relatively; a lane for every row."""
    n = cuda.grid(1)
    if n < count:
        _squares(n, *args)
