"""Small bundles with a dense oracle: Gaussian spots with wings on a made-up CCD, masks, and C = icov^-1 in full."""
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from gpu_extract.data import Array, Normal
from gpu_extract.decorrelate.narrow import definite, simd_band_tests, simd_banded, simd_measure
from gpu_extract.decorrelate.narrow.bands import Bands
from gpu_extract.decorrelate.narrow.measure import Schur
from gpu_extract.decorrelate.narrow.simd_banded import SIDES
from gpu_extract.decorrelate.windows import simd_windows
from gpu_extract.kernels.arena import Arena
from gpu_extract.vectors import transpose

EPS = np.finfo(float).eps
MASKS = ("clean", "column", "block", "dead", "gap")


@dataclass(frozen=True)
class Oracle:
    """One fibre of the solution without any cut: Q (nwave, nwave), its row sums and the condition number of S."""

    q: Array
    s: Array
    cond: float

    def flux(self, x: Array) -> Array:
        return np.divide(self.q @ x, self.s, out=np.zeros_like(x), where=self.s != 0)

    def rows(self) -> Array:
        return np.divide(self.q, self.s[:, None], out=np.zeros_like(self.q), where=self.s[:, None] != 0)

    def diagonals(self, ndiag: int) -> Array:
        """As in data.Decorrelated: [k, j] = R[j - ndiag + k, j]."""
        rows, n = self.rows(), len(self.s)
        out = np.zeros((2 * ndiag + 1, n))
        for k in range(2 * ndiag + 1):
            for j in range(n):
                if 0 <= j - ndiag + k < n:
                    out[k, j] = rows[j - ndiag + k, j]
        return out


@dataclass(frozen=True)
class Bundle:
    """Normal equations, x and the dense matrix from which they come (bins ordered fibre, wavelength)."""

    normal: Normal
    x: Array
    dense: Array

    @cached_property
    def covariance(self) -> Array:
        """C, with the bins of weight 0 decoupled."""
        dark = (self.normal.weight == 0).ravel()
        return np.linalg.inv(self.dense + np.diag(np.where(dark, self.dense.max(), 0.0)))

    def oracle(self, fibre: int) -> Oracle:
        n = self.x.shape[1]
        block = slice(fibre * n, (fibre + 1) * n)
        values, vectors = np.linalg.eigh(self.covariance[block, block])
        q = (vectors * values**-0.5) @ vectors.T
        alive = self.normal.weight[fibre] > 0
        q[~alive], q[:, ~alive] = 0.0, 0.0
        return Oracle(q, q.sum(axis=1), float(values[-1] / values[0]))


def make_bundle(nfibre: int = 5, nwave: int = 120, *, mask: str = "clean", stamp: tuple[int, int] = (11, 17),
                wing: float = 0.02, step: float = 1.48, seed: int = 3) -> Bundle:
    """A bundle of straight traces 7.26 pixels apart, `step` pixels per bin, sigma 1.05 with a wing of twice that.

    wing: share of the light in the wing (0.02 couples neighbours as on DESI's PSF, 0.3 strongly); mask: one of MASKS:
    "column" through a trace, "block" of 13 x 13 pixels, "dead" fibre, "gap" of bins without light
    """
    rng = np.random.default_rng(seed)
    ny, nx = int(step * nwave) + stamp[0], int(7.26 * nfibre) + stamp[1] + 4
    design = _design((nfibre, nwave), (ny, nx), stamp, wing, step)
    truth = 30 + 600 * (rng.random((nfibre, nwave)) < 0.08) * rng.random((nfibre, nwave))
    image = (design @ truth.ravel()).reshape(ny, nx)
    ivar = 1.0 / (image + 9.0)
    image = image + rng.normal(size=image.shape) / np.sqrt(ivar)
    centre = int(7.26 * (nfibre // 2) + stamp[1] / 2 + 3), int(0.45 * ny)
    if mask in ("column", "gap"):
        ivar[:, centre[0]] = 0.0
    if mask == "block":
        ivar[centre[1]:centre[1] + 13, centre[0] - 6:centre[0] + 7] = 0.0
    if mask == "gap":
        ivar[centre[1]:centre[1] + 21] = 0.0
    if mask == "dead":
        ivar[:, centre[0] - 4:centre[0] + 5] = 0.0
    return _normal(design, image.ravel(), ivar.ravel(), (nfibre, nwave), step=step, stamp=stamp)


def _design(shape: tuple[int, int], ccd: tuple[int, int], stamp: tuple[int, int], wing: float,
            step: float) -> sparse.csc_matrix:
    """A, pixels by bins."""
    rows, columns, values = [], [], []
    for i in range(shape[0]):
        for j in range(shape[1]):
            y, x = step * j + 0.5 * stamp[0] + 0.13 * i, 7.26 * i + 0.5 * stamp[1] + 3 + 0.4 * np.sin(0.05 * j)
            y0, x0 = int(np.floor(y - 0.5 * stamp[0] + 0.5)), int(np.floor(x - 0.5 * stamp[1] + 0.5))
            dy, dx = y0 + np.arange(stamp[0]) - y, x0 + np.arange(stamp[1]) - x
            square = dy[:, None]**2 + dx**2
            spot = (1 - wing) * np.exp(-square / (2 * 1.05**2)) + 0.25 * wing * np.exp(-square / (8 * 1.05**2))
            inside = (y0 + np.arange(stamp[0]) >= 0) & (y0 + np.arange(stamp[0]) < ccd[0])
            spot = np.where(inside[:, None], spot / spot.sum(), 0.0)
            pixels = np.clip(y0 + np.arange(stamp[0]), 0, ccd[0] - 1)[:, None] * ccd[1] + x0 + np.arange(stamp[1])
            rows.append(pixels.ravel())
            columns.append(np.full(spot.size, i * shape[1] + j))
            values.append(spot.ravel())
    data = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
    return sparse.csc_matrix(data, shape=(ccd[0] * ccd[1], shape[0] * shape[1]))


def _normal(design: sparse.csc_matrix, pixels: Array, ivar: Array, shape: tuple[int, int], *, step: float,
            stamp: tuple[int, int]) -> Bundle:
    weighted = sparse.diags(ivar) @ design
    dense = np.asarray((design.T @ weighted).todense())
    rhs, weight = (weighted.T @ pixels).reshape(shape), (design.T @ ivar).reshape(shape)
    minimum = 1e-4 * weight.max()
    weak = (weight < minimum) & (weight > 0)
    dense[np.diag_indices_from(dense)] += np.where(weak, (minimum - weight)**2, 0.0).ravel()
    dark = (weight == 0).ravel()
    solvable = dense + np.diag(np.where(dark, dense.max(), 0.0))
    x = np.where(dark, 0.0, np.linalg.solve(solvable, rhs.ravel())).reshape(shape)
    hw, nd = int(np.ceil(stamp[0] / step)), int(stamp[1] / 7.26) + 1
    icov = to_bands(dense.reshape(*shape, *shape), nd, min(hw, shape[1] - 1))
    own = max(np.nonzero(icov[:, 0].any(axis=(0, 1)))[0].max(initial=0) - icov.shape[3] // 2, 2)
    return Bundle(Normal(icov, np.where(weight > 0, rhs, 0.0), weight, weak, int(own)), x, dense)


def to_bands(dense: Array, nd: int, hw: int) -> Array:
    """icov in the layout of data.Normal from (nfibre, nwave, nfibre, nwave); checks that nothing is cut off."""
    nfibre, nwave = dense.shape[:2]
    icov = np.zeros((nfibre, min(nd, nfibre), nwave, 2 * hw + 1))
    for d in range(icov.shape[1]):
        for i in range(nfibre - d):
            for k in range(-hw, hw + 1):
                inside = np.arange(max(0, -k), nwave - max(0, k))
                icov[i, d, inside, hw + k] = dense[i, inside, i + d, inside + k]
    kept = np.count_nonzero(icov[:, 0]) + 2 * np.count_nonzero(icov[:, 1:])
    if kept != np.count_nonzero(dense):
        raise ValueError("the bands do not hold all of the matrix")
    return icov


def band_of(matrix: Array, half: int) -> Array:
    """(n, half + 1): rows of the upper triangle of a symmetric matrix, 0 beyond the end."""
    n = len(matrix)
    band = np.zeros((n, half + 1))
    for a in range(min(half, n - 1) + 1):
        band[:n - a, a] = np.diagonal(matrix, a)
    return band


def full_of(band: Array) -> Array:
    """The symmetric matrix of such a band."""
    n = len(band)
    matrix = np.zeros((n, n))
    for a in range(min(band.shape[1], n)):
        index = np.arange(n - a)
        matrix[index, index + a] = matrix[index + a, index] = band[:n - a, a]
    return matrix


def band_and_rest(bundle: Bundle, fibre: int, schur: Schur) -> tuple[Array, Array]:
    """S of a fibre in two parts: that in its band and windows, and the remainder of the oracle's S."""
    n, alive = bundle.x.shape[1], bundle.normal.weight[fibre] > 0
    own = slice(fibre * n, (fibre + 1) * n)
    b, kept = full_of(schur.band), np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= schur.room.half
    for first, block in schur.windows:
        inside = slice(first, first + len(block))
        b[inside, inside], kept[inside, inside] = block, True
    return b, np.where(kept | ~alive[:, None] | ~alive, 0.0, np.linalg.inv(bundle.covariance[own, own]))


def random_definite(n: int, half: int, cond: float, rng: np.random.Generator) -> Array:
    """A symmetric positive definite band matrix of about that condition number, like those of normal equations."""
    profile = np.exp(-2.5 * (np.arange(half + 1) / max(half, 1))**2) * (1 + 0.05 * rng.normal(size=half + 1))
    band = profile * np.exp(0.3 * rng.normal(size=n))[:, None]
    matrix = full_of(band)
    values = np.linalg.eigvalsh(matrix)
    return matrix + (values[-1] / cond - values[0]) * np.eye(n)


def narrow_sum(band, sides, poles, ndiag, blocks=()):
    """(nwave, out_width): the narrow pole sum of one fibre among others; blocks: its windows, (first bin, S within)."""
    nwave, half = len(band), band.shape[1] - 1
    wide = max(half, ndiag)
    zeros = Arena().zeros
    out, work = zeros(3, nwave, simd_banded.out_width(ndiag)), zeros(simd_banded.work_size(nwave, half, ndiag))
    bands, right = zeros(2, transpose.padded(half) + nwave, half + 1), zeros(3, nwave, SIDES)
    both, columns = zeros(2, 8 + poles.shape[1]), zeros(simd_windows.room([len(m) for _, m in blocks], wide))
    out[:], work[:], columns[:] = np.nan, 7.0, np.nan        # what an earlier fibre may have left there
    bands[1, -nwave:], right[2], both[:, 8:] = band, sides, poles
    windows, edges = simd_windows.packed([(), blocks], wide, columns)
    fibres = np.array([[2, 1, 8, 8 + poles.shape[1], *edges[1:]]])
    simd_banded.pole_sum(half, ndiag)(out, work, bands, right, tuple(both), windows, fibres)
    assert np.isnan(out[:2]).all()
    return out[2]


def measured(half, icov, steps, *, fibre=0, given=None, bound=np.nan):
    """The results of `simd_measure.measure` for one fibre without shares, and its band.

    given: S and U, (nwave, half + 1) each, if they are not made; bound: then that on S
    """
    nwave, arena = icov.shape[2], Arena()
    room, nothing = Bands(arena, 2, nwave, half + 1), [np.zeros((nwave, half + 1)), np.zeros(nwave)]
    if given is not None:
        room.band(0)[:], room.band(1)[:], room.rest(0)[:] = *given, 0.0
    found = np.full((1, 6), np.nan), np.array([bound]), np.zeros((1, 4), dtype=np.int64)
    places = np.array([[fibre, 0, *[array.ctypes.data for array in nothing] * 2, 4]])
    beside = np.zeros((len(icov), nwave + 2 * (half + transpose.LANES)))
    schur = room.bands, room.rests, room.diagonals, room.shifts, room.edges, room.band(1)
    simd_measure.measure(half)(found, schur, icov, places, (beside, beside), (definite.SETS, definite.KINDS),
                              Arena().zeros(simd_band_tests.work_size(half)), steps)
    return definite.facts_of(*found[2][0].tolist()), float(found[1][0]), room.band(0)
