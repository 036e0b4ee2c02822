"""Rows of bench/gpu_frame.py for which other programs run: ranks on one device, whole commands, profilers."""
import csv
import json
import os
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from typing import Any

from gpu_cases import Cases
from gpu_checks import Opener, left_to_cpu
from gpu_rows import Bench, timed

from gpu_extract.perf import clock
from gpu_extract.perf.recorder import Recorder

BENCH = Path(__file__).resolve().parents[1] / "gpu_frame.py"
BIN = BENCH.parents[1] / "bin"
MANY = 30                        # frames of an exposure
PROFILED = 175                   # fibres of the frame under ncu: a piece of seven bundles, as large ones of a frame are
METRICS = {"ms": "gpu__time_duration.sum", "read": "dram__bytes_read.sum", "written": "dram__bytes_write.sum",
           "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
           "registers": "launch__registers_per_thread",
           "fp64": "sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_active"}
UNITS = {"ns": 1e-6, "us": 1e-3, "usecond": 1e-3, "nsecond": 1e-6, "ms": 1.0, "msecond": 1.0, "s": 1e3, "second": 1e3,
         "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
CHECK = ("from gpu_extract.cli.device_check import check_device, first_device; "
         "raise SystemExit(int(check_device(first_device, print)))")


def ranks(bench: Bench) -> None:
    """So many processes that share the device, with and without MPS; the largest number against one."""
    rates: dict[tuple[int, bool], float] = {}
    bench.cases.given(bench.args.case)
    for count in bench.args.ranks:
        for mps in (False, True) if count > 1 else (False,):
            def work(count: int = count, mps: bool = mps) -> None:
                rates[count, mps] = shared(bench, count, mps)
            bench.report.attempt(_row(count, mps), work, bench.args.margin)
    one, most = rates.get((1, False), 0.0), max(bench.args.ranks)
    if one and most > 1:
        said = [f"{'MPS' if mps else 'without'} {rates[most, mps] / one:.2f}" if rates.get((most, mps)) else
                f"{'MPS' if mps else 'without'} not measured" for mps in (True, False)]
        bench.report.say("ranks", ", ".join(said), rates[most, True] / one if rates.get((most, True)) else None)


def _row(count: int, mps: bool) -> str:
    return f"{count} rank{'s' if count > 1 else ''}" + (", MPS" if mps else "")


def shared(bench: Bench, count: int, mps: bool) -> float:
    """Frames per second of so many processes on the device together, twice as many frames as one of them would have
    done or less; 0 where MPS is not to be had."""
    args, report = bench.args, bench.report
    each = max(min(args.frames, 2 * args.frames // count), 2)
    command = [sys.executable, str(BENCH), "--worker", str(args.problems), "--sharing", str(count), "--case", args.case,
               "--frames", str(each), "--nspec", str(args.nspec), *(["--simulated"] if args.simulated else [])]
    prefix = [sys.executable, str(BIN / "mps_wrapper"), "--require"] if mps else []
    with bench.cases.quiet():
        processes = [subprocess.Popen([*prefix, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True) for _ in range(count)]
        alarm = Timer(max(report.left() - 5, 1), lambda: [process.terminate() for process in processes])
        alarm.start()
        try:
            for process in processes:
                if process.stdout is None or process.stdout.readline().strip() != "ready":
                    process.terminate()
                    said = process.communicate()[1].strip().splitlines()
                    report.say(_row(count, mps), ("MPS unavailable: " if mps else "failed: ")
                               + (said[-1] if said else "no message"))
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
    rate = count * each / (max(end for _, end, *_ in results) - min(start for start, *_ in results))
    memory, left = max(r[2] for r in results) / 1e9, max(r[3] for r in results)
    report.say(_row(count, mps), f"{rate:.2f} frames/s from arrays to arrays ({3600 * rate:.0f} an hour), {memory:.2f} "
                                 f"GB a rank, {left} fibres a frame left to the CPU")
    return rate


def worker(args: Namespace, opened: Opener) -> int:
    """One of several ranks on the device: whole frames, when told to."""
    given = Cases(args.worker, args.nspec, clock.now() + 60).given(args.case)
    backend = opened(args.sharing, warn=lambda line: print(line, file=sys.stderr))
    timed(backend, given, 3)
    print("ready", flush=True)
    sys.stdin.readline()
    start = clock.now()
    frame, _ = timed(backend, given, args.frames)
    print(json.dumps([start, clock.now(), backend.device.memory(), left_to_cpu(frame)]), flush=True)
    backend.close()
    return 0


def command(bench: Bench) -> None:
    """The whole command, second of two runs."""
    if _lacks_files(bench, "command"):
        return
    from gpu_extract.simulate import embedded_default

    embedded_default(0, None, print)        # by the process that was started for it: one that is stopped makes nothing
    with bench.cases.quiet():
        for _ in range(2):
            start = clock.now()
            run([sys.executable, BIN / "gpu_extract", "--gpu", "-o", bench.args.problems / "frame.fits"], bench)
            seconds = clock.now() - start
    bench.report.say("command", f"{seconds:.2f} s", seconds)


def files(bench: Bench) -> None:
    """An exposure of thirty frames, from files to files: one rank, then as many as may share the device, with MPS."""
    if _lacks_files(bench, "hour"):
        return
    from gpu_extract.simulate import embedded_default

    made, folder, found = embedded_default(0, None, print), Path(bench.args.problems), []
    launcher = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    for count in (1, max(bench.args.ranks)) if launcher else (1,):
        lines = [f"'{made.image}' '{made.psf}' '{folder / f'many-{count}'}/frame-{n:02d}.fits'" for n in range(MANY)]
        (folder / "list.txt").write_text("\n".join(lines) + "\n")
        prefix = [launcher, "-n", str(count), sys.executable, BIN / "mps_wrapper", "--require"] if count > 1 else []
        with bench.cases.quiet():
            start = clock.now()
            said = run([*prefix, sys.executable, BIN / "gpu_extract_exposure", folder / "list.txt", "-o",
                        folder / f"many-{count}", "--gpu", "--recompute"], bench)
            seconds = clock.now() - start
        times = sorted(file.stat().st_mtime for file in (folder / f"many-{count}").glob("frame-*.fits"))
        steady = (len(times) - 1) / max(times[-1] - times[0], 1e-9) * 3600
        waits = "".join(re.findall("waiting for files.*", said))
        found.append((3600 * MANY / seconds, f"{_row(count, count > 1)} {3600 * MANY / seconds:.0f} with start-up, "
                                             f"{steady:.0f} without{waits and f' ({waits})'}"))
        bench.report.say("hour", "; ".join(text for _, text in found), max(rate for rate, _ in found))


def _lacks_files(bench: Bench, row: str) -> bool:
    """Whether rows of files cannot be measured here, which is said."""
    why = "needs a GPU" if bench.args.simulated else "needs astropy" if find_spec("astropy") is None else ""
    if why:
        bench.report.say(row, f"not measured: {why}")
    return bool(why)


def run(words: Sequence[Any], bench: Bench, most: float = 1e9, *, must: bool = True) -> str:
    """What a program says; raises RuntimeError with its last lines where it fails. must: it has to do well."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False,
                          timeout=max(min(bench.report.left() - 3, most), 1))
    said = done.stdout + done.stderr
    if done.returncode and must:
        raise RuntimeError(f"exit code {done.returncode}: {' '.join(said.strip().splitlines()[-3:]) or 'no message'}")
    return said


def profile(bench: Bench) -> None:
    """ncu on a warm piece, compute-sanitizer on the small frame of the device check; tables go to the folder."""
    bench.report.attempt("ncu", lambda: profile_kernels(bench), bench.args.margin)
    for tool in ("memcheck", "initcheck"):
        def work(tool: str = tool) -> None:
            if shutil.which("compute-sanitizer") is None:
                bench.report.say(tool, "compute-sanitizer is not on the PATH")
                return
            said = run(["compute-sanitizer", "--tool", tool, sys.executable, "-c", CHECK], bench, 120.0, must=False)
            bench.report.keep(f"{tool}.txt", said.splitlines())
            bench.report.say(tool, next((line for line in reversed(said.splitlines()) if "ERROR SUMMARY" in line),
                                        "no summary").strip("= "))
        bench.report.attempt(tool, work, bench.args.margin)


def profile_kernels(bench: Bench) -> None:
    """A table of what ncu says of each kernel, the longest first."""
    if shutil.which("ncu") is None:
        bench.report.say("ncu", "ncu is not on the PATH")
        return
    words = [sys.executable, BENCH, "--profiled", bench.args.problems, "--case", bench.args.case, "--nspec",
             bench.args.nspec]
    bench.cases.given(bench.args.case)
    for metrics in (METRICS, {name: METRICS[name] for name in list(METRICS)[:-1]}):
        try:
            said = run(["ncu", "--clock-control", "none", "--profile-from-start", "off", "--launch-count",
                        bench.args.launches, "--metrics", ",".join(metrics.values()), "--csv", "--page", "raw", *words],
                       bench, 240.0)
            break
        except RuntimeError as error:      # a metric that this chip does not have
            if "metric" not in str(error) or len(metrics) < len(METRICS):
                raise
    bench.report.keep("ncu.csv", said.splitlines())
    table = ncu_table(said)
    bench.report.keep("ncu.txt", table)
    print("\n".join(table[:16]), flush=True)
    bench.report.say("ncu", f"{len(table) - 1} kernels")


def ncu_table(said: str) -> list[str]:
    """Lines from ncu's raw page: a header with names, one with units, a line for each launch."""
    lines = said.splitlines()
    first = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if first is None:
        raise RuntimeError(f"ncu said: {lines[-1] if lines else 'nothing'}")
    rows = list(csv.DictReader(lines[first:]))
    units = rows.pop(0)
    kernels: dict[str, list[dict[str, float]]] = {}
    for row in rows:
        values = {}
        for name, metric in METRICS.items():
            text = re.sub(r"[^0-9.eE+-]", "", row.get(metric) or "")
            values[name] = float(text or "nan") * UNITS.get(units.get(metric, ""), 1.0)
        kernels.setdefault(row["Kernel Name"], []).append(values)
    found = []
    for kernel, launches in kernels.items():
        ms = sum(one["ms"] for one in launches)
        mean = {name: sum(one[name] * one["ms"] for one in launches) / max(ms, 1e-30) for name in ("occupancy", "fp64")}
        traffic = sum(one["read"] + one["written"] for one in launches)
        found.append((ms, f"{kernel[:48]:48s} {ms:9.3f} {len(launches):8d} {traffic / 1e6:9.1f} "
                          f"{traffic / max(ms, 1e-30) / 1e6:7.0f} {mean['occupancy']:9.1f} {mean['fp64']:6.1f} "
                          f"{launches[0]['registers']:9.0f}"))
    head = f"{'kernel':48s} {'ms':>9s} {'launches':>8s} {'MB':>9s} {'GB/s':>7s} {'warps %':>9s} {'FP64 %':>6s} " \
           f"{'registers':>9s}"
    return [head, *(line for _, line in sorted(found, reverse=True))]


def profiled(args: Namespace, opened: Opener) -> int:
    """The frame that ncu looks at: one large piece, step by step, the second time."""
    image, psf, config = Cases(args.profiled, args.nspec, clock.now() + 60).given(args.case)
    backend = opened(slots=1, most=20)
    given = image, psf, replace(config, nspec=min(PROFILED, args.nspec))
    timed(backend, given, 1)
    backend.watch(Recorder())
    with nullcontext() if args.simulated else import_module("cupyx.profiler").profile():
        timed(backend, given, 1)
    backend.close()
    return 0
