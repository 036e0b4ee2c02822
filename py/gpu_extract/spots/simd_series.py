"""CPU kernels: series of polynomials."""
# mypy: disallow-untyped-defs=False
import numpy as np

from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import address, vfma, vread16, vset16, vwrite

LANES = 16     # wavelengths at a time


@njit(cache=True)
def legendre(out, wave, domain):
    """Legendre polynomials of degree 0, 1, ... : out (one or more, nwave); domain: wavelengths where u is -1 and 1."""
    centre, scale = 0.5 * (domain[0] + domain[1]), 2.0 / (domain[1] - domain[0])
    for j in range(len(wave)):
        out[0, j] = 1.0
    if len(out) > 1:
        for j in range(len(wave)):
            out[1, j] = (wave[j] - centre) * scale
    for k in range(2, len(out)):
        near, far = (2 * k - 1) / k, (k - 1) / k
        for j in range(len(wave)):
            out[k, j] = near * out[1, j] * out[k - 1, j] - far * out[k - 2, j]


@njit(cache=True)
def evaluate(out, coeff, wave, domain):
    """out[i, j] = sum_k coeff[i, k] P_k(u_j), by k: out (n, nwave), coeff (n, ncoef); wave, domain: see `legendre`.

    All lanes are computed in the same way, even for fewer wavelengths: a value depends on its own wavelength alone.
    """
    n, ncoef = coeff.shape
    nwave = len(wave)
    some, basis, values = np.empty(LANES), np.empty((ncoef, LANES)), np.empty(LANES)
    for first in range(0, nwave, LANES):
        count = min(LANES, nwave - first)
        for j in range(LANES):
            some[j] = wave[first + min(j, count - 1)]
        legendre(basis, some, domain)
        for i in range(n):
            total = vset16(0.0)
            for k in range(ncoef):
                total = vfma(vset16(coeff[i, k]), vread16(address(basis, k * LANES)), total)
            if count == LANES:
                vwrite(address(out[i], first), total)
            else:
                vwrite(address(values, 0), total)
                for j in range(count):
                    out[i, first + j] = values[j]
