"""The oracle and small cases for it: PSFs of each family and images with a known answer.

The PSFs are made up, but have the size and roughness of real ones: 7.3 pixels between fibres, sigma 1.05 pixel,
Gauss-Hermite terms of a few per cent that vary along and across the CCD.
"""
from dataclasses import dataclass
from math import factorial

import numpy as np

from gpu_extract.config import ExtractConfig
from gpu_extract.data import Core, Frame, Image, Legendre, PsfModel, Tail
from gpu_extract.oracle import (
    BundleOracle,
    FibreOracle,
    Spot,
    bundle_ranges,
    decorrelate,
    design_matrix,
    diagonals,
    evaluate,
    expected_image,
    mask_bits,
    oracle_extract,
    solve_bundle,
    spot,
    wavelength_grid,
)
from gpu_extract.spots.tables import tabulated

__all__ = [
    "BundleOracle", "FibreOracle", "Spot", "bundle_ranges", "decorrelate", "design_matrix", "diagonals",
    "evaluate", "expected_image", "mask_bits", "oracle_extract", "solve_bundle", "spot",
    "wavelength_grid",
    "Case", "FAMILIES", "make_case", "make_psf", "sigma_difference",
]

FAMILIES = ("v3", "tails", "gh2")
WMIN, WMAX = 6000.0, 6200.0      # domain of the made-up PSFs, Angstrom


def _series(value, nfibre: int, rng: np.random.Generator, rough: float = 0.02) -> Legendre:
    """A series of mean `value` that varies by `rough` (relative) with wavelength and fibre."""
    value = np.asarray(value, dtype=float)
    coeff = np.zeros((*value.shape, nfibre, 4))
    coeff[..., 0] = value[..., None] * (1 + rough * rng.uniform(-1, 1, (*value.shape, nfibre)))
    coeff[..., 1:] = value[..., None, None] * rough * rng.uniform(-1, 1, (*value.shape, nfibre, 3))
    return Legendre(coeff, WMIN, WMAX)


def _hermite(degree: int, rng: np.random.Generator, size: float) -> np.ndarray:
    norm = np.sqrt([factorial(k) for k in range(degree + 1)])      # He_k / sqrt(k!) all have the same size
    gh = size * rng.uniform(-1, 1, (degree + 1, degree + 1)) / np.outer(norm, norm)
    gh[0, 0] = 1.0
    return gh


def make_psf(family: str = "v3", nfibre: int = 5, shape: tuple[int, int] = (210, 56), *, seed: int = 1,
             dispersion: float = 0.6, first_row: float | None = None,
             bundle: np.ndarray | None = None) -> PsfModel:
    """A PSF of one of FAMILIES, or "table": spots tabulated from those of v3; fibre 0 is at x = 10.

    dispersion: Angstrom per pixel; first_row: y at the lowest wavelength, -0.1 ny (off the CCD) if None
    """
    if family == "table":
        return tabulated(make_psf("v3", nfibre, shape, seed=seed, dispersion=dispersion, first_row=first_row,
                                  bundle=bundle), 4, (2, 3))
    rng = np.random.default_rng(seed)
    span = (WMAX - WMIN) / dispersion
    fibre = np.arange(nfibre)
    x = np.stack([10 + 7.3 * fibre, 0.8 + 0 * fibre, -0.5 + 0 * fibre], axis=-1)
    middle = (-0.1 * shape[0] if first_row is None else first_row) + span / 2
    y = np.stack([middle + 0.3 * fibre, span / 2 + 0.02 * fibre, -0.7 + 0 * fibre], axis=-1)
    degree, stamp, offset = {"v3": (6, (11, 17), (4.5, 7.5)), "tails": (4, (15, 21), (6.5, 9.5)),
                             "gh2": (4, (20, 20), (10.0, 10.0))}[family]
    core = Core(_series(1.05, nfibre, rng), _series(1.1, nfibre, rng),
                _series(_hermite(degree, rng, 0.05), nfibre, rng, 0.3),
                _series(3.0, nfibre, rng, 0.0) if family == "gh2" else None)
    cores = (core,)
    if family == "gh2":
        cores += (Core(_series(2.2, nfibre, rng), _series(2.3, nfibre, rng),
                       _series(0.15 * _hermite(3, rng, 0.05), nfibre, rng, 0.3)),)
    tail = None if family == "v3" else Tail(
        amp=_series(0.005 if family == "tails" else 0.02, nfibre, rng), core=_series(1.0, nfibre, rng, 0.0),
        xscale=_series(1.0, nfibre, rng), yscale=_series(1.2, nfibre, rng), index=_series(2.0, nfibre, rng))
    return PsfModel(x=Legendre(x, WMIN, WMAX), y=Legendre(y, WMIN, WMAX), cores=cores, tail=tail, stamp=stamp,
                    offset=offset, shape=shape, bundle=bundle, name=f"made-up {family}")


@dataclass(frozen=True)
class Case:
    """An image with its PSF, settings and truth: photons (nfibre, nall) per bin of `wave` (nall,)."""

    psf: PsfModel
    image: Image
    config: ExtractConfig
    wave: np.ndarray
    photons: np.ndarray
    pad: int


def make_case(psf: PsfModel, config: ExtractConfig, *, pad: int = 30, noise: bool = True, seed: int = 7,
              masks: bool = False) -> Case:
    """Continua and lines with 3 e read noise; with `masks` a bad column, a masked block and cosmics."""
    rng = np.random.default_rng(seed)
    wave, _ = wavelength_grid(config, psf, pad)
    level = np.geomspace(20, 500, psf.nfibre)[:, None]
    photons = level * (1 + 0.3 * np.sin(wave / 7 + np.arange(psf.nfibre)[:, None]))
    for centre in rng.uniform(wave[0], wave[-1], len(wave) // 12):
        photons = photons + rng.uniform(100, 3000) * np.exp(-(((wave - centre) / 0.7) ** 2) / 2)
    clean = expected_image(psf, range(psf.nfibre), wave, photons, psf.shape)
    variance = np.maximum(clean, 0) + 9.0
    pix = clean + rng.normal(size=clean.shape) * np.sqrt(variance) if noise else clean
    ivar = 1 / variance
    if masks:
        ny, nx = psf.shape
        ivar[:, nx // 3] = 0
        ivar[ny // 2: ny // 2 + 34, nx // 2: nx // 2 + 32] = 0
        hits = rng.integers(0, [ny, nx], (ny * nx // 300, 2))
        ivar[hits[:, 0], hits[:, 1]] = 0
        pix = np.where(ivar > 0, pix, 1e6)
    return Case(psf, Image(pix, ivar), config, wave, photons, pad)


def sigma_difference(frame: Frame, reference: Frame) -> np.ndarray:
    """(nspec, nwave) difference of the fluxes in units of the reference's error; 0 if it has none."""
    return (frame.flux - reference.flux) * np.sqrt(reference.ivar)
