"""Where does scaling bend beyond this machine? The model of doc/scaling.md: measured, checked, up to 4096 ranks.

usage: forecast.py [--measure] [--costs FILE.json] [--folder DIR] [--figures DIR] [--page FILE.md] [--smallest]

--measure takes the costs of the pieces with their spread from frames that one process extracts, how much two processes
slow each other down from two that do the same at once, and what a second rank adds from the record of an exposure. Then
it measures what the model is checked with: exposures of other frames, on one rank and on two, as one group and as two,
three times by turns. All goes to --costs (default bench/forecast.json); without --measure it is read from there. Then
it prints the inputs, the model against the points (bar: 15 %), and the tables; --figures draws them, --page puts what
is printed into the page, between its marks. --folder keeps the simulated images (1.7 GB) from one call to the next.
Where other work takes part of the cores, the points, and so the check, mean little: what it took is printed.
"""
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from gpu_extract.config import ExtractConfig
from gpu_extract.io.image import read_image
from gpu_extract.io.psf import read_psf
from gpu_extract.perf.recorder import Recorder
from gpu_extract.perf.source import commit
from gpu_extract.run import extract

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
from exposures import judge, record, values
from forecast_model import Cost, Costs, Machine, exposure, extraction, interval
from parsing import parser_of

from ranks import launcher, program, used_by_others

FRAMES, REPEATS = 4, 3
SEEN, UNSEEN = 1, 101   # seeds of the frames that the costs are from, and of those that the model is checked with
POINTS = ((1, 1), (2, 1), (2, 2))        # ranks, groups
ERROR = 0.15            # of the model, that is stated
FEWEST = 10             # bundles of a frame that the model is made for
SPREAD = ("start", "plan", "bundle", "gather", "assemble", "share", "read", "write", "files")
STAGES = ("plan", "bundle", "cut", "solve", "assemble")
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


def extractions(images: Sequence[Path], grid: tuple[float, float, float]) -> dict[str, list[list[float]]]:
    """CPU seconds of the stages of a frame's pieces, for each image; nothing is read or written beside them."""
    found: dict[str, list[list[float]]] = {name: [] for name in STAGES}
    for number, path in enumerate([images[0], *images]):               # the first time kernels are loaded
        image, psf, recorder = read_image(path), read_psf(next(path.parent.glob("psf-*"))), Recorder()
        extract(image, psf, ExtractConfig(grid), recorder=recorder)
        for name, rows in found.items() if number else ():
            rows.append([s[4] for s in recorder.record()["spans"] if s[0] == name])
    return found


def cost(frames: list[list[float]]) -> list[float]:
    """Mean and standard deviation over the pieces of a frame; of each piece the median over the frames."""
    pieces = np.median(np.array(frames), axis=0)
    return [float(pieces.mean()), float(pieces.std())]


def of_files(ranks: Sequence[dict[str, Any]], name: str) -> list[float]:
    """CPU seconds of reading or writing a frame."""
    found = [s[4] for rank in ranks for s in rank["spans"] if s[0] == name]
    return [statistics.median(found), statistics.pstdev(found)]


def taken_by_files(ranks: Sequence[dict[str, Any]], compute: float) -> list[float]:
    """CPU seconds that reading one frame and writing one took beside another's compute: what all took, but for that."""
    found = []
    for rank in ranks:
        (used,) = (s[4] for s in rank["spans"] if s[0] == "frames")
        frames = sum(s[0] == "frame" for s in rank["spans"])
        found.append((used - frames * compute) / max(frames - 1, 1))
    return [statistics.fmean(found), statistics.pstdev(found)]


def measure_costs(folder: Path, small: bool) -> dict[str, Any]:
    """The costs of the pieces: in one process; what a second rank adds; how much two processes slow each other down."""
    frames, grid = (2, (6030.0, 6080.0, 0.8)) if small else (FRAMES, (5760.0, 7620.0, 0.8))
    subprocess.run(run(frames, 2, 1, folder, seed=SEEN, small=small), check=True)       # images, kernels, page cache
    if not small:
        subprocess.run(run(frames, 2, 1, folder, seed=SEEN, small=small), check=True)
    shared = record(folder / "perf.json")
    images = sorted(folder.glob("simulated/*/preproc-*"))
    alone, *both = [found for ranks in (1, 2) for found in together(ranks, images, grid)]
    bundle = cost(alone["bundle"])
    crowded = max(statistics.fmean(cost(one["bundle"])[0] for one in both) / bundle[0], 1.0)
    bundles = len(alone["bundle"][0])
    subprocess.run(run(frames, 2, 2, folder, seed=SEEN, small=small), check=True)
    taken = taken_by_files(record(folder / "perf.json"), cost(alone["plan"])[0] + cost(alone["assemble"])[0]
                           + bundles * bundle[0])
    gathered = float(np.median(values(shared[:1], "mpi gather"))) / max(bundles // 2, 1)
    return {"bundles": bundles, "cores": os.cpu_count(), "crowding": crowded, "plan": cost(alone["plan"]),
            "bundle": bundle, "alone": (cost(alone["solve"])[0] + cost(alone["cut"])[0]) / bundle[0],
            "pieces": 10, "exchanged": EXCHANGED, "gather": [gathered, 0.0], "assemble": cost(alone["assemble"]),
            "share": [float(np.median(values(shared[:1], "wait for input"))), 0.0],
            "read": of_files(shared, "read"), "write": of_files(shared, "write"), "files": taken,
            "read_bytes": images[0].stat().st_size,
            "write_bytes": next(folder.glob("frame-*.fits")).stat().st_size, "modules": 1100}


def together(processes: int, images: Sequence[Path], grid: tuple[float, float, float]
             ) -> list[dict[str, list[list[float]]]]:
    """The same in so many processes at once."""
    with get_context("spawn").Pool(processes) as pool:
        return pool.starmap(extractions, [(images, grid)] * processes, chunksize=1)


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
            recorded = record(folder / "perf.json")
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
    here = Machine(cores=found["cores"], crowding=found["crowding"], bandwidth=1e12, latency=1e-6, bound=False)
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
        for name, drawn in (("strong", strong), ("weak", weak["all"]), ("30 frames", night["all"]),
                            ("start-up", night["start"]), ("efficiency", efficiency)):
            curves.setdefault(name, {}).setdefault("y", []).append(interval(drawn))
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
    parser = parser_of(__doc__, measure=False, folder=None, figures=None, page=None)
    parser.add_argument("--costs", default=str(Path(__file__).with_suffix(".json")))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if args.measure or args.smallest:
            folder = Path(args.folder or scratch)
            found = {"commit": commit(), **measure_costs(folder / "seen", args.smallest),
                     **measure_points(folder / "unseen", args.smallest)}
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
        print(f"not divided among ranks that share a bundle: {costs.alone:.2f}; commit {found['commit']}")
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
