"""The extraction as a stress test: real kernels on a small simulated frame, on one thread."""
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_extract.config import ExtractConfig
from gpu_extract.data import Frame, Image, PsfModel
from gpu_extract.errors import InternalError
from gpu_extract.resolution import times_resolution
from gpu_extract.run import extract
from gpu_extract.simulate import NO_DEFECTS, SimConfig, simulate
from gpu_stress.backend import Module
from gpu_stress.spec import Spec
from gpu_stress.work import Leg, Work

FIRST, STEP = 5800.0, 0.8          # Angstrom
FLOP_PER_BIN = 1.4e10 / (500 * 2326)
PULL_LIMIT = 7.0


@dataclass(frozen=True)
class Scene:
    """A simulated frame with its truth.

    truth: (nfibre, ntruth) electron/Angstrom on bins of STEP; before: number of bins before the grid's first one
    """

    image: Image
    psf: PsfModel
    truth: np.ndarray
    before: int


def scene_of(grid: tuple[float, float, float], nfibre: int, seed: int) -> Scene:
    """A simulated r frame without defects. grid: (first, last, step) in Angstrom"""
    made = simulate(SimConfig(nspec=nfibre, seed=seed, truth_grid=grid, defects=NO_DEFECTS, crop=True))
    before = round((grid[0] - made.truth.wave[0]) / grid[2])
    return Scene(made.image, made.psf, made.truth.flux[:nfibre].astype(float), before)


class Extract(Work):
    """Extract a frame repeatedly; the spectra must agree with the truth, and be identical every time.

    With n independent errors of unit size the sum of their squares is n +- sqrt(2 n): the pulls of the
    fluxes against the truth, seen through the resolution matrix, may be off by 7 of that (probability
    3e-12). The operations are those of the banded core, 1.4e10 for 500 fibres of 2326 bins; the dense
    core's are not counted.
    """

    bound = PULL_LIMIT

    def __init__(self, spec: Spec, module: Module):
        super().__init__(spec, module)
        nfibre, nwave = spec.shape
        grid = (FIRST, FIRST + (nwave - 1) * STEP, STEP)
        self._config = ExtractConfig(wavelength=grid, nspec=nfibre, core=spec.core)
        self._scene = scene_of(grid, nfibre, spec.seed)
        self.nbytes = self._scene.image.pix.nbytes + self._scene.image.ivar.nbytes
        self.flop = FLOP_PER_BIN * math.prod(spec.shape) if spec.core == "banded" else None
        self._compute()
        self._first = {name: getattr(self._result, name).copy() for name in ("flux", "ivar", "resolution")}
        self.legs = (Leg("compute", self._compute),)

    def _compute(self) -> None:
        frame = extract(self._scene.image, self._scene.psf, self._config)
        if frame is None:
            raise InternalError("the extraction returned no frame")
        self._result = frame

    def measure(self) -> Any:
        """Deviation of the pulls' square sum in units of its error; infinite if any bit has changed."""
        frame = self._result
        same = all(np.array_equal(getattr(frame, name), first, equal_nan=True)
                   for name, first in self._first.items())
        return abs(pull_excess(frame, self._scene)) if same else np.inf

    def spoil(self) -> None:
        """Change the last bit of one flux."""
        flux = self._result.flux
        middle = np.unravel_index(flux.size // 2, flux.shape)
        flux[middle] = np.nextafter(flux[middle], np.inf)


def pull_excess(frame: Frame, scene: Scene) -> float:
    """(sum of squared pulls - n) / sqrt(2 n) over the bins that were extracted.

    Bins with light from beyond the grid, where the resolution is unknown, are left out.
    """
    n, nwave = frame.ndiag, len(frame.wave)
    inner = slice(n, nwave - n)
    truth = scene.truth[:, scene.before:scene.before + nwave]
    expected = times_resolution(frame.resolution, truth)[:, inner]
    ivar = frame.ivar[:, inner]
    used = ivar > 0
    pulls = (frame.flux[:, inner] - expected)[used] * np.sqrt(ivar[used])
    return float((np.square(pulls).sum() - pulls.size) / math.sqrt(2 * max(pulls.size, 1)))
