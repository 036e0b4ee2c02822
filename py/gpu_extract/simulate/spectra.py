"""The truth: electrons of every fibre in every bin, from sky, targets and throughput.

A fibre's spectrum is a set of lines, one at the centre of each bin, so that the
projection onto the pixels agrees exactly with the truth. Numbers are
rounded to float32 first, so that a truth file holds them exactly.
"""
from dataclasses import dataclass

import numpy as np

from gpu_extract.data import Array
from gpu_extract.io.lines import arc_lines, night_sky
from gpu_extract.simulate.config import SimConfig
from gpu_extract.simulate.counter import PLANT_SEED, Purpose, stream
from gpu_extract.simulate.targets import Target, flux_density

AREA = 8.66e4                   # collecting area, cm^2
FIBRE_SKY = 1.73                # sky seen by a fibre, arcsec^2
ERG_ANGSTROM = 1.98644586e-8    # h c: energy of a photon times its wavelength

# of sky to CCD, atmosphere included: wavelength (A), throughput
_THROUGHPUT = {
    "b": ((3500, 0.02), (3600, 0.05), (3800, 0.11), (4000, 0.16), (4400, 0.22), (4800, 0.26), (5200, 0.28),
          (5600, 0.28), (5730, 0.25), (5790, 0.18), (5850, 0.07), (5910, 0.015), (6000, 0.002)),
    "r": ((5540, 0.002), (5620, 0.015), (5690, 0.08), (5750, 0.20), (5810, 0.26), (6000, 0.29), (6500, 0.315),
          (7000, 0.32), (7400, 0.31), (7550, 0.29), (7620, 0.21), (7680, 0.09), (7740, 0.02), (7830, 0.002)),
    "z": ((7350, 0.002), (7430, 0.02), (7500, 0.10), (7560, 0.22), (7640, 0.30), (8000, 0.335), (8500, 0.35),
          (9000, 0.34), (9400, 0.31), (9700, 0.25), (9850, 0.20), (10000, 0.13)),
    "tiny": ((5990, 0.29), (6120, 0.30)),
    "side": ((7480, 0.15), (7560, 0.24), (8240, 0.26), (8320, 0.18)),
}
# bands of oxygen and water: head (A), decay (A), optical depth
_BANDS = ((6869.0, 22.0, 0.5), (7186.0, 60.0, 0.12), (7595.0, 30.0, 1.3), (8165.0, 90.0, 0.12), (8950.0, 60.0, 0.15),
          (9300.0, 180.0, 0.35))
# Fraunhofer lines of moonlight: wavelength (A), depth, sigma (A)
_MOON = ((3934.8, 0.6, 8.0), (3969.6, 0.6, 8.0), (4305.6, 0.3, 10.0), (4862.7, 0.25, 4.0), (5176.6, 0.25, 8.0),
         (5891.6, 0.4, 1.5), (5897.6, 0.35, 1.5), (6564.6, 0.3, 4.0))
LINES_FOR = 5.0                 # seconds in which lines have the electrons of the list, and lamps glow 1 electron/A
_LAMP = 12000.0                 # flat lamp, electron/A at full throughput and 120 s


@dataclass(frozen=True)
class Truth:
    """The projected spectra.

    wave: (nwave,) centres of the bins, Angstrom, evenly spaced
    flux: (nfibre, nwave) float32, electron/Angstrom
    fibres: (nfibre,) fibre numbers on the camera; targets: one per fibre
    throughput: (nfibre,) of the fibre, relative to the mean; 0 for a dead one
    """

    wave: Array
    flux: np.ndarray
    fibres: np.ndarray
    targets: tuple[Target, ...]
    throughput: Array

    @property
    def step(self) -> float:
        """Width of the bins."""
        return float((self.wave[-1] - self.wave[0]) / (len(self.wave) - 1))

    def electrons(self, rows: slice = slice(None)) -> Array:
        """Electrons per bin, (nfibre, nwave)."""
        return self.flux[rows].astype(np.float64) * self.step


def truth_wave(config: SimConfig, ends: tuple[float, float]) -> Array:
    """Bins between `ends` (Angstrom): multiples of truth_step, or truth_grid continued both ways."""
    first, _, step = config.truth_grid or (0.0, 0.0, config.truth_step)
    low, high = np.ceil((ends[0] - first) / step), np.floor((ends[1] - first) / step)
    return first + step * np.arange(int(low), int(high) + 1, dtype=np.float64)


def fibre_throughput(config: SimConfig, fibre: int, nfibre: int) -> float:
    """Throughput of a fibre relative to the mean: vignetting, fibre to fibre scatter, dead and broken fibres."""
    if fibre in config.defects.dead_fibres:
        return 0.0
    random = stream(PLANT_SEED, Purpose.FIBRE, fibre, config.spectrograph)
    u = 2 * (fibre % nfibre) / max(nfibre - 1, 1) - 1
    value = (1.03 - 0.1 * u * u) * (1 + 0.03 * np.clip(random.standard_normal(), -2, 2))
    if fibre in config.defects.broken_fibres:
        value *= 0.02 + 0.08 * random.random()
    return float(value)


def system_throughput(band: str, wave: Array) -> Array:
    """Share of the photons that become electrons, (nwave,)."""
    knots = np.array(_THROUGHPUT[band], dtype=np.float64).T
    return np.interp(wave, knots[0], knots[1])


def electrons_per_unit(config: SimConfig, wave: Array) -> Array:
    """Electrons of 1e-17 erg/s/cm^2 at `wave` in the exposure, (nwave,)."""
    return 1e-17 * AREA * config.seconds * wave / ERG_ANGSTROM * system_throughput(config.band, wave)


def common_light(config: SimConfig, wave: Array) -> Array:
    """Light that enters all fibres alike (sky, lamp), electron/Angstrom at throughput 1, (nwave,)."""
    step = (wave[-1] - wave[0]) / (len(wave) - 1)
    if config.flavor == "arc":
        glow = config.seconds / LINES_FOR * system_throughput(config.band, wave)
        return glow + deposit(wave, *lamp_lines(config)) / step
    if config.flavor == "flat":
        colour = np.exp(-0.5 * ((wave - 7800.0) / 2600.0) ** 2)
        return _LAMP * config.seconds / 120.0 * colour * system_throughput(config.band, wave)
    sky = night_sky()
    random = stream(config.seed, Purpose.SKY)
    airglow, background = 1 + 0.15 * np.clip(random.standard_normal(2), -2, 2)
    density = background * np.interp(wave, sky.knots, sky.continuum)
    if config.program == "bright":
        density = density + 6.0 * moonlight(wave)
    unit = electrons_per_unit(config, wave)
    lines = airglow * sky.strengths * electrons_per_unit(config, sky.lines)
    return FIBRE_SKY * (density * unit + deposit(wave, sky.lines, lines) / step)


def lamp_lines(config: SimConfig) -> tuple[Array, Array]:
    """Wavelengths of the lamps' lines, and their electrons at throughput 1."""
    lines, strength = arc_lines()
    return lines, strength * config.seconds / LINES_FOR


def moonlight(wave: Array) -> Array:
    """Scattered moonlight, 1 at 5500 A: a blue continuum with Fraunhofer lines, (nwave,)."""
    light = (wave / 5500.0) ** -1.6
    for line, depth, sigma in _MOON:
        light *= 1 - depth * np.exp(-0.5 * ((wave - line) / sigma) ** 2)
    return light


def transmission(wave: Array) -> Array:
    """Transmission of the oxygen and water bands, (nwave,)."""
    depth = np.zeros(len(wave))
    for head, decay, strength in _BANDS:
        behind = np.maximum(wave - head, 0.0)
        band = np.where(wave > head, np.exp(-behind / decay) * (0.6 + 0.4 * np.cos(2 * np.pi * behind / 6.5)), 0.0)
        depth += strength * band
    return np.exp(-depth)


def target_light(config: SimConfig, target: Target, wave: Array) -> Array:
    """Light of a target, electron/Angstrom at fibre throughput 1, (nwave,)."""
    if config.flavor != "science":
        return np.zeros(len(wave))
    return flux_density(target, wave) * electrons_per_unit(config, wave) * transmission(wave)


def deposit(wave: Array, lines: Array, electrons: Array) -> Array:
    """Electrons per bin of lines much narrower than a bin: shared by the two adjacent bins, which keeps the
    centroid."""
    step = (wave[-1] - wave[0]) / (len(wave) - 1)
    place = (lines - wave[0]) / step
    inside = (place > 0) & (place < len(wave) - 1)
    low = np.floor(place[inside]).astype(int)
    share = place[inside] - low
    total = np.zeros(len(wave))
    np.add.at(total, low, electrons[inside] * (1 - share))
    np.add.at(total, low + 1, electrons[inside] * share)
    return total
