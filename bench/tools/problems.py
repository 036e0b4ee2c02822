"""Random problems that an extraction must survive: small frames, each made from its seed alone.

A problem is a PSF of some family with perturbed coefficients, cut to a short range of wavelengths and a few fibres, on
a CCD that ends beside the traces or on them; an image with noise, whose ivar may vary by 1e4 from pixel to pixel or
over the CCD; and a mask of the kind that the seed's remainder says.
"""
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import count as counting
from itertools import islice
from pathlib import Path

import numpy as np
import scipy.sparse
from numpy.polynomial import legendre

from gpu_extract.config import ExtractConfig
from gpu_extract.data import Core, Image, Legendre, PsfModel, Tail
from gpu_extract.io.psf import read_psf
from gpu_extract.oracle import design_matrix, evaluate
from gpu_extract.simulate import SimConfig, simulate
from gpu_extract.spots import select

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "psf"
FILES = {"r0": "psf-r0-00051060.fits", "v2": "psf-r0-v2-tails.fits", "gh2": "psf-gausshermite2-boss.fits"}
FAMILIES = ("tiny", "tails", "two", *FILES)      # from `simulate`, made up here, from files
STEPS = (0.2, 0.4, 0.6, 0.8, 0.8, 1.2, 3.0, 40.0)
QUICK = 0.8, 1.2                                 # each half-band has kernels of its own: these have few
BINS = 120                                       # of a problem, at most
BEYOND = 180                                     # bins that have light beyond both ends of a problem of pads
# seeds, two of each kind, whose half-bands, 8 in a bundle and 7 in a fibre, have kernels that tests compile
OF_EIGHT = {"clean": (325, 429), "edges": (469, 495), "gap": (717, 2836), "cosmics": (1693, 2343), "one": (160, 212),
            "lone": (538, 2020), "rows": (1631, 2554), "columns": (1047, 1762), "checker": (645, 1893),
            "random": (48, 464), "islands": (1739, 2584), "amplifier": (947, 2351), "block": (2001, 3444)}


@dataclass(frozen=True)
class Problem:
    """An image with its PSF and settings, all from a seed.

    whole: the image with all pixels good; design: A (pixels, nfibre nall), nall = below + wanted + above
    """

    seed: int
    kind: str
    family: str
    psf: PsfModel
    image: Image
    whole: Image
    config: ExtractConfig
    design: scipy.sparse.csc_matrix
    below: int

    @property
    def name(self) -> str:
        """Everything that was drawn, in short."""
        masked = 1 - (self.image.ivar > 0).mean()
        return (f"seed {self.seed}: {self.kind}, {self.family}, {self.psf.nfibre} x "
                f"{self.design.shape[1] // self.psf.nfibre} bins of {self.config.wavelength[2]:g} A, "
                f"{masked:.2%} masked")


# ---- PSFs -----------------------------------------------------------------------------------------------------------

@cache
def _source(family: str) -> PsfModel | None:
    if family == "tiny":
        return simulate(SimConfig(camera="tiny", nspec=10)).psf
    if family in FILES:
        return read_psf(str(SHARED / FILES[family])) if (SHARED / FILES[family]).exists() else None
    return _made_up(family)


def _made_up(family: str) -> PsfModel:
    """Ten fibres 7 pixels apart, 0.6 Angstrom per pixel; with a tail, or with two cores and a tail."""
    low, high = 5000.0, 8000.0

    def flat(value: float) -> Legendre:
        return Legendre(np.full((10, 1), value), low, high)

    def core(size: float, sigma: float, nsig: Legendre | None) -> Core:
        gh = np.zeros((5, 5, 10, 1))
        gh[0, 0], gh[2, 0], gh[0, 2], gh[1, 3], gh[4, 0] = size, 0.03 * size, -0.02 * size, 0.01 * size, 0.005 * size
        return Core(flat(sigma), flat(1.05 * sigma), Legendre(gh, low, high), nsig)

    two = family == "two"
    tail = Tail(flat(0.02 if two else 0.005), flat(1.0), flat(1.0), flat(1.2), flat(2.0))
    x = Legendre(np.stack([40 + 7.1 * np.arange(10), np.full(10, 3.0), np.full(10, -2.0)], axis=1), low, high)
    y = Legendre(np.stack([2500 + 0.3 * np.arange(10), np.full(10, 2500.0), np.full(10, 20.0)], axis=1), low, high)
    cores = (core(1.0, 1.05, flat(3.0)), core(0.15, 2.2, None)) if two else (core(1.0, 1.05, None),)
    stamp, offset = ((20, 20), (10.0, 10.0)) if two else ((15, 21), (6.5, 9.5))
    return PsfModel(x, y, cores, tail, stamp, offset, (5100, 140), name=f"made-up {family}")


def _every(psf: PsfModel, change: Callable[[Legendre, str], Legendre]) -> PsfModel:
    """The PSF with every series changed; the change is told what the series is."""
    cores = tuple(Core(change(c.sigma_x, "sigma"), change(c.sigma_y, "sigma"), change(c.gh, "gh"),
                       change(c.nsig, "nsig") if c.nsig is not None else None) for c in psf.cores)
    t = psf.tail
    tail = None if t is None else Tail(change(t.amp, "amp"), *(change(s, "tail") for s in (t.core, t.xscale, t.yscale,
                                                                                          t.index)))
    return replace(psf, x=change(psf.x, "x"), y=change(psf.y, "y"), cores=cores, tail=tail)


def _narrow(series: Legendre, low: float, high: float) -> Legendre:
    """The same polynomials on a shorter domain."""
    n = series.coeff.shape[-1]
    node, weight = legendre.leggauss(n)
    wave = low + (node + 1) * (high - low) / 2
    place = 2 * (wave - series.wmin) / (series.wmax - series.wmin) - 1
    value = legendre.legval(place, np.moveaxis(series.coeff, -1, 0))
    basis = legendre.legvander(node, n - 1) * weight[:, None] * (np.arange(n) + 0.5)
    return Legendre(value @ basis, low, high)


def _perturbed(psf: PsfModel, rng: np.random.Generator) -> PsfModel:
    def change(series: Legendre, what: str) -> Legendre:
        coeff = series.coeff.copy()
        if what == "sigma":
            coeff *= rng.uniform(0.85, 1.15)
        elif what == "amp":
            coeff *= rng.uniform(0, 3)
        elif what == "gh":
            factor = 1 + 0.3 * rng.normal(size=coeff.shape[:2])
            factor[0, 0] = 1
            coeff *= factor[..., None, None]
        return replace(series, coeff=coeff)

    return _every(psf, change)


def _uneven(psf: PsfModel, rng: np.random.Generator) -> PsfModel:
    """The PSF with a pitch and a width of its own for each fibre, and traces that begin in other rows."""
    n, some = psf.nfibre, rng.random(2)
    pitch, width = rng.uniform(0.35, 1.4, n), rng.uniform(0.75, 1.9, n) if some[0] < 0.5 else np.ones(n)
    rows = rng.choice([0, 0, 1, 4, 10, 25, -10]) * np.arange(n) + (rng.uniform(-15, 15, n) if some[1] < 0.3 else 0)

    def change(series: Legendre, what: str) -> Legendre:
        coeff = series.coeff.copy()
        if what == "x":
            apart = np.diff(coeff[:, 0]) * pitch[1:]
            coeff[1:, 0] = coeff[0, 0] + np.cumsum(np.sign(apart) * np.maximum(np.abs(apart), 1.5))
        elif what == "y":
            coeff[:, 0] += rows
        elif what == "sigma":
            coeff *= width[:, None]
        return replace(series, coeff=coeff)

    return _every(psf, change)


def _on_small_ccd(psf: PsfModel, wave: np.ndarray, rng: np.random.Generator, edges: bool) -> PsfModel:
    """On a CCD that holds all spots, or ends on some of them."""
    centre = np.array([[[float(evaluate(s, f, w)) for w in (*wave[::3], wave[-1])] for f in range(psf.nfibre)]
                       for s in (psf.y, psf.x)])
    low = np.floor(centre.min(axis=(1, 2))) - psf.stamp
    high = np.ceil(centre.max(axis=(1, 2))) + psf.stamp
    if edges:       # the CCD's edge comes in by up to a third of the spots' extent, from one side or more
        size = np.maximum(high - low - 2 * np.array(psf.stamp), psf.stamp)
        low += rng.integers(0, 2, 2) * (psf.stamp + rng.uniform(-0.5, 0.33, 2) * size).round()
        high -= rng.integers(0, 2, 2) * (psf.stamp + rng.uniform(-0.5, 0.33, 2) * size).round()
        high = np.maximum(high, low + psf.stamp)

    def shift(series: Legendre, what: str) -> Legendre:
        if what not in ("x", "y"):
            return series
        coeff = series.coeff.copy()
        coeff[:, 0] -= low["yx".index(what)]
        return replace(series, coeff=coeff)

    moved = _every(psf, shift)
    return replace(moved, shape=(int(high[0] - low[0]), int(high[1] - low[1])), bundle=None)


# ---- masks: kind -> which pixels are good ---------------------------------------------------------------------------

def _place(psf: PsfModel, wave: np.ndarray, rng: np.random.Generator) -> tuple[int, int]:
    """A pixel on a trace, on the CCD."""
    f, w = int(rng.integers(psf.nfibre)), float(rng.choice(wave))
    y, x = (round(float(evaluate(s, f, w))) for s in (psf.y, psf.x))
    return min(max(y, 0), psf.shape[0] - 1), min(max(x, 0), psf.shape[1] - 1)


def _good(kind: str, psf: PsfModel, wave: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(ny, nx) bool, by the kind of mask."""
    shape = psf.shape
    y, x = np.indices(shape)
    good = np.ones(shape, dtype=bool)
    j, i = _place(psf, wave, rng)
    if kind == "cosmics":
        good = rng.random(shape) > rng.choice([0.001, 0.01, 0.05])
    elif kind == "one":              # masked rows but for one pixel, or a few, on a trace
        rows = int(rng.integers(psf.stamp[0], 3 * psf.stamp[0]))
        good = abs(y - j) > rows // 2
        for _ in range(rng.integers(1, 4)):
            good[min(max(j + int(rng.integers(-rows // 4, rows // 4 + 1)), 0), shape[0] - 1), i] = True
    elif kind == "lone":             # everything masked but one pixel, or two
        good[:] = False
        good[j, i] = True
        if rng.random() < 0.5:
            good[_place(psf, wave, rng)] = True
    elif kind == "rows":
        good = abs(y - j) > rng.integers(1, 2 * psf.stamp[0])
        if rng.random() < 0.3:
            good = y % rng.integers(2, 9) == 0
    elif kind == "columns":
        good = abs(x - i) > rng.integers(0, psf.stamp[1])
        if rng.random() < 0.3:
            good = x % rng.integers(2, 9) == 0
    elif kind == "checker":
        size = rng.integers(1, 6, 2)
        good = (y // size[0] + x // size[1]) % 2 == 0
    elif kind == "random":
        good = rng.random(shape) > rng.choice([0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99, 0.999])
    elif kind == "islands":          # a few good patches
        good[:] = False
        for _ in range(rng.integers(1, 6)):
            j, i = _place(psf, wave, rng)
            radius = rng.uniform(0.5, 12)
            good |= (y - j) ** 2 + (x - i) ** 2 <= radius**2
    elif kind == "amplifier":
        good = ~((y < j if rng.random() < 0.5 else y >= j) & (x < i if rng.random() < 0.5 else x >= i))
    elif kind == "block":
        good = ~((abs(y - j) < rng.integers(2, 25)) & (abs(x - i) < rng.integers(2, 20)))
    return good


MASKS = ("cosmics", "one", "lone", "rows", "columns", "checker", "random", "islands", "amplifier", "block")
KINDS = ("clean", "edges", "gap", *MASKS)


def drawn(seed: int, rng: np.random.Generator) -> tuple[str, str, float]:
    """The kind, family and step of a seed's problem."""
    return KINDS[seed % len(KINDS)], str(rng.choice(FAMILIES)), float(rng.choice(STEPS))


def seeds(first: int, count: int, *, only: str | None = None, quick: bool = False) -> list[int]:
    """So many seeds from `first` on. only: a kind, or "masks"; quick: problems whose kernels are soon compiled."""
    kinds = KINDS if only is None else MASKS if only == "masks" else (only,)

    def wanted(seed: int) -> bool:
        kind, family, step = drawn(seed, np.random.default_rng(seed))
        return kind in kinds and (not quick or (family == "tiny" and step in QUICK))

    return list(islice(filter(wanted, counting(first)), count))


def make(seed: int, *, uneven: bool = False) -> Problem | None:
    """The problem of a seed; None where the file of its PSF is absent. uneven: with fibres that are not alike."""
    rng = np.random.default_rng(seed)
    kind, family, step = drawn(seed, rng)
    source = _source(family)
    if source is None:
        return None
    nfibre = int(rng.integers(3, 6) if kind == "gap" else rng.integers(1, 7))
    low, high = source.wavelength_range
    below, above = (int(n) for n in rng.choice([0, 0, 3, 12], 2))
    n = min(int(rng.integers(30, BINS)) // nfibre, int((high - low) / step) - 2)
    step, n = (0.8, 20) if n < 8 else (step, n)
    below, above = (min(m, (n - 6) // 2) for m in (below, above))
    wave = float(rng.uniform(low + step, high - n * step)) + step * np.arange(n)
    psf = _cut(source, (family, nfibre), wave, step, rng)
    if uneven:
        psf = _uneven(psf, np.random.default_rng([seed, 1]))
    psf = _on_small_ccd(psf, wave, rng, kind == "edges" or rng.random() < 0.2)
    if kind == "gap":
        psf.x.coeff[1] = np.eye(1, psf.x.coeff.shape[1])[0] * -1e6
    config = ExtractConfig((float(wave[below]), float(wave[n - 1 - above]), step), bundlesize=nfibre, tolerance=1e-13)
    return _problem((seed, kind, family), psf, config, rng, (wave, wave, below))


def make_of_pads(seed: int) -> Problem | None:
    """A problem with light far beyond both ends of its range, at the default tolerance, and masks at these ends; None
    where the file of its PSF is absent or a step too long for that."""
    rng = np.random.default_rng([seed, 2])
    kind, family, nfibre = MASKS[seed % len(MASKS)], str(rng.choice(FAMILIES)), int(rng.integers(1, 4))
    step, source = float(rng.choice([0.6, 0.8, 0.8, 1.2])), _source(family)
    n = int(rng.integers(8, 40)) + 2 * BEYOND
    if source is None or (room := np.ptp(source.wavelength_range) - (n + 2) * step) < 0:
        return None
    wave = float(source.wavelength_range[0] + step + rng.uniform(0, room)) + step * np.arange(n)
    psf = _on_small_ccd(_cut(source, (family, nfibre), wave, step, rng), wave, rng, rng.random() < 0.15)
    config = ExtractConfig((float(wave[BEYOND]), float(wave[-1 - BEYOND]), step), bundlesize=nfibre)
    near = wave[BEYOND // 3 * 2:-(BEYOND // 3 * 2)]
    return _problem((seed, kind, family), psf, config, rng, (wave, near, BEYOND))


def _cut(source: PsfModel, of: tuple[str, int], wave: np.ndarray, step: float, rng: np.random.Generator) -> PsfModel:
    """Some fibres of a PSF, perturbed, on these wavelengths alone; of: its family, and how many."""
    family, nfibre = of
    start = int(rng.integers(0, source.nfibre - nfibre + 1)) if family != "tiny" else 0
    psf = select(source, range(start, start + nfibre))
    return _perturbed(_every(psf, lambda s, _: _narrow(s, wave[0] - 0.3 * step, wave[-1] + 0.3 * step)), rng)


def _problem(of: tuple[int, str, str], psf: PsfModel, config: ExtractConfig, rng: np.random.Generator,
             waves: tuple[np.ndarray, np.ndarray, int]) -> Problem:
    """With an image; of: (seed, kind, family); waves: of all bins, of those with masks, and bins below the range."""
    wave, masked, below = waves
    design = design_matrix(psf, range(psf.nfibre), wave, psf.shape)
    whole = _image(design, psf, wave, rng)
    ivar = np.where(_good(of[1], psf, masked, rng), whole.ivar, 0)
    return Problem(*of, psf, replace(whole, ivar=ivar), whole, config, design, below)


def _image(design: scipy.sparse.csc_matrix, psf: PsfModel, wave: np.ndarray, rng: np.random.Generator) -> Image:
    """Continua of 1 to 1000 photons per bin, a few lines; errors of 3 electrons and of the light, or 100 times that."""
    level = 10.0 ** rng.uniform(0, 3, (psf.nfibre, 1))
    photons = level * (1 + 0.3 * np.sin(np.arange(len(wave)) / 7 + np.arange(psf.nfibre)[:, None]))
    lines = rng.random(photons.shape) < 0.04
    photons = photons + lines * rng.uniform(100, 5000, photons.shape)
    light = np.asarray(design @ photons.ravel()).reshape(psf.shape)
    variance = light + 9.0
    how = rng.random()
    if how < 0.2:
        variance = variance * 10.0 ** rng.uniform(0, 4, psf.shape)
    elif how < 0.4:
        y, x = np.indices(psf.shape)
        variance = variance * 10.0 ** (2 + 2 * np.sin(y / rng.uniform(3, 60) + x / rng.uniform(3, 60)))
    return Image(light + rng.normal(size=psf.shape) * np.sqrt(variance), 1 / variance)
