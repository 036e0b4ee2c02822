"""A frame of a random problem against the oracle: what is wrong with it, in units of what rounding allows."""
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from exact import WEAK, solve_exact
from problems import Problem
from simulated_device import SimulatedDevice
from strange_problems import STRANGE

from gpu_extract.data import Frame, Image, SpecMask
from gpu_extract.device.frames import GpuFrames
from gpu_extract.errors import GpuExtractError, InternalError
from gpu_extract.normal import FAINT_LIGHT
from gpu_extract.oracle import diagonals, solve_bundle
from gpu_extract.run import extract

EPS = float(np.finfo(float).eps)
FLOOR = 1e-8             # sigma: asked for where cond is small
HOPELESS = 1e-3          # sigma: what is worse must be flagged, whatever rounding leaves
KEEPS = 0.1              # of the information with all pixels good: such a bin must not be flagged
CLEAN = 1e8              # cond with all pixels good beyond which shares of information are not judged
OFF = FAINT_LIGHT / KEEPS**0.5   # light of a bin all but off the CCD: who keeps KEEPS of that may be flagged as faint
EASY = 1e5               # cond up to which the oracle in double precision is 100 times better than the bound
EVEN = 1e8               # and ratio of the bins' ivar
ONE_WAY = 10.0           # the diagonal is one way to round of many
SURE = 10.0              # that a bin is weak is judged where the limit is passed by this factor
POLES = 1.5e-10          # of the S/N of strange light: poles.LADDER has 1e-10, by a law within 1.5 of the truth
FLAGS = np.uint32(SpecMask.WEAKBIN | SpecMask.NODATA | SpecMask.BADFIBER | SpecMask.ODDPIX)


@dataclass(frozen=True)
class Truth:
    """The wanted bins by the oracle: arrays (nfibre, nwave), photons per bin.

    bound: what a result may be off by, in sigma; kept: share of the information with all pixels good
    weak: bins that must be flagged, since double precision cannot tell them from others
    doubtful: those that may be: what tells them from others is less than ten times that, or their bound is 1e-3
    """

    flux: np.ndarray
    ivar: np.ndarray
    resolution: np.ndarray
    bound: np.ndarray
    kept: np.ndarray
    weak: np.ndarray
    doubtful: np.ndarray
    cond: float


def truth(problem: Problem) -> Truth:
    """By the oracle in double precision where that is enough, else in as many digits as it takes.

    The bound is max(1e-8, 100 eps cond), cond of icov scaled to a unit diagonal with the weak bins marginalised; and
    where icov itself is worse than 1e10, ten times what 100 eps on that diagonal changes. Strange light may be so
    bright that the error of the poles counts, a share of the largest S/N of a fibre. Never above 1e-3.
    """
    nfibre, ndiag = problem.psf.nfibre, problem.psf.stamp[0] // 2
    nwave = round(np.ptp(problem.config.wavelength[:2]) / problem.config.wavelength[2]) + 1
    wanted = slice(problem.below, problem.below + nwave)
    known: Any = _in_double(problem, problem.image)
    if known is not None:
        information = _information(known.covariance)
        seen, cond = information > 0, known.cond
        doubt, alike = np.zeros(seen.shape), np.ones(seen.shape)
    if known is None or (seen.any() and (cond > EASY or np.ptp(np.log(known.ivar[seen])) > np.log(EVEN))):
        cond = np.inf if known is None else cond
        known = solve_exact(problem.design, problem.image, nfibre)
        information = known.information
        seen, doubt = information > 0, np.zeros(information.shape)
        alike = np.divide(known.alone, information, out=np.ones(seen.shape), where=seen)
        if alike.max() > WEAK / SURE or cond > WEAK:
            floored = solve_exact(problem.design, problem.image, nfibre, floor=100 * EPS)
            doubt = ONE_WAY * differences(known, floored, ndiag)
        cond = known.cond
    bound = np.maximum(max(FLOOR, 100 * EPS * cond), doubt)
    if problem.kind in STRANGE:
        bound = np.maximum(bound, POLES * (np.abs(known.flux) * np.sqrt(known.ivar)).max(axis=1, keepdims=True))
    clean: Any = _in_double(problem, problem.whole)
    if clean is None:
        clean = solve_exact(problem.design, problem.whole, nfibre)
    most = clean.information if hasattr(clean, "information") else _information(clean.covariance)
    sure = (most > 0) & (clean.cond < CLEAN) & (_light(problem) > OFF)
    kept = np.divide(information, most, out=np.zeros_like(most), where=sure)
    stored = np.array([diagonals(r[wanted, wanted], ndiag) for r in known.resolution])
    doubtful = (alike > WEAK / SURE) | (bound >= HOPELESS)
    return Truth(known.flux[:, wanted], known.ivar[:, wanted], stored, np.minimum(bound, HOPELESS)[:, wanted],
                 kept[:, wanted], (alike > WEAK * SURE)[:, wanted], doubtful[:, wanted], cond)


def _in_double(problem: Problem, image: Image) -> Any:
    """The oracle in double precision; None where that is not even enough for a factorisation."""
    try:
        return solve_bundle(problem.design, image, problem.psf.nfibre, psferr=0.0)
    except (InternalError, np.linalg.LinAlgError):
        return None


def _light(problem: Problem) -> np.ndarray:
    """(nfibre, nall) light of a bin on the pixels that tell of it where all are good: 0.05 of a whole spot."""
    w = problem.whole.ivar.ravel()
    weight = problem.design.T @ w
    squares = problem.design.multiply(problem.design).T @ w
    light = np.divide(squares, weight, out=np.zeros_like(weight), where=weight > 0)
    return light.reshape(problem.psf.nfibre, -1)


def _information(covariance: np.ndarray) -> np.ndarray:
    """1 / C_kk, 0 for bins without data."""
    variance = np.einsum("ikk->ik", covariance)
    return np.divide(1, variance, out=np.zeros_like(variance), where=variance > 0)


def differences(known: Any, other: Any, ndiag: int) -> np.ndarray:
    """(nfibre, n) the largest of those of flux in sigma, of ivar relative to itself, of R's diagonals."""
    error = np.sqrt(known.ivar)
    of_flux = np.abs(other.flux - known.flux) * error
    of_ivar = np.abs(np.divide(other.ivar, known.ivar, out=np.ones_like(error), where=known.ivar > 0) - 1)
    near = np.abs(np.subtract.outer(np.arange(error.shape[1]), np.arange(error.shape[1]))) <= ndiag
    of_r = (np.abs(other.resolution - known.resolution) * near).max(axis=-1)
    return np.maximum(np.maximum(of_flux, of_ivar), of_r)


@dataclass(frozen=True)
class Verdict:
    """What one core made of a problem.

    lost: why there is no frame, or ""; parts: (3, nfibre, nwave) differences of flux, ivar and R in units of the bound
    flagged: bins with one of FLAGS; wrong: unflagged and off by more than the bound; rash: unflagged though weak;
    strict: flagged though not even doubtful, and with 10 % of the information that it has with all pixels good;
    weak: as of Truth, their numbers are not judged
    """

    lost: str
    parts: np.ndarray
    flagged: np.ndarray
    wrong: np.ndarray
    rash: np.ndarray
    strict: np.ndarray
    weak: np.ndarray

    @property
    def ratio(self) -> np.ndarray:
        """(nfibre, nwave) the largest of the parts."""
        return self.parts.max(axis=0)

    @property
    def broken(self) -> bool:
        """Whether anything is not as it must be."""
        return bool(self.lost) or any(bins.any() for bins in (self.wrong, self.rash, self.strict))

    @property
    def worst(self) -> float:
        """The largest difference of an unflagged bin that can be known, in units of the bound."""
        return float(self.ratio[~self.flagged & ~self.weak].max(initial=0.0))


def judge(problem: Problem, core: str, known: Truth) -> Verdict:
    """Extract by a core, or by a device ("device", which is simulated), and compare."""
    none = np.zeros(known.flux.shape, dtype=bool)
    nothing = np.zeros((3, *none.shape)), none, none, none, none, none
    try:
        frame = _by_device(problem) if core == "device" else extract(problem.image, problem.psf,
                                                                     replace(problem.config, core=core))
    except (GpuExtractError, ArithmeticError, ValueError, Warning) as error:      # warnings are errors here
        return Verdict(f"{type(error).__name__}: {error}", *nothing)
    assert frame is not None
    if not all(np.isfinite(array).all() for array in (frame.flux, frame.ivar, frame.resolution, frame.chi2pix)):
        return Verdict("numbers that are not finite", *nothing)
    return compare(frame, known, problem.config.wavelength[2])


def _by_device(problem: Problem) -> Frame | None:
    """What a device makes of it, and the CPU of what that leaves."""
    with closing(GpuFrames(SimulatedDevice)) as backend:
        return extract(problem.image, problem.psf, problem.config, backend=backend)


def compare(frame: Frame, known: Truth, step: float) -> Verdict:
    """The frame (photons per Angstrom) against the oracle (photons per bin); R relative to 1 or its row's largest.

    Rows sum to 1, and those of a bin that pixels hardly tell from the next have elements of hundreds.
    """
    error, ivar = np.sqrt(known.ivar), frame.ivar / step**2
    of_flux = np.abs(frame.flux * step - known.flux) * error
    of_ivar = np.abs(np.divide(ivar, known.ivar, out=np.where(ivar > 0, 2.0, 1.0), where=known.ivar > 0) - 1)
    nwave, ndiag = frame.flux.shape[1], frame.ndiag
    row = np.arange(nwave) - ndiag + np.arange(2 * ndiag + 1)[:, None]
    off = np.abs(frame.resolution - known.resolution)
    of_r, size = np.zeros_like(error), np.ones_like(error)      # of row j - ndiag + k is a column k, j
    for k, j in zip(*np.nonzero((row >= 0) & (row < nwave)), strict=True):
        of_r[:, row[k, j]] = np.maximum(of_r[:, row[k, j]], off[:, k, j])
        size[:, row[k, j]] = np.maximum(size[:, row[k, j]], np.abs(known.resolution[:, k, j]))
    parts = np.stack([of_flux, of_ivar, of_r / size]) / known.bound
    ratio = parts.max(axis=0)
    flagged = (frame.mask & FLAGS) > 0
    unknown = (frame.ivar == 0) & (known.ivar == 0)
    return Verdict("", parts, flagged, wrong=~flagged & ~known.weak & (ratio > 1),
                   rash=~flagged & known.weak & ~unknown, strict=flagged & ~known.doubtful & (known.kept > KEEPS),
                   weak=known.weak)


def report(problem: Problem, core: str, verdict: Verdict, known: Truth) -> list[str]:
    """Everything about one problem, in lines: the five worst bins of each kind."""
    lines = [f"{problem.name}; {core}",
             f"  cond {known.cond:.1e}, {known.weak.size} bins: {known.weak.sum()} weak, {verdict.flagged.sum()} "
             f"flagged; bound {known.bound.min():.0e} to {known.bound.max():.0e}"]
    if verdict.lost:
        lines.append(f"  lost: {verdict.lost}")
    for name in ("wrong", "rash", "strict"):
        bins = np.argwhere(getattr(verdict, name)).tolist()
        for i, j in sorted(bins, key=lambda at: -verdict.ratio[tuple(at)])[:5]:
            flux, ivar, r = verdict.parts[:, i, j]
            lines.append(f"  {name}: {len(bins)} bins, fibre {i} bin {j}: flux {flux:.2g}, ivar {ivar:.2g}, R {r:.2g} "
                         f"x {known.bound[i, j]:.1e} sigma, ivar "
                         f"{known.ivar[i, j]:.2g} (largest {known.ivar.max():.2g}), keeps {known.kept[i, j]:.2g}")
    return lines
