"""Effects unknown to an extraction: another PSF than the given one, tails beyond the stamps, scattered light."""
from dataclasses import replace

import numpy as np

from gpu_extract.data import Array, Legendre, PsfModel, Tail
from gpu_extract.passes.crosstalk import add_tails
from gpu_extract.plan import instrument_bundles
from gpu_extract.simulate.config import SimConfig
from gpu_extract.simulate.spectra import Truth
from gpu_extract.spots import centres, corners, evaluate, make_spots

RADIUS = 60.0                   # pixels: tails end here
CORE, INDEX = 3.0, 1.8          # of a tail: core (pixels), and index


def with_tail(psf: PsfModel, amplitude: float) -> PsfModel:
    """A PSF whose spots also have a tail, inside their stamps and beyond; unchanged for an amplitude of 0."""
    if amplitude == 0:
        return psf
    like = psf.cores[0].sigma_x          # files have one wavelength range for all parameters of a spot's shape
    return replace(psf, tail=Tail(*map(like.same, (amplitude, CORE, 1.0, 1.0, INDEX))))


def broadened(psf: PsfModel, share: float) -> PsfModel:
    """A PSF whose core is broader by a share of its width."""
    def wider(series: Legendre) -> Legendre:
        return replace(series, coeff=series.coeff * (1 + share))

    return replace(psf, cores=tuple(replace(core, sigma_x=wider(core.sigma_x), sigma_y=wider(core.sigma_y))
                                    for core in psf.cores))


def add_troubles(expected: Array, config: SimConfig, psf: PsfModel, truth: Truth) -> None:
    """Add tails beyond the stamps and scattered light to the expected light (ny, ncolumn), in place."""
    if psf.tail is not None:
        for lo, hi in instrument_bundles(psf, len(truth.fibres)):
            rows = slice(max(lo - int(truth.fibres[0]), 0), min(hi - int(truth.fibres[0]), len(truth.fibres)))
            if rows.start < rows.stop:
                fibres = int(truth.fibres[rows.start]), int(truth.fibres[rows.stop - 1]) + 1
                strengths = truth.electrons(rows) * tail_scale(psf, fibres, truth.wave)
                add_tails(expected, (0, 0), psf, (fibres, truth.wave), strengths, RADIUS)
    if config.scattered:
        expected += config.scattered * scattered(expected.shape[0])[:, None]


def scattered(rows: int) -> Array:
    """Scattered light along the rows of a detector, with mean 1."""
    at = np.linspace(-1, 1, rows)
    shape: Array = 1 + 0.4 * at - 0.2 * (3 * at**2 - 1) / 2
    return shape / shape.mean()


def tail_scale(psf: PsfModel, fibres: tuple[int, int], wave: Array) -> Array:
    """(nfibre, nwave) factor of the tail's formula, from a corner of the stamps, where there is only light of the
    tail."""
    tail = psf.tail
    if tail is None:
        return np.zeros((fibres[1] - fibres[0], len(wave)))
    centre = centres(psf, fibres, wave)
    first = corners(psf, centre)
    amp, core, xscale, yscale, index = (evaluate(series, fibres, wave) for series in
                                        (tail.amp, tail.core, tail.xscale, tail.yscale, tail.index))
    r2 = ((first[1] - centre[1]) * xscale) ** 2 + ((first[0] - centre[0]) * yscale) ** 2
    scale = np.empty(r2.shape)
    for start in range(0, len(wave), 256):
        part = slice(start, start + 256)
        scale[:, part] = make_spots(psf, fibres, wave[part]).stamps[:, :, 0, 0]
    return scale / (amp * r2 / (core**2 + r2) ** (1 + index / 2))
