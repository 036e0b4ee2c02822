"""Centres and widths of all profiles of a flat, fitted together: a Gaussian for each fibre on a smooth background.

Neighbours overlap, so that separate centroids would be pulled towards each other. For each block of rows the
model is, at column c,

    sum_i a_i / 2 [erf((c + 1/2 - x_i) / (sqrt 2 s_i)) - erf((c - 1/2 - x_i) / (sqrt 2 s_i))] + background,

where the background is piecewise linear with a node every few fibres. The fit is Gauss-Newton with analytic
derivatives; the equations are sparse, since a fibre shares pixels only with its neighbours.
"""
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, diags_array, hstack
from scipy.sparse.linalg import spsolve
from scipy.special import erf

from gpu_extract.data import Array, Image, Legendre
from gpu_psf.series import legendre_of_rows, legfit, legvander
from gpu_psf.start.traces import Found, make_blocks

REACH = 4.0              # sigmas over which a profile is fitted
NODES = 8                # fibres per node of the background
STEPS = 9               # of Gauss-Newton
SMEAR = 0.4              # largest motion of a trace within a block of rows, pixels
MOST_BLOCKS = 160
BRIGHT = 15.0            # signal to noise of a block's profile that determines a shape
CLIP = 5.0
HIGH = 3.0               # times the highest pixel of a block: the peak of a profile, at most
ALONE = 0.3              # pixels by which a trace may leave the common bend where it is not seen
DEGREE, WIDTH_DEGREE = 4, 1      # in y, of traces and widths


@dataclass(frozen=True)
class Profiles:
    """Blocks by fibres: y (nblock,); light, x, sigma, error (nblock, n); error of x in pixels, inf where nothing is
    known."""

    y: Array
    light: Array
    x: Array
    sigma: Array
    error: Array


@dataclass(frozen=True)
class Traces:
    """Traces and widths against the row.

    x, sigma: (n, ncoef) pixels; light: (n,) median electrons of a row; error: (n,) rms of the blocks about the trace
    interpolated: (n,) bool, fibres that are not in the flat, interpolated between their neighbours
    columns: of the CCD
    """

    x: Legendre
    sigma: Legendre
    light: Array
    error: Array
    interpolated: np.ndarray
    columns: int


def fit_profiles(image: Image, found: Found) -> Profiles:
    """Fit all blocks of rows."""
    ny, _ = image.shape
    x = found.x(np.arange(ny, dtype=float))
    slope = np.abs(np.diff(x, axis=1)).max()
    blocks = make_blocks(image, int(np.clip(ny * slope / SMEAR, 32, MOST_BLOCKS)))
    start = found.x(blocks.y)
    sigma = found.width / 2.355
    parts = [_fit_block(profile, noise, start[:, n], sigma)
             for n, (profile, noise) in enumerate(zip(blocks.profile, blocks.noise, strict=True))]
    light, centre, width, error = (np.array([p[k] for p in parts]) for k in range(4))
    return Profiles(blocks.y, light, centre, width, error)


def _fit_block(profile: Array, noise: Array, x: Array, sigma: float) -> tuple[Array, Array, Array, Array]:
    """Light, centre, sigma, and the centre's error, of the fibres in one block."""
    n, nx = len(x), len(profile)
    centre, width, light = x.copy(), np.full(n, sigma), np.zeros(n)
    room = np.diff(x, prepend=-np.inf, append=np.inf)
    bounds = np.minimum(np.minimum(room[:-1], room[1:]) / 3, 2 * sigma)      # of the motion of a centre
    weight = np.where(noise > 0, 1 / np.maximum(noise, 1e-30), 0.0)
    nodes = np.linspace(0, nx - 1, max(n // NODES, 1) + 1)
    # basis of the piecewise linear background: (nx, nodes)
    ground = coo_array(np.stack([np.interp(np.arange(nx), nodes, unit) for unit in np.eye(len(nodes))], axis=1))
    for step in range(STEPS):
        rows, cols, values = _columns(centre, width, light, nx)
        basis = coo_array((values, (rows, cols)), shape=(nx, 3 * n)).tocsr()
        free = np.arange(3 * n) % 3 == 0 if step < 2 else np.ones(3 * n, dtype=bool)
        both = hstack([basis[:, np.flatnonzero(free)], ground]).tocsr()
        target = profile + (0.0 if step < 2 else _moved(basis, centre, width))
        weighted = diags_array(weight) @ both
        normal = (weighted.T @ weighted).tocsc()
        scale = np.maximum(normal.diagonal(), 1e-30)
        normal = normal + diags_array(1e-9 * scale + 1e-300)
        found = spsolve(normal, weighted.T @ (weight * target))
        if step < 2:
            light = np.maximum(found[:n], 0.0)
            continue
        light = np.maximum(found[0:3 * n:3], 0.0)
        # the parameters are the new values of centre and width, see _moved
        centre = np.clip(found[1:3 * n:3], np.maximum(centre - 0.3 * width, x - bounds),
                         np.minimum(centre + 0.3 * width, x + bounds))
        width = np.clip(found[2:3 * n:3], np.maximum(0.8 * width, sigma / 3), np.minimum(1.25 * width, 3 * sigma))
    errors = 1 / np.sqrt(np.maximum(normal.diagonal()[1:3 * n:3], 1e-300))
    seen = (light > 0) & (centre > -0.5) & (centre < nx - 0.5) & (errors < width)
    seen &= light < HIGH * np.sqrt(2 * np.pi) * width * profile.max()       # others went astray, beside masked columns
    return light, centre, width, np.where(seen, errors, np.inf)


def _columns(centre: Array, width: Array, light: Array, nx: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and values of the sparse matrix of (value, d/dx, d/dsigma) of each fibre's profile."""
    half = int(np.ceil(REACH * width.max())) + 1
    pixel = np.rint(centre)[:, None] + np.arange(-half, half + 1)
    values = np.stack(pixel_gaussian(pixel, centre[:, None], width[:, None], light[:, None]), axis=1)
    rows = np.broadcast_to(pixel[:, None], values.shape)
    cols = np.broadcast_to(np.arange(3 * len(centre)).reshape(-1, 3)[:, :, None], values.shape)
    inside = (rows >= 0) & (rows < nx)
    return rows[inside].astype(int), cols[inside], values[inside]


def pixel_gaussian(pixel: np.ndarray, centre: Array | float, width: Array | float,
                   light: Array | float) -> tuple[Array, Array, Array]:
    """A Gaussian of sum 1 integrated over pixels; its derivatives by centre and width, times `light`."""
    upper, lower = ((pixel + side - centre) / width for side in (0.5, -0.5))
    bell_u, bell_l = (np.exp(-0.5 * edge**2) / np.sqrt(2 * np.pi) for edge in (upper, lower))
    return (0.5 * (erf(upper / np.sqrt(2)) - erf(lower / np.sqrt(2))), light * (bell_l - bell_u) / width,
            light * (lower * bell_l - upper * bell_u) / width)


def _moved(basis: coo_array, centre: Array, width: Array) -> Array:
    """The derivatives' contribution at the present centre and width. With it, the unknowns are the new values, and the
    profile's own value is not counted twice (light is a factor of its first column)."""
    return basis @ np.stack([np.zeros(len(centre)), centre, width], axis=1).ravel()


def fit_traces(found: Found, profiles: Profiles, shape: tuple[int, int]) -> Traces:
    """Series in y of centres and widths.

    A trace is the common bend plus its own series, of DEGREE if its blocks determine it, or of fewer terms if it is
    faint or cut off by the CCD's edge. Where it is not seen, as in a masked amplifier, it is held to the common bend.
    So it never leaves the path of its neighbours.
    """
    ny, n = shape[0], len(found.place)
    y = np.arange(ny, dtype=float)
    common = legfit(2 * y / (ny - 1) - 1, found.x(y).T, max(DEGREE, found.bend.coeff.shape[0])).T
    path = found.x(profiles.y)
    coeff, width, error = common.copy(), np.zeros((n, WIDTH_DEGREE + 1)), np.zeros(n)
    argument = 2 * profiles.y / (ny - 1) - 1
    typical = float(np.median(profiles.sigma[np.isfinite(profiles.error)]))
    for i in range(n):
        known = np.isfinite(profiles.error[:, i])
        bright = known & (profiles.error[:, i] < profiles.sigma[:, i] / BRIGHT)
        terms = min(DEGREE + 1, max(int(np.count_nonzero(bright)) // 3, 1)) if bright.any() else 1
        weight = np.where(known, 1 / np.hypot(profiles.error[:, i], 0.02), 0.0)
        apart = np.where(known, profiles.x[:, i] - path[i], 0.0)
        own = _robust(argument, apart, np.where(known, weight, 1 / ALONE) if bright.any() else weight, terms)[0]
        error[i] = _robust(argument, apart, weight, terms)[1]
        coeff[i, :terms] += own
        wterms = min(WIDTH_DEGREE + 1, max(int(np.count_nonzero(bright)) // 4, 1))
        weight = np.where(bright, 1 / np.hypot(profiles.error[:, i], 0.02), 0.0)
        width[i, :wterms] = _robust(argument, profiles.sigma[:, i], weight, wterms)[0] if bright.any() else [typical]
    return Traces(legendre_of_rows(coeff, ny), legendre_of_rows(width, ny), np.median(profiles.light, axis=0), error,
                  np.zeros(n, dtype=bool), shape[1])


def _robust(argument: Array, values: Array, weight: Array, terms: int) -> tuple[Array, float]:
    """A weighted Legendre fit without outliers, and the rms of its residuals."""
    basis = legvander(argument, terms - 1)
    kept = weight > 0
    if np.count_nonzero(kept) < terms:
        return np.zeros(terms), np.inf
    found = np.zeros(terms)
    for _ in range(8):
        found[:] = np.linalg.lstsq(basis[kept] * weight[kept, None], values[kept] * weight[kept], rcond=None)[0]
        left = (values - basis @ found) * weight
        limit = CLIP * max(1.4826 * np.median(np.abs(left[kept])), 1e-9)
        again = (weight > 0) & (np.abs(left) <= limit)
        if np.count_nonzero(again) <= terms or (again == kept).all():
            break
        kept = again
    return found, float(np.sqrt(np.mean((values - basis @ found)[kept]**2)))
