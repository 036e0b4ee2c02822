"""A patch from its pixels: what the dense core does where the normal equations cannot tell any more.

icov holds the squares of what a pixel says. A direction of which h is known, icov's diagonal scaled to 1, is lost in it
where h is below 1e-13, and with it what that direction takes from other fibres. The whitened spots themselves, W^1/2 A,
say the same to h = 1e-24: by orthogonal transformations alone,

    W^1/2 (A_around, A_i, p) -> rows that A_around does not reach, (B, d) -> R_i with R_i' R_i = B' B = S_i = C_ii^-1.

A column of A_around that depends on others reaches no row more: it is left out by pivoting. With R_i = V sigma U' the
rest is as from a Cholesky factor: Q_i = U V' R_i, Q_i x_i = U V' d. Directions of sigma = 0 take no part.
"""
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from gpu_extract.cores.weak import UNKNOWN
from gpu_extract.data import Array

SURE = 1e-12     # of a column's length: what is left of it above that is more than the spots' own rounding of 1e-14
NONE = 1e-15     # below that it is nothing
MOVED = 1e-3     # sigma
BLOCK = 64       # columns that LAPACK works on at a time


class Patch(NamedTuple):
    """The pixels of a patch: those with ivar that its spots touch.

    around: (pixels, n) whitened spots of the fibres around the one that is wanted; own: (pixels, bins), its own
    light: (pixels,) whitened pixels, less what all other bins put on them
    """

    around: Array
    own: Array
    light: Array


class Rooted(NamedTuple):
    """Of one fibre's bins: Q (n, n), its row sums (n,), Q x (n,), and which bins are weak, (n,) bool."""

    root: Array
    sums: Array
    product: Array
    weak: np.ndarray


def decorrelate(patch: Patch) -> Rooted:
    """Q, Q 1 and Q x of the patch's own fibre; a bin without light has neither.

    Columns of A_around of which less than SURE of their length is left, but more than NONE, may reach a row or be
    rounding of the spots: what that moves by more than MOVED is weak.
    """
    norms = np.sqrt((patch.own**2).sum(axis=0))
    alive = norms > 0.0
    both = np.column_stack([patch.own[:, alive] / norms[alive], patch.light])
    rows, ranks = _rotated(*_fewer_rows(patch.around, both))
    made = [_rooted(rows[rank:], norms[alive]) for rank in sorted(set(ranks))]
    n, size = int(np.count_nonzero(alive)), len(alive)
    weak = made[0].weak | _moved(made[0], made[-1])
    out = Rooted(np.zeros((size, size)), np.zeros(size), np.zeros(size), np.zeros(size, dtype=bool))
    if n:
        out.root[np.ix_(alive, alive)] = made[0].root
        out.sums[alive], out.product[alive], out.weak[alive] = made[0].sums, made[0].product, weak
    return out


def _fewer_rows(around: Array, columns: Array) -> tuple[Array, Array]:
    """The same by no more rows than there are columns: all of them turned at once, before any column is chosen."""
    whole = np.hstack([around, columns])
    whole = whole[(whole != 0.0).any(axis=1)]
    if len(whole) > whole.shape[1]:
        scale = np.sqrt((whole**2).sum(axis=0))
        whole = np.linalg.qr(whole / np.where(scale > 0.0, scale, 1.0), mode="r") * scale
    return whole[:, :around.shape[1]], whole[:, around.shape[1]:]


def _rooted(rows: Array, norms: Array) -> Rooted:
    """The same from what is left of the fibre's columns, made of length 1 by `norms`, and of the light behind them."""
    n = len(norms)
    triangle = np.linalg.qr(rows, mode="r") if rows.size else rows
    triangle = np.vstack([triangle, np.zeros((max(n - len(triangle), 0), n + 1))])
    scaled = triangle[:n, :n]
    known = scaled * norms
    v, u = _singular(known)
    polar = u.T @ v.T
    return Rooted(polar @ known, polar @ known.sum(axis=1), polar @ triangle[:n, n], _weak(scaled))


def _moved(one: Rooted, other: Rooted) -> np.ndarray:
    """Bins whose flux moves by more than MOVED sigma from one to the other, or ivar by as much of itself."""
    size = np.abs(one.sums) * MOVED
    flux = one.product * other.sums - other.product * one.sums
    moved: np.ndarray = ~((np.abs(flux) <= size * np.abs(other.sums)) & (2 * np.abs(one.sums - other.sums) <= size))
    return moved


def _rotated(around: Array, columns: Array) -> tuple[Array, tuple[int, int]]:
    """`columns` turned so that those of `around` reach their first rows alone: how many surely, how many at most."""
    norms = np.sqrt((around**2).sum(axis=0))
    lit = norms > 0.0
    if not lit.any() or not len(columns):
        return columns, (0, 0)
    unit = np.asfortranarray(around[:, lit] / norms[lit])
    width = unit.shape[1]
    factor, _, reflections, _, _ = lapack.dgeqp3(unit, lwork=2 * width + BLOCK * (width + 1), overwrite_a=1)
    pivots = np.abs(factor.diagonal())
    sure, most = (int(np.count_nonzero(pivots > limit)) for limit in (SURE, NONE))
    rotated, _, _ = lapack.dormqr("L", "T", factor[:, :most], reflections[:most], np.asfortranarray(columns),
                                  max(BLOCK * columns.shape[1], 1))
    return np.ascontiguousarray(rotated), (sure, most)


def _singular(matrix: Array) -> tuple[Array, Array]:
    """V and U' with M = V sigma U', without directions whose sigma is rounding of their bins' own."""
    v, sigma, u, info = lapack.dgesdd(matrix)
    if info != 0:
        raise np.linalg.LinAlgError("singular values of a patch did not converge")
    length = np.sqrt((u**2) @ (matrix**2).sum(axis=0))     # of a direction, its bins taken one by one
    there = sigma > SURE * length
    return v[:, there], u[there]


def _weak(scaled: Array) -> np.ndarray:
    """Bins with C_jj icov_jj > UNKNOWN; scaled: R_i with its columns of A scaled to length 1."""
    _, sigma, u, info = lapack.dgesdd(scaled)
    if info != 0:
        return np.ones(scaled.shape[1], dtype=bool)
    weak: np.ndarray = (1.0 / np.maximum(sigma, SURE) ** 2) @ u**2 > UNKNOWN
    return weak
