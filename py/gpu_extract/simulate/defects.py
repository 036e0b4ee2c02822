"""Defects of pixels: cosmic rays, bad columns, dead amplifiers, saturation.

Drawn per detector from the seed alone, never from what the fibres show, so
that they stay where they are whatever is simulated. Every pixel touched is
masked, as a perfect pipeline would; values under a mask are made to hurt.
"""
from enum import IntFlag

import numpy as np

from gpu_extract.simulate.config import AMPLIFIERS, SimConfig
from gpu_extract.simulate.counter import PLANT_SEED, Purpose, stream
from gpu_extract.simulate.instrument import Detector

FULL_WELL = 65000.0             # electron
PIXEL_AREA = 2.25e-6            # cm^2
MASKING = 767                   # mask bits that set a pixel's ivar to 0 (all but BADREADNOISE)


class CcdMask(IntFlag):
    """Bits of an image's MASK that are set here (desispec.maskbits.ccdmask)."""

    BAD = 1
    HOT = 2
    DEAD = 4
    SATURATED = 8
    COSMIC = 16
    BADAMP = 512


def read_noise_map(detector: Detector, ncolumn: int) -> np.ndarray:
    """Read noise in electron, float32 (ny, ncolumn): four amplifiers per detector, a few per cent apart."""
    ny, nx = detector.shape
    noise = np.empty((ny, ncolumn), np.float32)
    right = np.arange(ncolumn) % nx >= nx // 2
    shares = list(AMPLIFIERS.values())
    for rows, (left, other) in ((slice(0, ny // 2), shares[:2]), (slice(ny // 2, ny), shares[2:])):
        noise[rows] = np.where(right, other, left) * detector.read_noise
    return noise


def apply_defects(pix: np.ndarray, mask: np.ndarray, *, config: SimConfig, detector: Detector,
                  charge: np.ndarray) -> None:
    """Change `pix` (ny, ncolumn) and set bits of `mask` (same shape, int32) in place.

    charge: the charge of cosmic rays is also added to this, (ny, ncolumn) electron
    """
    ny, nx = detector.shape
    _fill_wells(pix, mask)
    for block in range(-(-pix.shape[1] // nx)):
        part = (slice(None), slice(block * nx, min((block + 1) * nx, pix.shape[1])))
        _bad_columns(pix[part], mask[part], config=config, nx=nx, block=block)
        _single_pixels(pix[part], mask[part], config=config, shape=(ny, nx), block=block)
        if config.defects.dead_amplifier is not None:
            _dead_amplifier(pix[part], mask[part], config.defects.dead_amplifier, nx=nx)
        if config.defects.cosmics and config.noise and config.flavor == "science":
            charge[part] += _cosmics(pix[part], mask[part], config=config, detector=detector, block=block)
    if config.defects.hidden_cosmics:           # unmasked pixels are limited like others
        _fill_wells(pix, mask)
    if config.defects.masked_fraction > 0:
        _mask_share(pix, mask, config)


def _fill_wells(pix: np.ndarray, mask: np.ndarray) -> None:
    full = pix >= FULL_WELL
    pix[full] = FULL_WELL
    mask[full] |= CcdMask.SATURATED


def _bad_columns(pix: np.ndarray, mask: np.ndarray, *, config: SimConfig, nx: int, block: int) -> None:
    """Columns that glow from some row to the far end of their half."""
    random = stream(PLANT_SEED, Purpose.COLUMN, block, config.spectrograph)
    ny = pix.shape[0]
    for _ in range(config.defects.bad_columns):
        column, start, glow, upper = random.random(4)
        column = int(column * nx)
        first, last = sorted((int(start * ny), ny if upper < 0.5 else 0))
        if column < pix.shape[1]:
            pix[first:last, column] += np.float32(200 + 3000 * glow)
            mask[first:last, column] |= CcdMask.BAD


def _single_pixels(pix: np.ndarray, mask: np.ndarray, *, config: SimConfig, shape: tuple[int, int],
                   block: int) -> None:
    random = stream(PLANT_SEED, Purpose.COLUMN, block, 1000 + config.spectrograph)
    y, x, glow, dead = random.random((4, config.defects.hot_pixels))
    y, x = (y * shape[0]).astype(int), (x * shape[1]).astype(int)
    for row, column, light, is_dead in zip(y, x, glow, dead < 0.5, strict=True):
        if column < pix.shape[1]:
            pix[row, column] = 0.0 if is_dead else pix[row, column] + np.float32(500 + 20000 * light)
            mask[row, column] |= CcdMask.DEAD if is_dead else CcdMask.HOT


def _dead_amplifier(pix: np.ndarray, mask: np.ndarray, name: str, *, nx: int) -> None:
    """Remove all light from a quarter of the detector."""
    ny = pix.shape[0]
    number = list(AMPLIFIERS).index(name)
    rows = slice(ny // 2, ny) if number >= 2 else slice(0, ny // 2)
    columns = slice(nx // 2, nx) if number % 2 else slice(0, nx // 2)
    pix[rows, columns] = 0.0
    mask[rows, columns] |= CcdMask.BADAMP


def _cosmics(pix: np.ndarray, mask: np.ndarray, *, config: SimConfig, detector: Detector,
             block: int) -> np.ndarray:
    """Add straight tracks of all directions, which are long if they graze the CCD. Returns their charge (ny, ncolumn)
    electron."""
    ny, nx = detector.shape
    random = stream(config.seed, Purpose.COSMIC, block, config.number)
    ntrack = random.poisson(detector.cosmic_rate * ny * nx * PIXEL_AREA * config.seconds / 60.0)
    y, x, angle = random.random((3, ntrack))
    length = np.minimum(1.0 + random.exponential(8.0, ntrack), 150.0)
    charge = 400.0 * np.exp(0.7 * random.standard_normal(ntrack))       # electron per pixel of track
    npoint = np.maximum((2 * length).astype(int), 1)
    track = np.repeat(np.arange(ntrack), npoint)
    along = 0.5 * (np.arange(len(track)) - np.repeat(np.cumsum(npoint) - npoint, npoint))
    row = np.floor(y[track] * ny + along * np.sin(2 * np.pi * angle[track])).astype(int)
    column = np.floor(x[track] * nx + along * np.cos(2 * np.pi * angle[track])).astype(int)
    deposit = 0.5 * charge[track] * (0.6 + 0.8 * random.random(len(track)))
    on = (row >= 0) & (row < ny) & (column >= 0) & (column < pix.shape[1])
    np.add.at(pix, (row[on], column[on]), deposit[on].astype(np.float32))
    charge_of = np.zeros(pix.shape, np.float32)
    np.add.at(charge_of, (row[on], column[on]), deposit[on].astype(np.float32))
    if not config.defects.hidden_cosmics:
        mask[row[on], column[on]] |= CcdMask.COSMIC
    return charge_of


def _mask_share(pix: np.ndarray, mask: np.ndarray, config: SimConfig) -> None:
    for row in range(pix.shape[0]):
        random = stream(config.seed, Purpose.PIXELMASK, row, config.number)
        bad = random.random(pix.shape[1]) < config.defects.masked_fraction
        pix[row, bad] = np.float32(-9999.0)
        mask[row, bad] |= CcdMask.BAD


def masked(mask: np.ndarray) -> np.ndarray:
    """Where a pixel must not be used."""
    return (mask & MASKING) != 0
