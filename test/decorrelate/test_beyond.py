"""Products of the remainder of S, beyond its band and windows, with vectors."""
import numpy as np
import pytest

from decorrelate.cases import EPS, band_and_rest, make_bundle
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.decorrelate.narrow import simd_beyond
from gpu_extract.decorrelate.narrow.remainder import remainders
from gpu_extract.decorrelate.narrow.schur import Neighbours
from gpu_extract.decorrelate.narrow.simd_shifted import LANES
from gpu_extract.kernels.compiled import njit
from gpu_extract.vectors.simd import address


@njit(nogil=True, error_model="numpy")
def _beyond(w, v, g, bins, columns, around):
    """w = E v on bins (first, count), v and g between rows of zeros."""
    (begin, count), (neighbours, windows, hw) = bins, around
    pad = v.shape[1] * ((len(v) - count) // 2)
    lows, made = simd_beyond.factors(neighbours, begin, count, 2 * hw + 1)
    taken = simd_beyond.taken_bands(neighbours, begin, count, columns)
    simd_beyond.beyond_band(address(w, 0), address(v, pad), address(g, pad), bins, (address(taken, 0), columns),
                            neighbours, lows, hw)
    simd_beyond.beyond_windows(address(w, 0), address(v, pad), columns - 1, windows, begin, count)
    return len(made) + len(taken)        # numba gives memory back after its last use


@pytest.mark.parametrize("nwave", [150, 151])
@pytest.mark.parametrize("mask", ["clean", "block", "gap"])
def test_products_with_the_remainder_are_those_of_a_dense_matrix(mask, nwave):
    """On all bins, an even or odd number of them, with windows and without: E of the oracle, to rounding of S. For a
    fibre without windows beside one with windows it is accurate to a thousandth, because a band is handed over to
    it."""
    bundle, windows = make_bundle(6, nwave, mask=mask, wing=0.05, stamp=(11, 13)), 0
    limits = Limits(tail=1.0, coupling=1e-15, most_coupling=1.0, widen=(0,), shift=1e-99)
    neighbours, rng = Neighbours(bundle.normal, bundle.x, limits), np.random.default_rng(1)
    for fibre in range(6):
        schur, alive = neighbours.complement(fibre), bundle.normal.weight[fibre] > 0
        rest, around = band_and_rest(bundle, fibre, schur)[1], remainders(neighbours, [(0, fibre, schur)]).around
        columns = schur.room.half + 1
        pad = max(around[2], columns) + 1
        v, w, g = np.zeros((nwave + 2 * pad, LANES)), np.empty((nwave, LANES)), np.zeros((nwave + 2 * pad, LANES))
        v[pad:-pad] = rng.normal(size=(nwave, LANES)) * alive[:, None]
        _beyond(w, v, g, (0, nwave), columns, around)
        wanted = rest @ v[pad:-pad]
        beside = 1e-3 * np.abs(wanted).max() * (mask == "block" and not schur.windows)
        rounding = 100 * EPS * np.abs(schur.band).max()
        assert np.abs(w - wanted)[alive].max() <= rounding + beside < 0.01 * np.abs(wanted).max()
        windows += len(schur.windows)
    assert bool(windows) == (mask != "clean")
