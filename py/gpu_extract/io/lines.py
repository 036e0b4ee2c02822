"""The line lists that come with the package: night sky and arc lamps."""
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from gpu_extract.data import Array


@dataclass(frozen=True)
class NightSky:
    """A dark night sky, wavelengths in vacuum.

    knots, continuum: (nknot,) Angstrom, 1e-17 erg/s/cm^2/A/arcsec^2
    lines, strengths: (nline,) Angstrom, 1e-17 erg/s/cm^2/arcsec^2
    """

    knots: Array
    continuum: Array
    lines: Array
    strengths: Array


def _rows(name: str) -> list[list[str]]:
    text = resources.files("gpu_extract").joinpath("etc", name).read_text(encoding="ascii")
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


@cache
def night_sky() -> NightSky:
    """The night sky of etc/night-sky.txt."""
    rows = _rows("night-sky.txt")
    continuum, lines = (np.array([row[1:] for row in rows if row[0] == kind], dtype=np.float64).T for kind in "cl")
    return NightSky(continuum[0], continuum[1], lines[0], lines[1])


@cache
def arc_lines() -> tuple[Array, Array]:
    """Wavelengths (Angstrom) and strengths (electron) of etc/arc-lines.txt."""
    wave, strength = np.array(_rows("arc-lines.txt"), dtype=np.float64).T
    return wave, strength
