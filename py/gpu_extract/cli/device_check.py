"""Checks the GPU of this machine step by step, and reports the first step that fails: `gpu_extract --device-check`.

Each step depends on the previous ones: the device and its memory, copies, a kernel (NVRTC, cupy), a small frame
compared with that of the CPU. The first failure is reported in one line, with a remedy.
"""
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpu_extract.errors import ExitCode

if TYPE_CHECKING:
    from gpu_extract.device.cuda.seam import Device

WORDS = 1 << 20            # float64 numbers that are copied to the device and back
MOST_FLUX, MOST_OTHER = 1e-8, 1e-9      # sigma; of ivar, relative, and of R


class Differs(Exception):
    """A step ran, but its result differs from the CPU's."""


@dataclass(frozen=True)
class Step:
    """name: what is checked; work: returns the finding in words; remedy: advice on failure."""

    name: str
    work: Callable[["Device"], str]
    remedy: str


def check_device(open_device: Callable[[], "Device"], say: Callable[[str], None]) -> ExitCode:
    """Run all steps, and report each finding at once.

    Raises InputError, one line, if there is no device.
    Returns CHECK_FAILED if a step fails; the last line says which one, why, and what to do.
    """
    device = open_device()
    for number, step in enumerate(STEPS, 1):
        try:
            say(f"{number} {step.name}: {step.work(device)}")
        except Exception as error:
            said = " ".join(str(error).split()) or "no reason given"
            why = said if isinstance(error, Differs) else f"{type(error).__name__}: {said[:300]}"
            say(f"{number} {step.name} FAILED: {why}: {step.remedy}")
            return ExitCode.CHECK_FAILED
    say(f"{device.name} passes all checks")
    return ExitCode.DONE


def first_device() -> "Device":
    """The first GPU that this process sees."""
    from gpu_extract.device.cuda.real import CupyDevice

    return CupyDevice(0)


def _copies(device: "Device") -> str:
    """Copy distinct numbers to the device and back."""
    from gpu_extract.device.memory import tables_from, tables_on

    sent = np.random.default_rng(1).random(WORDS)
    found = tables_from(device, tables_on(device, {"sent": sent}), device.stream())["sent"]
    if not np.array_equal(found, sent):
        raise Differs(f"{(found != sent).sum()} of {WORDS} numbers changed on the way")
    return f"{sent.nbytes >> 20} MB there and back, identical bit by bit"


def _kernel(device: "Device") -> str:
    """The factor of a tridiagonal matrix, cut into tiles, against L D L^T."""
    from gpu_extract.device.cuda.text import sweeps
    from gpu_extract.device.memory import tables_from, tables_on

    nwave, lanes, tile = 300, 40, 64
    band = np.zeros((nwave, 2, lanes))
    band[:, 0], band[:-1, 1] = 2.5 + 0.01 * np.arange(lanes), -1.0
    tiles = -(-nwave // tile)
    there = tables_on(device, {"low": np.zeros(band.size), "halo": np.zeros(tiles * lanes, np.int32),
                               "gate": np.zeros(lanes, np.int32), "band": band.ravel()})
    known = there["halo"], there["gate"], there["band"], 0, 0, 1, 2 * lanes, lanes, nwave, tile, lanes
    stream = device.stream()
    device.launch(sweeps.settle.sized(1), tiles * lanes, known, stream)
    device.launch(sweeps.factor.sized(1), tiles * lanes, (there["low"], *known), stream)
    found = tables_from(device, {"low": there["low"]}, stream)["low"].reshape(nwave, 2, lanes)
    pivot = band[0, 0].copy()
    for row in range(nwave):
        error = np.abs(found[row, 0] * pivot - 1.0).max()
        if not error < 1e-13:
            raise Differs(f"row {row} of a factor is wrong by {error:.1e}")
        pivot = band[min(row + 1, nwave - 1), 0] - 1.0 / pivot
    return f"compiled and launched, {tiles * lanes} lanes right"


def _frame(device: "Device") -> str:
    """Extract a bundle of 5 fibres with all kernels of the banded core, and compare it with the CPU."""
    from gpu_extract.config import ExtractConfig
    from gpu_extract.device.frames import GpuFrames
    from gpu_extract.run import extract
    from gpu_extract.simulate import NO_DEFECTS, SimConfig, simulate

    made = simulate(SimConfig(camera="tiny", defects=NO_DEFECTS))
    config = ExtractConfig(wavelength=(6020.0, 6044.0, 0.85), nspec=5)
    backend = GpuFrames(lambda: device)
    frame, cpu = extract(made.image, made.psf, config, backend=backend), extract(made.image, made.psf, config)
    if frame is None or cpu is None or cpu.pixmask_fraction is None:
        raise Differs("no frame was made")
    left = sum(notes.get("on_cpu", 0) for notes in frame.notes.get("bundles", {}).values())
    seen = (cpu.pixmask_fraction < 0.5) & (cpu.ivar > 0)
    flux = (np.abs(frame.flux - cpu.flux) * np.sqrt(cpu.ivar))[seen].max()
    ivar = np.abs(frame.ivar[seen] / cpu.ivar[seen] - 1.0).max()
    matrix = np.abs(frame.resolution - cpu.resolution).max(axis=1)[seen].max()
    found = f"flux {flux:.1e} sigma, ivar {ivar:.1e}, R {matrix:.1e} from the CPU's"
    if left:
        raise Differs(f"{left:.0f} of 5 fibres failed on the device")
    if not (flux < MOST_FLUX and ivar < MOST_OTHER and matrix < MOST_OTHER):
        raise Differs(found)
    return found


INSTALL = "install gpu_extract[cuda12] or [cuda13], to match the driver (nvidia-smi shows its CUDA version)"
_BROKEN = "use --no-gpu, and tell the administrator of this machine"
STEPS = (Step("device", lambda device: f"{device.name}, {device.free_memory() / 1e9:.1f} GB free", _BROKEN),
         Step("copies", _copies, _BROKEN),
         Step("a kernel (NVRTC, cupy)", _kernel, INSTALL),
         Step("a small frame", _frame, "use --no-gpu, and report the problem with these lines"))
