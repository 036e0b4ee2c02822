"""Rows of bench/gpu_frame.py that one process measures on a device: frames, stages, kernels, bits, cases, speed.

A row is a function of the bench. It says what it found as soon as it is found; what it raises becomes its row.
"""
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
from gpu_cases import Cases, Given
from gpu_checks import Opener, differences, left_to_cpu, same_bits

from gpu_extract.cli.device_check import check_device
from gpu_extract.data import Frame
from gpu_extract.device.frames import GpuFrames
from gpu_extract.errors import ExitCode
from gpu_extract.perf import clock
from gpu_extract.perf.record import parse_run, whole
from gpu_extract.perf.recorder import NULL, Recorder
from gpu_extract.run import extract
from gpu_perf.metrics import stages as stages_of
from gpu_perf.metrics import windows
from gpu_perf.verdict import joined

FILES = "float32"                # what frames are made of that go to files
WATCHED = 8                      # frames at most that a recorder looks at
SHOWN = 16                       # kernels that are printed
SAMPLE = 125                     # fibres that one CPU thread is timed with
SLOW = 20.0                      # seconds of a frame that is not made again and again: most of it is the CPU's
AHEAD = 0.5                      # seconds that a device is kept busy while kernels are queued behind that
SPIN = 'extern "C" __global__ void spin(long long n) { long long start = clock64(); while (clock64() - start < n); }'


@dataclass(frozen=True)
class Bench:
    """What rows need.

    report: takes what they find; opened: makes a backend; cases: the frames; args: the command's
    """

    report: Any
    opened: Opener
    cases: Cases
    args: Namespace


class Stopped(Exception):
    """There is no use in going on."""


def check(bench: Bench) -> None:
    """The steps of gpu_extract --device-check."""
    backend, lines = bench.opened(), []

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    code = check_device(lambda: backend.device, say)
    bench.report.say("check", lines[-1])
    backend.close()
    if code != ExitCode.DONE:
        raise Stopped(lines[-1])


def ceilings(bench: Bench) -> None:
    """What the device was measured to do."""
    from gpu_stress.info import measured

    found = measured("cupy", 0)
    bench.report.say("ceilings", f"pinned {found['pinned']['up'] / 1e9:.1f} GB/s up, "
                                 f"{found['pinned']['down'] / 1e9:.1f} down, "
                                 f"{found['float64'] / 1e12:.1f} TFLOP/s float64")


def frames(bench: Bench) -> None:
    """The first frame, the second, which is captured, warm ones; then what they are made of."""
    say, case, given = bench.report.say, bench.args.case, bench.cases.given(bench.args.case)
    warned: list[str] = []
    backend = bench.opened(warn=warned.append)
    try:
        _, (first,) = timed(backend, given, 1)
        say("first", f"{first:.2f} s")
        frame, (second,) = timed(backend, given, 1)
        graphs = backend.flow._graphs
        say("second", f"{1e3 * second:.0f} ms, " + (f"{len(graphs)} graphs" if graphs else "no graphs")
            + "".join(f"; {line}" for line in warned))
        left, whole_frame = left_to_cpu(frame), given[2].nspec or 1
        say("left" if case.endswith("usual") else "left many", f"{left} of {whole_frame}, {case}",
            left if case.endswith("usual") else left / whole_frame)
        with bench.cases.quiet():
            _, seconds = timed(backend, given, bench.args.frames)
            say(frame_row(case), of_frames(seconds), median(seconds))
            pieces = [piece.shape.bundles for piece in backend.flow.pieces]
            say("memory", f"{backend.device.memory() / 1e9:.2f} GB, pieces of {pieces} bundles")
            bench.report.attempt("stages", lambda: stages(bench, backend, given))
    finally:
        backend.close()


def frame_row(case: str) -> str:
    """The row of a case's warm frame."""
    return {"r-dark-usual": "frame", "z-dark-usual": "frame z"}.get(case, f"frame {case}")


def of_frames(seconds: Sequence[float]) -> str:
    """Median, best, worst."""
    ms = [1e3 * each for each in seconds]
    return f"{median(ms):.1f} ms (best {min(ms):.1f}, worst {max(ms):.1f}, of {len(ms)})"


def timed(backend: GpuFrames, given: Given, count: int,
          recorder: Any = NULL) -> tuple[Frame | None, list[float]]:
    """So many frames, the last one of them, and the seconds of each."""
    image, psf, config = given
    frame, seconds = None, []
    for _ in range(count):
        start = clock.now()
        frame = extract(image, psf, config, backend=backend, dtype=FILES, recorder=recorder)
        seconds.append(clock.now() - start)
    return frame, seconds


def stages(bench: Bench, backend: GpuFrames, given: Given) -> None:
    """Host ms by stage with graphs; then step by step device ms by stage, host ms, copies. Nothing is replayed
    afterwards."""
    say, count = bench.report.say, min(bench.args.frames, WATCHED)
    recorder = Recorder()
    timed(backend, given, count, recorder)
    say("host stages", host_stages(recorder, count))
    recorder = Recorder()
    backend.watch(recorder)
    _, seconds = timed(backend, given, count, recorder)
    say("steps", of_frames(seconds))
    record = recorder.record()
    found: dict[str, float] = {}
    for stage, _, length in record["device"]["spans"]:
        found[stage] = found.get(stage, 0.0) + 1e3 * length / count
    say("device stages", ", ".join(f"{stage} {ms:.2f}" for stage, ms in found.items()))
    say("host steps", host_stages(recorder, count))
    for way in ("h2d", "d2h"):
        copies = record["copies"][way]
        say(way, f"{copies['bytes'] / count / 1e6:.0f} MB a frame at "
                 f"{copies['bytes'] / max(copies['seconds'], 1e-9) / 1e9:.1f} GB/s")
    share = overlapped(record["device"]["spans"])
    say("overlap", f"{share:.0%}", share)


def host_stages(recorder: Recorder, count: int) -> str:
    """Ms of a frame by stage of the host."""
    found = stages_of(windows(parse_run(whole([recorder.record()], {}))))
    return ", ".join(f"{stage.name} {1e3 * sum(stage.seconds) / count:.2f}" for stage in found
                     if sum(stage.seconds) > 1e-4)


def overlapped(spans: Sequence[Sequence[Any]]) -> float:
    """The share of the copies' time in which kernels ran; spans: [name, start, seconds] on one clock."""
    copies = [(start, start + length) for name, start, length in spans if name.startswith("copy")]
    kernels = joined((start, start + length) for name, start, length in spans if not name.startswith("copy"))
    covered = sum(max(0.0, min(end, b) - max(start, a)) for start, end in copies for a, b in kernels)
    return covered / max(sum(end - start for start, end in copies), 1e-30)


@dataclass(frozen=True)
class Launch:
    """One launch: its kernel, lanes, the device's marks before and behind it."""

    kernel: str
    count: int
    began: Any
    ended: Any


def kernels(bench: Bench) -> None:
    """Time of each kernel of a warm frame, one after the other on one slot, by events."""
    case, given = bench.args.case, bench.cases.given(bench.args.case)
    backend = bench.opened(slots=1)
    try:
        timed(backend, given, 1)
        backend.watch(Recorder())       # step by step: kernels of a graph have no times
        device = backend.device
        with bench.cases.quiet():
            launches = watched(device, lambda: timed(backend, given, 1))
        table, total = table_of(device, launches)
        span = 1e3 * device.between(launches[0].began, launches[-1].ended)
    finally:
        backend.close()
    bench.report.keep(f"kernels-{case}.txt", table)
    print("\n".join(table[:SHOWN]), flush=True)
    bench.report.say("kernels", f"{len(launches)} launches, sum {total:.1f} ms, first to last {span:.1f} ms, one slot")


def watched(device: Any, work: Callable[[], object]) -> list[Launch]:
    """All launches of some work. The device is kept busy before the first: that the host queues them takes no time of
    theirs."""
    launches: list[Launch] = []
    launch = device.launch

    def marked(kernel: Any, count: int, args: tuple[Any, ...], stream: Any) -> None:
        if not launches:
            keep_busy(device, stream)
        with device.current(stream):
            began = device.mark()
            launch(kernel, count, args, stream)
            launches.append(Launch(_called(kernel), count, began, device.mark()))

    device.launch = marked
    try:
        work()
    finally:
        del device.launch
    return launches


def _called(kernel: Any) -> str:
    """A kernel with what it was compiled for: numbers, its type."""
    return f"{kernel.name}({', '.join([*map(str, kernel.numbers), *kernel.real.split()])})"


def keep_busy(device: Any, stream: Any) -> None:
    """A kernel that does nothing for a while; there is none on the simulated device."""
    cupy = getattr(device, "_cupy", None)
    if cupy is not None:
        with stream:
            cupy.RawKernel(SPIN, "spin")((1,), (1,), (np.int64(AHEAD * 1.8e9),))


def table_of(device: Any, launches: Sequence[Launch]) -> tuple[list[str], float]:
    """A line for each kernel, the longest first, and the ms of all."""
    rows: dict[str, list[tuple[float, int]]] = {}
    for one in launches:
        rows.setdefault(one.kernel, []).append((1e3 * device.between(one.began, one.ended), one.count))
    sums = {kernel: sum(ms for ms, _ in found) for kernel, found in rows.items()}
    lines = [f"{kernel:40s} {sums[kernel]:9.3f} ms {len(rows[kernel]):5d} launches, longest "
             f"{max(ms for ms, _ in rows[kernel]):8.3f} ms, most lanes {max(count for _, count in rows[kernel])}"
             for kernel in sorted(rows, key=lambda kernel: -sums[kernel])]
    return lines, sum(sums.values())


def bits(bench: Bench) -> None:
    """The frame against itself."""
    wrong = same_bits(bench.cases.given(bench.args.case), bench.opened)
    bench.report.say("bits", "; ".join(wrong) + " differ" if wrong else "the same", float(len(wrong)))


@dataclass(frozen=True)
class Found:
    """Of a case: seconds of a warm frame, fibres left to the CPU and all, differences."""

    name: str
    seconds: float
    left: int
    fibres: int
    differences: dict[str, float]


def all_cases(bench: Bench) -> None:
    """Every case against the CPU, in the order in which its frames come; then the rows that sum them up."""
    waiting, found = list(bench.args.cases), list[Found]()
    while waiting:
        if bench.report.left() < bench.args.reserve:
            bench.report.say("cases", f"not measured, no time was left: {', '.join(waiting)}")
            break
        name = bench.cases.next_of(waiting)
        waiting.remove(name)
        bench.report.attempt(name, lambda name=name: found.append(one_case(bench, name)))  # type: ignore[misc]
    sum_up(bench, found)


def one_case(bench: Bench, name: str) -> Found:
    """A case on the device, cold and warm, against the CPU's frame."""
    given, (cpu, on_cpu) = bench.cases.given(name), bench.cases.cpu(name)
    image, psf, config = given
    backend = bench.opened()
    try:
        start = clock.now()
        frame = extract(image, psf, config, backend=backend)
        cold = clock.now() - start
        skipped, count = (2, min(bench.args.frames, 3)) if cold < SLOW else (0, 1)
        with bench.cases.quiet():
            _, seconds = timed(backend, given, skipped + count)
    finally:
        backend.close()
    off, left = differences(frame, cpu), left_to_cpu(frame)
    bench.report.say(name, f"cold {cold:.2f} s, {of_frames(seconds[skipped:])}, {left} fibres "
                           f"({left / len(cpu.flux):.1%}) left to the CPU, which takes {on_cpu:.1f} s of a core; "
                           + in_words(off))
    if off["masks"] or off["lost"]:
        bench.report.wrong = True
    return Found(name, median(seconds[skipped:]), left, len(cpu.flux), off)


def two_passes(bench: Bench) -> None:
    """Warm frames of two passes, and a bundle of one, with the pixels that stand out of it, against the CPU's."""
    image, psf, config = bench.cases.given(bench.args.case)
    config = replace(config, passes=2)
    backend, few = bench.opened(), replace(config, nspec=min(25, config.nspec or 1))
    try:
        with bench.cases.quiet():
            frame, seconds = timed(backend, (image, psf, config), 2 + min(bench.args.frames, 3))
            cpu, found = extract(image, psf, few), extract(image, psf, few, backend=backend)
    finally:
        backend.close()
    off = differences(found, cpu)
    ours, theirs = (set(map(tuple, one.notes["rejected"].tolist())) for one in (found, cpu))
    left = left_to_cpu(frame)
    bench.report.say("passes", f"{of_frames(seconds[2:])}, {left} fibres left to the CPU; {in_words(off)}; "
                               f"{len(theirs)} pixels rejected, {len(ours ^ theirs)} otherwise")
    bench.report.wrong |= bool(off["masks"] or off["lost"])


def in_words(off: dict[str, float]) -> str:
    """99.9 % and the largest of each."""
    each = ", ".join(f"{name} {off[f'{name} 99.9 %']:.1e} (most {off[name]:.1e})" for name in ("flux", "ivar", "R"))
    masks = f"{off['masks']:.0f} masks differ" if off["masks"] else "masks equal"
    lost = f", {off['lost']:.0f} bins lost" if off["lost"] else ""
    return f"{each}; flagged too {off['flux seen']:.1e}; {masks}{lost}"


def sum_up(bench: Bench, found: Sequence[Found]) -> None:
    """The rows of all cases."""
    say = bench.report.say
    for one in found:
        if one.name == "z-dark-usual":
            say("frame z", f"{1e3 * one.seconds:.1f} ms", one.seconds)
    for row, kind in (("left", "usual"), ("left many", "many")):
        of_kind = [one for one in found if one.name.endswith(kind)]
        if of_kind:
            worst = max(of_kind, key=lambda one: one.left)
            say(row, f"{worst.left} of {worst.fibres} at most, {worst.name}, of {len(of_kind)} cases",
                worst.left if kind == "usual" else worst.left / worst.fibres)
    if found:
        limits = {"flux 99.9 %": 1e-8, "ivar 99.9 %": 1e-9, "R 99.9 %": 1e-9}
        most = {name: max(one.differences[name] for one in found) for name in (*limits, "flux", "ivar", "R")}
        say("cpu", ", ".join(f"{name.split()[0]} {most[name]:.1e}" for name in limits),
            max(most[name] / limit for name, limit in limits.items()))
        largest = max(most[name] for name in ("flux", "ivar", "R"))
        say("most", ", ".join(f"{name} {most[name]:.1e}" for name in ("flux", "ivar", "R")), largest)


def speed(bench: Bench) -> None:
    """One CPU thread, while nothing else runs, on some bundles of the frame, as if all took as long."""
    image, psf, config = bench.cases.given(bench.args.case)
    whole_frame = config.nspec or 1
    few = min(SAMPLE, whole_frame)
    with bench.cases.quiet():
        extract(image, psf, replace(config, nspec=min(25, few)))
        start = clock.now()
        extract(image, psf, replace(config, nspec=few))
        seconds = (clock.now() - start) * whole_frame / few
    said = f"{seconds:.1f} s a frame on the CPU, from {few} of {whole_frame} fibres"
    warm = bench.report.values.get(frame_row(bench.args.case))
    times = seconds / warm if warm else None
    bench.report.say("speed", f"{times:.1f} times ({said})" if times else said, times)
