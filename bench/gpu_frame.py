"""What does a frame cost on a GPU, and is it the CPU's frame? One command, nothing to prepare, at most 8 minutes.

usage: gpu_frame.py [--frames 20] [--nspec 500] [--ranks 1,2,4,8] [--smallest]

Simulates an r frame, then: the GPU against the CPU backend (one thread), and against itself in other pieces, slots and
ranks, bit by bit; a warm frame from host arrays to host arrays for both cores, split by stage with device events;
copies overlapped by kernels over many frames; so many processes sharing the device, with and without MPS; the whole
command. Bytes, operations (on paper, doc/gpu.md) and their ratio to what the device was measured to do.

Without a GPU it says so, checks a frame of 2 fibres and 5 bins on the simulated device, under numba's CUDA simulator
where cupy is not installed, and ends with exit code 0.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
if find_spec("cupy") is None:
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"      # looked at when numba is loaded

import numpy as np

from gpu_extract.config import ExtractConfig
from gpu_extract.data import Frame, Image, PsfModel
from gpu_extract.gpu_frame.frames import GpuFrames, device_cores, native
from gpu_extract.perf import clock
from gpu_extract.perf.recorder import NULL, Recorder
from gpu_extract.run import extract, prepare
from gpu_extract.simulate import SimConfig, simulate

BIN = Path(__file__).resolve().parents[1] / "bin"
LIMIT = 480.0                                  # seconds, everything
FLOP, BARS = 3.0e10, {"auto": 0.25, "dense": 4.0}
ROWS = ("frame, banded core", "times the CPU, one thread", "frame, dense core", "copies overlapped by kernels",
        "ranks sharing the device", "whole command")


def small_check() -> dict[str, Any]:
    """2 fibres x 5 bins on the simulated device against the CPU: largest differences, and what was launched."""
    import gpu_extract.gpu_frame.steps as steps
    import gpu_extract.run as run
    from gpu_extract.backend.cuda.simulated import SimulatedDevice

    case, made_plan = simulate(SimConfig(camera="tiny")), run.make_plan

    def few_bins(*args: Any) -> Any:          # no padding: the simulator takes a tenth of a millisecond for every lane
        plan = made_plan(*args)
        return replace(plan, wave=plan.wave[:5], extended=plan.extended[plan.inner][:5], inner=slice(0, 5))

    run.make_plan, steps.iterations_for = few_bins, lambda hw: 6
    psf = replace(case.psf, bundle=np.repeat([0, 1], [2, 8]))
    config = ExtractConfig(wavelength=(6040.0, 6056.0, 0.8), nspec=2, ndiag=2)
    device = SimulatedDevice(compiled=os.environ.get("NUMBA_ENABLE_CUDASIM") != "1")
    frame = extract(case.image, psf, config, backend=GpuFrames(lambda: device, device_cores))
    found = differences(frame, extract(case.image, psf, config))
    return {**found, "launched": sorted(device.launched)}


def differences(frame: Frame | None, cpu: Frame | None) -> dict[str, float]:
    """Flux in sigma (largest, and 99.9 %), ivar relative, R, where half of a spot is seen; bundles left to the CPU."""
    if frame is None or cpu is None:
        raise SystemExit("no frame")
    seen = cpu.pixmask_fraction < 0.5
    sigma = (np.abs(frame.flux - cpu.flux) * np.sqrt(cpu.ivar))[seen]
    return {"flux": float(sigma.max()), "flux 99.9 %": float(np.percentile(sigma, 99.9)),
            "ivar": float(np.abs(frame.ivar / np.where(cpu.ivar > 0, cpu.ivar, 1) - 1)[seen & (cpu.ivar > 0)].max()),
            "R": float(np.abs(frame.resolution - cpu.resolution).max(axis=1)[seen].max()),
            "on_cpu": float(sum(notes.get("on_cpu", 0) for notes in frame.notes["bundles"].values()))}


def without_gpu(reason: str) -> int:
    """Say what there is to say without a GPU."""
    print(f"no GPU can be used here: {reason}")
    found = small_check()
    print(f"2 fibres x 5 bins on the simulated device against the CPU: flux {found['flux']:.1e} sigma, ivar "
          f"{found['ivar']:.1e}, R {found['R']:.1e}; {len(found['launched'])} kernels launched")
    if not (found["flux"] < 1e-8 and found["ivar"] < 1e-9 and found["R"] < 1e-9):
        return 1
    show([(name, "not measured") for name in ROWS])
    return 0


def show(rows: Sequence[tuple[str, str]]) -> None:
    """A table."""
    width = max(len(name) for name, _ in rows)
    print("\n".join(["", *(f"{name:{width}s}  {value}" for name, value in rows)]), flush=True)


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
    from gpu_extract.backend.cuda.real import CupyDevice, memory_of
    from gpu_extract.device import budget

    free, total = memory_of(0)
    device = CupyDevice(0, budget(total, free, ranks))
    return GpuFrames(lambda: device, device_cores, warn=print, **options)


def check(image: Image, psf: PsfModel, config: ExtractConfig) -> tuple[Frame, float]:
    """The GPU against the CPU, and against itself; returns its frame and the CPU's seconds."""
    extract(native(image), psf, replace(config, nspec=25))
    start = clock.now()
    cpu = extract(native(image), psf, config)
    seconds = clock.now() - start
    backend = open_backend()
    frame = extract(image, psf, config, backend=backend)
    found = differences(frame, cpu)
    print("GPU against CPU: " + ", ".join(f"{name} {value:.2g}" for name, value in found.items()), flush=True)
    if not (found["flux 99.9 %"] < 1e-8 and found["ivar"] < 1e-9 and found["R"] < 1e-9):
        raise SystemExit("the GPU's frame is not the CPU's")
    same_bits(frame, extract(image, psf, config, backend=backend), "a second run")
    backend.close()
    for options in ({"most": 1}, {"most": 20, "slots": 1}):
        other = open_backend(**options)
        same_bits(frame, extract(image, psf, config, backend=other), f"pieces and slots {options}")
        other.close()
    job = prepare(psf, config)
    rows = []
    for rank in range(4):
        other = open_backend(4)
        rows += [result.flux.copy() for _, result in
                 other.bundles(image, job, SimpleNamespace(rank=rank, size=4), NULL)]
        other.close()
    if not np.array_equal(np.concatenate(rows)[:len(frame.flux)] / np.gradient(frame.wave), frame.flux):
        raise SystemExit("four ranks do not give the bits of one")
    print("the same bits: two runs, pieces of 1 and of all bundles, 1 and 4 ranks", flush=True)
    return frame, seconds


def same_bits(frame: Frame, other: Frame | None, what: str) -> None:
    """Leave where one array differs."""
    for name in ("flux", "ivar", "resolution", "mask", "chi2pix", "status"):
        if other is None or not np.array_equal(getattr(frame, name), getattr(other, name)):
            raise SystemExit(f"{what}: {name} differs")


def timed(image: Image, psf: PsfModel, config: ExtractConfig, frames: int) -> tuple[list[float], dict[str, Any]]:
    """Seconds of each of some warm frames, and the record of as many that were watched."""
    backend = open_backend()
    seconds, recorder = [], Recorder()
    extract(image, psf, config, backend=backend)
    for _ in range(frames):
        start = clock.now()
        extract(image, psf, config, backend=backend)
        seconds.append(clock.now() - start)
    backend.watch(recorder)
    for _ in range(frames):
        extract(image, psf, config, backend=backend, recorder=recorder)
    record = recorder.record()
    backend.close()
    return seconds, record


def overlapped(spans: Sequence[Sequence[Any]]) -> float:
    """The share of the copies' time in which kernels ran; spans: [name, start, seconds] on one clock."""
    copies = [(start, start + length) for name, start, length in spans if name.startswith("copy")]
    kernels = sorted((start, start + length) for name, start, length in spans if not name.startswith("copy"))
    merged: list[list[float]] = []
    for start, end in kernels:
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    covered = sum(max(0.0, min(end, b) - max(start, a)) for start, end in copies for a, b in merged)
    return covered / max(sum(end - start for start, end in copies), 1e-30)


def worker(folder: Path, args: argparse.Namespace) -> int:
    """One of several ranks on the device: whole frames, when told to."""
    image, psf, config = problem(folder, args.nspec, args.last)
    backend = open_backend(args.sharing)
    extract(image, psf, config, backend=backend)
    print("ready", flush=True)
    sys.stdin.readline()
    start = clock.now()
    for _ in range(args.frames):
        extract(image, psf, config, backend=backend)
    print(json.dumps([start, clock.now(), backend.device.memory()]), flush=True)
    backend.close()
    return 0


def shared(folder: Path, args: argparse.Namespace, ranks: int, mps: bool) -> str:
    """Frames per second of so many processes on the device together."""
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", str(folder), "--sharing", str(ranks),
               "--frames", str(args.frames), "--nspec", str(args.nspec), "--last", str(args.last)]
    prefix = [sys.executable, str(BIN / "mps_wrapper")] if mps else []
    processes = [subprocess.Popen([*prefix, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) for _ in range(ranks)]
    try:
        for process in processes:
            if process.stdout is None or process.stdout.readline().strip() != "ready":
                process.kill()
                said = process.communicate()[1].strip().splitlines()
                return ("MPS unavailable: " if mps else "failed: ") + (said[-1] if said else "no message")
        results = [json.loads(process.communicate("go\n", timeout=120)[0].splitlines()[-1]) for process in processes]
    finally:
        for process in processes:
            process.kill()
    seconds = max(end for _, end, _ in results) - min(start for start, _, _ in results)
    return f"{ranks * args.frames / seconds:.2f} frames/s, {max(m for *_, m in results) / 1e9:.2f} GB a rank"


def command(folder: Path) -> str:
    """The whole command, second of two runs."""
    seconds = 0.0
    for _ in range(2):
        start = clock.now()
        done = subprocess.run([sys.executable, BIN / "gpu_extract", "--gpu", "-o", folder / "frame.fits"],
                              capture_output=True, text=True, check=False)
        seconds = clock.now() - start
        if done.returncode:
            return f"failed: {done.stderr.strip().splitlines()[-1]}"
    return f"{seconds:.2f} s"


def measure(folder: Path, args: argparse.Namespace, began: float) -> list[tuple[str, str]]:
    """All that is to be measured, as long as there is time."""
    from gpu_extract.stress.info import measured

    image, psf, config = problem(folder, args.nspec, args.last)
    _, cpu_seconds = check(image, psf, config)
    ceilings = measured("cupy", 0)
    rows: list[tuple[str, str]] = []
    for core, label in (("auto", ROWS[0]), ("dense", ROWS[2])):
        frames = args.frames if core == "auto" else 3
        seconds, record = timed(image, psf, replace(config, core=core), frames)
        middle = median(seconds)
        rows.append((label, f"{middle:.3f} s (best {min(seconds):.3f}, bar {BARS[core]})"))
        stages: dict[str, float] = {}
        for name, _, length in record["device"]["spans"]:
            stages[name] = stages.get(name, 0.0) + 1e3 * length / frames
        rows.append(("  device ms by stage", ", ".join(f"{name} {ms:.1f}" for name, ms in stages.items())))
        rows.append(("  memory", f"{record['device']['memory'] / 1e9:.2f} GB"))
        for way, leg in (("h2d", "up"), ("d2h", "down")):
            copies = record["copies"][way]
            rate = copies["bytes"] / copies["seconds"]
            rows.append((f"  {leg}", f"{copies['bytes'] / frames / 1e6:.0f} MB a frame at {rate / 1e9:.1f} GB/s, "
                                     f"{rate / ceilings['pinned'][leg]:.0%} of the measured ceiling"))
        if core == "auto":
            rows.append((ROWS[1], f"{cpu_seconds / middle:.1f} (the CPU {cpu_seconds:.2f} s, bar 10)"))
            rows.append(("  operations", f"{FLOP / middle / 1e9:.0f} GFLOP/s, "
                                         f"{FLOP / middle / ceilings['float64']:.2%} of the measured ceiling"))
            rows.append((ROWS[3], f"{overlapped(record['device']['spans']):.0%} (bar 80 %)"))
    for ranks in args.ranks:
        for mps in (False, True):
            if clock.now() - began < LIMIT - 90:
                label = f"{ranks} {ROWS[4]}" + (", MPS" if mps else "")
                rows.append((label, shared(folder, args, ranks, mps)))
    rows.append((ROWS[5], command(folder)))
    return rows


def main() -> int:
    """Check and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=20)
    parser.add_argument("--nspec", type=int, default=500)
    parser.add_argument("--ranks", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2, 4, 8])
    parser.add_argument("--smallest", action="store_true")
    parser.add_argument("--last", type=float, default=7620.0, help=argparse.SUPPRESS)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--sharing", type=int, default=1, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return worker(args.worker, args)
    from gpu_extract.cli.device import look_for_devices

    began = clock.now()
    devices, reason = look_for_devices(always=True)
    if devices == 0:
        return without_gpu(reason)
    if args.smallest:
        args.nspec, args.frames, args.ranks, args.last = 25, 2, [1], 5840.0
    with tempfile.TemporaryDirectory() as folder:
        show(measure(Path(folder), args, began))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
