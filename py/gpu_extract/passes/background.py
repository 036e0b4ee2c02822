"""A smooth additive background, fitted together with the spectra of a bundle.

The pixels are A x + B c + noise, where the columns of B are polynomials in the row of the CCD, constant across the
bundle. For any c the best x is x0 - Z c, where icov x0 = A^T W p and icov Z = A^T W B. The residuals are
p - A x0 - (B - A Z) c. The coefficients c make their weighted sums with B vanish:

    B' K W (B - A Z) c = B' K W (p - A x0)

K is 0 on the pixels at both ends, which hold light of bins that are not solved for, and 1 on all others. Everything is
linear in p. Light that is found later (tails) can therefore be subtracted from x and c alike.
"""
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.legendre import legvander

from gpu_extract.data import LANE, Array, Blocks, Frame, IntArray, Normal
from gpu_extract.normal import Cut
from gpu_extract.passes import simd_pixels

LEAST = 1e-4         # combinations of shapes of which a smaller share is distinct from the spectra take no part

Solver = Callable[[Array], Array]


def shapes(degree: int, rows: int) -> Array:
    """(degree + 1, rows) Legendre polynomials from -1 at the first row of a bundle's pixels to 1 at the last."""
    return np.ascontiguousarray(legvander(np.linspace(-1.0, 1.0, rows), degree).T, dtype=np.float64)


def background(coefficients: Array, shape: tuple[int, int]) -> Array:
    """A background on the pixels of a bundle (rows, columns), electron; 0 without coefficients."""
    if len(coefficients) == 0:
        return np.zeros(shape)
    rows = added(coefficients, shapes(len(coefficients) - 1, shape[0]))
    return np.broadcast_to(rows[:, None], shape)


def added(factors: Array, arrays: Array) -> Array:
    """The sum of factors times arrays, in order: the bits of a matrix product would depend on the number of threads."""
    total = np.zeros(arrays.shape[1:])
    for factor, array in zip(factors, arrays, strict=True):
        total += factor * array
    return total


def _sums(arrays: Array, other: Array) -> Array:
    """The sum of each array's products with another array, for the same reason not as a matrix product."""
    return np.array([float((array * other).sum()) for array in arrays])


def in_notes(coefficients: Array, cut: Cut) -> dict[str, float]:
    """A bundle's facts about its background: coefficients, and the first and last row of the CCD to which they
    apply."""
    if len(coefficients) == 0:
        return {}
    return {"background_first": cut.y0, "background_last": cut.y0 + cut.root.shape[0] - 1,
            **{f"background_{k}": float(c) for k, c in enumerate(coefficients)}}


def coefficients_of(notes: Mapping[str, float]) -> Array:
    """The coefficients in a bundle's facts; none without a background."""
    return np.array([notes[f"background_{k}"] for k in range(sum(key.startswith("background_") for key in notes) - 2)])


def background_of(frame: Frame, ny: int) -> Array:
    """(bundles, ny) the background in electron per pixel that was subtracted from each row of the CCD, by bundle.

    0 beyond the rows of a bundle's pixels, and everywhere without a background.
    """
    bundles: Mapping[int, Mapping[str, float]] = frame.notes.get("bundles", {})
    out = np.zeros((len(bundles), ny))
    for rows, (_, notes) in zip(out, sorted(bundles.items()), strict=True):
        coefficients = coefficients_of(notes)
        if len(coefficients):
            first, end = int(notes["background_first"]), int(notes["background_last"]) + 1
            values = background(coefficients, (end - first, 1))[:, 0]
            inside = slice(max(first, 0), min(end, ny))
            rows[inside] = values[inside.start - first:inside.stop - first]
    return out


def sum_under(blocks: Blocks, image: Array, nwave: int) -> Array:
    """A^T of an image on the cut-out: (nfibre, nwave)."""
    out = np.empty((blocks.begins.shape[0], LANE * blocks.begins.shape[1]))
    simd_pixels.sum_under(out, (blocks.stamps, blocks.begins, blocks.corners, blocks.scale), image)
    return out[:, :nwave]


@dataclass(frozen=True)
class Background:
    """The operators that separate spectra and background.

    moved: (n, nfibre, nwave) A^T W B, and `known` the same for the pixels whose light the model contains
    bends: (n, nfibre, nwave) Z, the spectra fitted to B; weights: (n, rows, columns) B K W
    inverse: (n, n) of B' K W (B - A Z), without combinations of shapes that are not distinct from the spectra
    """

    moved: Array
    known: Array
    bends: Array
    weights: Array
    inverse: Array

    def part(self, x: Array, image: Array) -> tuple[Array, Array]:
        """(x, c) of an image (rows, columns), whose spectra without a background are x (nfibre, nwave)."""
        left = _sums(self.weights, image) - _sums(self.known, x)
        c: Array = self.inverse @ left
        if not np.isfinite(c).all():
            c = np.zeros_like(c)
        return x - added(c, self.bends), c


def prepare(cut: Cut, rows: IntArray, degree: int, equations: tuple[Blocks, Normal, Solver]) -> Background:
    """The operators for the fit of a background.

    rows: (2, columns) rows of the cut-out whose light the model contains (outliers.known_rows)
    equations: spots, normal equations, and a function that solves these for another right-hand side (nfibre, nwave)
    """
    blocks, normal, solve = equations
    nwave, weight = normal.rhs.shape[1], np.square(cut.root)
    basis, y = shapes(degree, len(weight)), np.arange(len(weight))[:, None]
    inside = (y >= rows[0]) & (y < rows[1])
    weights = basis[:, :, None] * np.where(inside, weight, 0.0)
    moved = np.stack([sum_under(blocks, weight * each[:, None], nwave) for each in basis])
    moved[:, normal.weight <= 0] = 0.0       # bins that are given up
    known = np.stack([sum_under(blocks, each, nwave) for each in weights])
    bends = np.stack([solve(each) for each in moved])
    whole = np.stack([_sums(weights.sum(axis=2), each) for each in basis], axis=1)
    scale = np.sqrt(np.maximum(np.diag(whole), 0.0))
    scale = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    left = whole - np.stack([_sums(known, each) for each in bends], axis=1)
    return Background(moved, known, bends, weights, scale[:, None] * _inverse(scale[:, None] * left * scale) * scale)


def _inverse(matrix: Array) -> Array:
    """The inverse without singular values up to LEAST: the shares of shapes that are distinct from the spectra."""
    if not np.isfinite(matrix).all():
        return np.zeros_like(matrix)
    u, values, v = np.linalg.svd(matrix)
    values = np.divide(1.0, values, out=np.zeros_like(values), where=values > LEAST)
    return (v.T * values) @ u.T
