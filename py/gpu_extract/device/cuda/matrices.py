"""Kernels on many small square matrices of one size, (count, n, n): products, sums, and what eigenvectors become."""
# mypy: disallow-untyped-defs=False
import math

from gpu_extract.device.cuda.kernels import kernel


@kernel("f8[3] f8[3]")
def outer(n, out, tails):
    """out = L L^T of lower triangles; a lane for every element."""
    bins = tails.shape[1]
    c, rest = n % bins, n // bins
    r, b = rest % bins, rest // bins
    total = 0.0
    for k in range(min(r, c) + 1):
        total += tails[b, r, k] * tails[b, c, k]
    out[b, r, c] = total


@kernel("f8[3] f8[3]")
def inner(n, out, matrices):
    """out = M^T M; a lane for every element."""
    bins = matrices.shape[1]
    c, rest = n % bins, n // bins
    r, b = rest % bins, rest // bins
    total = 0.0
    for k in range(bins):
        total += matrices[b, k, r] * matrices[b, k, c]
    out[b, r, c] = total


@kernel("f8[3] f8[3] f8[3]")
def products(n, products, matrices, sides):
    """Symmetric matrices times 1 and x, on bins that have weight; a lane for every row."""
    bins = matrices.shape[1]
    r, b = n % bins, n // bins
    one = value = 0.0
    for c in range(bins):
        one += matrices[b, c, r] * sides[0, b, c]
        value += matrices[b, c, r] * sides[1, b, c]
    alive = sides[0, b, r]
    products[0, b, r], products[1, b, r] = one * alive, value * alive


@kernel("f8[3] f8[2]")
def roots(n, matrices, values):
    """Eigenvectors (rows) times the fourth root of their eigenvalues: B with Q = B^T B; a lane for every element."""
    bins = matrices.shape[1]
    r = n // bins
    value = values[r // bins, r % bins]
    matrices[r // bins, r % bins, n % bins] *= math.sqrt(math.sqrt(value)) if value > 0.0 else 0.0


@kernel("f8[2] f8[3] f8[2]")
def squares(n, errors, matrices, diagonal):
    """By how much (QQ)_jj differs from S_jj, relatively; a lane for every row."""
    bins = matrices.shape[1]
    r, b = n % bins, n // bins
    total = 0.0
    for c in range(bins):
        total += matrices[b, c, r]**2
    errors[b, r] = abs(total / diagonal[b, r] - 1.0)
