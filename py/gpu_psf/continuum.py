"""Light between the lines: the lamp's continuum through the fibres, and stray light."""
import numpy as np

from gpu_extract.data import Array
from gpu_psf.data import Frame, Parameters, Pixels
from gpu_psf.prepare import shape_basis, traces_at
from gpu_psf.profile import profiles
from gpu_psf.series import legendre, legvander

STEP = 16            # rows between profiles, which change slowly
DEGREES = 3, 1       # of continuum and stray light along the rows
FEWEST = 100         # pixels without lines
TURNS = 8            # iterations of the robust fit
CLIP = 4.0           # standard deviations above which light is not continuum


def profile_image(frame: Frame, now: Parameters, pixels: Pixels, throughput: Array) -> Array:
    """Cross-dispersion profile of all fibres, each times its throughput, in every row: (ny, nx), sum over x of each
    fibre's part its throughput."""
    _, ny, nx = pixels.value.shape
    rows = np.arange(0, ny + STEP, STEP)
    wave = np.linspace(*frame.x_range, 256)
    y = traces_at(frame, now, wave)[1] - pixels.y0
    image = np.zeros((len(rows), nx))
    count, half = frame.degree + 1, frame.start.stamp[1] // 2
    for fibre in range(frame.nfibre):
        at = np.interp(rows, y[fibre], wave) if y[fibre, -1] > y[fibre, 0] else np.interp(
            rows, y[fibre, ::-1], wave[::-1])
        x = legendre(at, frame.x_range, frame.trace) @ now.x[fibre] - pixels.x0
        terms = shape_basis(frame, np.full(len(at), fibre), at) @ now.shape[:count + 1].T     # widths, GH-i-0
        gh = np.concatenate([np.ones((len(at), 1)), terms[:, 2:]], axis=1)
        first = np.clip(np.rint(x).astype(np.int64) - half, 0, nx - 2 * half - 1)
        p = profiles(x, terms[:, 0], first, 2 * half + 1, count - 1)
        image[np.arange(len(rows))[:, np.newaxis], first[:, np.newaxis] + np.arange(2 * half + 1)] += (
            throughput[fibre] * np.maximum(np.einsum("nk,nks->ns", gh, p), 0.0))
    share = (np.arange(ny) % STEP / STEP)[:, np.newaxis]
    low = np.arange(ny) // STEP
    return image[low] * (1 - share) + image[low + 1] * share


def row_polynomials(count: int) -> list[Array]:
    """The polynomials of continuum and stray light along the rows: (count, degree + 1) each."""
    u = 2 * np.arange(count) / count - 1
    return [legvander(u, max(DEGREES))[:, :degree + 1] for degree in DEGREES]


def between_lines(pixels: Pixels, profile: Array, lines: np.ndarray) -> tuple[Array, Array]:
    """Continuum and stray light, in the shape of Pixels.value, fitted to the pixels away from lines; and the continuum
    of a fibre of throughput 1 in each row, (nexposure, ny) electrons.

    lines: where there may be light of lines, of the same shape
    """
    found, per_row = np.zeros(pixels.value.shape), np.zeros(pixels.value.shape[:2])
    parts = row_polynomials(len(profile))
    for n, (value, variance) in enumerate(zip(pixels.value, pixels.read_variance, strict=True)):
        inverse = np.where(lines[n], 0.0, 1 / variance)
        if np.count_nonzero(inverse) < FEWEST:
            continue
        first = _middle(inverse, value, profile, parts)
        if above_noise(first, variance, inverse > 0):
            found[n] = first            # else 0 is near enough; and such light has a noise of its own
            inverse = np.where(inverse > 0, 1 / (variance + np.maximum(first, 0.0)), 0.0)
        limit = 3 * CLIP
        for _ in range(3):
            apart = value - found[n]
            kept = np.where(apart * apart * inverse < limit * limit, inverse, 0.0)
            of_fibres, stray = _amounts(kept, value, profile, parts)
            found[n] = of_fibres[:, np.newaxis] * profile + stray[:, np.newaxis]
            per_row[n], limit = of_fibres, CLIP
    return found, per_row


def above_noise(light: Array, read_variance: Array, where: np.ndarray) -> bool:
    """Whether light exceeds the read noise anywhere in `where`; all of one shape."""
    return bool((light[where] ** 2 > read_variance[where]).any())


def _middle(inverse: Array, value: Array, profile: Array, parts: list[Array]) -> Array:
    """Continuum and stray light with as many residuals above as below, whatever their size: half of the pixels may be
    odd."""
    found = np.zeros(value.shape)
    weight = inverse
    for _ in range(TURNS):
        of_fibres, stray = _amounts(weight, value, profile, parts)
        found = of_fibres[:, np.newaxis] * profile + stray[:, np.newaxis]
        weight = inverse / np.maximum(np.abs(value - found) * np.sqrt(inverse), 1.0)
    return found


def _amounts(weight: Array, value: Array, profile: Array, parts: list[Array]) -> tuple[Array, Array]:
    """Continuum and stray light of every row, smooth along the rows: (ny,) each."""
    shaped = weight * profile
    rows = [[(shaped * profile).sum(axis=1), shaped.sum(axis=1)], [shaped.sum(axis=1), weight.sum(axis=1)]]
    right = [(shaped * value).sum(axis=1), (weight * value).sum(axis=1)]
    matrix = np.block([[parts[i].T @ (rows[i][j][:, np.newaxis] * parts[j]) for j in (0, 1)] for i in (0, 1)])
    scale = np.sqrt(np.maximum(matrix.diagonal(), 1e-30))
    unit = matrix / scale / scale[:, np.newaxis] + 1e-9 * np.eye(len(matrix))     # degenerate amounts stay near 0
    amount = np.linalg.solve(unit, np.concatenate([parts[i].T @ right[i] for i in (0, 1)]) / scale) / scale
    count = parts[0].shape[1]
    return parts[0] @ amount[:count], parts[1] @ amount[count:]
