"""Random problems of kinds that `problems` does not draw: odd PSFs, odd light and odd pixels; half of them with masks.

Fibres with 1e6 times the light of the next, sky lines of 1e5 photons, two amplifiers of unlike noise and gain along a
trace, saturated columns, masked or not, a fibre at a bundle's end without good pixels; spots sharper than 2/3 pixel,
series of order 6 that are negative in parts, tables of spots, steep traces, and traces in a mirror.
"""
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from problems import MASKS, Problem, _cut, _every, _good, _on_small_ccd, _place, _source

from gpu_extract.config import ExtractConfig
from gpu_extract.data import Core, Image, Legendre, PsfModel
from gpu_extract.oracle import design_matrix, evaluate
from gpu_extract.spots.tables import tabulated

STRANGE = ("ratio", "sky", "amplifiers", "saturated", "trail", "dead", "sharp", "orders", "tables", "steep", "mirror")
FAMILIES = ("tiny", "tails", "r0", "v2")
STEPS = 0.8, 1.2
BINS = 110
SATURATED = 6.5e4        # electrons
Draw = np.random.Generator


def make_strange(seed: int) -> Problem | None:
    """The problem of a seed; None where the file of its PSF is absent."""
    rng, kind = np.random.default_rng([seed, 3]), STRANGE[seed % len(STRANGE)]
    family, step, nfibre = str(rng.choice(FAMILIES)), float(rng.choice(STEPS)), int(rng.integers(1, 6))
    source = _source(family)
    if source is None:
        return None
    n, below = min(BINS // nfibre, 60), int(rng.choice([0, 3]))
    low, high = source.wavelength_range
    wave = float(rng.uniform(low + step, high - n * step)) + step * np.arange(n)
    psf = _PSFS.get(kind, _as_it_is)(_cut(source, (family, nfibre), wave, step, rng), rng)
    psf = _on_small_ccd(psf, wave, rng, rng.random() < 0.2)
    if kind == "tables":       # of spots at two to four wavelengths, at four places within a pixel
        psf = tabulated(psf, int(rng.integers(2, 5)), (2, 2))
    config = ExtractConfig((float(wave[below]), float(wave[-1]), step), bundlesize=nfibre, tolerance=1e-13)
    design = design_matrix(psf, range(nfibre), wave, psf.shape)
    whole, good = _pixels(kind, np.asarray(design @ _light(kind, nfibre, n, rng).ravel()), psf, wave, rng)
    if rng.random() < 0.5:
        good = good & _good(str(rng.choice(MASKS)), psf, wave, rng)
    return Problem(seed, kind, family, psf, replace(whole, ivar=np.where(good, whole.ivar, 0)), whole, config, design,
                   below)


# ---- PSFs -----------------------------------------------------------------------------------------------------------

def _as_it_is(psf: PsfModel, _: Draw) -> PsfModel:
    return psf


def _sharp(psf: PsfModel, rng: Draw) -> PsfModel:
    factor = rng.uniform(0.3, 0.62)
    return _every(psf, lambda s, what: replace(s, coeff=s.coeff * factor) if what == "sigma" else s)


def _orders(psf: PsfModel, rng: Draw) -> PsfModel:
    """Terms up to order 6, in which the tails are uneven, and negative in parts."""
    def more(core: Core) -> Core:
        old = core.gh.coeff[:7, :7]
        new = np.zeros((7, 7, *old.shape[2:]))
        new[:old.shape[0], :old.shape[1]] = old
        for i, j in rng.integers(0, 7, (8, 2)).tolist():
            if 0 < i + j <= 6:
                new[i, j, :, 0] += rng.normal() * 0.05 / (1 + 0.5 * (i + j))
        return replace(core, gh=Legendre(new, core.gh.wmin, core.gh.wmax))

    return replace(psf, cores=tuple(map(more, psf.cores)))


def _steep(psf: PsfModel, rng: Draw) -> PsfModel:
    """Traces that cross up to a column a row."""
    x = psf.x.coeff.copy()
    x[:, 1] += rng.uniform(5, 40) * rng.choice([-1, 1])
    return replace(psf, x=replace(psf.x, coeff=x))


def _mirror(psf: PsfModel, rng: Draw) -> PsfModel:
    """Wavelengths that fall along y, or fibres from right to left."""
    axis = rng.choice(["x", "y"])
    return _every(psf, lambda s, what: replace(s, coeff=-s.coeff) if what == axis else s)


_PSFS: dict[str, Callable[[PsfModel, Draw], PsfModel]] = {"sharp": _sharp, "orders": _orders, "steep": _steep,
                                                          "mirror": _mirror}


# ---- light and pixels -----------------------------------------------------------------------------------------------

def _light(kind: str, nfibre: int, n: int, rng: Draw) -> np.ndarray:
    """(nfibre, n) photons: continua of 1 to 1000, or 1 to 1e6; lines of each fibre, or brighter ones of all."""
    level = 10.0 ** (rng.choice([0, 1, 4, 6], (nfibre, 1)) if kind == "ratio" else rng.uniform(0, 3, (nfibre, 1)))
    smooth = level * (1 + 0.3 * np.sin(np.arange(n) / 7 + np.arange(nfibre)[:, None]))
    lines = rng.random((1 if kind == "sky" else nfibre, n)) < 0.06
    return np.asarray(smooth + lines * rng.uniform(100, 1e5 if kind == "sky" else 5000, lines.shape))


def _pixels(kind: str, light: np.ndarray, psf: PsfModel, wave: np.ndarray, rng: Draw) -> tuple[Image, np.ndarray]:
    """An image, and which pixels are good; one in five has the ivar of the read noise alone."""
    shape, (j, i) = psf.shape, _place(psf, wave, rng)
    light, good, read, gain = light.reshape(shape), np.ones(shape, dtype=bool), np.full(shape, 3.0), np.ones(shape)
    if kind == "amplifiers":
        read[:, :i], read[:, i:], gain[:, i:] = 2.0, 10.0, rng.uniform(0.5, 2)
        read[j:] *= rng.choice([1, 3])
    variance = light / gain + read**2 if rng.random() < 0.8 else read**2
    if kind in ("saturated", "trail"):
        half, rows = rng.integers(1, 4), rng.integers(5, 60)
        there = slice(max(j - rows, 0), j + rows), slice(max(i - half, 0), i + half)
        light[there] = variance[there] = SATURATED
        good[there] = kind == "trail"       # which nobody has masked
    if kind == "dead":
        fibre, half = int(rng.choice([0, psf.nfibre - 1])), int(rng.integers(1, 6))
        y, x = (np.array([float(evaluate(s, fibre, w)) for w in wave]) for s in (psf.y, psf.x))
        good &= np.abs(np.arange(shape[1]) - np.interp(np.arange(shape[0]), y, x)[:, None]) > half
    return Image(light + rng.normal(size=shape) * np.sqrt(variance), 1 / variance), good
