"""What bench/gpu_frame.py checks: a frame of the device against the CPU, against the oracle, against itself."""
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpu_extract.assemble import BY_BIN, assemble
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Frame, Image, PsfModel
from gpu_extract.device.frames import GpuFrames
from gpu_extract.perf.recorder import NULL
from gpu_extract.run import extract, prepare
from gpu_extract.simulate import SimConfig, simulate


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
    """Flux in sigma, ivar relative, R, where half of a spot is seen: largest, and of 99.9 %; fibres left to the CPU."""
    if frame is None or other is None or other.pixmask_fraction is None:
        raise SystemExit("no frame")
    seen = (other.pixmask_fraction < 0.5) & (other.ivar > 0)
    found = {"flux": (np.abs(frame.flux - other.flux) * np.sqrt(other.ivar))[seen],
             "ivar": np.abs(frame.ivar[seen] / other.ivar[seen] - 1),
             "R": np.abs(frame.resolution - other.resolution).max(axis=1)[seen]}
    facts = {name: float(values.max()) for name, values in found.items()}
    facts |= {f"{name} 99.9 %": float(np.percentile(values, 99.9)) for name, values in found.items()}
    return {**facts, "on_cpu": float(sum(n.get("on_cpu", 0) for n in frame.notes.get("bundles", {}).values()))}


def problem(folder: Path, nspec: int, last: float) -> tuple[Image, PsfModel, ExtractConfig]:
    """The simulated frame, pixels in the byte order of FITS files; kept in a folder for other processes."""
    from gpu_extract.io.psf import read_psf, write_psf

    if not (folder / "psf.fits").exists():
        made = simulate(SimConfig(camera="r", nspec=nspec))
        np.save(folder / "image.npy", np.stack([made.image.pix, made.image.ivar]).astype(">f4"))
        write_psf(folder / "psf.fits", made.psf)
    pix, ivar = np.load(folder / "image.npy")
    return Image(pix, ivar), read_psf(folder / "psf.fits"), ExtractConfig((5760.0, last, 0.8), nspec=nspec)


def open_backend(ranks: int = 1, **options: Any) -> GpuFrames:
    """The GPU, as one of so many ranks on it."""
    from gpu_extract.device.cuda.real import CupyDevice, memory_of
    from gpu_extract.device.share import budget

    free, total = memory_of(0)
    device = CupyDevice(0, budget(total, free, ranks))
    return GpuFrames(lambda: device, warn=print, **options)


def same_bits(frame: Frame | None, image: Image, psf: PsfModel, config: ExtractConfig) -> list[str]:
    """What of a frame depends on the run, on pieces and slots, on its types, or on ranks: nothing should."""
    wrong = []
    for options, dtype in (({}, "float64"), ({"most": 1}, "float64"), ({"most": 20, "slots": 1}, "float64"),
                           ({}, "float32")):
        backend = open_backend(**options)
        wrong += _differ(frame, extract(image, psf, config, backend=backend, dtype=dtype), f"with {options}, {dtype}")
        backend.close()
    job, parts = prepare(psf, config), []
    for rank in range(4):
        backend = open_backend(4)
        parts += backend.rows(image, job, SimpleNamespace(rank=rank, size=4), NULL)
        backend.close()
    return wrong + _differ(frame, assemble([rows for _, rows in parts], job.plan, image, {}), "on 4 ranks")


def _differ(frame: Frame | None, other: Frame | None, how: str) -> list[str]:
    """Arrays of a frame that are not those of another, rounded to the other's types."""
    return [f"{name} {how}" for name in BY_BIN
            if not np.array_equal(getattr(frame, name).astype(getattr(other, name).dtype), getattr(other, name))]
