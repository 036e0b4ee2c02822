"""Arcs with damage of all kinds, and whether what is fitted to them is right or flagged."""
from dataclasses import dataclass, replace

import numpy as np
from psf_errors import READ_NOISE, Errors, Judge, add_cosmics, cold, least_errors, true_part, uneven_lines, whole_gh

from gpu_extract.data import Array, Image, PsfModel
from gpu_extract.io.presets import camera_preset
from gpu_extract.simulate.frame import project_lines
from gpu_extract.spots import centres, select
from gpu_psf.data import Lines
from gpu_psf.fit import Fit
from gpu_psf.lamp import shipped_lines
from gpu_psf.prepare import psf_of
from gpu_psf.status import Status

CASES = "off", "amplifier", "amplifier, no mask", "fibres", "cosmics", "together"
FAINT = 0.05                # of the light
# what a fibre may be said to be: whole, with half of its lines, dead, faint
STATUS_OF = {"whole": {Status.FITTED}, "half": {Status.FEW_LINES}, "dead": {Status.INTERPOLATED},
             "faint": {Status.FITTED, Status.FEW_LINES}}


@dataclass(frozen=True)
class Arc:
    """An arc that is to be damaged, and what a fit is told of it.

    light: (ny, nx) expected electrons; share: (nfibre,) of the light that fibres pass
    pix, ivar, noise: of the image (None before `expose`); start: the PSF to start from; true: the light's
    """

    true: PsfModel
    start: PsfModel
    lines: Lines
    fibres: tuple[int, int]
    share: Array
    light: Array
    pix: Array
    good: np.ndarray
    noise: Array

    @property
    def image(self) -> Image:
        """As a fit gets it."""
        ivar = np.where(self.good, 1 / (np.maximum(self.pix, 0) + self.noise**2), 0.0)
        return Image(self.pix, ivar, noise=self.noise)


def exposed(true: PsfModel, start: PsfModel, lines: Lines, fibres: tuple[int, int], share: Array, seed: int, *,
            lamp: Lines | None = None, more: Array | float = 0.0) -> Arc:
    """An arc of fibres lo .. hi - 1 that pass `share` (nfibre,) of the light; lamp: the lines that are really there;
    more: electrons of other light in each pixel."""
    lamp = lamp or lines
    low, high = true.wavelength_range
    inside = (lamp.wave > low + 5) & (lamp.wave < high - 5)
    light = np.zeros(true.shape) + more
    project_lines(light, true, fibres, lamp.wave[inside], share[:, np.newaxis] * lamp.strength[inside])
    random = np.random.default_rng(seed)
    noise = np.full(light.shape, READ_NOISE)
    pix = random.poisson(light) + READ_NOISE * random.standard_normal(light.shape)
    return Arc(true, start, lines, fibres, share, light, pix, np.ones(light.shape, bool), noise)


def dead_quarter(arc: Arc, rows: slice, columns: slice, *, masked: bool) -> Arc:
    """A part of the image without light, read noise alone; masked: whether the mask says so."""
    pix, good = arc.pix.copy(), arc.good.copy()
    part = pix[rows, columns]
    pix[rows, columns] = READ_NOISE * np.random.default_rng(part.size).standard_normal(part.shape)
    if masked:
        good[rows, columns] = False
    return replace(arc, pix=pix, good=good)


def struck(arc: Arc, share: float, seed: int) -> Arc:
    """Cosmic rays on a share of the pixels that nobody masked."""
    pix = arc.pix.copy()
    add_cosmics(pix, share, seed)
    return replace(arc, pix=pix)


@dataclass(frozen=True)
class Case:
    """A damaged arc of a bundle.

    kinds: of each fibre, see STATUS_OF; wave: wavelengths at which it is lit
    """

    name: str
    arc: Arc
    kinds: tuple[str, ...]
    wave: Array


def make_case(name: str, camera: str, psf: PsfModel, fibres: tuple[int, int], seed: int) -> Case:
    """One of CASES for a bundle in the left half of a camera's CCD."""
    true, count = whole_gh(psf), fibres[1] - fibres[0]
    every, tiny = name == "together", camera == "tiny"
    lines = uneven_lines() if tiny else shipped_lines()
    wave = np.linspace(*(6010.0, 6100.0) if tiny else camera_preset(f"{camera}0").wavelength[:2], 20)
    start = cold(true, 3, (3.0, 5.0) if every or name == "off" else (1.0, -2.0), 0.1 if tiny else 0.2)
    share = 1 + 0.03 * np.random.default_rng(5).standard_normal(count)
    kinds = ["whole"] * count
    if every or name == "fibres":
        for fibre, kind, light in ((count // 3, "dead", 0.0), (count - 2, "dead", 0.0), (count // 2, "faint", FAINT)):
            kinds[fibre], share[fibre] = kind, light
    arc = exposed(true, start, lines, fibres, share, seed)
    if every or name.startswith("amplifier"):
        ny, nx = true.shape
        arc = dead_quarter(arc, slice(0, ny // 2), slice(0, nx // 2), masked=not name.endswith("no mask"))
        kinds = ["half" if kind == "whole" else kind for kind in kinds]
        y = centres(true, fibres, wave)[0]
        wave = wave[(y > ny // 2 + 5).all(axis=0)]
    if every or name == "cosmics":
        arc = struck(arc, 0.005, seed + 1000)
    return Case(f"{name}, seed {seed}", arc, tuple(kinds), wave)


class Some:
    """A judge of some fibres of a bundle."""

    def __init__(self, true: PsfModel, chosen: np.ndarray, wave: Array):
        self._chosen = np.flatnonzero(chosen).tolist()
        self._judge = Judge(select(true, self._chosen), wave)

    def errors(self, psf: PsfModel) -> Errors:
        """See Judge."""
        return self._judge.errors(select(psf, self._chosen))


def judged(case: Case, fit: Fit) -> tuple[Errors, list[Errors]]:
    """Errors of what is left of a case, and draws of what noise must leave of it."""
    own = (fit.status == Status.FITTED) | (np.array(case.kinds) == "half")
    judge = Some(true_part(case.arc.true, case.arc.fibres), own, case.wave)
    return judge.errors(psf_of(fit.frame, fit.state.now)), least_errors(fit, case.arc.true, judge)
