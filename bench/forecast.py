"""Where does scaling bend beyond this machine? The model of doc/scaling.md: measured, checked, up to 4096 ranks.

usage: forecast.py [--measure] [--costs FILE.json] [--folder DIR] [--figures DIR] [--page FILE.md] [--smallest]

--measure runs exposures of simulated frames and takes from their records the costs of the pieces with their spread (one
rank), what a second rank adds, and how much two jobs of one rank slow each other down. Then it measures what the model
is checked with: exposures of other frames, on one rank and on two, as one group and as two, three times by turns. All
goes to --costs (default bench/forecast.json); without --measure it is read from there. Then it prints the inputs, the
model against the points (bar: 15 %), and the tables; --figures draws them, --page puts what is printed into the page,
between its marks. --folder keeps the simulated images from one call to the next. Where other work takes part of the
cores, the points, and so the check, mean little: what it took is printed.
"""
import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from gpu_extract.assess.forecast import Cost, Costs, Machine, exposure, extraction, interval
from gpu_extract.perf.source import commit

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
from ranks import launcher, program, used_by_others

from exposure import judge

FRAMES, REPEATS = 4, 3
SEEN, UNSEEN = 1, 101   # seeds of the frames that the costs are from, and of those that the model is checked with
POINTS = ((1, 1), (2, 1), (2, 2))        # ranks, groups
ERROR = 0.15            # of the model, that is stated
FEWEST = 10             # bundles of a frame that the model is made for
SPREAD = ("start", "plan", "bundle", "gather", "assemble", "share", "warm", "read", "write")
BEGIN, END = "<!-- measured -->", "<!-- end of what is measured -->"
EXCHANGED = 30e6        # bytes of a bundle's normal equations (22 MB) and results, computed from their shapes
RANKS = (1, 2, 4, 8, 16, 20, 32, 64, 128, 256, 512, 1024, 2048, 4096)
# described, not measured: two sockets of 64 cores, one rank each; a core like the one measured on; all cores at work
# take 1.6 times as long for a piece (memory bandwidth, clock); 100 Gbit/s between nodes; a parallel file system with
# 50 GB/s and 50000 opens a second for everybody
NODE = Machine(cores=128, crowding=1.6, latency=2e-6, bandwidth=12e9, files=50e9, opens=5e4)


def run(frames: int, ranks: int, groups: int, folder: Path, *, seed: int, small: bool) -> list[str]:
    """The command of an exposure that leaves its record in a folder."""
    words = ["-w", "6030,6080,0.8", "--camera", "tiny"] if small else ["--camera", "r0"]
    return [*launcher(ranks if ranks > 1 else 0), *program("gpu_extract_exposure"), "--simulate", str(frames), "--seed",
            str(seed), "-o", str(folder), "--groups", str(groups), "--recompute", "--no-gpu", "--loglevel", "warning",
            "--perf", str(folder / "perf.json"), *words]


def record(folder: Path) -> list[dict[str, Any]]:
    """What the ranks of an exposure recorded."""
    found: list[dict[str, Any]] = json.loads((folder / "perf.json").read_text())["ranks"]
    return found


def values(ranks: Sequence[dict[str, Any]], name: str, column: int = 3) -> np.ndarray:
    """Wall (column 3) or CPU (4) seconds of the spans of a name while frames are worked on, of all ranks, in order."""
    found = []
    for rank in ranks:
        ((begin, length),) = ((s[2], s[3]) for s in rank["spans"] if s[0] == "frames")
        found += [s[column] for s in rank["spans"] if s[0] == name and begin <= s[2] <= begin + length]
    return np.array(found)


def cost(ranks: Sequence[dict[str, Any]], name: str, frames: int) -> list[float]:
    """Mean and standard deviation of a span over the pieces of a frame; of each piece the median over the frames."""
    pieces = np.median(values(ranks, name).reshape(frames, -1), axis=0)
    return [float(pieces.mean()), float(pieces.std())]


def of_files(ranks: Sequence[dict[str, Any]], name: str) -> list[float]:
    """CPU seconds of reading or writing a frame."""
    found = [s[4] for rank in ranks for s in rank["spans"] if s[0] == name]
    return [statistics.median(found), statistics.pstdev(found)]


def measure_costs(folder: Path, small: bool) -> dict[str, Any]:
    """The costs of the pieces: on one rank; what a second one adds; how much two jobs at once slow each other down."""
    frames = 2 if small else FRAMES
    both = [folder / "at-once-1", folder / "at-once-2"]
    for one in both:
        one.mkdir(exist_ok=True)
        if not (one / "simulated").exists():
            (one / "simulated").symlink_to(folder / "simulated")
    for _ in range(1 if small else 2):                 # the first makes images and kernels, and fills the page cache
        subprocess.run(run(frames, 1, 1, folder, seed=SEEN, small=small), check=True)
    alone = record(folder)
    at_once = [subprocess.Popen(run(frames, 1, 1, one, seed=SEEN, small=small)) for one in both]
    if any(process.wait() for process in at_once):
        raise SystemExit("one of two exposures at once failed")
    subprocess.run(run(frames, 2, 1, folder, seed=SEEN, small=small), check=True)
    shared = record(folder)
    bundle = cost(alone, "bundle", frames)
    bundles = len(values(alone, "bundle")) // frames
    crowded = statistics.fmean(cost(record(one), "bundle", frames)[0] for one in both) / bundle[0]
    gathered = float(np.median(values(shared[:1], "mpi gather"))) / max(bundles // 2, 1)
    return {"bundles": bundles, "cores": os.cpu_count(), "crowding": crowded, "plan": cost(alone, "plan", frames),
            "bundle": bundle, "alone": (cost(alone, "solve", frames)[0] + cost(alone, "cut", frames)[0]) / bundle[0],
            "pieces": 10, "exchanged": EXCHANGED, "gather": [gathered, 0.0],
            "assemble": cost(alone, "assemble", frames), "warm": cost(shared[:1], "warm up", frames),
            "share": [float(np.median(values(shared[:1], "wait for input"))), 0.0],
            "read": of_files(alone, "read"), "write": of_files(alone, "write"),
            "read_bytes": next(folder.glob("simulated/*/preproc-*")).stat().st_size,
            "write_bytes": next(folder.glob("frame-*.fits")).stat().st_size, "modules": 1100}


def measure_points(folder: Path, small: bool) -> dict[str, Any]:
    """Exposures of other frames than the costs are from, by turns: what the model is checked with; and the starts."""
    frames, repeats, points = (2, 1, POINTS[-1:]) if small else (FRAMES, REPEATS, POINTS)
    if not small:
        subprocess.run(run(frames, 2, 2, folder, seed=UNSEEN, small=small), check=True)     # images, page cache
    seconds: dict[tuple[int, int], list[float]] = {point: [] for point in points}
    starts = []
    before = used_by_others()
    for _ in range(repeats):
        for (ranks, groups), found in seconds.items():
            subprocess.run(run(frames, ranks, groups, folder, seed=UNSEEN, small=small), check=True)
            recorded = record(folder)
            found.append(judge(recorded, ranks)["seconds"])
            starts.append(sum(cpu for _, cpu in recorded[0]["start"].values()))
    others, whole = used_by_others(before)
    return {"start": [statistics.fmean(starts), statistics.pstdev(starts)], "others": others / whole,
            "points": [{"ranks": ranks, "groups": groups, "frames": frames, "seconds": found}
                       for (ranks, groups), found in seconds.items()]}


def costs_of(found: dict[str, Any]) -> Costs:
    """The costs in a record."""
    spread = {name: Cost(*found[name]) for name in SPREAD}
    plain = {name: found[name] for name in ("alone", "pieces", "exchanged", "read_bytes", "write_bytes", "modules")}
    return Costs(**spread, **plain)


def text(drawn: np.ndarray, digits: int = 2) -> str:
    """Median with the bounds of the middle 68 %."""
    middle, low, high = interval(drawn)
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def check(found: dict[str, Any], costs: Costs) -> bool:
    """The model of this machine against the points measured; whether all agree within the error that is stated."""
    here = Machine(cores=found["cores"], crowding=found["crowding"], bandwidth=1e12, latency=1e-6)
    print(f"\nthis machine: {here.cores} cores, a piece takes {here.crowding:.2f} times as long where all work; others "
          f"took {100 * found['others']:.0f} % of the cores\n"
          "ranks groups frames  measured s (all)       model s (68 %)       model / measured")
    ratios = []
    for point in found["points"]:
        drawn = exposure(costs, here, point["frames"], point["ranks"], bundles=found["bundles"], draws=400,
                         started=True, groups=point["groups"])["compute"]
        measured = statistics.median(point["seconds"])
        ratios.append(float(np.median(drawn)) / measured)
        all_of_them = f"{measured:.2f} ({min(point['seconds']):.2f}-{max(point['seconds']):.2f})"
        print(f"{point['ranks']:5d}{point['groups']:7d}{point['frames']:7d}  {all_of_them:22} {text(drawn):20} "
              f"{ratios[-1]:.2f}")
    if found["bundles"] < FEWEST:
        print("not judged: in frames as small as these it is not the bundles that take the time")
        return True
    worst = max(abs(ratio - 1) for ratio in ratios)
    print(f"largest difference {100 * worst:.0f} %, bar {100 * ERROR:.0f} %: "
          f"{'reached' if worst <= ERROR else 'NOT REACHED'}")
    return worst <= ERROR


def tables(costs: Costs) -> dict[str, dict[str, list[tuple[float, float, float]]]]:
    """Print, and return for the figures: seconds and efficiencies against ranks."""
    curves: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    rng = np.random.default_rng(2)
    one = extraction(costs, NODE, 1, 20, busy=1, draws=400, rng=rng)
    print("\none frame on n ranks (strong), one frame for every 20 ranks (weak), 30 frames with their start\n"
          " ranks  strong s (68 %)       efficiency  weak s               30 frames s          of it start s")
    for ranks in RANKS:
        strong = extraction(costs, NODE, ranks, 20, busy=ranks, draws=400, rng=rng)
        weak = exposure(costs, NODE, max(ranks // 20, 1), ranks, started=True)
        night = exposure(costs, NODE, 30, ranks)
        efficiency = float(np.median(one)) / (ranks * strong)
        for name, values in (("strong", strong), ("weak", weak["all"]), ("30 frames", night["all"]),
                             ("start-up", night["start"]), ("efficiency", efficiency)):
            curves.setdefault(name, {}).setdefault("y", []).append(interval(values))
        print(f"{ranks:6d}  {text(strong, 3):21} {np.median(efficiency):8.3f}    {text(weak['all']):20} "
              f"{text(night['all']):20} {text(night['start'])}")
    hour = exposure(costs, NODE, 3000, NODE.cores, started=True, draws=50)
    print(f"\nframes per node-hour, {NODE.cores} cores, long after the start: {text(3600 * 3000 / hour['all'], 0)}")
    return curves


def draw(curves: dict[str, dict[str, list[tuple[float, float, float]]]], folder: Path) -> None:
    """Seconds against ranks, with the middle 68 % of the draws."""
    from gpu_extract.figures.canvas import new_figure, save, tidy

    figure = new_figure(8.4, 3.6)
    for place, names, label in ((1, ("strong", "weak", "30 frames", "start-up"), "seconds"),
                                (2, ("efficiency",), "efficiency of one frame on n ranks")):
        ax = figure.add_subplot(1, 2, place)
        for name in names:
            middle, low, high = np.array(curves[name]["y"]).T
            ax.fill_between(RANKS, low, high, alpha=0.3, lw=0)
            ax.plot(RANKS, middle, lw=1.2, label=name)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log" if place == 1 else "linear")
        tidy(ax, xlabel="ranks", ylabel=label)
        ax.legend(frameon=False, fontsize=8)
    save(figure, folder / "forecast.png")


def main() -> int:
    """Measure or read the costs, check, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--costs", default=str(Path(__file__).with_suffix(".json")))
    parser.add_argument("--folder")
    parser.add_argument("--figures")
    parser.add_argument("--page")
    parser.add_argument("--smallest", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if args.measure or args.smallest:
            folder = Path(args.folder or scratch)
            found = {**measure_costs(folder, args.smallest), **measure_points(folder, args.smallest)}
            if not args.smallest:
                Path(args.costs).write_text(json.dumps(found, indent=1) + "\n", encoding="ascii")
        else:
            found = json.loads(Path(args.costs).read_text(encoding="ascii"))
    costs = costs_of(found)
    printed = io.StringIO()
    with redirect_stdout(printed):
        print("costs, seconds     mean      sd")
        for name in SPREAD:
            print(f"{name:14}{found[name][0]:9.4f}{found[name][1]:8.4f}")
        print(f"not divided among ranks that share a bundle: {costs.alone:.2f}; commit {commit()}")
        good = check(found, costs)
        curves = tables(costs)
    print(printed.getvalue(), end="")
    if args.figures:
        draw(curves, Path(args.figures))
    if args.page:
        page = Path(args.page)
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        page.write_text(f"{before}{BEGIN}\n```text\n{printed.getvalue()}```\n{END}{after}", encoding="utf-8")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
