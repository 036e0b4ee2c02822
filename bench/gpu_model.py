"""How long does a frame take on a GPU, on paper? A model from the machine code, for a machine without a GPU.

usage: gpu_model.py [--nspec 500] [--kernels N] [--table] [--smallest]

Queues a warm r frame on a device that does nothing (bench/tools/gpu_stub.py), compiles what was launched for an H100
(sm_90), and adds up. Needs NVRTC (of the extra `test`) and nvdisasm (pip install nvidia-cuda-nvdisasm). --table
prints registers, stack and spills of every kernel for sm_80, sm_90 and sm_100, and nothing else; --kernels: how many
kernels are listed. --smallest: 50 fibres, and of the launches one kernel alone.

The rules, which stay as they are so that figures of different versions compare:
- A lane's path: one warp walks through the loops of the machine code with a scoreboard (stall counts and barriers of
  the instructions; loads wait 270 cycles, those of the second-level cache); how often a loop turns is in
  bench/tools/gpu_paths.py. 1.755 GHz.
- A launch takes as long as its path, or as the device needs for all of its warps if that is more: 132 multiprocessors,
  4 instructions each and cycle, of which three quarters are reached; float64 at half that; loads and stores of 8 bytes
  a lane at 5.5 TB/s from the cache, and every array that it is given once at 2.6 TB/s, but for what fits into the
  cache. Between two launches of a stream lie 2 microseconds.
- Slots overlap: launches of different streams share the device; what they need of it together cannot be more than all.
- The host needs 5 microseconds for a launch, and 30 ms for staging. A launch waits for the host. A graph that is
  replayed is one call: 10 microseconds, and 0.2 for each of its nodes. (NVIDIA's developer blog, "Constant Time Launch
  for Straight-Line CUDA Graphs and Other Performance Enhancements", 2024, gives 2 and 0.2 for graphs before CUDA 12.6,
  and since then 2.5 and next to nothing; the rest is Python's.) Its nodes lie as far apart as other launches.
- Nothing is known here of caches, clocks and neighbours on the device: trust the sum to 40 %.

For the code of commit d05421e, with one lane along wavelength per fibre, this gives 200 to 350 ms, which is what a
study by hand expected of it.
"""
import os
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
from gpu_code import SAMPLES, compiled, compiled_together, nvdisasm, nvrtc, walk
from gpu_paths import FIRST, PATHS
from gpu_stub import Launch, warm_frame
from parsing import parser_of

from gpu_extract.device.cuda.piece import PieceShape
from gpu_extract.device.cuda.text import all_kernels

CLOCK, PROCESSORS, WARP = 1.755e9, 132, 32
ISSUE = PROCESSORS * 4 * CLOCK * 0.75          # warp instructions a second
CACHE, CACHE_RATE, MEMORY_RATE = 50e6, 5.5e12, 2.6e12
LATENCY = 270                                  # cycles of a load
GAP = 2e-6
IDLE = 40                                      # instructions of a lane that returns at once
QUEUE, STAGING = 5e-6, 30e-3
REPLAY, NODE = 10e-6, 0.2e-6
TABLE = {"sm_80": (8, 0), "sm_90": (9, 0), "sm_100": (10, 0)}
ITEM = {"f8": 8, "f4": 4, "i8": 8, "i4": 4, "i1": 1, "u1": 1, "u4": 4, "u8": 8}


class Cost(NamedTuple):
    """A launch: seconds on a device of its own, of which the device is full; seconds of the host."""

    name: str
    seconds: float
    full: float
    host: float
    stream: int


def cost(launch: Launch, shape: PieceShape, active: bool) -> Cost:
    """What one launch costs; active: whether its lanes do something."""
    kernel, count, args, stream, nodes = launch
    seconds, full, host = _cost(kernel, count, args, shape, active)
    if nodes is not None:
        host = REPLAY + NODE * nodes if nodes else 0.0
    return Cost(kernel.name, seconds, full, host, stream)


@cache
def _cost(kernel: Any, count: int, args: tuple[Any, ...], shape: PieceShape,
          active: bool) -> tuple[float, float, float]:
    """Seconds alone, seconds of a full device, seconds of the host."""
    code, warps = compiled(kernel, (9, 0)), -(-count * kernel.threads // WARP)
    kinds = kernel.travelling
    arrays = sum(ITEM[kind[:2]] * _size(arg) for kind, arg in zip(kinds, args, strict=True) if arg and kind[2:])
    host = QUEUE
    if not active:
        full = warps * IDLE / ISSUE
        return max(full, 1e-6) + GAP, full, host
    times = dict(PATHS[kernel.name](shape, args)) if kernel.name in PATHS else {}
    ordered = sorted((loop for loop in code.loops if "." not in loop.name and any(
        code.instructions[n].word == "DFMA" for n in range(loop.first, loop.last))), key=lambda o: o.last - o.first)
    times |= {ordered[int(name[1:])].name: turns for name, turns in times.items() if name[0] == "#"}
    cycles, issued, double, moved = walk(code, times, LATENCY)
    full = max(warps * max(issued, 2 * double) / ISSUE, warps * moved * WARP * 8 / CACHE_RATE,
               arrays / MEMORY_RATE if arrays > CACHE and moved * count * 8 > arrays else 0.0)
    return max(cycles / CLOCK, full) + GAP, full, host


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


def costs(frame: SimpleNamespace) -> list[Cost]:
    """All launches of a frame, in the order in which they were queued."""
    found: list[Cost] = []
    piece, seen = -1, defaultdict[str, int](int)
    for launch in frame.launches:
        name = launch.kernel.name
        if name == frame.launches[0].kernel.name:
            piece, seen = piece + 1, defaultdict[str, int](int)
        seen[name] += 1
        first = FIRST.get(name, 1 << 30)
        active = seen[name] <= first if isinstance(first, int) else seen[name] in first
        found.append(cost(launch, frame.pieces[piece].shape, active))
    return found


def schedule(found: list[Cost]) -> tuple[float, float]:
    """Seconds until the device is done, and until the host is: streams side by side, a launch when it was queued."""
    waiting: dict[int, list[tuple[float, Cost]]] = {}
    host = STAGING
    for one in found:
        host += one.host
        waiting.setdefault(one.stream, []).append((host, one))
    now, running = 0.0, dict[int, list[float]]()          # stream -> seconds left alone, share of the device
    while running or any(waiting.values()):
        for stream, queue in waiting.items():
            if stream not in running and queue and queue[0][0] <= now:
                one = queue.pop(0)[1]
                running[stream] = [one.seconds, one.full / one.seconds]
        if not running:
            now = min(queue[0][0] for queue in waiting.values() if queue)
            continue
        rate = 1.0 / max(1.0, sum(share for _, share in running.values()))
        ahead = min(left for left, _ in running.values()) / rate
        queued = [queue[0][0] - now for stream, queue in waiting.items() if queue and stream not in running]
        ahead = max(min([ahead, *queued]), 1e-9)
        now += ahead
        running = {stream: [left - rate * ahead, share] for stream, (left, share) in running.items()
                   if left - rate * ahead > 1e-12}
    return now, host


def table() -> None:
    """Registers, stack and spills of every kernel."""
    print(f"{'kernel':34s}" + "".join(f"  {name:>6s}: reg stack spill" for name in TABLE))
    kernels = tuple(text.sized(*numbers) for text in all_kernels() for numbers in SAMPLES.get(text.name, [()]))
    found = [compiled_together(kernels, capability) for capability in TABLE.values()]
    for kernel in kernels:
        cells = [f"  {code[kernel].registers:11d} {code[kernel].stack:5d} {code[kernel].spills:5d}" for code in found]
        print(f"{kernel.name + (str([*kernel.numbers]) if kernel.numbers else ''):34s}" + "".join(cells), flush=True)


def report(nspec: int, kernels: int, only: str = "") -> None:
    """The model's figures of a frame; only: a kernel, as if nothing else were launched."""
    frame = warm_frame(nspec)
    frame.launches = [launch for launch in frame.launches if only in launch.kernel.name]
    found = costs(frame)
    by_kernel: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for one in found:
        for n, value in enumerate((1.0, one.seconds, one.full)):
            by_kernel[one.name][n] += value
    print(f"r frame, {nspec} fibres, pieces of {', '.join(str(p.shape.bundles) for p in frame.pieces)} bundles\n")
    print(f"{'kernel':24s} launches  path [ms]  full device [ms]")
    for name, (number, seconds, full) in sorted(by_kernel.items(), key=lambda item: -item[1][1])[:kernels]:
        print(f"{name:24s} {number:8.0f} {1e3 * seconds:10.2f} {1e3 * full:17.2f}")
    print(f"{'all':24s} {len(found):8d} {1e3 * sum(o.seconds for o in found):10.2f} "
          f"{1e3 * sum(o.full for o in found):17.2f}\n")
    streams: dict[int, float] = defaultdict(float)
    for one in found:
        streams[one.stream] += one.seconds
    done, host = schedule(found)
    calls: Any = ", ".join(f"{count} {name}" for name, count in sorted(frame.calls.items()))
    print(f"host calls: {sum(frame.calls.values())} ({calls})")
    print(f"CPU of a warm frame on the stub, this machine: {1e3 * frame.seconds:.0f} ms (checks of all pixels and "
          f"staging included; no driver)")
    print(f"up {frame.up / 1e6:.0f} MB, down {frame.down / 1e6:.0f} MB, device memory {frame.allocated / 1e9:.2f} GB")
    print("chains of the slots: " + ", ".join(f"{1e3 * seconds:.0f} ms" for seconds in streams.values()))
    print(f"host until everything is queued: {1e3 * host:.0f} ms")
    print(f"modelled frame: {1e3 * done:.0f} ms")


def main() -> int:
    """Print the model, or the table."""
    args = parser_of(__doc__, nspec=500, kernels=25, table=False).parse_args()
    if nvrtc() is None or (nvdisasm() is None and not args.table):
        print("gpu_model.py: no " + ("NVRTC" if nvrtc() is None else "nvdisasm") + " here: pip install "
              "nvidia-cuda-nvrtc-cu12 nvidia-cuda-nvdisasm")
        return 0
    if args.table:
        table()
    else:
        report(50 if args.smallest else args.nspec, args.kernels, "eliminate.coupling" if args.smallest else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
