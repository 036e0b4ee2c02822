"""What bench/gpu_frame.py checks: a frame of the device against the CPU, against the oracle, against itself."""
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpu_extract.assemble import BY_BIN, assemble
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Frame, Image, PsfModel, SpecMask
from gpu_extract.device.frames import GpuFrames
from gpu_extract.perf.recorder import NULL
from gpu_extract.run import extract, prepare
from gpu_extract.simulate import SimConfig, simulate

Opener = Callable[..., GpuFrames]       # ranks on the device, options of GpuFrames -> a backend of its own
FLAGS = np.uint32(SpecMask.WEAKBIN | SpecMask.NODATA | SpecMask.BADFIBER | SpecMask.ODDPIX)


def small_check() -> dict[str, Any]:
    """2 fibres x 5 bins on the simulated device against the oracle: largest differences, and what was launched."""
    from simulated_device import SimulatedDevice

    device = SimulatedDevice()
    frame, exact = small_frames(device)
    return {**differences(frame, exact), "launched": sorted(device.launched)}


def small_frames(device: Any, dtype: str = "float64") -> tuple[Frame | None, Frame]:
    """2 fibres x 5 bins by a device, in numbers of this type, and by the oracle."""
    import gpu_extract.device.steps as steps
    import gpu_extract.run as run
    from gpu_extract.oracle import oracle_extract

    case, made_plan, iterations_for = simulate(SimConfig(camera="tiny")), run.make_plan, steps.iterations_for

    def few_bins(*args: Any) -> Any:          # no padding: the oracle takes long
        plan = made_plan(*args)
        return replace(plan, wave=plan.wave[:5], extended=plan.extended[plan.inner][:5], inner=slice(0, 5))

    psf = replace(case.psf, bundle=np.repeat([0, 1], [2, 8]))
    config = ExtractConfig(wavelength=(6040.0, 6056.0, 0.8), nspec=2, ndiag=2)
    backend = GpuFrames(lambda: device)
    run.make_plan, steps.iterations_for = few_bins, lambda hw: 6
    try:
        frame = extract(case.image, psf, config, backend=backend, dtype=dtype)
    finally:
        run.make_plan, steps.iterations_for = made_plan, iterations_for
        backend.close()
    return frame, oracle_extract(case.image, psf, replace(config, wavelength=(6040.0, 6043.2, 0.8)), pad=0)


def differences(frame: Frame | None, other: Frame | None) -> dict[str, float]:
    """Flux in sigma, ivar relative, R: the largest and that of 99.9 %, of the bins of which half of a spot is seen and
    that no flag of FLAGS calls weak. flux seen: the largest, flagged ones too; lost: bins without ivar, whose
    differences count; masks: bins that differ in any bit."""
    if frame is None or other is None or other.pixmask_fraction is None:
        raise RuntimeError("no frame was made")
    seen = (other.pixmask_fraction < 0.5) & (other.ivar > 0)
    good = seen & ((other.mask & FLAGS) == 0)
    flux = np.abs(frame.flux - other.flux) * np.sqrt(other.ivar)
    found = {"flux": flux[good], "ivar": np.abs(frame.ivar[good] / other.ivar[good] - 1),
             "R": np.abs(frame.resolution - other.resolution).max(axis=1)[good]}
    facts = {name: float(values.max(initial=0.0)) for name, values in found.items()}
    facts |= {f"{name} 99.9 %": float(np.percentile(values, 99.9)) if len(values) else 0.0
              for name, values in found.items()}
    lost = int((seen & (frame.ivar == 0)).sum())
    return {**facts, "flux seen": float(flux[seen].max(initial=0.0)), "lost": lost, "bins": int(good.sum()),
            "masks": int((frame.mask != other.mask).sum())}


def left_to_cpu(frame: Frame | None) -> int:
    """Fibres of a frame that the device left to the CPU."""
    notes = frame.notes.get("bundles", {}) if frame is not None else {}
    return int(sum(facts.get("on_cpu", 0) for facts in notes.values()))


def open_backend(ranks: int = 1, warn: Callable[[str], None] = print, **options: Any) -> GpuFrames:
    """The GPU, as one of so many ranks on it, and on the host's cores."""
    from gpu_extract.cli.device import budget
    from gpu_extract.device.cuda.real import CupyDevice, memory_of
    from gpu_extract.perf.recorder import usable_cores

    free, total = memory_of(0)
    device = CupyDevice(0, budget(total, free, ranks))
    return GpuFrames(lambda: device, warn=warn, threads=max(usable_cores() // ranks, 1), **options)


def open_simulated(ranks: int = 1, warn: Callable[[str], None] = print, **options: Any) -> GpuFrames:
    """The simulated device in its place."""
    from simulated_device import SimulatedDevice

    device = SimulatedDevice()
    return GpuFrames(lambda: device, warn=warn, **options)


def same_bits(given: tuple[Image, PsfModel, ExtractConfig], opened: Opener) -> list[str]:
    """What of a frame depends on the run, on graphs, on pieces and slots, on its types, or on ranks: nothing should."""
    image, psf, config = given
    other = replace(image, pix=(image.pix + 1).astype(image.pix.dtype))

    def frames(images: list[Image], dtype: str = "float64", **options: Any) -> list[Frame | None]:
        backend = opened(**options)
        try:
            return [extract(one, psf, config, backend=backend, dtype=dtype) for one in images]
        finally:
            backend.close()

    frame, captured, brighter, replayed = frames([image, image, other, image])
    wrong = _differ(frame, captured, "as a graph") + _differ(frame, replayed, "replayed")
    wrong += _differ(frames([other])[0], brighter, "replayed with other pixels")
    for dtype, options in (("float64", {"most": 1}), ("float64", {"most": 20, "slots": 1}), ("float32", {})):
        wrong += _differ(frame, frames([image], dtype, **options)[0], f"with {options}, {dtype}")
    job, parts = prepare(psf, config), []
    for rank in range(4):
        backend = opened(4)
        parts += backend.rows(image, job, SimpleNamespace(rank=rank, size=4), NULL)
        backend.close()
    return wrong + _differ(frame, assemble([rows for _, rows in parts], job.plan, image, {},
                                          like=(job.ndiag, job.dtype)), "on 4 ranks")


def _differ(frame: Frame | None, other: Frame | None, how: str) -> list[str]:
    """Arrays of a frame that are not those of another, rounded to the other's types."""
    return [f"{name} {how}" for name in BY_BIN
            if not np.array_equal(getattr(frame, name).astype(getattr(other, name).dtype), getattr(other, name))]
