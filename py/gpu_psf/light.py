"""Light of lines and fibres, as a table of both. Its medians are insensitive to single odd spots."""
import numpy as np

from gpu_extract.data import Array, IntArray
from gpu_psf.data import Spots


def median_of(table: Array, axis: int) -> Array:
    """Medians without NaN values; 0 where all are NaN."""
    some = np.isfinite(table).any(axis=axis)
    filled = np.where(np.expand_dims(some, axis), table, 0.0)
    return np.nanmedian(filled, axis=axis)


def light_table(spots: Spots, flux: Array, firm: np.ndarray, nfibre: int) -> tuple[IntArray, Array]:
    """Numbers of the spots' lines in all exposures, (nspot,), and the light of firm spots as a table of these lines and
    the fibres, NaN where there is none."""
    kind = spots.exposure * (spots.line.max() + 1) + spots.line
    table = np.full((kind.max() + 1, nfibre), np.nan)
    table[kind[firm], spots.fibre[firm]] = flux[firm]
    return kind, table


def throughput(spots: Spots, flux: Array, firm: np.ndarray, nfibre: int) -> Array:
    """Relative throughput of the fibres, from their lines in all exposures, (nfibre,); about 1."""
    light = light_table(spots, flux, firm, nfibre)[1]
    usual = median_of(light, axis=1)
    return median_of(light / np.where(usual > 0, usual, np.nan)[:, np.newaxis], axis=0)


def expected_light(spots: Spots, flux: Array, firm: np.ndarray) -> Array:
    """The light expected from line and fibre: median over the fibres times median over the lines, (nspot,)."""
    kind, table = light_table(spots, flux, firm, int(spots.fibre.max()) + 1)
    of_line, of_fibre = (np.ones(count) for count in table.shape)
    for _ in range(3):
        of_line = median_of(table / of_fibre, axis=1)
        of_fibre = median_of(table / np.where(of_line > 0, of_line, np.nan)[:, np.newaxis], axis=0)
        of_fibre = np.where(of_fibre > 0, of_fibre, 1.0)
    return of_line[kind] * of_fibre[spots.fibre]
