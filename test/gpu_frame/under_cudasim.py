"""A small frame under numba's CUDA simulator, against the CPU: prints what was launched and the largest differences.

Run by test_cuda_simulator.py in a process of its own: the simulator is switched on before numba is loaded.
"""
import json
import sys
from dataclasses import replace
from typing import Any

import numpy as np

from gpu_extract.backend.cuda.simulated import SimulatedDevice
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Frame
from gpu_extract.gpu_frame.frames import GpuFrames, device_cores
from gpu_extract.plan import Plan
from gpu_extract.run import extract
from gpu_extract.simulate import SimConfig, simulate

BINS = 5


def few_bins(plan: Plan) -> Plan:
    """The first fibres' first bins, all of them kept: the simulator takes a tenth of a millisecond for every lane."""
    return replace(plan, wave=plan.wave[:BINS], extended=plan.extended[plan.inner][:BINS], inner=slice(0, BINS))


def main() -> int:
    """Extract with both, compare."""
    import gpu_extract.gpu_frame.steps
    import gpu_extract.run

    made_plan = gpu_extract.run.make_plan
    gpu_extract.run.make_plan = lambda *args: few_bins(made_plan(*args))     # no padding: nothing but a smaller frame
    gpu_extract.gpu_frame.steps.iterations_for = lambda hw: 6
    case = simulate(SimConfig(camera="tiny"))
    psf = replace(case.psf, bundle=np.repeat([0, 1], [2, 8]))
    config = ExtractConfig(wavelength=(6040.0, 6056.0, 0.8), nspec=2, ndiag=2)
    device = SimulatedDevice(compiled=False)
    frame = extract(case.image, psf, config, backend=GpuFrames(lambda: device, device_cores))
    cpu = extract(case.image, psf, config)
    print(json.dumps({"launched": sorted(device.launched), **differences(frame, cpu)}))
    return 0


def differences(frame: Frame | None, cpu: Frame | None) -> dict[str, Any]:
    """Largest differences: flux in sigma, ivar relative, R."""
    if frame is None or cpu is None:
        raise SystemExit("no frame")
    return {"flux": float((np.abs(frame.flux - cpu.flux) * np.sqrt(cpu.ivar)).max()),
            "ivar": float(np.abs(frame.ivar / cpu.ivar - 1).max()),
            "resolution": float(np.abs(frame.resolution - cpu.resolution).max()),
            "on_cpu": sum(notes.get("on_cpu", 0) for notes in frame.notes["bundles"].values())}


if __name__ == "__main__":
    sys.exit(main())
