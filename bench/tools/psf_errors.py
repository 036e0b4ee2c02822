"""How far a PSF is from the true one: positions, stamps, shapes and widths of spots; and what the noise allows."""
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from gpu_extract.data import Array, Image, PsfModel
from gpu_extract.simulate.frame import project_lines
from gpu_extract.spots import make_spots, select
from gpu_psf.data import Lines
from gpu_psf.fit import Fit
from gpu_psf.normal import reduced
from gpu_psf.prepare import parameters_of, psf_of
from gpu_psf.state import look, scene_of

SIDE = 2            # pixels around a true stamp into which a fitted one may be shifted
STEP = 0.01         # pixels: for derivatives of stamps
WINDOW = 1.5        # pixels: width of the Gaussian under which widths are measured
READ_NOISE = 2.7


def moved(psf: PsfModel, x: Array | float, y: Array | float) -> PsfModel:
    """The PSF with its traces moved by numbers of pixels, or by Legendre coefficients of so few orders."""
    return replace(psf, x=psf.x.plus(x), y=psf.y.plus(y))


def mirrored(psf: PsfModel, axis: int) -> PsfModel:
    """The PSF of the image that is reversed along an axis, 0: y, 1: x. Odd orders change their signs."""
    name, core = "yx"[axis], psf.cores[0]
    trace = getattr(psf, name)
    coeff = -trace.coeff
    coeff[:, 0] += psf.shape[axis] - 1
    sign = (-1.0) ** np.arange(len(core.gh.coeff))
    sign = sign[:, np.newaxis, np.newaxis] if axis else sign[:, np.newaxis, np.newaxis, np.newaxis]
    core = replace(core, gh=replace(core.gh, coeff=core.gh.coeff * sign))
    return replace(psf, cores=(core,), **{name: replace(trace, coeff=coeff)})


def cold(psf: PsfModel, seed: int, off: tuple[float, float] = (1.0, -2.0), rough: float = 0.2,
         gaussian: bool = True) -> PsfModel:
    """A start: traces that are off smoothly, with Gaussian spots of one width."""
    random, u = np.random.default_rng(seed), np.linspace(-1, 1, psf.nfibre)
    bends = [np.stack([random.standard_normal() + u * random.standard_normal() for _ in range(3)], axis=1)
             * rough / np.arange(1, 4) for _ in off]
    for bend, by in zip(bends, off, strict=True):
        bend[:, 0] += by
    start = moved(psf, *bends)
    if not gaussian:
        return start
    core = psf.cores[0]
    flat = [np.zeros_like(series.coeff) for series in (core.sigma_x, core.sigma_y, core.gh)]
    flat[0][:, 0] = flat[1][:, 0] = 1.1
    flat[2][0, 0, :, 0] = 1.0
    sigma_x, sigma_y, gh = (replace(series, coeff=coeff) for series, coeff in
                            zip((core.sigma_x, core.sigma_y, core.gh), flat, strict=True))
    return replace(start, cores=(replace(core, sigma_x=sigma_x, sigma_y=sigma_y, gh=gh),))


def make_arc(psf: PsfModel, fibres: tuple[int, int], lines: tuple[Array, Array], seed: int, *,
             noise: bool = True) -> Image:
    """An arc of some fibres: lines (wavelengths, electrons) at their own wavelengths, Poisson and read noise."""
    random = np.random.default_rng(seed)
    share = 1 + 0.03 * np.random.default_rng(5).standard_normal(fibres[1] - fibres[0])
    light = np.zeros(psf.shape)
    inside = (lines[0] > psf.wavelength_range[0] + 5) & (lines[0] < psf.wavelength_range[1] - 5)
    project_lines(light, psf, fibres, lines[0][inside], share[:, np.newaxis] * lines[1][inside])
    pix = random.poisson(light) + READ_NOISE * random.standard_normal(light.shape) if noise else light
    return Image(pix.astype(np.float64), 1 / (light + READ_NOISE**2), noise=np.full(light.shape, READ_NOISE))


def add_cosmics(pix: Array, share: float, seed: int) -> None:
    """Cosmic rays onto a share of the pixels."""
    random = np.random.default_rng(seed)
    hit = random.random(pix.shape) < share
    pix[hit] += 100 + random.exponential(2000, hit.sum())


def uneven_lines(count: int = 16, electrons: float = 20000.0) -> Lines:
    """Lines for the camera tiny; evenly spaced ones could be taken for each other."""
    wave = 6004 + 102 * (np.arange(count) + 0.3 * np.sin(2.4 * np.arange(count))) / (count - 1)
    return Lines(wave, np.full(count, electrons))


@dataclass(frozen=True)
class Errors:
    """Root mean squares over spots: positions (pixels), stamps and shapes (of the peak; shapes after positions are
    matched); means: of the widths, as a share; the farthest position."""

    x: float
    y: float
    stamp: float
    shape: float
    width_x: float
    width_y: float
    farthest: float


def root(errors: Sequence[Errors], name: str) -> float:
    """Root mean square of one of them over several PSFs."""
    return float(np.sqrt(np.mean([getattr(each, name) ** 2 for each in errors])))


class Judge:
    """Compares PSFs of some fibres with the true one at some wavelengths."""

    def __init__(self, true: PsfModel, wave: Array):
        self._wave = np.ascontiguousarray(wave)
        spots = make_spots(true, (0, true.nfibre), self._wave)
        self._corner = spots.y0 - SIDE, spots.x0 - SIDE
        self._true = self._stamps(true)
        self._slopes = [(self._stamps(moved(true, dx, dy)) - self._stamps(moved(true, -dx, -dy))) / (2 * STEP)
                        for dx, dy in ((STEP, 0.0), (0.0, STEP))]
        self._pixels = spots.stamps[0, 0].size

    def _stamps(self, psf: PsfModel) -> Array:
        spots = make_spots(psf, (0, psf.nfibre), self._wave)
        nfibre, nwave, ny, nx = spots.stamps.shape
        whole = np.zeros((nfibre, nwave, ny + 2 * SIDE, nx + 2 * SIDE))
        dy, dx = spots.y0 - self._corner[0], spots.x0 - self._corner[1]
        if min(dy.min(), dx.min()) < 0 or max(dy.max(), dx.max()) > 2 * SIDE:
            raise ValueError(f"spots lie more than {SIDE} pixels from where they are")
        i, j = np.indices((nfibre, nwave))
        for y in range(ny):
            for x in range(nx):
                whole[i, j, dy + y, dx + x] = spots.stamps[:, :, y, x]
        return whole

    def errors(self, psf: PsfModel) -> Errors:
        """The errors of a PSF of the same fibres. Raises ValueError where spots are more than SIDE pixels away."""
        found = self._stamps(psf)
        x, y, stamp, shape = self._apart(found)
        widths = [float((_width(found, axis) / _width(self._true, axis)).mean() - 1) for axis in (3, 2)]
        return Errors(*(float(np.sqrt((a**2).mean())) for a in (x, y, stamp, shape)), widths[0], widths[1],
                      float(np.sqrt(x * x + y * y).max()))

    def apart(self, psf: PsfModel) -> tuple[Array, Array, Array, Array]:
        """The same for each spot, (nfibre, nwave): x, y, stamp and shape (root mean squares over the pixels)."""
        return self._apart(self._stamps(psf))

    def _apart(self, found: Array) -> tuple[Array, Array, Array, Array]:
        apart, flat = found - self._true, (2, 3)
        gx, gy = self._slopes
        xx, yy, xy = (gx * gx).sum(flat), (gy * gy).sum(flat), (gx * gy).sum(flat)
        x, y = (apart * gx).sum(flat), (apart * gy).sum(flat)
        x, y = (yy * x - xy * y) / (xx * yy - xy**2), (xx * y - xy * x) / (xx * yy - xy**2)
        rest = apart - x[..., np.newaxis, np.newaxis] * gx - y[..., np.newaxis, np.newaxis] * gy
        peak = self._true.max(flat)
        stamp, shape = (np.sqrt((a**2).sum(flat) / self._pixels) / peak for a in (apart, rest))
        return x, y, stamp, shape


def _width(stamps: Array, axis: int) -> Array:
    """Widths of stamps under a Gaussian window."""
    profile = stamps.sum(axis=5 - axis)
    at = np.arange(profile.shape[-1])
    middle = (profile * at).sum(-1) / profile.sum(-1)
    seen = profile * np.exp(-0.5 * ((at - middle[..., np.newaxis]) / WINDOW) ** 2)
    mean = (seen * at).sum(-1) / seen.sum(-1)
    return np.sqrt((seen * (at - mean[..., np.newaxis]) ** 2).sum(-1) / seen.sum(-1))


class Judging(Protocol):
    """What says how far a PSF is from the truth."""

    def errors(self, psf: PsfModel) -> Errors:
        """The errors of a PSF."""
        ...


def least_errors(fit: Fit, true: PsfModel, judge: Judging, draws: int = 10) -> list[Errors]:
    """Errors that noise alone must leave (Cramer and Rao): PSFs drawn from the inverse of the information that the
    pixels have about the fit's parameters at their true values, the fluxes being unknown."""
    now = parameters_of(replace(fit.frame, start=true))
    columns = 0 if fit.task.columns is None else len(fit.task.columns)
    now = replace(now, ground=np.pad(now.ground, (0, columns - len(now.ground))))
    task = replace(fit.task, start=now)
    state = look(task, now, fit.state.weight)
    matrix = reduced(scene_of(task, state, shapes=True), state.pairs, state.groups, state.blocks)
    own = matrix.diagonal()
    scale = np.where(own > 0, 1 / np.sqrt(np.where(own > 0, own, 1.0)), 0.0)        # a dead fibre has no light
    values, vectors = np.linalg.eigh(matrix * scale * scale[:, np.newaxis])
    # combinations that say nothing: a Gauss-Hermite term that does what a trace or a width does
    known = values > 1e-7 * values[-1]
    random = np.random.default_rng(1)
    found = []
    for _ in range(draws):
        amount = np.where(known, random.standard_normal(len(values)) / np.sqrt(np.where(known, values, 1.0)), 0.0)
        found.append(judge.errors(psf_of(fit.frame, now.moved(scale * (vectors @ amount)))))
    return found


def true_part(psf: PsfModel, fibres: tuple[int, int]) -> PsfModel:
    """The PSF of fibres lo .. hi - 1, GH-0-0 being 1 (specex leaves terms of another parameter in it)."""
    part = select(psf, range(*fibres))
    return whole_gh(part)


def whole_gh(psf: PsfModel) -> PsfModel:
    """The PSF with GH-0-0 1 everywhere."""
    core = psf.cores[0]
    coeff = core.gh.coeff.copy()
    coeff[0, 0] = 0.0
    coeff[0, 0, :, 0] = 1.0
    return replace(psf, cores=(replace(core, gh=replace(core.gh, coeff=coeff)),))
