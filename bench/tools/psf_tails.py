"""Arcs of spots that have tails, in the stamps and beyond, over a continuum: with truth."""
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from psf_errors import READ_NOISE

from gpu_extract.data import Array, Image, Legendre, PsfModel
from gpu_extract.passes.crosstalk import add_tails
from gpu_extract.simulate.frame import project_lines
from gpu_extract.simulate.troubles import CORE, INDEX, RADIUS, tail_scale, with_tail
from gpu_extract.spots import centres
from gpu_psf.data import Lines

__all__ = ["CORE", "INDEX", "rising_tail", "tailed_arc"]
STEP = 0.2              # Angstrom between the lines that a continuum is made of


def rising_tail(psf: PsfModel, amplitude: float) -> PsfModel:
    """A PSF with the simulator's tail, whose amplitude grows by half along the range."""
    made = with_tail(psf, amplitude)
    if made.tail is None:
        return psf
    coeff = np.tile([amplitude, 0.2 * amplitude], (psf.nfibre, 1))
    like = psf.cores[0].sigma_x
    return replace(made, tail=replace(made.tail, amp=Legendre(coeff, like.wmin, like.wmax)))


def tailed_arc(psf: PsfModel, fibres: tuple[int, int], lines: Lines, continuum: float,
               seed: int, *, noise: bool = True) -> tuple[Image, Callable[[Array], Array]]:
    """An arc of some fibres, and its continuum: (nfibre, nwave) electrons in a row at wavelengths.

    continuum: electrons in a row at the beginning of the range; it falls to a half
    """
    random, (low, high) = np.random.default_rng(seed), psf.wavelength_range
    share = 1 + 0.03 * np.random.default_rng(5).standard_normal(fibres[1] - fibres[0])
    inside = (lines.wave > low + 5) & (lines.wave < high - 5)
    light = np.zeros(psf.shape)
    glow = np.arange(low + 1, high - 1, STEP)
    y = centres(psf, fibres, np.append(glow, glow[-1] + STEP))[0]

    def falling(wave: Array) -> Array:
        return share[:, np.newaxis] * continuum * (1 - 0.5 * (wave - low) / (high - low))

    for wave, electrons in ((lines.wave[inside], share[:, np.newaxis] * lines.strength[inside]),
                            (glow, falling(glow) * np.diff(y, axis=1))):
        project_lines(light, psf, fibres, wave, electrons)
        add_tails(light, (0, 0), psf, (fibres, wave), electrons * tail_scale(psf, fibres, wave), RADIUS)
    pix = random.poisson(light) + READ_NOISE * random.standard_normal(light.shape) if noise else light
    return Image(pix.astype(np.float64), 1 / (light + READ_NOISE**2), noise=np.full(light.shape, READ_NOISE)), falling
