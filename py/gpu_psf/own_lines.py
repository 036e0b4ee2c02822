"""Lines for fibres with their own wavelengths: each line on every fibre that shows it.

A fit works in the common coordinate of the fibres (PsfModel.own, see gpu_extract.own_wave). A line of a lamp has a
different coordinate in each fibre, and in an echelle it falls on only one or two of the orders.
"""
import numpy as np

from gpu_extract.data import Array, IntArray, PsfModel
from gpu_psf.data import Lines
from gpu_psf.series import one_by_one

SAMPLES = 257
ROUNDS = 4          # Newton steps from linear interpolation between samples


def own_lines(lines: Lines, psf: PsfModel) -> Lines:
    """The lines in the common coordinate, each with its fibre; unchanged if fibres have no own wavelengths."""
    if psf.own is None:
        return lines
    rows: list[tuple[float, float, int, int]] = []
    for fibre in range(psf.nfibre):
        at = coordinates(psf, fibre, lines.wave)
        rows += [(at[n], lines.strength[n], fibre, int(n)) for n in np.flatnonzero(np.isfinite(at))]
    table = np.array(sorted(rows)).reshape(-1, 4)
    fibre, listed = table[:, 2:].T.astype(np.int64)
    return Lines(table[:, 0], table[:, 1], fibre, listed)


def coordinates(psf: PsfModel, fibre: int, wave: Array) -> Array:
    """The common coordinate at which a fibre has these wavelengths; NaN beyond the range of the PSF."""
    if psf.own is None:
        return wave
    series = np.polynomial.Legendre(psf.own.coeff[fibre], (psf.own.wmin, psf.own.wmax))
    samples = np.linspace(*psf.wavelength_range, SAMPLES)
    at = np.interp(wave, series(samples), samples, left=np.nan, right=np.nan)
    for _ in range(ROUNDS):
        at = at - (series(at) - wave) / series.deriv()(at)
    return np.asarray(at, np.float64)


def wavelengths(psf: PsfModel, fibre: IntArray, at: Array) -> Array:
    """Wavelengths of fibres (n,) at the common coordinate (n,), which is returned if fibres have no own wavelengths."""
    return at if psf.own is None else one_by_one(psf.own, fibre, at)
