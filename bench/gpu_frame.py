"""What does a frame cost on a GPU, and is it the CPU's frame? One command, nothing to prepare, at most 8 minutes.

usage: gpu_frame.py [--frames 20] [--nspec 500] [--ranks 1,8,2,4] [--smallest]

Simulates an r frame, then: a warm frame from host arrays to host arrays for both cores, split by stage with device
events; copies overlapped by kernels over many frames; bytes, operations (on paper, doc/gpu.md) and their ratio to what
the device was measured to do; the GPU against the CPU backend (one thread), and against itself in other pieces, slots,
types and ranks, bit by bit; the whole command; so many processes sharing the device, with and without MPS, as long as
there is time. What fails is said in its row, and the rest goes on. The exit code is 1 where the GPU's frame is wrong.

Without a GPU it says so, checks a frame of 2 fibres and 5 bins on the simulated device, and ends with exit code 0.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from threading import Timer
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))

from gpu_checks import differences, open_backend, problem, same_bits, small_check
from host_text import compiler

from gpu_extract.perf import clock
from gpu_extract.perf.record import parse_run, whole
from gpu_extract.perf.recorder import Recorder
from gpu_extract.run import extract
from gpu_perf.metrics import stages as stages_of
from gpu_perf.metrics import windows

BIN = Path(__file__).resolve().parents[1] / "bin"
LIMIT = 470.0                                  # seconds, everything
FLOP = 3.0e10
FILES = "float32"                              # what frames are made of that go to files
BARS = {                                       # row: (what, bar, moonshot)
    "banded": ("500-fibre frame, host to host, warm, one rank, banded core", "<= 0.25 s", "0.05 s"),
    "times": ("the same against the CPU backend, one thread", ">= 10 times", "50"),
    "overlap": ("copy time overlapped by kernels", ">= 80 %", "95 %"),
    "ranks": ("8 ranks sharing the GPU, against 1 rank", "MPS >= 1, without >= 0.9", ""),
    "command": ("gpu_extract --gpu, embedded frame, whole command, warm", "<= 6 s", "3 s"),
    "cpu": ("GPU against CPU, 99.9 % of the bins", "1e-8 sigma; ivar, R 1e-9", ""),
    "bits": ("two runs, pieces of 1 and all bundles, 1 and 4 ranks", "the same bits", ""),
}


class Report:
    """Rows of the table, in the order in which they were found, and the time that is left."""

    def __init__(self) -> None:
        self._began = clock.now()
        self.rows: dict[str, str] = {}
        self.wrong = False

    def left(self) -> float:
        """Seconds."""
        return LIMIT - (clock.now() - self._began)

    def say(self, name: str, found: str) -> None:
        """Set a row, and print it at once: who stops the bench keeps what was found."""
        self.rows[name] = found
        print(f"[{LIMIT - self.left():5.0f} s] {BARS.get(name, (name,))[0]}: {found}", flush=True)

    def attempt(self, name: str, work: Callable[[], None], needs: float = 20.0) -> None:
        """Do something for a row, if there is time; an error becomes the row."""
        if self.left() < needs:
            self.say(name, "not measured: no time was left")
            return
        try:
            work()
        except Exception as error:
            traceback.print_exc()
            self.say(name, f"failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")

    def table(self) -> None:
        """All rows, those with a bar first."""
        lines = [("what", "found", "bar", "moonshot")]
        lines += [(what, self.rows.get(name, "not measured"), bar, far) for name, (what, bar, far) in BARS.items()]
        lines += [(name, found, "", "") for name, found in self.rows.items() if name not in BARS]
        widths = [max(len(line[n]) for line in lines) for n in range(4)]
        print("\n".join(["", *("  ".join(f"{text:{w}s}" for text, w in zip(line, widths, strict=True)).rstrip()
                               for line in lines)]), flush=True)


def without_gpu(reason: str) -> int:
    """Say what there is to say without a GPU."""
    print(f"no GPU can be used here: {reason}")
    if compiler() is None:
        print("and no C++ compiler for the simulated device: nothing is checked")
        return 0
    found = small_check()
    print(f"2 fibres x 5 bins on the simulated device against the oracle: flux {found['flux']:.1e} sigma, ivar "
          f"{found['ivar']:.1e}, R {found['R']:.1e}; {len(found['launched'])} kernels launched")
    if not (found["flux"] < 1e-8 and found["ivar"] < 1e-9 and found["R"] < 1e-9):
        return 1
    Report().table()
    return 0


def warm_frames(report: Report, frames: int, given: tuple[Any, ...], ceilings: dict[str, Any]) -> float:
    """Rows of the core: seconds of a frame, of its stages on the device, bytes, rates, memory; returns the seconds."""
    image, psf, config = given
    backend, recorder, name, start = open_backend(), Recorder(), "banded", clock.now()
    extract(image, psf, config, backend=backend, dtype=FILES)
    report.say(f"{name}: first frame, kernels compiled or loaded", f"{clock.now() - start:.1f} s")
    seconds = []
    for _ in range(frames):
        start = clock.now()
        extract(image, psf, config, backend=backend, dtype=FILES)
        seconds.append(clock.now() - start)
    middle = median(seconds)
    report.say(name, f"{middle:.3f} s (best {min(seconds):.3f}, worst {max(seconds):.3f}, of {frames})")
    backend.watch(recorder)
    for _ in range(frames):
        extract(image, psf, config, backend=backend, recorder=recorder, dtype=FILES)
    record = recorder.record()
    stages: dict[str, float] = {}
    for stage, _, length in record["device"]["spans"]:
        stages[stage] = stages.get(stage, 0.0) + 1e3 * length / frames
    report.say(f"{name}: device ms by stage", ", ".join(f"{stage} {ms:.2f}" for stage, ms in stages.items()))
    host = [(stage.name, sum(stage.seconds)) for stage in stages_of(windows(parse_run(whole([record], {}))))]
    report.say(f"{name}: host ms by stage",
               ", ".join(f"{stage} {1e3 * s / frames:.2f}" for stage, s in host if s > 1e-4))
    report.say(f"{name}: device memory", f"{record['device']['memory'] / 1e9:.2f} GB")
    for way, leg in (("h2d", "up"), ("d2h", "down")):
        copies = record["copies"][way]
        rate = copies["bytes"] / copies["seconds"]
        report.say(f"{name}: {leg}", f"{copies['bytes'] / frames / 1e6:.0f} MB a frame at {rate / 1e9:.1f} GB/s, "
                                     f"{rate / ceilings['pinned'][leg]:.0%} of the measured ceiling")
    report.say("banded: operations", f"{FLOP / middle / 1e9:.0f} GFLOP/s, "
                                     f"{FLOP / middle / ceilings['float64']:.2%} of the measured ceiling")
    report.say("overlap", f"{overlapped(record['device']['spans']):.0%}")
    backend.close()
    return middle


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


def right_or_wrong(report: Report, given: tuple[Any, ...], seconds: float) -> None:
    """Rows of the comparison with the CPU, and of bits."""
    image, psf, config = given
    extract(image, psf, replace(config, nspec=25))
    start = clock.now()
    cpu = extract(image, psf, config)
    on_cpu = clock.now() - start
    if seconds:
        report.say("times", f"{on_cpu / seconds:.1f} (the CPU {on_cpu:.2f} s)")
    backend = open_backend()
    frame = extract(image, psf, config, backend=backend)
    backend.close()
    found = differences(frame, cpu)
    report.say("cpu", ", ".join(f"{name} {value:.1e}" for name, value in found.items()))
    report.wrong |= not (found["flux 99.9 %"] < 1e-8 and found["ivar 99.9 %"] < 1e-9 and found["R 99.9 %"] < 1e-9)

    def bits() -> None:
        wrong = same_bits(frame, image, psf, config)
        report.wrong |= bool(wrong)
        report.say("bits", "; ".join(wrong) + " differ" if wrong else "the same")
    report.attempt("bits", bits, 60.0)


def worker(folder: Path, args: argparse.Namespace) -> int:
    """One of several ranks on the device: whole frames, when told to."""
    image, psf, config = problem(folder, args.nspec, args.last)
    backend = open_backend(args.sharing)
    frame = extract(image, psf, config, backend=backend, dtype=FILES)
    print("ready", flush=True)
    sys.stdin.readline()
    start = clock.now()
    for _ in range(args.frames):
        frame = extract(image, psf, config, backend=backend, dtype=FILES)
    on_cpu = 0 if frame is None else sum(notes.get("on_cpu", 0) for notes in frame.notes["bundles"].values())
    print(json.dumps([start, clock.now(), backend.device.memory(), on_cpu]), flush=True)
    backend.close()
    return 0


def shared(report: Report, folder: Path, args: argparse.Namespace, ranks: int, mps: bool) -> float:
    """Frames per second of so many processes on the device together; 0 where MPS is not to be had."""
    name = f"{ranks} ranks" + (", MPS" if mps else "")
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", str(folder), "--sharing", str(ranks),
               "--frames", str(args.frames), "--nspec", str(args.nspec), "--last", str(args.last)]
    prefix = [sys.executable, str(BIN / "mps_wrapper"), "--require"] if mps else []
    processes = [subprocess.Popen([*prefix, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) for _ in range(ranks)]
    alarm = Timer(max(report.left() - 5, 1), lambda: [process.terminate() for process in processes])
    alarm.start()
    try:
        for process in processes:
            if process.stdout is None or process.stdout.readline().strip() != "ready":
                process.terminate()
                said = process.communicate()[1].strip().splitlines()
                report.say(name, ("MPS unavailable: " if mps else "failed: ") + (said[-1] if said else "no message"))
                return 0.0
        for process in processes:
            if process.stdin is not None:
                process.stdin.write("go\n")
                process.stdin.flush()
        results = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    finally:
        alarm.cancel()
        for process in processes:
            process.terminate()
    rate = ranks * args.frames / (max(end for _, end, *_ in results) - min(start for start, *_ in results))
    report.say(name, f"{rate:.2f} frames/s, {max(r[2] for r in results) / 1e9:.2f} GB a rank, "
                     f"{sum(r[3] for r in results)} fibres a frame left to the CPU")
    return rate


def many_ranks(report: Report, folder: Path, args: argparse.Namespace) -> None:
    """Rows of ranks that share the device, the largest number against one rank."""
    rates: dict[tuple[int, bool], float] = {}
    for ranks in args.ranks:
        for mps in (False, True):
            def work(ranks: int = ranks, mps: bool = mps) -> None:
                rates[ranks, mps] = shared(report, folder, args, ranks, mps)
            report.attempt(f"{ranks} ranks" + (", MPS" if mps else ""), work, 40.0)
    one, most = rates.get((1, False), 0.0), max(args.ranks)
    if one:
        report.say("ranks", ", ".join(f"{'MPS' if mps else 'without'} {rates[most, mps] / one:.2f}"
                                      if rates.get((most, mps)) else f"{'MPS' if mps else 'without'} not measured"
                                      for mps in (True, False)))


def command(report: Report, folder: Path) -> None:
    """The row of the whole command, second of two runs."""
    seconds = 0.0
    for _ in range(2):
        start = clock.now()
        done = subprocess.run([sys.executable, BIN / "gpu_extract", "--gpu", "-o", folder / "frame.fits"],
                              capture_output=True, text=True, check=False, timeout=max(report.left(), 1))
        seconds = clock.now() - start
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
    report.say("command", f"{seconds:.2f} s")


def measure(folder: Path, args: argparse.Namespace) -> int:
    """All that is to be measured, the most important first."""
    from gpu_stress.info import measured

    report = Report()
    given = problem(folder, args.nspec, args.last)
    report.say("the frame", f"{args.nspec} fibres, image {given[0].shape}")
    ceilings = measured("cupy", 0)
    report.say("measured ceilings", f"pinned {ceilings['pinned']['up'] / 1e9:.1f} GB/s up, "
                                    f"{ceilings['pinned']['down'] / 1e9:.1f} down, "
                                    f"{ceilings['float64'] / 1e12:.1f} TFLOP/s float64")
    seconds: list[float] = []
    report.attempt("banded", lambda: seconds.append(warm_frames(report, args.frames, given, ceilings)))
    report.attempt("cpu", lambda: right_or_wrong(report, given, seconds[0] if seconds else 0.0))
    report.attempt("command", lambda: command(report, folder))
    many_ranks(report, folder, args)
    report.table()
    return int(report.wrong)


def main() -> int:
    """Check and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=20)
    parser.add_argument("--nspec", type=int, default=500)
    parser.add_argument("--ranks", type=lambda text: [int(n) for n in text.split(",")], default=[1, 8, 2, 4])
    parser.add_argument("--smallest", action="store_true")
    parser.add_argument("--last", type=float, default=7620.0, help=argparse.SUPPRESS)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--sharing", type=int, default=1, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return worker(args.worker, args)
    from gpu_extract.cli.device import look_for_devices

    devices, reason = look_for_devices(always=True)
    if devices == 0:
        return without_gpu(reason)
    if args.smallest:
        args.nspec, args.frames, args.ranks, args.last = 25, 2, [1], 5840.0
    with tempfile.TemporaryDirectory() as folder:
        return measure(Path(folder), args)


if __name__ == "__main__":
    raise SystemExit(main())
