"""The starting PSF: Gaussian spots of measured widths on traces against wavelength, an ordinary PSF file."""
import numpy as np

from gpu_extract.data import Array, Core, IntArray, Legendre, PsfModel
from gpu_psf.series import at_rows, fit_series
from gpu_psf.start.profiles import Traces
from gpu_psf.start.solution import Solution

DEGREE = 6                # of the traces against wavelength
WIDTH_DEGREE = 2
HALF = 4.5                # half-size of a stamp in sigmas
LEAST_HALF, MOST_HALF = 4, 64
SAMPLES = 256
BROAD = 1.3               # times the width of a sharp line: a blend


def make_psf(traces: Traces, solution: Solution, sigma_y: Array, shape: tuple[int, int], *,
             bundles: IntArray | None = None, name: str = "start") -> PsfModel:
    """A PSF of GAUSS-HERMITE of degree 0 (GH-0-0 = 1).

    sigma_y: (nfibre, ncoef) pixels against the row, as Legendre series over 0 .. ny - 1; shape: (ny, nx)
    bundles: (nfibre,) the bundle of each; None: all in one

    If fibres have their own wavelengths (solution.orders), the coordinate of all series is the wavelength of the middle
    fibre. PsfModel.own maps it to each fibre by a straight line through the fibre's wavelengths in the first and the
    last row.
    """
    ny, n = shape[0], len(traces.light)
    y = np.linspace(0.0, ny - 1.0, SAMPLES)
    wave = solution.at(y)
    coordinate, own, span = wave, None, (float(wave.min()), float(wave.max()))
    if solution.orders is not None:
        reference = wave[n // 2]
        low, high = sorted((float(reference[0]), float(reference[-1])))
        ends = np.sort(wave[:, [0, -1]], axis=1)
        own = Legendre(np.stack([ends.mean(axis=1), (ends[:, 1] - ends[:, 0]) / 2], axis=1), low, high)
        coordinate = low + (high - low) * (wave - ends[:, :1]) / (ends[:, 1:] - ends[:, :1])
        span = low, high
    x_of, width_x = at_rows(traces.x, y), np.maximum(at_rows(traces.sigma, y), 0.2)
    width_y = at_rows(Legendre(sigma_y, 0.0, ny - 1.0), y)
    # beyond the rows of the CCD a trace goes on as its polynomial does: a fibre whose wavelengths are shifted against
    # the others' is evaluated there a little
    series = [fit_series(coordinate, values, span, degree) for values, degree in (
        (x_of, DEGREE), (np.broadcast_to(y, x_of.shape), DEGREE), (width_x, WIDTH_DEGREE), (width_y, WIDTH_DEGREE))]
    gh = Legendre(np.zeros((1, 1, n, WIDTH_DEGREE + 1)), *span)
    gh.coeff[0, 0, :, 0] = 1.0
    hx, hy = (int(np.clip(np.ceil(HALF * np.median(w)), LEAST_HALF, MOST_HALF)) for w in (width_x, width_y))
    core, one = Core(series[2], series[3], gh), np.zeros(n, dtype=np.int64)
    return PsfModel(series[0], series[1], (core,), None, (2 * hy + 1, 2 * hx + 1), (hy - 0.5, hx - 0.5), shape,
                    bundle=one if bundles is None else bundles, name=name, own=own)


def width_surface(fibre: np.ndarray, row: Array, sigma: Array, light: Array, nfibre: int, ny: int) -> Array:
    """(nfibre, 2) series of the width along the dispersion against the row, from lines: a plane in row and fibre
    through the sharp lines of the brighter half, since blends are always too wide."""
    u, v = 2 * row / (ny - 1) - 1, 2 * fibre / max(nfibre - 1, 1) - 1
    terms = np.stack([np.ones(len(u)), u, v], axis=1) if len(u) >= 12 else np.ones((len(u), 1))
    bright = light >= np.median(light)
    kept = bright & (sigma < BROAD * np.quantile(sigma[bright], 0.25))
    found = np.zeros(terms.shape[1])
    for _ in range(10):
        found = np.linalg.lstsq(terms[kept], sigma[kept], rcond=None)[0]
        left = sigma - terms @ found
        spread = 1.4826 * np.median(np.abs(left[kept] - np.median(left[kept])))
        again = bright & (left < 1.5 * spread + 1e-9) & (left > -3 * spread - 1e-9)
        if (again == kept).all() or np.count_nonzero(again) < 3 * terms.shape[1]:
            break
        kept = again
    every = 2 * np.arange(nfibre) / max(nfibre - 1, 1) - 1
    constant = found[0] + (found[2] * every if len(found) > 1 else 0.0)
    slope = np.full(nfibre, found[1] if len(found) > 1 else 0.0)
    return np.stack([np.broadcast_to(constant, (nfibre,)), slope], axis=1)
