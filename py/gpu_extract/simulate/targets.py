"""The targets of the fibres: sky, stars, galaxies, quasars, each a function of only (seed, fibre)."""
from dataclasses import dataclass

import numpy as np

from gpu_extract.data import Array
from gpu_extract.simulate.config import SimConfig
from gpu_extract.simulate.counter import Purpose, stream

LIGHT = 299792.458          # km/s
# kind, share of the fibres, r magnitude from .. to (AB), redshift from .. to
_MIX = {
    "dark": (("SKY", 0.08, 0, 0, 0, 0), ("STD", 0.02, 16.5, 18.5, 0, 0), ("ELG", 0.42, 21.5, 23.4, 0.6, 1.6),
             ("LRG", 0.26, 20.0, 22.2, 0.3, 1.0), ("QSO", 0.17, 19.0, 22.8, 0.7, 3.6),
             ("STAR", 0.05, 17.0, 20.0, 0, 0)),
    "bright": (("SKY", 0.08, 0, 0, 0, 0), ("STD", 0.02, 15.5, 17.5, 0, 0), ("BGS", 0.62, 16.5, 20.2, 0.03, 0.5),
               ("STAR", 0.28, 16.0, 19.0, 0, 0)),
}
_FIELD = (150.1, 2.2)       # degrees
_RADIUS = 1.6

# rest wavelength in vacuum (A), relative strength
_EMISSION = ((3727.09, 0.75), (3729.88, 1.0), (3869.86, 0.15), (4341.68, 0.25), (4862.68, 0.5), (4960.30, 0.3),
             (5008.24, 0.9), (6549.85, 0.15), (6564.61, 1.5), (6585.27, 0.45), (6718.29, 0.25), (6732.67, 0.2))
# rest wavelength, depth, sigma (A)
_OLD_ABSORPTION = ((3934.8, 0.5, 7.0), (3969.6, 0.5, 7.0), (4305.6, 0.25, 9.0), (4862.7, 0.15, 6.0),
                   (5176.6, 0.25, 11.0), (5270.0, 0.12, 8.0), (5894.6, 0.18, 6.0))
_STAR_ABSORPTION = ((3934.8, 0.5, 4.0), (3969.6, 0.5, 5.0), (4102.9, 0.5, 9.0), (4341.7, 0.5, 9.0), (4862.7, 0.5, 9.0),
                    (5176.6, 0.2, 6.0), (5891.6, 0.3, 1.2), (5897.6, 0.25, 1.2), (6564.6, 0.5, 8.0), (8500.4, 0.3, 3.0),
                    (8544.4, 0.4, 3.0), (8664.5, 0.4, 3.0))
# rest wavelength, strength relative to the continuum, sigma (km/s)
_BROAD = ((1215.67, 3.0, 3500.0), (1240.8, 0.7, 3000.0), (1399.8, 0.3, 3500.0), (1549.06, 1.2, 3200.0),
          (1908.73, 0.6, 4000.0), (2798.75, 0.7, 2500.0), (4341.68, 0.3, 2500.0), (4862.68, 0.7, 2500.0),
          (6564.61, 2.0, 2500.0))


@dataclass(frozen=True)
class Target:
    """The target of one fibre.

    kind: SKY, STD, STAR, ELG, LRG, BGS or QSO; z: redshift; magnitude: r, AB (of the light that enters the fibre)
    shape: a number that sets slope or temperature; lines: strength of the emission lines, A of equivalent width
    width: of the lines, km/s; ra, dec: degrees
    """

    kind: str
    z: float
    magnitude: float
    shape: float
    lines: float
    width: float
    ra: float
    dec: float


def target_of(config: SimConfig, fibre: int) -> Target:
    """The target of a fibre."""
    random = stream(config.field, Purpose.TARGET, fibre, config.spectrograph)
    pick, bright, far, shape, lines, width, angle, radius = random.random(8)
    kinds = _MIX[config.program]
    share = np.cumsum([row[1] for row in kinds])
    kind, _, m0, m1, z0, z1 = kinds[int(np.searchsorted(share, pick * share[-1], side="right"))]
    # counts rise towards faint magnitudes; redshifts are even in their range
    magnitude = m0 + (m1 - m0) * np.sqrt(bright)
    r, phi = _RADIUS * np.sqrt(radius), 2 * np.pi * angle
    dec = _FIELD[1] + r * np.sin(phi)
    ra = _FIELD[0] + r * np.cos(phi) / np.cos(np.radians(dec))
    strength = {"ELG": 100.0 * (0.3 + lines), "BGS": 25.0 * lines}.get(kind, 3.0 * lines)
    return Target(kind, z0 + (z1 - z0) * far, float(magnitude), shape, strength, 60.0 + 140.0 * width, float(ra),
                  float(dec))


def flux_density(target: Target, wave: Array) -> Array:
    """Light entering the fibre at `wave` (Angstrom): 1e-17 erg/s/cm^2/A, (nwave,)."""
    if target.kind == "SKY":
        return np.zeros(len(wave))
    make = {"ELG": _galaxy, "LRG": _galaxy, "BGS": _galaxy, "QSO": _quasar}.get(target.kind, _star)
    at_6400 = 1e17 * 10 ** (-0.4 * (target.magnitude + 2.408)) / 6400.0**2
    continuum = at_6400 * make(target, wave / (1 + target.z)) / make(target, np.array([6400.0 / (1 + target.z)]))[0]
    if target.kind in ("ELG", "BGS", "LRG"):
        continuum = continuum + _emission(target, wave, at_6400)
    return continuum


def _galaxy(target: Target, rest: Array) -> Array:
    """A stellar continuum: a break at 4000 A, stronger in old galaxies, with absorption lines."""
    old = {"LRG": 0.9, "BGS": 0.2 + 0.6 * target.shape}.get(target.kind, 0.15)
    slope = 0.2 * old - 1.4 * (1 - old)
    step = 1 - 0.55 * old / (1 + np.exp((rest - 3990.0) / 25.0))
    return (rest / 5000.0) ** slope * step * _absorption(rest, _OLD_ABSORPTION, 0.2 + 0.8 * old)


def _star(target: Target, rest: Array) -> Array:
    """A black body with absorption lines."""
    temperature = 4300.0 + 4500.0 * target.shape
    planck = rest**-5 / np.expm1(1.4387769e8 / (rest * temperature))
    return planck * _absorption(rest, _STAR_ABSORPTION, 0.5 + 0.5 * target.shape)


def _quasar(target: Target, rest: Array) -> Array:
    """A power law with broad lines."""
    total = np.ones(len(rest))
    for line, strength, sigma in _BROAD:
        total += strength * np.exp(-0.5 * ((rest / line - 1) * LIGHT / sigma) ** 2)
    forest = np.where(rest < 1215.67, 0.7, 1.0)
    return (rest / 3000.0) ** (-1.2 - 0.8 * target.shape) * total * forest


def _absorption(rest: Array, lines: tuple[tuple[float, float, float], ...], depth: float) -> Array:
    total = np.ones(len(rest))
    for line, strength, sigma in lines:
        total *= 1 - depth * strength * np.exp(-0.5 * ((rest - line) / sigma) ** 2)
    return total


def _emission(target: Target, wave: Array, level: float) -> Array:
    """Emission lines; the strongest has target.lines A of observed equivalent width at 6400 A's level."""
    total = np.zeros(len(wave))
    for rest, strength in _EMISSION:
        line = rest * (1 + target.z)
        sigma = line * target.width / LIGHT
        near = np.abs(wave - line) < 8 * sigma
        total[near] += (level * target.lines * strength / (np.sqrt(2 * np.pi) * sigma)
                        * np.exp(-0.5 * ((wave[near] - line) / sigma) ** 2))
    return total
