"""Helpers for tests of the frame flow: a small frame, and a simulated device."""
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from simulated_device import SimulatedDevice

from gpu_extract.bundle import Job, banded_part, clear_corners
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Frame, Image, Normal, PsfModel, Status
from gpu_extract.device.cuda.piece import PieceNormal, PieceOut, PieceShape
from gpu_extract.device.device_banded import BandedCore
from gpu_extract.device.frames import GpuFrames
from gpu_extract.run import extract, prepare
from gpu_extract.simulate import SimConfig, simulate
from gpu_extract.simulate.config import Defects
from gpu_extract.spots import centres

CONFIG = ExtractConfig(wavelength=(6012.0, 6052.0, 0.85), model=True, tolerance=1e-4)


@cache
def four_bundles() -> Any:
    """Twenty fibres in four bundles; cosmics, bad columns, 3 % of the pixels masked; pixels under masks are not
    finite."""
    made = simulate(SimConfig(camera="tiny", nspec=20, defects=Defects(masked_fraction=0.03)))
    made.image.pix[made.image.ivar == 0] = np.nan
    return made


@cache
def struck() -> tuple[Image, PsfModel]:
    """Twenty fibres in four bundles; cosmics without a mask; read noise by pixel. Two bundles are hit in more than
    1 % of their pixels, one of them so much that nothing is rejected."""
    made = simulate(SimConfig(camera="tiny", nspec=20, seed=3, variance="data", defects=Defects(hidden_cosmics=True)))
    rng, pix = np.random.default_rng(1), made.image.pix.copy()
    for _ in range(60):
        y, x = (int(rng.integers(5, size - 8)) for size in pix.shape)
        for k in range(int(rng.integers(1, 6))):
            pix[y + k // 2, x + k] += rng.uniform(30, 3000)
    edge = int(centres(made.psf, (4, 6), np.array([6047.0]))[1].mean())       # between the first two bundles
    pix[:, :edge] += np.where(rng.random((len(pix), edge)) < 0.3, rng.uniform(100, 1000, (len(pix), edge)), 0)
    variance = made.read_noise.astype(float) ** 2 + np.maximum(pix, 0.0)
    return replace(made.image, pix=pix, ivar=np.where(made.image.ivar > 0, 1 / variance, 0).astype(pix.dtype)), made.psf


@cache
def on_cpu(config: ExtractConfig = CONFIG) -> Frame:
    """The CPU's frame of four_bundles."""
    case = four_bundles()
    frame = extract(case.image, case.psf, config)
    assert frame is not None
    return frame


@cache
def on_device(core: Any = None) -> Frame:
    """The device's frame, with unlimited memory."""
    return with_device(SimulatedDevice(), core=core)


def with_device(device: SimulatedDevice, *, image: Any = None, core: Any = None, dtype: Any = np.float64,
                **options: Any) -> Frame:
    """The frame of four_bundles by a device; all its memory must come back.

    core: None: the device's own; options: of GpuFrames
    """
    case = four_bundles()
    backend = GpuFrames(lambda: device, core=core or BandedCore, **options)
    frame = extract(image or case.image, case.psf, CONFIG, backend=backend, dtype=dtype)
    backend.close()
    assert device.used == 0
    assert frame is not None
    return frame


@cache
def small_job() -> Job:
    """The job of four_bundles."""
    return prepare(four_bundles().psf, CONFIG)


class HostCore:
    """A core that uses the CPU's code; `fails`: fibres of the piece that it gives up."""

    fails: tuple[int, ...] = ()
    job: Callable[[], Job] = staticmethod(small_job)
    part = staticmethod(banded_part)

    plan = staticmethod(lambda shape: {})

    def __init__(self, device: SimulatedDevice, shape: PieceShape, *, room: Any = None):
        self._device, self._shape = device, shape

    def run(self, normal: PieceNormal, out: PieceOut, stream: Any, recorder: Any) -> None:
        """See flow.Core."""
        self._device.call(lambda: self._work(normal, out), stream)

    def _work(self, normal: PieceNormal, out: PieceOut) -> None:
        for b in range(self._shape.bundles):
            rows = slice(b * self._shape.nfibre, (b + 1) * self._shape.nfibre)
            icov = np.ascontiguousarray(normal.icov.data[rows].transpose(0, 1, 3, 2))
            weight, x = normal.weight.data[rows], normal.x.data[rows]
            part = self.part(Normal(icov, np.zeros_like(x), weight, np.zeros(x.shape, bool)), x, self.job(),
                               (0, len(x)))
            clear_corners(part.resolution)
            for target, values in ((out.flux, part.flux), (out.ivar, part.ivar), (out.resolution, part.resolution),
                                   (out.status, part.status)):
                target.data[rows] = values
        for fibre in self.fails:
            for array in (out.flux, out.ivar, out.resolution):
                array.data[fibre] = 0.0
            out.status.data[fibre] = Status.FAILED


def host_core(job: Callable[[], Any], fails: tuple[int, ...] = ()) -> Any:
    """A core of the CPU that gives up some fibres of each piece."""
    return type("Core", (HostCore,), {"job": staticmethod(job), "part": staticmethod(banded_part), "fails": fails})
